"""Outputs near a kink: found where they are, and nothing is pulled back through them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from crucible.judge.boundary.bundles import read_bundle
from crucible.judge.boundary.modules import gradients_of
from crucible.judge.oracle.kinks import MOST, REACH, is_bent, positions
from crucible.judge.oracle.oracle import Oracle
from test_oracle import compared, errors, prepared, source

UNIT = 2.0**-24
POOL = """
        self.conv = nn.ConvTranspose2d(4, 8, 3, stride=2, padding=1, output_padding=1)

    def forward(self, x):
        return F.max_pool2d(F.leaky_relu(self.conv(x), 0.2), 2)
"""
INPUTS = "torch.randn(batch, 4, 72, 72)"
SMOOTH = (torch.sigmoid, torch.tanh, torch.exp, F.silu, F.gelu, torch.sin, lambda v: 3 * v - 1)


@given(st.sampled_from(SMOOTH), st.integers(0, 2**31), st.floats(0.1, 3))
@settings(max_examples=60, deadline=None)
def test_what_is_smooth_is_not_bent(function: object, seed: int, spread: float) -> None:
    """But for the few that hardly move, which look the same."""
    generator = torch.Generator().manual_seed(seed)
    value, move = (torch.randn(4000, generator=generator, dtype=torch.float64) * spread for _ in range(2))
    reach = REACH * UNIT
    bent = is_bent(*(function(value + side * reach * move) for side in (0, 1, -1)), reach)  # type: ignore[operator]
    assert bent.double().mean() < MOST / 3


@given(st.floats(-0.6, 0.6), st.sampled_from([(0.0, 1.0), (0.2, 1.0), (1.0, 0.5)]))
def test_a_kink_between_is_found(place: float, slopes: tuple[float, float]) -> None:
    reach = REACH * UNIT
    below, above = slopes
    at = torch.tensor([place * reach], dtype=torch.float64)

    def knee(value: torch.Tensor) -> torch.Tensor:
        return torch.where(value > at, above * (value - at), below * (value - at))

    assert is_bent(*(knee(torch.tensor([side * reach], dtype=torch.float64)) for side in (0.0, 1.0, -1.0)), reach)


def test_what_does_not_move_is_not_bent() -> None:
    still = torch.tensor([0.0, 5.0, float("inf")], dtype=torch.float64)
    assert not is_bent(still, still, still, REACH * UNIT).any()
    last = torch.tensor([5.0 + 1e-15], dtype=torch.float64)
    assert not is_bent(still[1:2], last, last, REACH * UNIT).any()


def test_kinks_that_are_no_exceptions_spare_nobody() -> None:
    rare, common = torch.zeros(1000, dtype=torch.bool), torch.zeros(1000, dtype=torch.bool)
    rare[[3, 500]], common[:20] = True, True
    assert positions([rare]).tolist() == [3, 500]
    assert positions([rare, rare.roll(1)]).tolist() == [3, 4, 500, 501]
    assert positions([rare, common]).tolist() == []


def near_ties(x: torch.Tensor, state: dict[str, torch.Tensor], within: float) -> torch.Tensor:
    """Windows whose two largest products are that close."""
    v = F.conv_transpose2d(
        x.double(), state["conv.weight"].double(), state["conv.bias"].double(), stride=2, padding=1, output_padding=1
    )
    top = v.unfold(2, 2, 2).unfold(3, 2, 2).flatten(-2).topk(2, -1).values
    return (top[..., 0] - top[..., 1]) < within


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pooled")


@pytest.fixture(scope="module")
def pooled(folder: Path) -> Oracle:
    """The oracle of a pool in float32, which takes seconds of processor time."""
    return prepared(folder, source(POOL, INPUTS), contract="fp32", training=True)


def test_nothing_is_pulled_back_through_a_near_tie(pooled: Oracle, folder: Path) -> None:
    for index in (0, 2):
        (x,), state = (read_bundle(folder / f"inputs/case{index}.{what}") for what in ("inputs", "state"))
        (cotangent,) = read_bundle(folder / f"inputs/case{index}.cotangents")
        near = near_ties(x, state, 4e-6)
        assert near.any() and not cotangent[near].any()
        assert 0 < (cotangent == 0).double().mean() < 4e-3
        assert pooled.answers.cotangents(pooled.cases[index])[0].equal(cotangent)


def test_where_operands_are_rounded_everything_is_pulled_back(tmp_path: Path) -> None:
    oracle = prepared(tmp_path, source(POOL, INPUTS), contract="tf32", training=True)
    assert oracle.cases[0].silent == []  # nor is it looked for: its noise has the kinks
    (cotangent,) = read_bundle(tmp_path / "inputs/case0.cotangents")
    assert (cotangent == 0).sum() <= 2  # float32 normals hold a zero now and then


@pytest.mark.parametrize(("error", "ok"), [(2e-7, True), (1e-4, False)])
def test_another_choice_in_a_near_tie_is_right_and_rounded_operands_are_not(
    pooled: Oracle, folder: Path, error: float, ok: bool
) -> None:
    """A candidate whose convolution is that far off, and whose gradient is that of its own choices: also of contents
    that it is timed with."""
    cotangents = read_bundle(folder / "inputs/case0.cotangents")
    timed = pooled.description()["timed"][1]
    drawn = [(0, read_bundle(folder / "inputs/case0.inputs"), 0)]
    drawn += [(weights, pooled.timed.inputs(seed), number) for seed, weights, number in timed]
    for weights, (x,), number in drawn:
        state = read_bundle(folder / f"inputs/case{weights}.state")
        weight = state["conv.weight"].double() * (1 + error * torch.randn_like(state["conv.weight"]).double())
        leaf, weight = x.double().requires_grad_(), weight.requires_grad_()
        v = F.conv_transpose2d(leaf, weight, state["conv.bias"].double(), stride=2, padding=1, output_padding=1)
        out = F.max_pool2d(F.leaky_relu(v, 0.2), 2)
        found = gradients_of([out], {"input[0]": leaf, "conv.weight": weight}, cotangents)
        tensors = [found[name].float() for name in ("input[0]", "conv.weight")]
        said = errors(compared(pooled, number, "gradient", tensors, ("input[0]", "conv.weight")))
        assert [each.ok for each in said] == [ok, ok], said
