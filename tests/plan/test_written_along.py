"""A residual stream is written by the kernel of the norm that reads it; both results take gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from beside_eager import assert_same, results
from interpret import check, fused_steps
from torch import nn

import crucible
from crucible.capture import trace
from crucible.plan import along
from crucible.plan.planner import fuse

pytestmark = pytest.mark.usefixtures("no_faults")
WIDTH = 24


class Block(nn.Module):
    """A residual sum with a bias, its norm, and a linear layer, whose result goes on with the stream."""

    def __init__(self, function: Callable[..., Any], width: int = WIDTH) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return self.function(self, x, y)


def pre_norm(m: Block, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    v = m.first(x) + y
    return m.second(m.norm(v)) + v


def two_blocks(m: Block, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    v = m.first(x) + y
    w = m.second(m.norm(v)) + v
    return m.first(F.rms_norm(w, (WIDTH,), eps=1e-6)) + w


def two_streams(m: Block, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    v, w = m.first(x) + y, m.second(y) * x + y
    return m.first(m.norm(v) + torch.tanh(w)) + m.second(v) * w


def for_pytorch_too(m: Block, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    v = m.first(x) + y
    return m.first(m.norm(v)) + m.second(v)


def without_reductions(m: Block, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    v = m.first(x) * y
    return m.second(torch.tanh(v) * y) + v


def channels_first(m: Block, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    v = (m.first(x) + y).transpose(-1, -2)
    return m.second(m.norm(v.transpose(-1, -2))) + v.transpose(-1, -2)


def read_by_pytorch_first(m: Block, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    v = m.first(x) + y
    u = m.second(v)
    return m.second(m.norm(v) + u) + v


def of_another_space(m: Block, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    v = m.first(x) + y
    return m.second(v.mean(0, keepdim=True) + v[:1].sin()) + v


CASES: dict[str, tuple[Callable[..., Any], int]] = {
    "a block": (pre_norm, 1),
    "two blocks": (two_blocks, 2),
    "two streams": (two_streams, 2),
    "for PyTorch too, behind the norm": (for_pytorch_too, 1),
    "without reductions": (without_reductions, 1),
    "seen transposed between": (channels_first, 1),
    "read by PyTorch first": (read_by_pytorch_first, 0),
    "of another space": (of_another_space, 0),
}
"""Forward, and how many values are written along."""


def given() -> list[torch.Tensor]:
    torch.manual_seed(1)
    return [torch.randn(5, WIDTH), torch.randn(5, WIDTH)]


@pytest.mark.parametrize("name", CASES)
def test_a_stream_is_written_by_who_reads_it_first(name: str) -> None:
    function, count = CASES[name]
    steps = fused_steps(check(Block(function), *given(), unused=True))
    assert sum(len(step.further) for step in steps) == count, [step.name for step in steps]


def test_kernels_write_two_streams() -> None:
    module = Block(two_streams)
    assert_same(crucible.fuse(copy.deepcopy(module), *given(), emulate=True), module, given())


def both(m: Block, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    v = m.first(x) + y
    return m.second(m.norm(v)), torch.tanh(v)


def test_the_gradient_of_one_may_not_come() -> None:
    module = Block(both)
    assert [len(step.results) for step in fused_steps(fuse(trace(module, given())))] == [2, 1]
    fused = crucible.fuse(copy.deepcopy(module), *given(), emulate=True)
    for place in (0, 1):
        assert_same(fused, module, given(), lambda out, place=place: out[place])
    with torch.no_grad():
        for own, eager in zip(fused(*given()), module(*given()), strict=True):
            torch.testing.assert_close(own, eager)


def test_backward_reads_what_was_written_and_nothing_that_it_is_made_of() -> None:
    (step,) = [each for each in fused_steps(fuse(trace(Block(pre_norm), given()))) if each.further]
    (stream,) = step.further
    assert step.backward is not None
    read = {operand.name for operand in step.backward.operands}
    assert {stream, *step.upstream} <= read and not any(name.endswith("without_bias") or name == "y" for name in read)
    assert len(step.backward.results) < len(step.wanted)  # the two terms of the sum have one gradient


def test_rows_that_do_not_stay_in_registers_are_read_from_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(along, "MOST_COLUMNS", WIDTH - 1)
    assert not any(step.further for step in fused_steps(fuse(trace(Block(pre_norm), given()))))


def test_a_kernel_has_so_many_tensors_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    (step,) = [each for each in fused_steps(fuse(trace(Block(pre_norm), given()))) if each.further]
    made = len(step.results) + len(step.saved)
    count = len(step.all_operands) + made + 1  # the norm reads the stream, before they are one
    for most, along_ in ((count, 1), (count - 1, 0)):
        monkeypatch.setattr(along, "MOST_TENSORS", most)
        assert sum(len(each.further) for each in fused_steps(fuse(trace(Block(pre_norm), given())))) == along_


def test_where_the_stream_takes_no_gradient_it_is_a_step_of_its_own() -> None:
    module = Block(pre_norm)
    module.first.requires_grad_(False)

    class Inside(nn.Module):
        """What comes from outside takes no gradient."""

        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.module(x.detach(), y.detach())  # type: ignore[no-any-return]

    assert not any(step.further for step in fused_steps(fuse(trace(Inside(), given()))))


@pytest.mark.slow
def test_a_compiler_sees_both_results() -> None:
    module = Block(two_blocks)
    fused = crucible.fuse(copy.deepcopy(module), *given(), emulate=True)
    compiled = torch.compile(fused, backend="aot_eager", fullgraph=True)
    assert_same(compiled, module, given())


def test_narrow_tensors_are_computed_wide_in_between() -> None:
    module = Block(pre_norm).bfloat16()
    inputs = [each.bfloat16() for each in given()]
    exact = copy.deepcopy(module).double()
    fused = crucible.fuse(copy.deepcopy(module), *inputs, emulate=True)
    ours, eager = (results(each, inputs) for each in (fused, module))
    for own, theirs, right in zip(ours, eager, results(exact, [i.double() for i in inputs]), strict=True):
        error, noise = (float((each.double() - right).norm()) for each in (own, theirs))
        assert error <= 1.5 * noise + 1e-2 * float(right.norm())


def test_calls_stay_in_their_order() -> None:
    """The merged step stands where the reader stood: whoever reads the stream comes behind it."""
    steps = fuse(trace(Block(two_streams), given())).steps
    made: set[str] = {"x", "y"}
    for step in steps:
        assert all(name in made or "weight" in name or "bias" in name for name in step.reads), step
        made.update(step.names)
