"""Parts of tensors that kernels write and read within the whole, and chains that are taken of the parts of `cat`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given as drawn
from hypothesis import strategies as st
from interpret import check, fused_steps, planned
from torch import nn

from crucible.capture import trace
from crucible.plan.layouts import dense
from crucible.plan.planner import fuse
from crucible.plan.steps import Call, Fused, Plan

Forward = Callable[..., Any]
B, HEADS, N, D = 2, 3, 5, 16


class Net(nn.Module):
    """With what is made in memory, and tensors that are learnt."""

    def __init__(self, function: Forward) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        self.learnt = nn.Parameter(torch.randn(N, D))
        self.last = nn.Parameter(torch.randn(D))
        self.norm = nn.BatchNorm1d(8)
        self.up = nn.Linear(D, 2 * D, bias=False)
        self.register_buffer("cos", torch.randn(N, D))

    def forward(self, *given: torch.Tensor) -> Any:
        return self.function(self, *given)


def calls(plan: Plan, kind: str) -> int:
    return sum(isinstance(step, Call) and step.operation.kind == kind for step in plan.steps)


def joining(plan: Plan) -> list[Fused]:
    return [step for step in fused_steps(plan) if step.joined]


# rotary embeddings


def halves(x: torch.Tensor) -> torch.Tensor:
    return torch.cat((-x[..., D // 2 :], x[..., : D // 2]), -1)


def halves_by_chunks(x: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([-b, a], x.dim() - 1)


def halves_by_sizes(x: torch.Tensor) -> torch.Tensor:
    a, b = x.split([D // 2, D // 2], -1)
    return torch.cat([b.neg(), a], -1)


def pairs(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)


def pairs_by_places(x: torch.Tensor) -> torch.Tensor:
    return torch.stack((-x[..., 1::2], x[..., ::2]), x.dim()).reshape(x.shape)


@pytest.mark.parametrize("rotated", [pairs, pairs_by_places, halves, halves_by_chunks, halves_by_sizes])
@pytest.mark.parametrize("laid", ["as it comes", "between places"])
def test_a_rotary_embedding_is_one_kernel(rotated: Forward, laid: str) -> None:
    def forward(m: Net, x: torch.Tensor) -> torch.Tensor:
        q = x.cumsum(0) if laid == "as it comes" else x.transpose(1, 2).cumsum(0).transpose(1, 2)
        return (q * m.cos + rotated(q) * m.learnt).cumsum(0)

    plan = check(Net(forward), torch.randn(B, HEADS, N, D), unused=True)
    (step,) = fused_steps(plan)
    assert not any(calls(plan, kind) for kind in ("cat", "stack", "slice", "split_with_sizes", "chunk", "neg"))
    assert step.backward is not None
    whole = plan.types[step.reads[0]]
    assert step.bytes_moved == 2 * whole.bytes + 2 * 4 * N * D  # x is read once
    gradients = {name: step.operands[name] for name in step.wanted}
    assert set(gradients.values()) == {step.reads[0], "learnt"} and len(gradients) == 4
    assert set(gradients) <= step.parts.keys() and not step.passed


def test_queries_that_are_parts_of_one_tensor_are_rotated_where_they_lie() -> None:
    """Of a layer that makes queries and keys; the gradient of the queries has no gaps."""

    def forward(m: Net, x: torch.Tensor) -> torch.Tensor:
        q, k = m.up(x).view(B, N, 2, 1, D).permute(2, 0, 3, 1, 4).unbind(0)
        return (q * m.cos + halves(q) * m.learnt).cumsum(0) * k

    plan = check(Net(forward), torch.randn(B, N, D), unused=True)
    (step,) = joining(plan)
    held = plan.types[step.operands[next(iter(step.operands))]]
    assert dense(held) != held and calls(plan, "cat") == 0 and calls(plan, "split_with_sizes") == 0


@pytest.mark.parametrize("taken", ["at once", "again"])
def test_pairs_side_by_side_are_rotated_by_one_kernel(taken: str) -> None:
    """Which begin anywhere: elements of each lie two apart."""

    def forward(m: Net, x: torch.Tensor) -> torch.Tensor:
        y = x.cumsum(0).unflatten(-1, (D // 2, 2))
        a, b = y.unbind(-1) if taken == "at once" else (y[..., 0], y[..., 1])
        cos, sin = m.cos[:, ::2], m.learnt[:, : D // 2]
        c, d = (a, b) if taken == "at once" else (y[..., 0], y[..., 1])
        return torch.stack([a * cos - b * sin, d * cos + c * sin], -1).flatten(-2).cumsum(0)

    plan = check(Net(forward), torch.randn(B, HEADS, N, D), unused=True)
    (step,) = fused_steps(plan)
    assert len(step.joined) == 2 and not any(calls(plan, kind) for kind in ("stack", "unbind", "select"))


def test_scores_that_a_norm_makes_are_rotated_behind_it() -> None:
    def forward(m: Net, x: torch.Tensor) -> torch.Tensor:
        q = F.rms_norm(x, (D,), m.last, 1e-6)
        return q * m.cos + halves(q) * m.learnt

    plan = check(Net(forward), torch.randn(B, HEADS, N, D), unused=True)
    assert len(joining(plan)) == 1 and len(fused_steps(plan)) == 2


# cat


JOINED: dict[str, tuple[Forward, int]] = {
    "of two kernels": (lambda m, a, b: torch.cat([a.sin(), b.cos()], 1).cumsum(0), 0),
    "of a kernel and what is there": (lambda m, a, b: torch.cat([a.sin(), b], 0), 0),
    "the same one twice": (lambda m, a, b: torch.cat([a.sin() * b] * 2, -1), 0),
    "what is there twice": (lambda m, a, b: torch.cat([a, b.sin(), a], 1), 0),
    "three, in the middle": (lambda m, a, b: torch.cat([a.sin(), b, a * b], 1).cumsum(0), 0),
    "from the end": (lambda m, a, b: torch.cat([a.sin(), b * 2], -3), 0),
    "a chain behind it": (lambda m, a, b: torch.tanh(torch.cat([a, b], 1)).cumsum(0), 0),
    "a long chain behind it": (lambda m, a, b: F.silu(torch.cat([a, b], -1) * 2 + m.up(a).cumsum(0)).tanh(), 0),
    "a factor that a kernel makes": (lambda m, a, b: torch.cat([a, b], -1) * m.up(a).softmax(-1), 1),
    "a factor that is sliced later": (
        lambda m, a, b: (torch.cat([a.sin(), a.cos()], -1) * (y := m.up(b))).cumsum(0)[..., :16] + y[..., :16],
        0,
    ),
    "one tensor, read in two ways": (
        lambda m, a, b: torch.cat(
            [(w := a.cumsum(0)[..., :8]) * (y := b[..., :8]).sin(), w * y.transpose(1, 2).cos()], 1
        ),
        0,
    ),
    "two of them, one chain": (lambda m, a, b: torch.cat([a, b], 2) * torch.cat([b.sin(), a], 2), 0),
    "along two dims": (lambda m, a, b: torch.cat([torch.cat([b.sin(), b], 1), torch.cat([b, a], 1)], 2), 1),
    "in one another": (lambda m, a, b: torch.cat([torch.cat([a, b], 1), torch.cat([b, a], 1)], 1) * 2, 0),
    "conditions": (lambda m, a, b: torch.where(torch.cat([a, b], 1) > 0, torch.cat([b, a], 1), 0.5), 0),
    "a factor of what is joined": (lambda m, a, b: torch.cat([a, b], 1) * a.mean((1, 2), keepdim=True).cumsum(0), 0),
    "in place": (lambda m, a, b: torch.cat([a.sin().mul_(2), b.cos()], 1).add_(1), 0),
    "a part is an output": (lambda m, a, b: (y := a.sin(), torch.cat([y, b.cos()], 1)), 0),
    "a part is read elsewhere": (lambda m, a, b: torch.cat([y := a.sin(), b.cos()], 1)[:, :8] * y.cumsum(0), 0),
    "it is read elsewhere": (lambda m, a, b: (y := torch.cat([a.sin(), b], 1)).cumsum(0) * y, 0),
    "parts of other sizes": (lambda m, a, b: torch.cat([a.sin(), b[:, :2].cos()], 1), 1),
    "a part of none": (lambda m, a, b: torch.cat([a.sin(), b[:, :0].cos()], 1), 1),
    "stacked": (lambda m, a, b: torch.stack([a.sin(), b * 2], -2), 0),
    "stacked in front": (lambda m, a, b: torch.stack([a.sin(), b, b * 2]).flatten(0, 1), 0),
    "rows of sums": (lambda m, a, b: torch.cat([F.softmax(a, -1) * 2, b], 1), 0),
    "rows of sums, behind what is there": (lambda m, a, b: torch.cat([b, F.layer_norm(a, (16,)), b], -1), 0),
    "several sums of rows": (lambda m, a, b: torch.cat([F.softmax(a, -1), b.softmax(-1), b.sin()], 1), 0),
    "rows of sums in another order": (lambda m, a, b: torch.cat([F.softmax(a, 1), b.mT.mT.cumsum(0)], 1), 0),
    "rows of sums of others": (
        lambda m, a, b: torch.cat(
            [F.softmax(a.cumsum(0), 1), b.permute(2, 1, 0).contiguous().cumsum(0).permute(2, 1, 0)], 1
        ),
        1,
    ),
    "sums": (lambda m, a, b: torch.cat([a.sum(-1), b.amax(-1)], 1).cumsum(0), 1),
    "norms of a batch": (lambda m, a, b: F.relu(torch.cat([m.norm(a), b], 1)), 0),
    "norms behind each other": (lambda m, a, b: m.norm(torch.cat([a, m.norm(b).relu()], 1)[:, :8]).cumsum(1), 0),
    "repeated": (lambda m, a, b: torch.cat([a[:, :1].cumsum(0).expand(4, 8, 16), b.sin()], 1), 1),
}
"""Forward, and how many `cat` stay PyTorch's."""


