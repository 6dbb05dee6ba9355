"""What becomes of a plane's products: the chain runs where they are, and its results leave run by run."""

from __future__ import annotations

from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ONE, ZERO, Compare, Condition, Either, Index, Number, Smaller, Variable
from crucible.kernel.places import ITEM_BYTES
from crucible.kinds.convolution.walks.frame import UNIT, WORDS, Frame, Item
from crucible.kinds.indices import total
from crucible.kinds.values import inputs_of
from crucible.write.convolution.fused import PRODUCT
from crucible.write.convolution.rows import Rows
from crucible.write.convolution.warpgroup.walks import ROWS

SLABS = Number(2)
"""Channels of a thread's products: one, and that + 8."""
CHANNELS = 16
"""Of a warp."""
TOGETHER = 4
"""Rows, or some of short rows, that stand in the code one behind the other. Sixteen loads and then their stores took
6 % more of P90's forward."""


class Leaving:
    """It while it is made."""

    def __init__(self, frame: Frame, k: Builder, lane: Index, warp: Index, first_channel: Index) -> None:
        self.frame, self.k, self.walks, self.lane = frame, k, frame.walks, lane
        self.dtype = frame.result.tensor.dtype
        self.vector = UNIT // ITEM_BYTES[self.dtype]
        pitch = Number(self.walks.pitch // WORDS * self.vector)
        note = "of this warp, for 16 channels"
        self.tile = ir.Shared("tile", self.dtype, (Number(CHANNELS), pitch), note, at_launch=True, per_warp=True)
        self.own_channel = first_channel + warp % 4 * CHANNELS
        """The first of a warp."""
        strides = tuple(each.value for each in frame.result.strides)
        self.runs = Rows(self.walks, (strides,), frame.dims, self.vector)

    def begin(self) -> None:
        """What a thread knows of its channels."""
        k, frame = self.k, self.frame
        k.add(ir.Declare(self.tile))
        self.channel = k.let("channel", self.own_channel + self.lane // 4, "int")
        self.values = {name: ir.Fragment(f"{name}_values", "float32", (SLABS,)) for name in frame.operands}
        last = Number(frame.conv.correlation.out_channels - 1)
        for name, laid in frame.operands.items():
            k.add(ir.Declare((self.values[name],)))
            with k.unrolled("i", SLABS) as i:
                at = Smaller(self.channel + i * 8, last) * laid.strides[1]
                k.add(ir.Load(ir.Element(self.values[name], (i,)), ir.Global(laid.tensor, at)))

    def leave(self, item: Item, sums: ir.Fragment) -> None:
        """Of a plane."""
        k = self.k
        left = self._left(item)
        with k.unrolled("i", SLABS) as i, k.when(self.frame.channels_inside(self.channel + i * 8)):
            self._take(i)
            with k.unrolled("j", Number(self.walks.columns_of_b // 8)) as j:
                self._eight(sums, i, j)
        k.add(ir.Sync(of="warp"))
        with k.scope():
            self._stores(item, left)
        k.add(ir.Sync(of="warp"))

    # the chain

    def _take(self, i: Index) -> None:
        """What the chain reads of a channel, once: read where it is used nvcc 13.0 makes other code of it."""
        self.of_channel = {name: ir.Fragment(f"{name}_value", "float32") for name in self.values}
        for name, values in self.values.items():
            into = ir.Element(self.of_channel[name])
            self.k.add(ir.Convert(into, ir.Element(values, (i,)), declares=True))

    @property
    def _together(self) -> int:
        """Neighbours of a lane that go to the tile at once: one, where a row's end or an odd width may part them."""
        return 2 if self.walks.plane[1] % 2 == self.walks.box[-1] % 2 == 0 else 1

    def _eight(self, sums: ir.Fragment, i: Index, j: Index) -> None:
        """Of eight positions a thread has two neighbours, of each channel."""
        k, pair, first = self.k, Number(2), j * 4 + i * 2
        if self._together == 1:
            with k.unrolled("k", pair) as n:
                row, inside = self._position(i, j, n)
                value = self._made(ir.Element(sums, (first + n,)))
                with k.when(inside):
                    k.add(ir.Store(value, ir.InShared(self.tile, row)))
            return
        row, inside = self._position(i, j, ZERO)
        pack = ir.Fragment("pack", self.dtype, (pair,), True)
        k.add(ir.Declare((pack,)))
        with k.unrolled("k", pair) as n:
            k.add(ir.Convert(ir.Element(pack, (n,)), self._made(ir.Element(sums, (first + n,)))))
        with k.when(inside):
            k.add(ir.Store(ir.Element(pack), ir.InShared(self.tile, row)))

    def _position(self, i: Index, j: Index, n: Index) -> tuple[tuple[Index, Index], Condition]:
        """Its place in the tile, and the tests that it is one of the box: those between two rows of outputs are not.
        Eight positions may begin in the row before: divided so, both are constants but for the lane's part."""
        k, walks = self.k, self.walks
        width, outputs = walks.plane[1], walks.box[-1]
        rows = walks.outputs_a_plane // outputs
        column = k.let("column", j * 8 % width + self.lane % 4 * 2 + n, "int")
        beyond = (Compare(">=", column, Number(width)),)
        row_in = k.let("row_in", j * 8 // width + Either(beyond, ONE, ZERO), "int")
        w_in = k.let("w_in", column - Either(beyond, Number(width), ZERO), "int")
        inside = [Compare("<", w_in, Number(outputs))] if width > outputs else []
        inside += [Compare("<", row_in, Number(rows))] if walks.columns_of_b > rows * width else []
        return (self.lane // 4 + i * 8, row_in * outputs + w_in), tuple(inside)

    def _made(self, product: ir.Element) -> ir.Element:
        (result,) = self.frame.scene.elementwise
        value = ir.Element(ir.Fragment(f"{result.name}_is", "float32"))

        def leaf(name: str) -> ir.Element:
            return product if name == PRODUCT else ir.Element(self.of_channel[name])

        self.k.add(ir.Chain(((value, result.expr),), inputs_of((result.expr,), leaf)))
        return value

    # runs

    def _left(self, item: Item) -> Index | None:
        """Pieces of a run that are inside of the output, where not all always are."""
        runs, first = self.runs, self.runs.first
        size, outputs = runs.box[first], runs.outputs[first]
        if self.walks.boxes[first] * size <= outputs:
            return None
        inside = Smaller(Number(size), Number(outputs) - item.starts[first])
        return self.k.let("left", inside * runs.inner, "int")

    def _stores(self, item: Item, left: Index | None) -> None:
        """A warp's rows of the tile, whole ones or several at a time."""
        k, runs, laid, lane = self.k, self.runs, self.frame.result, self.lane
        pieces = runs.run // self.vector
        lanes = next(lanes for lanes in (2, 4, 8, 16, 32) if lanes >= min(pieces, 32))
        rows, rounds = 32 // lanes, -(-pieces // lanes)
        to = ir.Pointer("to", laid.tensor, self._begin(item), is_of_units=True)
        k.add(ir.Declare(to))
        outer, channels = CHANNELS // rows, self.frame.conv.correlation.out_channels
        there = k.let("rows", Number(channels) - self.own_channel, "int") if channels % ROWS else ZERO
        r = Variable("r", "int")
        body = list[ir.Node]()
        with k.apart(body):
            row = r if rows == 1 else r + lane // lanes
            with k.unrolled("j", Number(rounds)) as j:
                piece = (lane if lanes == 32 else lane % lanes) + j * lanes
                tests: list[Compare] = []
                if left is not None:
                    tests.append(Compare("<", piece, left // self.vector))
                elif pieces % lanes:
                    tests.append(Compare("<", piece, Number(pieces)))
                tests += [Compare("<", row, there)] if channels % ROWS else []
                with k.when(tuple(tests)):
                    target = ir.Global(to, row * laid.strides[1] + piece * self.vector)
                    k.add(ir.Copy(target, ir.InShared(self.tile, (row, piece * self.vector))))
        together = min(outer, TOGETHER)
        k.add(ir.For(r, ZERO, Number(CHANNELS), Number(rows), tuple(body), outer == together, together))

    def _begin(self, item: Item) -> Index:
        """Of the runs of a warp's first channel."""
        strides, first = self.frame.result.strides, self.runs.first
        terms = [item.image * strides[0], self.own_channel * strides[1]]
        terms += [item.starts[dim] * strides[2 + dim] for dim in range(first)]
        if self.walks.boxes[first] > 1:
            terms.append(item.starts[first] * strides[2 + first])
        return total(terms)
