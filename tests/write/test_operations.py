"""Values and gradients of every operation against PyTorch, at kinks, infinities and NaN too."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from vocabulary import BINARY, UNARY, places

from crucible.algebra.evaluate import evaluate
from crucible.algebra.expression import constant, inputs, make, parameter, substitute, tensor
from crucible.algebra.gradient import UPSTREAM, derivative, gradients, needs
from crucible.algebra.interval import Interval
from crucible.algebra.operations import FUNCTIONS
from crucible.algebra.pullback import FROM_OUTPUT, reads_output
from crucible.algebra.ranges import interval, shape_of
from crucible.algebra.text import text

X, Y = tensor("x"), tensor("y")
NAN = float("nan")
PAIRS = np.array(list(itertools.product([*np.linspace(-3, 3, 13), -0.0, 0.3, NAN], repeat=2))).T


def against(values: Any, *points: Any) -> tuple[np.ndarray, list[np.ndarray]]:
    """PyTorch's value and gradients, in float64, for a cotangent of 1.5."""
    leaves = [torch.tensor(point, requires_grad=True) for point in points]
    result = values(*leaves)
    if not result.requires_grad:
        return result.numpy(), [np.zeros_like(point) for point in points]
    found = torch.autograd.grad(result, leaves, torch.full_like(result, 1.5), allow_unused=True)
    return result.detach().numpy(), [
        np.zeros_like(point) if each is None else each.numpy() for each, point in zip(found, points, strict=True)
    ]


