"""Steps in which rows and other sums are made of the same smaller parts, against the program as it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crucible.algebra.evaluate import evaluate_program
from crucible.algebra.expression import parameter, tensor
from crucible.algebra.finer import finer
from crucible.algebra.program import Operand, Program, Reduction, Result, contiguous

X, GRAD, WEIGHT, SAVED = tensor("x"), tensor("grad"), parameter("weight"), parameter("saved")
FIRST, SECOND = parameter("first"), parameter("second")


def gradient(batch: int, groups: int, of_group: int, space: tuple[int, ...]) -> Program:
    """As a group norm's: two sums of a group's, elements that read them, and sums for each channel."""
    shape = (batch, groups, of_group, *space)
    zeros = (0,) * len(space)
    whole, of_group_, of_channel = contiguous(shape), (groups, 1, 0, *zeros), (0, of_group, 1, *zeros)
    operands = (
        Operand("x", "float32", whole),
        Operand("grad", "float32", whole),
        Operand("weight", "float32", of_channel, shared=True),
        Operand("saved", "float32", of_group_, shared=True),
    )
    reductions = (
        Reduction("first", "sum", GRAD * WEIGHT * (X - SAVED)),
        Reduction("second", "sum", GRAD * WEIGHT.exp()),
    )
    results = (
        Result("grad_x", "float32", whole, GRAD * WEIGHT + (X - SAVED) * FIRST - SECOND),
        Result("grad_weight", "float32", of_channel, GRAD * (X - SAVED), sums=True),
        Result("grad_bias", "float32", of_channel, GRAD.tanh(), sums=True),
        Result("grad_of_group", "float32", (0, 1, 0, *zeros), GRAD * X, sums=True),
        Result("grad_of_each", "float32", (groups * of_group, of_group, 1, *zeros), X * GRAD, sums=True),
    )
    return Program("norm", shape, 2, operands, reductions, results)


def values(program: Program, seed: int) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    return {each.name: draw.standard_normal(int(np.prod(program.shape))) for each in program.operands}


@given(
    st.integers(1, 3), st.integers(1, 3), st.integers(2, 4), st.lists(st.integers(2, 4), min_size=1, max_size=2),
    st.sets(st.sampled_from(["grad_weight", "grad_bias", "grad_of_group", "grad_of_each"]), min_size=1),
    st.booleans(), st.integers(0, 2**31),
)  # fmt: skip
@settings(max_examples=80, deadline=None)
def test_steps_of_parts_give_what_the_program_does(
    batch: int, groups: int, of_group: int, space: list[int], asked: set[str], elements: bool, seed: int
) -> None:
    program = gradient(batch, groups, of_group, tuple(space))
    results = [each for each in program.results if each.name in asked or (elements and each.name == "grad_x")]
    results = [each for each in results if each.name != "grad_of_group"] if asked == {"grad_of_group"} else results
    kept = {dim for each in results if each.sums for dim in each.kept(program.shape)}
    program = replace(program, results=tuple(results))
    steps = finer(program)
    if 2 not in kept:
        assert steps is None
        return
    assert steps is not None and not any(result.sums for step in steps for result in step.results)
    known = values(program, seed)
    wanted = evaluate_program(program, known)
    for step in steps:
        known |= evaluate_program(step, known)
    for name, value in wanted.items():
        np.testing.assert_allclose(known[name], value, rtol=1e-9, atol=1e-9)


def test_elements_are_read_twice() -> None:
    """Once for all sums, and once for what is written of each."""
    steps = finer(gradient(2, 3, 4, (5, 6)))
    assert steps is not None
    reading = [step.name for step in steps if {"x", "grad"} & {each.name for each in step.operands}]
    assert reading == ["norm_parts", "norm"]


@pytest.mark.parametrize("why", ["a maximum", "a sum that waits", "nothing else is summed", "elements of parts"])
def test_what_has_no_parts_in_common_stays(why: str) -> None:
    program = gradient(2, 2, 3, (4,))
    first, second = program.reductions
    if why == "a maximum":
        program = replace(program, reductions=(replace(first, kind="max"), second))
    if why == "a sum that waits":
        waits = replace(program.results[1], expr=GRAD * FIRST)
        program = replace(program, results=(program.results[0], waits))
    if why == "nothing else is summed":
        program = replace(program, results=program.results[:1])
    if why == "elements of parts":
        each = replace(program.results[1], strides=(0, 12, 4, 1))
        program = replace(program, results=(program.results[0], each))
    assert finer(program) is None
