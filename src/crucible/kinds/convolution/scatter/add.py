"""Sums of a row of inputs, added up where they belong in shared memory, and rows that are finished written out.

A row lies in shared memory as [every second output][8 channels], those at even places and then those at odd ones: a
lane has two neighbouring inputs, so lanes that add to different outputs at once are at a distance of two outputs and
meet in no bank. In each round a lane adds to two neighbouring outputs, the taps that lead there one behind the other,
and no other lane to the same; the order of sums is always the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ZERO, Compare, Condition, Index, Number, Place, Variable
from crucible.kinds.convolution.scatter.frame import Frame, Item
from crucible.kinds.convolution.scatter.leave import Leaving
from crucible.schedule.convolution.warpgroup.scatter import CHANNELS, POSITIONS, TEAMS
from crucible.schedule.convolution.warpgroup.walks import THREADS, WARPS

PAIR = 2
"""Neighbouring channels of a lane."""


@dataclass(frozen=True)
class Addition:
    """Of a round, to one place."""

    to: ir.Pointer
    old: ir.Pointer | None
    """What it is added to, if to anything."""
    at: Index
    sums: tuple[int, ...]
    """The first of each two sums that lead there."""


class Adding:
    """It while it is made."""

    def __init__(self, frame: Frame, k: Builder, team: Variable, lane: Index, warp: Index) -> None:
        self.frame, self.k, self.division, self.team = frame, k, frame.division, team
        self.place = k.let("own_place", (warp % WARPS * 8 + lane // 4) * CHANNELS + lane % 4 * PAIR, "int")
        self.turn, self.leaving = Variable("turn", "int"), Leaving(frame, k)
        if self.division.pending:
            k.add(ir.Declare(frame.rows))
        k.add(ir.Declare(frame.finished))

    # before and behind all rows of an item

    def clear(self) -> None:
        """Rows that sums are added to."""
        k, division, threads = self.k, self.division, TEAMS * THREADS
        if division.pending:
            zero = ir.Element(ir.Fragment("zero", "float32"))
            thread = Place("thread", division.threads)
            with k.loop("p", thread, Number(division.rows_words), Number(threads), "int") as p:
                k.add(ir.Declare((zero.of,), "sum"), ir.Store(zero, ir.InShared(self.frame.rows, (p,))))
            k.add(ir.Sync(of="role"))

    def rest(self, item: Item) -> None:
        """Rows that no input is left for: written out as they are."""
        k, division = self.k, self.division
        if not division.pending:
            return
        size = division.size(division.inner)
        k.add(ir.Sync(of="role"))
        with k.loop("place", self.team, Number(division.pending * size), Number(TEAMS), "int") as place:
            row, plane = item.rows[1] + place // size, place % size
            is_there = division.inner is not None and self.frame.planes_of(item) != Number(size)
            with k.when((Compare("<", plane, self.frame.planes_of(item)),) if is_there else ()):
                self.leaving.leave(item, row, plane, self._row("from", row, plane))
        k.add(ir.Sync(of="role"))

    def _row(self, name: str, row: Index, plane: Index) -> ir.Pointer:
        """The place of a row and all that are `pending` rows from it."""
        division = self.division
        number = row % division.pending * division.size(division.inner) + plane
        made = ir.Pointer(name, self.frame.rows, number * division.row_words)
        self.k.add(ir.Declare(made))
        return made

    # a row

    def add(self, item: Item, row: Index, plane: Index, sums: ir.Element, who: Condition) -> None:
        """Sums of one place of the inner dim to the rows of the outer one."""
        k, division = self.k, self.division
        if division.inner is None:
            self._in_turn(item, row, ZERO, sums, who)
            return
        behind = division.axis(division.inner).shifts[-1]
        z = k.let("z", plane - behind - item.starts[division.inner], "int")
        with k.when((Compare(">=", z, ZERO), Compare("<", z, self.frame.planes_of(item)))):
            self._in_turn(item, row, z, sums, who)

    def _in_turn(self, item: Item, row: Index, z: Index, sums: ir.Element, who: Condition) -> None:
        """Of two places for a row that is finished, one is written out while sums are added to the other."""
        k, body, behind = self.k, list[ir.Node](), list[ir.Node]()
        number = self.team * 2 + self.turn % 2
        ready = ir.Pointer("ready", self.frame.finished, number * self.division.row_words)
        with k.apart(body):
            self._rounds(row + self.team, z, sums, ready)
        with k.apart(behind):
            self.leaving.leave(item, row + self.team, z, ready)
        before = (ir.Declare(ready),)
        k.add(ir.InTurn(self.frame.slots, self.team, self.turn, before, tuple(body), tuple(behind), who))

    def _rounds(self, row: Index, z: Index, sums: ir.Element, ready: ir.Pointer) -> None:
        k, division = self.k, self.division
        rows = [self._row(f"row_{outer}", row + outer, z) for outer in range(division.pending)]
        for number in range(division.rounds):
            self._round([each for e in (0, 1) for each in self._added(2 * number + e, ready, rows)], sums)
            if number == 0 and division.reached > POSITIONS:
                self._edge(ready, rows)
            k.add(ir.Sync(of="team"))

    def _added(self, e: int, ready: ir.Pointer, rows: list[ir.Pointer]) -> list[Addition]:
        """To the output `e` behind the first that a lane's inputs reach. What is first added to a row that is finished
        goes to another place, and its own is that of the row that begins: the one behind all that are pending."""
        at = self.place + (e % 2 * self.division.half_words + e // 2 * CHANNELS)
        found = [self._leading(outer, e) for outer in range(len(rows) + 1)]
        if e < 2 and not rows:
            return [Addition(ready, None, at, found[0])]
        if e < 2:
            begun = Addition(rows[0], None, at, found[-1])
            later = [Addition(row, row, at, sums) for row, sums in zip(rows[1:], found[1:], strict=False) if sums]
            return [Addition(ready, rows[0], at, found[0]), begun, *later]
        places = [ready, *rows[1:], rows[0]] if rows else [ready]
        return [Addition(to, to, at, sums) for to, sums in zip(places, found, strict=True) if sums]

    def _leading(self, outer: int, e: int) -> tuple[int, ...]:
        """This lane's sums that lead there, of its two inputs."""
        return tuple(
            number * 4 + second * PAIR
            for number, (of_outer, behind) in enumerate(self.division.across)
            for second in (0, 1)
            if of_outer == outer and behind + second == e
        )

    def _round(self, additions: list[Addition], sums: ir.Element) -> None:
        """What is there is read before any of it is written, or each sum would wait for the one before."""
        k = self.k
        made = [ir.Fragment("was" if each.old else "begun", "float32", (Number(PAIR),), True) for each in additions]
        for each, pair in zip(additions, made, strict=True):
            k.add(ir.Declare((pair,), "" if each.old or each.sums else "sum"))
            if each.old:
                k.add(ir.Load(ir.Element(pair), ir.InShared(each.old, (each.at,))))
        for each, pair in zip(additions, made, strict=True):
            for i in range(PAIR):  # in a loop of it, nvcc 13.0 makes other code
                into = ir.Element(pair, (Number(i),))
                values = [ir.Element(sums.of, (*sums.at, Number(n + i))) for n in each.sums]
                if values and not each.old:
                    k.add(ir.Convert(into, values.pop(0)))
                k.add(*(ir.Accumulate("sum", into, value) for value in values))
            k.add(ir.Store(ir.Element(pair), ir.InShared(each.to, (each.at,))))

    def _edge(self, ready: ir.Pointer, rows: list[ir.Pointer]) -> None:
        """Outputs behind those that the first round adds to."""
        k, division = self.k, self.division
        p = k.let("p", Place("thread", division.threads) % THREADS, "int")
        with k.when((Compare("<", p, Number((division.reached - POSITIONS) * 4)),)):
            place, half = p // 4, division.half_words
            at = k.let("beyond", place % 2 * half + (place + POSITIONS) // 2 * CHANNELS + p % 4 * PAIR, "int")
            zero = ir.Fragment("nothing", "float32", (Number(PAIR),), True)
            k.add(ir.Declare((zero,), "sum"))
            if rows:
                was = ir.Element(ir.Fragment("was", "float32", (Number(PAIR),), True))
                k.add(ir.Load(was, ir.InShared(rows[0], (at,)), declares=True))
                k.add(ir.Store(was, ir.InShared(ready, (at,))))
            k.add(ir.Store(ir.Element(zero), ir.InShared((rows or [ready])[0], (at,))))
