"""Convolutions of few output channels by warpgroups mean what they say: run on the CPU, role by role, before there is
any text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import test_scatters
from conv_harness import TWO, Case, forward
from kernel_mutants import changed
from random_scatters import drawn
from test_walk_meaning import error

from crucible.kernel import nodes as ir
from crucible.kernel.index import ONE, ZERO, Compare, Number, Variable
from crucible.kernel.meaning import Raced, Stuck
from crucible.kernel.verify import verify
from crucible.kinds.convolution.scatter.lower import build_scatter
from crucible.print.names import Names
from crucible.print.sliding import added
from crucible.print.words import Words
from crucible.schedule.convolution.warpgroup.scatter import Scatter, best_scatters
from support import NIGHTLY, some

NEAR = 1e-6
EVERY = test_scatters.BY_NAME
OTHERWISE = ("bands", "exact_bands")
"""Those that tests below change are tried as they are, too."""


def scattering(case: Case) -> ir.Kernel:
    assert isinstance(case.divided, Scatter)
    (made,) = build_scatter(case.fused, case.divided, TWO).kernels
    return made


@pytest.mark.parametrize("name", some(list(EVERY), 4, lambda name: name in OTHERWISE))
def test_kernels_mean_convolutions(name: str) -> None:
    kernel = scattering(EVERY[name])
    assert verify(kernel) == ()
    assert error(EVERY[name], kernel) < NEAR


@pytest.mark.parametrize("seed", range(12 if NIGHTLY else 3))
@pytest.mark.parametrize("exact", [False, True])
def test_any_division_of_any_shape_means_the_convolution(seed: int, exact: bool) -> None:
    (case,) = drawn(1, 100 + seed, exact=exact)
    kernel = scattering(case)
    assert verify(kernel) == ()
    assert error(case, kernel) < NEAR


@pytest.mark.parametrize("kernel", [(5, 5), (3, 8), (4, 7)])
def test_registers_hold_what_a_division_asks_for(kernel: tuple[int, int]) -> None:
    """In float32 sums are there twice: of 4 x 7 taps with any inputs there is no room for both."""
    case = forward("wide_taps", (2, 64, 20, 24), 8, kernel, exact=True)
    ways = best_scatters(case.correlation, 99, TWO, exact=True)
    assert bool(ways) == (kernel != (4, 7))
    for way in ways:
        assert verify(build_scatter(case.fused, way, TWO).kernels[0]) == ()


# what cannot be left out


def _without(kernel: ir.Kernel, kind: type, which: int = 0) -> ir.Kernel:
    return changed(kernel, kind, lambda _: ir.Note("left out"), which)


def test_warpgroups_that_do_not_wait_for_their_turn_race() -> None:
    def at_once(node: Any) -> ir.Node:
        own = ir.Let(node.turn, node.team - node.team)
        return ir.Scope((own, *node.before, ir.If(node.who, (*node.body, *node.behind))))

    with pytest.raises(Raced):
        error(EVERY["bands"], changed(scattering(EVERY["bands"]), ir.InTurn, at_once))


@pytest.mark.parametrize("which", range(3))
def test_rows_that_are_not_all_there_are_raced_for(which: int) -> None:
    """Before the first row, behind the last one, and before the next item: all threads of the role come."""
    kernel, count = scattering(EVERY["bands"]), -1

    def left_out(node: ir.Sync) -> ir.Node:
        nonlocal count
        count += node.of == "role"
        return ir.Note("left out") if node.of == "role" and count == which else node

    with pytest.raises(Raced):
        error(EVERY["bands"], changed(kernel, ir.Sync, left_out, -1))


def test_lanes_that_add_without_the_others_race() -> None:
    def left_out(node: ir.Sync) -> ir.Node:
        return ir.Note("left out") if node.of == "team" else node

    with pytest.raises(Raced):
        error(EVERY["bands"], changed(scattering(EVERY["bands"]), ir.Sync, left_out, -1))


def test_a_row_beyond_its_end_is_not_multiplied() -> None:
    def unmasked(node: ir.Convert) -> ir.Node:
        return replace(node, mask=None) if node.mask else node

    assert not error(EVERY["bands"], changed(scattering(EVERY["bands"]), ir.Convert, unmasked, -1)) < NEAR


def test_inputs_that_lie_elsewhere_are_seen() -> None:
    def further(node: ir.Stretch) -> ir.Node:
        return replace(node, to=replace(node.to, at=(node.to.at[0] + 4,)))

    assert not error(EVERY["image"], changed(scattering(EVERY["image"]), ir.Stretch, further)) < NEAR


def test_sums_that_never_begin_anew_are_seen() -> None:
    def added(node: ir.Collect) -> ir.Node:
        return replace(node, adds=())

    assert not error(EVERY["exact_bands"], changed(scattering(EVERY["exact_bands"]), ir.Collect, added, -1)) < NEAR


@pytest.mark.parametrize("name", ["bands", "exact_bands"])
def test_sums_of_planes_before_are_added_to(name: str) -> None:
    def anew(node: ir.Product | ir.Collect) -> ir.Node:
        return replace(node, or_where=(), adds=node.adds if node.or_where else None)

    kernel = changed(scattering(EVERY[name]), ir.Collect if name == "exact_bands" else ir.Product, anew, -1)
    assert not error(EVERY[name], kernel) < NEAR


def test_a_stage_that_nobody_fills_is_waited_for_forever() -> None:
    with pytest.raises(Stuck):
        error(EVERY["bands"], _without(scattering(EVERY["bands"]), ir.Fill))


def test_a_loop_ends_where_its_rest_is_skipped_for_good() -> None:
    """Places of the inner dim behind the last one are none of an unrolled loop's: without its end a row is added to
    that is written out by then."""

    def goes_on(node: ir.If) -> ir.Node:
        return ir.Scope(node.body) if node.ends else node

    kernel = changed(scattering(EVERY["in_parts"]), ir.If, goes_on, -1)
    assert verify(kernel) and all("is read or written at" in said for said in verify(kernel))
    round_ = Variable("round", "int")
    assert any("where no round ends" in each for each in verify(replace(kernel, body=(*kernel.body, _rest(round_)))))


def _rest(of: Variable) -> ir.Node:
    rest = ir.If((Compare("<", of, Number(2)),), (), ends=True)
    return ir.For(of, ZERO, Number(4), ONE, (rest, ir.Note()), unrolled=True)


def test_text_adds_to_sums_where_the_meaning_does() -> None:
    """Where they always are, another condition says no more."""
    words, sums = Words(scattering(EVERY["bands"]), Names()), ir.Fragment("sums", "float32", (Number(8),))
    also = (Compare("<", ZERO, Number(3)),)
    said = {adds: added(words, ir.Collect(ir.Element(sums), sums, adds, also)) for adds in ((), also)}
    assert said == {(): "", also: "0 < 3 || 0 < 3"}
