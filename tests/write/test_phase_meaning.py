"""Convolutions of several phases by warpgroups mean what they say: run on the CPU, role by role, before there is any
text."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import test_warpgroup_phases
from conv_harness import TWO, Case, transposed
from kernel_mutants import changed
from test_walk_meaning import error, moved

from crucible.kernel import nodes as ir
from crucible.kernel.index import ZERO, Number
from crucible.kernel.meaning import Stuck
from crucible.kernel.verify import verify
from crucible.kinds.convolution.phases.frame import PhaseFrame
from crucible.kinds.convolution.phases.lower import build_phases
from crucible.schedule.convolution.halo import UNITS
from crucible.schedule.convolution.tiling import Tiling
from crucible.schedule.convolution.warpgroup.phases import PhaseWalks, best_phase_walks, fetched_by, issued_by
from crucible.schedule.machine import machine_of
from support import NIGHTLY, some

NEAR = 1e-6
WAYS = 12
"""Ways to divide a convolution that are drawn from, most promising first."""
EVERY = {case.name: case for case in (*test_warpgroup_phases.CASES, *test_warpgroup_phases.LAID)}
OTHERWISE = ("shares", "two_dims", "sums", "reads_shares", "fewer_than_teams", "more_than_teams")
"""Those that tests below change are tried as they are, too."""


def phasing(case: Case) -> ir.Kernel:
    assert isinstance(case.divided, PhaseWalks)
    (made,) = build_phases(case.fused, case.divided, TWO).kernels
    return made


@pytest.mark.parametrize("name", some(list(EVERY), 4, lambda name: name in OTHERWISE))
def test_kernels_mean_convolutions(name: str) -> None:
    kernel = phasing(EVERY[name])
    assert verify(kernel) == ()
    assert error(EVERY[name], kernel) < NEAR


# any shape, any legal division


def drawn(seed: int) -> Case:
    """The same on every run."""
    draw = random.Random(seed)
    while True:
        rank, stride = draw.choice((1, 2, 2, 3)), draw.choice((2, 2, 3))
        kernel = tuple(draw.randint(stride, stride + (1 if rank == 3 else 2)) for _ in range(rank))
        space = [draw.randint(3, {1: 60, 2: 14, 3: 6}[rank]) for _ in range(rank)]
        rest = {"padding": draw.randint(0, min(kernel) - 1), "output_padding": draw.randint(0, stride - 1)}
        shape, made = (draw.randint(1, 3), draw.choice((1, 8, 13, 20)), *space), draw.choice((5, 40, 64, 70))
        dtype, chain = (
            draw.choice(("float32", "float32", "float16")),
            draw.choice(("none", "shifted", "biased", "summed")),
        )
        case = transposed(f"drawn_{seed}", shape, made, kernel, stride=stride, dtype=dtype, chain=chain, **rest)
        conv = case.fused
        written = sum(not each.sums for each in conv.results)
        asked = written, fetched_by(conv), issued_by(conv, machine_of(TWO))
        if ways := best_phase_walks(case.correlation, UNITS[dtype], WAYS, TWO, *asked):
            return replace(case, tiling=given(draw.choice(ways)))


def given(way: PhaseWalks) -> Callable[[Tiling], Tiling]:
    return lambda _: way


@pytest.mark.parametrize("seed", range(16 if NIGHTLY else 8))
def test_any_division_of_any_shape_means_its_convolution(seed: int) -> None:
    case = drawn(seed)
    kernel = phasing(case)
    assert verify(kernel) == ()
    assert error(case, kernel) < NEAR


# what is wrong


def of_another_phase(node: ir.Product) -> ir.Node:
    (phase,) = node.into.at
    return replace(node, into=replace(node.into, at=(Number(1) if phase == ZERO else ZERO,)))


def the_other_way(node: ir.If) -> ir.Node:
    return replace(node, body=node.otherwise, otherwise=node.body) if node.otherwise else node


def of_neighbours(node: ir.Load) -> ir.Node:
    is_ahead = node.into.of.name == "other_ahead"
    return replace(node, source=replace(node.source, at=node.source.at + 4)) if is_ahead else node


WRONG: dict[str, tuple[str, type, Callable[[Any], ir.Node], int]] = {
    "Product: a position further": ("two_dims", ir.Product, moved, 0),
    "Product: of another phase": ("two_dims", ir.Product, of_another_phase, -1),
    "Product: into sums that were there": ("two_dims", ir.Product, lambda node: replace(node, adds=()), 1),
    "Describe: another plane": ("shares", ir.Describe, lambda node: replace(node, behind=1 - node.behind), -1),
    "If: the products of other tasks": ("shares", ir.If, the_other_way, -1),
    "Deal: a task less": ("more_than_teams", ir.Deal, lambda node: replace(node, tasks=node.tasks - 1), 0),
    "Deal: nobody has another task": ("shares", ir.Deal, lambda node: replace(node, tasks=1), 0),
    "Load: of neighbours": ("reads_shares", ir.Load, of_neighbours, -1),
    "Accumulate: not what is added up": ("sums", ir.Accumulate, lambda _: ir.Note("left out"), 0),
    "Reduce: of two lanes": (
        "sums", ir.Reduce, lambda node: replace(node, sizes=(replace(node.sizes[0], value=2),)), 0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("word", WRONG)
def test_what_is_wrong_makes_other_outputs(word: str) -> None:
    name, kind, change, which = WRONG[word]
    case = EVERY[name]
    wrong = changed(phasing(case), kind, change, which)
    try:
        assert not error(case, wrong) < NEAR
    except IndexError as beside:
        assert "other" in str(beside)


def test_places_that_nobody_stores_are_zero_from_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    made = PhaseFrame._ring
    monkeypatch.setattr(PhaseFrame, "_ring", lambda self: replace(made(self), slack=0))
    assert error(EVERY["shares"], phasing(EVERY["shares"])) == np.inf


def test_windows_that_nobody_fills_are_waited_for_forever() -> None:
    case = EVERY["shares"]
    with pytest.raises(Stuck, match="wait forever"):
        error(case, changed(phasing(case), ir.Fill, lambda node: ir.Note("left out")))
    with pytest.raises(Stuck, match="wait forever"):
        error(case, changed(phasing(case), ir.Deal, lambda node: replace(node, count=node.count + 1)))


def test_every_block_has_a_part_of_its_own() -> None:
    """As many as a part needs: parts of one block, and of several."""
    case = EVERY["shares"]
    assert isinstance(case.divided, PhaseWalks)
    several = replace(case.divided, sms=7)
    assert max(several.dealt) > 1 and len(set(several.dealt)) > 1
    (kernel,) = build_phases(case.fused, several, TWO).kernels
    assert kernel.blocks == sum(several.dealt) and verify(kernel) == ()
    assert error(case, kernel) < NEAR
