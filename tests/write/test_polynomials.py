"""Polynomials stay within the error that is proven for them, in float32, everywhere on their interval."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from crucible.algebra import polynomial
from crucible.algebra.evaluate import evaluate
from crucible.algebra.expression import make, parameter, tensor
from crucible.algebra.gradient import derivative
from crucible.algebra.interval import Interval
from crucible.algebra.operations import cost
from crucible.algebra.polynomial import FORMS, approximate
from crucible.algebra.ranges import DEFAULTS, interval
from crucible.algebra.simplify import simplify
from support import some

X = tensor("x")
PLACES = {
    "gelu": (-1.0, 1.0),
    "gelu_slope": (-1.0, 1.0),
    "gelu_tanh": (-1.0, 0.5),
    "gelu_tanh_slope": (-0.5, 0.5),
    "silu": (-1.0, 1.0),
    "silu_slope": (0.0, 1.0),
    "sigmoid": (-1.0, 1.0),
    "softplus": (-1.0, 1.0),
    "logsigmoid": (-1.0, 1.0),
    "tanh": (-0.5, 0.5),
    "erf": (-0.5, 0.5),
    "sin": (-1.0, 1.0),
    "cos": (-1.0, 1.0),
    "exp": (0.0, 1.0),
    "expm1": (-0.5, 0.5),
    "log1p": (-0.25, 0.25),
    "mish": (-0.5, 0.5),
    "mish_slope": (-0.25, 0.25),
}


def horner(found: polynomial.Approximation, x: np.ndarray) -> np.ndarray:
    """As the GPU computes it: fmaf rounds once, and so does float64 here (but for rare double rounding)."""
    single, double = np.float32, np.float64
    form = found.form
    variable = (x * x) if form.stride == 2 else x
    value = np.full_like(x, found.coefficients[-1])
    for coefficient in reversed(found.coefficients[:-1]):
        value = (value.astype(double) * variable + single(coefficient)).astype(single)
    if form.power == 0:
        return value
    rest = (double(single(form.linear)) * x + single(form.offset)).astype(single)
    return (value.astype(double) * (x if form.power == 1 else variable) + rest).astype(single)


def errors(found: polynomial.Approximation, count: int = 200_001) -> np.ndarray:
    """How far float32 lies from the function."""
    dense = np.linspace(found.low, found.high, count)
    random = np.random.default_rng(0).uniform(-1, 1, count) * 10 ** np.random.default_rng(1).uniform(-6, 0, count)
    x = np.concatenate([dense, random[(random > found.low) & (random < found.high)]]).astype(np.float32)
    function = evaluate(make(found.kind, (X,), *DEFAULTS.get(found.kind, ())), {"x": x.astype(np.float64)})
    return np.abs(horner(found, x).astype(np.float64) - function)


ENDS = [(-3.0, 3.0), (-1.0, 1.0), (0.0, 6.0), (-6.0, 0.0), (-0.9, 4.0), (-0.5, 0.25)]
EACH = [(kind, ends) for number, kind in enumerate(FORMS) for ends in (*ENDS[number % 6 :], *ENDS[: number % 6])]


@pytest.mark.parametrize(("kind", "ends"), some(EACH, 3, lambda each: each == ("mish_slope", ENDS[0])))
def test_what_is_allowed_is_of_the_functions_values(kind: str, ends: tuple[float, float]) -> None:
    """Not of what encloses them: 0.05 of Mish's slope behind a clamp between -3 and 3, whose gradients were 3 % off."""
    if kind == "log1p" and ends[0] < -0.9:
        return
    found = approximate(kind, *ends)
    function = evaluate(make(kind, (X,), *DEFAULTS.get(kind, ())), {"x": np.linspace(*ends, 2001)})
    if found is not None:
        assert errors(found, 5_001).max() <= 3e-7 * max(1.0, np.abs(function).max())


def test_every_form_is_tested() -> None:
    assert set(PLACES) == set(FORMS)


@pytest.mark.parametrize("kind", some(list(PLACES), 2))
def test_error_is_within_the_proven_bound(kind: str) -> None:
    """And the bound is no more than a few times what happens."""
    low, high = PLACES[kind]
    found = approximate(kind, low, high)
    assert found is not None
    largest = errors(found).max()
    assert largest <= found.error <= 3e-7 * 3
    assert found.error < 6 * largest
    assert cost(found.of(X)) < cost(make(kind, (X,), *DEFAULTS.get(kind, ())))


def test_the_proof_notices_a_wrong_coefficient() -> None:
    """A coefficient that is off by 1e-6 adds what it should to the proven distance, and dropping one is seen too."""
    found = approximate("gelu", -1.0, 1.0)
    assert found is not None
    right = polynomial._distance(found, 3e-7)
    first, *rest = found.coefficients
    worse = polynomial._distance(replace(found, coefficients=(first + 1e-6, *rest)), 3e-7)
    assert 0.8e-6 < worse - right < 1.2e-6
    shorter = replace(found, coefficients=found.coefficients[:-1])
    assert polynomial._distance(shorter, 3e-5) == pytest.approx(abs(found.coefficients[-1]), rel=0.05)


def test_gelu_behind_a_clamp_is_short() -> None:
    """Five coefficients, for value and interval both, and never outside of the interval."""
    chain = X.clamp(-1, 1).gelu()
    simplified = simplify(chain)
    (rewrite,) = simplified.rewrites
    assert rewrite.rule == "polynomial"
    assert rewrite.error <= 3e-7
    assert cost(chain) - cost(simplified.exprs[0]) >= 20
    assert simplify(X.clamp(-9, 9).gelu()).rewrites == ()
    assert simplify(X.gelu()).rewrites == ()
    assert simplify(chain, tolerance=0).rewrites == ()
    x = np.array([-np.inf, -2, -1, 0, 1, 2, np.inf, np.nan])
    values = evaluate(simplified.exprs[0], {"x": x})
    np.testing.assert_allclose(values, evaluate(chain, {"x": x}), atol=3e-7)


def test_gradients_become_polynomials_too() -> None:
    chain = (X.leaky_relu(0.2) + parameter("sum")).clamp(-1, 1).gelu()
    gradient = derivative(chain, X)
    simplified = simplify(gradient)
    assert [rewrite.rule for rewrite in simplified.rewrites] == ["polynomial"]
    x = np.linspace(-8, 8, 1001)
    places = {"x": x, "sum": 0.3, "grad": 1.0}
    np.testing.assert_allclose(evaluate(simplified.exprs[0], places), evaluate(gradient, places), atol=3e-7)


def test_a_bounded_value_needs_no_maximum_before_a_softmax() -> None:
    found = interval(X.clamp(0, 1).exp(), {"x": Interval(-np.inf, np.inf)})
    assert 0.999 < found.low <= 1 <= np.e <= found.high < 2.719
    assert not found.nan
    assert interval(X.clamp(0, 1)).nan  # unless x is known to be a number
