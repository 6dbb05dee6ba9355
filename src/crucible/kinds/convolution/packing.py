"""Weights put in the order in which tensor cores take them, a thread a word of four bytes. What the orders are say
`schedule.convolution.packing` and `schedule.convolution.warpgroup.packing`; what lies outside of a weight is 0."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from crucible.algebra.buffer import Buffer
from crucible.algebra.convolution.correlation import Correlation
from crucible.algebra.convolution.fused import Convolution
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ZERO, Compare, Condition, Either, Index, Number, Place, Size, Table
from crucible.kinds.convolution.scaled_packing import pack_scaled
from crucible.kinds.convolution.weight import Weight
from crucible.schedule.convolution.halo import STEP_UNITS
from crucible.schedule.convolution.tiling import Tiling
from crucible.schedule.convolution.warpgroup.scatter import CHANNELS, UNIT, Scatter
from crucible.schedule.convolution.warpgroup.streams import Streams
from crucible.schedule.convolution.warpgroup.walks import ROWS, SLAB, WARPS, Walks

THREADS = 256
WORDS = 4
"""Of a unit: what tensor cores take of a row at once."""
Weighed = Callable[[Index], tuple[Condition, Index]]
"""Of an input channel: whether there is a weight, and its place."""


def pack(conv: Convolution, division: Tiling, buffer: Buffer) -> ir.Kernel:
    """The kernel that writes the buffer, as the division's kernel reads it."""
    if isinstance(division, Streams) and division.scaled:
        return pack_scaled(conv, division, buffer)
    work = _Packing(conv, division.of, buffer)
    if isinstance(division, Scatter):
        of_what = _of_scatter(work, division)
    elif isinstance(division, Streams):
        of_what = _of_streams(work, division)
    elif isinstance(division, Walks):
        of_what = _of_walks(work, division)
    else:
        of_what = _of_tiling(work, division)
    by = "tensor cores" if type(division) is Tiling else "warpgroups"
    note = f"The weight in the order in which {by} take it: {of_what}."
    return work.kernel(f"{conv.name}_pack", note, is_light=not isinstance(division, Scatter))