@pytest.mark.parametrize("name", JOINED)
def test_parts_are_written_within_what_is_joined(name: str) -> None:
    function, left = JOINED[name]
    a, b = torch.rand(4, 8, 16) + 0.5, torch.rand(4, 8, 16)
    plan = check(Net(lambda m, a, b: function(m, a * 1.5, b.cumsum(1))), a, b, unused=True)
    assert calls(plan, "cat") == left
    assert bool(joining(plan)) == (left == 0 or name == "along two dims")


def test_of_several_dtypes_pytorch_makes_one() -> None:
    plan = planned(Net(lambda m, a, b: torch.cat([a.sin().half(), b.cos()], 1) * 2), *torch.randn(2, 4, 8, 16))
    assert calls(plan, "cat") == 1 and not joining(plan)


def test_parts_of_halves_are_joined_as_such() -> None:
    a, b = torch.randn(2, 4, 8, 16).half()
    plan = planned_as_given(Net(lambda m, a, b: torch.cat([a.sin(), b.cos()], 1).float() * 2), a, b)
    (step,) = joining(plan)
    assert step.type.dtype == "float32"


def planned_as_given(module: nn.Module, *inputs: torch.Tensor) -> Plan:
    return fuse(trace(module, inputs))


def test_what_begins_elsewhere_than_kernels_may_is_left_to_pytorch() -> None:
    """Parts of three floats begin within 16 bytes."""
    plan = check(Net(lambda m, a, b: torch.cat([a.sin(), b.cos()], -1) * 2), *torch.rand(2, 4, 3), unused=True)
    assert calls(plan, "cat") == 1 and not joining(plan)


