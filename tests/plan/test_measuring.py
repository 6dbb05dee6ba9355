"""Convolutions that write moments of their results: who takes them, what is not read then, and what is not written."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from interpret import check, fused_steps, planned
from torch import nn

import crucible
from crucible.algebra.convolution.fused import Convolution
from crucible.capture import trace
from crucible.emission.lower import lowered_forward
from crucible.gpus import H200
from crucible.plan import measuring
from crucible.plan.planner import fuse
from crucible.plan.steps import Fused, Plan
from crucible.schedule.machine import H200 as MACHINE
from crucible.schedule.machine import MACHINES
from support import some

Layer = Callable[[int], nn.Module]


class Normed(nn.Module):
    """A convolution, what stands behind it, a norm, and what becomes of that."""

    def __init__(self, conv: nn.Module, norm: nn.Module, between: Layer | None = None, behind: str = "twice") -> None:
        super().__init__()
        torch.manual_seed(2)
        self.conv, self.norm, self.between, self.behind = conv, norm, between, behind
        for each in self.parameters():
            nn.init.uniform_(each, -0.5, 0.9)

    def forward(self, x: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        y = self.conv(x)
        y = y if self.between is None else self.between(y)
        z = self.norm(y)
        space = tuple(range(2, z.dim()))
        if "mean" in self.behind:
            return (z.mean(space), y) if "seen" in self.behind else z.mean(space)
        if self.behind == "centred":
            return z - z.mean(space, keepdim=True)
        return (z * 2, y) if self.behind == "seen" else z * 2


@pytest.fixture
def pays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """At small sizes too: a machine whose launches are free and whose memory is slow, and all norms read elements
    anew, which those that this can be tested at do not."""
    free, slow = replace(MACHINE.choices, launch_bytes=0), replace(MACHINE.sm, copied_bytes=1e-9)
    monkeypatch.setitem(MACHINES, "h200", replace(MACHINE, choices=free, sm=slow))
    monkeypatch.setattr(measuring, "reads_again", lambda program, sms: bool(program.reductions))
    yield


def measured(plan: Plan) -> tuple[Fused, list[Fused]]:
    """The convolution that writes moments, and the steps that take them."""
    steps = fused_steps(plan)
    (conv,) = (each for each in steps if each.aside)
    return conv, [each for each in steps if each.given]


NORMS = {
    "batch": (lambda: Normed(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16)), (3, 3, 9, 8)),
    "batch, volumes": (lambda: Normed(nn.Conv3d(3, 8, 2), nn.BatchNorm3d(8), F.silu), (2, 3, 5, 4, 6)),
    "batch, lines": (lambda: Normed(nn.Conv1d(4, 8, 3), nn.BatchNorm1d(8)), (3, 4, 20)),
    "group": (lambda: Normed(nn.Conv2d(3, 16, 3), nn.GroupNorm(4, 16), torch.tanh), (2, 3, 9, 8)),
    "group of one": (lambda: Normed(nn.Conv2d(3, 8, 3), nn.GroupNorm(1, 8)), (2, 3, 9, 8)),
    "transposed": (lambda: Normed(nn.ConvTranspose2d(4, 8, 3, stride=2), nn.GroupNorm(2, 8)), (2, 4, 5, 6)),
    "groups": (lambda: Normed(nn.Conv2d(8, 16, 3, groups=2), nn.GroupNorm(2, 16), F.hardswish), (2, 8, 7, 6)),
    "mean behind": (lambda: Normed(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), F.hardswish, "mean"), (2, 3, 9, 8)),
    "less its mean": (lambda: Normed(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), None, "centred"), (3, 3, 9, 8)),
    "groups less their mean": (lambda: Normed(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), None, "centred"), (3, 3, 9, 8)),
}  # fmt: skip


@pytest.mark.usefixtures("pays")
@pytest.mark.parametrize("name", NORMS)
def test_norms_by_moments_are_what_they_were(name: str) -> None:
    """In float64, with running statistics."""
    make, shape = NORMS[name]
    plan = check(make().train(), torch.randn(shape) + 1, gradients=False)
    conv, readers = measured(plan)
    assert readers and all(conv.result in {each.operands[n] for n in each.operands} for each in readers)
    assert conv.aside and len(conv.aside.names) == 3


@pytest.mark.usefixtures("pays")
@pytest.mark.parametrize(
    ("behind", "affine", "unwritten"),
    [
        ("mean", True, True),
        ("twice", True, False),
        ("twice", False, False),
        ("seen", True, False),
        ("mean, seen", True, False),
    ],
)
def test_a_result_that_gives_sums_alone_is_written_for_gradients_alone(
    behind: str, affine: bool, unwritten: bool
) -> None:
    norm = nn.GroupNorm(16, 64, affine=affine)
    module = Normed(nn.Conv2d(8, 64, 3), norm, F.hardswish, behind).train()
    conv, _ = measured(planned(module, torch.randn(2, 8, 12, 16)))
    writes = [
        {name for each in lowered_forward(conv, H200, keeping=keeping) for k in each.kernels for name in k.writes}
        for keeping in (False, True)
    ]
    assert [conv.result in each for each in writes] == [not unwritten, True]
    assert conv.aside is not None and all({*conv.aside.names} <= each for each in writes)


class Read(nn.Module):
    """Sums of a convolution's result, and its elements."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.conv(x)
        return self.norm(y).mean((2, 3)), y.cumsum(1)


