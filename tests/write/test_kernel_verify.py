"""The verifier says what is wrong with a kernel, and nothing of one that is right. A mutant a node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from kernel_mutants import changed
from test_families import MULTIPROCESSORS, PROGRAMS
from test_packing_meaning import PACKED, packing
from test_phase_meaning import EVERY as PHASES
from test_phase_meaning import phasing
from test_pooled_meaning import EVERY as POOLED
from test_pooled_meaning import pooling
from test_pools import CASES
from test_products import CASES as PRODUCT_CASES
from test_scatter_meaning import EVERY as SCATTERS
from test_scatter_meaning import scattering
from test_stream_meaning import EVERY as STREAMS
from test_stream_meaning import streaming
from test_walk_meaning import EVERY as WALKS
from test_walk_meaning import walking
from test_warp_meaning import EVERY as WARPS
from test_warp_meaning import multiplying
from test_weight_gradient_meaning import CASES as GRADIENTS
from test_weight_gradient_meaning import built, of_windows
from test_weight_groups_meaning import EVERY as GROUPED
from test_weight_groups_meaning import grouped

from crucible.algebra.stages import stages
from crucible.capture import trace
from crucible.emission.file import emit
from crucible.errors import KernelError
from crucible.gpus import H200
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import (
    ZERO,
    Compare,
    Holds,
    Index,
    Listed,
    Number,
    Place,
    Size,
    Smaller,
    Table,
    Variable,
    value_of,
)
from crucible.kernel.verify import verify
from crucible.kinds.built import Built
from crucible.kinds.pooling.backward import build_pool_backward
from crucible.kinds.pooling.forward import build_pool
from crucible.kinds.product.lower import build_product
from crucible.kinds.program.lower import build
from crucible.plan.planner import fuse
from crucible.print.cuda import printed

LANE = Place("thread", 128)


def _backward(name: str, *kept: str) -> ir.Kernel:
    of = CASES[name]
    steps = build_pool_backward(of.pool, list(of.shapes), "grad_out", kept).steps
    return next(each.kernels[0] for each in steps if isinstance(each, Built))


POOLS: dict[str, Callable[[], ir.Kernel]] = {
    "a pool's choice": lambda: build_pool(CASES["kept2d"].pool, save=("kept2d_choice",)).kernels[0],
    "a pool's mean": lambda: build_pool(CASES["mean_inside"].pool).kernels[0],
    "a pool's gradient by windows": lambda: _backward("chunks"),
    "a pool's gradient by elements": lambda: _backward("plain_padded", "plain_padded_choice"),
}


PRODUCTS: dict[str, Callable[[], ir.Kernel]] = {
    "a product": lambda: build_product(PRODUCT_CASES["rows_are_neighbours"], H200).kernels[0],
    "a mixed product": lambda: build_product(PRODUCT_CASES["mixed_asks_ahead"], H200).kernels[0],
    "a product of turned columns": lambda: build_product(PRODUCT_CASES["several_in_parts"], H200).kernels[0],
}


CONVOLUTIONS: dict[str, Callable[[], ir.Kernel]] = {
    "a weight in order": lambda: packing(PACKED["streams: streamed_halves"]),
    "a weight in two words": lambda: packing(PACKED["exact: rows"]),
    "a weight's gradient": lambda: built(GRADIENTS["strided"]).kernels[0],
    "a weight's gradient of windows": lambda: of_windows("plane, source, 2x3, chosen").kernels[0],
    "a weight's gradient in halves": lambda: built(GRADIENTS["halves"]).kernels[0],
    "a product by warps": lambda: multiplying(WARPS["ahead"]),
    "a product by teams of warps": lambda: multiplying(WARPS["doubled"]),
    "a product some steps at a time": lambda: multiplying(WARPS["staged"]),
    "a product with sums": lambda: multiplying(WARPS["sums"]),
    "a walk along planes": lambda: walking(WALKS["bulk"]),
    "a walk that is brought things": lambda: walking(WALKS["brought_in_pieces"]),
    "a walk that holds words": lambda: walking(WALKS["exact: all_held"]),
    "streams": lambda: streaming(STREAMS["streamed_of_three"]),
    "streams in float32": lambda: streaming(STREAMS["streamed_of_planes_grad_kept"]),
    "streams of halves": lambda: streaming(STREAMS["streamed_halves"]),
    "scaled streams": lambda: streaming(STREAMS["streamed_layer_scaled"]),
    "a weight with scales": lambda: packing(PACKED["streams: streamed_layer_scaled"]),
    "streams that ask ahead": lambda: streaming(STREAMS["streamed_runs_grad"]),
    "streams that add up": lambda: streaming(STREAMS["streamed_summed"]),
    "a gradient by warpgroups": lambda: grouped(GROUPED["two_dims_weight"])[0],
    "a gradient of planes that are brought": lambda: grouped(GROUPED["brought_weight"])[0],
    "a gradient of planes that a warp brings": lambda: grouped(GROUPED["two_stage_weight"])[0],
    "a gradient in halves by warpgroups": lambda: grouped(GROUPED["halves_weight"])[0],
    "a gradient of windows by warpgroups": lambda: grouped(GROUPED["two_stage_spread"])[0],
    "phases": lambda: phasing(PHASES["shares"]),
    "phases of a plane": lambda: phasing(PHASES["two_dims"]),
    "windows of a pool": lambda: pooling(POOLED["rows"]),
    "rows of windows": lambda: pooling(POOLED["whole"]),
    "scattered taps": lambda: scattering(SCATTERS["bands"]),
    "scattered taps of an image": lambda: scattering(SCATTERS["image"]),
    "scattered taps in float32": lambda: scattering(SCATTERS["exact_bands"]),
}


@cache
def kernel(name: str) -> ir.Kernel:
    """The first of a program, a pool's, a product's, or what is beside a convolution's."""
    others = POOLS | PRODUCTS | CONVOLUTIONS
    if name in others:
        return others[name]()
    return next(each for step in stages(PROGRAMS[name]) for each in build(step, MULTIPROCESSORS.get(name, 132)).kernels)


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_wrong_with_what_is_built(name: str) -> None:
    for step in stages(PROGRAMS[name]):
        for each in build(step, MULTIPROCESSORS.get(name, 132)).kernels:
            assert verify(each) == ()


@pytest.mark.parametrize("name", PRODUCT_CASES)
def test_nothing_is_wrong_with_products(name: str) -> None:
    of = PRODUCT_CASES[name]
    for each in (of, *(of.gradient(operand.name, "upstream") for operand in (of.left, of.right))):
        for made in build_product(each, H200).kernels:
            assert verify(made) == ()


def by_another_thread(node: ir.Carry) -> ir.Node:
    return replace(node, thread=Place("thread", 512) % 128)


def in_another_round(node: ir.Carry) -> ir.Node:
    return replace(node, who=(Compare("==", node.thread, ZERO),))


def to_the_next_unit(node: ir.Carry) -> ir.Node:
    return replace(node, to=replace(node.to, at=(node.to.at[0] + 1, ZERO)))


def from_the_next_unit(node: ir.Carry) -> ir.Node:
    return replace(node, source=replace(node.source, at=node.source.at + 4))


def asked_further(node: ir.Prefetch) -> ir.Node:
    return replace(node, source=replace(node.source, at=node.source.at + 8))


def vacant_last(node: ir.Fill) -> ir.Node:
    body = sorted(node.body, key=lambda each: isinstance(each, ir.Vacant))
    return replace(node, body=tuple(body))


def without_sums(node: ir.Declare) -> ir.Node:
    is_sums = isinstance(node.what, tuple) and node.what[0].name == "sums"
    return replace(node, start="") if is_sums else node


def left_out(node: ir.Node) -> ir.Node:
    return ir.Note("left out")


def let_further(node: ir.Let) -> ir.Node:
    return replace(node, index=node.index + 1)


def by_a_lane(node: Any) -> ir.Node:
    return ir.If((Compare("<", Place("thread", 512) % 32, Number(5)),), (node,))


def units_further(node: Any) -> ir.Node:
    return replace(node, at=node.at + 64)


def of_more_columns(node: ir.Product) -> ir.Node:
    matrix, moved = node.columns
    return replace(node, columns=(matrix, moved + 2))


def of_what_is_not_there(node: ir.Product) -> ir.Node:
    return replace(node, adds=())


def of_other_teams(node: ir.Slide) -> ir.Node:
    return replace(node, pipeline=replace(node.pipeline, teams=3))


