"""What a kernel must not do, found by reading it: every kernel that is built goes through here before it is printed.

Bounds and alignment by where indices lie (`index.reach`) under the loops and conditions around them; what is read
before it is there; shared memory that one thread reads while another still writes it; threads that do not come where
all must; more threads and shared memory than a block has.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from crucible.errors import KernelError
from crucible.kernel import nodes as ir
from crucible.kernel import verify_bulk as bulk
from crucible.kernel import verify_scaled as scaled
from crucible.kernel import verify_sharing as sharing
from crucible.kernel import verify_sliding as sliding
from crucible.kernel import verify_streams as streams
from crucible.kernel import verify_warpgroups as warpgroups
from crucible.kernel import verify_warps as warps
from crucible.kernel import verify_windows as windows
from crucible.kernel.dispatch import by_type
from crucible.kernel.index import ONE, ZERO, Compare, Condition, Holds, Range, Variable, apart, opposite, ways
from crucible.kernel.nodes import ITEM_BYTES
from crucible.kernel.places import words_of
from crucible.kernel.reader import Reader
from crucible.kernel.tiles import steps

MOST_THREADS, WARP = 1024, 32
UNIT = 16
"""Bytes that are copied at once."""
MOST_SHARED = 48 * 1024
"""Bytes that a block has without asking for more."""
MOST_REGISTERS = 255
"""Words of a thread."""


def check(kernel: ir.Kernel) -> None:
    """Raises KernelError with all that is wrong."""
    found = verify(kernel)
    if found:
        raise KernelError(f"{kernel.name} was built wrong, which is a fault of Crucible's: {'; '.join(found)}")


def verify(kernel: ir.Kernel) -> tuple[str, ...]:
    """All that is wrong, in words; nothing where a kernel is right."""
    reader = _Verifier(kernel)
    reader.budgets()
    reader.body(kernel.body)
    return tuple(dict.fromkeys(reader.wrong))


def lasting_words(kernel: ir.Kernel) -> int:
    """Registers of a thread for what is held from where it is declared to the kernel's end."""
    lasting = [node.what for node in kernel.body if isinstance(node, ir.Declare)]
    return sum(warpgroups.words(each) for what in lasting if isinstance(what, tuple) for each in what)