class _Packing:
    """One kernel while it is made."""

    def __init__(self, conv: Convolution, of: Correlation, buffer: Buffer) -> None:
        self.k, self.math, self.dtype = Builder(), conv.math, conv.source.dtype
        self.words = 2 if conv.keeps_float32 else 1
        """For each number."""
        self.blocks = -(-buffer.elements // THREADS)
        self.weight = Weight(of, conv.weight.name, self.dtype, "read")
        self.packed = ir.Tensor(buffer.name, "int32", "write", buffer.elements)
        self.sizes: list[Size | Table] = [*self.weight.strides]
        self.word = self.k.let("word", Place("block", self.blocks) * THREADS + Place("thread", THREADS), "int")
        self.k.add(ir.Exit(self.word, Number(buffer.elements)))

    def table(self, name: str, values: Sequence[int]) -> Table:
        found = Table(name, tuple(values))
        self.sizes.append(found)
        return found

    def store(self, input_: Index, weighed: Weighed, is_lower: Index | None = None) -> None:
        """The word of an input channel, of a half type of two neighbours; of float32 in two perhaps the lower one."""
        read = [input_] if self.dtype == "float32" else [input_, self.k.named("next_input", input_ + 1)]
        values = []
        for name, channel in zip(("value", "next_value"), read, strict=False):
            guard, at = weighed(channel)
            values.append(ir.Element(ir.Fragment(name, self.dtype)))
            self.k.add(ir.Load(values[-1], ir.Global(self.weight.tensor, at), guard, declares=True))
        if self.math == "tf32":
            values = [self._converted(values[0], "tf32", "nearest")]
        if is_lower is not None:
            values = [self._part(values[0], is_lower)]
        word = ir.Element(ir.Fragment("bits", "int32"))
        self.k.add(ir.Bits(word, tuple(values)), ir.Store(word, ir.Global(self.packed, self.word)))

    def _part(self, value: ir.Element, is_lower: Index) -> ir.Element:
        whole = self._converted(value, "word", "whole")
        high, low, part = (ir.Element(ir.Fragment(name, "tf32")) for name in ("high", "low", "part"))
        self.k.add(ir.Split(high, whole, "high", declares=True), ir.Split(low, whole, "low", declares=True))
        self.k.add(ir.Convert(part, low, declares=True, guard=(Compare("!=", is_lower, ZERO),), otherwise=high))
        return part

    def _converted(self, value: ir.Element, dtype: str, name: str) -> ir.Element:
        into = ir.Element(ir.Fragment(name, dtype))
        self.k.add(ir.Convert(into, value, declares=True))
        return into

    def kernel(self, name: str, note: str, *, is_light: bool) -> ir.Kernel:
        return ir.Kernel(
            name, (self.weight.tensor, self.packed), tuple(self.sizes), self.blocks, THREADS, "long long", self.k.body,
            (note,), is_light=is_light,
        )  # fmt: skip


def _offsets(of: Correlation) -> list[int]:
    return [product.weight for product in of.products]


def _of_tiling(work: _Packing, tiling: Tiling) -> str:
    let = work.k.named
    word, taps = work.word, work.table("taps", _offsets(tiling.of))
    count = len(taps.values)
    corner, lane = let("corner", word % 4), let("lane", word // 4 % 32)
    tile = let("tile", word // 128 % (tiling.channels // 16))
    rest = let("rest", word // (tiling.channels * 8))
    tap, step = let("tap", taps[rest % count]), let("step", rest // count % tiling.steps)
    part = let("part", rest // (count * tiling.steps))  # a tile of channels of a group
    group = let("group", part // tiling.channel_tiles)
    of_part = part % tiling.channel_tiles * tiling.channels
    channel = let("channel", of_part + tile * 16 + lane // 4 + corner % 2 * 8)
    input_ = let("input", (step * 8 + lane % 4 + corner // 2 * 4) * (tiling.unit // WORDS))
    work.store(input_, lambda read: work.weight.at(channel, read, tap, group))
    return f"{count} taps, tiles of 16 channels"


def _of_walks(work: _Packing, walks: Walks) -> str:
    let = work.k.named
    word, taps = work.word, work.table("taps", _offsets(walks.of))
    count, words = len(taps.values), work.words
    unit = let("unit", word // (WORDS * ROWS) % STEP_UNITS)
    rest = let("rest", word // (WORDS * ROWS * STEP_UNITS))
    tap, step = let("tap", taps[rest % count]), let("step", rest // count % walks.steps)
    is_lower = let("is_lower", rest // (count * walks.steps) % 2) if words > 1 else None
    channel = let("channel", _of_row(walks, rest // (count * walks.steps * words), word // WORDS % ROWS))
    input_ = let("input", ((step * STEP_UNITS + unit) * WORDS + word % WORDS) * (walks.unit // WORDS))
    work.store(input_, lambda read: work.weight.at(channel, read, tap), is_lower)
    return f"{count} taps, tiles of {ROWS} channels"


def _of_row(walks: Walks, tile: Index, row: Index) -> Index:
    """The channel that a row of an instruction makes; one that is not there, where it makes none."""
    rows = ROWS // WARPS
    if walks.warp_channels == rows:
        return tile * ROWS + row
    of_warp, first = row % rows, row // rows * walks.warp_channels
    none = Number(walks.of.out_channels)
    return Either((Compare("<", of_warp, Number(SLAB)),), first + of_warp // walks.copies, none)


def _of_streams(work: _Packing, streams: Streams) -> str:
    """Parts differ in how many blocks they have, of which some may be missing."""
    let = work.k.named
    word, parts, channels = work.word, streams.parts, streams.channels
    offsets = work.table("offsets", [offset for part in parts for _, blocks in part.taps for offset in blocks])
    firsts = [sum(len(part.taps) * part.blocks for part in parts[:number]) for number in range(len(parts))]
    of_tile = let("of_tile", word % (streams.packed_units * WORDS))

    def of_part(name: str, values: Sequence[int]) -> Index:
        """Of the part that a word is of."""
        index: Index = Number(values[-1])
        for value, end in zip(values[-2::-1], streams.begins[:0:-1], strict=True):
            if index != Number(value):
                index = Either((Compare("<", of_tile, Number(WORDS * end)),), Number(value), index)
        return let(name, index)

    begin, first = of_part("begin", [WORDS * each for each in streams.begins]), of_part("first", firsts)
    blocks = of_part("blocks", [part.blocks for part in parts])
    taps = of_part("taps", [len(part.taps) for part in parts])
    column = let("column", (of_tile - begin) // WORDS % (blocks * channels))
    rest = let("rest", (of_tile - begin) // (blocks * (WORDS * channels)))
    unit, tap = let("unit", rest % STEP_UNITS), let("tap", rest // STEP_UNITS % taps)
    words = STEP_UNITS * taps
    is_lower = let("is_lower", rest // words % 2) if streams.exact else None
    step = let("step", rest // (words * streams.words))
    offset = let("offset", offsets[first + tap * blocks + column // channels])
    channel = let("channel", word // (streams.packed_units * WORDS) * channels + column % channels)
    input_ = let("input", ((step * STEP_UNITS + unit) * WORDS + word % WORDS) * (streams.unit // WORDS))

    def weighed(read: Index) -> tuple[Condition, Index]:
        inside, at = work.weight.at(channel, read, offset)
        return (Compare(">=", offset, ZERO), *inside), at

    work.store(input_, weighed, is_lower)
    return f"{len(streams.of.products)} taps, tiles of {channels} channels"


def _of_scatter(work: _Packing, scatter: Scatter) -> str:
    let = work.k.named
    word, taps = work.word, work.table("taps", [weight for *_, weight in scatter.taps])
    columns, tile, words = scatter.every_column, scatter.steps * STEP_UNITS, work.words
    column, units = let("column", word // UNIT % columns), let("units", word // (UNIT * columns))
    input_ = let("input", units % tile * UNIT + word % UNIT)
    is_lower = let("is_lower", units // tile % 2) if words > 1 else None
    channel = let("channel", units // (tile * words) * CHANNELS + column % CHANNELS)
    work.store(input_, lambda read: work.weight.at(channel, read, taps[column // CHANNELS]), is_lower)
    return f"{len(taps.values)} taps of {CHANNELS} channels"
