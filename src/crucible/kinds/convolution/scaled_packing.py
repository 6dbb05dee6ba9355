"""Weights that keep float32 in words of fp16, in the order in which streams take them: a block makes those of a stage,
whose scale it finds first, see `schedule.convolution.warpgroup.packing`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from crucible.algebra.buffer import Buffer
from crucible.algebra.convolution.fused import Convolution
from crucible.gpus import WARP
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ZERO, Compare, Index, Number, Place, Size, Table
from crucible.kinds.convolution.split import split_scaled
from crucible.kinds.convolution.streams.parts import of_part
from crucible.kinds.convolution.weight import Weight
from crucible.schedule.convolution.halo import STEP_UNITS
from crucible.schedule.convolution.warpgroup.streams import Streams

THREADS = 512
UNIT, WORDS = 8, 4
"""Numbers of 16 bytes, and words."""


def pack_scaled(conv: Convolution, streams: Streams, buffer: Buffer) -> ir.Kernel:
    """The kernel that writes the buffer, as the kernel of streams reads it."""
    return _Packing(conv, streams, buffer).kernel(f"{conv.name}_pack")


class _Packing:
    """One kernel while it is made."""

    def __init__(self, conv: Convolution, streams: Streams, buffer: Buffer) -> None:
        self.k, self.streams = Builder(), streams
        self.weight = Weight(streams.of, conv.weight.name, "float32", "read")
        self.packed = ir.Tensor(buffer.name, "int32", "write", buffer.elements)
        self.sizes: list[Size | Table] = [*self.weight.strides]
        self.blocks = streams.channel_tiles * streams.stages
        self.thread = Place("thread", THREADS)
        self._place()

    def _place(self) -> None:
        """Which stage a block makes."""
        let, streams, parts = self.k.named, self.streams, self.streams.parts
        stage = let("stage", Place("block", self.blocks) % streams.stages)
        self.tile = let("tile", Place("block", self.blocks) // streams.stages)
        self.stage, self.step, part = stage, let("step", stage % streams.steps), stage // streams.steps
        part = let("part", part) if len(parts) > 1 else ZERO

        firsts = [sum(len(each.taps) * each.blocks for each in parts[:number]) for number in range(len(parts))]
        self.first = let("first", of_part(firsts, part))
        self.columns = let("columns", of_part([each.blocks * streams.channels for each in parts], part))
        self.taps = let("taps", of_part([len(each.taps) for each in parts], part))
        self.units = let("units", of_part([*map(streams.word_units, parts)], part))
        begin = of_part(streams.begins, part) + self.step * of_part([*map(streams.weight_units, parts)], part)
        self.begin = let("begin", self.tile * streams.packed_units + begin)
        self.offsets = Table("offsets", tuple(o for each in parts for _, blocks in each.taps for o in blocks))
        self.sizes.append(self.offsets)

    def kernel(self, name: str) -> ir.Kernel:
        k, streams = self.k, self.streams
        largest, scale = (ir.Element(ir.Fragment(word, "float32")) for word in ("largest", "scale"))
        k.add(ir.Declare((largest.of,), "sum"))
        with self._each_unit() as (_, value):
            k.add(ir.Largest(largest, value))
        of_warps = ir.Shared("of_warps", "float32", (Number(THREADS // WARP),))
        k.add(ir.Declare(of_warps), ir.Scale(scale, largest, of_warps, self.thread, THREADS))
        with self._each_unit() as (places, value):
            for at, split in zip(places, split_scaled(value, scale), strict=True):
                k.add(split)
                self._store(split.into, at * WORDS)
        with k.when((Compare("==", self.thread, ZERO),)):
            behind = streams.channel_tiles * streams.packed_units * WORDS
            bits = ir.Element(ir.Fragment("bits", "int32"))
            to = ir.Global(self.packed, behind + self.tile * streams.stages + self.stage)
            k.add(ir.Bits(bits, (scale,)), ir.Store(bits, to))
        note = f"{len(streams.of.products)} taps, tiles of {streams.channels} channels, in two words of fp16"
        return ir.Kernel(
            name, (self.weight.tensor, self.packed), tuple(self.sizes), self.blocks, THREADS, "long long", k.body,
            (f"The weight in the order in which warpgroups take it: {note}.",),
        )  # fmt: skip

    @contextmanager
    def _each_unit(self) -> Iterator[tuple[tuple[Index, Index], ir.Element]]:
        """Where higher words go and lower ones, and what they are made of; neighbours are taps, which lie so in memory.
        Of parts of different shapes it is asked whether they lie within, as no reader sees it: which part has how many,
        and where it begins."""
        k, streams = self.k, self.streams
        with k.loop("p", self.thread, self.units, Number(THREADS), "int") as p:
            own, rest = k.let("tap", p % self.taps, "int"), k.let("rest", p // self.taps, "int")
            column, unit = k.let("column", rest % self.columns, "int"), k.let("unit", rest // self.columns, "int")
            tap = self.first + own * (self.columns // streams.channels) + column // streams.channels
            place = k.let("place", (own * STEP_UNITS + unit) * self.columns + column, "int")
            high, low, ends = self.begin + place, self.begin + self.units + place, list[Compare]()
            if len({streams.word_units(part) for part in streams.parts}) > 1:
                tap, high, low = k.let("number", tap, "int"), k.let("high", high, "int"), k.let("low", low, "int")
                every = Number(streams.channel_tiles * streams.packed_units)
                ends = [Compare("<", tap, Number(len(self.offsets.values)))]
                ends += [Compare("<", high, every), Compare("<", low, every)]
            with k.when(tuple(ends)):
                yield (high, low), self._read(tap, column, unit)

    def _read(self, tap: Index, column: Index, unit: Index) -> ir.Element:
        """A unit of input channels of a column; 0 where there is no weight."""
        k, streams = self.k, self.streams
        offset = k.let("offset", self.offsets[tap], "int")
        channel = k.let("channel", self.tile * streams.channels + column % streams.channels, "int")
        first = k.let("input", (self.step * STEP_UNITS + unit) * UNIT, "int")
        value = ir.Fragment("value", "word", (Number(UNIT),), True)
        k.add(ir.Declare((value,)))
        for number in range(UNIT):
            inside, at = self.weight.at(channel, first + number, offset)
            guard = (Compare(">=", offset, ZERO), *inside)
            k.add(ir.Load(ir.Element(value, (Number(number),)), ir.Global(self.weight.tensor, at), guard))
        return ir.Element(value)

    def _store(self, pack: ir.Element, at: Index) -> None:
        bits = ir.Fragment("bits", "int32", (Number(WORDS),), True)
        self.k.add(ir.Declare((bits,)))
        for number in map(Number, range(WORDS)):
            self.k.add(ir.Convert(ir.Element(bits, (number,)), ir.Element(pack.of, (number,))))
        self.k.add(ir.Store(ir.Element(bits), ir.Global(self.packed, at)))
