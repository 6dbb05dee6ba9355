"""Which convolutions of more than 64 channels are ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from crucible.algebra.convolution.correlation import convolution
from crucible.algebra.convolution.fused import Convolution
from crucible.algebra.pool import Pool
from crucible.algebra.program import Operand, contiguous
from crucible.capture import trace
from crucible.gpus import H200
from crucible.plan import taken
from crucible.plan.planner import fuse
from crucible.plan.steps import Call, Fused, Plan
from crucible.schedule.convolution.questions import WeightGradient
from crucible.schedule.convolution.weights import chosen_for_weight, weight_clocks

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


@pytest.mark.parametrize(
    ("made", "shape", "behind", "ours"),
    [
        (nn.Conv2d(64, 128, 3), PLANE, torch.relu, True),
        (nn.Conv2d(64, 128, 3), PLANE, nn.Identity(), True),
        (nn.Conv2d(64, 128, 3), PLANE, twice, True),
        (nn.Conv2d(64, 256, 3), PLANE, torch.relu, False),
        (nn.Conv2d(128, 128, 3, padding=1), (1, 128, 14, 14), torch.relu, False),
        (nn.Conv2d(64, 128, 7), PLANE, torch.relu, False),
        (nn.ConvTranspose2d(64, 128, 5, padding=1), (512, 64, 32, 32), torch.relu, True),
        (nn.ConvTranspose2d(64, 128, 4, stride=2), PLANE, torch.relu, True),
    ],
    ids=["chain", "alone", "heavy", "wider", "small", "taps", "turned", "phased plane"],
)
def test_wide_ones_that_keep_float32_are_ours_where_they_take_less(
    made: nn.Module, shape: Sequence[int], behind: Callable[[torch.Tensor], torch.Tensor], ours: bool
) -> None:
    assert convolves(planned(made, shape, behind, torch.float32, tf32=False)) == ours


@pytest.mark.parametrize("slow", ["forward", "gradients"])
def test_ours_that_keep_float32_take_less_forward_and_with_gradients(
    slow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either estimate alone decides against them."""
    if slow == "forward":  # whatever gradients take
        monkeypatch.setattr(taken.cost, "library_gradient", lambda *_: 1e18)
    longest = {"forward": "least_clocks", "gradients": "_gradients_clocks"}[slow]
    monkeypatch.setattr(taken, longest, lambda *_: 1e15)
    assert not convolves(planned(nn.Conv2d(64, 128, 3), PLANE, torch.relu, torch.float32, tf32=False))


class Twice(nn.Module):
    """Read by a chain and by a norm of its rows."""

    def __init__(self) -> None:
        super().__init__()
        self.made = nn.Conv2d(64, 128, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        made = self.made(x)
        return torch.relu(made), F.softmax(made.flatten(2), 2)


def test_what_is_ours_for_keeping_float32_alone_is_convolved_once() -> None:
    """In TF32 it is PyTorch's, with such readers."""
    with torch.device("meta"):
        x = torch.empty(PLANE)
    found = {tf32: fuse(trace(Twice().to("meta"), [x]), tf32=tf32).steps for tf32 in (True, False)}
    ours = {
        tf32: [each for each in steps if isinstance(each, Fused) and isinstance(each.compute, Convolution)]
        for tf32, steps in found.items()
    }
    assert (len(ours[True]), len(ours[False])) == (0, 1)


def test_a_weights_gradient_is_estimated_at_two_products_where_float32_is_kept() -> None:
    of = convolution(PLANE, (128, 64, 3, 3), (1, 1), (0, 0), (1, 1), 1)
    read, grad = (Operand(name, "float32", contiguous(n)) for name, n in (("x", of.in_shape), ("grad", of.out_shape)))
    kept = WeightGradient("weight", of, read, grad, exact=True)
    way = chosen_for_weight(kept, H200)
    assert way is not None
    assert weight_clocks(kept, way) > 1.3 * weight_clocks(replace(kept, exact=False), way) == 1.3 * way.total_clocks


def test_wide_ones_are_pytorchs_in_half_types() -> None:
    assert not convolves(planned(nn.Conv2d(64, 128, 3), PLANE, torch.relu, torch.bfloat16))


@pytest.mark.parametrize(
    ("channels", "tf32", "kinds"),
    [
        (64, True, [Convolution]),
        (128, True, [Convolution, Pool]),
        (64, False, [Convolution, Pool]),
        (128, False, [Convolution, Pool]),
    ],
)
def test_a_pool_is_not_in_a_wide_ones_kernel(channels: int, tf32: bool, kinds: list[type]) -> None:
    """Kernels with pools are of warps, which take twice the time of streams there."""
    made, pooled = nn.Conv2d(64, channels, 3), lambda x: F.max_pool2d(torch.relu(x), 2)
    plan = planned(made, PLANE, pooled, torch.float32, tf32=tf32)
    assert [type(each.compute) for each in plan.steps if isinstance(each, Fused)] == kinds


@pytest.mark.parametrize(("channels", "made", "kinds"), [(64, 128, [Convolution, Pool]), (8, 16, [Convolution])])
def test_where_float32_is_kept_pools_are_where_estimates_say(channels: int, made: int, kinds: list[type]) -> None:
    """Also of several phases, which streams make then."""
    layer, pooled = nn.ConvTranspose3d(channels, made, 3, stride=2), lambda x: F.max_pool3d(x, 2)
    plan = planned(layer, (SPACE[0], channels, *SPACE[2:]), pooled, torch.float32, tf32=False)
    assert [type(each.compute) for each in plan.steps if isinstance(each, Fused)] == kinds
