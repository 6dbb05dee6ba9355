"""What all warpgroups of a convolution agree on: tensors, stages of planes, which items a block makes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from crucible.algebra.buffer import Buffer
from crucible.algebra.convolution.fused import Convolution
from crucible.algebra.program import Operand, Result
from crucible.gpus import Gpu
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import Compare, Condition, Index, Number, Place, Size, Smaller
from crucible.kernel.places import ITEM_BYTES
from crucible.kinds.convolution.scene import Scene
from crucible.kinds.convolution.vectors import Laid, laid
from crucible.kinds.indices import decoded
from crucible.schedule.convolution.warpgroup.packing import packed
from crucible.schedule.convolution.warpgroup.walks import THREADS, Walks

UNIT = 16
"""Bytes that are moved at once, and that tensor cores take of a row."""
WORDS = 4
"""Of a unit."""


@dataclass(frozen=True)
class Item:
    """Boxes of an item of work."""

    number: Index
    image: Index
    starts: tuple[Index, ...]
    """Where its box begins along each dim; of three the first plane."""
    planes: Index
    """Of outputs."""


class Frame:
    """One kernel while it is made."""

    def __init__(self, conv: Convolution, walks: Walks, gpu: Gpu) -> None:
        self.conv, self.walks = conv, walks
        self.scene = Scene(conv, walks, packed(conv.name, walks), gpu)
        self.dims = self.scene.dims
        self.source = laid(conv.source, conv.correlation.in_shape, self.dims)
        self.first_item: Index = Place("block", self.blocks) // self.scene.parts
        """Of a block, which takes every so many."""
        self.item_step: Index = Number(self.scene.blocks_a_part)
        self.packed = ir.Tensor(self.scene.packed.name, "int32", "read", self.scene.packed.elements)
        self.operands = {each.name: self._laid(each) for each in self.scene.operands}
        self.results = {each.name: self._laid(each) for each in self.scene.elementwise}
        self.parts = self._parts()
        self.part_tensors = tuple(ir.Tensor(each.name, each.dtype, "write", each.elements) for each in self.parts)
        """Of sums over all images, and then of those of an image."""
        self.dtype = {"float32": "tf32"}.get(conv.source.dtype, conv.source.dtype)
        """Of what tensor cores multiply."""
        units = (Number(walks.weight_units), Number(self.unit))
        self.weights = ir.Shared("weights", self.dtype, units, "of a tile of channels", at_launch=True)
        self.planes = self._planes()
        self.ring = self._ring()

    def _laid(self, tensor: Operand | Result) -> Laid:
        return laid(tensor, self.conv.made_shape, self.dims)

    def _parts(self) -> tuple[Buffer, ...]:
        """Of sums: [a warpgroup of a block][channels], those that fill the last tile included. And of reductions."""
        elements = self.scene.blocks_a_part * self.walks.groups * self.walks.padded_channels
        sums = (Buffer(f"{each.name}_parts", "float32", elements) for each in self.scene.sums)
        return (*sums, *self.scene.row_parts)

    def _planes(self) -> ir.Shared:
        walks = self.walks
        shape = (walks.words, walks.plane_units // walks.points, walks.points, self.unit)
        note = "planes of input, of higher words and of lower ones" if walks.exact else "planes of input"
        return ir.Shared("planes", self.dtype, tuple(map(Number, shape)), note)

    def _ring(self) -> ir.Pipeline:
        walks, (rows, columns) = self.walks, self.walks.plane
        return ir.Pipeline(
            "ring", (self.planes,), walks.slots, THREADS, walks.groups * THREADS, fillers=walks.stagers,
            window=walks.span, teams=walks.groups, brings=walks.loads > 0, slack=walks.points - rows * columns,
        )  # fmt: skip

    @property
    def unit(self) -> int:
        """Numbers of a unit."""
        return UNIT // ITEM_BYTES[self.dtype]

    @property
    def tensors(self) -> tuple[ir.Tensor, ...]:
        written = (*(each.tensor for each in self.results.values()), *self.part_tensors)
        return self.source.tensor, self.packed, *(each.tensor for each in self.operands.values()), *written

    @property
    def sizes(self) -> tuple[Size, ...]:
        every = (self.source, *self.operands.values(), *self.results.values())
        return tuple(stride for each in every for stride in each.strides)

    @property
    def blocks(self) -> int:
        return self.scene.parts * self.scene.blocks_a_part

    @contextmanager
    def items(self, k: Builder) -> Iterator[Item]:
        """Of a block, each a box of outputs of 64 channels, or such boxes of several planes."""
        walks = self.walks
        with k.loop("item", self.first_item, Number(walks.items), self.item_step, "int") as item:
            image, *places = decoded(item, (walks.of.batch, *walks.places))
            n = k.let("n", image, "int")
            sizes = [walks.walk, *walks.box[1:]] if len(walks.box) == 3 else walks.box
            starts = []
            for dim, place, size in zip(self.dims, places, sizes, strict=True):
                walked = len(self.dims) == 3 and dim == self.dims[0]
                starts.append(k.named("first_plane" if walked else f"box_{dim}", place * size))
            yield Item(item, n, tuple(starts), self._planes_of(starts[0]))

    def _planes_of(self, first: Index) -> Index:
        walks = self.walks
        if len(walks.box) < 3:
            return Number(1)
        if walks.boxes[0] % walks.walk == 0:
            return Number(walks.walk)
        return Smaller(Number(walks.walk), Number(walks.boxes[0]) - first)

    def below(self, at: Index, size: int, whole: int) -> Condition:
        """That it is inside, where not all is."""
        return (Compare("<", at, Number(size)),) if size % whole else ()

    def channels_inside(self, channel: Index) -> Condition:
        return self.below(channel, self.conv.correlation.out_channels, self.walks.part_channels)