@pytest.mark.usefixtures("pays")
def test_a_result_that_others_read_is_written() -> None:
    plan = check(Read(), torch.randn(2, 3, 8, 8), gradients=False)
    conv, readers = measured(plan)
    assert readers and not conv.unwritten


class Mean(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(self.conv(x))
        return y, y.mean((2, 3))


@pytest.mark.slow
@pytest.mark.usefixtures("pays", "no_faults")
def test_a_mean_asks_for_no_squares() -> None:
    x = torch.randn(2, 3, 9, 8) + 3
    conv, _ = measured(check(Mean(), x, gradients=False))
    assert conv.aside and [each.removeprefix(conv.result) for each in conv.aside.names] == ["_near", "_off"]
    module = Mean()
    found, wanted = crucible.fuse(module, x, emulate=True)(x), module(x)
    for one, other in zip(found, wanted, strict=True):
        assert (one - other).norm() <= 3e-3 * other.norm()  # TF32


REFUSED: dict[str, Callable[..., torch.Tensor]] = {
    "a sum with another tensor": lambda m, x: m.norm(m.conv(x) + x[:, :1, 2:, 2:]),
    "a maximum of it": lambda m, x: torch.softmax(m.conv(x), 1),
    "running statistics": lambda m, x: m.batch.eval()(m.conv(x)),
    "a pool": lambda m, x: m.norm(F.max_pool2d(m.conv(x), 2)),
}


class Other(nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function
        self.conv, self.norm, self.batch = nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.BatchNorm2d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self, x)


@pytest.mark.usefixtures("pays")
@pytest.mark.parametrize("why", REFUSED)
def test_nothing_is_measured_for(why: str) -> None:
    plan = fuse(trace(Other(REFUSED[why]), [torch.randn(2, 3, 10, 10)], drops=True))
    assert any(isinstance(each.compute, Convolution) for each in fused_steps(plan)) or "pool" in why
    assert not any(each.aside or each.given for each in fused_steps(plan))


@pytest.mark.parametrize(
    ("batch", "size", "taken"),
    [(128, 128, True), (2, 128, False), (4096, 12, False)],
    ids=["large", "little to read", "rows that stay in registers"],
)
def test_it_has_to_pay(batch: int, size: int, taken: bool) -> None:
    module = Normed(nn.Conv2d(8, 64, 3), nn.GroupNorm(16, 64))
    plan = planned(module, torch.empty(batch, 8, size, size))
    assert any(each.aside for each in fused_steps(plan)) == taken


@pytest.mark.slow
@pytest.mark.usefixtures("pays", "no_faults")
@pytest.mark.parametrize(
    ("name", "tf32"),
    some([
        ("batch", True), ("mean behind", True), ("transposed", True), ("group", True), ("less its mean", True),
        ("group", False), ("transposed", False), ("batch", False),
    ], 3, lambda case: case == ("group", False)),
)  # fmt: skip
def test_kernels_give_eagers_values_and_gradients(name: str, *, tf32: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images far off one another, and one that is not finite, which is its own alone to spoil. Of groups eager's
    float32 is 1e-5 off here."""
    make, shape = NORMS[name]
    module = make().train()
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", tf32)
    eager, x = copy.deepcopy(module), torch.randn(shape) * 0.3 + 2
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    fused = crucible.fuse(module, ours, emulate=True)
    found, wanted = fused(ours), eager(theirs)
    cotangent = torch.randn_like(wanted)
    pairs = zip(
        (found, *torch.autograd.grad(found, [ours, module.conv.weight], cotangent)),
        (wanted, *torch.autograd.grad(wanted, [theirs, eager.conv.weight], cotangent)),
        strict=True,
    )
    for one, other in pairs:
        assert (one - other).norm() <= (5e-3 if tf32 else 5e-5) * other.norm()
    with torch.no_grad():
        torch.testing.assert_close(fused(x), found.detach(), rtol=1e-4, atol=1e-4)
    if "batch" not in name and name != "less its mean":
        bad = x.clone()
        bad[0] = torch.inf
        with torch.no_grad():
            assert fused(bad)[1:].isfinite().all() and not fused(bad)[0].isfinite().any()
