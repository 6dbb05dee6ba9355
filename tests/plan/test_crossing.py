"""Convolutions that reduce their results over channels for the programs behind them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import crucible
from crucible.algebra.convolution.fused import Convolution
from crucible.algebra.crossings import Crossed, Crossings, crossed, of_rows
from crucible.algebra.expression import Expr, tensor
from crucible.algebra.program import Operand, Program, Reduction, Result
from crucible.capture import trace
from crucible.emission.lower import lowered_backward, lowered_forward
from crucible.gpus import H200, Gpu
from crucible.kinds.convolution import crossings as kinds
from crucible.kinds.convolution import keeping
from crucible.plan import crossing
from crucible.plan.planner import fuse
from crucible.plan.steps import Fused, Plan
from crucible.schedule.convolution.halo import UNITS
from crucible.schedule.convolution.warpgroup.stream_choice import best_streams, moved_by
from crucible.schedule.convolution.warpgroup.streams import Streams
from crucible.schedule.machine import H200 as MACHINE
from crucible.schedule.machine import MACHINES
from support import some

Behind = Callable[[torch.Tensor], torch.Tensor | tuple[torch.Tensor, ...]]
BEHIND: dict[str, Behind] = {
    "least": lambda h: torch.tanh(torch.tanh(h.amin(1, keepdim=True))),
    "values": lambda h: torch.min(h * 2, dim=1, keepdim=True)[0],
    "mean": lambda h: nn.functional.gelu(h).mean(1),
    "both": lambda h: h.amax(1) + h.mean(1),
    "and more": lambda h: (torch.relu(h.amax(1)), h.softmax(1)),
    "itself": lambda h: (h.amax(1), h),
    "off": lambda h: h - h.amax(1, keepdim=True),
    "softmax": lambda h: h.softmax(1),
    "of rows too": lambda h: h.amax((1, 2)),
}


class Net(nn.Module):
    def __init__(self, behind: str, made: int = 64, given: int = 16) -> None:
        super().__init__()
        self.conv, self.behind = nn.Conv2d(given, made, 3), BEHIND[behind]

    def forward(self, x: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        return self.behind(self.conv(x))


def planned(
    behind: str, shape: tuple[int, ...] = (128, 16, 256, 256), dtype: torch.dtype = torch.float32, made: int = 64
) -> Plan:
    module = Net(behind, made, shape[1]).to("meta", dtype)
    with torch.device("meta"):
        x = torch.empty(shape, dtype=dtype, requires_grad=True)
    return fuse(trace(module, [x]))


def convolving(plan: Plan) -> Fused:
    (found,) = (each for each in plan.steps if isinstance(each, Fused) and isinstance(each.compute, Convolution))
    return found


def taking(plan: Plan) -> list[Fused]:
    return [each for each in plan.steps if isinstance(each, Fused) and isinstance(each.given, Crossed)]


def touched(step: Fused, *, keeping: bool = False) -> tuple[set[str], set[str]]:
    """What its forward's kernels read and write."""
    kernels = [kernel for lowered in lowered_forward(step, H200, keeping=keeping) for kernel in lowered.kernels]
    return {each for kernel in kernels for each in kernel.reads}, {each for kernel in kernels for each in kernel.writes}


@pytest.mark.parametrize(("behind", "made", "count"), [("least", 64, 1), ("values", 64, 1), ("mean", 24, 1)])
def test_a_result_that_nothing_else_reads_is_not_written(behind: str, made: int, count: int) -> None:
    plan = planned(behind, made=made)
    step, (reader,) = convolving(plan), taking(plan)
    assert step.unwritten and isinstance(step.aside, Crossings) and len(step.aside.names) == count
    for name in step.aside.names:
        assert plan.types[name].shape == (128, 254, 254) and plan.types[name].dtype == "float32"
    read, written = touched(reader)
    assert read == {*step.aside.names} and reader.result in written
    assert step.result not in touched(step)[1] and {*step.aside.names} <= touched(step)[1]
    assert {step.result, *step.aside.names} <= touched(step, keeping=True)[1]
    backward = [kernel for lowered in lowered_backward(reader, H200).lowered for kernel in lowered.kernels]
    assert any(step.result in kernel.reads for kernel in backward) == (behind != "mean")


@pytest.mark.parametrize("behind", ["and more", "itself"])
def test_a_result_that_more_read_is_written(behind: str) -> None:
    plan = planned(behind)
    step = convolving(plan)
    assert step.aside and not step.unwritten and len(taking(plan)) == 1
    assert {step.result, *step.aside.names} <= touched(step)[1]


def test_two_reductions_are_taken_at_once() -> None:
    step = convolving(planned("both"))
    assert isinstance(step.aside, Crossings) and [each.kind for each in step.aside.reductions] == ["max", "sum"]


@pytest.mark.parametrize("behind", ["off", "softmax", "of rows too"])
def test_what_asks_for_more_than_positions_is_left(behind: str) -> None:
    plan = planned(behind)
    assert not taking(plan) and all(not isinstance(each, Fused) or each.aside is None for each in plan.steps)


