"""What all warpgroups of a weight's gradient agree on: tensors, stages of planes, which items a block adds up."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from crucible.algebra.buffer import Buffer
from crucible.algebra.convolution.fused import arithmetic
from crucible.algebra.program import Operand
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ZERO, Index, Number, Place, Size, Smaller, Variable
from crucible.kernel.places import ITEM_BYTES
from crucible.kinds.convolution.walks.frame import UNIT
from crucible.kinds.indices import decoded
from crucible.schedule.convolution.warpgroup.walks import ROWS, WARPS
from crucible.schedule.convolution.warpgroup.weight_shape import COLUMNS, TEAMS
from crucible.schedule.convolution.warpgroup.weight_walks import WeightWalks

CONSUMERS = TEAMS * WARPS * 32
"""Threads that multiply."""
Box = tuple[Index, Index, Index]
"""Where an item begins: its plane, row and column."""


@dataclass(frozen=True)
class Item:
    """A box of positions, by its number."""

    image: Index
    box: Box
    lets: tuple[ir.Let, ...]
    """What text has to name of these, where it reads them."""


class Frame:
    """One kernel while it is made."""

    def __init__(self, walks: WeightWalks, source: Operand, grad: Operand, partial: Buffer) -> None:
        self.walks, self.operands = walks, (source, grad)
        self.math = arithmetic(source.dtype, exact=False, depth=0)
        self.held = ir.HELD[self.math]
        """Of words in registers."""
        read = math.prod((*walks.of.in_shape[:2], *walks.extents))
        self.source = ir.Tensor(source.name, source.dtype, "read", read)
        self.grad = ir.Tensor(grad.name, grad.dtype, "read", math.prod(walks.whole.out_shape))
        windows = walks.windows
        self.choices = ir.Tensor(windows.spread.choices, "uint8", "read", read) if windows else None
        self.partial = ir.Tensor(partial.name, "float32", "write", partial.elements)
        self.strides = self._strides("source", source), self._strides("grad", grad)
        self.part_words = Size("part_words", walks.part_words)
        dtype = "tf32" if self.math == "tf32" else source.dtype
        units = Number(walks.slot_units), Number(UNIT // ITEM_BYTES[dtype])
        self.planes = ir.Shared("planes", dtype, units, "planes of input")
        self.brought, raw = self._brought()
        self.ring = ir.Pipeline(
            "ring", (self.planes,), walks.slots, walks.staging_warps * 32, CONSUMERS, window=walks.span, teams=TEAMS,
            is_shared=True, moves=walks.strides[0], fed_by=raw, ends=True,
        )  # fmt: skip
        self.block = Place("block", self.blocks)
        self.first_item: Index = ZERO
        self.first_channel: Index = ZERO
        self.first_input: Index = ZERO
        self.first_tap: Index = ZERO

    @staticmethod
    def _strides(name: str, operand: Operand) -> tuple[Size, Size]:
        """Of images and channels, which may be far apart."""
        image, channel, *_ = operand.strides
        return Size(f"{name}_image_stride", image), Size(f"{name}_channel_stride", channel)

    def _brought(self) -> tuple[ir.Shared, ir.Pipeline | None]:
        """What bulk copies bring."""
        walks, dtype = self.walks, self.source.dtype
        elements = walks.raw_units * UNIT // ITEM_BYTES[dtype]
        tile = ir.Shared("brought", dtype, (Number(elements),), "planes as they lie in memory", at_launch=True)
        threads = walks.staging_warps * 32
        return tile, ir.Pipeline("raw", (tile,), walks.raw, 1, threads) if walks.raw else None

    @property
    def blocks(self) -> int:
        return self.walks.parts * self.walks.blocks_a_part

    @property
    def tensors(self) -> tuple[ir.Tensor, ...]:
        return self.source, self.grad, *([self.choices] if self.choices else []), self.partial

    @property
    def sizes(self) -> tuple[Size, ...]:
        return *self.strides[0], *self.strides[1], self.part_words

    def begin(self, k: Builder) -> None:
        """Which part of the weight is a block's."""
        walks = self.walks
        part = k.named("part", self.block % walks.parts)
        self.first_channel = k.named("first_channel", part // (walks.in_parts * walks.outer_parts) * ROWS)
        first = part // walks.outer_parts % walks.in_parts * (walks.channel_tiles * COLUMNS)
        self.first_input = k.named("first_input", first)
        if walks.outer_parts > 1:
            self.first_tap = k.let("first_tap", part % walks.outer_parts * walks.outer, "int")
        k.add(ir.Declare(self.ring))

    # items

    def enter(self, k: Builder) -> None:
        """A role: its first item by an int, which nvcc 13.0 divides otherwise."""
        self.first_item = k.let("block", self.block, "int") // self.walks.parts

    def item(self, number: Index) -> Item:
        walks, lets = self.walks, list[ir.Let]()
        image, *places = decoded(number, (walks.of.batch, *walks.places))
        sizes = (walks.walk, walks.rows, walks.width)
        found = [image, *(at * size for at, size in zip(places, sizes, strict=True))]
        placed = list[Index]()
        for name, index in zip(("n", "first_plane", "box_h", "box_w"), found, strict=True):
            if not isinstance(index, Number):
                lets.append(ir.Let(Variable(name, "int"), index))
                index = lets[-1].variable
            placed.append(index)
        return Item(placed[0], (placed[1], placed[2], placed[3]), tuple(lets))

    @contextmanager
    def items(self, k: Builder) -> Iterator[Item]:
        """Of a block."""
        walks, body = self.walks, list[ir.Node]()
        with k.loop("item", self.first_item, Number(walks.items), Number(walks.blocks_a_part), "int") as number:
            item = self.item(number)
            with k.apart(body):
                yield item
            k.add(*(each for each in item.lets if ir.mentions(tuple(body), each.variable)), *body)

    def steps(self, windows: Index, item: Variable, placed: Item) -> ir.Steps:
        """The same one by one."""
        items, by = Number(self.walks.items), Number(self.walks.blocks_a_part)
        return ir.Steps("next", item, self.first_item, items, by, placed.lets, Variable("t", "int"), windows)

    def planes_of(self, item: Item) -> Index:
        """Of positions, of an item."""
        walks, planes = self.walks, self.walks.outputs[0]
        if planes % walks.walk == 0:
            return Number(walks.walk)
        return Smaller(Number(walks.walk), Number(planes) - item.box[0])

    def read_planes(self, item: Item) -> Index:
        """Of input."""
        stride, span = self.walks.strides[0], self.walks.span
        return self.planes_of(item) * stride + (span - stride)

    def steps_of(self, item: Item) -> Index:
        """Of a plane: those that have positions."""
        walks = self.walks
        if walks.outputs[1] % walks.rows == 0:
            return Number(walks.steps)
        left = Number(walks.outputs[1]) - item.box[1] + (walks.step_rows - 1)
        return Smaller(Number(walks.steps), left // walks.step_rows)

    def reads(self, position: Index, dim: int) -> Index:
        """From a position to the first that its taps read."""
        first = self.walks.taps[dim].first
        position = position * self.walks.strides[dim]
        return position - -first if first < 0 else position + first