class _Verifier(Reader):
    """What each node must not do."""

    static = 0
    """Bytes of shared memory beside pipelines."""

    def __init__(self, kernel: ir.Kernel) -> None:
        super().__init__(kernel)
        self.walked: dict[ir.Walk, ir.Ahead] = {}
        """What is done for rounds to come."""

    def budgets(self) -> None:
        kernel = self.kernel
        if not 0 < kernel.threads <= MOST_THREADS:
            self.say(f"a block has {kernel.threads} threads, and may have {MOST_THREADS}")
        declared = [node.what for node in ir.every(kernel.body) if isinstance(node, ir.Declare)]
        shared = sum(each.bytes for each in declared if isinstance(each, ir.Shared) and not each.at_launch)
        over_warps = [node for node in ir.every(kernel.body) if isinstance(node, ir.Reduce) and node.over == "warps"]
        if over_warps:
            shared += max(ITEM_BYTES[each.into.dtype] for each in over_warps) * kernel.threads // WARP
        self.static = shared
        if shared > MOST_SHARED:
            self.say(f"shared memory: {shared} bytes, and a block has {MOST_SHARED}")
        words = lasting_words(kernel)
        if words > MOST_REGISTERS:
            self.say(f"registers: {words} words are held to the end, and a thread has {MOST_REGISTERS}")

    # nodes

    @by_type
    def node(self, node: object) -> None:
        raise TypeError(f"{type(node).__name__} is not verified")

    @node.register
    def _(self, node: ir.Note) -> None:
        pass

    @node.register
    def _(self, node: ir.Let) -> None:
        self.here = self.here.defined(node.variable, node.index)
        self.reach(node.index)
        if node.of_warp:
            self.warp_together(f"{node.variable.name}, a warp's,")
            if self.differs(node.index, in_warps=True):
                self.say(f"{node.variable.name} is said to be a warp's, and lanes differ in it")

    @node.register
    def _(self, node: ir.Declare) -> None:
        if isinstance(node.what, ir.Pipeline):
            warpgroups.pipeline(self, node.what, self.static)
            return
        if isinstance(node.what, ir.Turns):
            warps.turns(self, node.what, self.static)
            return
        if isinstance(node.what, ir.Shared) and node.what.over:
            of, begin = node.what.over
            if isinstance(of, ir.Pipeline):
                sharing.over(self, node.what, of)
            else:
                self.over(node.what, of, begin)
        for each in node.what if isinstance(node.what, tuple) else (node.what,):
            self.declare(each)
            if isinstance(each, ir.Fragment) and node.start:
                self.filled.add(each)
            if isinstance(each, ir.Fragment):
                (self.alike.add if node.start else self.alike.discard)(each)
                (self.zero.add if node.start == "sum" else self.zero.discard)(each)
        if isinstance(node.what, ir.Pointer):
            self.known(node.what.of)
            self.reach(node.what.begin)  # of a row that is missing it is beyond the tensor, and nothing is read there

    @node.register
    def _(self, node: ir.For) -> None:
        start, stop, step = (self.nearest(each) for each in (node.start, node.stop, node.step))
        if step.low < 1:
            self.say(f"a loop over {node.variable.name} goes on by {step.low}")
            return
        found = Range(start.low, _last(start, stop, step), math.gcd(start.step, step.low, step.step))
        for known, in_warps in ((self.uneven, False), (self.uneven_lanes, True)):
            known |= {node.variable} if self.differs(node.start, in_warps) else set()
        apart = "" if _are_as_many(start, stop, step) else self.apart_by((node.start, node.stop, node.step))
        rounds = [found] * (2 if start.low + step.low < stop.high else 1)  # what a round leaves meets the next one
        if start.low == start.high < 0:  # a round before the first one does what that needs
            rounds.insert(0, start)
        for each in rounds:
            with self.inside({node.variable: each}, apart, (Compare("<", node.variable, node.stop),)):
                for pointer in node.along:
                    self.along(pointer, node)
                self.round(node.body)

    def along(self, pointer: ir.Pointer, node: ir.For) -> None:
        """What text moves on has to begin in the first round, and to go on as rounds do."""
        self.known(pointer.of)
        self.declare(pointer)
        self.reach(pointer.begin)
        if (node.start, node.step) != (ZERO, ONE) or node.unrolled or not self.is_multiple(pointer, node.variable):
            self.say(f"{pointer.name} does not move on with the rounds of {node.variable.name}")

    @staticmethod
    def is_multiple(pointer: ir.Pointer, variable: Variable) -> bool:
        try:
            return apart(pointer.offset, variable)[1] > 0
        except ValueError:
            return False

    @node.register
    def _(self, node: ir.If) -> None:
        if (node.is_rest or node.ends) and node is not self.last:
            self.say("the rest of a round is skipped where no round ends")
        before, apart = self.filled.copy() if node.otherwise else set(), self.why_apart(node.condition)
        self._where(node.condition, apart, self.round if node.is_rest else self.body, node.body)
        if node.otherwise:
            one, self.filled = self.filled, before
            self._where(opposite(node.condition), apart, self.body, node.otherwise)
            self.filled &= one  # what both ways fill

    def _where(self, condition: Condition, apart: str, read: Callable[[ir.Body], None], body: ir.Body) -> None:
        """A body of an `If`."""
        known = self.narrowed(condition)
        never = self.is_never(condition)  # as in the first round of a loop that stores what the last one read
        if not never and not any(each.is_empty for each in known.values()):
            with self.inside(known, apart, condition):
                read(body)

    def round(self, body: ir.Body) -> None:
        """A loop's, or the rest of one."""
        for each in body:
            self.last = body[-1]
            self.node(each)

    @node.register
    def _(self, node: ir.Scope) -> None:
        with self.inside({}):
            self.body(node.body)

    @node.register
    def _(self, node: ir.Roles) -> None:
        warpgroups.roles(self, node)

    @node.register
    def _(self, node: ir.Fill) -> None:
        streams.carries(self, node)
        warpgroups.fill(self, node)

    @node.register
    def _(self, node: ir.Drain) -> None:
        bulk.drain(self, node)

    @node.register
    def _(self, node: ir.Vacant) -> None:
        sliding.vacant(self, node)

    @node.register
    def _(self, node: ir.Slide) -> None:
        sliding.slide(self, node)

    @node.register
    def _(self, node: ir.Deal) -> None:
        sliding.deal(self, node)

    @node.register
    def _(self, node: ir.Share) -> None:
        sharing.share(self, node)

    @node.register
    def _(self, node: ir.Foresee) -> None:
        sharing.foresee(self, node)

    @node.register
    def _(self, node: ir.Ask) -> None:
        sharing.ask(self, node)

    @node.register
    def _(self, node: ir.Fetch) -> None:
        sharing.fetch(self, node)

    @node.register
    def _(self, node: ir.Meet) -> None:
        sharing.meet(self, node)

    @node.register
    def _(self, node: ir.Provide) -> None:
        sliding.provide(self, node)

    @node.register
    def _(self, node: ir.Provided) -> None:
        sliding.provided(self, node)

    @node.register
    def _(self, node: ir.Bring) -> None:
        sliding.bring(self, node)

    @node.register
    def _(self, node: ir.Brought) -> None:
        sliding.brought(self, node)

    @node.register
    def _(self, node: ir.Send) -> None:
        bulk.send(self, node)

    @node.register
    def _(self, node: ir.Stretch) -> None:
        self.reads(node.source)
        bulk.stretch(self, node)

    @node.register
    def _(self, node: ir.Leave) -> None:
        bulk.leave(self, node)

    @node.register
    def _(self, node: ir.InTurn) -> None:
        bulk.in_turn(self, node)

    @node.register
    def _(self, node: ir.Collect) -> None:
        bulk.collect(self, node)

    @node.register
    def _(self, node: ir.Carry) -> None:
        self.reads(node.source)
        streams.carry(self, node)

    @node.register
    def _(self, node: ir.MoveOn) -> None:
        streams.move_on(self, node)

    @node.register
    def _(self, node: ir.Ahead) -> None:
        self.declare(node.walk)
        self.walked[node.walk] = node

    @node.register
    def _(self, node: ir.Advance) -> None:
        streams.advance(self, node, self.walked.get(node.walk))

    @node.register
    def _(self, node: ir.Prefetch) -> None:
        self.reads(node.source)
        streams.prefetch(self, node)

    @node.register
    def _(self, node: ir.Describe) -> None:
        sliding.describe(self, node)

    @node.register
    def _(self, node: ir.Products) -> None:
        sliding.products(self, node)

    @node.register
    def _(self, node: ir.Product) -> None:
        sliding.product(self, node)

    @node.register
    def _(self, node: ir.Copy) -> None:
        for spot in (node.source, node.to):
            self.spot(spot, UNIT // ITEM_BYTES[spot.dtype])
        self.reads(node.source)
        self.writes(node.to)

    @node.register
    def _(self, node: ir.Fence) -> None:
        warpgroups.fence(self)

    @node.register
    def _(self, node: ir.Split) -> None:
        warpgroups.split(self, node)

    @node.register
    def _(self, node: ir.SplitPairs) -> None:
        warpgroups.split_pairs(self, node)

    @node.register
    def _(self, node: ir.Largest) -> None:
        scaled.largest(self, node)

    @node.register
    def _(self, node: ir.Scale) -> None:
        scaled.scale(self, node)

    @node.register
    def _(self, node: ir.SplitScaled) -> None:
        scaled.split(self, node)

    @node.register
    def _(self, node: ir.Mma) -> None:
        warpgroups.mma(self, node)

    @node.register
    def _(self, node: ir.Promote) -> None:
        warpgroups.promote(self, node)

    @node.register
    def _(self, node: ir.Exit) -> None:
        self.together("the end of some threads")
        self.done.append(node.variable)
        self.here = self.here.within(self.narrowed((Compare("<", node.variable, node.limit),)))

    @node.register
    def _(self, node: ir.Load) -> None:
        many = words_of(node.source.dtype, node.into.of.dtype)
        for way in ways(node.guard):
            self.spot(node.source, node.into.vector * many, way)
        self.reads(node.source)
        if isinstance(node.source, ir.InShared) and node.into.of.dtype == "tf32":
            warps.rounded(self, node.source.tile)
        self.put(node.into, node.declares)

    def reads(self, source: ir.Spot) -> None:
        """That what a thread reads is there, and stays."""
        if isinstance(source, ir.Global):
            if source.tensor.access == "write":
                self.say(f"{source.tensor.name} is read, and other threads write it")
        elif source.tile in self.pipelines:
            warpgroups.touched(self, source.tile, is_stored=False)
        else:
            self._from_shared(source)

    def _from_shared(self, spot: ir.InShared) -> None:
        tile = spot.tile
        if tile not in self.filled:
            self.say(f"{tile.name} is read before anything is in it")
        warps.touched(self, tile)
        sliding.touched_beside(self, tile)
        if tile.by_one:
            bulk.touched(self, spot)
            return
        if tile not in self.copies.own and not self.is_own(spot):
            self.not_while(tile, self.written, "read while others may still be writing it")
        if tile not in self.copies.own:
            self.read.add(tile.base)

    @node.register
    def _(self, node: ir.Store) -> None:
        self.element(node.value, is_read=True)
        many = max(1, ITEM_BYTES[node.value.of.dtype] // ITEM_BYTES[node.to.dtype]) if node.value.is_pack else 1
        self.spot(node.to, node.value.vector * many)
        self.writes(node.to)

    def writes(self, to: ir.Spot) -> None:
        """That nobody needs what was there."""
        if isinstance(to, ir.Global):
            if to.tensor.access == "read":
                self.say(f"{to.tensor.name} is written, and a parameter that is read")
        elif to.tile in self.pipelines:
            warpgroups.touched(self, to.tile, is_stored=True)
        else:
            self._to_shared(to)

    def _to_shared(self, spot: ir.InShared) -> None:
        tile = spot.tile
        warps.touched(self, tile)
        sliding.touched_beside(self, tile)
        self.taken(tile)
        self.filled.add(tile)
        self.fenced.discard(tile)
        if tile in self.providing:
            self.say(f"{tile.name} is stored behind where it is provided")
        if tile.by_one:
            bulk.touched(self, spot)
            return
        if not self.is_own(spot):
            self.not_while(tile, self.read, "written while others may still be reading it")
        self.written.add(tile.base)
        self.copies.unrounded.discard(tile)

    @node.register
    def _(self, node: ir.Convert) -> None:
        self.narrowed(node.guard)
        self.element(node.value, is_read=True)
        if node.otherwise:
            self.element(node.otherwise, is_read=True)
            if node.otherwise.of.dtype != node.into.of.dtype:
                self.say(f"{node.into.of.name} is {node.into.of.dtype}, and {node.otherwise.of.dtype} otherwise")
        if node.mask:
            self.element(node.mask, is_read=True)
            if node.into.of.dtype not in ("tf32", "word") or node.mask.of.dtype != "word" or node.guard:
                self.say(f"{node.into.of.name} is {node.into.of.dtype}, masked by {node.mask.of.dtype}")
        self.put(node.into, node.declares)

    @node.register
    def _(self, node: ir.Bits) -> None:
        for each in node.values:
            self.element(each, is_read=True)
        bits = 8 * sum(ITEM_BYTES[each.of.dtype] for each in node.values)
        if bits != 32 or node.into.of.dtype not in ("int32", "halves"):
            self.say(f"{node.into.of.name} is a word of {bits} bits as {node.into.of.dtype}, not of 32 as int32")
        self.put(node.into, True)

    @node.register
    def _(self, node: ir.Chain) -> None:
        for _, each in node.inputs:
            self.element(each, is_read=True)
        for into, _ in node.results:
            self.put(into, True)

    @node.register
    def _(self, node: ir.Value) -> None:
        if isinstance(node.index, Holds):
            self.narrowed(node.index.condition)
            self.flags[node.into.of] = node.index.condition
        else:
            self.reach(node.index)
        self.put(node.into, node.declares, alike=not self.differs(node.index))

    @node.register
    def _(self, node: ir.Choose) -> None:
        self.reach(node.number)
        if node.choice.of.dtype != "int32":
            self.say(f"{node.choice.of.name} is {node.choice.of.dtype}: the number of a choice is an int32, or -1")
        for each in (node.best, node.choice, node.value, *(each for pair in node.along for each in pair)):
            self.element(each, is_read=True)
        self.changes(node.best, node.choice, *(into for into, _ in node.along))

    @node.register
    def _(self, node: ir.Accumulate) -> None:
        for each in (node.into, node.value):
            self.element(each, is_read=True)
        self.changes(node.into)

    @node.register
    def _(self, node: ir.Reduce) -> None:
        of_warps = node.over in ("team", "columns")
        (self.warp_together if of_warps else self.together)(f"a reduction over the {node.over}")
        for each in self.done:
            if node.over != "groups" and self.differs(each, in_warps=True):
                self.say(f"a reduction over the {node.over} waits for threads that are done")
        self.element(ir.Element(node.into), is_read=True) if not node.into.shape else self.known(node.into)
        self.changes(ir.Element(node.into))
        sizes = [each.value for each in node.sizes]
        if of_warps and (sizes[0] > WARP or sizes[0] & (sizes[0] - 1)):
            self.say(f"a team of {sizes[0]} threads: it must be a power of two up to {WARP}")
        if not of_warps and math.prod(sizes) != self.kernel.threads:
            self.say(f"a reduction of {' x '.join(map(str, sizes))} threads in a block of {self.kernel.threads}")
        if node.over in ("block", "groups"):
            self._through(node)

    def _through(self, node: ir.Reduce) -> None:
        """Shared memory: written, then read by all after they came together."""
        if node.scratch is None:
            self.say(f"a reduction over the {node.over} has no shared memory")
            return
        self.known(node.scratch)
        self.not_while(node.scratch, self.read, "written while others may still be reading it")
        self.written.clear()
        self.read = {node.scratch}
        groups, warps = node.sizes[0].value, self.kernel.threads // WARP
        if node.over == "groups":
            needed: tuple[int, ...] = (groups, (node.into.elements | 1) * node.sizes[-1].value)
        else:
            needed = (warps,)
            if warps & (warps - 1):
                self.say(f"a block of {warps} warps: they must be a power of two")
        if node.scratch.sizes != needed:
            self.say(f"{node.scratch.name} is {node.scratch.sizes}, and a reduction over {node.over} needs {needed}")

    @node.register
    def _(self, node: ir.AsyncCopy) -> None:
        warps.async_copy(self, node)

    @node.register
    def _(self, node: ir.Turn) -> None:
        warps.turn(self, node)

    @node.register
    def _(self, node: ir.Own) -> None:
        warps.own(self, node)

    @node.register
    def _(self, node: ir.LoadMatrix) -> None:
        self.reads(node.source)
        warps.load_matrix(self, node)

    @node.register
    def _(self, node: ir.WarpMma) -> None:
        warps.mma(self, node)

    @node.register(ir.LoadTiles | ir.MultiplyTiles)
    def _(self, node: ir.LoadTiles | ir.MultiplyTiles) -> None:
        self.body(steps(node))

    @node.register
    def _(self, node: ir.Take) -> None:
        windows.take(self, node)

    @node.register
    def _(self, node: ir.Flip) -> None:
        windows.flip(self, node)

    @node.register
    def _(self, node: ir.Vote) -> None:
        windows.vote(self, node)

    @node.register
    def _(self, node: ir.Exchange) -> None:
        windows.exchange(self, node)

    @node.register
    def _(self, node: ir.Sync) -> None:
        bulk.sync(self, node)
        self.touched = {each: word for each, word in self.touched.items() if word != "Sync"}
        for each in (self.written, self.read):
            each -= {shared for shared in each if node.of == "block" or shared.per_warp}
        self.touched_at.clear()


def _last(start: Range, stop: Range, step: Range) -> int:
    """The largest value of a loop's variable: of threads that take as many rounds each, that of the last of them."""
    end = stop.high - 1
    if start.low == start.high or stop.low != stop.high or step.low != step.high:
        return end
    rounds = {(end - each) // step.low for each in (start.low, start.high)}
    return start.high + min(rounds) * step.low if len(rounds) == 1 else end


def _are_as_many(start: Range, stop: Range, step: Range) -> bool:
    """Whether rounds are, wherever threads begin within the first of them."""
    known = stop.low == stop.high and step.low == step.high
    return known and stop.low % step.low == 0 and start.low >= 0 and start.high < step.low