def of_channels(expr: Expr, kind: str = "max", **changed: Any) -> Program:
    """Over [N, H, W] rows of C channels."""
    operand = Operand("h", "float32", (240, 6, 1, 30))
    reduction = Reduction("end", kind, expr)
    result = Result("out", "float32", (30, 6, 1), reduction.leaf)
    return replace(Program("behind", (2, 5, 6, 8), 3, (operand,), (reduction,), (result,)), **changed)


def test_maxima_are_taken_of_what_gradients_compute_alike() -> None:
    """Backward reads the tensor and compares: what is rounded once more might be rounded otherwise there."""
    h, shape = tensor("h"), (2, 8, 5, 6)
    for expr in (h, -h, abs(h)):
        assert crossed(of_channels(expr), "h", shape, ("taken",)) is not None
    assert crossed(of_channels(h * 3 + 1), "h", shape, ("taken",)) is None
    assert crossed(of_channels(h * 3 + 1, "sum"), "h", shape, ("taken",)) is not None


def test_crossings_lie_over_positions() -> None:
    found = crossed(of_channels(tensor("h")), "h", (2, 8, 5, 6), ("taken",))
    assert found is not None and found.operands[0].strides == (30, 6, 1, 0)
    program = of_rows(of_channels(tensor("h")), found)
    assert program.shape == (2, 5, 6) and [each.name for each in program.operands] == ["taken"]
    for shape in ((2, 4, 10, 6), (2, 16, 5, 3), (1, 8, 5, 6)):  # another tensor's channels
        assert crossed(of_channels(tensor("h")), "h", shape, ("taken",)) is None
    columns = of_channels(tensor("h"), operands=(Operand("h", "float32", (320, 40, 8, 1)),), shape=(2, 8, 5, 8))
    assert crossed(columns, "h", (2, 8, 5, 8), ("taken",)) is None  # as many columns as channels
    begun = replace(of_channels(tensor("h")).operands[0], start=1)
    assert crossed(of_channels(tensor("h"), operands=(begun,)), "h", (2, 8, 5, 6), ("taken",)) is None


def test_small_and_half_results_are_left() -> None:
    assert not taking(planned("least", (1, 16, 12, 12)))
    assert not taking(planned("least", dtype=torch.float16))


def test_what_takes_longer_than_to_read_the_result_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    assert taking(planned("itself", (128, 16, 240, 240)))
    slow = replace(MACHINE.streams, crossing_instructions=MACHINE.streams.crossing_instructions * 20)
    monkeypatch.setitem(MACHINES, "h200", replace(MACHINE, streams=slow))
    assert not taking(planned("itself", (128, 16, 240, 256)))  # estimates are kept by sizes


def in_parts(parts: int) -> Callable[[Convolution, Gpu], Streams]:
    """The best division of the channels among so many blocks."""

    def chosen(conv: Convolution, gpu: Gpu) -> Streams:
        found = best_streams(conv.correlation, UNITS[conv.source.dtype], 40, gpu, moved_by(conv))
        return next(each for each in found if each.channel_tiles == parts)

    return chosen


BESIDE_THESE = [
    ("least", "beside"),
    ("least", "in parts"),
    ("values", "beside"),
    ("mean", "in parts"),
    ("both", "beside"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("behind", "how"),
    [("least", "by a program"), ("both", "in parts"), ("and more", "beside"), *some(BESIDE_THESE, 5)],
)  # fmt: skip
def test_answers_and_gradients_are_eagers(behind: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the convolution writes them, in one part or in several, or a program where gradients are taken."""
    monkeypatch.setattr(crossing, "_pays", lambda *_, **__: True)
    monkeypatch.setattr(keeping, "crossing_pays", lambda *_, **__: how != "by a program")
    monkeypatch.setattr(kinds, "chosen", in_parts(2 if how == "in parts" else 1))
    torch.manual_seed(0)
    module, x = Net(behind, 32), torch.randn(2, 16, 9, 18)
    assert taking(fuse(trace(module, [x])))
    right, ours, theirs = copy.deepcopy(module).double(), x.clone().requires_grad_(), x.double().requires_grad_()
    fused = crucible.fuse(module, ours, emulate=True)
    found, wanted = (each if isinstance(each, tuple) else (each,) for each in (fused(ours), right(theirs)))
    cotangents = [torch.randn_like(each) for each in wanted]
    gradients = torch.autograd.grad(found, [ours, *module.parameters()], [each.float() for each in cotangents])
    expected = torch.autograd.grad(wanted, [theirs, *right.parameters()], cotangents)
    with torch.no_grad():
        again = fused(x)
    again = again if isinstance(again, tuple) else (again,)
    for one, other in zip((*found, *again, *gradients), (*wanted, *wanted, *expected), strict=True):
        assert (one - other).norm() <= 2e-3 * other.norm()


@pytest.mark.slow
def test_what_is_no_number_comes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crossing, "_pays", lambda *_, **__: True)
    module, x = Net("least", 32), torch.randn(2, 16, 9, 18)
    x[1, 3, 4, 5] = float("nan")
    with torch.no_grad():
        found, wanted = crucible.fuse(module, x, emulate=True)(x), module(x)
    assert wanted.isnan().any() and (found.isnan() == wanted.isnan()).all()