@pytest.mark.parametrize("name", UNARY)
def test_values(name: str) -> None:
    case, x = UNARY[name], places(UNARY[name])
    expected, _ = against(case.torchs, x)
    np.testing.assert_allclose(evaluate(case.ours(X), {"x": x}), expected, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("name", UNARY)
def test_gradients(name: str) -> None:
    """PyTorch's subgradient at each kink; a gradient of NaN only where PyTorch has one."""
    case, x = UNARY[name], places(UNARY[name])
    _, (expected,) = against(case.torchs, x)
    found = evaluate(derivative(case.ours(X), X), {"x": x, "grad": 1.5})
    rtol = 1e-7 if name == "hardsigmoid" else 1e-12  # PyTorch multiplies by a float32 sixth there
    np.testing.assert_allclose(np.broadcast_to(found, x.shape), expected, rtol=rtol, atol=1e-13)


@pytest.mark.parametrize("name", BINARY)
def test_two_arguments(name: str) -> None:
    """With ties and NaN on either side."""
    case, (x, y) = BINARY[name], PAIRS
    value, expected = against(case.torchs, x, y)
    np.testing.assert_allclose(evaluate(case.ours(X, Y), {"x": x, "y": y}), value, rtol=1e-13)
    for found, each in zip(gradients(case.ours(X, Y), (X, Y)), expected, strict=True):
        values = evaluate(found, {"x": x, "y": y, "grad": 1.5})
        np.testing.assert_allclose(np.broadcast_to(values, x.shape), each, rtol=1e-12, atol=1e-15)


def test_a_masked_gradient_is_zero_even_where_the_upstream_is_infinite() -> None:
    for chain in (X.relu(), X.clamp(0, 1), X.hardtanh(), X.hardshrink(), X.threshold(0.0, 0.0)):
        gradient = evaluate(derivative(chain, X), {"x": -0.1 if chain.kind != "hardtanh" else -2.0, "grad": np.inf})
        assert gradient == 0, text(chain)


@pytest.mark.parametrize("kind", FROM_OUTPUT)
def test_gradients_from_the_output(kind: str) -> None:
    """Where an operation may be differentiated from its value, that gives what its argument gives."""
    attributes = {"relu": (), "hardtanh": (-1, 2), "leaky_relu": (0.2,), "elu": (1.5, 2, 0.5), "threshold": (0.5, 0.5)}
    chain = make(kind, (X,), *attributes[kind])
    assert reads_output(chain)
    x = np.array([*np.linspace(-3, 3, 61), -1, 2, 0, 0.5, NAN])
    expected = evaluate(derivative(chain, X), {"x": x, "grad": 1.5})
    found = evaluate(derivative(chain, X, saved=[chain]), {"x": x, "grad": 1.5})
    np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_a_negative_slope_hides_the_sign_of_the_argument() -> None:
    assert not reads_output(X.leaky_relu(-0.1))
    assert not reads_output(X.threshold(0.0, 1.0))
    assert not reads_output(X.elu(-1.0))


def test_what_a_gradient_needs() -> None:
    def alternatives(chain: Any, *wrt: Any) -> list[set[str]]:
        return [{text(value) for value in each} for each in needs(chain, wrt or None)]

    m = parameter("m")
    assert alternatives(X + 1) == [set()]
    assert alternatives(X * m, X) == [set()]
    assert alternatives(X * m) == [{"x"}]
    assert alternatives(X.tanh()) == [{"tanh(x)"}, {"x"}]
    assert alternatives(X.sigmoid()) == [{"sigmoid(x)"}, {"x"}]
    assert alternatives(X.exp()) == [{"exp(x)"}, {"x"}]
    assert alternatives(X.relu()) == [{"relu(x)"}, {"x"}]
    assert alternatives(X.gelu()) == [{"x"}]
    assert alternatives(X.clamp(0, 1)) == [{"x"}]
    assert alternatives(X.leaky_relu(0.1)) == [{"leaky_relu(x, 0.1)"}, {"x"}]
    assert alternatives(X.leaky_relu(-0.1)) == [{"x"}]
    assert alternatives(X.relu() + Y) == [{"relu(x)"}, {"x"}]
    assert alternatives(X * Y) == [{"x", "y"}]


def test_only_saved_values_are_read() -> None:
    assert text(derivative(X.relu(), X)) == "where(x <= 0, 0, grad)"
    assert text(derivative(X.relu(), X, saved=[X.relu()])) == "where(relu(x) <= 0, 0, grad)"


@pytest.mark.parametrize("kind", ["exp", "exp2_approx", "expm1", "log", "log1p", "sin", "cos", "erf", "tanh", "rsqrt"])
def test_intervals_leave_room_for_the_gpus_functions(kind: str) -> None:
    """Between one and four units of float32 to either side of the nearest."""
    exact = np.float32(evaluate(make(kind, (X,)), {"x": 0.7}))
    found = interval(make(kind, (X,)), {"x": Interval(0.7, 0.7)})
    for end, bound in ((-np.inf, found.low), (np.inf, found.high)):
        steps = [np.float32(exact)]
        for _ in range(5):
            steps.append(np.nextafter(steps[-1], np.float32(end)))
        assert min(steps[1], steps[4]) <= bound <= max(steps[1], steps[4])


def test_what_is_needed_is_enough() -> None:
    """Gradients from one saved value are those from the inputs."""
    m, saved = parameter("m"), tensor("saved")
    chain = (X.leaky_relu(0.2) * m).leaky_relu(0.2).tanh()
    x = np.linspace(-3, 3, 41)
    expected = evaluate(derivative(chain, X), {"x": x, "m": -1.3, "grad": 0.7})
    for (alternative,) in needs(chain, (X,)):
        gradient = substitute(derivative(chain, X, saved=(alternative,)), {alternative: saved})
        assert {leaf.attributes[0] for leaf in inputs(gradient)} <= {"saved", "m", "grad"}
        value = evaluate(alternative, {"x": x, "m": -1.3})
        found = evaluate(gradient, {"saved": value, "m": -1.3, "grad": 0.7})
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("kind", [kind for kind in FUNCTIONS if kind != "polynomial"])
def test_shapes(kind: str) -> None:
    """Every piece goes the way it says, and ends within 1e-6 of where the function turns; values keep to the bounds."""
    attributes = {
        "clamp": (-1, 2), "hardtanh": (-1, 2), "leaky_relu": (0.2,), "elu": (1.5, 2, 0.5), "softplus": (2, 20),
        "hardshrink": (0.5,), "softshrink": (0.5,), "threshold": (0.5, -2),
    }.get(kind, ())  # fmt: skip
    chain = make(kind, (X, Y) if kind == "prelu" else (X,), *attributes)
    form = shape_of(chain)
    if form is None:
        assert kind in ("sign", "prelu") or kind.endswith("_slope")
        return
    begin = -6.0
    for piece in form.pieces:
        end = min(piece.end, 6.0)
        margin = 1e-6 * abs(end)
        x = np.concatenate([np.linspace(begin + margin, end - margin, 4001), [begin + 50 * margin, end - 50 * margin]])
        values = evaluate(chain, {"x": np.sort(x)})
        steps = np.diff(values) * {"increasing": 1, "decreasing": -1, "constant": 0}[piece.direction]
        assert (steps >= -1e-16).all() if steps.any() else (values == values[0]).all()
        assert ((form.low <= values) & (values <= form.high)).all()
        begin = end


def test_gradients_of_what_is_not_read_are_zero() -> None:
    assert derivative(X.exp(), Y) is constant(0.0)
    assert derivative(X, X) is UPSTREAM
