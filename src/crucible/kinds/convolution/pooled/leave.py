"""What becomes of windows when all their elements have come.

A lane has two neighbouring windows of a channel in each tile of eight, which it stores itself, four lanes 32 bytes in a
row where they are float32. Choices are a byte each: four lanes exchange those of four tiles, and store 8 bytes each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from crucible.algebra.convolution.windows import CHOICE
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ZERO, Compare, Condition, Index, Number, Smaller
from crucible.kernel.places import ITEM_BYTES
from crucible.kinds.convolution.pooled.frame import PooledFrame
from crucible.kinds.convolution.pooled.turning import Turning
from crucible.kinds.convolution.pooled.window import Windows
from crucible.kinds.convolution.staged import pack
from crucible.kinds.convolution.vectors import Laid, Values, chained
from crucible.kinds.indices import total

TILES, EIGHT = 4, 8
"""Whose choices are stored at once; windows of a tile, and bytes of a lane's choices."""


class Leaving:
    """It while it is made."""

    def __init__(self, frame: PooledFrame, k: Builder, lane: Index, warp: Index) -> None:
        self.frame, self.k, self.walks, self.lane, self.warp = frame, k, frame.walks, lane, warp
        self.turning = Turning(frame, k)
        self.windows = Windows(frame, k, self.turning)
        of_rows = frame.of_rows
        self.each = {name: laid for name, laid in frame.operands.items() if name not in of_rows}
        """Operands with an element for each window."""
        self.choices = {each.name for each in frame.scene.elementwise if each.expr is CHOICE}
        self.tensors = {**frame.results, **self.each}
        """All that are laid over windows."""
        self.together = self._together()
        self.exchanged = {name: laid for name, laid in frame.results.items() if self._is_exchanged(laid)}
        """Results of a byte that leave by eights."""

    def _together(self) -> int:
        """Neighbours that are all inside or none, and that begin at a multiple of their size in every tensor."""
        sizes = [2, self.frame.conv.made_shape[-1], self.walks.box[-1]]
        for each in self.tensors.values():
            *outer, last = (stride.value for stride in each.strides)
            if last != 1:
                return 1
            sizes += outer
        return math.gcd(*sizes)

    def _is_exchanged(self, laid: Laid) -> bool:
        walks, strides = self.walks, [stride.value for stride in laid.strides[:-1]]
        if self.together < 2 or ITEM_BYTES[laid.tensor.dtype] > 1 or walks.row_pitch % (EIGHT * TILES):
            return False
        return math.gcd(self.frame.conv.made_shape[-1], walks.box[-1], *strides) % EIGHT == 0

    # around planes

    def ask(self) -> None:
        """What a warp that multiplies knows of its channels, whatever the image."""
        lanes = 8 * self.walks.channels_a_lane
        self.channel = self.k.let("channel", self.frame.first_channel + self.warp % 4 * lanes + self.lane // 4, "int")
        for name in self.frame.of_rows:
            self.windows.values[name] = ir.Fragment(f"{name}_values", "float32", self.windows.shape[:1])
            if not self.frame.operands[name].strides[0].value:
                self._load(name, ZERO)

    def begin(self) -> None:
        self.turning.begin({name: self.windows.values[name] for name in self.turning.asked}, self.windows.shape[0])

    def begin_item(self, image: Index) -> None:
        """And of an image."""
        for name in self.frame.of_rows:
            if self.frame.operands[name].strides[0].value:
                self._load(name, image)

    def _load(self, name: str, image: Index) -> None:
        k, values = self.k, self.windows.values[name]
        k.add(ir.Declare((values,)))
        with k.unrolled("i", self.windows.shape[0]) as i:
            k.add(ir.Load(ir.Element(values, (i,)), self.frame.of_row(name, self.channel + i * 8, image)))

    # a plane

    def leave(self, image: Index, starts: Sequence[Index]) -> None:
        """Chains of all its windows."""
        k, walks = self.k, self.walks
        self.starts, tiles = starts, walks.row_pitch // 8
        with k.unrolled("i", self.windows.shape[0]) as i:
            known = self.windows.of_channel(i)
            places = (image, self.channel + i * 8, *starts)
            self.rows = {name: self._row(name, laid, places) for name, laid in self.tensors.items()}
            k.add(*map(ir.Declare, self.rows.values()))
            self.pairs = {name: ir.Fragment(f"{name}_pairs", "bytes", (Number(TILES),)) for name in self.exchanged}
            k.add(*(ir.Declare((each,)) for each in self.pairs.values()))
            with k.unrolled("j", Number(walks.columns_of_b // 8)) as j:
                row_in = k.named("row_in", j // tiles) if len(walks.box) > 1 else ZERO
                w_in = k.let("w_in", j % tiles * 8 + self.lane % 4 * 2, "int")
                with k.unrolled("g", Number(2 // self.together)) as g:
                    self._neighbours(i, j, g, row_in, w_in if g is ZERO else k.let("at", w_in + g, "int"), known)
                if self.exchanged:
                    with k.when((Compare("==", j % TILES, Number(TILES - 1)),)):
                        self._exchange(i, j, row_in)

    def _row(self, name: str, laid: Laid, places: Sequence[Index]) -> ir.Pointer:
        """Where the plane's windows of a channel begin."""
        at = total([place * stride for place, stride in zip(places, laid.strides, strict=True)])
        return ir.Pointer(f"{name}_row", laid.tensor, at)

    def _neighbours(self, i: Index, j: Index, g: Index, row_in: Index, at: Index, known: Values) -> None:
        """The windows of a lane in a tile that are loaded and stored at once."""
        k, size = self.k, Number(self.together)
        products, choices = pack("products", "float32", size.value), pack("choices", "int32", size.value)
        k.add(ir.Declare((products,)), *([ir.Declare((choices,))] if self.choices else []))
        with k.unrolled("k", size) as n:
            left = ir.Element(choices, (n,)) if self.choices else None
            self.windows.left((i, j * 2 + g + n), ir.Element(products, (n,)), left, known)
        inside = k.test("inside", self._inside(i, row_in, at))
        came = {name: pack(f"{name}_pack", laid.tensor.dtype, size.value) for name, laid in self.each.items()}
        for name, each in came.items():
            k.add(ir.Load(ir.Element(each), self._at(name, row_in, at), inside, declares=True))
        packs = {name: pack(f"{name}_pack", laid.tensor.dtype, size.value) for name, laid in self.frame.results.items()}
        k.add(*(ir.Declare((each,)) for each in packs.values()))
        with k.unrolled("k", size) as n:
            of_place = {name: ir.Element(each, (n,)) for name, each in came.items()}
            made = chained(k, self.frame.conv, ir.Element(products, (n,)), known, of_place)
            for name, each in packs.items():
                left = ir.Element(choices, (n,)) if name in self.choices else made[name]
                k.add(ir.Convert(ir.Element(each, (n,)), left))
        for name, each in packs.items():
            if name in self.pairs:
                k.add(ir.Convert(ir.Element(self.pairs[name], (j % TILES,)), ir.Element(each)))
                continue
            with k.when(inside):
                k.add(ir.Store(ir.Element(each), self._at(name, row_in, at)))

    def _exchange(self, i: Index, j: Index, row_in: Index) -> None:
        """Each of four lanes stores eight neighbours of one of the last tiles."""
        k, tiles = self.k, self.walks.row_pitch // 8
        first = k.let("first", (j % tiles // TILES * TILES + self.lane % 4) * 8, "int")
        for name, pairs in self.pairs.items():
            made = pack(f"{name}_bytes", "uint8", EIGHT)
            k.add(ir.Exchange(ir.Element(made), ir.Element(pairs)))
            with k.when(self._inside(i, row_in, first)):
                k.add(ir.Store(ir.Element(made), self._at(name, row_in, first)))

    def _at(self, name: str, row_in: Index, at: Index) -> ir.Global:
        strides = self.tensors[name].strides
        of_row = row_in * strides[-2] if len(self.walks.box) > 1 else ZERO
        return ir.Global(self.rows[name], of_row + at * strides[-1])

    def _inside(self, i: Index, row_in: Index, at: Index) -> Condition:
        """That windows from there in the row on are there; of those that always are nothing is asked."""
        walks, of, tests = self.walks, self.frame.conv.correlation, list[Compare]()
        *made, last = self.frame.conv.made_shape[2:]
        for dim, (start, size) in enumerate(zip(self.starts, made, strict=False)):
            if walks.boxes[dim] * walks.box[dim] > size:
                there = start + row_in if dim == len(walks.box) - 2 else start
                tests.append(Compare("<", there, Number(size)))
        tests += self.frame.below(self.channel + i * 8, of.out_channels, walks.channels)
        if walks.boxes[-1] > 1 and walks.boxes[-1] * walks.box[-1] > last:
            tests.append(Compare("<", at, Smaller(Number(walks.box[-1]), Number(last) - self.starts[-1])))
        elif min(walks.box[-1], last) < walks.row_pitch:
            tests.append(Compare("<", at, Number(min(walks.box[-1], last))))
        return tuple(tests)
