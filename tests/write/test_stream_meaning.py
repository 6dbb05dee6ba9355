"""Convolutions whose weights are streamed mean what they say: run on the CPU, role by role, before there is text."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import test_warpgroup_streams
import test_warpgroups
import torch
from conv_harness import TWO, Case, backward, forward, row_sums, transposed
from kernel_mutants import changed
from pooled_harness import spread_out
from test_packing_meaning import packing
from test_walk_meaning import error, held, misplaced, moved
from test_warpgroup_streams import Spreading

from crucible.algebra.program import Result, contiguous
from crucible.errors import MisuseError
from crucible.kernel import nodes as ir
from crucible.kernel.index import ZERO, Number
from crucible.kernel.meaning import Stuck, run
from crucible.kernel.memory import BARRIER, memory, pipelines
from crucible.kernel.verify import verify
from crucible.kernel.whereabouts import OutOfBounds, Raced
from crucible.kinds.convolution.lower import lower_convolution
from crucible.kinds.convolution.reducing import added_up
from crucible.kinds.convolution.streams.lower import build_streams
from crucible.schedule.convolution.choice import chosen
from crucible.schedule.convolution.halo import UNITS
from crucible.schedule.convolution.tiling import Tiling
from crucible.schedule.convolution.warpgroup.stream_choice import Moved, best_streams, moved_by, stream
from crucible.schedule.convolution.warpgroup.streams import Streams
from support import NIGHTLY, some

NEAR = 1e-6
WAYS = 12
"""Ways to divide a convolution that are drawn from, most promising first."""
EVERY = {case.name: case for case in (*test_warpgroup_streams.CASES, *test_warpgroup_streams.RUNS)}
PHASED, SCALED = "streamed_of_rows_phased", "streamed_layer_scaled"
FLAT = "streamed_flat_scaled"
KEPT, KEPT_ONCE = "streamed_tiles_kept", "streamed_of_planes_grad_kept"
OTHERWISE = (
    "streamed_of_three",
    "streamed_halves",
    "streamed_summed",
    "streamed_runs_grad",
    KEPT,
    KEPT_ONCE,
    PHASED,
    SCALED,
    FLAT,
)
"""Those that tests below change are tried as they are, too."""


def streaming(case: Case) -> ir.Kernel:
    assert isinstance(case.divided, Streams)
    (made,) = build_streams(case.fused, case.divided, TWO).kernels
    return made


@pytest.mark.parametrize("name", some(list(EVERY), 4, lambda name: name in OTHERWISE))
def test_kernels_mean_convolutions(name: str) -> None:
    kernel = streaming(EVERY[name])
    assert verify(kernel) == ()
    assert error(EVERY[name], kernel) < NEAR


# any shape, any legal division


def drawn(seed: int, *, exact: bool = False) -> Case:
    """The same on every run."""
    draw = random.Random(seed)
    while True:
        rank = draw.choice((1, 2, 2, 3, 3))
        kernel, stride = tuple(draw.randint(1, 3) for _ in range(rank)), draw.choice((1, 2, 2, 3))
        space = tuple(draw.randint(3, {1: 140, 2: 20, 3: 7}[rank]) for _ in range(rank))
        padding, shape = draw.randint(0, (min(kernel) - 1) // 2), (draw.randint(1, 2), draw.choice((8, 13, 24)), *space)
        dtype, chain = (
            draw.choice(("float32",) if exact else ("float32", "float16")),
            draw.choice(("none", "shifted", "biased", "summed")),
        )
        name, made = f"drawn_{seed}", draw.choice((5, 16, 40))
        of = {"stride": stride, "padding": padding}
        if (turned := draw.random()) < 0.5:
            layer = transposed(name, shape, made, kernel, **of, dtype=dtype, exact=exact)
            case = layer if exact and turned < 0.25 else backward(layer)
        else:
            case = forward(name, shape, made, kernel, **of, dtype=dtype, chain=chain, exact=exact)
        asked = moved_by(case.fused)
        if ways := best_streams(case.correlation, UNITS[dtype], WAYS, TWO, asked, exact=exact):
            return replace(case, tiling=given(draw.choice(ways)))


def given(way: Streams) -> Callable[[Tiling], Tiling]:
    return lambda _: way


@pytest.mark.parametrize("seed", range(16 if NIGHTLY else 8))
def test_any_division_of_any_shape_means_its_convolution(seed: int) -> None:
    case = drawn(seed)
    kernel = streaming(case)
    assert verify(kernel) == ()
    assert error(case, kernel) < NEAR


@pytest.mark.parametrize("seed", range(100, 116 if NIGHTLY else 106))
def test_any_division_of_any_shape_keeps_float32(seed: int) -> None:
    case = drawn(seed, exact=True)
    kernel = streaming(case)
    assert verify(kernel) == ()
    assert error(case, kernel) < NEAR


@pytest.mark.parametrize("apart", [-40, 40])
def test_stages_of_any_magnitude_keep_float32(apart: int) -> None:
    """And as well as others: each is 2^40 of the one before."""
    assert error(EVERY[SCALED], streaming(EVERY[SCALED]), apart=apart) < NEAR


@pytest.mark.parametrize("name", [KEPT, KEPT_ONCE, SCALED])
def test_what_is_largest_is_added_last_of_a_stage_that_begins_anew(name: str) -> None:
    """Or tensor cores would cut something off of the whole sum at each addition."""
    case, kernel = EVERY[name], streaming(EVERY[name])
    assert isinstance(case.divided, Streams)
    batches = [each for each in ir.every(kernel.body) if isinstance(each, ir.Products)]
    assert len(batches) == len(case.divided.parts) * case.divided.tiles
    for batch in batches:
        products = [each for each in batch.body if isinstance(each, ir.Product)]
        part = next(each for each in case.divided.parts if each.blocks * case.divided.channels == 2 * products[0].made)
        units = case.divided.plane_word_units, case.divided.word_units(part)
        lower = [(each.rows[1] >= units[0], each.columns[1] >= units[1]) for each in products]  # type: ignore[operator]
        taps = len(part.taps)
        assert lower == [(False, True)] * taps + [(True, False)] * taps + [(False, False)] * taps
        assert [each.adds for each in products] == [None, *[()] * (len(lower) - 1)]


# sums over an image's space, beside a result

BESIDE = {case.name: case for case in test_warpgroup_streams.BESIDE}


@pytest.mark.parametrize("name", BESIDE)
def test_what_is_added_up_beside_a_result_is_of_each_image(name: str) -> None:
    kernel = streaming(BESIDE[name])
    assert verify(kernel) == ()
    assert error(BESIDE[name], kernel) < NEAR


@pytest.mark.parametrize("name", BESIDE)
def test_sums_are_added_up_without_a_result_too(name: str) -> None:
    case = BESIDE[name]
    alone = replace(case.fused, results=())
    (kernel,) = build_streams(alone, case.divided, TWO).kernels
    assert verify(kernel) == ()
    assert error(case, kernel, alone) < NEAR


@pytest.mark.parametrize("case", [*test_warpgroups.BESIDE, *BESIDE.values()], ids=lambda case: case.name)
def test_parts_are_put_together_as_they_are_laid(case: Case) -> None:
    """By the program over them: all of an image and no others, of channels those that there are."""
    conv, of = case.fused, case.correlation
    rows = (Result("mean", "float32", contiguous(of.out_shape[:2]), conv.reductions[0].leaf * 0.5),)
    program = added_up("totals", conv, case.divided, conv.reductions, rows, ())
    (strides,) = {each.strides for each in program.operands}
    (size,) = {each.elements for each in case.lowered().buffers if each.name in ("off_parts", "square_parts")}
    parts = held((size,), 1)
    found = torch.as_strided(parts, program.shape, strides).sum(-1).flatten(1)
    assert (found == row_sums(case, parts)).all() and found.shape == of.out_shape[:2]


@pytest.mark.parametrize("word", ["another image", "not all"])
def test_parts_of_items_are_where_they_are_read(word: str) -> None:
    case = BESIDE["streamed_beside_once"]
    wrong = changed(streaming(case), ir.Store, lambda node: misplaced(case, node, word), -1)
    assert not error(case, wrong) < NEAR


def test_sums_begin_anew_with_an_item() -> None:
    """When all of a warpgroup have added up, and before any goes on."""
    case = BESIDE["streamed_beside_each"]
    kept = changed(
        streaming(case), ir.Store, lambda node: ir.Note("kept") if node.value.of.name == "none" else node, -1
    )
    assert not error(case, kept) < NEAR
    for which in (0, 1):
        early = changed(streaming(case), ir.Sync, lambda node: ir.Note("left out"), which)
        with pytest.raises(Raced, match="two threads touch what is one's alone"):
            error(case, early)


# reductions over channels, of each position

CROSSING = {case.name: case for case in test_warpgroup_streams.CROSSING}


@pytest.mark.parametrize("name", CROSSING)
def test_positions_have_what_their_channels_come_to(name: str) -> None:
    kernel = streaming(CROSSING[name])
    assert verify(kernel) == ()
    assert error(CROSSING[name], kernel) < NEAR


def of_two_lanes(node: ir.Reduce) -> ir.Node:
    return replace(node, sizes=(replace(node.sizes[0], value=2),))


def without_part(node: ir.Store) -> ir.Node:
    """Where another block writes."""
    to, positions = node.to, 9 * 13
    is_part = isinstance(to, ir.Global) and getattr(to.tensor, "name", "").endswith("_parts")
    return replace(node, to=replace(to, at=to.at % positions)) if is_part else node


CROSSED_WRONG: dict[str, tuple[str, type, Callable[[Any], ir.Node], int]] = {
    "Reduce: of two lanes": ("streamed_crossing", ir.Reduce, of_two_lanes, 0),
    "Accumulate: left out": ("streamed_crossing_alone", ir.Accumulate, lambda _: ir.Note("left out"), 1),
    "Accumulate: of the other kind": (
        "streamed_crossing_tiles", ir.Accumulate, lambda node: replace(node, kind="max"), -1,
    ),
    "Declare: from 0 on": (
        "streamed_crossing_once", ir.Declare, lambda node: replace(node, start="sum" if node.start else ""), -1,
    ),
    "Store: where another block writes": ("streamed_crossing_parts", ir.Store, without_part, -1),
}  # fmt: skip


@pytest.mark.parametrize("word", CROSSED_WRONG)
def test_wrong_crossings_are_seen(word: str) -> None:
    name, kind, change, which = CROSSED_WRONG[word]
    assert not error(CROSSING[name], changed(streaming(CROSSING[name]), kind, change, which)) < NEAR


def test_other_divisions_than_streams_do_not_reduce_over_channels() -> None:
    case = CROSSING["streamed_crossing"]
    conv = case.fused
    assert isinstance(chosen(conv, TWO), Streams)
    tiles = chosen(replace(conv, crossings=()), replace(TWO, compute_capability=(8, 0)))
    with pytest.raises(MisuseError, match="streams reduce over channels, and Tiling do not"):
        lower_convolution(conv, tiles, TWO)
    summed = replace(conv, results=(replace(conv.results[0], strides=(0, 1, 0, 0), sums=True),))
    assert chosen(summed, TWO) is None
    with pytest.raises(MisuseError, match="leave the sums to a program"):
        build_streams(summed, case.divided, TWO)


# windows


def of_windows(case: Spreading) -> ir.Kernel:
    found = stream(case.correlation, UNITS[case.dtype], TWO, Moved(spread=case.sizes))
    assert found is not None
    (made,) = build_streams(case.fused, replace(found, **case.way), TWO).kernels
    return made


def windows_error(case: Spreading, kernel: ir.Kernel) -> float:
    """In relative L2, beside the convolution of what the windows' gradients are spread out to."""
    x, weight, elements = held(case.windows, 1), held(case.weight_shape, 2), math.prod(case.sizes)
    choice = torch.randint(0, elements, case.windows, generator=torch.Generator().manual_seed(3))
    each = [choice] if case.chosen else [torch.full_like(choice, number) for number in range(elements)]
    whole = sum(spread_out(x, of, case.sizes, torch.Size(case.correlation.in_shape)) for of in each)
    wanted = case.torchs(whole, weight).numpy()
    packed = run(packing(case), {"weight": weight.numpy().ravel()})
    found = run(kernel, {"x": x.numpy().ravel(), "choice": choice.numpy().ravel(), **packed})["out"]
    return float(np.linalg.norm(found.reshape(wanted.shape) - wanted) / np.linalg.norm(wanted))