@pytest.mark.parametrize("alone", [True, False])
def test_a_joined_tensor_is_written_as_it_is_read(alone: bool) -> None:
    """Heads between places, which a product reads one behind the other, and perhaps something else."""

    def forward(m: Net, x: torch.Tensor) -> torch.Tensor:
        q = m.up(x).view(B, N, 2, D).transpose(1, 2)
        y = q * m.cos + halves(q) * m.learnt
        z = y @ x[:, None].transpose(-1, -2).expand(B, 2, D, N).cumsum(0)
        return z if alone else z + y.cumsum(0).sum()

    plan = check(Net(forward), torch.randn(B, N, D), unused=True)
    rows = (2 * N * D, N * D, D, 1)
    assert [step.type.strides == rows for step in joining(plan)] == [alone]
    assert any(step.is_copy for step in fused_steps(plan)) != alone


READ: dict[str, tuple[Forward, int]] = {
    "halves": (lambda m, x: F.silu((y := x.cumsum(0).chunk(2, -1))[0]) * y[1], 2),
    "parts of parts": (lambda m, x: (y := x.cumsum(0).split([4, 12], 1))[0][:, :1] * y[1], 0),
    "added": (lambda m, x: ((y := x.flatten().cumsum(0).chunk(2))[0] + y[1]).cumsum(0), 2),
    "factors of rows": (lambda m, x: (y := x.cumsum(0)[:1].chunk(2, -1))[0] * x[:, :, :8] - y[1], 2),
    "beside the whole": (lambda m, x: (y := x.cumsum(0)[..., :2])[..., :1] * y + y[..., 1:], 0),
    "not all of it": (lambda m, x: (y := x.cumsum(0).chunk(4, -1))[0] * y[1] - y[3], 0),
    "by two kernels": (lambda m, x: (y := x.cumsum(0).chunk(2, -1))[0] * y[1] + y[1].cumsum(0), 0),
    "one without a gradient": (lambda m, x: (y := x.cumsum(0).chunk(2, -1))[0] * y[1].detach(), 0),
    "one whose gradient is 0": (lambda m, x: torch.where((y := x.cumsum(0).chunk(2, -1))[1] > 0, y[0], 0.5), 0),
    "an output too": (lambda m, x: ((y := x.cumsum(0).chunk(2, -1))[0], y[0] * y[1]), 0),
    "places": (lambda m, x: (y := x.cumsum(0).unflatten(-1, (2, 8)).unbind(2))[0] * y[1], 2),
    "begins elsewhere without gaps": (lambda m, x: (y := m.up(x)[..., :3])[:, :1] * y[:, 1:], 0),
    "for another layer": (lambda m, x: m.up((y := m.up(x).chunk(2, -1))[0] * y[1].tanh()), 2),
}
"""Forward, and how many operands are parts whose gradients are parts of one."""


