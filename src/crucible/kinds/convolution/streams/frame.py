"""What all warpgroups of a convolution with streamed weights agree on: tensors, stages, which items a block makes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from crucible.algebra.convolution.fused import Convolution, is_of_row
from crucible.algebra.program import Result, contiguous
from crucible.gpus import Gpu
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ZERO, Index, Number, Place, Size, Smaller, Variable
from crucible.kernel.places import ITEM_BYTES
from crucible.kinds.convolution.scene import Scene
from crucible.kinds.convolution.vectors import Laid, laid
from crucible.kinds.convolution.walks.frame import UNIT, WORDS
from crucible.kinds.indices import decoded
from crucible.schedule.convolution.halo import STEP_UNITS
from crucible.schedule.convolution.warpgroup.packing import packed
from crucible.schedule.convolution.warpgroup.streams import GROUPS, SCALE_UNITS, Streams
from crucible.schedule.convolution.warpgroup.walks import THREADS, WARPS


@dataclass(frozen=True)
class Item:
    """A box of positions, or such boxes of several planes."""

    number: Index
    image: Index
    starts: tuple[Index, ...]
    """Where its box begins along each dim; of three the first plane."""
    planes: Index
    """Of outputs."""
    lets: tuple[ir.Let, ...]
    """What text has to name of these, where it reads them."""
    first: Index = ZERO
    """Of a run over rows the position in its first one."""


class Frame:
    """One kernel while it is made."""

    def __init__(self, conv: Convolution, streams: Streams, gpu: Gpu) -> None:
        self.conv, self.streams = conv, streams
        self.scene = Scene(conv, streams, packed(conv.name, streams), gpu)
        self.dims = self.scene.dims
        batch, channels, *extents = conv.correlation.in_shape
        sizes = conv.spread.sizes if conv.spread else (1,) * len(extents)
        shape = (batch, channels, *(extent // size for extent, size in zip(extents, sizes, strict=True)))
        self.source = laid(conv.source, shape, self.dims, is_told=True)
        read = self.source.tensor.elements
        self.choices = ir.Tensor(self.scene.choices[0], "uint8", "read", read) if self.scene.choices else None
        """Where the source is not 0."""
        self.step_stride = Size("step_stride", streams.unit * STEP_UNITS * conv.source.strides[1])
        """From the channels of a stage to the next ones."""
        self.channel_stride = Size("channel_stride", conv.source.strides[1])
        self.packed = ir.Tensor(self.scene.packed.name, "int32", "read", self.scene.packed.elements)
        self.operands = {
            each.name: laid(each, conv.made_shape, self.dims, is_told=is_of_row(each)) for each in self.scene.operands
        }
        self.results = {each.name: laid(each, conv.made_shape, self.dims) for each in self.scene.elementwise}
        self.dtype = "float16" if streams.scaled else {"float32": "tf32"}.get(conv.source.dtype, conv.source.dtype)
        """Of what tensor cores multiply."""
        note = "planes of input, of higher words and of lower ones" if streams.exact else "planes of input"
        self.planes = self._tile("planes", streams.plane_units, note)
        self.weights = self._tile("weights", streams.slot_weight_units, "the weights that they are multiplied by")
        self.scales = ir.Shared(
            "scales", "float32", (Number(SCALE_UNITS), Number(UNIT // ITEM_BYTES["float32"])),
            "scales",
        )  # fmt: skip
        tiles = (self.planes, self.weights, *([self.scales] if streams.scaled else []))
        self.ring = ir.Pipeline(
            "ring", tiles, streams.slots, streams.staging * THREADS, GROUPS * THREADS, teams=GROUPS,
            is_shared=True, moves=1, carries=True,
            cleared=self.planes if streams.staged_plane != streams.plane else None,
        )  # fmt: skip
        self.part_tensors = tuple(
            ir.Tensor(each.name, each.dtype, "write", each.elements) for each in self.scene.partials
        )
        self.row_parts = tuple(
            ir.Tensor(each.name, each.dtype, "write", each.elements) for each in self.scene.row_parts
        )
        self.crossings = self._crossings()
        words = GROUPS * WARPS * streams.total_words
        self.totals = ir.Shared(
            "totals", "float32", (Number(words),), "of each warp", at_launch=True, is_last=True, by_one=True
        )
        """Of sums over batch and space, and then of those over an item's: [warp][sum][channel]"""
        self.first_item: Index = ZERO
        self.part: Index = ZERO
        self.first_channel: Index = ZERO

    def _crossings(self) -> dict[str, Laid]:
        """Of reductions over channels, of a part of them each: laid over the results."""
        space = self.conv.made_shape[2:]
        strides = (math.prod(space), 0, *contiguous(space))
        found = dict[str, Laid]()
        for each, buffer in zip(self.conv.crossings, self.scene.crossings, strict=True):
            own = laid(Result(buffer.name, buffer.dtype, strides, each.expr), self.conv.made_shape, self.dims)
            found[each.name] = replace(own, tensor=replace(own.tensor, elements=buffer.elements))
        return found

    def _tile(self, name: str, units: int, note: str) -> ir.Shared:
        """Of so many sixteens of bytes."""
        return ir.Shared(name, self.dtype, (Number(units), Number(UNIT // ITEM_BYTES[self.dtype])), note)

    @property
    def factor(self) -> ir.InShared:
        """What sums of a stage are multiplied by."""
        return ir.InShared(self.scales, (Number(SCALE_UNITS - 1), ZERO))

    @property
    def blocks(self) -> int:
        return self.scene.parts * self.scene.blocks_a_part

    @property
    def tensors(self) -> tuple[ir.Tensor, ...]:
        read = (
            self.source.tensor,
            *([self.choices] if self.choices else []),
            self.packed,
            *(each.tensor for each in self.operands.values()),
        )
        made = (*self.results.values(), *self.crossings.values())
        written = (*(each.tensor for each in made), *self.part_tensors, *self.row_parts)
        return (*read, *written)

    @property
    def sizes(self) -> tuple[Size, ...]:
        every = (self.source, *self.operands.values(), *self.results.values(), *self.crossings.values())
        return (self.step_stride, self.channel_stride, *(stride for each in every for stride in each.strides))

    def begin(self, k: Builder) -> None:
        """Which channels are a block's."""
        self.part = k.named("part", Place("block", self.blocks) % self.scene.parts)
        self.first_channel = k.named("first_channel", self.part * self.streams.channels)
        if self.part_tensors or self.row_parts:
            zero, thread = ir.Element(ir.Fragment("zero", "float32")), Place("thread", self.streams.threads)
            k.add(ir.Declare(self.totals))
            with k.loop("p", thread, self.totals.shape[0], Number(self.streams.threads), "int") as p:
                k.add(ir.Declare((zero.of,), "sum"), ir.Store(zero, ir.InShared(self.totals, (p,))))
        k.add(ir.Declare(self.ring))

    def packed_units(self, k: Builder) -> ir.Pointer:
        """Of a block's channels."""
        found = ir.Pointer("packed_units", self.packed, ZERO, is_of_units=True)
        k.add(ir.Declare(found))
        if self.streams.channel_tiles > 1:
            of_tile = self.part * (self.streams.packed_units * WORDS)
            found = ir.Pointer("of_tile", found, of_tile, is_of_units=True)
            k.add(ir.Declare(found))
        return found

    # items

    def enter(self, k: Builder) -> None:
        """A role: its first item by an int, which nvcc 13.0 divides otherwise."""
        self.first_item = k.let("block", Place("block", self.blocks), "int") // self.scene.parts

    @contextmanager
    def items(self, k: Builder) -> Iterator[Item]:
        """Of a block."""
        body, step = list[ir.Node](), Number(self.scene.blocks_a_part)
        with k.loop("item", self.first_item, Number(self.streams.items), step, "int") as number:
            item = self.item(number)
            with k.apart(body):
                yield item
            k.add(*ir.needed(item.lets, tuple(body)), *body)

    def item(self, number: Index) -> Item:
        streams, lets = self.streams, list[ir.Let]()
        image, *places = decoded(number, (streams.of.batch, *streams.places))
        sizes = [streams.walk, *streams.box[1:]] if streams.is_walked else streams.box
        names = [f"box_{dim}" for dim in self.dims]
        if streams.is_walked:
            names[0] = "first_plane"
        found = [image, *(at * size for at, size in zip(places, sizes, strict=True))]
        if streams.flat:
            run = places[-2] * streams.flat
            names[-1], found[-2], found[-1] = "first", run // streams.row_pitch, run % streams.row_pitch
        placed = list[Index]()
        for name, index in zip(("n", *names), found, strict=True):
            if not isinstance(index, Number):
                lets.append(ir.Let(Variable(name, "int"), index))
                index = lets[-1].variable
            placed.append(index)
        planes = self._planes_of(placed[1])
        if not isinstance(planes, Number):
            lets.append(ir.Let(Variable("planes", "int"), planes))
            planes = lets[-1].variable
        first: Index = ZERO
        if streams.flat:
            first, placed[-1] = placed[-1], ZERO
        return Item(number, placed[0], tuple(placed[1:]), planes, tuple(lets), first)

    def _planes_of(self, first: Index) -> Index:
        streams = self.streams
        if not streams.is_walked:
            return Number(1)
        if streams.boxes[0] % streams.walk == 0:
            return Number(streams.walk)
        return Smaller(Number(streams.walk), Number(streams.boxes[0]) - first)
