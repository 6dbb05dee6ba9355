"""The second kernel of a weight's gradient: it adds up what blocks made of each element, in a fixed order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from crucible.algebra.buffer import Buffer
from crucible.algebra.convolution.correlation import Correlation
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ONE, ZERO, Compare, Condition, Index, Number, Place, Size, Table
from crucible.kinds.convolution.weight import Weight
from crucible.schedule.convolution.halo import STEP_UNITS
from crucible.schedule.convolution.warpgroup.walks import ROWS
from crucible.schedule.convolution.warpgroup.weight_moves import Moves
from crucible.schedule.convolution.warpgroup.weight_shape import COLUMNS
from crucible.schedule.convolution.warpgroup.weight_walks import WeightWalks
from crucible.schedule.convolution.weight_division import Division

THREADS, LANES = 256, 32
SLICES = THREADS // LANES
"""Threads that share the parts of an element, each of them taking every so many."""


@dataclass(frozen=True)
class Element:
    """Of the weight, what a word of a block is."""

    channel: Index
    input: Index
    tap: Index
    """Its offset from the first one; below 0 where it is none of the weight's."""
    group: Index = ZERO
    guard: Condition = ()


Let = Callable[[str, Index], Index]
End = Callable[[Index, int], None]
"""Threads for which an index is not below a limit are done."""
Laid = Callable[[Let, End, Index], Element]
"""Makes what the indices of a word's element need."""


def finish(
    name: str, of: Correlation, partial: Buffer, result: str, dtype: str, words: int, taps: Table, laid: Laid
) -> ir.Kernel:
    """The kernel `name` that writes `result`, laid like the weight: 32 elements a block. `partial` is [block][word]."""
    k, blocks = Builder(), words // LANES
    weight = Weight(of, result, dtype, "write")
    parts = ir.Tensor(partial.name, "float32", "read", partial.elements)
    totals = ir.Shared("totals", "float32", (Number(SLICES), Number(LANES)))
    count, stride = partial.elements // words, Size("part_stride", words)
    total = ir.Element(ir.Fragment("total", "float32"))

    def add(spot: ir.Spot, name: str) -> None:
        more = ir.Element(ir.Fragment(name, "float32"))
        k.add(ir.Load(more, spot, declares=True), ir.Accumulate("sum", total, more))

    k.add(ir.Declare(totals))
    lane, own = k.named("lane", Place("thread", THREADS) % LANES), k.named("slice", Place("thread", THREADS) // LANES)
    word = k.named("word", Place("block", blocks) * LANES + lane)
    k.add(ir.Declare((total.of,), "sum"))
    with k.loop("part", own, Number(count), Number(SLICES), "int") as part:
        add(ir.Global(parts, part * stride + word), "more")
    k.add(ir.Store(total, ir.InShared(totals, (own, lane))), ir.Sync(), ir.Exit(own, ONE))
    with k.unrolled("s", Number(SLICES - 1)) as s:
        add(ir.InShared(totals, (s + 1, lane)), "other")
    element = laid(k.named, lambda index, limit: k.add(ir.Exit(index, Number(limit))), word)
    inside, at = weight.at(element.channel, element.input, element.tap, element.group)
    with k.when((*element.guard, *inside)):
        k.add(ir.Store(total, ir.Global(weight.tensor, at)))
    note = f"Adds up what {count} blocks made of each element of the weight's gradient."
    sizes: tuple[Size | Table, ...] = (taps, stride, *weight.strides)
    return ir.Kernel(name, (parts, weight.tensor), sizes, blocks, THREADS, "long long", k.body, (note,))


def finish_by_warps(
    name: str, of: Correlation, division: Division, partial: Buffer, result: str, dtype: str
) -> ir.Kernel:
    """Words are [part][tap and eight input channels][channel][8], of `weight_gradient`."""
    taps = Table("taps", tuple(product.weight for product in of.products))

    def laid(let: Let, end: End, word: Index) -> Element:
        place, part = let("place", word % division.part_words), let("part", word // division.part_words)
        tile = let("tile", place // (division.channels * 8))
        first = part // division.in_tiles % division.out_tiles * division.channels
        channel = let("channel", first + place // 8 % division.channels)
        of_part = part % division.in_tiles * (division.staged * division.unit * STEP_UNITS)
        input_ = let("input", of_part + tile % division.n_tiles * 8 + place % 8)
        group = let("group", part // (division.in_tiles * division.out_tiles))
        return Element(channel, input_, taps[tile // division.n_tiles], group)

    return finish(name, of, partial, result, dtype, division.parts * division.part_words, taps, laid)


def finish_by_warpgroups(name: str, walks: WeightWalks, partial: Buffer, result: str, dtype: str) -> ir.Kernel:
    """Words are [part][eight input channels of a tap][channel][8], of `weight_groups`."""
    of, numbers = walks.whole, walks.tap_numbers
    moves = walks.moves or Moves(of, (range(1),) * len(of.axes))
    taps = Table("taps", tuple(moves.offset(move, each) for move in range(moves.count) for each in numbers))

    def laid(let: Let, end: End, word: Index) -> Element:
        place, part = let("place", word % walks.part_words), let("part", word // walks.part_words)
        tile = let("tile", place // (ROWS * COLUMNS))
        row = let("row", part // (walks.in_parts * walks.outer_parts) * ROWS + place // COLUMNS % ROWS)
        channel = let("channel", row % of.out_channels) if walks.moves else row
        first = part // walks.outer_parts % walks.in_parts * walks.channel_tiles
        input_ = let("input", (first + tile // (walks.inner * walks.outer)) * COLUMNS + place % COLUMNS)
        own = tile // walks.inner % walks.outer
        outer = let("outer", part % walks.outer_parts * (walks.outer if walks.outer_parts > 1 else 0) + own)
        if walks.all_outer % walks.outer:
            end(outer, walks.all_outer)
        number = outer * walks.inner + tile % walks.inner
        if not walks.moves:
            return Element(channel, input_, taps[number])
        found = let("found", row // of.out_channels * len(numbers) + number)
        if walks.of.out_channels < ROWS:
            end(row, walks.of.out_channels)
        tap = let("tap", taps[found])
        guard = (Compare(">=", tap, ZERO),) if -1 in taps.values else ()  # moved so, no tap of the weight's
        return Element(channel, input_, tap, guard=guard)

    return finish(name, of, partial, result, dtype, walks.parts * walks.part_words, taps, laid)