@pytest.mark.parametrize("name", READ)
def test_gradients_of_parts_that_fill_a_tensor_are_one(name: str) -> None:
    function, count = READ[name]
    plan = check(Net(function), torch.randn(4, 16, D), unused=True)
    assert sum(operand in step.parts for step in fused_steps(plan) for operand in step.wanted) == count


def test_a_joined_tensor_is_laid_anew_where_its_parts_would_begin_elsewhere() -> None:
    """Three floats behind each other in rows, which lie apart as they are made."""

    def forward(m: Net, x: torch.Tensor) -> torch.Tensor:
        w = x.cumsum(0).permute(0, 2, 3, 1)
        return (w * torch.cat([w[..., :3].sin(), w[..., :3].cos()], -1)) @ x.cumsum(1).transpose(1, 2)

    plan = check(Net(forward), torch.randn(2, 6, 3, 8), unused=True)
    (step,) = joining(plan)
    assert step.type.strides == (144, 8, 1, 24)
    assert any(each.is_copy and step.result in each.reads for each in fused_steps(plan))


@pytest.mark.parametrize("shape", [(6, 2, 6), (8, 4, 2)])
def test_what_the_caller_gets_lies_as_in_eager(shape: tuple[int, ...]) -> None:
    """PyTorch's `cat` lays what it makes in rows, where a product of another layout with it lies as that."""

    def forward(m: Net, x: torch.Tensor) -> torch.Tensor:
        w = x.cumsum(0).transpose(1, 2)
        return w[..., :2] * torch.cat([w[..., :1].sin(), w[..., 1:2].cos()], 2)

    module, x = Net(forward), torch.randn(shape)
    plan = planned(module, x)
    (name,) = plan.graph.outputs
    made = [step for step in plan.steps if isinstance(step, Call) and name in step.results]
    assert not made and plan.types[name].strides == module(x).stride() != module(x).contiguous().stride()


