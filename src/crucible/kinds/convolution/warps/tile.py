"""Products from registers to their tile in shared memory, where a channel's outputs lie in the order of the output."""

from __future__ import annotations

import math
from collections.abc import Sequence

from crucible.algebra.program import contiguous
from crucible.kernel import nodes as ir
from crucible.kernel.index import ZERO, Compare, Condition, Either, Index, Number, Range
from crucible.kinds.convolution.staged import pack
from crucible.kinds.convolution.warps.choose import Choose
from crucible.kinds.convolution.warps.frame import Frame
from crucible.kinds.indices import decoded, total


class Tile:
    """It takes the place of the inputs, when those are done with."""

    def __init__(self, frame: Frame, sums: ir.Fragment, choose: Choose | None) -> None:
        self.frame, self.k, self.tiling, self.sums, self.choose = frame, frame.k, frame.tiling, sums, choose
        rows, pitch = self.tiling.tile_rows, self.tiling.pitch
        self.has_phases = math.prod(frame.of.phases) > 1 and not self.tiling.pools_registers
        self.spot = frame.value("spot", "int32", (self.tiling.n_tiles,))
        """Of tiles of eight positions where a lane's first one is in a row, of the first phase."""
        note = "of products, when the halo is done with"
        self.products = self._over("tile", "float32", note, 0)
        keeps = choose is not None and choose.keeps and self.tiling.pools_registers
        self.choices = self._over("chosen", "int32", "", 4 * rows * pitch) if keeps else None

    def _over(self, name: str, dtype: str, note: str, begin: int) -> ir.Shared:
        words = Number(self.tiling.tile_rows * self.tiling.pitch)
        return ir.Shared(name, dtype, (words,), note, at_launch=True, over=(self.frame.halo, begin))

    def row(self, row: Index) -> Index:
        """Where one begins."""
        return row * self.tiling.pitch

    def begin(self) -> None:
        """What a thread knows of its positions."""
        if not self.has_phases:
            return
        self.k.add(ir.Declare((self.spot,)))
        with self.k.unrolled("j", Number(self.tiling.n_tiles)) as j:
            position = self.k.let("position", self.frame.position(j), "int")
            self.k.add(ir.Value(ir.Element(self.spot, (j,)), self._spot(position), declares=False))

    def declare(self) -> None:
        """Behind the products of an item."""
        for each in (self.products, self.choices):
            self.k.add(*([ir.Declare(each)] if each else []))

    def all_slices(self) -> None:
        """All channels, where taps take the place of some."""
        tiling = self.tiling
        with self.k.unrolled("i", Number(tiling.m_tiles)) as i, self.k.unrolled("j", Number(tiling.n_tiles)) as j:
            row = (self.frame.row * tiling.m_tiles + i) * 16 + self.frame.lane // 4
            self._neighbours(row, (ZERO, i, j))

    def slice(self, number: Index) -> None:
        """16 channels of each row of warps."""
        tiling, slot = self.tiling, 0
        row = self.frame.row * 16 + self.frame.lane // 4
        if tiling.pools_registers:
            self._windows(number, row)
        elif not self.has_phases:
            with self.k.unrolled("j", Number(tiling.n_tiles)) as j:
                self._neighbours(row, (ZERO, number, j))
        else:
            while slot < tiling.slots:
                self._phase(number, row, slot)
                slot += 2 if tiling.is_paired else 1

    def _neighbours(self, row: Index, of: tuple[Index, ...]) -> None:
        """Two positions of two channels."""
        into = self._into(row, self.frame.position(of[-1]))
        for upper in (0, 1):
            self._store(into, upper, [ir.Element(self.sums, (*of, Number(2 * upper + n))) for n in (0, 1)])

    def _into(self, row: Index, at: Index) -> ir.Pointer:
        into = ir.Pointer("into", self.products, self.row(row) + at)
        self.k.add(ir.Declare(into))
        return into

    def _store(self, into: ir.Pointer, upper: int, values: Sequence[ir.Element]) -> None:
        """Of a lane's channel, or the one eight further."""
        of = pack("together", "float32", len(values))
        self.k.add(ir.Declare((of,)))
        self.k.add(*(ir.Convert(ir.Element(of, (Number(n),)), each) for n, each in enumerate(values)))
        self.k.add(ir.Store(ir.Element(of), ir.InShared(into, (Number(upper * 8 * self.tiling.pitch),))))

    # windows

    def _windows(self, number: Index, row: Index) -> None:
        """What is left of the windows of a lane's positions, in the registers of one phase after another."""
        k, frame, tiling, choose = self.k, self.frame, self.tiling, self.choose
        assert choose is not None
        left, chosen = pack("products", "float32", 2), pack("choices", "int32", 2)
        with k.unrolled("half", Number(2)) as half:
            names = choose.of_channel(self._channel(number, half))
            with k.unrolled("j", Number(tiling.n_tiles)) as j:
                k.add(ir.Declare((left,), "sum"), *([ir.Declare((chosen,))] if choose.keeps else []))
                with k.unrolled("k", Number(2)) as n:
                    at = number, j, half * 2 + n
                    into = ir.Element(left, (n,)), ir.Element(chosen, (n,))
                    choose.choose(lambda e, at=at: ir.Element(self.sums, (e, *at)), *into, names)  # type: ignore[misc]
                place = (self.row(row + half * 8) + frame.position(j),)
                k.add(ir.Store(ir.Element(left), ir.InShared(self.products, place)))
                if self.choices:
                    k.add(ir.Store(ir.Element(chosen), ir.InShared(self.choices, place)))

    def _channel(self, number: Index, half: Index) -> Index:
        row = self.frame.row * self.tiling.m_tiles + number
        own = self.frame.first_channel + row * 16 + self.frame.lane // 4 + half * 8
        return self.frame.among_all(self.frame.clamped(own))

    # phases

    def _phase(self, number: Index, row: Index, slot: int) -> None:
        """What teams have in a slot, or in two that alternate in the last dim."""
        k, tiling, frame = self.k, self.tiling, self.frame
        phases = [team[slot] if slot < len(team) else None for team in tiling.teams]
        test = tuple(Compare("!=", frame.team, Number(n)) for n, phase in enumerate(phases) if phase is None)
        with k.when(test), k.unrolled("j", Number(tiling.n_tiles)) as j:
            inside: Condition = (Compare("<", frame.position(j), Number(frame.positions)),) if frame.some_beyond else ()
            with k.when(inside, is_rest=True):
                into = self._into(row, self._held(j) + self._moved(phases))
                if tiling.is_paired:
                    self._pair(into, (number, j), slot)
                else:
                    self._single(into, (Number(slot), number, j))

    def _pair(self, into: ir.Pointer, of: tuple[Index, Index], slot: int) -> None:
        for upper in (0, 1):
            each = [(Number(slot + n % 2), *of, Number(2 * upper + n // 2)) for n in range(4)]
            self._store(into, upper, [ir.Element(self.sums, one) for one in each])

    def _single(self, into: ir.Pointer, of: tuple[Index, ...]) -> None:
        k, tiling, frame = self.k, self.tiling, self.frame

        def one(second: int, into: ir.Pointer, at: Index) -> None:
            for upper in (0, 1):
                value = ir.Element(self.sums, (*of, Number(2 * upper + second)))
                k.add(ir.Store(value, ir.InShared(into, (at + upper * 8 * tiling.pitch,))))

        one(0, into, ZERO)
        if tiling.box[-1] % 2 == 0:
            one(1, into, Number(tiling.of.phases[-1]))
            return
        position = k.let("position", frame.position(of[-1]) + 1, "int")
        with k.when((Compare("<", position, Number(frame.positions)),), is_rest=True):
            far = k.let("far", self._spot(position) - self._held(of[-1]), "int")
            into = ir.Pointer("into", into, far)
            k.add(ir.Declare(into))
            one(1, into, ZERO)

    def _spot(self, position: Index) -> Index:
        """The place of a position's output of the first phase."""
        tiling = self.tiling
        strides = zip(decoded(position, tiling.box), contiguous(tiling.output_box), tiling.of.phases, strict=True)
        return total([word * (phases * step) for word, step, phases in strides])

    def _held(self, j: Index) -> Index:
        """That of a tile, which is in the box; of an even one, as a lane's first position is."""
        tiling = self.tiling
        steps = [n * phases for n, phases in zip(contiguous(tiling.output_box), tiling.of.phases, strict=True)]
        most = sum((n - 1) * step for n, step in zip(tiling.box, steps, strict=True))
        steps[-1] *= 2 if tiling.box[-1] % 2 == 0 else 1
        return ir.Held(Range(0, most, math.gcd(*steps)), ir.Element(self.spot, (j,)))

    def _moved(self, phases: Sequence[int | None]) -> Index:
        """How far a slot's phase is from the first, which depends on the team."""
        known = [(team, self._of_phase(phase)) for team, phase in enumerate(phases) if phase is not None]
        found: Index = Number(known[-1][1])
        for team, moved in reversed(known[:-1]):
            found = Either((Compare("==", self.frame.team, Number(team)),), Number(moved), found)
        return found

    def _of_phase(self, phase: int) -> int:
        places = [each.value for each in decoded(Number(phase), self.tiling.of.phases) if isinstance(each, Number)]
        return sum(own * step for own, step in zip(places, contiguous(self.tiling.output_box), strict=True))