def by_lanes(node: ir.Slide) -> ir.Node:
    return replace(node, count=node.count + Place("thread", 512) % 32)


def products_behind(node: ir.Slide) -> ir.Node:
    return replace(node, products=(), behind=(*node.products, *node.behind))


def of_half_a_unit(node: ir.Bring) -> ir.Node:
    return replace(node, count=node.count + 2)


def of_a_unit_more(node: ir.Bring) -> ir.Node:
    return replace(node, count=node.count + 4)


def to_all_channels(node: ir.Bring) -> ir.Node:
    return replace(node, who=node.who[:1])


def half_behind(node: ir.Deal) -> ir.Node:
    return replace(node, products=node.products[:0], behind=(*node.products, *node.behind))


def of_one_team(node: ir.Deal) -> ir.Node:
    return replace(node, pipeline=replace(node.pipeline, is_shared=False))


def by_lanes_dealt(node: ir.Deal) -> ir.Node:
    return replace(node, count=node.count + Place("thread", 512) % 32)


def and_of_other_tasks(node: ir.Slide) -> ir.Node:
    return ir.Scope((node, replace(node, tasks=node.tasks - 1)))


def of_what_nobody_stored(node: ir.Provide) -> ir.Node:
    return replace(node, tiles=node.pipeline.tiles)


def and_stored_again(node: ir.Node) -> ir.Node:
    """By all, of the weights."""
    weights = next(each.what for each in kernel("windows of a pool").body if is_of_weights(each))
    none = ir.Fragment("none", "word", (Number(4),), True)
    store = ir.Store(ir.Element(none), ir.InShared(weights, (ZERO, ZERO)))
    return ir.Scope((node, ir.Declare((none,), "sum"), store))


def is_of_weights(node: ir.Node) -> bool:
    return isinstance(node, ir.Declare) and isinstance(node.what, ir.Shared) and node.what.name == "weights"


def from_zero_on(node: ir.Declare) -> ir.Node:
    is_best = isinstance(node.what, tuple) and node.what[0].name == "best"
    return replace(node, start="sum") if is_best else node


def of_the_next_element(node: ir.Take) -> ir.Node:
    (into, _) = node.becomes[-1]
    return replace(node, becomes=(*node.becomes[:-1], (into, node.number + 1)))


def values_for_numbers(node: ir.Take) -> ir.Node:
    return replace(node, becomes=((node.becomes[-1][0], node.value),), in_sums=False)


def by_a_float(node: ir.Flip) -> ir.Node:
    return replace(node, signs=replace(node.signs, of=replace(node.signs.of, dtype="float32")))


def of_more_tiles(node: ir.Exchange) -> ir.Node:
    return replace(node, values=ir.Element(replace(node.values.of, shape=(Number(8),))))


def of_a_lane(node: ir.Let) -> ir.Node:
    return replace(node, index=Place("thread", 384) % 32) if node.of_warp else node


def in_longer_rows(node: ir.Declare) -> ir.Node:
    of = node.what
    if not isinstance(of, ir.Pipeline) or of.margins is None:
        return node
    return replace(node, what=replace(of, margins=replace(of.margins, pitch=7)))


def made_in_one_way(node: ir.If) -> ir.Node:
    return replace(node, otherwise=(ir.Note("left out"),)) if node.otherwise else node


def a_table_left_out(node: ir.Declare) -> ir.Node:
    return left_out(node) if isinstance(node.what, Table) and node.what.name == "begins" else node


def from_zero(node: ir.For) -> ir.Node:
    return replace(node, start=ZERO) if value_of(node.start) == -1 else node


def to_all_phases(node: ir.Product) -> ir.Node:
    return replace(node, into=replace(node.into, at=()))


def shared_by(**changes: Any) -> Callable[[Any], ir.Node]:
    """A window of a pipeline that is otherwise."""
    return lambda node: replace(node, pipeline=replace(node.pipeline, **changes))


def of_rows_further(node: ir.Foresee) -> ir.Node:
    first = next(each for each in node.body if isinstance(each, ir.Let))
    return replace(
        node, body=tuple(replace(each, index=each.index + 16) if each is first else each for each in node.body)
    )


def of_one_task(node: ir.Share) -> ir.Node:
    assert node.task
    return ir.Scope((ir.Let(node.task, ZERO), *node.body))


def by_parts_of_warps(node: ir.Foresee) -> ir.Node:
    (warp,) = node.who
    return replace(node, who=(replace(warp, right=Number(20)),))


def by_two_warps(node: ir.Foresee) -> ir.Node:
    (warp,) = node.who
    return replace(node, who=(replace(warp, right=Number(64)),))


def of_a_team_more(node: ir.Foresee) -> ir.Node:
    return replace(node, steps=replace(node.steps, team=node.steps.team + 1))


def of_no_tasks(node: ir.Foresee) -> ir.Node:
    return replace(node, steps=replace(node.steps, task=None))


def a_channel_more(node: ir.Fetch) -> ir.Node:
    return replace(node, count=node.count + 1)


def a_row_more(node: ir.Fetch) -> ir.Node:
    return replace(node, elements=node.elements + 16)


def where_none_is_filled(node: ir.Fill) -> ir.Node:
    (drain,) = (each for each in node.body if isinstance(each, ir.Drain))
    return ir.Scope((drain,))


def not_beside(node: ir.Roles) -> ir.Node:
    return replace(node, roles=tuple(replace(each, is_beside=False) for each in node.roles))


def with_other_registers(node: ir.Roles) -> ir.Node:
    return replace(node, roles=(*node.roles[:-1], replace(node.roles[-1], registers=72)))


def asked_of_a_condition(node: ir.If) -> ir.Node:
    return replace(node, condition=tuple(replace(each, unless=(each,)) for each in node.condition))


def never_asked(node: ir.Load) -> ir.Node:
    guard = tuple(replace(each, unless=(Compare(">=", ZERO, ZERO),)) for each in node.guard)
    return replace(node, guard=guard)


def beyond_stages(node: ir.Declare) -> ir.Node:
    what = node.what
    return replace(node, what=replace(what, over=(what.over[0], 16))) if getattr(what, "over", None) else node


def to_the_next_group(node: ir.For) -> ir.Node:
    return replace(node, stop=node.stop + 1) if node.along else node


def not_as_rounds_go(node: ir.For) -> ir.Node:
    return replace(node, along=tuple(replace(each, offset=each.offset % 7) for each in node.along))


def half_fed(node: ir.Declare) -> ir.Node:
    what = node.what
    fed = isinstance(what, ir.Pipeline) and what.fed_by
    return replace(node, what=replace(what, fed_by=replace(what.fed_by, consumers=32))) if fed else node


def bytes_further(node: ir.Stretch) -> ir.Node:
    return replace(node, to=replace(node.to, at=(node.to.at[0] + 1,)))


def beyond_the_slot(node: ir.Stretch) -> ir.Node:
    return replace(node, to=replace(node.to, at=(node.to.at[0] + 104,)))


def from_the_next_sixteen(node: ir.Stretch) -> ir.Node:
    return replace(node, source=replace(node.source, at=node.source.at + 4))


def of_odd_tensors(node: ir.Stretch) -> ir.Node:
    return replace(node, source=replace(node.source, of=replace(node.source.tensor, elements=3363)))


def with_a_barrier_sent(node: ir.Send) -> ir.Node:
    return replace(node, body=(*node.body, ir.Sync(of="warp")))


def twice(node: Any) -> ir.Node:
    return ir.Scope((node, node))


def left_at_once(node: ir.Drain) -> ir.Node:
    leaves = tuple(each for each in node.body if isinstance(each, ir.Leave))
    return replace(node, body=(*leaves, *(each for each in node.body if each not in leaves)))


def by_few_lanes(node: Any) -> ir.Node:
    return replace(node, who=(Compare("<", Place("thread", 384) % 32, Number(5)),))


def and_left(node: ir.Drain) -> ir.Node:
    return replace(node, body=(*node.body, ir.Leave(node.pipeline)))


