"""Outputs near a kink: found where they are, and nothing is pulled back through them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from crucible.judge.boundary.bundles import read_bundle
from crucible.judge.boundary.modules import gradients_of
from crucible.judge.oracle.kinks import CROSSED, MOST, are_exceptions, near_kinks, positions, reach_of
from crucible.judge.oracle.noise import RoundedOperands
from crucible.judge.oracle.oracle import Oracle
from test_oracle import compared, errors, prepared, source

Smooth = Callable[[torch.Tensor], torch.Tensor]
POOL = """
        self.conv = nn.ConvTranspose2d(4, 8, 3, stride=2, padding=1, output_padding=1)

    def forward(self, x):
        return F.max_pool2d(F.leaky_relu(self.conv(x), 0.2), 2)
"""
INPUTS = "torch.randn(batch, 4, 72, 72)"
SMOOTH: tuple[Smooth, ...] = (torch.sigmoid, torch.tanh, torch.exp, F.silu, F.gelu, torch.sin, lambda v: 3 * v - 1)


def found(function: Callable[[torch.Tensor], torch.Tensor], value: torch.Tensor, bits: int, seed: int) -> torch.Tensor:
    """Which elements of a function of a product are near a kink, within what so many bits leave open."""

    def outputs(by: float, direction: int) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(seed + direction)
        moves = torch.rand(value.shape, generator=generator, dtype=value.dtype) * 2 - 1
        return [function(value * (1 + by * moves))]

    return near_kinks(outputs, reach_of(bits))[0]


@given(st.sampled_from(SMOOTH), st.sampled_from([23, 10]), st.integers(0, 2**31), st.floats(0.1, 3))
@settings(max_examples=60, deadline=None)
def test_what_is_smooth_is_not_bent(function: Smooth, bits: int, seed: int, spread: float) -> None:
    """But for the few that hardly move, which look the same."""
    generator = torch.Generator().manual_seed(seed)
    value, weight = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((64, 32), (32, 64)))

    def of_product(operands: torch.Tensor) -> torch.Tensor:
        left, right = operands.split(64 * 32)
        return function(left.view(64, 32) @ right.view(32, 64) * spread / 32**0.5)

    bent = found(of_product, torch.cat([value.flatten(), weight.flatten()]), bits, seed)
    assert bent.double().mean() < (MOST if bits == 23 else 5 * MOST)


@given(st.floats(-0.1, 0.1), st.sampled_from([23, 10]), st.sampled_from([(0.0, 1.0), (0.2, 1.0), (1.0, 0.5)]))
def test_a_kink_between_is_found(place: float, bits: int, slopes: tuple[float, float]) -> None:
    below, above = slopes
    at = 1 + place * reach_of(bits)

    def knee(value: torch.Tensor) -> torch.Tensor:
        return torch.where(value > at, above * (value - at), below * (value - at))

    assert found(knee, torch.ones(1, dtype=torch.float64), bits, 0).all()
    assert not found(knee, torch.full((1,), 1 + 3 * reach_of(bits), dtype=torch.float64), bits, 0).any()


def test_what_does_not_move_is_not_bent() -> None:
    still = torch.tensor([0.0, 5.0, float("inf")], dtype=torch.float64)
    assert not found(lambda _: still.clone(), still, 23, 0).any()
    last = iter([0.0, *[1e-15] * 8])
    assert not found(lambda _: still[1:2] + next(last), still[1:2], 23, 0).any()


def test_kinks_that_are_no_exceptions_spare_nobody() -> None:
    rare, common = torch.zeros(1000, dtype=torch.bool), torch.zeros(1000, dtype=torch.bool)
    rare[[3, 500]], common[:20] = True, True
    assert positions([rare], 23).tolist() == [3, 500]
    assert positions([rare, rare.roll(1)], 23).tolist() == [3, 4, 500, 501]
    assert positions([rare, common], 23).tolist() == []


@pytest.mark.parametrize(
    ("elements", "bits", "most"),
    [(1, 23, 0), (7, 23, 0), (8, 23, 1), (64, 23, 4), (1000, 23, 10), (7, 10, 0), (64, 10, 8), (10_000, 10, CROSSED)],
)
def test_a_few_are_exceptions_in_small_outputs_too(elements: int, bits: int, most: int) -> None:
    """And never as many as to leave little that is pulled back through."""
    found = torch.arange(elements) < most
    assert len(positions([found], bits)) == most
    assert len(positions([torch.arange(elements) < most + 1], bits)) == 0
    assert most <= elements / 8


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


def test_where_roundings_cross_many_everything_is_pulled_back(tmp_path: Path) -> None:
    """Nor are they looked for, if there must be many: the noise has them."""
    oracle = prepared(tmp_path, source(POOL, INPUTS), contract="tf32", training=True)
    assert not any(len(places) for places in oracle.cases[0].silent)
    (cotangent,) = read_bundle(tmp_path / "inputs/case0.cotangents")
    assert (cotangent == 0).sum() <= 2  # float32 normals hold a zero now and then
    large = oracle.answers.shapes[0]
    assert not are_exceptions(2 * torch.Size(large).numel(), 10) and are_exceptions(10 * torch.Size(large).numel(), 23)


CURVED = """
        self.linear = nn.Linear(1024, 512)

    def forward(self, x):
        return F.gelu(self.linear(x)).amax(1)
