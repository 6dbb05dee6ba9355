"""Attention that is written out becomes PyTorch's, and computes the same, masks' gradients included."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from interpret import check, fused_steps
from torch import nn

import crucible
from crucible.capture import trace
from crucible.plan.fold import fold
from crucible.plan.planner import fuse
from crucible.plan.steps import Call

ATTENTION = "scaled_dot_product_attention"
BATCH, HEADS, PLACES, FEATURES = 6, 3, 5, 8
Mask = Callable[[torch.Tensor, "Attention"], torch.Tensor]


def by_windows(scores: torch.Tensor, own: Attention) -> torch.Tensor:
    """As in shifted windows: the batch is one of windows, each of which has a mask."""
    seen = scores.view(BATCH // 2, 2, HEADS, PLACES, PLACES) + own.of_windows.unsqueeze(1).unsqueeze(0)
    return seen.view(-1, HEADS, PLACES, PLACES)


MASKS: dict[str, Mask] = {
    "none": lambda scores, own: scores,
    "learnt": lambda scores, own: scores + own.table,
    "of keys": lambda scores, own: own.of_keys + scores,
    "left out": lambda scores, own: scores.masked_fill(own.shut == 0, -math.inf),
    "left out of a sum": lambda scores, own: (scores + own.table).masked_fill(own.shut == 0, -math.inf),
    "two": lambda scores, own: scores + own.table + own.of_keys,
    "by windows": lambda scores, own: by_windows(scores + own.table, own),
}
SCALED: dict[str, Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor]] = {
    "scores": lambda q, k, scale: (q @ k) * scale,
    "divided": lambda q, k, scale: torch.matmul(q, k) / (1 / scale),
    "query": lambda q, k, scale: (q * scale) @ k,
    "none": lambda q, k, scale: q @ k,
    "rows": lambda q, k, scale: (q @ k) * torch.linspace(0.5, 1.5, HEADS).to(q).view(HEADS, 1, 1),
}
TURNED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transpose": lambda k: k.transpose(1, 2).transpose(-2, -1),
    "mT": lambda k: k.transpose(1, 2).mT,
    "permute": lambda k: k.permute(0, 2, 3, 1),
}


class Attention(nn.Module):
    """Heads of a row of features side by side, as usual."""

    def __init__(self, mask: str = "none", scaled: str = "scores", turned: str = "transpose") -> None:
        super().__init__()
        width = HEADS * FEATURES
        self.qkv, self.out = nn.Linear(7, 3 * width), nn.Linear(width, 7)
        self.table = nn.Parameter(torch.randn(1, HEADS, PLACES, PLACES))
        self.register_buffer("of_keys", torch.randn(BATCH, 1, 1, PLACES))
        self.register_buffer("of_windows", torch.randn(2, PLACES, PLACES))
        self.register_buffer("shut", torch.tril(torch.ones(PLACES, PLACES)))
        self.choice = mask, scaled, turned

    def weights(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mask, scaled, turned = self.choice
        q, k, v = self.qkv(x).view(BATCH, PLACES, 3, HEADS, FEATURES).unbind(2)
        scores = SCALED[scaled](q.transpose(1, 2), TURNED[turned](k), 0.3)
        return MASKS[mask](scores, self).softmax(-1), v.transpose(1, 2)

    def forward(self, x: torch.Tensor) -> Any:
        weights, v = self.weights(x)
        return self.out((weights @ v).transpose(1, 2).reshape(BATCH, PLACES, HEADS * FEATURES))


def drawn() -> torch.Tensor:
    return torch.randn(BATCH, PLACES, 7)


def calls(plan: Any) -> list[str]:
    return [step.operation.kind for step in plan.steps if isinstance(step, Call)]


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(sorted(MASKS)), st.sampled_from(sorted(SCALED)), st.sampled_from(sorted(TURNED)), st.integers(0))
def test_what_is_written_out_computes_the_same(mask: str, scaled: str, turned: str, seed: int) -> None:
    torch.manual_seed(random.Random(seed).getrandbits(32))
    plan = check(Attention(mask, scaled, turned), drawn(), unused=True)
    assert calls(plan).count(ATTENTION) == 1
    assert not {"matmul", "softmax"} & {*calls(plan)}
    assert not any("softmax" in step.name or "copy" in step.name for step in fused_steps(plan))


def test_half_types_that_are_widened_for_the_softmax() -> None:
    class Widened(Attention):
        def forward(self, x: torch.Tensor) -> Any:
            q, k, v = self.qkv(x).view(BATCH, PLACES, 3, HEADS, FEATURES).permute(2, 0, 3, 1, 4)
            weights = ((q @ k.mT) * 0.3 + self.of_keys).float().softmax(-1)
            return (weights.to(x.dtype) @ v).transpose(1, 2)

    torch.manual_seed(0)
    module, x = Widened().bfloat16(), drawn().bfloat16()
    assert ATTENTION in calls(fuse(trace(module, [x])))
    fused = crucible.fuse(module, x, emulate=True)
    with torch.no_grad():
        torch.testing.assert_close(fused(x), module(x), rtol=2e-2, atol=2e-2)


class Heads(nn.Module):
    """Heads of all batches in one dim, as `nn.MultiheadAttention` has them that could show its weights."""

    def __init__(self, mask: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(HEADS * FEATURES, HEADS)
        self.mask = torch.randn(PLACES, PLACES) if mask else None

    def forward(self, x: torch.Tensor) -> Any:
        mask = None if self.mask is None else self.mask.to(x)
        return self.attention(x, x, x, attn_mask=mask)[0] * 2


@pytest.mark.parametrize("mask", [False, True])
def test_heads_of_all_batches_are_a_batch_of_one(mask: bool) -> None:
    torch.manual_seed(0)
    plan = check(Heads(mask), torch.randn(PLACES, BATCH, HEADS * FEATURES))
    assert calls(plan).count(ATTENTION) == 1 and not {"bmm", "baddbmm", "softmax"} & {*calls(plan)}


@pytest.mark.parametrize("items", [1, BATCH])
def test_masks_of_items_are_added_where_heads_are_told_apart(items: int) -> None:
    class Items(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mask = nn.Parameter(torch.randn(items, 1, PLACES, PLACES))

        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
            scores = torch.bmm(q * 0.4, k.transpose(1, 2)).view(BATCH, HEADS, PLACES, PLACES) + self.mask
            return torch.bmm(scores.view(BATCH * HEADS, PLACES, PLACES).softmax(-1), v).view(BATCH, HEADS, PLACES, -1)

    torch.manual_seed(0)
    plan = check(Items(), *(torch.randn(BATCH * HEADS, PLACES, FEATURES) for _ in range(3)))
    assert calls(plan).count(ATTENTION) == 1 and not {"bmm", "softmax"} & {*calls(plan)}


class Shown(Attention):
    def forward(self, x: torch.Tensor) -> Any:
        weights, v = self.weights(x)
        return weights @ v, weights


class Dropped(Attention):
    def forward(self, x: torch.Tensor) -> Any:
        weights, v = self.weights(x)
        return torch.dropout(weights, 0.1, True) @ v


class Along(Attention):
    def forward(self, x: torch.Tensor) -> Any:
        q, k, v = self.qkv(x).view(BATCH, PLACES, 3, HEADS, FEATURES).permute(2, 0, 3, 1, 4)
        return (q @ k.mT).softmax(-2) @ v


class Scaled(Attention):
    def forward(self, x: torch.Tensor) -> Any:
        q, k, v = self.qkv(x).view(BATCH, PLACES, 3, HEADS, FEATURES).permute(2, 0, 3, 1, 4)
        return ((q @ k.mT + self.table) * 0.3).softmax(-1) @ v


class Wide(Attention):
    def forward(self, x: torch.Tensor) -> Any:
        q, k, v = (torch.cat([each] * 9, -1) for each in self.qkv(x).view(BATCH, PLACES, 3, HEADS, FEATURES).unbind(2))
        return (q.transpose(1, 2) @ k.transpose(1, 2).mT).softmax(-1) @ v.transpose(1, 2)


class Widened(Attention):
    def forward(self, x: torch.Tensor) -> Any:
        q, k, v = self.qkv(x).view(BATCH, PLACES, 3, HEADS, FEATURES).permute(2, 0, 3, 1, 4)
        return (q @ k.mT).double().softmax(-1).float() @ v


@pytest.mark.parametrize("module", [Shown, Dropped, Along, Scaled, Wide, Widened])
def test_what_is_something_else_or_no_gain_stays(module: type[Attention]) -> None:
    """Weights that somebody sees, or that are dropped; a softmax over queries; a mask that is scaled; heads of 72; a
    softmax in double precision."""
    graph = trace(module(), [drawn()], drops=True)
    assert ATTENTION not in [each.kind for each in fold(graph).graph.operations]
    assert ATTENTION not in calls(fuse(graph))


def test_double_precision_stays() -> None:
    assert ATTENTION not in calls(fuse(trace(Attention().double(), [drawn().double()])))


def test_more_heads_than_a_grid_has_blocks_stay() -> None:
    class Bare(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
            return torch.bmm(torch.bmm(q, k.mT).softmax(-1), v)

    for heads, stays in ((65_535, False), (65_536, True)):
        graph = trace(Bare(), [torch.empty(heads, 2, 8) for _ in range(3)])
        assert ("softmax" in [each.kind for each in fold(graph).graph.operations]) == stays
