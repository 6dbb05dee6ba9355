"""Which products forward keeps for backward."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import crucible
from crucible.algebra.convolution.fused import Convolution
from crucible.capture import trace
from crucible.emission.lower import lowered_backward, lowered_forward
from crucible.gpus import H200
from crucible.judge.oracle.reference import Reference
from crucible.plan.planner import fuse
from crucible.plan.steps import Fused, Plan
from crucible.schedule.machine import H200 as MACHINE
from crucible.schedule.machine import MACHINES
from crucible.task import Task

ROOT = Path(__file__).parents[2]


class Chained(nn.Module):
    def __init__(self, behind: str) -> None:
        super().__init__()
        self.made, self.behind = nn.Conv2d(64, 64, 3), behind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.made(x)
        return F.gelu(y) if self.behind == "gelu" else y * 2


class Streamed(nn.Module):
    """What streams compute at small sizes too."""

    def __init__(self) -> None:
        super().__init__()
        self.made, self.scale = nn.Conv2d(64, 24, 5), nn.Parameter(torch.rand(24, 1, 1) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(self.made(x)) * self.scale


def step_of(behind: str, dtype: torch.dtype = torch.float32, *, takes: bool = True) -> Fused:
    module = Chained(behind).to("meta", dtype).requires_grad_(takes)
    with torch.device("meta"):
        x = torch.empty((64, 64, 256, 256), dtype=dtype, requires_grad=takes)
    return convolving(fuse(trace(module, [x])))


def convolving(plan: Plan) -> Fused:
    (found,) = (each for each in plan.steps if isinstance(each, Fused) and isinstance(each.compute, Convolution))
    return found


def test_a_costly_product_is_kept_and_written_where_gradients_are_taken_alone() -> None:
    step = step_of("gelu")
    (name,) = step.saved
    assert name == f"{step.compute.name}_product" and step.saved[name].dtype == "float32"
    writes = [
        {each for lowered in lowered_forward(step, H200, keeping=keeping) for k in lowered.kernels for each in k.writes}
        for keeping in (False, True)
    ]
    assert [(step.result in each, name in each) for each in writes] == [(True, False), (True, True)]
    backward = lowered_backward(step, H200)
    kernels = [kernel for lowered in backward.lowered for kernel in lowered.kernels]
    assert sum(name in kernel.reads for kernel in kernels) == 1
    assert not any(kernel.name.endswith("_again") for kernel in kernels)
    assert {"x", "made_weight", "made_bias"} <= {step.operands[each] for each in backward.gradients}


@pytest.fixture
def keeps(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> bool:
    """A machine on which products are kept whatever that takes, and written alone or not."""
    choices = replace(MACHINE.choices, kept_share=1e9, apart_times=1e9 if request.param else 0.0)
    monkeypatch.setitem(MACHINES, "h200", replace(MACHINE, choices=choices))
    return bool(request.param)


@pytest.mark.parametrize("keeps", [True, False], ids=["alone", "beside the result"], indirect=True)
def test_a_kept_product_is_written_alone_or_beside_the_result(keeps: bool) -> None:
    step = convolving(fuse(trace(Streamed(), [torch.randn(1, 64, 8, 40)])))
    kernels = [kernel for lowered in lowered_forward(step, H200, keeping=True) for kernel in lowered.kernels]
    *_, last = kernels
    (name,) = step.saved
    assert step.result in last.writes
    assert (name in last.reads, name in last.writes) == (keeps, not keeps)


@pytest.mark.slow
@pytest.mark.parametrize("keeps", [True], ids=["alone"], indirect=True)
def test_what_is_kept_gives_eagers_gradients(keeps: bool) -> None:
    module = Streamed()
    eager, x = copy.deepcopy(module), torch.randn(1, 64, 8, 40)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    found, wanted = crucible.fuse(module, ours, emulate=True)(ours), eager(theirs)
    cotangent = torch.randn_like(wanted)
    pairs = zip(
        (found, *torch.autograd.grad(found, [ours, *module.parameters()], cotangent)),
        (wanted, *torch.autograd.grad(wanted, [theirs, *eager.parameters()], cotangent)),
        strict=True,
    )
    for one, other in pairs:
        assert (one - other).norm() <= 3e-3 * other.norm(), keeps


@pytest.mark.parametrize(
    ("made", "shape", "alone"),
    [
        (nn.Conv2d(64, 128, 3), (128, 64, 128, 128), True),  # streams: 1.95 ms for both, 0.94 for one
        (nn.ConvTranspose3d(64, 128, 3, stride=2, padding=1), (16, 64, 24, 48, 48), False),  # by warps: 5.16 and 4.50
    ],
    ids=["streams", "tiles"],
)
def test_streams_write_a_product_alone_and_tiles_beside_the_result(
    made: nn.Module, shape: tuple[int, ...], alone: bool
) -> None:
    with torch.device("meta"):
        x = torch.empty(shape, requires_grad=True)
    step = convolving(fuse(trace(nn.Sequential(made, nn.ReLU()).to("meta"), [x])))
    assert step.saved and step.product_alone == alone


@pytest.mark.parametrize("tf32", [True, False])
def test_forward_that_keeps_a_product_has_kernels_of_its_own(tf32: bool) -> None:
    """Level 2's task 61, whose norm takes moments: the number that they are around was found by two of one name, in
    float32's precision, and the file did not build."""
    layers = nn.ConvTranspose3d(64, 128, 3, bias=False), nn.ReLU(), nn.GroupNorm(8, 128)
    with torch.device("meta"):
        x = torch.empty((16, 64, 32, 32, 32), requires_grad=True)
    step = convolving(fuse(trace(nn.Sequential(*layers).to("meta"), [x]), tf32=tf32))
    assert step.saved and step.aside
    assert tf32 or step.product_alone  # streams take no moments beside two tensors, and warps twice as long
    plain, keeping = (
        {kernel.name for each in lowered_forward(step, H200, keeping=kept) for kernel in each.kernels}
        for kept in (False, True)
    )
    assert plain.isdisjoint(keeping)