def by_one_warpgroup(node: Any) -> ir.Node:
    return ir.If((Compare("==", Place("thread", 384) // 128, ZERO),), (node,))


def of_three_warpgroups(node: ir.InTurn) -> ir.Node:
    return replace(node, pipeline=replace(node.pipeline, relays=3))


def turns_by_another_number(node: ir.InTurn) -> ir.Node:
    return replace(node, team=Variable("lane", "int"))


def a_turn_within(node: ir.InTurn) -> ir.Node:
    return replace(node, body=(*node.body, replace(node, body=())))


def masked_by_a_float(node: ir.Convert) -> ir.Node:
    return replace(node, mask=replace(node.mask, of=replace(node.mask.of, dtype="tf32"))) if node.mask else node


def waited_for_later(node: ir.Products) -> ir.Node:
    return replace(node, waits="later")


def loaded_while_multiplied(node: ir.For) -> ir.Node:
    """The first half of the rows once more, behind the products of these."""
    return replace(node, start=ZERO) if value_of(node.start) == 1 and node.unrolled else node


def added_to_nothing(node: ir.Collect) -> ir.Node:
    return replace(node, adds=())


def of_a_half(node: ir.Collect) -> ir.Node:
    return replace(node, into=replace(node.into, at=()))


def of_twice_as_many(node: ir.Collect) -> ir.Node:
    return replace(node, value=replace(node.value, shape=(Number(2 * node.value.elements),)))


def of_words_behind(node: ir.Product) -> ir.Node:
    matrix, moved = node.columns
    return replace(node, columns=(matrix, 2 * moved))


def brought_twice(node: ir.Slide) -> ir.Node:
    return replace(node, before=node.before * 2, behind=node.behind * 2)


def by_named_lanes(node: Any) -> ir.Node:
    few = Variable("few", "bool")
    let = ir.Let(few, Holds((Compare("<", Place("thread", 512) % 32, Number(5)),)))
    return ir.Scope((let, ir.If((Compare("!=", few, ZERO),), (node,))))


def with_no_barriers(node: ir.Bring) -> ir.Node:
    return replace(node, pipeline=replace(node.pipeline, brings=False))


def of_other_words(node: ir.Product) -> ir.Node:
    held = node.rows
    assert isinstance(held, ir.Element)
    return replace(node, rows=replace(held, of=replace(held.of, dtype="word")))


def of_a_tap_further(node: ir.Product) -> ir.Node:
    held = node.rows
    assert isinstance(held, ir.Element)
    return replace(node, rows=replace(held, at=(held.at[0] + 1,)))


def with_a_barrier(node: ir.Products) -> ir.Node:
    return replace(node, body=(*node.body, ir.Sync(of="warp")))


def to_the_next_plane(node: ir.Copy) -> ir.Node:
    return replace(node, to=replace(node.to, at=node.to.at + 32))


def to_the_next_place(node: ir.Store) -> ir.Node:
    assert isinstance(node.to, ir.InShared)
    return replace(node, to=replace(node.to, at=(*node.to.at[:-1], node.to.at[-1] + 2)))


def of_scratch(node: Any) -> ir.Node:
    return replace(node, scratch=replace(node.scratch, shape=(Number(3),)))


def a_role_less(node: ir.Roles) -> ir.Node:
    return replace(node, roles=node.roles[:1])


def greedy(node: ir.Roles) -> ir.Node:
    return replace(node, roles=tuple(replace(each, registers=each.registers + 8) for each in node.roles))


def poor(node: ir.Roles) -> ir.Node:
    return replace(node, roles=(replace(node.roles[0], registers=152), *node.roles[1:]))


def by_another_number(node: ir.Roles) -> ir.Node:
    return replace(node, warp=Variable("lane", "int"))


def outside(node: Any) -> ir.Node:
    return ir.Scope(node.body)


def with_little_scratch(node: ir.Scale) -> ir.Node:
    return replace(node, scratch=replace(node.scratch, shape=(Number(8),)))


def as_many(node: ir.SplitScaled) -> ir.Node:
    into = replace(node.into.of, shape=(*node.into.of.shape[:-1], node.value.of.shape[-1]))
    return replace(node, into=ir.Element(into, node.into.at))


def by_tiles_that_nobody_rounded(node: ir.Mma) -> ir.Node:
    (rows, tile), *rest = node.terms
    return replace(node, terms=((replace(rows, dtype="word"), tile), *rest))


def of_wide_tiles(node: ir.Mma) -> ir.Node:
    return replace(node, into=replace(node.into, shape=(Number(72),)))


def never_anew(node: ir.Mma) -> ir.Node:
    return replace(node, adds=())


def before_stores(node: ir.Fill) -> ir.Node:
    return replace(node, body=(node.body[-1], *node.body[:-1]))


def half_filled(node: ir.Fill) -> ir.Node:
    return replace(node, body=node.body[1:])


def with_stages(stages: int) -> Callable[[Any], ir.Node]:
    return lambda node: replace(node, what=replace(node.what, stages=stages))


def with_producers(node: ir.Fill) -> ir.Node:
    return replace(node, pipeline=replace(node.pipeline, producers=128))


def by_a_thread(node: Any) -> ir.Node:
    """Of a role, only some come."""
    return ir.If((Compare("<", Place("thread", 512), Number(300)),), (node,))


def under_a_condition(node: ir.Node) -> ir.Node:
    return ir.If((Compare("<", LANE, Number(5)),), (node,))


def by_floats(node: ir.Choose) -> ir.Node:
    return replace(node, choice=ir.Element(ir.Fragment("choice", "float32")))


def of_a_stranger(node: Any) -> ir.Node:
    return replace(node, value=ir.Element(ir.Fragment("stranger", "float32")))


def or_a_stranger(node: ir.Convert) -> ir.Node:
    return replace(node, otherwise=ir.Element(ir.Fragment("stranger", "float32")))


def further_in_a_table(node: ir.Let) -> ir.Node:
    return replace(node, index=node.index.table[node.index.at + 1]) if isinstance(node.index, Listed) else node


def held_by_a_stranger(node: Any) -> ir.Node:
    (one,) = node.condition if isinstance(node, ir.If) else node.guard
    held = replace(one.left, of=ir.Element(ir.Fragment("stranger", "int32")))
    condition = (replace(one, left=held),)
    return replace(node, condition=condition) if isinstance(node, ir.If) else replace(node, guard=condition)


def to_a_stranger(node: ir.AsyncCopy) -> ir.Node:
    stranger = ir.Shared("stranger", "tf32", (Number(100),))
    return replace(node, to=ir.InShared(stranger, (ZERO,)))


def of_the_next(node: ir.AsyncCopy) -> ir.Node:
    return replace(node, source=replace(node.source, at=node.source.at + 100_000))


def of_two_words(node: ir.AsyncCopy) -> ir.Node:
    return replace(node, words=2)


def after_the_last(node: Any) -> ir.Node:
    return replace(node, rows=replace(node.rows, at=(node.rows.at[0] + 100_000,)))


def from_further(node: ir.LoadTiles) -> ir.Node:
    return replace(node, source=replace(node.source, at=(node.source.at[0] + 2,)))


def beside_what_it_is_over(node: ir.Declare) -> ir.Node:
    what = node.what
    if not isinstance(what, ir.Shared) or not what.over:
        return node
    return replace(node, what=replace(what, over=(what.base, what.base.bytes)))


def after_all_came(node: ir.Own) -> ir.Node:
    return ir.Scope((ir.Sync(), node))


def with_large_turns(node: Any) -> ir.Node:
    what = node.what
    if not isinstance(what, ir.Turns):
        return node
    many = tuple(replace(each, shape=(Number(40_000),)) for each in what.tiles)
    return replace(node, what=replace(what, tiles=many))


def in_uneven_rounds(node: ir.Node) -> ir.Node:
    return ir.For(Variable("round"), ZERO, LANE, Number(1), (node,), unrolled=False)


def at_a_thread(node: ir.Accumulate) -> ir.Node:
    return replace(node, into=replace(node.into, at=tuple(Place("thread", 1) for _ in node.into.at)))


def a_team_of_48(node: ir.Reduce) -> ir.Node:
    return replace(node, over="team", sizes=(Size("team", 48),), scratch=None)


def from_elsewhere(node: ir.Chain) -> ir.Node:
    stranger = ir.Element(ir.Fragment("stranger", "float32"))
    return replace(node, inputs=tuple((name, stranger) for name, _ in node.inputs))


def written_to(node: ir.Store) -> ir.Node:
    assert isinstance(node.to, ir.Global)
    return replace(node, to=replace(node.to, of=replace(node.to.tensor, access="read")))


def read_back(node: ir.Load) -> ir.Node:
    assert isinstance(node.source, ir.Global)
    return replace(node, source=replace(node.source, of=replace(node.source.tensor, access="write")))


Change = tuple[str, Any, Callable[[Any], ir.Node], int, str]
"""A program, the node that is changed, what it becomes, the how-manieth it is, and what is said."""
WRONG: dict[str, Change] = {
    "Let: a column further": ("planes", ir.Let, let_further, -1, "is read or written at"),
    "Let: packs between packs": ("dense", ir.Let, let_further, 0, "are not aligned"),
    "Declare: registers": ("rows of a warp", ir.Declare, left_out, -1, "is not declared where it is used"),
    "Declare: shared memory": ("rows of a block", ir.Declare, left_out, -1, "parts is not declared"),
    "For: a round more": (
        "planes", ir.For, lambda node: replace(node, stop=node.stop + node.step), 0, "is read or written at",
    ),
    "For: no step": ("long rows", ir.For, lambda node: replace(node, step=ZERO), 0, "goes on by 0"),
    "If: no guard": ("rows of a warp", ir.If, lambda node: ir.Scope(node.body), -1, "is read or written at"),
    "If: a window over the start": (
        "a pool's mean", ir.If, lambda node: ir.Scope(node.body), 0, "x is read or written at -",
    ),
    "If: the rest of what is no round": (
        "a pool's mean", ir.If, lambda node: ir.Scope((node,)), 0, "skipped where no round ends",
    ),
    "If: by what nothing holds": (
        "a pool's gradient by elements", ir.If, held_by_a_stranger, 2, "stranger is read before anything is in it",
    ),
    "Scope: closed too early": (
        "rows of a block", ir.Scope, lambda node: ir.Scope((ir.Scope(node.body[:1]), *node.body[1:])), 0,
        "is not declared where it is used",
    ),
    "Exit: nobody goes": ("along odd rows", ir.Exit, left_out, 0, "is read or written at"),
    "Exit: within a condition": ("along odd rows", ir.Exit, under_a_condition, 0, "the end of some threads"),
    "Load: before the tensor": (
        "planes", ir.Load, lambda node: replace(node, source=replace(node.source, at=node.source.at - 4)), 0,
        "at -4 to",
    ),
    "Load: nothing is there": ("turned to channels last", ir.Store, left_out, 0, "is read before"),
    "Load: of what others write": ("long rows", ir.Load, read_back, -1, "is read, and other threads write it"),
    "Store: beside the tensor": (
        "planes", ir.Store, lambda node: replace(node, to=replace(node.to, at=node.to.at + 4)), 0, "elements",
    ),
    "Store: into what is read": ("many blocks", ir.Store, written_to, -1, "is written, and a parameter that is read"),
    "Convert: left out": ("rows of a warp", ir.Convert, left_out, -1, "is not declared"),
    "Convert: or what is not there": ("a weight in two words", ir.Convert, or_a_stranger, 1, "stranger is read before"),
    "Convert: or another type": ("a weight in two words", ir.Convert, or_a_stranger, 1, "tf32, and float32 otherwise"),
    "Bits: half a word": (
        "a weight in order", ir.Bits, lambda node: replace(node, values=node.values[:1]), 0, "is a word of 16 bits",
    ),
    "Bits: left out": ("a weight in order", ir.Bits, left_out, 0, "bits is not declared"),
    "Let: beyond a table": ("a weight in order", ir.Let, further_in_a_table, -1, "offsets is read or written at"),
    "Value: left out": ("a pool's mean", ir.Value, left_out, 0, "count is not declared"),
    "Choose: of nothing": ("a pool's choice", ir.Choose, of_a_stranger, 0, "stranger is read before"),
    "Choose: a number that is none": ("a pool's choice", ir.Choose, by_floats, 0, "choice is float32"),
    "Chain: of nothing": ("planes", ir.Chain, from_elsewhere, 0, "stranger is read before anything is in it"),
    "Accumulate: a thread's own register": ("along rows", ir.Accumulate, at_a_thread, 0, "registers have no address"),
    "Reduce: not by all": ("rows of a block", ir.Reduce, under_a_condition, 0, "stands under a condition that differs"),
    "Reduce: in uneven rounds": ("rows of a block", ir.Reduce, in_uneven_rounds, 0, "a different number of rounds"),
    "Reduce: a team that is none": ("rows of a block", ir.Reduce, a_team_of_48, 0, "a team of 48 threads"),
    "Reduce: over warps, not by all": (
        "a pool's gradient by windows", ir.Reduce, under_a_condition, 0, "stands under a condition that differs",
    ),
    "Reduce: too little memory": ("rows of a block", ir.Reduce, of_scratch, 0, "needs (32,)"),
    "Declare: a ring of one stage": ("a product", ir.Declare, with_stages(1), 0, "has 1 stages"),
    "Declare: a ring that is too large": ("a product", ir.Declare, with_stages(5), 0, "and a block may ask for 232448"),
    "Roles: threads without one": ("a product", ir.Roles, a_role_less, 0, "no whole warpgroups of 512"),
    "Roles: more registers than there are": ("a product", ir.Roles, greedy, 0, "a multiprocessor has 65536"),
    "Roles: fewer registers than are held": ("a product", ir.Roles, poor, 0, "consumers hold 164 words, and have 152"),
    "Roles: by what is no warp": ("a product", ir.Roles, by_another_number, 0, "is no number of a warp"),
    "Fill: not waited for": ("a product", ir.Fill, outside, 0, "to whom its stage does not belong"),
    "Fill: half": ("a product", ir.Fill, half_filled, 0, "a is not stored in a stage of ring"),
    "Fill: by some": ("a product", ir.Fill, by_a_thread, 0, "a barrier of ring stands under a condition that differs"),
    "Drain: not waited for": ("a product", ir.Drain, outside, 0, "to whom its stage does not belong"),
    "Drain: in uneven rounds": ("a product", ir.Drain, in_uneven_rounds, 0, "a different number of rounds"),
    "Drain: by some, of stages that threads fill": ("a product", ir.Drain, by_few_lanes, 0, "no bulk copies fill it"),
    "Drain: left, of stages that threads fill": ("a product", ir.Drain, and_left, 0, "no bulk copies fill it"),
    "Fence: left out": ("a product", ir.Fence, left_out, 0, "b_high is handed to tensor cores"),
    "Fence: too early": ("a product of turned columns", ir.Fill, before_stores, -1, "b_low is handed to tensor cores"),
    "Split: left out": ("a product", ir.Split, left_out, -1, "is read before anything is in it"),
    "Split: of what is no word": (
        "a product", ir.Split, lambda node: replace(node, value=replace(node.into)), 0, "not tf32 of tf32",
    ),
    "Largest: of nothing before": ("a weight with scales", ir.Declare, left_out, 0, "largest is not declared"),
    "Largest: of what is no pack": (
        "scaled streams", ir.Largest, lambda node: replace(node, value=node.into), 0, "not of float32",
    ),
    "Scale: by some": ("scaled streams", ir.Scale, by_a_thread, 0, "a scale stands under a condition that differs"),
    "Scale: of fewer than come": (
        "scaled streams", ir.Scale, lambda node: replace(node, threads=64), 0, "64 threads find a scale",
    ),
    "Scale: of some of a block": (
        "a weight with scales", ir.Scale, lambda node: replace(node, threads=256), 0, "256 threads find a scale",
    ),
    "Scale: a warp's number for a thread's": (
        "scaled streams", ir.Scale, lambda node: replace(node, thread=node.thread // 32), 0, "counted from 0",
    ),
    "Scale: outside of its stage": (
        "scaled streams", ir.Fill, outside, 0, "scales is stored by threads to whom its stage does not belong",
    ),
    "Scale: in little scratch": (
        "a weight with scales", ir.Scale, with_little_scratch, 0, "are no float32 a warp",
    ),
    "Scale: twice in one scratch": ("a weight with scales", ir.Scale, twice, 0, "may still be reading it"),
    "SplitScaled: left out": ("scaled streams", ir.SplitScaled, left_out, 0, "is read before anything is in it"),
    "SplitScaled: as many": (
        "scaled streams", ir.SplitScaled, as_many, 0, "half as many halves are made",
    ),
    "Collect: times what is no number": (
        "scaled streams", ir.Collect, lambda node: replace(node, factor=ir.Element(ir.Fragment("factor", "word"))), 0,
        "which is word",
    ),
    "SplitPairs: left out": ("a mixed product", ir.SplitPairs, left_out, -1, "is read before anything is in it"),
    "SplitPairs: of what is no word": (
        "a mixed product", ir.SplitPairs, lambda node: replace(node, values=(replace(node.into), node.values[1])), 0,
        "halves are made, not",
    ),
    "Prefetch: beyond the depth": (
        "a mixed product", ir.Prefetch, lambda node: replace(node, elements=node.elements * 2), 0,
        "is read or written at",
    ),
    "Prefetch: half a line": (
        "a mixed product", ir.Prefetch, lambda node: replace(node, elements=Number(16)), 0, "which has 128 bytes",
    ),
    "Mma: of halves nobody rounded": (
        "a mixed product", ir.Mma, by_tiles_that_nobody_rounded, 0, "is not rounded to tf32",
    ),
    "Mma: by some": ("a product", ir.Mma, by_a_thread, 0, "a product stands under a condition that differs"),
    "Mma: of what nobody rounded": ("a product", ir.Mma, by_tiles_that_nobody_rounded, 0, "is not rounded to tf32"),
    "Mma: more columns than there are": ("a product", ir.Mma, of_wide_tiles, 0, "makes no 144 columns"),
    "Promote: of sums that go on": ("a product", ir.Mma, never_anew, 0, "is added to when it was moved on"),
    "Promote: of other sums": (
        "a product", ir.Promote, lambda node: replace(node, into=ir.Fragment("short", "float32", (Number(3),))), 0,
        "moves to short (3,)",
    ),
    "Vacant: left out": (
        "a walk along planes", ir.Vacant, lambda node: ir.If((Compare("<", LANE, Number(5)),), (node,)), 0,
        "is stored before who read its stage last are done with it",
    ),
    "Vacant: where none is filled": (
        "a walk along planes", ir.Fill, lambda node: ir.Scope(node.body), 0, "by threads that fill none",
    ),
    "Slide: left out": ("a walk along planes", ir.Slide, products_behind, 0, "to whom its stage does not belong"),
    "Slide: of other teams": ("a walk along planes", ir.Slide, of_other_teams, 0, "3 teams of 256 threads"),
    "Slide: by some": ("a walk along planes", ir.Slide, by_a_lane, 0, "a barrier of ring stands under a condition"),
    "Slide: in uneven rounds": ("a walk along planes", ir.Slide, by_lanes, 0, "a different number of stages"),
    "Deal: left out": ("phases", ir.Deal, half_behind, 0, "to whom its stage does not belong"),
    "Deal: of one team": ("phases", ir.Deal, of_one_team, 0, "a window of ring is of one team"),
    "Deal: of other teams": ("phases", ir.Deal, of_other_teams, 0, "3 teams of 256 threads"),
    "Deal: to no team": ("phases", ir.Deal, lambda node: replace(node, moved=2), 0, "2 of 2 teams further is none"),
    "Deal: a task more": (
        "phases", ir.Deal, lambda node: replace(node, tasks=node.tasks + 1), 0, "out is read or written at",
    ),
    "Deal: by some": ("phases", ir.Deal, by_a_lane, 0, "a barrier of ring stands under a condition"),
    "Deal: in uneven rounds": ("phases", ir.Deal, by_lanes_dealt, 0, "a different number of stages"),
    "Carry: left out": ("streams", ir.Carry, left_out, 0, "a part of a stage of ring is copied 0 times"),
    "Carry: by all": ("streams", ir.Carry, by_another_thread, 0, "asked for by other threads than one of 256"),
    "Carry: in no round": ("streams", ir.Carry, in_another_round, 0, "is copied 1 times, or not always"),
    "Carry: beside the stage": ("streams", ir.Carry, to_the_next_unit, 0, "weights is read or written at"),
    "Carry: beyond the weights": (
        "streams", ir.Carry, from_the_next_unit, 0, "streamed_of_three_packed is read or written at",
    ),
    "Carry: parts of sixteens": (
        "streams", ir.Carry, lambda node: replace(node, elements=node.elements - 1), 0, "are no whole sixteens",
    ),
    "Carry: too early": ("streams", ir.Fill, vacant_last, 0, "weights is copied to before who read its stage last"),
    "MoveOn: further than there are sums": (
        "streams", ir.MoveOn, lambda node: replace(node, by=33), 0, "sums (1, 32) of float32 moves on by 33 of 32",
    ),
    "MoveOn: of all tiles": (
        "streams", ir.MoveOn, lambda node: replace(node, sums=ir.Element(node.sums.of)), 0, "moves on by 16 of",
    ),
    "Ahead: left out": ("streams that ask ahead", ir.Ahead, left_out, 0, "nobody said what is done for the next round"),
    "Ahead: a barrier": (
        "streams that ask ahead", ir.Ahead, lambda node: replace(node, body=(ir.Sync(),)), 0, "Sync is done ahead of",
    ),
    "Advance: of other loops": (
        "streams that ask ahead", ir.Advance, lambda node: replace(node, walk=replace(node.walk)), 0,
        "nobody said what is done",
    ),
    "Prefetch: a row further": ("streams that ask ahead", ir.Prefetch, asked_further, 0, "x is read or written at"),
    "Prefetch: parts of sixteens": (
        "streams that ask ahead", ir.Prefetch, lambda node: replace(node, elements=node.elements + 1), 0,
        "which are no whole sixteens of bytes",
    ),
    "Reduce: of columns that are no power of two": (
        "streams that add up", ir.Reduce, lambda node: replace(node, sizes=(replace(node.sizes[0], value=3),)), 0,
        "a team of 3 threads",
    ),
    "Product: more sums than there are": (
        "streams", ir.Product, lambda node: replace(node, sums=40), 0, "a product makes 40 of 32 sums",
    ),
    "Products: nothing to settle": ("streams", ir.Declare, without_sums, -1, "sums settles before anything is in it"),
    "Share: by some": ("a gradient by warpgroups", ir.Share, by_a_lane, 0, "a barrier of ring stands under"),
    "Share: of other teams": ("a gradient by warpgroups", ir.Share, shared_by(teams=3), 0, "all 3 teams share it"),
    "Share: of one team": ("a gradient by warpgroups", ir.Share, shared_by(is_shared=False), 0, "all 2 teams share it"),
    "Share: further than a window": ("a gradient by warpgroups", ir.Share, shared_by(moves=2), 0, "move on by 2"),
    "Share: in uneven rounds": ("a gradient by warpgroups", ir.Share, by_lanes_dealt, 0, "one of a different number"),
    "Share: left out": ("a gradient by warpgroups", ir.Share, of_one_task, 0, "to whom its stage does not belong"),
    "Foresee: rows further": (
        "a gradient of planes that a warp brings", ir.Foresee, of_rows_further, 0, "grad is read or written at",
    ),
    "Foresee: left out": ("a gradient by warpgroups", ir.Foresee, left_out, 0, "nobody foresaw"),
    "Foresee: by parts of warps": (
        "a gradient of planes that are brought", ir.Foresee, by_parts_of_warps, 1, "is done by parts of warps",
    ),
    "Foresee: by two warps": (
        "a gradient of planes that are brought", ir.Foresee, by_two_warps, 1, "are asked for by more than a warp",
    ),
    "Foresee: of a team that is none": (
        "a gradient by warpgroups", ir.Foresee, of_a_team_more, 0, "there is a team beyond them",
    ),
    "Foresee: of no tasks": ("a gradient by warpgroups", ir.Foresee, of_no_tasks, 0, "have no tasks, and are of 2"),
    "Ask: left out": ("a gradient by warpgroups", ir.Ask, left_out, -1, "coming is read before anything is in it"),
    "Fetch: a channel more": (
        "a gradient of planes that a warp brings", ir.Fetch, a_channel_more, 0, "brought is read or written at",
    ),
    "Fetch: a row more": (
        "a gradient of planes that are brought", ir.Fetch, a_row_more, 0, "brought is read or written at",
    ),
    "Fetch: where there is none": (
        "a gradient of planes that are brought", ir.Fetch, lambda node: replace(node, guard=()), 0,
        "source is read or written at",
    ),
    "Fetch: half a unit": (
        "a gradient of planes that are brought", ir.Fetch, lambda node: replace(node, elements=node.elements + 2), 0,
        "are no whole sixteens of a stage's bytes",
    ),
    "Fetch: by all threads": (
        "a gradient of planes that a warp brings", ir.Fetch,
        lambda node: replace(node, lane=Place("thread", 512)), 0, "are asked for by lanes",
    ),
    "Fetch: other ones for other lanes": (
        "a gradient of planes that a warp brings", ir.Fetch,
        lambda node: replace(node, count=node.lane + 1), 0, "are other ones for other lanes",
    ),
    "Meet: left out": ("a gradient by warpgroups", ir.Meet, left_out, 0, "of stages of ring that may still be read"),
    "Meet: not behind the stores": ("a gradient by warpgroups", ir.Meet, left_out, 1, "a Sync is missing"),
    "Meet: by some": ("a gradient by warpgroups", ir.Meet, by_a_lane, 0, "a barrier of ring stands under a condition"),
    "Meet: again and again": (
        "a gradient by warpgroups", ir.Meet, lambda node: ir.Scope((node,)), 0, "may not come, or come again",
    ),
    "Meet: where no barrier is": ("a gradient by warpgroups", ir.Meet, shared_by(ends=False), 0, "has no barrier for"),
    "Drain: of what feeds nothing": (
        "a gradient of planes that are brought", ir.Fill, where_none_is_filled, 0, "is drained where none is filled",
    ),
    "Roles: parts of warpgroups": (
        "a gradient of planes that a warp brings", ir.Roles, not_beside, 0, "no whole warpgroups of 512",
    ),
    "Roles: beside, with other registers": (
        "a gradient of planes that a warp brings", ir.Roles, with_other_registers, 0, "or other registers",
    ),
    "Declare: what feeds half of them": (
        "a gradient of planes that are brought", ir.Declare, half_fed, -1, "raw does not feed ring",
    ),
    "Declare: over stages, further on": (
        "a gradient by warpgroups", ir.Declare, beyond_stages, -1, "are not in the place of ring",
    ),
    "If: asked of a condition": (
        "a gradient by warpgroups", ir.If, asked_of_a_condition, -1, "asked of something else than a load",
    ),
    "Load: never asked": (
        "a gradient by warpgroups", ir.Load, never_asked, -1, "source is read or written at",
    ),
    "Product: of other halves": (
        "a gradient in halves by warpgroups", ir.Product, of_other_words, 0, "are no four words of halves",
    ),
    "For: a round more along a pointer": (
        "a gradient of windows by warpgroups", ir.For, to_the_next_group, -1, "planes is read or written at",
    ),
    "For: a pointer that goes otherwise": (
        "a gradient of windows by warpgroups", ir.For, not_as_rounds_go, -1, "does not move on with the rounds",
    ),
    "Slide: of tasks": (
        "a walk along planes", ir.Slide, lambda node: replace(node, tasks=2), 0, "has tasks, and nothing counts them",
    ),
    "Slide: of fewer tasks": ("windows of a pool", ir.Slide, and_of_other_tasks, 0, "have other tasks"),
    "Provide: left out": ("windows of a pool", ir.Provide, left_out, 0, "threads wait for what nobody provides"),
    "Provide: by some": ("windows of a pool", ir.Provide, by_a_lane, 0, "a barrier of ring stands under a condition"),
    "Provide: twice": ("windows of a pool", ir.Provide, lambda node: ir.Scope((node, node)), 0, "is provided once"),
    "Provide: what nobody stored": ("windows of a pool", ir.Provide, of_what_nobody_stored, 0, "and nobody stored it"),
    "Provide: before it is stored": (
        "windows of a pool", ir.Provide, and_stored_again, 0, "weights is stored behind where it is provided",
    ),
    "Provided: left out": ("windows of a pool", ir.Provided, left_out, 0, "weights is handed to tensor cores"),
    "Provided: by some": ("windows of a pool", ir.Provided, by_a_lane, 0, "a barrier of ring stands under a condition"),
    "Provided: and stored again": (
        "windows of a pool", ir.Provided, and_stored_again, 0, "weights is handed to tensor cores, which may not see",
    ),
    "Take: of a stranger": ("windows of a pool", ir.Take, of_a_stranger, 0, "stranger is read before anything"),
    "Take: from zero on": ("windows of a pool", ir.Declare, from_zero_on, -1, "best begins with no -infinity"),
    "Take: another number": ("windows of a pool", ir.Take, of_the_next_element, 0, "sums select no other number"),
    "Take: a value as a number": ("windows of a pool", ir.Take, values_for_numbers, 0, "and becomes what is none"),
    "Flip: of a stranger": ("windows of a pool", ir.Flip, of_a_stranger, 0, "stranger is read before anything"),
    "Flip: by a float": ("windows of a pool", ir.Flip, by_a_float, 0, "float32, and signs are bits of a word"),
    "Vote: by some": ("windows of a pool", ir.Vote, by_a_lane, 0, "a vote stands under a condition"),
    "Exchange: by some": ("rows of windows", ir.Exchange, by_a_lane, 0, "an exchange stands under a condition"),
    "Exchange: of more tiles": ("rows of windows", ir.Exchange, of_more_tiles, 0, "lanes make no 8 bytes each"),
    "Let: a lane's as a warp's": ("windows of a pool", ir.Let, of_a_lane, -1, "said to be a warp's, and lanes differ"),
    "Declare: rows that are not whole": ("windows of a pool", ir.Declare, in_longer_rows, -1, "bytes more"),
    "If: sums that one way makes": ("phases of a plane", ir.If, made_in_one_way, -1, "sums is read before anything"),
    "Product: of a phase, left out": ("phases", ir.Product, left_out, 0, "nobody makes some of its sums"),
    "Product: to sums of no phase": ("phases", ir.Product, to_all_phases, 0, "or to some of several"),
    "Declare: a table": ("phases", ir.Declare, a_table_left_out, -1, "begins is not declared where it is used"),
    "For: no round before the first": ("phases", ir.For, from_zero, -1, "asked is read before anything is in it"),
    "Copy: beside the tensor": ("a walk along planes", ir.Copy, to_the_next_plane, 1, "out is read or written at"),
    "Copy: left out": ("a walk along planes", ir.Copy, left_out, 0, "weights is handed to tensor cores"),
    "Describe: further": ("a walk along planes", ir.Describe, units_further, 1, "and has 84"),
    "Describe: no stage of the window": (
        "a walk along planes", ir.Describe, lambda node: replace(node, behind=2), 1, "2 behind the oldest",
    ),
    "Products: by some": ("a walk along planes", ir.Products, by_a_lane, 0, "a product stands under a condition"),
    "Products: and a barrier": ("a walk along planes", ir.Products, with_a_barrier, 0, "Sync stands among products"),
    "Product: into what is not there": (
        "a walk along planes", ir.Product, of_what_is_not_there, 0, "sums is read before anything is in it",
    ),
    "Product: of words that are not held": ("a walk that holds words", ir.Product, of_other_words, 0, "of word are no"),
    "Product: of a tap that is not held": ("a walk that holds words", ir.Product, of_a_tap_further, 5, "held is read"),
    "Bring: half a unit": ("a walk that is brought things", ir.Bring, of_half_a_unit, 0, "no whole sixteens of its"),
    "Bring: beside the tensor": ("a walk that is brought things", ir.Bring, of_a_unit_more, 0, "other is read or"),
    "Bring: of channels that are not there": (
        "a walk that is brought things", ir.Bring, to_all_channels, 0, "other is read or written at 0 to 2799",
    ),
    "Bring: by some": ("a walk that is brought things", ir.Bring, by_a_lane, 0, "a copy to a warp stands under a"),
    "Bring: twice": (
        "a walk that is brought things", ir.Slide, brought_twice, 0, "asked for before it, and waited for behind, once",
    ),
    "Bring: without barriers": ("a walk that is brought things", ir.Bring, with_no_barriers, 0, "has no barriers for"),
    "Brought: left out": ("a walk that is brought things", ir.Brought, left_out, 0, "a Brought is missing"),
    "Brought: of nothing": ("a walk that is brought things", ir.Bring, left_out, 0, "waits for what ring does not"),
    "Fence: before what a warp is brought": (
        "a walk that is brought things", ir.Fence, left_out, 0, "in use: a Fence is missing",
    ),
    "Fence: by some": ("a walk that is brought things", ir.Fence, by_a_lane, 0, "a Fence stands under a condition"),
    "Sync: by some lanes of which a bool tells": (
        "a walk that is brought things", ir.Sync, by_named_lanes, 0, "a barrier of a warp stands under a condition",
    ),
    "Sync: before what a warp is brought": (
        "a walk that is brought things", ir.Sync, left_out, 1, "in use: a Sync is missing",
    ),
    "Reduce: by some lanes of a warp": ("a walk that is brought things", ir.Reduce, by_a_lane, 0, "stands under a"),
    "Store: where others read": (
        "a walk that is brought things", ir.Store, to_the_next_place, 0, "written while others may still be reading it",
    ),
    "Product: of more than there is": ("a walk along planes", ir.Product, of_more_columns, 3, "planes is multiplied"),
    "Sync: of a warp": ("a walk along planes", ir.Sync, left_out, 0, "read while others may still be writing it"),
    "Sync: before the next plane": (
        "a walk along planes", ir.Sync, left_out, 1, "written while others may still be reading it",
    ),
    "Send: by some": ("scattered taps", ir.Send, by_a_lane, 0, "a bulk copy stands under a condition"),
    "Send: left out": ("scattered taps", ir.Send, left_out, 0, "0 times bulk copies fill a stage of slots"),
    "Send: and a barrier": ("scattered taps", ir.Send, with_a_barrier_sent, 0, "Sync stands among bulk copies"),
    "Send: outside of a stage": ("scattered taps", ir.Fill, outside, 0, "of which no stage is filled by such"),
    "Stretch: beside the tensor": ("scattered taps", ir.Stretch, from_the_next_sixteen, 0, "x is read or written at"),
    "Stretch: of an odd tensor": ("scattered taps", ir.Stretch, of_odd_tensors, 0, "in whole sixteens of bytes"),
    "Stretch: between two sixteens": ("scattered taps", ir.Stretch, bytes_further, 0, "from there are not aligned"),
    "Stretch: beyond the slot": ("scattered taps", ir.Stretch, beyond_the_slot, 0, "staged is read or written at"),
    "Leave: twice": ("scattered taps", ir.Leave, twice, 0, "a stage of slots is left 2 times, or not always"),
    "Leave: before what is read": ("scattered taps", ir.Drain, left_at_once, 0, "by threads who let its stage go"),
    "Leave: of no stage": ("scattered taps", ir.Drain, lambda node: ir.Scope(node.body), 0, "left by threads that"),
    "Drain: by lanes of a warpgroup": ("scattered taps", ir.Drain, by_few_lanes, 0, "a product stands under a"),
    "InTurn: by some": ("scattered taps", ir.InTurn, by_a_lane, 0, "a barrier of slots stands under a condition"),
    "InTurn: by one warpgroup": ("scattered taps", ir.InTurn, by_one_warpgroup, 0, "a barrier of slots stands under"),
    "InTurn: by lanes of a warpgroup": (
        "scattered taps", ir.InTurn, by_few_lanes, 0, "a barrier of a warpgroup stands under a condition",
    ),
    "InTurn: of more than come": ("scattered taps", ir.InTurn, of_three_warpgroups, 0, "256 threads have turns behind"),
    "InTurn: by no number of a warpgroup": (
        "scattered taps", ir.InTurn, turns_by_another_number, 0, "lane, which is no number of a warpgroup",
    ),
    "InTurn: within one": ("scattered taps", ir.InTurn, a_turn_within, 0, "have turns within one"),
    "Sync: before the first turn": (
        "scattered taps", ir.Sync, left_out, 0, "rows is touched by who has the turn, and by others: a Sync is missing",
    ),
    "Sync: of a role, by one warpgroup": (
        "scattered taps", ir.Sync, by_one_warpgroup, 0, "a barrier of a role stands under a condition",
    ),
    "Sync: of a warpgroup, by some": (
        "scattered taps", ir.Sync, by_a_lane, 1, "a barrier of a warpgroup stands under a condition",
    ),
    "Convert: masked by what is no mask": ("scattered taps", ir.Convert, masked_by_a_float, -1, "masked by tf32"),
    "Products: that nobody waits for": (
        "scattered taps of an image", ir.Products, waited_for_later, -1, "nobody waits for sums",
    ),
    "Products: of rows that change": (
        "scattered taps of an image", ir.For, loaded_while_multiplied, -1, "inputs is touched while products are on",
    ),
    "Collect: of what is on its way": (
        "scattered taps in float32", ir.Products, waited_for_later, -1, "fresh is touched while products are on",
    ),
    "Collect: to nothing": ("scattered taps in float32", ir.Collect, added_to_nothing, 0, "before anything is in it"),
    "Collect: to all sums": ("scattered taps in float32", ir.Collect, of_a_half, 0, "is collected in sums"),
    "Collect: more than there are sums": (
        "streams in float32", ir.Collect, of_twice_as_many, 0, "fresh (32,) is collected in sums (1, 16)",
    ),
    "Collect: of a stage that is on its way": (
        "streams in float32", ir.Products, waited_for_later, 0, "fresh is touched while products are on",
    ),
    "Product: of lower words behind the stage": (
        "streams in float32", ir.Product, of_words_behind, 0, "weights is multiplied from unit",
    ),
    "AsyncCopy: of what is not there": (
        "a weight's gradient", ir.AsyncCopy, of_the_next, 0, "is read or written at 100",
    ),
    "AsyncCopy: to where no copies go": (
        "a weight's gradient", ir.AsyncCopy, to_a_stranger, 0, "stranger is copied to, and",
    ),
    "Turn: left out": ("a weight's gradient of windows", ir.Turn, left_out, 0, "a Turn is missing"),
    "Turn: what comes is never at hand": ("a weight's gradient", ir.Turn, left_out, 0, "halo is read before anything"),
    "Turn: of more than there is": ("a weight's gradient", ir.Declare, with_large_turns, 0, "and a block may ask for"),
    "Own: left out": ("a weight's gradient", ir.Own, left_out, 0, "which cut off what nobody rounded to tf32"),
    "Own: when all may touch it": ("a weight's gradient", ir.Own, after_all_came, 0, "halo is nobody's own"),
    "Own: of what others touch": (
        "a weight's gradient", ir.Own, lambda node: ir.Scope(node.body), 0, "read while others may still be writing it",
    ),
    "LoadMatrix: by some": (
        "a weight's gradient", ir.LoadMatrix, under_a_condition, 0, "a load of matrices stands under a condition",
    ),
    "LoadMatrix: turned words": (
        "a weight's gradient", ir.LoadMatrix, lambda node: replace(node, turned=True), 0, "matrices are of halves",
    ),
    "WarpMma: in uneven rounds": (
        "a weight's gradient", ir.WarpMma, in_uneven_rounds, 0, "a product stands in a loop of which threads",
    ),
    "WarpMma: of another type": (
        "a weight's gradient in halves", ir.WarpMma, lambda node: replace(node, math="tf32"), 0, "by tf32 is not of",
    ),
    "AsyncCopy: of two words": (
        "a product by warps", ir.AsyncCopy, of_two_words, 0, "and copies are of one, or of 4 without a guard",
    ),
    "Turn: of a unit": ("a product some steps at a time", ir.Turn, left_out, 0, "weights is read before anything"),
    "LoadTiles: between two units": ("a product by warps", ir.LoadTiles, from_further, 0, "from there are not aligned"),
    "LoadTiles: by some": ("a product by warps", ir.LoadTiles, by_a_lane, 0, "a load of matrices stands under"),
    "LoadTiles: before all came": ("a product by warps", ir.Sync, left_out, 0, "halo is read while others"),
    "MultiplyTiles: of more than there is": (
        "a product by teams of warps", ir.MultiplyTiles, after_the_last, 0, "weights is read or written at 101",
    ),
    "MultiplyTiles: by some": ("a product by teams of warps", ir.MultiplyTiles, by_a_lane, 0, "a product stands under"),
    "Declare: beside what it is over": (
        "a product by warps", ir.Declare, beside_what_it_is_over, -1, "are not in the place of halo",
    ),
    "Sync: before inputs give way to products": (
        "a product by warps", ir.Sync, left_out, 1, "tile is written while others may still be reading it",
    ),
    "Sync: before what others copied": ("a weight's gradient", ir.Sync, left_out, 0, "others may still be writing it"),
    "Sync: between two reductions": ("rows of a block", ir.Sync, left_out, 0, "others may still be reading it"),
    "Sync: before what others wrote": (
        "turned to channels last", ir.Sync, left_out, -1, "read while others may still be writing it",
    ),
    "Sync: not by all": ("rows of a block", ir.Sync, under_a_condition, 0, "a barrier stands under a condition"),
}  # fmt: skip


@pytest.mark.parametrize("word", WRONG)
def test_what_is_wrong_is_said(word: str) -> None:
    name, kind, change, which, said = WRONG[word]
    found = "; ".join(verify(changed(kernel(name), kind, change, which)))
    assert said in found


def test_every_node_has_a_mutant() -> None:
    kinds = {each.__name__ for each in ir.Node.__args__} - {"Note"}  # type: ignore[attr-defined]
    assert {word.partition(":")[0] for word in WRONG} == kinds


@pytest.mark.parametrize(("eight", "said"), [(4, "eights 4 and units of K"), (200, "eights 200 and units of K")])
def test_eights_of_rows_lie_apart_within_a_unit(eight: int, said: str) -> None:
    made = streaming(STREAMS["streamed_of_three"])
    for each in ir.every(made.body):
        if isinstance(each, ir.Describe) and each.matrix.eight != 8:
            object.__setattr__(each.matrix, "eight", eight)
    assert said in "; ".join(verify(made))


def test_parts_are_of_all_blocks() -> None:
    found = verify(replace(kernel("phases"), blocks=3))
    assert any("begins has parts of 2 blocks of 3" in each for each in found)


def test_what_all_stored_before_a_ring_is_not_there_where_its_readers_provide() -> None:
    """They wait for no fence before they do: here nobody provides anything, and weights are as they were cleared."""
    bare = kernel("windows of a pool")
    for kind in (ir.Provide, ir.Provided):
        bare = changed(bare, kind, left_out)
    bare = changed(bare, ir.Store, lambda node: left_out(node) if node.to.of.name == "of_tap" else node, -1)
    assert any("weights is handed to tensor cores" in each for each in verify(bare))


def test_a_ring_waits_for_those_who_fill_it() -> None:
    found = verify(changed(kernel("a product"), ir.Fill, with_producers, 0))
    assert any("256 threads fill ring, and its barrier waits for 128" in each for each in found)


def test_a_block_has_only_so_much() -> None:
    one = kernel("rows of a block")
    large = ir.Declare(ir.Shared("large", "float32", (Number(12 * 1024), Number(2))))
    many = ir.Declare((ir.Fragment("many", "float64", (Number(128),)),))
    assert any("shared memory: 98" in each for each in verify(replace(one, body=(large, *one.body))))
    assert any("registers: " in each for each in verify(replace(one, body=(*one.body, many))))
    assert any("2048 threads" in each for each in verify(replace(one, threads=2048)))


def test_tiles_that_are_at_hand_lie_beside_no_others() -> None:
    one = kernel("a weight's gradient")
    tile = ir.Shared("tile", "tf32", (Number(32),))
    beside = ir.Declare(ir.Turns("others", (tile,)))
    assert any("lies where others does" in each for each in verify(replace(one, body=(beside, *one.body))))


def test_what_is_stored_over_another_array_takes_its_place() -> None:
    """What the other had is gone, and is not read again; nor is it written over while others may still write it."""
    base = ir.Shared("base", "float32", (Number(128),))
    over = ir.Shared("over", "float32", (Number(128),), at_launch=True, over=(base, 0))
    value, k = ir.Element(ir.Fragment("value", "float32")), Builder()
    thread = Place("thread", 128)
    k.add(ir.Declare(base), ir.Declare(over), ir.Declare((value.of,), "sum"))
    k.add(ir.Store(value, ir.InShared(base, (thread,))), ir.Store(value, ir.InShared(over, (thread,))), ir.Sync())
    k.add(ir.Load(value, ir.InShared(base, (thread,))))
    found = verify(ir.Kernel("over", (), (), 1, 128, "int", k.body))
    assert any("over is written where others may still be writing base" in each for each in found)
    assert any("base is read before anything is in it" in each for each in found)


def test_a_block_that_waits_for_threads_that_are_done_is_seen() -> None:
    """Lanes that leave a warp, before it shuffles with all of them."""
    one, row = kernel("rows of a warp"), Variable("beyond")
    gone = (ir.Let(row, LANE % 32), ir.Exit(row, Number(30)))
    assert any("waits for threads that are done" in each for each in verify(replace(one, body=(*gone, *one.body))))


def test_lanes_may_begin_elsewhere_where_all_take_as_many_rounds() -> None:
    lane, r = Place("thread", 32), Variable("r", "int")
    x, total = ir.Tensor("x", "float32", "write", 1), ir.Fragment("total", "float32")
    reduced: ir.Body = (ir.Declare((total,), "sum"), ir.Reduce("sum", total, "team", (Size("team", 4),)))

    def verified(first: Index, step: int, body: ir.Body) -> str:
        rounds = ir.For(r, first, Number(16), Number(step), body, unrolled=False)
        return "; ".join(verify(ir.Kernel("rounds", (x,), (), 1, 32, "int", (rounds,))))

    assert verified(lane // 4, 8, reduced) == ""
    for first, step in ((lane // 4, 4), (lane // 4 + 1, 8), (lane // 4, 9)):
        assert "a different number of rounds" in verified(first, step, reduced)
    guarded = ir.If((Compare("<", r, Number(5)),), reduced)
    assert "differs between threads" in verified(lane // 4, 8, (guarded,))
    assert verified(ZERO, 8, (guarded,)) == ""


def test_who_goes_another_way_does_not_come_to_a_barrier() -> None:
    few = (Compare("<", LANE, Number(5)), Compare("<", LANE, Number(3)))
    ways = ir.If(few, (), otherwise=(ir.Sync(),))
    found = verify(ir.Kernel("ways", (), (), 1, 128, "int", (ways,)))
    assert any("a barrier stands under a condition" in each for each in found)


def test_what_goes_another_way_is_not_gone_on_with() -> None:
    """One condition behind another is told `else` where one of them holds at most, but behind no `else` of its own."""
    k, out = Builder(), ir.Tensor("out", "float32", "write", 3)
    lane, value = k.let("lane", Place("thread", 32), "int"), ir.Fragment("value", "float32")
    k.add(ir.Declare((value,), "sum"))
    first, second, third = (ir.Store(ir.Element(value), ir.Global(out, Number(each))) for each in range(3))

    def text(otherwise: ir.Body) -> str:
        is_0, is_1 = ((Compare("==", lane, Number(each)),) for each in (0, 1))
        ways = ir.If(is_0, (first,), otherwise=otherwise), ir.If(is_1, (third,))
        return printed(ir.Kernel("ways", (out,), (), 1, 32, "int", (*k.body, *ways))).text

    assert "else if (lane == 1)" in text(())
    assert "else {" in text((second,)) and "else if" not in text((second,))


def test_what_is_wrong_is_never_printed() -> None:
    with pytest.raises(KernelError, match=r"a fault of Crucible's: .*is read or written at"):
        printed(changed(kernel("planes"), ir.Let, let_further, -1))


def by_eight_lanes(stop: int) -> ir.Kernel:
    """Of each 32 places lanes take four each, eight apart, without asking whether these are there."""
    x, out = ir.Tensor("x", "float32", "read", 96), ir.Tensor("out", "float32", "write", 96)
    k, lane = Builder(), Place("thread", 8)
    value = ir.Fragment("value", "float32")
    with k.loop("first", lane, Number(stop), Number(32)) as first, k.unrolled("j", Number(4)) as j:
        k.add(ir.Load(ir.Element(value), ir.Global(x, first + j * 8), declares=True))
        k.add(ir.Store(ir.Element(value), ir.Global(out, first + j * 8)))
    return ir.Kernel("by_eight_lanes", (x, out), (), 1, 8, "unsigned", k.body, ("copies",))


def test_lanes_that_go_on_by_more_than_there_are_of_them_end_within_the_last_round() -> None:
    """Convolutions of an odd width of 145 and more were refused: a loop's variable was thought to come to its end."""
    assert verify(by_eight_lanes(96)) == ()
    assert any("has 96 elements" in said for said in verify(by_eight_lanes(97)))  # one more round for the first lane


@pytest.mark.parametrize("width", [131, 145, 147])
def test_convolutions_of_odd_width_are_written(width: int) -> None:
    conv = torch.nn.Conv2d(32, 64, 3, padding=1)
    emit(fuse(trace(conv, [torch.empty(2, 32, 147, width)])), "convolution")


def test_packs_below_an_end_that_they_divide_end_there() -> None:
    """Of runs of 16 numbers, the last of 12, packs of four: below the end is four below it."""
    block, k, x = Place("block", 100), Builder(), ir.Tensor("x", "float32", "read", 1596)
    left = k.let("left", Smaller(Number(16), Number(1596) - block * 16), "int")
    i = k.let("i", Place("thread", 128) * 4, "int")
    pack = ir.Element(ir.Fragment("pack", "float32", (Number(4),), packed=True))
    with k.when((Compare("<", i, left),)):
        k.add(ir.Load(pack, ir.Global(x, block * 16 + i), declares=True))
    assert verify(ir.Kernel("packs", (x,), (), 100, 128, "int", k.body)) == ()