SPREAD = {case.name: case for case in test_warpgroup_streams.SPREAD}
CHOSEN = "streamed_once_grad_spread"


@pytest.mark.parametrize("name", some(list(SPREAD), 3, lambda name: name == CHOSEN))
def test_gradients_of_windows_are_spread_where_they_are_staged(name: str) -> None:
    kernel = of_windows(SPREAD[name])
    assert verify(kernel) == ()
    assert windows_error(SPREAD[name], kernel) < NEAR


def test_elements_that_were_not_chosen_have_nothing() -> None:
    kernel = of_windows(SPREAD[CHOSEN])
    all_have = changed(kernel, ir.Convert, lambda node: replace(node, guard=()), -1)
    assert not windows_error(SPREAD[CHOSEN], all_have) < NEAR


# what is wrong


def of_neighbours(node: ir.Load) -> ir.Node:
    return replace(node, source=replace(node.source, at=node.source.at + -1)) if "word" in node.into.of.name else node


def of_the_first_step(node: ir.Carry) -> ir.Node:
    """Weights."""
    return replace(node, source=replace(node.source, at=ZERO))


def of_the_first_weights(node: ir.Load) -> ir.Node:
    assert isinstance(node.source, ir.Global)
    return replace(node, source=replace(node.source, at=Number(node.source.tensor.elements - 6)))


