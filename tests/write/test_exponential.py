"""exp as a power of two stays within the error that is stated for it, everywhere on its interval."""

from __future__ import annotations

import math

import numpy as np
import pytest

from crucible.algebra.evaluate import evaluate
from crucible.algebra.exponential import LOG2_E, UNITS, by_power_of_two, by_scaled_power, error_of_power
from crucible.algebra.expression import parameter, tensor
from crucible.algebra.operations import cost
from crucible.algebra.simplify import hoist, simplify
from crucible.algebra.text import text
from crucible.print.chains import emit

X, Y, M = tensor("x"), tensor("y"), parameter("m")
INTERVALS = [(0.0, 1.0), (-1.0, 0.0), (-1.0, 1.0), (0.0, 0.5), (-0.8, 0.8), (-30.0, 30.0), (59.0, 60.0)]


def worst(low: float, high: float, count: int = 400_001) -> float:
    """The largest error where the instruction is off by as much as it may be, and its argument is rounded."""
    dense = np.linspace(low, high, count)
    turns = np.arange(math.ceil(low / math.log(2)), math.floor(high / math.log(2)) + 1) * math.log(2)
    beside = [np.nextafter(turns.astype(np.float32), np.float32(end)) for end in (-np.inf, np.inf)]
    x = np.concatenate([dense.astype(np.float32), turns.astype(np.float32), *beside])
    x = x[(x >= low) & (x <= high)]
    power = np.exp2((x * np.float32(LOG2_E)).astype(np.float64))
    unit = np.exp2(np.floor(np.log2(power)) - 23)
    return float((np.abs(power - np.exp(x.astype(np.float64))) + UNITS * unit).max())


@pytest.mark.parametrize(("low", "high"), INTERVALS)
def test_error_is_within_the_bound(low: float, high: float) -> None:
    """And the bound is little more than what may happen."""
    assert worst(low, high) <= error_of_power(low, high) < 1.4 * worst(low, high)


def test_a_bounded_exp_is_one_product_and_one_instruction() -> None:
    (after,), (rewrite,) = (found := simplify(X.clamp(0, 1).exp())).exprs, found.rewrites
    assert text(after) == "exp2_approx(clamp(x, 0, 1) * 1.4426950216293335)"
    assert (rewrite.rule, rewrite.relative_error) == ("power of two", 0.0)
    assert rewrite.error == error_of_power(0, 1) < 3e-7 * math.e
    assert cost(after) == cost(X.clamp(0, 1)) + 2
    assert "ex2.approx.ftz.f32" in emit({"out": after}).preamble[-1]


def test_what_elements_share_is_scaled_beforehand() -> None:
    chain = (X + M).clamp(-0.5, 1).exp()
    (after,), (rewrite,) = (found := simplify(chain)).exprs, found.rewrites
    (inside,), shared = hoist(after)
    assert emit({"out": inside}).statements[0].startswith("const float clamp = min_nan(max_nan(fmaf(x, 1.442695f, ")
    assert [text(each) for each in shared.values()] == ["m * 1.4426950216293335"]
    assert "6e-8 of itself" in rewrite.note and rewrite.error == error_of_power(-0.5, 1)
    x = np.random.default_rng(0).normal(0, 2, 100_000).astype(np.float32)
    low, high = (float(end) for end in after.args[0].attributes)
    for m in map(np.float32, (0.3, -1.7, 50.0, math.nan, math.inf)):
        moved = np.append(np.clip(x, -9, 9) - np.clip(m, -99, 99), np.float32(math.nan)).astype(np.float64)
        # as float32 computes it: fma rounds once, and so does float64 here
        scaled = moved * np.float32(LOG2_E) + np.float32(m * np.float32(LOG2_E))
        value = np.exp2(np.clip(scaled.astype(np.float32).astype(np.float64), low, high))
        exact = np.exp(np.clip(moved + m, -0.5, 1))
        allowed = rewrite.error + (np.e * abs(float(m)) * 2.0**-24 if math.isfinite(m) else 0.0)
        assert np.array_equal(np.isnan(value), np.isnan(exact))
        assert (np.abs(value - exact)[~np.isnan(exact)] <= allowed).all()
        np.testing.assert_allclose(evaluate(after, {"x": moved, "m": m}), exact, atol=allowed)


def test_sums_that_others_read_are_not_scaled() -> None:
    total = X + M
    (after, _), _ = (found := simplify(total.clamp(0, 1).exp(), total >= 0)).exprs, found.rewrites
    assert text(after) == "exp2_approx(clamp(x + m, 0, 1) * 1.4426950216293335)"
    assert text(simplify((X + Y).clamp(0, 1).exp()).exprs[0]).startswith("exp2_approx(clamp(x + y, 0, 1) *")
    assert by_scaled_power(X.clamp(0, 1)) is by_scaled_power(X + M) is None


@pytest.mark.parametrize(("low", "high"), [(0, 3), (-3, 3), (-math.inf, 0), (-70, -60.5), (0, 80)])
def test_it_is_left_alone_where_the_error_is_too_large_or_results_leave_the_range(low: float, high: float) -> None:
    assert "power of two" not in {each.rule for each in simplify(X.clamp(low, high).exp()).rewrites}


def test_tolerance_and_bounds_decide() -> None:
    assert simplify(X.clamp(0, 1).exp(), tolerance=0).rewrites == ()
    assert {each.rule for each in simplify(X.clamp(0, 1).exp(), tolerance=2e-7).rewrites} <= {"polynomial"}
    assert simplify(X.exp()).rewrites == ()


def test_what_is_no_number_stays_so() -> None:
    x = np.array([-np.inf, -2, 0, 1, 2, np.inf, np.nan])
    found = evaluate(by_power_of_two(X.clamp(0, 1)), {"x": x})
    np.testing.assert_allclose(found, np.exp(np.clip(x, 0, 1)), rtol=1e-7)
    assert np.isnan(found[-1])
