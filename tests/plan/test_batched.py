"""Loops over parts of a tensor: what is done to each alike is done to all at once, and computes the same."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from interpret import check, fused_steps, planned, run
from torch import nn

from crucible.algebra.program import Program
from crucible.plan.steps import Call, Plan
from support import NIGHTLY


def calls(plan: Plan) -> Counter[str]:
    return Counter(step.operation.kind for step in plan.steps if isinstance(step, Call))


class Recurrent(nn.Module):
    """A cell, turn by turn; `of` gives what it reads at each."""

    def __init__(self, of: Any) -> None:
        super().__init__()
        self.of, self.inputs, self.hidden = of, nn.Linear(3, 4), nn.Linear(4, 4, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state, states = torch.zeros(2, 4, dtype=x.dtype), []
        for part in self.of(x):
            state = torch.tanh(self.inputs(part) + self.hidden(state))
            states.append(state)
        return torch.stack(states, 1)


@pytest.mark.parametrize(
    "of",
    [
        lambda x: [x[:, turn] for turn in range(5)],
        lambda x: x.unbind(1),
        lambda x: x.transpose(0, 1),
        lambda x: [torch.relu(x[:, turn]) * 2 for turn in range(5)],
    ],
    ids=["places", "unbind", "transposed", "elements"],
)
def test_products_with_inputs_are_one(of: Any) -> None:
    torch.manual_seed(0)
    plan = check(Recurrent(of), torch.randn(2, 5, 3))
    assert calls(plan)["linear"] == 6 and plan.rewrites == ("linear of all parts at once",)


class Biased(nn.Module):
    """A cell whose turns add what `kind` says."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.inputs = kind, nn.Linear(3, 4, bias=kind != "one bias")
        self.hidden, self.others = nn.Linear(4, 4), nn.ModuleList([nn.Linear(4, 4) for _ in range(5)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state, states = x[:, 0].sum() * torch.ones(2, 4, dtype=x.dtype), []
        for turn in range(5):
            given = self.inputs(x[:, turn])
            added = self.others[turn](state) if self.kind == "other biases" else self.hidden(state)
            if self.kind == "scaled":
                state = torch.tanh(given + added * 2)
            else:
                state = torch.tanh(torch.add(given, added, alpha=2 if self.kind == "twice" else 1))
            states.append(state * given if self.kind == "read again" else state)
        return torch.stack(states, 1)


@pytest.mark.parametrize("kind", ["two biases", "one bias"])
def test_biases_of_turns_are_added_before(kind: str) -> None:
    torch.manual_seed(0)
    plan = check(Biased(kind), torch.randn(2, 5, 3), unused=True)
    assert "biases of all turns at once" in plan.rewrites
    biased = [step for step in plan.steps if isinstance(step, Call) and step.operation.args.get("bias")]
    assert len(biased) == 1


@pytest.mark.parametrize("kind", ["other biases", "scaled", "twice", "read again"])
def test_biases_that_are_not_alike_stay(kind: str) -> None:
    torch.manual_seed(0)
    assert check(Biased(kind), torch.randn(2, 5, 3), unused=True).rewrites == ("linear of all parts at once",)


def test_a_bias_of_a_part_of_the_features_stays() -> None:
    """Both halves of a layer's features are added what another gives, whose bias is half as long as the layer's."""

    class Halves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inputs, self.hidden = nn.Linear(3, 8), nn.Linear(5, 4)

        def forward(self, x: torch.Tensor, g: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
            one, other = self.inputs(x).chunk(2, -1)
            return torch.tanh(one + self.hidden(g)) * torch.tanh(other + self.hidden(h))

    torch.manual_seed(0)
    plan = check(Halves(), torch.randn(2, 3), torch.randn(2, 5), torch.randn(2, 5), gradients=False)
    assert plan.rewrites == ()


class Scan(nn.Module):
    """By chunks: sums within each, and what one hands on to the next."""

    def __init__(self, chunk: int, place: int = -1) -> None:
        super().__init__()
        self.chunk, self.place, self.weight = chunk, place, nn.Parameter(torch.rand(3))

    def forward(self, x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        carried, outputs = torch.zeros(2, 3, dtype=x.dtype), []
        for start in range(0, x.shape[1], self.chunk):
            log = torch.cumsum(-x[:, start : start + self.chunk].abs(), 1)
            states = torch.exp(log) * (carried.unsqueeze(1) + log * self.weight)
            carried = states[:, self.place]
            outputs.append((states * c[:, start : start + self.chunk].unsqueeze(-1)).sum(-1))
        return torch.cat(outputs, 1)


@pytest.mark.parametrize("place", [-1, 0, 2])
def test_a_scan_is_left_with_what_goes_from_turn_to_turn(place: int) -> None:
    torch.manual_seed(0)
    plan = check(Scan(4, place), torch.randn(2, 24, 3), torch.randn(2, 24))
    assert calls(plan) == {"cumsum": 1, "select": 1, "unbind": 1, "zeros": 1, "stack": 1}
    assert len(fused_steps(plan)) <= 5


def test_turns_whose_results_are_larger_than_what_they_make_stay_turns() -> None:
    """Else all that they hand on would be copied."""
    torch.manual_seed(0)
    plan = check(Scan(1), torch.randn(2, 6, 3), torch.randn(2, 6))
    assert calls(plan)["stack"] == 0 and calls(plan)["cat"] == 1


def test_parts_of_two_tensors_are_told_apart() -> None:
    class Two(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            pairs = zip(x.unbind(1), y.unbind(1), strict=True)
            made = [
                a.cumsum(0) * b.cumsum(0) if turn % 2 else b.cumsum(0) - a.cumsum(0)
                for turn, (a, b) in enumerate(pairs)
            ]
            return sum(made)  # type: ignore[return-value]

    torch.manual_seed(0)
    assert calls(check(Two(), torch.randn(2, 4, 3), torch.randn(2, 4, 3))) == {"cumsum": 2, "unbind": 2}


@pytest.mark.parametrize("joins", [torch.stack, torch.cat])
def test_turns_that_make_the_same_have_no_turns_of_their_own(joins: Any) -> None:
    class Same(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            one, other = x.cumsum(0).chunk(2, 0)
            again = torch.stack([torch.sin(other), torch.sin(other)], 0)
            return joins([one.sin(), one.sin()], 0) * joins([one * 2, other * 2], 0) + joins([*again], 0)

    torch.manual_seed(0)
    check(Same(), torch.randn(4, 3))


class Unread(nn.Module):
    """Three turns of four, of what is no number or has no gradient in the last."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.layer = kind, nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = x.unbind(1)
        if self.kind == "elements":
            made = [part.sqrt().cumsum(0) for part in parts[:3]]
        else:
            made = [self.layer(part).cumsum(0) for part in parts[:3]]
        return made[0] * made[1] * made[2] + parts[3].sum(0)


@pytest.mark.parametrize(("kind", "last"), [("elements", 0.0), ("product", float("inf"))])
def test_what_no_turn_reads_makes_no_gradient(kind: str, last: float) -> None:
    """0 by infinity is no number, which would be added to a weight's gradient or an input's."""
    torch.manual_seed(0)
    x, module = torch.rand(2, 4, 3, dtype=torch.float64) + 1, Unread(kind)
    x[:, 3] = last
    plan = planned(module, x.float())
    tensors = {plan.graph.inputs[0].name: x.requires_grad_()}
    tensors |= {p.value.name: module.double().get_parameter(p.names[0]) for p in plan.graph.parameters}
    (out,) = run(plan, tensors)
    for gradient in torch.autograd.grad(out.nan_to_num().sum(), [x, *module.parameters()], allow_unused=True):
        assert gradient is None or gradient.isfinite().all()


class Apart(nn.Module):
    """Loops whose turns are not alike, or whose parts the caller gets."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.layers = kind, nn.ModuleList([nn.Linear(3, 3) for _ in range(4)])

    def forward(self, x: torch.Tensor) -> Any:
        parts = x.unbind(1)
        if self.kind == "weights":
            return sum(layer(part) for layer, part in zip(self.layers, parts, strict=True))
        if self.kind == "sums":
            return sum(part.cumsum(turn % 2) for turn, part in enumerate(parts))
        if self.kind == "few":
            return sum(self.layers[0](part) for part in parts[:2]) + sum(parts)
        if self.kind == "turned":
            return self.layers[0](parts[0] + parts[3]) + self.layers[0](parts[1] + parts[2])
        return tuple(self.layers[0](part) for part in parts)


@pytest.mark.parametrize("kind", ["weights", "sums", "few", "turned", "seen"])
def test_what_is_not_alike_stays_apart(kind: str) -> None:
    torch.manual_seed(0)
    plan = check(Apart(kind), torch.randn(2, 4, 3), gradients=False)
    assert plan.rewrites == ()


ENDS = {
    "cat": lambda parts, dim: torch.cat(parts, dim),
    "stack": lambda parts, dim: torch.stack(parts, dim),
    "sum": lambda parts, dim: sum(parts),
    "last": lambda parts, dim: parts[-1],
}


class Loop(nn.Module):
    """What a draw says, turn by turn."""

    def __init__(self, said: dict[str, Any]) -> None:
        super().__init__()
        self.said, self.layer = said, nn.Linear(4, 4)
        self.row, self.column, self.table = (nn.Parameter(torch.rand(*size)) for size in ((4,), (3,), (3, 4)))

    def parts(self, x: torch.Tensor) -> list[torch.Tensor]:
        dim, size = self.said["dim"], self.said["size"]
        if self.said["taken"] == "unbind":
            return [*x.unbind(dim)]
        if self.said["taken"] == "split":
            return [*x.split(size, dim)]
        return [x.narrow(dim, start, size) for start in range(0, x.shape[dim], size)]

    def one(self, part: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        for step in self.said["steps"]:
            if not part.dim():
                return part.sigmoid()
            if step == "linear":
                part = self.layer(part) if part.shape[-1:] == (4,) else part
            elif step == "row":
                part = part * self.row if part.shape[-1:] == (4,) else part
            elif step == "column":
                part = part * self.column if part.shape[-1:] == (3,) else part
            elif step == "table":
                part = part + self.table if part.shape[-2:] == (3, 4) else part
            elif step == "other":
                part = part * other.exp() if part.shape == other.shape else part
            elif step == "cumsum":
                part = part.cumsum(self.said["along"] % part.dim())
            elif step == "sum":
                part = part.sum(self.said["along"] % part.dim(), keepdim=self.said["keepdim"])
            elif step == "mean":
                part = part.mean((0, -1), keepdim=self.said["keepdim"]) if part.dim() > 1 else part
            elif step == "place":
                part = part.select(self.said["along"] % part.dim(), -1) if part.dim() > 1 else part
            else:
                part = torch.sigmoid(part)
        return part

    def with_last(self, one: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
        if self.said["handed_on"] == "all":
            return one * last.tanh()
        if self.said["handed_on"] == "place" and one.dim():
            dim = self.said["along"] % one.dim()
            return one.sigmoid() + one * last.select(dim, -1).unsqueeze(dim)
        return one

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        made: list[torch.Tensor] = []
        for part, other in zip(self.parts(x), self.parts(y), strict=True):
            one = self.one(part, other)
            made.append(one if not made else self.with_last(one, made[-1]))
        dim = self.said["end_dim"] % made[0].dim() if made[0].dim() else 0
        end = self.said["end"] if made[0].dim() or self.said["end"] != "cat" else "stack"
        return ENDS[end](made, dim)


STEPS = ["linear", "row", "column", "table", "other", "cumsum", "sum", "mean", "place", "elements"]
LOOPS = st.fixed_dictionaries(
    {
        "dim": st.integers(0, 3),
        "size": st.sampled_from([1, 2]),
        "taken": st.sampled_from(["unbind", "split", "narrow"]),
        "steps": st.lists(st.sampled_from(STEPS), min_size=1, max_size=4),
        "along": st.integers(0, 3),
        "keepdim": st.booleans(),
        "handed_on": st.sampled_from(["nothing", "all", "place"]),
        "end": st.sampled_from(sorted(ENDS)),
        "end_dim": st.integers(0, 3),
    }
)


@settings(max_examples=500 if NIGHTLY else 15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(LOOPS, st.integers(0, 1000))
def test_loops_compute_what_they_did(said: dict[str, Any], seed: int) -> None:
    torch.manual_seed(seed)
    x, y = torch.randn(2, 4, 3, 4), torch.randn(2, 4, 3, 4)
    said = said if x.shape[said["dim"]] % said["size"] == 0 else {**said, "size": 1}
    loop = Loop(said)
    without_products = all(isinstance(step.compute, Program) for step in fused_steps(planned(loop, x, y)))
    check(loop, x, y, gradients=without_products, unused=True)


BODIES = {
    "decay": lambda part, factor, carried: torch.exp(-part.abs()) * (carried + part),
    "gate": lambda part, factor, carried: torch.sigmoid(part * factor) * carried + part,
    "sums": lambda part, factor, carried: part.cumsum(1) + carried * factor,
    "larger": lambda part, factor, carried: torch.maximum(part.exp(), carried),
}


class Turns(nn.Module):
    """[2, T, 3, 4] by chunks along T, of which each hands one place on."""

    def __init__(self, body: str, chunk: int, place: int, reads: bool, end: str) -> None:
        super().__init__()
        self.body, self.chunk, self.place, self.reads, self.end = BODIES[body], chunk, place, reads, end
        self.factor = nn.Parameter(torch.rand(3, 4))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        carried, made = y[:, 0], []
        for part, other in zip(x.split(self.chunk, 1), y.split(self.chunk, 1), strict=True):
            states = self.body(part, self.factor, carried.unsqueeze(1))
            carried = states[:, self.place] if self.reads else states.select(1, self.place) * 0.5
            made.append((states * other).sum(-1))
        ends = torch.stack(made, 1) if self.end == "stack" else torch.cat(made, 1)
        return (ends, carried) if self.end == "both" else ends


@settings(max_examples=250 if NIGHTLY else 10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(sorted(BODIES)),
    st.sampled_from([2, 3, 6]),
    st.sampled_from([-1, 0, 1]),
    st.booleans(),
    st.sampled_from(["cat", "stack", "both"]),
)
def test_scans_compute_what_they_did(body: str, chunk: int, place: int, reads: bool, end: str) -> None:
    torch.manual_seed(0)
    plan = check(Turns(body, chunk, place, reads, end), torch.randn(2, 12, 3, 4), torch.randn(2, 12, 3, 4), unused=True)
    if chunk == 6 and end != "both":
        assert any("made of all at once" in note for note in plan.rewrites)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_what_all_turns_read_is_broadcast_over_them(dim: int) -> None:
    class Weighed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.rand(3, 3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return sum((part * self.weight).cumsum(0) * (turn + 1) for turn, part in enumerate(x.unbind(dim)))  # type: ignore[return-value]

    torch.manual_seed(0)
    assert check(Weighed(), torch.randn(3, 3, 3)).rewrites == ("cumsum of all parts at once",)
