"""Transposed convolutions of more than 64 channels in float32's precision, on the emulator."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import crucible
from crucible.tuning.exactness import apart

pytestmark = pytest.mark.usefixtures("no_faults")


@pytest.mark.parametrize(
    ("convolution", "shape"),
    [
        (nn.ConvTranspose2d(20, 100, 4, 2, 1), (2, 20, 5, 7)),
        (nn.ConvTranspose2d(100, 20, 3, (1, 3)), (2, 100, 5, 4)),
        (nn.ConvTranspose3d(6, 72, (2, 1, 3)), (1, 6, 2, 3, 3)),
    ],
    ids=["strides", "many to few", "three dims"],
)
def test_outputs_and_gradients_are_those_of_float64(
    convolution: nn.Module, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    module, x = nn.Sequential(convolution, nn.LeakyReLU(0.1)), torch.randn(shape)
    exact, cotangent = copy.deepcopy(module).double(), torch.randn(module(x).shape)
    fused = crucible.fuse(module, x, emulate=True)
    found, right = (of_all(*each, cotangent) for each in ((fused, x), (exact, x.double())))
    assert apart(found, right) < 2e-6  # with one of the three products left out 0.025


def of_all(module: nn.Module, x: torch.Tensor, cotangent: torch.Tensor) -> list[torch.Tensor]:
    x = x.detach().requires_grad_()
    out = module(x)
    return [out.detach(), *torch.autograd.grad(out, [x, *module.parameters()], cotangent.to(out.dtype))]


def test_what_overflows_leaves_zeros_beside_it_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage whose sums are multiplied by more than float32 holds: 0 times infinity was no number."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    module = nn.ConvTranspose2d(32, 64, 3, stride=2, bias=False)
    module.weight.data *= 1e20
    x = torch.randn(1, 32, 5, 40) * 1e30
    x[..., :20] = 0
    found = crucible.fuse(module, x, emulate=True)(x)
    assert (found[..., :38] == 0).all()
    assert not found[..., 41:80].isfinite().all()
