"""Heads of attention are laid one behind the other by kernels, where PyTorch would copy them for a product."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from beside_eager import assert_same
from interpret import check
from torch import nn

import crucible
from crucible.plan.steps import Call, Fused

B, H, N, D = 2, 3, 5, 4


class Heads(nn.Module):
    """Attention by matrix products, over layers whose results have heads between places."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        self.q, self.k = nn.Linear(H * D, H * D), nn.Linear(H * D, H * D)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(B, N, H, D).transpose(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self, x)


def attention(m: Heads, x: torch.Tensor) -> torch.Tensor:
    q, k, v = m.split(m.q(x)), m.split(m.k(x)), m.split(x)
    return (torch.softmax(q @ k.transpose(-2, -1), -1) @ v).transpose(1, 2).reshape(B, N, H * D)


def by_another_view(m: Heads, x: torch.Tensor) -> torch.Tensor:
    return m.split(m.q(x)) @ m.split(m.k(x)).mT


def in_three_dims(m: Heads, x: torch.Tensor) -> torch.Tensor:
    return m.q(x) @ m.k(x).transpose(1, 2)


def lying_so(m: Heads, x: torch.Tensor) -> torch.Tensor:
    q, k = m.q(x).view(B, H, N, D), m.k(x).view(B, H, N, D)
    return q @ k.mT


def parts_of_one(m: Heads, x: torch.Tensor) -> torch.Tensor:
    q, k = torch.cat([m.q(x), m.k(x)], -1).view(B, N, 2, H, D).permute(2, 0, 3, 1, 4).unbind(0)
    return q @ k.mT


def spread_over_the_batch(m: Heads, x: torch.Tensor) -> torch.Tensor:
    return m.split(m.q(x)) @ m.k(x).view(B, N, H, D)[:1].permute(0, 2, 3, 1)


CASES: dict[str, tuple[Callable[..., torch.Tensor], int]] = {
    "attention": (attention, 4),  # q, k, v, and what is put together again
    "by another view": (by_another_view, 2),
    "in three dims": (in_three_dims, 0),
    "lying so": (lying_so, 0),
    "parts of one": (parts_of_one, 2),
    "spread over the batch": (spread_over_the_batch, 0),
}
"""Forward, and how many tensors kernels lay anew for products of PyTorch."""


@pytest.mark.parametrize("name", CASES)
def test_heads_are_laid_in_rows_where_pytorch_would_copy_them(name: str) -> None:
    function, count = CASES[name]
    plan = check(Heads(function), torch.randn(B, N, H * D))
    copies = [step for step in plan.steps if isinstance(step, Fused) and not step.name.startswith("softmax")]
    assert len(copies) == count, [step.name for step in copies]
    products = [step for step in plan.steps if isinstance(step, Call) and step.operation.kind == "matmul"]
    assert len(products) == (2 if name == "attention" else 1)
    if count:
        for product in products:
            for read in product.operation.inputs:
                type_ = plan.types[read]
                assert type_.strides[0] == H * type_.strides[1] or type_.shape[0] == 1


@pytest.mark.usefixtures("no_faults")
def test_values_gradients_and_strides_are_those_of_the_module() -> None:
    module, x = Heads(attention), torch.randn(B, N, H * D)
    fused = crucible.fuse(copy.deepcopy(module), x, emulate=True)
    assert_same(fused, module, [x])