# any of these


UNARY: list[Callable[[torch.Tensor], torch.Tensor]] = [torch.sin, torch.neg, torch.tanh, lambda x: x * 2]


class Drawn:
    """A forward: parts that are made in several ways, joined, and a chain behind them."""

    def __init__(self, data: st.DataObject) -> None:
        draw = data.draw
        self.rank = draw(st.integers(1, 4))
        self.dim = draw(st.integers(-self.rank, self.rank - 1))
        self.shape = draw(st.lists(st.sampled_from([1, 2, 3, 4, 8]), min_size=self.rank, max_size=self.rank))
        self.shape[self.dim] = draw(st.sampled_from([3, 4, 8]))
        self.odd = draw(st.booleans()) and draw(st.booleans())
        self.parts = draw(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(UNARY)), min_size=1, max_size=4))
        self.chain = draw(st.lists(st.integers(0, 7), max_size=4))
        self.twice, self.stacks = draw(st.booleans()), draw(st.booleans()) and draw(st.booleans())

    def __call__(self, m: Net, x: torch.Tensor, y: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
        whole = whole.cumsum(0)
        halves = whole.chunk(2, self.dim)
        made = {0: x, 1: y.cumsum(0), 2: halves[0], 3: halves[1], 4: x * y, 5: x.amax(0, keepdim=True) * y}
        parts = [function(made[which]) if which != 1 else made[1] for which, function in self.parts]
        if self.odd and not self.stacks:
            parts[0] = parts[0].narrow(self.dim, 0, 2)
        z = torch.stack(parts, self.dim) if self.stacks else torch.cat(parts, self.dim)
        for which in self.chain:
            z = self.chained(z, which)
        z = z.unflatten(0, (1, -1)).flatten(1, 2) if self.stacks and z.dim() > 1 else z
        return z * parts[0].sum() if self.twice else z

    def chained(self, z: torch.Tensor, which: int) -> torch.Tensor:
        factor = z.cumsum(0)
        few = factor.narrow(self.dim, 0, 1)
        chains = [
            lambda z: torch.sin(z.clamp(-4, 4)),  # of 4e6, which products come to, even float64 leaves 1e-9
            lambda z: z * factor,
            lambda z: few - z,
            lambda z: z + few[:1] * factor,
            lambda z: torch.where(factor > 1e-6, z, -z),  # not 0, which what is joined with its negation comes to
            lambda z: z * z.sigmoid(),
            lambda z: self.in_turns(z, factor),
            lambda z: torch.cat([-half for half in z.chunk(2, self.dim)][::-1], self.dim) + z,
        ]
        return chains[which](z)

    def in_turns(self, z: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        """Every second of a dim, as far as there are two of each, negated and back in its place."""
        dim = self.dim % z.dim()
        if z.shape[dim] < 2:
            return z
        even = z.narrow(dim, 0, z.shape[dim] // 2 * 2)
        one, other = (even[(slice(None),) * dim + (slice(k, None, 2),)] for k in (0, 1))
        return torch.stack([-other, one], dim + 1).flatten(dim, dim + 1) * factor.narrow(dim, 0, even.shape[dim])

    def inputs(self) -> list[torch.Tensor]:
        torch.manual_seed(0)
        twice = [2 * n if d == self.dim % self.rank else n for d, n in enumerate(self.shape)]
        return [torch.randn(self.shape), torch.randn(self.shape), torch.randn(twice)]


@drawn(st.data())
def test_whatever_is_joined_is_the_same(data: st.DataObject) -> None:
    forward = Drawn(data)
    check(Net(forward), *forward.inputs(), unused=True)
