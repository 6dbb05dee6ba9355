"""Which chains become which, and what is left alone because it would change."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from crucible.algebra.evaluate import evaluate
from crucible.algebra.expression import Expr, constant, parameter, tensor, where
from crucible.algebra.interval import ANY, Interval
from crucible.algebra.monotone import monotonicity
from crucible.algebra.simplify import hoist, simplify
from crucible.algebra.text import text

X, Y, M = tensor("x"), tensor("y"), parameter("m")
POSITIVE, NUMBER = Interval(0.5, 2.0), Interval(-1e30, 1e30)


@pytest.mark.parametrize(
    ("chain", "expected"),
    [
        (X * 1 + 0, "x"),
        (-(-(X)), "x"),  # noqa: B002
        (X - (-Y), "x + y"),
        (X * -1, "-x"),
        ((constant(2.0) * 3.0 + 1) * X, "7 * x"),
        (X / 4, "x * 0.25"),
        (X.pow(3), "square(x) * x"),
        (X.relu().relu(), "relu(x)"),
        (X.exp().relu(), "exp(x)"),
        (X.square().leaky_relu(0.2), "square(x)"),
        (abs(X.sigmoid()), "sigmoid(x)"),
        (X.clamp(-1, 1).clamp(-0.5, 2), "clamp(x, -0.5, 1)"),
        (X.clamp(-1, 1).relu(), "clamp(x, 0, 1)"),
        (X.sigmoid().clamp(-1, 2), "sigmoid(x)"),
        (X.sigmoid().clamp(0.5, 2), "clamp(sigmoid(x), 0.5, inf)"),
        (X.tanh().hardtanh(), "tanh(x)"),
        (X.leaky_relu(0.5).leaky_relu(0.5), "leaky_relu(x, 0.25)"),
        (X.leaky_relu(-0.5).leaky_relu(0.5), "leaky_relu(x, -0.5)"),
        (X.cast("float16").relu().cast("float16"), "relu(cast(x, float16))"),
        (X.cast("bfloat16").cast("float32"), "cast(x, bfloat16)"),
        (tensor("h", "float16").clamp(-1, 1).cast("float16"), "clamp(h, -1, 1)"),
        (where(X.square() < -1, X, Y), "y"),
        (where(~(X < Y), X, Y), "where(x < y, y, x)"),
        (X * X.sigmoid(), "silu(x)"),
        (X.dropout(), "x"),
    ],
    ids=lambda value: text(value) if isinstance(value, Expr) else "",
)
def test_becomes(chain: Expr, expected: str) -> None:
    simplified = simplify(chain, tolerance=0)
    assert text(simplified.exprs[0]) == expected
    assert bool(simplified.rewrites) == (simplified.exprs[0] is not chain)


@pytest.mark.parametrize(
    "chain",
    [
        X * 0,  # NaN and infinity
        X - X,
        X / X,
        X.exp().maximum(-Y.square()),  # NaN in y would win
        X.cast("float16").exp().cast("float16"),
        X.cast("float16").cast("bfloat16"),
        X.cast("float16").clamp(-0.1, 0.1).cast("float16"),  # 0.1 is not a float16
        X.hardshrink(0.5),
        X.sqrt().square(),
    ],
    ids=text,
)
def test_stays(chain: Expr) -> None:
    assert simplify(chain, tolerance=0).exprs == (chain,)


def test_bounds_decide() -> None:
    def after(chain: Expr, **bounds: Interval) -> str:
        return text(simplify(chain, bounds=bounds, tolerance=0).exprs[0])

    assert after(X * 0, x=NUMBER) == "0"
    assert after(X.relu(), x=POSITIVE) == "x"
    assert after(X.relu(), x=Interval(0.5, 2.0, nan=True)) == "x"
    assert after(X.relu(), x=Interval(-2, -1)) == "0"
    assert after(X.relu(), x=Interval(-2, -1, nan=True)) == "relu(x)"
    assert after(X.prelu(M), x=POSITIVE, m=ANY) == "x"
    assert after(X.prelu(M), x=Interval(0, 1), m=ANY) == "prelu(x, m)"  # zero times infinity
    assert after(X.leaky_relu(0.2), x=Interval(-2, -1)) == "x * 0.2"
    assert after(X.maximum(Y), x=POSITIVE, y=Interval(-1, 0)) == "x"
    assert after(X.maximum(Y), x=Interval(0, 2), y=Interval(-1, 1)) == "maximum(x, y)"
    assert after(X.minimum(Y), x=Interval(-2, 0), y=Interval(0, 1)) == "x"


def test_two_leaky_relus_around_a_factor_are_one_piecewise_linear_function() -> None:
    chain = (X.leaky_relu(0.2) * M).leaky_relu(0.2)
    (after,) = simplify(chain).exprs
    (inside,), shared = hoist(after)
    assert text(inside) == "x * where(x > 0, shared_0, shared_1)"
    assert set(shared) == {"shared_0", "shared_1"}
    x = np.array([*np.linspace(-3, 3, 61), np.inf, -np.inf, np.nan], np.float32)
    for m in (-1.7, -0.0, 0.0, 0.3, np.nan):
        values = {"x": x, "m": np.float32(m)}
        (rewrite,) = simplify(chain).rewrites
        np.testing.assert_allclose(evaluate(after, values), evaluate(chain, values), rtol=rewrite.relative_error)


def test_hoisting_leaves_what_depends_on_tensors() -> None:
    inside, shared = hoist(X * (M.exp() + 1), M.exp() * Y)
    assert [text(each) for each in inside] == ["x * shared_1", "shared_0 * y"]
    assert {name: text(each) for name, each in shared.items()} == {"shared_0": "exp(m)", "shared_1": "exp(m) + 1"}


def test_directions() -> None:
    def direction(chain: Expr, **bounds: Interval) -> tuple[str, bool]:
        found = monotonicity(chain, X, bounds)
        return found.direction, found.strict

    assert direction(X.leaky_relu(0.2)) == ("increasing", True)
    assert direction(-X.relu()) == ("decreasing", False)
    assert direction(X.gelu()) == ("unknown", False)
    assert direction(X.gelu(), x=POSITIVE) == ("increasing", True)
    assert direction(X.silu(), x=Interval(-9, -2)) == ("decreasing", True)
    assert direction(X.square(), x=Interval(-9, -2)) == ("decreasing", True)
    assert direction((1 - X).exp() / 3) == ("decreasing", True)
    assert direction(X.clamp(-1, 1), x=Interval(-1, 1)) == ("increasing", True)
    assert direction(X.clamp(-1, 1), x=Interval(2, 3)) == ("constant", False)
    assert direction(X.cast("float16")) == ("increasing", False)
    assert direction(X + X.tanh()) == ("increasing", True)
    assert direction(X - X.tanh()) == ("unknown", False)
    assert direction(X * M, m=POSITIVE) == ("increasing", True)
    assert direction(Y + 1) == ("constant", False)


def test_the_direction_may_be_a_parameters_sign() -> None:
    """P74: the maximum over a window is that of the arguments where the factor is positive, else of their minimum."""
    found = monotonicity((X.leaky_relu(0.2) * M).leaky_relu(0.2), X)
    assert (found.direction, found.strict, found.signs) == ("increasing", True, (M,))
    assert found.keeps_nan
    assert found.makes_nan  # zero times infinity
    bounded = monotonicity((X.leaky_relu(0.2) * M).leaky_relu(0.2), X, {"x": NUMBER, "m": POSITIVE})
    assert not bounded.makes_nan
    assert not bounded.signs
    assert monotonicity(X * (M * X), X).direction == "unknown"
    assert monotonicity(X * X, X).direction == "unknown"  # the sign moves with it


@pytest.mark.parametrize("m", [-1.3, -0.0, 0.7])
def test_a_chain_sinks_through_a_maximum(m: float) -> None:
    """As `Monotonicity` says: the maximum of the chain is the chain of the maximum, or of the minimum."""
    chain = (X.leaky_relu(0.2) * M).leaky_relu(0.2)
    found = monotonicity(chain, X)
    windows = np.random.default_rng(0).normal(0, 2, (500, 8))
    windows[3, 5] = np.nan
    rises = float(evaluate(found.signs[0], {"m": m})) > 0
    chosen = windows.max(axis=1) if rises else windows.min(axis=1)  # numpy's hand NaN on
    expected = evaluate(chain, {"x": windows, "m": m}).max(axis=1)
    np.testing.assert_array_equal(evaluate(chain, {"x": chosen, "m": m}), expected)


def test_where_may_lose_nan() -> None:
    assert not monotonicity(where(Y > 0, X, 1.0), X).keeps_nan
    assert monotonicity(X.clamp(0, 1).hardshrink(), X).keeps_nan


def test_equal_expressions_are_one() -> None:
    assert (X * 2).exp() is (tensor("x") * 2.0).exp()
    assert constant(0.0) is not constant(-0.0)
    assert constant(float("nan")) is constant(float("nan"))
    chain = X.leaky_relu(0.2).clamp(-1, 1)
    assert pickle.loads(pickle.dumps(chain)) is chain
    assert copy.deepcopy(chain) is chain


def test_misuse_says_what_to_do() -> None:
    with pytest.raises(TypeError, match="where"):
        bool(X > 0)
    with pytest.raises(ValueError, match="float16"):
        X.cast("int8")
    with pytest.raises(ValueError, match="tanh"):
        X.gelu("quick")
    with pytest.raises(AttributeError):
        X.kind = "y"  # type: ignore[misc]


def test_text_is_stable() -> None:
    shared = (X * 2).exp()
    assert text(shared / (1 + shared) - 2 * (X - Y)) == "t0 = exp(x * 2); t0 / (1 + t0) - 2 * (x - y)"
    assert text(where((X > 0) & ~(X <= Y), -X, -(X + Y))) == "where(x > 0 & ~(x <= y), -x, -(x + y))"
