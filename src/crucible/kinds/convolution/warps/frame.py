"""What all parts of a convolution's kernel by warps agree on: tensors, shared memory, where threads are, items."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager

from crucible.algebra.buffer import Buffer
from crucible.algebra.convolution.fused import Convolution
from crucible.algebra.program import Operand, Result
from crucible.gpus import Gpu
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ZERO, Index, Number, Place, Size, Smaller
from crucible.kinds.convolution.scene import Scene
from crucible.kinds.convolution.staged import Item
from crucible.kinds.convolution.vectors import Laid, laid
from crucible.kinds.indices import decoded
from crucible.schedule.convolution.halo import THREADS
from crucible.schedule.convolution.packing import packed
from crucible.schedule.convolution.tiling import Tiling

UNIT = 4
"""Words of sixteen bytes."""


class Frame:
    """One kernel while it is made."""

    def __init__(self, conv: Convolution, tiling: Tiling, gpu: Gpu) -> None:
        self.conv, self.tiling, self.of = conv, tiling, tiling.of
        self.scene = Scene(conv, tiling, packed(conv.name, tiling), gpu)
        self.k, self.kept, self.dims = Builder(keeps_loops=True), ir.HELD[conv.math], self.scene.dims
        self.source = self._source()
        self.choices = self._of_windows(self.scene.choices[0], "uint8") if self.scene.choices else None
        self.packed = ir.Tensor(self.scene.packed.name, "int32", "read", self.scene.packed.elements)
        self.operands = {each.name: self._laid(each) for each in self.scene.operands}
        self.results = {each.name: self._laid(each) for each in self.scene.elementwise}
        self.partials = [self._written(each) for each in self.scene.partials]
        self.row_parts = [self._written(each) for each in self.scene.row_parts]
        self.weights, halo = (self._words(name) for name in ("weights", "halo"))
        coming = tuple(self._words(f"coming_{name}") for name in ("weights", "halo")) if tiling.ahead else ()
        stay = tiling.is_resident
        tiles, coming = ((halo,), coming[1:]) if stay else ((self.weights, halo), coming)
        self.turns = ir.Turns("turns", tiles, coming, each_turns=True)
        self.halo = halo
        self.part_stride = Size("part_stride", self.scene.parts * tiling.channels)
        """From the parts of reductions that one item has to those of the next."""

    def _words(self, name: str) -> ir.Shared:
        """Weights stay at the beginning of what a launch asks for, or they turn with inputs."""
        is_weights = name.endswith("weights")
        count = Number(self.tiling.weight_words if is_weights else self.tiling.turn_words)
        return ir.Shared(name, self.kept, (count,), at_launch=is_weights and self.tiling.is_resident)

    def _source(self) -> ir.Tensor:
        return self._of_windows(self.conv.source.name, self.conv.source.dtype)

    def _of_windows(self, name: str, dtype: str) -> ir.Tensor:
        """What lies like the source: over the input, or over the windows that are spread over it."""
        shape, spread = self.conv.correlation.in_shape, self.conv.spread
        whole = [n // size for n, size in zip(shape[2:], spread.sizes, strict=True)] if spread else shape[2:]
        sizes = zip((*shape[:2], *whole), self.conv.source.strides, strict=True)
        return ir.Tensor(name, dtype, "read", 1 + sum((size - 1) * stride for size, stride in sizes))

    @staticmethod
    def _written(buffer: Buffer) -> ir.Tensor:
        return ir.Tensor(buffer.name, buffer.dtype, "write", buffer.elements)

    def _laid(self, tensor: Operand | Result) -> Laid:
        """What a row has in common lies as it is told, so that it is read once where a batch is one image."""
        return laid(tensor, self.conv.made_shape, self.dims, is_told=not any(tensor.strides[2:]))

    @property
    def tensors(self) -> tuple[ir.Tensor, ...]:
        read = (self.source, *((self.choices,) if self.choices else ()), self.packed)
        laid = (*self.operands.values(), *self.results.values())
        return (*read, *(each.tensor for each in laid), *self.partials, *self.row_parts)

    @property
    def sizes(self) -> tuple[Size, ...]:
        laid = (*self.operands.values(), *self.results.values())
        return tuple(stride for each in laid for stride in each.strides)

    @property
    def blocks(self) -> int:
        return self.scene.parts * self.scene.blocks_a_part

    # threads

    def begin(self) -> None:
        """Which lane, warp and team a thread is of."""
        k, tiling = self.k, self.tiling
        self.lane = k.let("lane", Place("thread", THREADS) % 32, "int")
        self.warp = k.let("warp", Place("thread", THREADS) // 32, "int")
        self.column = k.named("column", self.warp % tiling.columns)
        self.row = k.named("row", self.warp // tiling.columns % tiling.rows)
        count = len(tiling.teams)
        self.team = k.let("team", self.warp // (tiling.columns * tiling.rows), "int") if count > 1 else ZERO

    def begin_channels(self) -> None:
        """Of which tile of channels of which group a block is."""
        k, tiling = self.k, self.tiling
        self.part = k.named("part", Place("block", self.blocks) % self.scene.parts)
        apart = tiling.of.groups > 1
        self.group = k.named("group", self.part // tiling.channel_tiles) if apart else ZERO
        self.first_channel = k.named("first_channel", self.part % tiling.channel_tiles * tiling.channels)

    def position(self, j: Index) -> Index:
        """The first of a lane's two positions of tile j of its warp's sums."""
        return (self.column * self.tiling.n_tiles + j) * 8 + self.lane % 4 * 2

    @property
    def positions(self) -> int:
        """Of a box."""
        return math.prod(self.tiling.box)

    @property
    def some_beyond(self) -> bool:
        """Whether tiles reach beyond the box."""
        return self.tiling.columns * self.tiling.n_tiles * 8 > self.positions

    # items

    def begin_items(self) -> None:
        """Which item is a block's first. Of an unsigned number nvcc 13.0 makes other code than of an int."""
        self.first_item: Index = Place("block", self.blocks)
        if self.scene.parts > 1:
            self.first_item = self.k.let("block", self.first_item, "int") // self.scene.parts

    def item(self, number: Index) -> Item:
        image, *boxes = decoded(number, (self.of.batch, *self.tiling.boxes))
        places = zip(self.dims, boxes, self.tiling.box, strict=True)
        image = self.k.named("n", image)
        return Item(image, tuple(self.k.named(f"box_{dim}", at * size) for dim, at, size in places))

    def among_all(self, channel: Index) -> Index:
        """A channel of the group, counted over all groups."""
        out_channels = self.conv.correlation.out_channels
        return self.group * out_channels + channel if self.of.groups > 1 else channel

    def clamped(self, channel: Index) -> Index:
        """Of the group, where a tile has more."""
        last = self.conv.correlation.out_channels - 1
        return Smaller(channel, Number(last)) if self.conv.correlation.out_channels % self.tiling.channels else channel

    def of_row(self, laid: Laid, image: Index, channel: Index) -> ir.Global:
        """What an operand has for all outputs of an image's channel."""
        return ir.Global(laid.tensor, image * laid.strides[0] + channel * laid.strides[1])

    def by_threads(self, name: str, count: int) -> AbstractContextManager[Index]:
        return self.k.loop(name, Place("thread", THREADS), Number(count), Number(THREADS), "int")

    def value(self, name: str, dtype: str = "float32", sizes: Sequence[int] = ()) -> ir.Fragment:
        return ir.Fragment(name, dtype, tuple(map(Number, sizes)))
