"""Programs, their gradients and their stages against PyTorch in float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import CASES, Case

from crucible.algebra.adjoint import adjoint, saving
from crucible.algebra.evaluate import Array, evaluate_program
from crucible.algebra.expression import parameter, tensor
from crucible.algebra.program import Operand, Program, Result, collapsed, contiguous, phases
from crucible.algebra.stages import stages


def run(program: Program, tensors: dict[str, Array]) -> dict[str, Array]:
    """The results of a program with sums, directly and in stages; both must agree."""
    whole = evaluate_program(program, tensors)
    known = dict(tensors)
    for step in stages(program):
        assert not any(result.sums for result in step.results)
        known |= evaluate_program(collapsed(step), known)
    for name, value in whole.items():
        np.testing.assert_allclose(known[name], value, rtol=1e-10, atol=1e-12, err_msg=name)
    return whole


def flat(tensors: dict[str, torch.Tensor]) -> dict[str, Array]:
    return {name: value.detach().numpy().reshape(-1) for name, value in tensors.items()}


@pytest.fixture(params=sorted(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]()


@pytest.mark.parametrize("save", [False, True])
def test_values_and_gradients_are_those_of_pytorch(case: Case, save: bool) -> None:
    torch.manual_seed(0)
    given = {n: torch.randn(s, dtype=torch.float64, requires_grad=True) for n, s in case.shapes.items()}
    expected = case.module(**given)
    expected = expected if isinstance(expected, tuple) else (expected,)
    cotangents = [torch.randn_like(each) for each in expected]
    names = [reduction.name for reduction in case.program.reductions] if save else []

    found = run(saving(case.program, names), flat(given))
    for result, each in zip(case.program.results, expected, strict=True):
        np.testing.assert_allclose(found[result.name], each.detach().numpy().reshape(-1), rtol=1e-9, atol=1e-12)

    upstream = {result.name: f"grad_{result.name}" for result in case.program.results}
    backward = adjoint(case.program, list(given), upstream, saved=names)
    known = flat({**given, **{upstream[r.name]: g for r, g in zip(case.program.results, cotangents, strict=True)}})
    gradients = run(backward, {**known, **found})
    for name, each in zip(given, torch.autograd.grad(expected, list(given.values()), cotangents), strict=True):
        np.testing.assert_allclose(gradients[f"grad_{name}"], each.numpy().reshape(-1), rtol=1e-8, atol=1e-10)


def test_a_maximum_is_shared_out_between_equals() -> None:
    case = CASES["row_results"]()
    x = torch.tensor([[1.0, 3.0, 3.0, 2.0, 3.0, 0, 0, 0, 0]] * 6, dtype=torch.float64, requires_grad=True)
    factor = torch.ones(6, 1, dtype=torch.float64)
    backward = adjoint(case.program, ["x"], {"peak": "grad_peak"})
    found = run(backward, flat({"x": x, "factor": factor, "grad_peak": torch.ones(6, dtype=torch.float64)}))
    peak, _ = case.module(x, factor)  # type: ignore[misc]
    (expected,) = torch.autograd.grad(peak.sum(), x)
    np.testing.assert_allclose(found["grad_x"], expected.numpy().reshape(-1))


def test_only_what_is_wanted_is_computed() -> None:
    case = CASES["softmax"]()
    backward = adjoint(case.program, ["scale"], {"out": "grad_out"}, saved=["largest", "total"])
    assert [result.name for result in backward.results] == ["grad_scale"]
    assert [reduction.name for reduction in backward.reductions] == ["grad_scale_row"]
    assert {operand.name for operand in backward.operands} == {"x", "saved_largest", "saved_total", "grad_out"}


def test_the_sums_of_a_chain_share_one_pass() -> None:
    case = CASES["pointwise"]()
    backward = adjoint(case.program, list(case.shapes), {"out": "grad_out"})
    first, *rest = stages(backward)
    assert {result.name for result in first.results} == {"grad_x", "grad_bias", "grad_other", "partial_grad_scale"}
    assert first.row_shape == (4,)
    assert [step.operands[0].name for step in rest] == ["partial_grad_scale"]


def test_sums_over_the_same_elements_share_a_pass() -> None:
    case = CASES["layer_norm"]()
    first, *rest = stages(adjoint(case.program, list(case.shapes), {"out": "grad_out"}, saved=["total", "squares"]))
    assert [result.name for result in first.results] == ["grad_x"]
    assert [[result.name for result in step.results] for step in rest] == [["grad_weight", "grad_bias"]]


def test_a_variance_takes_no_further_pass_for_its_mean() -> None:
    case = CASES["layer_norm"]()
    backward = adjoint(case.program, ["x"], {"out": "grad_out"}, saved=["total", "squares"])
    assert max(phases(backward).values()) == 1


shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


@st.composite
def broadcast_chains(draw: st.DrawFn) -> Program:
    """x and parameters of any broadcast shape, with x in any order of its dims."""
    shape = draw(shapes)
    order = draw(st.permutations(range(len(shape))))
    dense = contiguous([shape[dim] for dim in order])
    strides = tuple(dense[order.index(dim)] for dim in range(len(shape)))
    operands, value = [Operand("x", "float32", strides)], tensor("x")
    for i in range(draw(st.integers(0, 3))):
        own = [size if draw(st.booleans()) else 1 for size in shape]
        laid = tuple(s if n > 1 else 0 for s, n in zip(contiguous(own), own, strict=True))
        operands.append(Operand(f"p{i}", "float32", laid, shared=True))
        value = value * parameter(f"p{i}") + value.tanh()
    return Program("chain", shape, len(shape), tuple(operands), (), (Result("out", "float32", strides, value),))


def storage(operand: Operand, shape: tuple[int, ...], seed: int) -> Array:
    size = 1 + sum((n - 1) * s for n, s in zip(shape, operand.strides, strict=True))
    return np.random.default_rng(seed).standard_normal(size)


@given(broadcast_chains(), st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_gradients_of_any_broadcast(program: Program, seed: int) -> None:
    """Along a random direction the gradient is the difference quotient."""
    tensors = {each.name: storage(each, program.shape, seed + i) for i, each in enumerate(program.operands)}
    out = run(program, tensors)["out"]
    cotangent = np.random.default_rng(seed + 9).standard_normal(out.shape)
    backward = adjoint(program, list(tensors), {"out": "grad_out"})
    gradients = run(backward, {**tensors, "grad_out": cotangent})
    step = 1e-6
    for name, value in tensors.items():
        direction = np.random.default_rng(seed + 11).standard_normal(value.shape)
        ends = [run(program, {**tensors, name: value + s * step * direction})["out"] for s in (1, -1)]
        slope = float(np.dot((ends[0] - ends[1]) / (2 * step), cotangent))
        along = float(np.dot(gradients[f"grad_{name}"], direction))
        np.testing.assert_allclose(along, slope, rtol=1e-5, atol=1e-6)


@given(broadcast_chains(), st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_collapsing_keeps_the_values(program: Program, seed: int) -> None:
    tensors = {each.name: storage(each, program.shape, seed + i) for i, each in enumerate(program.operands)}
    slim = collapsed(program)
    assert len(slim.shape) <= max(1, len(program.shape))
    np.testing.assert_array_equal(evaluate_program(slim, tensors)["out"], evaluate_program(program, tensors)["out"])


def test_dense_chains_collapse_to_one_dim() -> None:
    program = CASES["pointwise"]().program
    dense = replace(program, operands=tuple(replace(o, strides=contiguous(program.shape)) for o in program.operands))
    assert collapsed(dense).shape == (360,)
    assert collapsed(program).shape == (3, 4, 30)


@pytest.mark.parametrize("alike", [False, True])
def test_numbers_that_differ_are_not_written_to_one_place(alike: bool) -> None:
    """Rows may write the same number, as a moving mean of one channel is; others would be lost, or be added up."""
    x = Operand("x", "float32", (3, 1))
    written = Result("y", "float32", (0, 1), tensor("x"))
    numbers = np.tile(np.arange(3.0), 4) if alike else np.arange(12.0)
    program = Program("together", (4, 3), 1, (x,), (), (written,))
    if alike:
        assert evaluate_program(program, {"x": numbers})["y"].tolist() == [0.0, 1.0, 2.0]
        return
    with pytest.raises(ValueError, match="y: elements that differ are written to one place"):
        evaluate_program(program, {"x": numbers})