def from_its_rows_begin(node: ir.Let) -> ir.Node:
    return replace(node, index=ZERO) if node.variable.name == "first" else node


def rows_further(node: ir.Product) -> ir.Node:
    assert not isinstance(node.rows, ir.Element)
    matrix, by = node.rows
    return replace(node, rows=(matrix, by + 1))


WRONG: dict[str, tuple[str, type, Callable[[Any], ir.Node], int]] = {
    "Product: a position further": ("streamed_of_three", ir.Product, moved, 0),
    "Product: rows a position further": ("streamed_of_three", ir.Product, rows_further, 0),
    "Carry: weights of another step": ("streamed_of_three", ir.Carry, of_the_first_step, 0),
    "MoveOn: sums stay": ("streamed_of_three", ir.MoveOn, lambda _: ir.Note("left out"), 0),
    "MoveOn: half as far": ("streamed_of_three", ir.MoveOn, lambda node: replace(node, by=node.by // 2), 0),
    "Share: a step less": ("streamed_halves", ir.Share, lambda node: replace(node, count=node.count - 1), 0),
    "Load: of neighbours": ("streamed_of_three", ir.Load, of_neighbours, -1),
    "Accumulate: not what is added up": ("streamed_summed", ir.Accumulate, lambda _: ir.Note("left out"), 0),
    "Reduce: of two lanes": (
        "streamed_summed", ir.Reduce, lambda node: replace(node, sizes=(replace(node.sizes[0], value=2),)), 0,
    ),
    "Product: without one of lower weights": (KEPT, ir.Product, lambda _: ir.Note("left out"), 1),
    "Product: without one of lower inputs": (KEPT, ir.Product, lambda _: ir.Note("left out"), 9),
    "Split: higher words alone": (KEPT, ir.Split, lambda node: replace(node, part="high"), 1),
    "SplitScaled: higher words alone": (SCALED, ir.SplitScaled, lambda node: replace(node, part="high"), 1),
    "Largest: not found": (SCALED, ir.Largest, lambda _: ir.Note("left out"), 0),
    "Collect: not multiplied": (SCALED, ir.Collect, lambda node: replace(node, factor=None), 0),
    "Load: a scale of another stage's weights": (SCALED, ir.Load, of_the_first_weights, 13),
    "Let: runs from where their rows begin": (FLAT, ir.Let, from_its_rows_begin, -1),
    "Product: a phase's alone": (PHASED, ir.Product, lambda node: replace(node, sums=node.sums // 2), 0),
    "Collect: one tile's left out": (KEPT, ir.Collect, lambda _: ir.Note("left out"), 1),
    "Collect: of the last stage alone": (KEPT_ONCE, ir.Collect, lambda node: replace(node, adds=None), 0),
    "Product: on top of another tile's": (KEPT, ir.Product, lambda node: replace(node, adds=()), 27),
}  # fmt: skip


@pytest.mark.parametrize("word", WRONG)
def test_what_is_wrong_makes_other_outputs(word: str) -> None:
    name, kind, change, which = WRONG[word]
    wrong = changed(streaming(EVERY[name]), kind, change, which)
    try:
        assert not error(EVERY[name], wrong, apart=20 * (name == SCALED)) < NEAR
    except OutOfBounds:
        assert word == "Load: of neighbours"


def test_stages_that_nobody_fills_are_waited_for_forever() -> None:
    case = EVERY["streamed_halves"]
    with pytest.raises(Stuck, match="wait forever"):
        error(case, changed(streaming(case), ir.Fill, lambda node: ir.Note("left out")))
    with pytest.raises(Stuck, match="wait forever"):
        error(case, changed(streaming(case), ir.Share, lambda node: replace(node, count=node.count + 1)))


def test_sums_are_added_up_when_all_are_there() -> None:
    """In memory behind all else, where the barriers of stages do not move on with them."""
    case = EVERY["streamed_summed"]
    kernel = streaming(case)
    placed = memory(kernel)
    (begin,) = (at for what, at in placed.begins.items() if isinstance(what, ir.Shared))
    (ring,) = pipelines(kernel)
    assert begin == placed.barriers + BARRIER * ring.barriers
    early = changed(kernel, ir.Sync, lambda node: ir.Note("left out"))
    with pytest.raises(Raced, match="two threads touch what is one's alone"):
        error(case, early)
