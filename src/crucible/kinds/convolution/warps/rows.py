"""Rows of the tile of products to memory: the chain runs over them in the order in which outputs lie."""

from __future__ import annotations

import math
from collections.abc import Callable

from crucible.algebra.convolution.fused import is_of_row
from crucible.algebra.program import contiguous
from crucible.kernel import nodes as ir
from crucible.kernel.index import ZERO, Compare, Index, Number, Place, Size, Smaller
from crucible.kinds.convolution.sharing import Sharing
from crucible.kinds.convolution.staged import Item, pack
from crucible.kinds.convolution.vectors import Laid, Vectors, Where, value
from crucible.kinds.convolution.warps.choose import Choose
from crucible.kinds.convolution.warps.frame import Frame
from crucible.kinds.convolution.warps.tile import Tile
from crucible.kinds.indices import decoded, total
from crucible.schedule.convolution.halo import THREADS
from crucible.schedule.convolution.rows import MOST, Rows

WARP = 32


class Leaving:
    """What becomes of an item's products."""

    def __init__(self, frame: Frame, tile: Tile, choose: Choose | None) -> None:
        self.frame, self.k, self.tiling, self.tile, self.choose = frame, frame.k, frame.tiling, tile, choose
        conv, scene = frame.conv, frame.scene
        self.pools_tile = bool(self.tiling.pool) and not self.tiling.pools_registers
        each = [frame.operands[each.name] for each in scene.operands if not is_of_row(each)]
        strides = [tuple(one.value for one in laid.strides) for laid in (*frame.results.values(), *each)]
        self.runs = Rows(self.tiling, tuple(dict.fromkeys(strides)), frame.dims, self._most)
        rows = conv.correlation.out_channels if self.tiling.of.folds else self.tiling.tile_rows
        self.sharing = Sharing(scene, self.runs, rows, THREADS)
        self.vectors = Vectors(self.k, scene, frame.operands, frame.results, self.sharing)
        self.lanes = Size("row_lanes", self.sharing.lanes, "that share a row of the tile", counts=True)
        self.sizes = self.lanes, frame.part_stride
        shape = Number(len(scene.sums)), Number(self.tiling.channels)
        self.totals = ir.Shared("totals", "float32", shape, "of this block's channels", by_one=True)

    @property
    def _most(self) -> int:
        """Neighbours of a thread; of windows as many as have four neighbours in a row of the tile."""
        if self.pools_tile:
            return math.gcd(max(1, MOST // self.tiling.pool[-1]), self.tiling.made_box[-1])
        return 1 if self.tiling.of.folds else MOST

    # sums over batch and space

    def begin(self) -> None:
        k, none, sums = self.k, ir.Fragment("none", "float32"), len(self.frame.scene.sums)
        if not sums:
            return
        k.add(ir.Declare(self.totals), ir.Declare((none,), "sum"))
        for number in map(Number, range(sums)):
            with self.frame.by_threads("p", self.tiling.channels) as p:
                k.add(ir.Store(ir.Element(none), ir.InShared(self.totals, (number, p))))
        k.add(ir.Sync())

    def end(self) -> None:
        """Each block has its own part of a channel's sum."""
        k, channels, parts = self.k, self.tiling.channels, self.frame.scene.parts
        k.add(*([ir.Sync()] if self.frame.partials else []))
        for number, into in enumerate(self.frame.partials):
            total_ = ir.Element(ir.Fragment("total", "float32"))
            with self.frame.by_threads("p", channels) as p:
                k.add(ir.Load(total_, ir.InShared(self.totals, (Number(number), p)), declares=True))
                of_block = Place("block", self.frame.blocks) // parts * (parts * channels)
                k.add(ir.Store(total_, ir.Global(into, of_block + self.frame.part * channels + p)))

    # rows

    def leave(self, number: Index, item: Item) -> None:
        """16 channels of each warp at a time go through shared memory, so that the chain runs in the order of the
        output's memory."""
        tiling = self.tiling
        self.item, self.number = item, number
        self.tile.declare()
        self.left = self._left()
        if tiling.of.folds:
            self._through(self.tile.all_slices, ZERO)
            return
        with self.k.several("slice", Number(tiling.m_tiles)) as slice_:
            self._through(lambda: self.tile.slice(slice_), slice_)

    def _through(self, place: Callable[[], None], slice_: Index) -> None:
        self.k.add(ir.Sync())
        place()
        self.k.add(ir.Sync())
        self._rows(slice_)

    def _rows(self, slice_: Index) -> None:
        """Some lanes take a row."""
        k, lanes, tiling = self.k, self.sharing.lanes, self.tiling
        first = self.frame.warp if lanes == WARP else Place("thread", THREADS) // lanes
        out_channels = self.frame.conv.correlation.out_channels
        with k.loop("r", first, Number(self.sharing.rows), Number(THREADS // lanes), "int") as row:
            local = self._local(row, slice_)
            channel = k.let("channel", self.frame.first_channel + local, "int")
            some = out_channels % tiling.channels > 0 and not tiling.of.folds
            with k.when((Compare("<", channel, Number(out_channels)),) if some else (), is_rest=True):
                self._row(row, local, channel)

    def _local(self, row: Index, slice_: Index) -> Index:
        """The channel of a row, counted from the tile's first."""
        tiling = self.tiling
        if tiling.rows == 1 or tiling.of.folds:
            return row + slice_ * 16
        return row // 16 * (tiling.m_tiles * 16) + slice_ * 16 + row % 16

    def _row(self, row: Index, local: Index, channel: Index) -> None:
        k, frame = self.k, self.frame
        self.row, self.channel = row, k.let("c", frame.among_all(channel), "int")
        own = frame.lane if self.sharing.lanes == WARP else frame.lane % self.sharing.lanes
        self.vectors.begin(self.item.image, self.channel)
        sums, reductions = [each.name for each in frame.scene.sums], frame.conv.reductions
        added = {name: ("sum", value(f"{name}_total")) for name in sums}
        added |= {each.name: (each.kind, value(f"{each.name}_part")) for each in reductions}
        k.add(*(ir.Declare((each.of,), kind) for kind, each in added.values()))
        self.vectors.leave(own, self._spot, self._products, added)
        for number, name in enumerate(sums):
            self._total(number, added[name][1], local, own)
        parts = [added[each.name] for each in reductions]
        k.add(*(ir.Reduce(kind, part.of, "team", (self.lanes,)) for kind, part in parts))
        for (_, part), into in zip(parts, frame.row_parts, strict=True):
            with k.when((Compare("==", frame.lane, ZERO),)):
                k.add(ir.Store(part, ir.Global(into, part_of(frame, self.number, local))))

    def _total(self, number: int, sum_: ir.Element, local: Index, own: Index) -> None:
        k, before = self.k, value("before")
        k.add(ir.Reduce("sum", sum_.of, "team", (self.lanes,)))
        kept = ir.InShared(self.totals, (Number(number), local))
        with k.when((Compare("==", own, ZERO),)):
            k.add(ir.Load(before, kept, declares=True), ir.Accumulate("sum", sum_, before), ir.Store(sum_, kept))

    # places

    def _left(self) -> Index | None:
        """Of a run how much is inside of the output, where not all always is."""
        runs, first = self.runs, self.runs.first
        if not self._is_cut(first):
            return None
        inside = Smaller(Number(runs.box[first]), Number(runs.outputs[first]) - self._start(first))
        return self.k.let("left", inside * runs.inner, "int")

    def _is_cut(self, dim: int) -> bool:
        return self.tiling.boxes[dim] * self.runs.box[dim] > self.runs.outputs[dim]

    def _start(self, dim: int) -> Index:
        """Of the box among the outputs. Boxes are made of whole windows, so what is divided has no rest."""
        phases, size = self.tiling.made.phases[dim], self.tiling.pool[dim] if self.tiling.pool else 1
        common = math.gcd(phases, size)
        return self.item.box[dim] * (phases // common) // (size // common)

    def _spot(self, v: Index) -> tuple[Where, list[Compare]]:
        """A vector's place in a tensor, and the tests that it is inside."""
        k, runs, names = self.k, self.runs, self.frame.dims
        steps = runs.run // runs.vector
        i = k.let("i", (v if runs.runs == 1 else v % steps) * runs.vector, "int")
        run = ZERO if runs.runs == 1 else k.let("run", v // steps, "int")
        places = enumerate(decoded(run, runs.box[: runs.first]))
        outer = [k.named(names[dim], self._start(dim) + at) for dim, at in places]
        tests = [Compare("<", at, Number(runs.outputs[d])) for d, at in enumerate(outer) if self._is_cut(d)]
        tests += [] if self.left is None else [Compare("<", i, self.left)]
        return lambda laid: self._begin(laid, outer) + i * laid.strides[-1], tests

    def _begin(self, laid: Laid, outer: list[Index]) -> Index:
        """Of a run's first output."""
        strides, first = laid.strides, self.runs.first
        terms = [self.item.image * strides[0], self.channel * strides[1]]
        terms += [at * stride for at, stride in zip(outer, strides[2:], strict=False)]
        terms += [self._start(first) * strides[2 + first]] if self.tiling.boxes[first] > 1 else []
        return total(terms)

    # a vector

    def _products(self, v: Index) -> tuple[ir.Fragment, ir.Fragment | None]:
        """And which of their windows' they are where that is kept."""
        count, choose = self.runs.vector, self.choose
        products, choices = pack("products", "float32", count), pack("choices", "int32", count)
        if self.tiling.of.folds:
            self._unfolded(products, v)
        elif choose and self.pools_tile:
            self._of_windows(products, choices, v, choose)
        else:
            place = (self.tile.row(self.row) + v * count,)
            self.k.add(ir.Load(ir.Element(products), ir.InShared(self.tile.products, place), declares=True))
            if self.tile.choices:
                self.k.add(ir.Load(ir.Element(choices), ir.InShared(self.tile.choices, place), declares=True))
        return products, choices if choose and choose.keeps else None

    def _unfolded(self, products: ir.Fragment, v: Index) -> None:
        """The sum over the taps that were multiplied as if they were channels, each of its own place in the row."""
        k, tiling = self.k, self.tiling
        source, width = tiling.of.axes[-1].extent, tiling.output_box[-1]
        made = self.frame.conv.correlation.out_channels
        k.add(ir.Declare((products,), "sum"))
        w_in = k.named("w_in", v % width)
        folded = ir.Pointer("folded", self.tile.products, self.tile.row(self.row) + v // width * source)
        k.add(ir.Declare(folded))
        for number, shift in enumerate(tiling.of.folds):
            at, word = w_in + shift if shift >= 0 else w_in - -shift, value("word")
            with k.when((Compare("in", at, Number(source)),)):
                place = (number * made * tiling.pitch + at,)
                k.add(ir.Load(word, ir.InShared(folded, place), declares=True))
                k.add(ir.Accumulate("sum", ir.Element(products, (ZERO,)), word))

    # windows of the tile

    def _of_windows(self, products: ir.Fragment, choices: ir.Fragment, v: Index, choose: Choose) -> None:
        """What is left of each of so many neighbouring windows of the row, the first of them number `v * vector`."""
        k, tiling, count, sizes = self.k, self.tiling, self.runs.vector, choose.pool.sizes
        far = self._far(decoded(v * count, tiling.made_box), sizes)
        window = ir.Pointer("window", self.tile.products, self.tile.row(self.row) + far)
        k.add(ir.Declare(window))
        together = count * sizes[-1]
        by_packs = together in (2, 4) and tiling.output_box[-1] % together == 0
        rows = ir.Fragment("rows", "float32", tuple(map(Number, (math.prod(sizes[:-1]), together))), packed=True)
        if by_packs:
            k.add(ir.Declare((rows,)))
            with k.unrolled("e", rows.shape[0]) as e:
                far = self._far(decoded(e, sizes[:-1])) if len(sizes) > 1 else ZERO
                k.add(ir.Load(ir.Element(rows, (e,)), ir.InShared(window, (far,))))
        k.add(ir.Declare((products,), "sum"), *([ir.Declare((choices,))] if choose.keeps else []))
        with k.unrolled("k", Number(count)) as n:

            def element(e: Index) -> ir.Element:
                if by_packs:
                    return ir.Element(rows, (e // sizes[-1], n * sizes[-1] + e % sizes[-1]))
                return self._of_window(window, self._far(decoded(e, sizes)) + n * sizes[-1])

            choose.choose(element, ir.Element(products, (n,)), ir.Element(choices, (n,)), self.vectors.values)

    def _of_window(self, window: ir.Pointer, far: Index) -> ir.Element:
        found = value("element")
        self.k.add(ir.Load(found, ir.InShared(window, (far,)), declares=True))
        return found

    def _far(self, at: list[Index], sizes: tuple[int, ...] = ()) -> Index:
        """A place in the box, by coordinates of elements or of windows."""
        strides = contiguous(self.tiling.output_box)
        factors = sizes or (1,) * len(at)
        return total([one * (stride * size) for one, stride, size in zip(at, strides, factors, strict=False)])


def part_of(frame: Frame, item: Index, local: Index) -> Index:
    """Where an item's part of a reduction of a channel is, counted from the tile's first: [item][channel]."""
    return item * frame.part_stride + frame.part * frame.tiling.channels + local