"""


def test_operands_that_are_cut_off_move_all_rows_one_way(tmp_path: Path) -> None:
    """By up to 2.9 times what would be allowed of a bias's gradient, were it held to four roundings: without its kinks
    these average away, and this does not."""
    oracle = prepared(tmp_path, source(CURVED, "torch.rand(256, 1024)"), contract="tf32", training=True)
    (x,), state, cotangents = (
        read_bundle(tmp_path / f"inputs/case0.{what}") for what in ("inputs", "state", "cotangents")
    )
    names, (weight, bias) = ("input[0]", "linear.weight", "linear.bias"), (state["linear.weight"], state["linear.bias"])
    leaves = [each.clone().requires_grad_() for each in (x, weight, bias)]
    with RoundedOperands(10, cut=True):
        out = F.gelu(F.linear(*leaves)).amax(1)
        gradients = gradients_of([out], dict(zip(names, leaves, strict=True)), cotangents)
    said = errors(compared(oracle, 0, "gradient", [gradients[name] for name in names], names))
    assert len(oracle.cases[0].silent[0]) and all(each.ok for each in said), said


LARGEST = """
        self.linear = nn.Linear(64, 512)

    def forward(self, x):
        return self.linear(x).amax(1)
"""


def gradients_rounded(folder: Path, index: int, bits: int) -> tuple[list[torch.Tensor], torch.Tensor]:
    """What a candidate gives whose product takes operands cut off to so many bits, and which rows have another maximum
    than float64's."""
    (x,), state = (read_bundle(folder / f"inputs/case{index}.{what}") for what in ("inputs", "state"))
    weight, bias = state["linear.weight"], state["linear.bias"]

    def cut(value: torch.Tensor) -> torch.Tensor:
        return (value.view(torch.int32) & -(1 << (23 - bits))).view(torch.float32)

    exact = (x.double() @ weight.double().T + bias).argmax(1)
    chosen = (cut(x) @ cut(weight).T + bias).argmax(1)
    (cotangent,) = read_bundle(folder / f"inputs/case{index}.cotangents")
    back = torch.zeros(len(x), len(weight)).scatter(1, chosen[:, None], cotangent.reshape(-1, 1))
    return [back @ weight, back.T @ x, back.sum(0)], (chosen != exact).nonzero().flatten()


def test_a_maximum_of_few_rows_that_roundings_move_is_right(tmp_path: Path) -> None:
    """Of 256 maxima of rows TF32 moves one or two, in some probes none."""
    names = ("input[0]", "linear.weight", "linear.bias")
    moved = 0
    for seed in range(6):
        folder = tmp_path / str(seed)
        oracle = prepared(folder, source(LARGEST, "torch.rand(256, 64)"), contract="tf32", training=True, seed=seed)
        for index in (0, 2):
            gradients, elsewhere = gradients_rounded(folder, index, 10)
            (cotangent,) = read_bundle(folder / f"inputs/case{index}.cotangents")
            moved += len(elsewhere)
            assert not cotangent[elsewhere].any() and (cotangent != 0).double().mean() >= 7 / 8
            said = errors(compared(oracle, index, "gradient", gradients, names))
            assert all(each.ok for each in said), said
            wrong = errors(compared(oracle, index, "gradient", gradients_rounded(folder, index, 5)[0], names))
            assert not all(each.ok for each in wrong)
    assert moved


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
