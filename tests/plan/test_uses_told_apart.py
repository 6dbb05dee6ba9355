"""What comes back from each reader of a tensor is added up by the kernel that reads it, not by autograd."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_eager import assert_same
from interpret import check, fused_steps
from torch import nn
from torch.utils.checkpoint import checkpoint

import crucible
from crucible.capture import trace
from crucible.plan.planner import fuse

pytestmark = pytest.mark.usefixtures("no_faults")
WIDTH = 12


class Net(nn.Module):
    """A function with three linear layers and two norms, one over the batch."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.norm, self.batch = nn.LayerNorm(WIDTH), nn.BatchNorm1d(WIDTH)

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)


def heads(m: Net, x: torch.Tensor) -> torch.Tensor:
    y = m.norm(x.tanh())
    return m.q(y).view(-1, 4) @ m.k(y).view(-1, 4).mT @ m.v(y).view(-1, 4)


def batch_norm(m: Net, x: torch.Tensor) -> torch.Tensor:
    y = torch.relu(m.batch(m.q(x)) + x)
    return m.k(y).cumsum(0) + y


def many(m: Net, x: torch.Tensor) -> torch.Tensor:
    y = torch.tanh(x)
    return sum(layer(y).cumsum(0) for layer in (m.q, m.k, m.v, m.q, m.k))  # type: ignore[return-value]


def with_an_output(m: Net, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.tanh(x)
    return m.q(y).cumsum(0), y


def seen_in_an_output(m: Net, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.tanh(x)
    return m.q(y).cumsum(0) + m.k(y).cumsum(0), y.chunk(2)[1].view(-1, 2)


def two_outputs(m: Net, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.tanh(x)
    return m.q(y).cumsum(0), m.k(y).cumsum(0)


def one_that_takes_no_gradient(m: Net, x: torch.Tensor) -> torch.Tensor:
    y = torch.tanh(x)
    return m.q(y).cumsum(0) * m.k(y.detach()).cumsum(0)


def twice_in_one_call(m: Net, x: torch.Tensor) -> torch.Tensor:
    y = torch.tanh(x)
    return y @ y.mT


def with_its_stream(m: Net, x: torch.Tensor) -> torch.Tensor:
    s = m.q(x) + x
    y = m.norm(s)
    return m.k(y).cumsum(0) + m.v(y).cumsum(0) + s


def both_kinds(m: Net, x: torch.Tensor) -> torch.Tensor:
    """A stream that is written along, and kept for backward, and read twice besides."""
    s = m.q(x) + x
    return m.k(m.norm(s)).cumsum(0) * m.v(s).cumsum(0) + s


CASES: dict[str, tuple[Callable[..., Any], int]] = {
    "heads": (heads, 2),
    "batch norm": (batch_norm, 1),
    "more than are told apart": (many, 3),
    "an output": (with_an_output, 0),
    "seen in an output": (seen_in_an_output, 0),
    "of two outputs": (two_outputs, 1),
    "one that takes no gradient": (one_that_takes_no_gradient, 0),
    "a view of it": (twice_in_one_call, 1),
    "with its stream": (with_its_stream, 1),
}
"""Forward, and how many further names there are."""


@pytest.mark.parametrize("name", CASES)
def test_each_reader_has_a_name_of_its_own(name: str) -> None:
    function, count = CASES[name]
    steps = fused_steps(check(Net(function), torch.randn(6, WIDTH), unused=True))
    assert sum(len(step.again) for step in steps) == count, [(step.name, step.again) for step in steps]


def test_kernels_add_up_what_comes_back_through_a_batch_norm() -> None:
    module, x = Net(batch_norm), torch.randn(6, WIDTH)
    fused = crucible.fuse(copy.deepcopy(module), x, emulate=True)
    for _ in range(2):  # running statistics go on
        assert_same(fused, module, [x])


def test_autograd_adds_nothing_up() -> None:
    module, x = Net(heads), torch.randn(8, WIDTH)
    fused = crucible.fuse(copy.deepcopy(module), x, emulate=True)

    def sums(net: nn.Module) -> int:
        """Accumulations, beside those of the loss."""
        out = net(x.clone().requires_grad_())
        with torch.profiler.profile() as found:
            out.backward(torch.ones_like(out))
        return sum(event.name in ("aten::add", "aten::add_") for event in found.events())

    assert sums(module) == 2 and sums(fused) == 0


def test_what_comes_back_by_one_name_alone_is_right() -> None:
    module, x = Net(two_outputs), torch.randn(5, WIDTH)
    fused = crucible.fuse(copy.deepcopy(module), x, emulate=True)
    for place in (0, 1):
        assert_same(fused, module, [x], lambda out, place=place: out[place : place + 1])
    with torch.no_grad():
        for own, eager in zip(fused(x), module(x), strict=True):
            torch.testing.assert_close(own, eager)


@pytest.mark.slow
def test_a_compiler_sees_one_tensor() -> None:
    module, x = Net(both_kinds), torch.randn(5, WIDTH)
    fused = crucible.fuse(copy.deepcopy(module), x, emulate=True)
    assert_same(torch.compile(fused, backend="aot_eager", fullgraph=True), module, [x])


def test_who_writes_to_an_output_is_told_as_in_eager() -> None:
    """Names of one memory know nothing of each other's writes."""
    module, x = Net(seen_in_an_output), torch.randn(6, WIDTH)
    for each in (module, crucible.fuse(copy.deepcopy(module), x, emulate=True)):
        first, second = each(x.clone().requires_grad_())
        with torch.no_grad():
            second.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            first.sum().backward()


def test_a_checkpoint_computes_it_again() -> None:
    module, x = Net(both_kinds), torch.randn(6, WIDTH)
    fused = crucible.fuse(copy.deepcopy(module), x, emulate=True)
    (step,) = [step for step in fused_steps(fuse(trace(module, [x]))) if step.further]
    assert step.again
    leaf, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    out, expected = checkpoint(fused, leaf, use_reentrant=False), module(other)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)
    out.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(leaf.grad, other.grad, rtol=1e-4, atol=1e-4)


class Box:
    """What a node keeps in the stead of a tensor."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


def test_what_is_kept_is_let_go() -> None:
    """A node that keeps a result of its own, which has names, is no ring: nothing stays once nobody holds results."""
    module, x = Net(both_kinds), torch.randn(6, WIDTH)
    fused = crucible.fuse(module, x, emulate=True)
    boxes: list[weakref.ref[Box]] = []

    def pack(tensor: torch.Tensor) -> Box:
        box = Box(tensor.detach())
        boxes.append(weakref.ref(box))
        return box

    for backward in (True, False):
        boxes.clear()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda box: box.tensor):
            out = fused(x.clone().requires_grad_())
        assert len(boxes) > 4 and all(box() is not None for box in boxes)
        if backward:
            out.sum().backward()
        del out
        gc.collect()
        assert all(box() is None for box in boxes)
