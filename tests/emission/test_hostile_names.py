"""Modules whose tensors are called what written files call something of their own."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import crucible
from support import some

pytestmark = pytest.mark.usefixtures("no_faults")
HOSTILE = (
    "accumulate", "at", "base_bias_given", "bits", "ctx", "cudaStream_t", "device", "fmaf", "given", "grad_own",
    "grad_x", "halo", "kept", "kernels", "lane", "launch_mul", "library", "load", "load_matrix", "memory",
    "multiply_tf32", "own_again", "own_row", "own_parts", "pack", "product", "read", "ring", "rounded",
    "saved_total", "shared_0", "size_1", "stream", "sub_packed", "taken", "torch", "total", "total_2", "value",
    "weights", "x_given", "x_row", "x_stride_1", "x_value",
)  # fmt: skip
ENDS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "chain": torch.tanh,
    "norm": lambda x: F.layer_norm(x, x.shape[2:]),
    "pool": lambda x: F.max_pool2d(x, 3, 1, 1),
}


class Net(nn.Module):
    """A chain that reads a tensor of each name, some of them learnt, behind a convolution and what `end` is."""

    def __init__(self, end: str) -> None:
        super().__init__()
        self.base, self.end = nn.Conv2d(4, 4, 3, padding=1), ENDS[end]
        self.own = nn.Parameter(torch.rand(4, 1, 1))
        for number, name in enumerate(HOSTILE):
            value = torch.rand(4, 1, 1) / 5 + 0.9
            if number % 6:
                self.register_buffer(name, value)
            else:
                self.register_parameter(name, nn.Parameter(value))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.end(self.base(x))
        for number, name in enumerate(HOSTILE):
            tensor = getattr(self, name)
            x = x * tensor if number % 2 else x + tensor
        return x * self.own


@pytest.mark.parametrize("end", some(list(ENDS), 3))
def test_they_are_written_all_the_same(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.manual_seed(0)
    module, x = Net(end), torch.randn(2, 4, 6, 8)
    cotangent = torch.randn(x.shape)
    fused, found = crucible.fuse(module, x, emulate=True), []
    for each, dtype in ((fused, torch.float32), (copy.deepcopy(module).double(), torch.float64)):
        given = x.to(dtype).requires_grad_()
        out = each(given)
        found.append([out, *torch.autograd.grad(out, [given, *each.parameters()], cotangent.to(dtype))])
    for one, other in zip(*found, strict=True):
        assert (one.double() - other).abs().max() < 1e-5 * other.abs().max() + 1e-6
