"""What is known at some place of a kernel, as the verifier reads it: where indices lie, what is there, who comes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar, TypeVarTuple

from crucible.gpus import WARP
from crucible.kernel import nodes as ir
from crucible.kernel.index import (
    ONE,
    ZERO,
    Binary,
    Compare,
    Condition,
    Definitions,
    Either,
    Holds,
    Index,
    Larger,
    Listed,
    Number,
    Part,
    Place,
    Range,
    Ranges,
    Smaller,
    Surroundings,
    Table,
    Variable,
    lift,
    met,
    opposite,
    value_of,
)

Named: TypeAlias = ir.Tensor | ir.Pointer | ir.Shared | ir.Fragment | ir.Pipeline | ir.Matrix | ir.Steps | Table
Asked = TypeVarTuple("Asked")
Found = TypeVar("Found")
WARPS = "warps"
"""What a condition differs between that all lanes of a warp agree on."""
TEAMS = "warpgroups"
"""The same of all threads of a warpgroup."""


UNIT = 16
"""Bytes by which memory is shared out."""
MOST_VALUES = 64
"""That are looked at one after the other."""


@dataclass
class Stage:
    """What happened to a stage since its threads may touch it."""

    node: ir.Fill | ir.Drain | ir.Slide | ir.Deal | ir.Share
    is_vacant: bool = True
    """Whether who read it last are known to be done with it."""
    is_left: bool = False
    """Whether who reads it does without it from here on."""
    stored: set[ir.Shared] = field(default_factory=set)
    unfenced: set[ir.Shared] = field(default_factory=set)
    """Stored since the last fence."""
    fed_by: ir.Pipeline | None = None
    """Of which a stage is read meanwhile."""


@dataclass
class Copies:
    """What happens to shared memory that threads copy into."""

    into: set[ir.Shared] = field(default_factory=set)
    """Where copies go."""
    asked: set[ir.Shared] = field(default_factory=set)
    """What is on its way."""
    unrounded: set[ir.Shared] = field(default_factory=set)
    """What is to be TF32, and is as it was copied."""
    own: set[ir.Shared] = field(default_factory=set)
    """Of which a thread touches what it copied itself."""


def kept(find: Callable[[Reader, *Asked], Found]) -> Callable[[Reader, *Asked], Found]:
    """Found once in the same surroundings: loops are read twice, spots ask for the same indices, and cases of cases
    are the same ones. Where registers or tables were asked for it is found anew, as these may have something else by
    then; and where something was said."""

    @functools.wraps(find)
    def found(reader: Reader, *asked: *Asked) -> Found:
        known, key = reader.here.found, (find, asked)
        if key in known:
            return known[key]  # type: ignore[no-any-return]
        before = reader.foreign, len(reader.wrong)
        result = find(reader, *asked)
        if before == (reader.foreign, len(reader.wrong)):
            known[key] = result
        return result

    return found


class Reader:
    """What is known at some place of a kernel."""

    def __init__(self, kernel: ir.Kernel) -> None:
        self.kernel = kernel
        declared = [node.what for node in ir.every(kernel.body) if isinstance(node, ir.Declare)]
        self.has_tables = any(isinstance(each, Table) for each in (*kernel.sizes, *declared))
        self.wrong: list[str] = []
        self.here = Surroundings({}, {})
        self.there: list[set[object]] = [{*kernel.tensors, *kernel.sizes}]
        """What was declared, by scopes."""
        self.filled: set[ir.Fragment | ir.Shared] = set()
        """What holds something."""
        self.written: set[ir.Shared] = set()
        """What threads may still be writing: nobody synchronised since."""
        self.read: set[ir.Shared] = set()
        """What threads may still be reading."""
        self.touched_at: dict[ir.Shared, dict[Number | None, set[tuple[Index, ...]]]] = {}
        """Where arrays were read or written since a warp's lanes came together, by the first of their indices where
        that is a number: those of two numbers are apart."""
        self.apart: list[str] = []
        """Why not all threads of the block are here."""
        self.uneven: set[Index] = set()
        """Variables of loops that begin elsewhere for other threads."""
        self.uneven_lanes: set[Index] = set()
        """Those that do so for other lanes of a warp."""
        self.last: ir.Node | None = None
        """What a loop's round ends with."""
        self.done: list[Index] = []
        """By what threads went that are done."""
        self.alike: set[ir.Fragment] = set()
        """What is the same for all threads that come to one place."""
        self.zero: set[ir.Fragment] = set()
        """What begins as 0, and nobody has set yet."""
        self.pipelines: dict[ir.Shared, ir.Pipeline] = {}
        """Of which a tile is."""
        self.role: ir.Role | None = None
        self.parted = 0
        """How many reasons for being apart are those of roles."""
        self.stage: Stage | None = None
        """That is being filled or drained."""
        self.flags: dict[ir.Fragment, Condition] = {}
        """What a bool says."""
        self.copies = Copies()
        self.fenced: set[ir.Shared] = set()
        """What was stored before all threads came together and tensor cores were told."""
        self.touched: dict[ir.Shared, str] = {}
        """What is missing between threads that touched an array of their warp and a bulk copy into it."""
        self.coming: set[ir.Shared] = set()
        """What bulk copies are on their way to."""
        self.foreseen: dict[ir.Steps, ir.Foresee] = {}
        """What is done for steps to come."""
        self.fetches = False
        """Whether those that are here are one warp, which may ask for what fills a stage."""
        self.described: dict[ir.Matrix, Range] = {}
        """Where matrices begin, in sixteens of bytes."""
        self._plain: dict[Index, bool] = {}
        self.begun: set[ir.Element] = set()
        """Sums of which a batch of products made some."""
        self.foreign = 0
        """How often something was asked that surroundings alone do not tell: of registers, and of tables."""
        self.multiplied: list[tuple[ir.Fragment, Range]] = []
        """Rows that a batch of products has of registers, and which of these."""
        self.flying: dict[ir.Fragment, list[tuple[ir.Fragment, Range]]] = {}
        """Sums of which products are on their way, and the rows of these."""
        self.providing: tuple[ir.Shared, ...] = ()
        """What threads of a role store for all of them, and nobody has waited for yet."""
        self.has_provided = False
        self.has_turn = False
        self.by_turns: dict[bool, set[ir.Shared]] = {True: set(), False: set()}
        """What warpgroups touched in their turns, and what beside these, since all of several came together."""

    @property
    def ranges(self) -> Ranges:
        return self.here.ranges

    @property
    def definitions(self) -> Definitions:
        return self.here.definitions

    @property
    def smaller(self) -> Sequence[tuple[Index, Index]]:
        """What is known to be less than what."""
        return self.here.smaller

    def say(self, words: str) -> None:
        self.wrong.append(words)

    # scopes

    def body(self, body: ir.Body) -> None:
        for node in body:
            self.node(node)

    def node(self, node: ir.Node) -> None:
        """What it must not do, and what is known behind it."""
        raise NotImplementedError

    @contextmanager
    def inside(self, ranges: Mapping[Index, Range], apart: str = "", holds: Condition = ()) -> Iterator[None]:
        before = self.here
        is_vacant = self.stage is not None and self.stage.is_vacant
        self.here = before.within(ranges)
        self.here = self.here.where([(each.left, each.right) for each in self.opened(holds) if each.sign == "<"])
        self.there.append(set())
        self.apart += [apart] if apart else []
        yield
        self.here = before
        if self.stage:
            self.stage.is_vacant = is_vacant
        self.there.pop()
        if apart:
            self.apart.pop()

    def reach(self, index: Index) -> Range:
        if self.has_tables:
            self._looked_up(index)
        try:
            return self.here.reach(index)
        except ValueError:
            if self._asked(index) is None:
                raise
            return self._by_cases(index)

    def nearest(self, index: Index) -> Range:
        """Where it lies, nearer than what is known of each of its parts."""
        self.reach(index)
        return self._by_cases(index)

    def opened(self, condition: Condition) -> Condition:
        """With what a bool stands for in its place: a variable that was set by a condition, or a register."""
        found: list[Compare] = []
        for each in condition:
            if each.unless:
                self.say("what is not asked everywhere is asked of something else than a load")
            kept = self.definitions.get(each.left)
            held = each.left.of.of if isinstance(each.left, ir.Held) else None
            if each.sign == "!=" and isinstance(kept, Holds):
                found += self.opened(kept.condition)
            elif each.sign == "!=" and held in self.flags:
                found += self.opened(self.flags[held])
            else:
                found.append(each)
        return tuple(found)

    @kept
    def _most(self, index: Index, first: int) -> int:
        """What it is at most, by what is known to be less, from the `first` on, than something that grows as the rest
        of it shrinks."""
        high = min(self.reach(index).high, self._by_cases(index).high)  # what cancels does so where nothing is asked
        for number, (less, more) in enumerate(self.smaller[first:], first):
            by = value_of(more.right) or 1 if isinstance(more, Binary) and more.sign == "/" else 1
            factor = self._times(index, less)
            if factor > 0 and factor % by == 0:
                for bound in self._bounds(more.left if by > 1 and isinstance(more, Binary) else more):
                    end = index + (bound - by - less * by) * (factor // by)
                    high = min(high, self._most(end, number + 1))
        return high

    def _times(self, index: Index, part: Index) -> int:
        """How many times the sum that a part is, is in another sum."""
        whole, parts = self.here.linear(index), self.here.linear(part)
        return min((whole.get(atom, 0) // times for atom, times in parts.items() if atom != ONE), default=0)

    def _bounds(self, index: Index) -> list[Index]:
        """What it does not exceed: of the smaller of two each."""
        if isinstance(index, Smaller):
            return [*self._bounds(index.left), *self._bounds(index.right)]
        if isinstance(index, Binary) and index.sign in "+-":
            more = index.right if index.sign == "+" else index.right * -1
            return [each + more for each in self._bounds(index.left)]
        if isinstance(index, Binary) and index.sign == "*" and self.reach(index.right).low >= 0:
            return [each * index.right for each in self._bounds(index.left)]
        return self._bounds(self.definitions[index]) if index in self.definitions else [index]

    @kept
    def _by_cases(self, index: Index) -> Range:
        """Where it lies when each condition that it asks for is looked at one way and the other: nearer than `reach`
        knows, as several that ask for the same go together."""
        condition = self._asked(index)
        if condition is None:
            return self.here.reach(index)
        before, found = self.here, list[Range]()
        for way in self._ways(condition):
            self.here = way
            found.append(self._by_cases(index))
        self.here = before
        return functools.reduce(Range.either, found)

    @kept
    def _ways(self, condition: Condition) -> list[Surroundings]:
        """Where a condition holds and where it does not, without what cannot be."""
        found: list[Surroundings] = []
        for holds in (1, 0):
            known = self.narrowed(condition if holds else opposite(condition))
            if not any(each.is_empty for each in known.values()):
                with self.inside({**known, Holds(condition): Range(holds, holds)}):
                    found.append(self.here.within(self._nearer()))
        return found

    def _nearer(self) -> dict[Index, Range]:
        """Where variables lie that are less than something of which more is known by now."""
        found: dict[Index, Range] = {}
        for less, more in self.smaller:
            known = self.ranges.get(less)
            if known and isinstance(less, Variable):
                below = known.below(self.here.reach(more).high) if self._asked(more) is None else known
                found |= {less: below} if below.low <= below.high < known.high else {}
        return found

    def _by_sums(self, index: Index) -> Range:
        """Where it lies when a sum of which a condition says something is taken as one."""
        found, rest = Range(0, 0), self.here.linear(index)
        for known, range_ in self.ranges.items():
            if isinstance(known, Binary) and known.sign in "+-*":
                of = dict(self.here.linear(known))
                constant = of.pop(ONE, 0)
                times = {rest.get(atom, 0) / factor for atom, factor in of.items()}
                if len(times) == 1 and (factor := times.pop()) >= 1 and factor.is_integer():
                    rest = {atom: each for atom, each in rest.items() if atom not in of}
                    found = found.plus(range_.plus(Range(-constant, -constant)).times(int(factor)))
        others, left = Range(0, 0), lift(0)
        for atom, factor in rest.items():
            others, left = others.plus(self._by_cases(atom).times(factor)), left + atom * factor
        most = min(others.high, self._most(left, 0))
        return found.plus(Range(others.low, most, others.step))

    def _by_values(self, index: Index, last: int) -> Iterator[Range]:
        """Where it lies by one value after the other of a number that it depends on, as what two divisions of it leave
        go together."""
        for each in reversed(self.places(index, False)):
            known = self.ranges.get(each)
            if known and known.high - known.low < MOST_VALUES * known.step:
                found = list[Range]()
                for value in range(known.low, known.high + 1, known.step):
                    with self.inside({each: Range(value, value)}):
                        found.append(self._near(index, last))
                yield functools.reduce(Range.either, found)

    def _asked(self, index: Index) -> Condition | None:
        """The first condition that it depends on, of which nothing is known yet."""
        known = self.here.asked
        if index not in known:
            known[index] = None if self._is_plain(index) else self._asked_by(index)
        return known[index]

    def _asked_by(self, index: Index) -> Condition | None:
        if isinstance(index, Binary | Smaller | Larger):
            left = self._asked(index.left)
            return self._asked(index.right) if left is None else left
        if isinstance(index, Listed):
            return self._asked(index.at)
        if isinstance(index, Part):
            block = self.here.reach(index.block)
            begins = (each for each in index.begins.values if block.low < each <= block.high)
            return next(((Compare(">=", index.block, Number(each)),) for each in begins), None)
        if isinstance(index, Either):
            holds = self.ranges.get(Holds(index.condition))
            return index.condition if holds is None else self._asked(index.one if holds.low else index.other)
        is_open = index in self.definitions and index not in self.ranges
        return self._asked(self.definitions[index]) if is_open else None

    def _is_plain(self, index: Index) -> bool:
        """Whether it depends on no condition, wherever it stands."""
        found = self._plain.get(index)
        if found is None:
            below: tuple[Index, ...] = ()
            if isinstance(index, Binary | Smaller | Larger):
                below = index.left, index.right
            elif isinstance(index, Listed):
                below = (index.at,)
            elif index in self.definitions:
                below = (self.definitions[index],)
            found = self._plain[index] = not isinstance(index, Either | Part) and all(map(self._is_plain, below))
        return found

    def _looked_up(self, index: Index) -> None:
        """Only what is in a table, of those that the kernel has."""
        if isinstance(index, Listed | Part):
            self.foreign += 1
        if isinstance(index, Listed):
            self.known(index.table)
            self.within(index.at, len(index.table.values), index.table.name, 1)
        elif isinstance(index, Part):
            self.known(index.begins)
            if index.begins.values[0] or index.begins.values[-1] != self.kernel.blocks:
                self.say(f"{index.begins.name} has parts of {index.begins.values[-1]} blocks of {self.kernel.blocks}")
        elif isinstance(index, Binary | Smaller | Larger):
            self._looked_up(index.left)
            self._looked_up(index.right)
        elif isinstance(index, Either):
            self._looked_up(index.one)
            self._looked_up(index.other)

    @kept
    def narrowed(self, condition: Condition) -> dict[Index, Range]:
        """Where things lie if it holds."""
        opened = self.opened(condition)
        for each in dict.fromkeys((*condition, *opened)):
            for held in (side for side in (each.left, each.right) if isinstance(side, ir.Held)):
                self.element(held.of, is_read=True)
        found: dict[Index, Range] = {}
        for each in opened:
            if each.left in found and found[each.left].is_empty:
                continue
            with self.inside(found):
                found[each.left] = met(each, self._by_cases(each.left), self.reach(each.right))
        return found

    def differs(self, index: Index, in_warps: bool = False) -> bool:
        """Whether it is not the same for all threads of a block, or for all lanes of a warp."""
        return any(
            (isinstance(each, Place) and each.of == "thread")
            or each in (self.uneven_lanes if in_warps else self.uneven)
            or (isinstance(each, ir.Held) and each.of.of not in self.alike)
            for each in self.places(index, in_warps)
        )

    @kept
    def places(self, index: Index, in_warps: bool) -> Sequence[Index]:
        """What an index comes from in the end, each once; of warps perhaps without their numbers."""
        if isinstance(index, Variable | Place | ir.Held) and index not in self.definitions:
            return (index,)
        return tuple(dict.fromkeys(end for part in self._parts(index, in_warps) for end in self.places(part, in_warps)))

    def _parts(self, index: Index, in_warps: bool) -> Iterator[Index]:
        """What it is made of."""
        if isinstance(index, Holds | Either):
            for each in index.condition:
                yield from (each.left, each.right)
        if isinstance(index, Either):
            yield from (index.one, index.other)
        elif isinstance(index, Binary | Smaller | Larger):
            if not (in_warps and self._is_of_warps(index)):
                yield from (index.left, index.right)
        elif isinstance(index, Part):
            yield index.block
        elif isinstance(index, Listed):
            yield index.at
        elif index in self.definitions:
            yield self.definitions[index]

    def _is_of_warps(self, index: Index) -> bool:
        """Whether it is a number of whole warps."""
        if not isinstance(index, Binary) or index.sign != "/" or not isinstance(index.left, Place):
            return False
        return self.reach(index.right).low % WARP == 0

    def is_never(self, condition: Condition) -> bool:
        """Whether it asks for something that nobody has set so far."""
        return any(
            each.sign == "!=" and isinstance(each.left, ir.Held) and each.left.of.of in self.zero and each.right == ZERO
            for each in condition
        )

    def why_apart(self, condition: Condition) -> str:
        sides = [side for each in condition for side in (each.left, each.right) if self.differs(side)]
        between = "threads" if any(self.differs(side, in_warps=True) for side in sides) else WARPS
        return f"under a condition that differs between {between}" if sides else ""

    def apart_by(self, ends: Sequence[Index]) -> str:
        """Why threads are apart in a loop."""
        if any(self.differs(each, in_warps=True) for each in ends):
            return "in a loop of which threads take a different number of rounds"
        return f"in a loop of which the rounds differ between {WARPS}" if any(map(self.differs, ends)) else ""

    # places

    def declare(self, what: object) -> None:
        self.there[-1].add(what)

    def known(self, what: Named) -> None:
        if not any(what in scope for scope in self.there):
            self.say(f"{what.name} is not declared where it is used")

    def spot(self, spot: ir.Spot, vector: int, guard: Condition = ()) -> None:
        """Inside what it is of, and at whole packs."""
        self.known(spot.of)
        self._inside_of(spot, vector, guard)

    @kept
    def _inside_of(self, spot: ir.Spot, vector: int, guard: Condition) -> None:
        known = self.narrowed(guard)
        if any(each.is_empty for each in known.values()):  # it never holds
            return
        with self.inside(known, holds=guard):
            if isinstance(spot, ir.Global):
                self.within(spot.place, spot.tensor.elements, spot.tensor.name, vector)
                return
            tile, place = spot.tile, spot.place
            *_, last = tile.sizes
            if vector > 1 and last % vector:
                self.say(f"{tile.name}: packs of {vector} in rows of {last} are not aligned")
            packs = (*(1 for _ in place[1:]), vector)
            for index, size, own in zip(place, tile.sizes, packs, strict=True):
                self.within(index, size * (2 if spot.halved else 1), tile.name, own)

    @kept
    def within(self, index: Index, size: int, name: str, vector: int) -> None:
        last = size - vector
        found = self._near(index, last)
        if found.low < 0 or found.high > last:
            ways = self._by_values(index, last)
            found = next((each for each in ways if each.low >= 0 and each.high <= last), found)
        if found.low < 0 or found.high + vector > size:
            self.say(f"{name} is read or written at {found.low} to {found.high + vector - 1}, and has {size} elements")
        if vector > 1 and (found.low % vector or found.step % vector):
            self.say(f"{name}: packs of {vector} at {found.low} and every {found.step} from there are not aligned")

    def _near(self, index: Index, last: int) -> Range:
        """Where it lies, as near as it takes for that to be from 0 to `last`."""
        found = self.reach(index)
        if found.low < 0 or found.high > last:
            found = self._by_cases(index)
        if found.low >= 0 and found.high > last:
            found = Range(found.low, self._most(index, 0), found.step)
        return self._by_sums(index) if found.low < 0 or found.high > last else found

    def element(self, element: ir.Element, is_read: bool) -> None:
        self.foreign += 1
        self.known(element.of)
        self.at_rest(element, is_read)
        if is_read and element.of not in self.filled:
            self.say(f"{element.of.name} is read before anything is in it")
        if not is_read:
            self.filled.add(element.of)
        self._inside_registers(element)

    @kept
    def _inside_registers(self, element: ir.Element) -> None:
        for index, size in zip(element.at, element.of.sizes, strict=False):
            if any(not isinstance(each, Variable) for each in self.places(index, False)):
                self.say(f"{element.of.name}: registers have no address, and threads take different ones")
            else:
                self.within(index, size, element.of.name, 1)
        if len(element.at) < len(element.of.sizes) - element.of.packed:
            self.say(f"{element.of.name} has {len(element.of.sizes)} dims and is read by {len(element.at)}")

    def at_rest(self, element: ir.Element, is_read: bool) -> None:
        """Products that are on their way make none of it, nor read what is written."""
        rows = [each for every in self.flying.values() for each in every if each[0] is element.of and not is_read]
        at = self.reach(element.at[0]) if rows and element.at else Range(0, 0)
        if element.of in self.flying or any(at.low <= own.high and own.low <= at.high for _, own in rows):
            self.say(f"{element.of.name} is touched while products are on their way")

    def together(self, what: str) -> None:
        """All threads of the block that are not done come here."""
        for each in self.apart:
            self.say(f"{what} stands {each}")

    def role_together(self, what: str) -> None:
        """All threads of the role come here."""
        for each in self.apart[self.parted :]:
            self.say(f"{what} stands {each}")

    def team_together(self, what: str) -> None:
        """All threads of a warpgroup come here."""
        for each in self.apart[self.parted :]:
            if not each.endswith(TEAMS):
                self.say(f"{what} stands {each}")

    def warp_together(self, what: str) -> None:
        """All lanes of a warp come here."""
        for each in self.apart[self.parted :]:
            if not each.endswith((WARPS, TEAMS)):
                self.say(f"{what} stands {each}")

    def is_own(self, spot: ir.InShared) -> bool:
        """Whether a thread may touch an array of its warp here, whatever it did before: it is where all did, or they
        did in other parts of it. As no two threads store to one place, nobody else did there."""
        touched, place = self.touched_at.setdefault(spot.tile, {}), spot.place
        first = place[0] if isinstance(place[0], Number) else None
        beside = touched if first is None else (first, None)
        is_alike = all(touched.get(each, {place}) == {place} for each in beside)
        touched.setdefault(first, set()).add(place)
        return spot.tile.per_warp and is_alike

    def over(self, tile: ir.Shared, base: ir.Shared, begin: int) -> None:
        """An array in the place of another one."""
        self.known(base)
        self.filled.discard(tile)
        if not tile.at_launch or tile.per_warp or base.over or begin % UNIT or begin + tile.bytes > base.bytes:
            self.say(f"{tile.name}: {tile.bytes} bytes from {begin} on are not in the place of {base.name}")

    def taken(self, tile: ir.Shared) -> None:
        """What is stored there takes the place of what an array over it, or below it, had."""
        gone = {each for each in self.filled if isinstance(each, ir.Shared) and each is not tile}
        gone = {each for each in gone if each is tile.base or (each.base is tile and each.over)}
        if gone and tile.base in self.written:
            self.say(f"{tile.name} is written where others may still be writing {tile.base.name}: a Sync is missing")
        self.filled -= gone

    def not_while(self, shared: ir.Shared, who: set[ir.Shared], words: str) -> None:
        if shared.base in who:
            self.say(f"{shared.name} is {words}: a Sync is missing")

    def changes(self, *elements: ir.Element) -> None:
        """Nothing is known of what is in them from here on."""
        for each in elements:
            self.alike.discard(each.of)
            self.zero.discard(each.of)

    def put(self, into: ir.Element, declares: bool, alike: bool = False) -> None:
        """Something is in it from here on, which may be `alike` for all threads."""
        if declares:
            self.declare(into.of)
        self.element(into, is_read=False)
        self.zero.discard(into.of)
        if not alike or self.apart[self.parted :]:
            self.alike.discard(into.of)
        elif declares:
            self.alike.add(into.of)
