"""What a kernel must not do, found by reading it: every kernel that is built goes through here before it is printed.

Bounds and alignment by where indices lie (`index.reach`) under the loops and conditions around them; what is read
before it is there; shared memory that one thread reads while another still writes it; threads that do not come where
all must; more threads and shared memory than a block has.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import singledispatchmethod

from crucible.errors import KernelError
from crucible.graph import ITEM_BYTES
from crucible.kernel import nodes as ir
from crucible.kernel.index import (
    Binary,
    Compare,
    Condition,
    Either,
    Index,
    Larger,
    Place,
    Range,
    Smaller,
    Variable,
    narrowed,
    reach,
)

MOST_THREADS, WARP = 1024, 32
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
    reader = _Reader(kernel)
    reader.budgets()
    reader.body(kernel.body)
    return tuple(dict.fromkeys(reader.wrong))


class _Reader:
    """What is known at some place of a kernel."""

    def __init__(self, kernel: ir.Kernel) -> None:
        self.kernel = kernel
        self.wrong: list[str] = []
        self.ranges: dict[Index, Range] = {}
        self.definitions: dict[Index, Index] = {}
        self.there: list[set[object]] = [set(kernel.tensors)]
        """What was declared, by scopes."""
        self.filled: set[ir.Fragment | ir.Shared] = set()
        """What holds something."""
        self.written: set[ir.Shared] = set()
        """What threads may still be writing: nobody synchronised since."""
        self.read: set[ir.Shared] = set()
        """What threads may still be reading."""
        self.apart: list[str] = []
        """Why not all threads of the block are here."""
        self.last: ir.Node | None = None
        """What a loop's round ends with."""
        self.done: list[Index] = []
        """By what threads went that are done."""

    def say(self, words: str) -> None:
        self.wrong.append(words)

    def budgets(self) -> None:
        kernel = self.kernel
        if not 0 < kernel.threads <= MOST_THREADS:
            self.say(f"a block has {kernel.threads} threads, and may have {MOST_THREADS}")
        declared = [node.what for node in ir.every(kernel.body) if isinstance(node, ir.Declare)]
        shared = sum(math.prod(each.sizes) * ITEM_BYTES[each.dtype] for each in declared if isinstance(each, ir.Shared))
        over_warps = [node for node in ir.every(kernel.body) if isinstance(node, ir.Reduce) and node.over == "warps"]
        if over_warps:
            shared += max(ITEM_BYTES[each.into.dtype] for each in over_warps) * kernel.threads // WARP
        if shared > MOST_SHARED:
            self.say(f"shared memory: {shared} bytes, and a block has {MOST_SHARED}")
        lasting = [node.what for node in kernel.body if isinstance(node, ir.Declare)]
        words = sum(_words(each) for what in lasting if isinstance(what, tuple) for each in what)
        if words > MOST_REGISTERS:
            self.say(f"registers: {words} words are held to the end, and a thread has {MOST_REGISTERS}")

    # scopes

    def body(self, body: ir.Body) -> None:
        for node in body:
            self.node(node)

    @contextmanager
    def _inside(self, ranges: Mapping[Index, Range], apart: str = "") -> Iterator[None]:
        before, definitions = dict(self.ranges), dict(self.definitions)
        self.ranges |= ranges
        self.there.append(set())
        self.apart += [apart] if apart else []
        yield
        self.ranges, self.definitions = before, definitions
        self.there.pop()
        if apart:
            self.apart.pop()

    def _reach(self, index: Index) -> Range:
        return reach(index, self.ranges, self.definitions)

    def _narrowed(self, condition: Condition) -> dict[Index, Range]:
        """Where things lie if it holds."""
        for each in condition:
            for held in (side for side in (each.left, each.right) if isinstance(side, ir.Held)):
                self._element(held.of, is_read=True)
        return narrowed(condition, self.ranges, self.definitions)

    def _differs(self, index: Index) -> bool:
        """Whether it is not the same for all threads of a block."""
        return any(
            (isinstance(each, Place) and each.of == "thread") or isinstance(each, ir.Held)
            for each in self._places(index)
        )

    def _places(self, index: Index) -> Iterator[Index]:
        """What an index comes from in the end."""
        if isinstance(index, Binary | Smaller | Larger):
            yield from self._places(index.left)
            yield from self._places(index.right)
        elif isinstance(index, Either):
            for each in index.condition:
                yield from self._places(each.left + each.right)
            yield from self._places(index.one + index.other)
        elif index in self.definitions:
            yield from self._places(self.definitions[index])
        elif isinstance(index, Variable | Place | ir.Held):
            yield index

    def _apart(self, condition: Condition) -> str:
        differ = [each for each in condition if self._differs(each.left) or self._differs(each.right)]
        return "under a condition that differs between threads" if differ else ""

    # places

    def _declare(self, what: object) -> None:
        self.there[-1].add(what)

    def _known(self, what: ir.Tensor | ir.Pointer | ir.Shared | ir.Fragment) -> None:
        if not any(what in scope for scope in self.there):
            self.say(f"{what.name} is not declared where it is used")

    def _spot(self, spot: ir.Spot, vector: int, guard: Condition = ()) -> None:
        """Inside what it is of, and at whole packs."""
        self._known(spot.of)
        with self._inside(self._narrowed(guard)):
            if isinstance(spot, ir.Global):
                index = spot.at + spot.of.offset if isinstance(spot.of, ir.Pointer) else spot.at
                self._within(index, spot.tensor.elements, f"{spot.tensor.name}", vector)
            else:
                for index, size in zip(spot.at, spot.of.sizes, strict=True):
                    self._within(index, size, spot.of.name, 1)

    def _within(self, index: Index, size: int, name: str, vector: int) -> None:
        found = self._reach(index)
        if found.low < 0 or found.high + vector > size:
            self.say(f"{name} is read or written at {found.low} to {found.high + vector - 1}, and has {size} elements")
        if vector > 1 and (found.low % vector or found.step % vector):
            self.say(f"{name}: packs of {vector} at {found.low} and every {found.step} from there are not aligned")

    def _element(self, element: ir.Element, is_read: bool) -> None:
        self._known(element.of)
        if is_read and element.of not in self.filled:
            self.say(f"{element.of.name} is read before anything is in it")
        if not is_read:
            self.filled.add(element.of)
        for index, size in zip(element.at, element.of.sizes, strict=False):
            if any(not isinstance(each, Variable) for each in self._places(index)):
                self.say(f"{element.of.name}: registers have no address, and threads take different ones")
            else:
                self._within(index, size, element.of.name, 1)
        if len(element.at) < len(element.of.sizes) - element.of.packed:
            self.say(f"{element.of.name} has {len(element.of.sizes)} dims and is read by {len(element.at)}")

    def _together(self, what: str) -> None:
        """All threads of the block that are not done come here."""
        for each in self.apart:
            self.say(f"{what} stands {each}")

    # nodes

    @singledispatchmethod
    def node(self, node: object) -> None:
        raise TypeError(f"{type(node).__name__} is not verified")

    @node.register
    def _(self, node: ir.Note) -> None:
        pass

    @node.register
    def _(self, node: ir.Let) -> None:
        self.ranges.pop(node.variable, None)
        self.definitions[node.variable] = node.index
        self._reach(node.index)

    @node.register
    def _(self, node: ir.Declare) -> None:
        for each in node.what if isinstance(node.what, tuple) else (node.what,):
            self._declare(each)
            if isinstance(each, ir.Fragment) and node.start:
                self.filled.add(each)
        if isinstance(node.what, ir.Pointer):
            self._reach(node.what.offset)  # of a row that is missing it is beyond the tensor, and nothing is read there

    @node.register
    def _(self, node: ir.For) -> None:
        start, stop, step = (self._reach(each) for each in (node.start, node.stop, node.step))
        if step.low < 1:
            self.say(f"a loop over {node.variable.name} goes on by {step.low}")
            return
        found = Range(start.low, stop.high - 1, math.gcd(start.step, step.low))
        ends = (node.start, node.stop, node.step)
        apart = "in a loop of which threads take a different number of rounds" if any(map(self._differs, ends)) else ""
        with self._inside({node.variable: found}, apart):
            for _ in range(2):  # what a round leaves meets the next one
                for each in node.body:
                    self.last = node.body[-1]
                    self.node(each)

    @node.register
    def _(self, node: ir.If) -> None:
        if node.is_rest and node is not self.last:
            self.say("the rest of a round is skipped where no round ends")
        with self._inside(self._narrowed(node.condition), self._apart(node.condition)):
            self.body(node.body)

    @node.register
    def _(self, node: ir.Scope) -> None:
        with self._inside({}):
            self.body(node.body)

    @node.register
    def _(self, node: ir.Exit) -> None:
        self._together("the end of some threads")
        self.done.append(node.variable)
        self.ranges |= self._narrowed((Compare("<", node.variable, node.limit),))

    @node.register
    def _(self, node: ir.Load) -> None:
        self._spot(node.source, node.into.vector, node.guard)
        if isinstance(node.source, ir.InShared):
            if node.source.of not in self.filled:
                self.say(f"{node.source.of.name} is read before anything is in it")
            self._not_while(node.source.of, self.written, "read while others may still be writing it")
            self.read.add(node.source.of)
        if isinstance(node.source, ir.Global) and node.source.tensor.access == "write":
            self.say(f"{node.source.tensor.name} is read, and other threads write it")
        self._set(node.into, node.declares)

    @node.register
    def _(self, node: ir.Store) -> None:
        self._element(node.value, is_read=True)
        self._spot(node.to, node.value.vector)
        if isinstance(node.to, ir.InShared):
            self._not_while(node.to.of, self.read, "written while others may still be reading it")
            self.written.add(node.to.of)
            self.filled.add(node.to.of)
        elif node.to.tensor.access == "read":
            self.say(f"{node.to.tensor.name} is written, and a parameter that is read")

    @node.register
    def _(self, node: ir.Convert) -> None:
        self._narrowed(node.guard)
        self._element(node.value, is_read=True)
        self._set(node.into, node.declares)

    @node.register
    def _(self, node: ir.Chain) -> None:
        for _, each in node.inputs:
            self._element(each, is_read=True)
        for into, _ in node.results:
            self._set(into, True)

    @node.register
    def _(self, node: ir.Value) -> None:
        self._reach(node.index)
        self._set(node.into, True)

    @node.register
    def _(self, node: ir.Choose) -> None:
        self._reach(node.number)
        if node.choice.of.dtype != "int32":
            self.say(f"{node.choice.of.name} is {node.choice.of.dtype}: the number of a choice is an int32, or -1")
        for each in (node.best, node.choice, node.value, *(each for pair in node.along for each in pair)):
            self._element(each, is_read=True)

    @node.register
    def _(self, node: ir.Accumulate) -> None:
        for each in (node.into, node.value):
            self._element(each, is_read=True)

    @node.register
    def _(self, node: ir.Reduce) -> None:
        self._together(f"a reduction over the {node.over}")
        for each in self.done:
            if node.over != "groups" and not self._goes_by_warps(each):
                self.say(f"a reduction over the {node.over} waits for threads that are done")
        self._element(ir.Element(node.into), is_read=True) if not node.into.shape else self._known(node.into)
        sizes = [each.value for each in node.sizes]
        if node.over == "team" and (sizes[0] > WARP or sizes[0] & (sizes[0] - 1)):
            self.say(f"a team of {sizes[0]} threads: it must be a power of two up to {WARP}")
        if node.over != "team" and math.prod(sizes) != self.kernel.threads:
            self.say(f"a reduction of {' x '.join(map(str, sizes))} threads in a block of {self.kernel.threads}")
        if node.over in ("block", "groups"):
            self._through(node)

    def _through(self, node: ir.Reduce) -> None:
        """Shared memory: written, then read by all after they came together."""
        if node.scratch is None:
            self.say(f"a reduction over the {node.over} has no shared memory")
            return
        self._known(node.scratch)
        self._not_while(node.scratch, self.read, "written while others may still be reading it")
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
    def _(self, node: ir.Sync) -> None:
        self._together("a barrier")
        self.written.clear()
        self.read.clear()

    def _not_while(self, shared: ir.Shared, who: set[ir.Shared], words: str) -> None:
        if shared in who:
            self.say(f"{shared.name} is {words}: a Sync is missing")

    def _set(self, into: ir.Element, declares: bool) -> None:
        if declares:
            self._declare(into.of)
        self._element(into, is_read=False)

    def _goes_by_warps(self, index: Index) -> bool:
        """Whether it is the same for all lanes of a warp."""
        if isinstance(index, Place):
            return index.of == "block"
        if isinstance(index, Binary) and index.sign == "/" and isinstance(index.left, Place):
            return self._reach(index.right).low % WARP == 0
        if isinstance(index, Binary | Smaller):
            return self._goes_by_warps(index.left) and self._goes_by_warps(index.right)
        return self._goes_by_warps(self.definitions[index]) if index in self.definitions else True


def _words(fragment: ir.Fragment) -> int:
    """Registers of 32 bits."""
    return math.ceil(fragment.elements * ITEM_BYTES[fragment.dtype] / 4)
