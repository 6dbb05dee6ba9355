"""Kernels of the IR mean what their programs say: run on the CPU before there is any text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from harness import expected, random_storages
from kernel_mutants import changed
from layouts import X, random_program
from test_families import MULTIPROCESSORS, PROGRAMS

from crucible.algebra.program import Operand, Program, Reduction, Result, contiguous
from crucible.algebra.stages import stages
from crucible.kernel import nodes as ir
from crucible.kernel.meaning import OutOfBounds, run
from crucible.kernel.verify import verify
from crucible.kinds.program.body import kernel
from crucible.kinds.program.geometry import Geometry
from crucible.kinds.program.layout import ordered
from crucible.kinds.program.lower import build
from support import some

NEAR = 1e-6
"""Of the largest value: polynomials take the place of functions where that is proven to be near enough."""
Arrays = dict[str, np.ndarray[Any, Any]]


def results(program: Program, kernels: tuple[ir.Kernel, ...], storages: Arrays) -> Arrays:
    known = dict(storages)
    for each in kernels:
        known |= run(each, known)
    return {result.name: known[result.name] for result in program.results if result.name in known}


def assert_right(program: Program, found: Arrays, storages: dict[str, Any]) -> None:
    wanted = expected(program, storages)
    for name, value in found.items():
        finite = np.isfinite(wanted[name])
        value = np.where(np.isnan(value) & (wanted[name] == 0), 0.0, value)  # between the rows of a result nothing lies
        largest = float(np.abs(wanted[name][finite]).max(initial=0.0))
        np.testing.assert_allclose(value, wanted[name], rtol=NEAR, atol=NEAR * largest, err_msg=name)


@pytest.mark.parametrize("name", some(list(PROGRAMS), 2))
def test_kernels_mean_what_the_program_says(name: str) -> None:
    known = {n: each.double() for n, each in random_storages(PROGRAMS[name], 3).items()}
    for step in stages(PROGRAMS[name]):
        given = {each.name: known[each.name] for each in step.operands}
        built = build(step, MULTIPROCESSORS.get(name, 132))
        found = results(step, built.kernels, {n: each.numpy() for n, each in given.items()})
        assert len(found) == len(step.results) or 0 in step.shape
        assert_right(step, found, given)
        known |= {n: torch.from_numpy(np.nan_to_num(each)) for n, each in found.items()}


@pytest.mark.parametrize("seed", range(60))
def test_operands_that_begin_within_a_tensor_are_read_there(seed: int) -> None:
    draw, program = np.random.default_rng(seed), random_program(seed)
    begun = [replace(each, start=int(draw.choice([0, 1, 4, 23]))) for each in program.operands]
    program = replace(program, operands=tuple(begun))
    known = {n: each.double() for n, each in random_storages(program, seed).items()}
    for step in stages(program):
        given = {each.name: known[each.name] for each in step.operands}
        kernels = build(step, 132).kernels
        assert not [words for each in kernels for words in verify(each)]
        found = results(step, kernels, {n: each.numpy() for n, each in given.items()})
        assert_right(step, found, given)
        known |= {n: torch.from_numpy(each) for n, each in found.items()}


# any legal geometry, not only what `choose` would take


def _norm(rows: int, columns: int) -> Program:
    mean = Reduction("mean", "sum", X * (1 / columns))
    square = Reduction("square", "sum", (X - mean.leaf) * (X - mean.leaf))
    strides = contiguous((rows, columns))
    out = Result("out", "float32", strides, (X - mean.leaf) * square.leaf.rsqrt())
    peak = Result("peak", "float32", (1,), square.leaf)
    return Program("norm", (rows, columns), 1, (Operand("x", "float32", strides),), (mean, square), (out, peak))


@pytest.mark.parametrize("seed", range(12))
def test_any_legal_geometry_means_the_same(seed: int) -> None:
    """The kind is right for geometries that nobody chooses: teams, packs, tiles and blocks drawn at random."""
    draw = np.random.default_rng(seed)
    team = int(draw.choice([1, 2, 8, 32, 64, 256]))
    threads = team if team > 32 else 128
    vector, packs, looped = int(draw.choice([1, 2, 4])), int(draw.choice([1, 2, 3])), bool(draw.integers(2))
    columns = team * vector * packs if not looped else int(draw.integers(1, 60)) * vector
    columns -= vector * int(draw.integers(0, min(3, columns // vector)))
    program = ordered(_norm(int(draw.integers(2, 9)), columns))
    geometry = Geometry("columns", vector, threads, team, packs, looped, 1, columns, "unsigned")
    storages = random_storages(program, seed)
    given = {name: each.double() for name, each in storages.items()}
    built = kernel(program, geometry, [])
    assert_right(program, results(program, (built,), {n: each.numpy() for n, each in given.items()}), given)


# what it sees


def built(name: str) -> tuple[Program, ir.Kernel, dict[str, Any]]:
    (program,) = stages(PROGRAMS[name])
    (one,) = build(program, MULTIPROCESSORS.get(name, 132)).kernels
    return program, one, {n: each.double() for n, each in random_storages(program, 3).items()}


def _of_other_threads(node: ir.Node) -> ir.Node:
    assert isinstance(node, ir.Reduce)
    return replace(node, sizes=(replace(node.sizes[0], value=node.sizes[0].value // 2),))


def _left_out(node: ir.Node) -> ir.Node:
    return ir.Note("left out")


def _of_the_first(node: ir.Node) -> ir.Node:
    assert isinstance(node, ir.Chain)
    return replace(node, inputs=tuple((each, node.inputs[0][1]) for each, _ in node.inputs))


WRONG: dict[str, tuple[str, type, Callable[[Any], ir.Node]]] = {
    "Reduce": ("rows of a warp", ir.Reduce, _of_other_threads),
    "Accumulate": ("rows of a warp", ir.Accumulate, _left_out),
    "Chain": ("planes", ir.Chain, _of_the_first),
    "Convert": ("rows of a warp", ir.Convert, lambda node: replace(node, value=replace(node.value, at=()))),
    "Load": ("planes", ir.Load, lambda node: replace(node, source=replace(node.source, at=node.source.at * 0))),
    "Store": ("planes", ir.Store, lambda node: replace(node, to=replace(node.to, at=node.to.at * 0))),
    "Let": ("planes", ir.Let, lambda node: replace(node, index=node.index * 0)),
    "If": ("rows of a warp", ir.If, lambda node: ir.Scope(())),
    "For": ("planes", ir.For, lambda node: replace(node, stop=node.step)),
}


@pytest.mark.parametrize("word", WRONG)
def test_a_wrong_node_gives_wrong_results(word: str) -> None:
    name, kind, change = WRONG[word]
    program, one, given = built(name)
    storages = {n: each.numpy() for n, each in given.items()}
    assert_right(program, results(program, (one,), storages), given)
    other = changed(one, kind, change)
    assert other != one
    with pytest.raises((AssertionError, ValueError, IndexError)):
        assert_right(program, results(program, (other,), storages), given)


def test_a_thread_beside_a_tensor_is_named() -> None:
    _, one, given = built("rows of a warp")
    further = changed(one, ir.Load, lambda node: replace(node, source=replace(node.source, at=node.source.at + 4)))
    with pytest.raises(OutOfBounds, match=r"x: block \d+, thread \d+ is at \d+ of \d+"):
        run(further, {n: each.numpy() for n, each in given.items()})
