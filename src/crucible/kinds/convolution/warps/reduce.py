"""Reductions over space where nothing else is made of the products: in the registers in which they came to be."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from crucible.algebra.convolution.fused import PRODUCT, is_of_row
from crucible.algebra.expression import constant, tensor
from crucible.algebra.program import Reduction, reads
from crucible.kernel import nodes as ir
from crucible.kernel.index import ONE, ZERO, Compare, Condition, Either, Index, Number, Size, Variable
from crucible.kinds.convolution.staged import Item
from crucible.kinds.convolution.warps.frame import Frame
from crucible.kinds.convolution.warps.rows import part_of
from crucible.kinds.indices import decoded
from crucible.kinds.values import inputs_of
from crucible.schedule.convolution.pairs import LOWEST
from crucible.schedule.convolution.tiling import WARPS


def in_registers(frame: Frame) -> bool:
    """Whether reductions are all that is made of the products, each of its own and of what a row shares."""
    conv = frame.conv
    alone = bool(conv.reductions) and not conv.results and all(map(is_of_row, frame.scene.operands))
    return alone and frame.tiling.reduces_in_registers(len(conv.reductions))


class Reducing:
    """What becomes of an item's products: the part that it has of the number that a channel of an image shares."""

    lanes = Size("channel_lanes", 4, "that have products of a channel", counts=True)

    def __init__(self, frame: Frame, sums: ir.Fragment) -> None:
        self.frame, self.k, self.tiling, self.sums = frame, frame.k, frame.tiling, sums
        self.reductions = frame.conv.reductions
        self.sizes = self.lanes, frame.part_stride
        self.warps = WARPS // self.tiling.rows
        """That have products of the same channels."""
        shape = tuple(map(Number, (len(self.reductions), self.warps, self.tiling.channels)))
        self.own_parts = ir.Shared("own_parts", "float32", shape, "of an item, what each warp has")

    def begin(self) -> None:
        self.k.add(ir.Declare(self.own_parts))

    def end(self) -> None:
        """Nothing is left when all items are done."""

    def leave(self, number: Index, item: Item) -> None:
        """A lane has two products of eight positions, of two channels: those of its slots and tiles, then those of the
        four lanes of a channel, then those of the warps are put together."""
        k, tiling, frame = self.k, self.tiling, self.frame
        self.item = item
        with k.unrolled("i", Number(tiling.m_tiles)) as i, k.unrolled("upper", Number(2)) as upper:
            own = (frame.row * tiling.m_tiles + i) * 16 + upper * 8 + frame.lane // 4
            self._channel(i, upper, k.let("of_channel", own, "int"))
        k.add(ir.Sync())
        self._together(number)

    def _channel(self, i: Index, upper: Index, of_channel: Index) -> None:
        k, frame = self.k, self.frame
        self._values(of_channel)
        self.parts = {each.name: _value(f"{each.name}_part") for each in self.reductions}
        k.add(*(ir.Declare((self.parts[each.name].of,), each.kind) for each in self.reductions))
        self.own = {name: _value(f"{name}_own") for name in dict.fromkeys(self._maxima.values())}
        for relative in (False, True) if self._maxima else (False,):
            some = [each for each in self.reductions if (each.name in self._maxima) == relative]
            if relative:  # what these lanes take out; a finite number also where all are minus infinity
                self._own_maxima()
            self._products(some, i, upper)
            k.add(*(ir.Reduce(each.kind, self.parts[each.name].of, "team", (self.lanes,)) for each in some))
        warp = frame.column if len(self.tiling.teams) == 1 else frame.team * self.tiling.columns + frame.column
        with k.when((Compare("==", frame.lane % 4, ZERO),)):
            for number, part in enumerate(self.parts.values()):
                k.add(ir.Store(part, ir.InShared(self.own_parts, (Number(number), warp, of_channel))))

    def _values(self, of_channel: Index) -> None:
        """What operands have for the channel."""
        k, frame = self.k, self.frame
        self.values = {name: _value(f"{name}_value") for name in frame.operands}
        if self.values:
            c = k.let("c", frame.among_all(frame.clamped(frame.first_channel + of_channel)), "int")
            for name, value in self.values.items():
                k.add(ir.Load(value, frame.of_row(frame.operands[name], self.item.image, c), declares=True))

    @cached_property
    def _maxima(self) -> dict[str, str]:
        """For each sum of what is relative to a maximum, that one."""
        names = [each.name for each in self.reductions]
        read = {each.name: reads(each.expr).intersection(names) for each in self.reductions}
        return {name: largest for name, found in read.items() for largest in found}

    def _own_maxima(self) -> None:
        for name, own in self.own.items():
            expr = tensor("part").maximum(constant(LOWEST))
            self.k.add(ir.Chain(((own, expr),), (("part", self.parts[name]),)))

    def _products(self, reductions: Sequence[Reduction], i: Index, upper: Index) -> None:
        """They are gone over for reductions that do not read one another."""
        k, tiling = self.k, self.tiling
        with (
            k.unrolled("slot", Number(tiling.slots)) as slot,
            k.unrolled("j", Number(tiling.n_tiles)) as j,
            k.unrolled("k", Number(2)) as n,
            k.when(self._inside(slot, j, n)),
        ):
            product = ir.Element(self.sums, (slot, i, j, upper * 2 + n))
            made = {each.name: _value(f"{each.name}_is") for each in reductions}
            known = {PRODUCT: product, **self.own, **self.values}
            exprs = [each.expr for each in reductions]
            results = tuple(zip(made.values(), exprs, strict=True))
            k.add(ir.Chain(results, inputs_of(exprs, known.__getitem__)))
            k.add(*(ir.Accumulate(each.kind, self.parts[each.name], made[each.name]) for each in reductions))

    def _inside(self, slot: Index, j: Index, n: Index) -> Condition:
        """That a product is an output, where not all are."""
        k, tiling, of, frame = self.k, self.tiling, self.frame.conv.correlation, self.frame
        tests = list[Compare]()
        cut = [d for d, axis in enumerate(of.axes) if tiling.boxes[d] * tiling.output_box[d] > axis.outputs]
        uneven = len(set(map(len, tiling.teams))) > 1
        asks = uneven or any(of.phases[d] > 1 for d in cut)
        phase = k.let("phase", self._phase(slot), "int") if asks else ZERO
        tests += [Compare(">=", phase, ZERO)] if uneven else []
        if not frame.some_beyond and not cut:
            return tuple(tests)
        position = k.let("position", frame.position(j) + n, "int")
        tests += [Compare("<", position, Number(frame.positions))] if frame.some_beyond else []
        at, phases = decoded(position, tiling.box), decoded(phase, of.phases)
        for d in cut:
            place = (self.item.box[d] + at[d]) * of.phases[d] + phases[d]
            tests.append(Compare("<", place, Number(of.axes[d].outputs)))
        return tuple(tests)

    def _phase(self, slot: Index) -> Index:
        """Of a slot, -1 where the team has none for it."""
        teams = [[team[n] if n < len(team) else -1 for n in range(self.tiling.slots)] for team in self.tiling.teams]
        found: Index | None = None
        for number, team in reversed(list(enumerate(teams))):
            of_team: Index = Number(team[-1])
            for n in reversed(range(len(team) - 1)):
                of_team = Either((Compare("==", slot, Number(n)),), Number(team[n]), of_team)
            test = (Compare("==", self.frame.team, Number(number)),)
            found = of_team if found is None else Either(test, of_team, found)
        assert found is not None
        return found

    # of an item

    def _together(self, number: Index) -> None:
        """A thread a channel, the warps in order. What is relative to a maximum gets the factor to the common one."""
        k, frame, names = self.k, self.frame, [each.name for each in self.reductions]
        with frame.by_threads("p", self.tiling.channels) as p:
            made = {name: _value(f"{name}_part") for name in names}
            for place, (each, into) in enumerate(zip(self.reductions, frame.row_parts, strict=True)):
                part = made[each.name]
                k.add(ir.Declare((part.of,)), ir.Convert(part, self._of_warp(place, ZERO, p, made)))
                warp, body = Variable("w", "int"), list[ir.Node]()
                with k.apart(body):
                    k.add(ir.Accumulate(each.kind, part, self._of_warp(place, warp, p, made)))
                k.add(ir.For(warp, ONE, Number(self.warps), ONE, tuple(body), unrolled=True))
                k.add(ir.Store(part, ir.Global(into, part_of(frame, number, p))))

    def _of_warp(self, number: int, warp: Index, p: Index, made: dict[str, ir.Element]) -> ir.Element:
        k, names, part = self.k, [each.name for each in self.reductions], _value("part")
        k.add(ir.Load(part, ir.InShared(self.own_parts, (Number(number), warp, p)), declares=True))
        largest = self._maxima.get(names[number])
        if largest is None:
            return part
        own, scaled, low = _value("own"), _value("scaled"), constant(LOWEST)
        place = ir.InShared(self.own_parts, (Number(names.index(largest)), warp, p))
        expr = tensor("part") * (tensor("own").maximum(low) - tensor("largest").maximum(low)).exp()
        given = (("part", part), ("own", own), ("largest", made[largest]))
        k.add(ir.Load(own, place, declares=True), ir.Chain(((scaled, expr),), given))
        return scaled


def _value(name: str) -> ir.Element:
    return ir.Element(ir.Fragment(name, "float32"))
