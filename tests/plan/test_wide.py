"""Which convolutions of more than 64 channels are ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from crucible.algebra.convolution.fused import Convolution
from crucible.algebra.pool import Pool
from crucible.capture import trace
from crucible.plan.planner import fuse
from crucible.plan.steps import Call, Fused, Plan

PLANE = (128, 64, 128, 128)
SPACE = (16, 64, 32, 32, 32)


class Behind(nn.Module):
    def __init__(self, made: nn.Module, behind: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.made, self.behind = made, behind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.behind(self.made(x))


def planned(made: nn.Module, shape: Sequence[int], behind: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype,
            *, tf32: bool = True) -> Plan:  # fmt: skip
    with torch.device("meta"):
        x = torch.empty(shape, dtype=dtype, requires_grad=True)
    return fuse(trace(Behind(made, behind).to("meta", dtype), [x]), tf32=tf32)


def convolves(plan: Plan) -> bool:
    """Whether a kernel of ours does, and PyTorch does not."""
    ours = [each for each in plan.steps if isinstance(each, Fused) and isinstance(each.compute, Convolution)]
    called = [each for each in plan.steps if isinstance(each, Call) and each.operation.kind.startswith("conv")]
    assert len(ours) + len(called) == 1
    return bool(ours)


def twice(x: torch.Tensor) -> torch.Tensor:
    return F.mish(F.mish(x))


def normed(x: torch.Tensor) -> torch.Tensor:
    return F.instance_norm(x)


def normed_together(x: torch.Tensor) -> torch.Tensor:
    return F.batch_norm(x, None, None, training=True)


@pytest.mark.parametrize(
    ("made", "shape", "behind", "ours"),
    [
        (nn.Conv2d(64, 128, 3), PLANE, torch.relu, True),
        (nn.Conv2d(64, 128, 3), PLANE, torch.tanh, True),
        (nn.Conv2d(64, 128, 3), PLANE, nn.Identity(), False),
        (nn.Conv2d(64, 128, 3), PLANE, normed, True),
        (nn.Conv2d(64, 128, 3), PLANE, normed_together, False),
        (nn.Conv2d(64, 128, 3), PLANE, twice, False),
        (nn.Conv2d(64, 256, 3), PLANE, torch.relu, False),
        (nn.Conv2d(128, 128, 3, padding=1), (64, 128, 14, 14), torch.relu, False),
        (nn.Conv3d(64, 128, 3), SPACE, torch.relu, True),
        (nn.Conv3d(64, 128, 5), SPACE, torch.relu, False),
        (nn.ConvTranspose3d(64, 128, 3, stride=2), SPACE, torch.relu, True),
        (nn.ConvTranspose2d(64, 128, 4, stride=2), PLANE, F.gelu, False),
    ],
    ids=[
        "chain",
        "tanh",
        "alone",
        "norm of each",
        "norm of all",
        "heavy",
        "wider",
        "small",
        "space",
        "taps",
        "phases",
        "phased plane",
    ],
)
def test_wide_ones_are_ours_where_they_take_less(
    made: nn.Module, shape: Sequence[int], behind: Callable[[torch.Tensor], torch.Tensor], ours: bool
) -> None:
    assert convolves(planned(made, shape, behind, torch.float32)) == ours


@pytest.mark.parametrize(("dtype", "tf32"), [(torch.float32, False), (torch.bfloat16, True)])
def test_wide_ones_are_pytorchs_in_other_arithmetic(dtype: torch.dtype, *, tf32: bool) -> None:
    assert not convolves(planned(nn.Conv2d(64, 128, 3), PLANE, torch.relu, dtype, tf32=tf32))


@pytest.mark.parametrize(("channels", "kinds"), [(64, [Convolution]), (128, [Convolution, Pool])])
def test_a_pool_is_not_in_a_wide_ones_kernel(channels: int, kinds: list[type]) -> None:
    """Kernels with pools are of warps, which take twice the time of streams there."""
    plan = planned(nn.Conv2d(64, channels, 3), PLANE, lambda x: F.max_pool2d(torch.relu(x), 2), torch.float32)
    assert [type(each.compute) for each in plan.steps if isinstance(each, Fused)] == kinds


def test_where_float32_is_kept_pools_stay_inside() -> None:
    """Streams, which would be faster without, multiply rounded operands alone."""
    made, pooled = nn.ConvTranspose3d(64, 128, 3, stride=2), lambda x: F.max_pool3d(x, 2)
    plan = planned(made, SPACE, pooled, torch.float32, tf32=False)
    (step,) = (each for each in plan.steps if isinstance(each, Fused))
    assert isinstance(step.compute, Convolution) and step.compute.pool
