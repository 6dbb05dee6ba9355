"""Which way chains before a maximum go, and that following the largest product then does what comparing values does."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from random_chains import Tree, ours, trees

from crucible.algebra.convolution.direction import LEAST, Direction, direction
from crucible.algebra.convolution.fused import LEAF, PRODUCT
from crucible.algebra.evaluate import Array, evaluate
from crucible.algebra.expression import Expr, parameter, substitute, tensor
from crucible.algebra.program import Operand
from crucible.algebra.sinking import MOST
from support import NIGHTLY

M, B = parameter("m"), parameter("b")


def numbers(*names: str) -> list[Operand]:
    """One of each channel."""
    return [Operand(name, "float32", (0, 1, 0, 0)) for name in names]


@pytest.mark.parametrize(
    ("chain", "falls", "signs"),
    [
        (LEAF, False, ()),
        (1 - LEAF, True, ()),
        (((LEAF + B).leaky_relu(0.2) * M).leaky_relu(0.2), False, (M,)),
        (-(LEAF * M) * B, True, (M, B)),
        (LEAF / (M - 2), False, (M - 2,)),
    ],
)
def test_chains_with_a_direction(chain: Expr, falls: bool, signs: tuple[Expr, ...]) -> None:
    found = direction(chain, numbers("m", "b"), strict=True)
    assert found is not None
    assert found.falls == falls and set(found.signs) == set(signs)
    assert found.turns == (falls or bool(signs))


@pytest.mark.parametrize("chain", [abs(LEAF), LEAF * LEAF, M * 2, LEAF * M * M, LEAF.log(), LEAF.rsqrt() * M])
def test_chains_without_one(chain: Expr) -> None:
    assert direction(chain, numbers("m", "b"), strict=False) is None


def test_what_ties_products_chooses_none_of_them() -> None:
    assert direction((LEAF * M).clamp(-1, 1), numbers("m"), strict=False) is not None
    assert direction((LEAF * M).clamp(-1, 1), numbers("m"), strict=True) is None
    assert direction(LEAF.relu() + M, numbers("m"), strict=True) is None


@pytest.mark.parametrize("strides", [(1, 0, 0, 0), (0, 1, 1, 0)])
def test_what_is_not_the_channels_decides_nothing(strides: tuple[int, ...]) -> None:
    assert direction(LEAF * M, [Operand("m", "float32", strides)], strict=True) is None


SCALED: dict[str, Callable[[Expr], Expr]] = {
    "not": lambda chain: chain,
    "multiplied": lambda chain: (chain * M).leaky_relu(0.2),
    "subtracted": lambda chain: M - chain * M,
    "divided": lambda chain: chain / M,
}


def follow(found: Direction, u: Array, known: dict[str, Array]) -> tuple[Array, Array]:
    """Rows of `u` with a direction; of each the element that is largest when those of falling ones are turned round."""
    rows = u.shape[:1]
    signs = [np.broadcast_to(evaluate(each, known), rows) for each in found.signs]
    decided = np.all([np.full(rows, True), *((abs(each) >= LEAST) & (abs(each) <= MOST) for each in signs)], axis=0)
    falls = np.logical_xor.reduce([np.full(rows, found.falls), *(each < 0 for each in signs)])
    turned = np.where(falls[:, None], -u, u)
    nan = np.isnan(turned)
    last = turned.shape[1] - 1 - np.argmax(nan[:, ::-1], axis=1)
    return decided, np.where(nan.any(axis=1), last, np.argmax(np.where(nan, -math.inf, turned), axis=1))


@given(trees(), st.sampled_from([*SCALED]), st.booleans(), st.integers(0, 2**31))
@settings(max_examples=500 if NIGHTLY else 150, deadline=None)
def test_the_element_that_is_followed_has_the_largest_value(tree: Tree, scaled: str, strict: bool, seed: int) -> None:
    chain = SCALED[scaled](substitute(ours(tree), {tensor("x"): LEAF, tensor("y"): parameter("y")}))
    found = direction(chain, numbers("y", "m"), strict=strict)
    event("none" if found is None else f"{len(found.signs)} signs")
    if found is None:
        return
    generator = np.random.default_rng(seed)
    u = generator.normal(0, 3, (64, 8)).round(0)
    for special in (math.nan, math.inf, -math.inf):
        u[generator.random(u.shape) < 0.05] = special
    known = {name: generator.normal(0, 1, 64).round(0) for name in ("y", "m")}
    with np.errstate(all="ignore"):
        values = evaluate(chain, {PRODUCT: u, **{name: value[:, None] for name, value in known.items()}})
        decided, chosen = follow(found, u, known)
    values = np.broadcast_to(values, u.shape)
    taken = np.take_along_axis(values, chosen[:, None], axis=1)[:, 0]
    np.testing.assert_allclose(taken[decided], np.max(values, axis=1)[decided], rtol=1e-6, atol=1e-9)
    if strict:  # of several the first, where different products have different values
        finite = decided & np.isfinite(values).all(axis=1) & np.isfinite(u).all(axis=1)
        values, u, chosen = values[finite], u[finite], chosen[finite]
        apart = np.where(u[:, :, None] == u[:, None, :], math.inf, abs(values[:, :, None] - values[:, None, :]))
        told = apart.min(axis=(1, 2), initial=math.inf) > 1e-6
        np.testing.assert_array_equal(chosen[told], np.argmax(values[told], axis=1))
