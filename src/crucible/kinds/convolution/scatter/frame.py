"""What all warpgroups of a convolution of few output channels agree on: tensors, shared memory, which items a block
makes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from crucible.algebra.convolution.fused import Convolution
from crucible.gpus import Gpu
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ONE, ZERO, Index, Number, Place, Size, Smaller, clipped
from crucible.kinds.convolution.scene import Scene
from crucible.kinds.convolution.vectors import laid
from crucible.kinds.indices import decoded
from crucible.schedule.convolution.warpgroup.packing import packed
from crucible.schedule.convolution.warpgroup.scatter import CHANNELS, TEAMS, UNIT, Scatter
from crucible.schedule.convolution.warpgroup.walks import THREADS


@dataclass(frozen=True)
class Item:
    """A box of outputs, and the inputs that those need."""

    image: Index
    starts: tuple[Index, ...]
    """Its first output along each dim."""
    rows: tuple[Index, Index]
    """Of the outer dim, the first input and the one behind the last."""
    planes: tuple[Index, Index]
    """The same of the inner dim."""
    column: Index
    """The first input of a row."""


class Frame:
    """One kernel while it is made."""

    def __init__(self, conv: Convolution, division: Scatter, gpu: Gpu) -> None:
        self.conv, self.division = conv, division
        self.scene = Scene(conv, division, packed(conv.name, division), gpu)
        self.dims = self.scene.dims
        self.source = laid(conv.source, division.of.in_shape, self.dims)
        self.packed = ir.Tensor(self.scene.packed.name, "int32", "read", self.scene.packed.elements)
        self.operands = {each.name: laid(each, conv.made_shape, self.dims) for each in self.scene.operands}
        self.results = {each.name: laid(each, conv.made_shape, self.dims) for each in self.scene.elementwise}
        units = (Number(division.words * division.weight_units), Number(UNIT))
        self.weights = ir.Shared("weights", "tf32", units, at_launch=True)
        self.stage = ir.Shared("staged", "float32", (Number(division.slot_words),), "two rows of inputs")
        self.slots = ir.Pipeline(
            "slots", (self.stage,), division.slots, THREADS, TEAMS * THREADS, in_bulk=True, relays=TEAMS
        )
        rows, finished = Number(division.rows_words), Number(division.finished_words)
        about = "sums that more is added to"
        self.rows = ir.Shared("rows", "float32", (rows,), about, at_launch=True, by_one=True)
        self.finished = ir.Shared("finished", "float32", (finished,), "two of each warpgroup", True, by_one=True)
        self.part: Index = ZERO

    @property
    def blocks(self) -> int:
        return self.scene.parts * self.scene.blocks_a_part

    @property
    def tensors(self) -> tuple[ir.Tensor, ...]:
        written = (each.tensor for each in self.results.values())
        return self.source.tensor, self.packed, *(each.tensor for each in self.operands.values()), *written

    @property
    def sizes(self) -> tuple[Size, ...]:
        every = (self.source, *self.operands.values(), *self.results.values())
        return tuple(stride for each in every for stride in each.strides)

    def begin(self, k: Builder) -> None:
        """Which channels are a block's, and their weights."""
        division, units = self.division, self.division.weight_words // UNIT
        self.part = k.let("part", Place("block", self.blocks) % self.scene.parts, "int")
        self.first_channel = k.let("first_channel", self.part * CHANNELS, "int")
        k.add(ir.Declare(self.weights))
        with k.loop("p", Place("thread", division.threads), Number(units), Number(division.threads), "int") as p:
            all_ = ir.Pointer("packed", self.packed, ZERO, is_of_units=True)
            own = ir.Pointer("own_packed", all_, self.part * (units * UNIT), is_of_units=True)
            k.add(ir.Declare(all_), ir.Declare(own))  # before the loop, nvcc 13.0 makes other code of it
            k.add(ir.Copy(ir.InShared(self.weights, (p, ZERO)), ir.Global(own, p * UNIT)))
        k.add(ir.Declare(self.slots))

    @contextmanager
    def items(self, k: Builder) -> Iterator[Item]:
        division, parts = self.division, self.scene.parts
        boxes, first = math.prod(division.boxes), Place("block", self.blocks) // parts
        step = Number(self.scene.blocks_a_part)
        with k.loop("item", first, Number(division.items), step, "int") as item:
            n = k.let("n", item // boxes, "int")
            places = decoded(item if division.of.batch == 1 else item % boxes, division.boxes)
            sizes = zip(self.dims, places, division.box, division.boxes, strict=True)
            starts = [
                k.let(f"box_{dim}", place * size if count > 1 else ZERO, "int") for dim, place, size, count in sizes
            ]
            rows = self._range(k, "row", division.outer, starts)
            planes = (ZERO, ONE) if division.inner is None else self._range(k, "plane", division.inner, starts)
            before = -division.axis(division.last).shifts[0]
            yield Item(n, tuple(starts), rows, planes, k.let("first_column", clipped(starts[-1], before), "int"))

    @contextmanager
    def chunks(self, k: Builder) -> Iterator[Index]:
        """Of channels, a stage each."""
        if self.division.chunks == 1:
            yield ZERO
            return
        with k.loop("chunk", ZERO, Number(self.division.chunks), type="int") as chunk:
            yield chunk

    def _range(self, k: Builder, name: str, dim: int, starts: Sequence[Index]) -> tuple[Index, Index]:
        """Of the inputs along a dim."""
        division, axis = self.division, self.division.axis(dim)
        last = starts[dim] + (division.size(dim) + axis.shifts[-1])
        return (
            k.let(f"first_{name}", clipped(starts[dim], -axis.shifts[0]), "int"),
            k.let(f"last_{name}", Smaller(Number(axis.extent), last), "int"),
        )

    def begins(self, item: Item, channel: Index, row: Index, plane: Index) -> Index:
        """The first element that is read of a channel in a row, as an offset in the source."""
        division, strides = self.division, self.source.strides
        index = item.image * strides[0] + channel * strides[1] + row * strides[2 + division.outer]
        if division.inner is not None:
            index = index + plane * strides[2 + division.inner]
        return index + item.column

    def planes_of(self, item: Item) -> Index:
        """Places of the inner dim that a box has."""
        division = self.division
        if division.inner is None:
            return ONE
        outputs, size = division.axis(division.inner).outputs, division.size(division.inner)
        return smaller(Number(size), Number(outputs) - item.starts[division.inner]) if outputs % size else Number(size)


def smaller(one: Index, other: Index) -> Index:
    if isinstance(one, Number) and isinstance(other, Number):
        return Number(min(one.value, other.value))
    return Smaller(one, other)
