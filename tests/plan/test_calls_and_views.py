"""Kernels between calls of PyTorch and views: what a call is given lies as eager PyTorch would lay it, so that a view
that eager allows is allowed, and outputs have eager's strides."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from interpret import run
from torch import nn

from crucible.capture import trace
from crucible.plan.planner import fuse
from support import NIGHTLY

Op = Callable[[nn.Module, torch.Tensor, int], torch.Tensor]


def _viewed(m: nn.Module, x: torch.Tensor, n: int) -> torch.Tensor:
    """Two neighbouring dims as one, by `view` where eager allows it."""
    dim = n % max(1, x.dim() - 1)
    if x.dim() < 3:
        return x
    shape = (*x.shape[:dim], x.shape[dim] * x.shape[dim + 1], *x.shape[dim + 2 :])
    joins = x.stride(dim) == x.stride(dim + 1) * x.shape[dim + 1]
    return x.view(shape) if joins else x.reshape(shape)


def _split(m: nn.Module, x: torch.Tensor, n: int) -> torch.Tensor:
    dim = n % x.dim()
    size = x.shape[dim]
    return x if size % 2 or x.dim() > 4 else x.view(*x.shape[:dim], 2, size // 2, *x.shape[dim + 1 :])


def _picked(m: nn.Module, x: torch.Tensor, n: int) -> torch.Tensor:
    dim = n % x.dim()
    return x.chunk(2, dim)[n // 7 % 2] if x.shape[dim] % 2 == 0 and x.shape[dim] > 2 else x


OPS: dict[str, Op] = {
    "gelu": lambda m, x, n: F.gelu(x),
    "scale": lambda m, x, n: x * 0.7 + 0.1,
    "both": lambda m, x, n: x * x.sigmoid(),
    "softmax": lambda m, x, n: F.softmax(x, n % x.dim()),
    "norm": lambda m, x, n: F.layer_norm(x, x.shape[-1:]),
    "mean": lambda m, x, n: x - x.mean(n % x.dim(), keepdim=True),
    "transpose": lambda m, x, n: x.transpose(n % x.dim(), (n // 5) % x.dim()),
    "view": _viewed,
    "split": _split,
    "pick": _picked,
    "select": lambda m, x, n: x.select(n % x.dim(), 0) if x.dim() > 2 else x,
    "contiguous": lambda m, x, n: x.contiguous(),
    "cumsum": lambda m, x, n: x.cumsum(n % x.dim()),
    "flip": lambda m, x, n: x.flip(n % x.dim()),
    "product": lambda m, x, n: x @ m.square[: x.shape[-1], : x.shape[-1]],
    "linear": lambda m, x, n: F.linear(x, m.square[:6, : x.shape[-1]], m.bias),
    "residual": lambda m, x, n: x + x.flip(0),
}


class Drawn(nn.Module):
    """Operations in a row."""

    def __init__(self, chosen: list[tuple[str, int]]) -> None:
        super().__init__()
        self.chosen = chosen
        self.square = nn.Parameter(torch.randn(200, 200) / 8)
        self.bias = nn.Parameter(torch.randn(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for name, number in self.chosen:
            if x.shape[-1] <= 200 or name not in ("product", "linear"):
                x = OPS[name](self, x, number)
        return x


def holds(chosen: list[tuple[str, int]]) -> None:
    """The plan computes what the module does, laid as eager lays it."""
    torch.manual_seed(0)
    module, x = Drawn(chosen), torch.randn(2, 4, 6, 8)
    plan = fuse(trace(module, [x]))
    tensors = {value.name: x.double() for value in plan.graph.inputs}
    tensors |= {p.value.name: module.get_parameter(p.names[0]).detach().double() for p in plan.graph.parameters}
    tensors |= {c.value.name: c.tensor.double() for c in plan.graph.constants}
    wanted = module.double()(x.double())
    (found,) = run(plan, tensors)
    torch.testing.assert_close(found, wanted.detach())
    if torch.empty_like(wanted).stride() == wanted.stride():  # not a part of something larger
        assert steps(found) == steps(wanted.detach())


def steps(x: torch.Tensor) -> list[int]:
    """Strides of dims that have any: PyTorch's own differ in those of one element."""
    return [stride for size, stride in zip(x.shape, x.stride(), strict=True) if size > 1]


@given(st.lists(st.tuples(st.sampled_from(sorted(OPS)), st.integers(0, 30)), min_size=2, max_size=9))
@settings(max_examples=80 if NIGHTLY else 40, deadline=None)
def test_random_rows_of_kernels_calls_and_views(chosen: list[tuple[str, int]]) -> None:
    holds(chosen)


def test_a_view_that_eager_allows_is_allowed() -> None:
    """Heads of attention: a bias kernel wrote the three parts as they lay in the product, where `view` raised."""
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x + 1)[:, 0]

    x = torch.randn(2, 17, 64)
    plan = fuse(trace(Block(), [x]))
    tensors = {value.name: x.double() for value in plan.graph.inputs}
    module = Block().double()
    tensors |= {p.value.name: module.get_parameter(p.names[0]).detach() for p in plan.graph.parameters}
    tensors |= {c.value.name: c.tensor.double() for c in plan.graph.constants}
    (found,) = run(plan, tensors)
    torch.testing.assert_close(found, module(x.double()).detach())
