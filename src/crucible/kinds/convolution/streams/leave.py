"""What becomes of sums whose rows are positions, in the registers in which they came to be: a lane has, of each tile,
two positions of an eighth of the channels; eight lanes have eight neighbours of a row, 32 bytes of float32."""

from __future__ import annotations

from dataclasses import replace

from crucible.algebra.convolution.fused import is_of_row
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ZERO, Compare, Condition, Index, Number, Place, Size, Smaller
from crucible.kinds.convolution.streams.frame import Frame, Item
from crucible.kinds.convolution.vectors import Laid, Values, chained, value
from crucible.kinds.indices import decoded, total
from crucible.schedule.convolution.warpgroup.streams import GROUPS
from crucible.schedule.convolution.warpgroup.walks import THREADS, WARPS

TWO = Number(2)
LANES = Size("lanes", 4, "that have the channels of a position", counts=True)


class Leaving:
    """It while it is made."""

    def __init__(self, frame: Frame, k: Builder, lane: Index, warp: Index, team: Index, sums: ir.Fragment) -> None:
        self.frame, self.k, self.streams = frame, k, frame.streams
        self.lane, self.warp, self.team, self.sums = lane, warp, team, sums
        self.channels = frame.conv.correlation.out_channels
        added = [*(each.name for each in frame.scene.sums), *(each.name for each in frame.conv.reductions)]
        self.every = Number(self.streams.tiles * self.streams.beside)
        """Tiles, of each phase of the last dim."""
        self.phases: list[Index] = []
        """Of the other dims, those of what leaves."""
        self.sums_of = {name: value(f"{name}_total") for name in added}
        if self.sums_of:
            self.own = ir.Pointer("own", frame.totals, warp * self.streams.total_words)
            k.add(ir.Declare(self.own))
        self.crossed = {
            each.name: ir.Fragment(f"{each.name}_own", "float32", (self.every, TWO)) for each in frame.conv.crossings
        }
        """What a lane has of them: for its positions of each tile."""
        self.of_row = [each.name for each in frame.scene.operands if is_of_row(each)]

    def leave(self, item: Item, t: Index, phase: int = 0) -> None:
        """A plane of outputs, of those that have sums the oldest: channel by channel, so that what belongs to a channel
        is read once. Of several phases that of all dims but the last."""
        k, streams = self.k, self.streams
        *self.phases, _ = decoded(Number(phase * streams.beside), streams.of.phases)
        plane = self._plane(item, t)
        below, last = self.channels % streams.channels > 0, Number(self.channels)
        k.add(*(ir.Declare((self.crossed[each.name],), each.kind) for each in self.frame.conv.crossings))
        with k.unrolled("j", Number(streams.channels // 8)) as j, k.unrolled("e", TWO) as e:
            c = k.let("c", self.frame.first_channel + j * 8 + self.lane % 4 * 2 + e, "int")
            tests = (Compare("<", c, last),) if below else ()
            if self.sums_of:  # all lanes go on: they add up together
                c = k.let("channel", Smaller(c, last - 1), "int") if below else c
                self._added_up(item, plane, c, (j, e), tests)
            else:
                with k.when(tests, is_rest=True):
                    self._channel(item, plane, c, (j, e), ())
        if self.crossed:
            self._cross(item, plane)

    def _cross(self, item: Item, plane: Index | None) -> None:
        """What the lanes of a position have of reductions over channels is put together, and one of them writes it."""
        k, frame, first = self.k, self.frame, Compare("==", self.lane % 4, Number(0))
        with k.unrolled("i", self.every) as i, k.unrolled("r", TWO) as r:
            every = list[ir.Element]()
            for each in frame.conv.crossings:
                every.append(whole := value(f"{each.name}_whole"))
                k.add(ir.Declare((whole.of,)), ir.Convert(whole, ir.Element(self.crossed[each.name], (i, r))))
                k.add(ir.Reduce("max" if each.kind == "max" else "sum", whole.of, "team", (LANES,)))
            places, inside = self._position(item, plane, i, r)
            with k.when((first, *inside)):
                for whole, laid in zip(every, frame.crossings.values(), strict=True):
                    to = self._at(item, ZERO, places, laid)
                    part = frame.part * (laid.tensor.elements // frame.scene.parts)
                    k.add(ir.Store(whole, replace(to, at=to.at + part) if frame.scene.parts > 1 else to))

    def _added_up(self, item: Item, plane: Index | None, c: Index, at: tuple[Index, Index], tests: Condition) -> None:
        """Of sums what a warp has of a plane: eight lanes have the same channel."""
        k, (j, e) = self.k, at
        k.add(*(ir.Declare((each.of,), "sum") for each in self.sums_of.values()))
        self._channel(item, plane, c, at, tests)
        for number, own in enumerate(self.sums_of.values()):
            k.add(ir.Reduce("sum", own.of, "columns", (LANES,)))
            with k.when((Compare("<", self.lane, LANES),)):
                place = j * 8 + self.lane * 2 + e + number * self.streams.channels
                kept, before = ir.InShared(self.own, (place,)), value("before")
                k.add(ir.Declare((before.of,)), ir.Load(before, kept))
                k.add(ir.Accumulate("sum", before, own), ir.Store(before, kept))

    def end_item(self, item: Item) -> None:
        """Of sums over space a warpgroup writes what its warps have of the item, which begin anew: a part of each warp
        would be four times as much to write and to read again."""
        k, streams, frame = self.k, self.streams, self.frame
        if not frame.row_parts:
            return
        part = (item.number * GROUPS + self.team) * (streams.channel_tiles * streams.channels)
        k.add(ir.Sync(of="team"))
        p = k.let("p", Place("thread", streams.threads) % THREADS, "int")
        own, none = p + self.team * (WARPS * streams.total_words), value("none")
        with k.when((Compare("<", p, Number(streams.channels)),)):
            k.add(ir.Declare((none.of,), "sum"))
            for number, parts in enumerate(frame.row_parts, len(frame.part_tensors)):
                kept = kept_by(frame, own, number, WARPS)
                whole = put_together(k, kept)
                k.add(ir.Store(whole, ir.Global(parts, part + frame.first_channel + p)))
                k.add(*(ir.Store(none, each) for each in kept))
        k.add(ir.Sync(of="team"))

    def _plane(self, item: Item, t: Index) -> Index | None:
        if not self.streams.is_walked:
            return None
        return self.k.let("d", self._phased(0, item.starts[0] + t - (self.streams.live - 1)), "int")

    def _phased(self, dim: int, position: Index, own: Index = ZERO) -> Index:
        """The output of a position along a dim; `own` is the phase of the last one."""
        of = self.streams.of
        if of.phases[dim] == 1:
            return position
        last = dim == len(of.axes) - 1
        return position * of.phases[dim] + (own if last else self.phases[dim])

    def _channel(
        self, item: Item, plane: Index | None, c: Index, at: tuple[Index, Index], tests: Condition
    ) -> None:  # fmt: skip
        k = self.k
        values = self._values(item, c)
        with k.unrolled("i", self.every) as i, k.unrolled("r", TWO) as r:
            places, inside = self._position(item, plane, i, r)
            with k.when((*inside, *tests), is_rest=not tests):  # as the text had it: nvcc 13.0 makes other code else
                self._element(item, c, places, (i, r, *at), values)

    def _values(self, item: Item, c: Index) -> Values:
        """Of operands that hold a number for a channel, or for that of an image."""
        found = {name: value(f"{name}_value") for name in self.of_row}
        for name, each in found.items():
            laid = self.frame.operands[name]
            at = item.image * laid.strides[0] + c * laid.strides[1]
            self.k.add(ir.Load(each, ir.Global(laid.tensor, at), declares=True))
        return found

    def _position(self, item: Item, plane: Index | None, i: Index, r: Index) -> tuple[list[Index], Condition]:
        """Of row half r of tile i, or of one of its phases, along each dim; and the tests that it is one."""
        k, streams, dims = self.k, self.streams, self.frame.dims
        tile, across = self.team * streams.tiles + i // streams.beside, streams.tiles_in_row
        row = tile // across
        column: Index = tile % across * streams.tile_columns
        if streams.tile_rows > 1:
            row, column = row * 8 + self.warp % 4 * 2 + r, column + self.lane // 4
        else:
            column = column + self.warp % 4 * 16 + r * 8 + self.lane // 4
        if streams.flat:
            at = k.let("at", item.first + column, "int")
            row, column = at // streams.row_pitch, at % streams.row_pitch
        last = len(dims) - 1
        places: list[Index] = [
            k.let(dims[last], self._phased(last, item.starts[last] + column, i % streams.beside), "int")
        ]
        if last:
            places.insert(0, k.let(dims[-2], self._phased(last - 1, item.starts[-2] + row), "int"))
        places = [*([] if plane is None else [plane]), *places]
        outputs = [axis.outputs for axis in streams.of.axes]
        tests = tuple(
            Compare("<", places[dim], Number(outputs[dim]))
            for dim in range(int(streams.is_walked and streams.of.phases[0] == 1), len(dims))
            if streams.flat or streams.boxes[dim] * streams.output_box[dim] > outputs[dim]
        )
        return places, tests

    def _element(
        self, item: Item, c: Index, places: list[Index], at: tuple[Index, Index, Index, Index], values: Values
    ) -> None:  # fmt: skip
        k, frame, (i, r, j, e) = self.k, self.frame, at
        beside, columns = self.streams.beside, self.streams.channels // 2
        # of phases the last is first, as those of a plane are in turn
        first = (self.streams.live - 1) * columns if beside == 1 else (Number(beside - 1) - i % beside) * columns
        product = ir.Element(self.sums, (i // beside, j * 4 + r * 2 + e + first))
        rest = {name: laid for name, laid in frame.operands.items() if name not in self.of_row}
        came = {name: ir.Element(ir.Fragment(f"{name}_came", laid.tensor.dtype)) for name, laid in rest.items()}
        for name, laid in rest.items():
            k.add(ir.Load(came[name], self._at(item, c, places, laid), declares=True))
        made = chained(k, frame.conv, product, values, came)
        k.add(*(ir.Accumulate("sum", into, made[name]) for name, into in self.sums_of.items()))
        for each in frame.conv.crossings:
            k.add(ir.Accumulate(each.kind, ir.Element(self.crossed[each.name], (i, r)), made[each.name]))
        for name, laid in frame.results.items():
            k.add(ir.Store(made[name], self._at(item, c, places, laid)))

    @staticmethod
    def _at(item: Item, c: Index, places: list[Index], laid: Laid) -> ir.Global:
        terms = [at * stride for at, stride in zip((item.image, c, *places), laid.strides, strict=True)]
        return ir.Global(laid.tensor, total(terms))


def add_up(frame: Frame, k: Builder) -> None:
    """What all warps have of sums, in one order on every run."""
    channels, warps, parts = frame.streams.channels, GROUPS * WARPS, frame.scene.parts
    # its own number: nvcc 13.0 keeps other words until here where it reads that as `blockIdx`
    block = Place("block", frame.blocks) // parts * parts + frame.part
    k.add(ir.Sync())
    p = k.let("p", Place("thread", frame.streams.threads), "int")
    with k.when((Compare("<", p, Number(channels)),)):
        for number, of_blocks in enumerate(frame.part_tensors):
            whole = put_together(k, kept_by(frame, p, number, warps))
            k.add(ir.Store(whole, ir.Global(of_blocks, block * channels + p)))


def kept_by(frame: Frame, first: Index, number: int, warps: int) -> list[ir.InShared]:
    """Where so many warps keep their sum of that number of a channel: in the first one's sums it has that place."""
    streams = frame.streams
    places = (first + (warp * streams.total_words + number * streams.channels) for warp in range(warps))
    return [ir.InShared(frame.totals, (place,)) for place in places]


def put_together(k: Builder, kept: list[ir.InShared]) -> ir.Element:
    """What they have, in one order on every run."""
    each = ir.Fragment("each", "float32", (Number(len(kept)),))
    whole, *rest = (ir.Element(each, (Number(warp),)) for warp in range(len(kept)))
    k.add(ir.Declare((each,)))
    k.add(*(ir.Load(into, own) for into, own in zip((whole, *rest), kept, strict=True)))
    k.add(*(ir.Accumulate("sum", whole, own) for own in rest))
    return whole