@pytest.mark.parametrize("why", ["a chain that is linear", "a half type"])
def test_what_need_not_or_would_move_more_is_not_kept(why: str) -> None:
    step = step_of("double") if "linear" in why else step_of("gelu", torch.bfloat16)
    assert not step.saved


@pytest.mark.parametrize(
    ("made", "shape", "kept"),
    [
        (nn.Conv2d(32, 64, 3), (64, 32, 96, 96), False),  # with gradients 1.17 times as long where it was kept
        (nn.ConvTranspose2d(16, 16, 4, stride=2), (16, 16, 64, 64), False),
        (nn.Conv2d(64, 64, 3, padding=1), (64, 64, 80, 80), True),  # 0.91 times
        (nn.Conv2d(64, 64, 3), (64, 64, 256, 256), True),
    ],
    ids=["32 channels", "few channels", "64 channels", "large"],
)
def test_what_is_moved_decides_whether_it_is_kept(made: nn.Module, shape: tuple[int, ...], kept: bool) -> None:
    """As two versions of 43 modules were timed in turns (`before_and_after_h100.json`)."""
    with torch.device("meta"):
        x = torch.empty(shape, requires_grad=True)
    step = convolving(fuse(trace(nn.Sequential(made, nn.GELU()).to("meta"), [x])))
    assert bool(step.saved) == kept


def test_a_cheap_product_is_computed_again() -> None:
    """8 channels to 16, in three dims: its kernel is as fast as memory."""
    task = Task.load(ROOT / "tasks/conv3d_leakyrelu_sum_clamp_gelu/reference.py").at(
        scale="full", training=True, mode="train", small_by_default=False
    )
    reference = Reference(task.source, str(task.path), task.sizes, mode=task.mode, seed=0, device=torch.device("cpu"))
    step = convolving(fuse(trace(reference.model, reference.inputs(0))))
    assert not step.saved
    kernels = [kernel for lowered in lowered_backward(step, H200).lowered for kernel in lowered.kernels]
    assert sum(kernel.name.endswith("_again") for kernel in kernels) == 1
