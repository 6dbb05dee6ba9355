"""Random chains: values and gradients against PyTorch, intervals, directions and rewrites against samples."""

from __future__ import annotations

import math

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_chains import INPUTS, Tree, ours, torchs, trees

from crucible.algebra.evaluate import evaluate
from crucible.algebra.expression import number
from crucible.algebra.gradient import gradients
from crucible.algebra.interval import Interval
from crucible.algebra.monotone import monotonicity
from crucible.algebra.ranges import intervals
from crucible.algebra.simplify import simplify
from crucible.algebra.text import text

X, Y = INPUTS["x"], INPUTS["y"]
FEW = settings(max_examples=100, deadline=None, derandomize=True)
GRID = np.concatenate([np.linspace(-3, 3, 31), np.random.default_rng(0).normal(0, 2, 32)]).astype(np.float32)
bound = st.sampled_from(
    [-math.inf, -(2.0**100), -100.0, -3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 100.0, 2.0**100, math.inf]
)
bounds = st.tuples(bound, bound).map(lambda ends: Interval(min(ends), max(ends)))


def within(interval: Interval, count: int = 40) -> np.ndarray:
    """Float32 numbers of an interval: its ends, places of all magnitudes, and whole numbers."""
    low, high = (min(max(end, -3e38), 3e38) for end in (interval.low, interval.high))
    generator = np.random.default_rng(1)
    evenly = low / 2 + (high / 2 - low / 2) * generator.uniform(0, 1, count) + low / 2
    scaled = np.concatenate(
        [np.linspace(-4, 4, 17), generator.normal(0, 1, count) * 10 ** generator.uniform(-3, 3, count)]
    )
    places = np.concatenate([evenly, scaled, [interval.low, interval.high]]).astype(np.float32)
    return places[(places >= interval.low) & (places <= interval.high)]


@FEW
@given(trees(jumps=False))
def test_values_and_gradients(tree: Tree) -> None:
    x, y = GRID.astype(np.float64), GRID[::-1].astype(np.float64) * 0.7
    leaves = [torch.tensor(each, requires_grad=True) for each in (x, y)]
    expected = torchs(tree, *leaves)
    chain = ours(tree)
    values = np.broadcast_to(evaluate(chain, {"x": x, "y": y}), x.shape)
    tame = np.isfinite(values) & (np.abs(values) < 1e6)
    np.testing.assert_allclose(values[tame], expected.detach().numpy()[tame], rtol=1e-9, atol=1e-9)
    assert (np.isnan(values) == expected.isnan().numpy()).all()
    if not expected.requires_grad:
        return
    pulled = torch.autograd.grad(expected.sum(), leaves, allow_unused=True)
    for found, each in zip(gradients(chain, (X, Y)), pulled, strict=True):
        theirs = np.zeros_like(x) if each is None else each.numpy()
        gradient = np.broadcast_to(evaluate(found, {"x": x, "y": y, "grad": 1.0}), x.shape)
        tame = np.isfinite(theirs) & (np.abs(theirs) < 1e6) & np.isfinite(values)
        np.testing.assert_allclose(gradient[tame], theirs[tame], rtol=1e-7, atol=1e-7, err_msg=text(chain))


@FEW
@given(trees(), bounds, bounds)
def test_values_lie_in_their_intervals(tree: Tree, of_x: Interval, of_y: Interval) -> None:
    """Every value inside the chain, exactly and in float32."""
    chain = ours(tree)
    x, y = within(of_x), within(of_y)
    y = np.resize(y, x.shape)
    for node, range_ in intervals((chain,), {"x": of_x, "y": of_y}).items():
        for kind in (np.float32, np.float64):
            values = np.broadcast_to(evaluate(node, {"x": x.astype(kind), "y": y.astype(kind)}), x.shape)
            outside = [value for value in values.tolist() if value not in range_]
            assert not outside, (text(node), range_, kind, outside)


@FEW
@given(trees(leaves=3), bounds, bounds)
def test_directions_hold(tree: Tree, of_x: Interval, of_y: Interval) -> None:
    """With x rising and y fixed."""
    chain = ours(tree)
    found = monotonicity(chain, X, {"x": of_x, "y": of_y})
    if not found.known:
        return
    x = np.unique(within(of_x)).astype(np.float64)
    for y in within(of_y, 3).astype(np.float64):
        given_values = {"x": x, "y": np.float64(y)}
        values = np.broadcast_to(evaluate(chain, given_values).astype(np.float64), x.shape)
        values = values[np.isfinite(values)]
        sign = math.prod(float(np.sign(evaluate(factor, given_values))) for factor in found.signs)
        sign *= {"increasing": 1, "decreasing": -1, "constant": 0}[found.direction]
        steps, slack = np.diff(values), 1e-9 * (1 + np.abs(values[1:]))
        assert (steps * sign >= -slack).all() if sign else (np.abs(steps) <= slack).all(), (text(chain), found, y)


@FEW
@given(trees(leaves=3), bounds)
def test_nan_in_gives_nan_out_where_promised(tree: Tree, of_y: Interval) -> None:
    chain = ours(tree)
    if monotonicity(chain, X, {"y": of_y}).keeps_nan and number(chain) is None:
        y = within(of_y, 10).astype(np.float64)
        assert np.isnan(evaluate(chain, {"x": np.full_like(y, np.nan), "y": y})).all(), text(chain)


@FEW
@given(trees(without="single"), bounds, bounds)
def test_exact_rewrites_change_nothing(tree: Tree, of_x: Interval, of_y: Interval) -> None:
    """NaN and infinities included; roundings aside, float32's among them, and the sign of zero and what is divided by
    it: the rules that may change it say so."""
    chain = ours(tree)
    simplified = simplify(chain, bounds={"x": of_x, "y": of_y}, tolerance=0).exprs[0]
    x = within(of_x).astype(np.float64)
    y = np.resize(within(of_y), x.shape).astype(np.float64)
    before, after = (
        np.broadcast_to(evaluate(each, {"x": x, "y": y}).astype(np.float64), x.shape) for each in (chain, simplified)
    )
    before, after = (np.where(np.isinf(values), np.inf, values) for values in (before, after))
    np.testing.assert_allclose(after, before, rtol=1e-8, atol=1e-8, err_msg=f"{text(chain)} => {text(simplified)}")
