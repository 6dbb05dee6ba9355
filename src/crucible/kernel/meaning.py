"""What a kernel means: its nodes run on the CPU over all threads of all blocks at once, before any text is made.

Values are arrays [blocks, threads], computed in float64; no node rounds to what it stores, so results are those of the
mathematics but for the order of sums. Of where threads go every step is taken as it will be: indices, guards, packs,
what lies in which fragment, which threads put what together. NumPy rather than torch: `write.evaluate`, the reference
for expressions, is.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import singledispatchmethod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from crucible.kernel import meaning_pipelines as pipelines
from crucible.kernel import nodes as ir
from crucible.kernel.index import (
    Binary,
    Compare,
    Condition,
    Either,
    Holds,
    Index,
    Larger,
    Listed,
    Number,
    Place,
    Size,
    Smaller,
    Variable,
)
from crucible.kernel.meaning_pipelines import Stuck
from crucible.kernel.tensor_cores import Ring, bits, multiplied, nearest
from crucible.write.evaluate import evaluate

Array: TypeAlias = npt.NDArray[Any]
SIGNS_OF: dict[str, Callable[[Array, Array], Array]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.floor_divide, "%": np.remainder,
}  # fmt: skip
COMPARED: dict[str, Callable[[Array, Array], Array]] = {
    "<": np.less,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}
Waits: TypeAlias = Iterator[None]
WARP = 32
_START = {"": np.nan, "sum": 0.0, "max": -np.inf, "min": np.inf, "none": -1.0}
_STEP = {"sum": np.add, "max": np.maximum, "min": np.minimum}


class OutOfBounds(IndexError):
    """A thread reads or writes what is not there."""


def run(kernel: ir.Kernel, storages: Mapping[str, Array]) -> dict[str, Array]:
    """The flat storages of what is written, from those of what is read; NaN where nothing is written.

    Raises OutOfBounds for a load or store beside a tensor or an array in shared memory, Stuck where threads wait for
    what nobody does.
    """
    memory = _memory(kernel, storages)
    parts = any(isinstance(node, ir.Roles) for node in kernel.body)
    for blocks in [[b] for b in range(kernel.blocks)] if parts else [list(range(kernel.blocks))]:
        _Run(kernel, memory, np.asarray(blocks)).done()
    return {each.name: memory[each] for each in kernel.writes}


def _memory(kernel: ir.Kernel, storages: Mapping[str, Array]) -> dict[ir.Tensor, Array]:
    filled = {each: storages[each.name] if each.access == "read" else np.full(each.elements, np.nan)
              for each in kernel.tensors}  # fmt: skip
    return {each: np.asarray(given, np.float64) for each, given in filled.items()}


class _Run:
    """Some blocks of a kernel at once; where roles wait for each other, one."""

    def __init__(self, kernel: ir.Kernel, memory: dict[ir.Tensor, Array], blocks: Array) -> None:
        self.kernel, self.memory, self.blocks = kernel, memory, blocks
        self.shape = (len(blocks), kernel.threads)
        self.variables: dict[Index, Array] = {}
        self.registers: dict[ir.Fragment, Array] = {}
        self.shared: dict[ir.Shared, Array] = {}
        self.active = np.ones(self.shape, bool)
        """The threads that are where we are."""
        self.stays = np.ones(self.shape, bool)
        """The threads that are not done yet."""

        self.rings: dict[ir.Pipeline, Ring] = {}
        self.window: list[dict[Any, Array]] = []
        """Tiles of the stages that a team has before it."""
        self.matrices: dict[ir.Matrix, tuple[Array, int]] = {}
        """Units of sixteen bytes, and where one begins among them."""

    def done(self) -> None:
        for _ in self.body(self.kernel.body):
            raise Stuck("threads wait where nobody else works")

    def body(self, body: ir.Body) -> Waits:
        for node in body:
            yield from self.node(node) or ()

    # indices

    def index(self, index: Index) -> Array:
        match index:
            case Number(value=value) | Size(value=value):
                return np.asarray(value)
            case Variable():
                return self.variables[index]
            case Place(of="thread"):
                return np.broadcast_to(np.arange(self.kernel.threads), self.shape)
            case Place():
                return np.broadcast_to(self.blocks[:, None], self.shape)
            case Smaller(left=left, right=right):
                return np.minimum(self.index(left), self.index(right))
            case Larger(left=left, right=right):
                return np.maximum(self.index(left), self.index(right))
            case Holds(condition=condition):
                return self.holds(condition).astype(np.int64)
            case Either(condition=condition, one=one, other=other):
                return np.where(self.holds(condition), self.index(one), self.index(other))
            case Listed(table=table, at=at):
                place = self.index(at)
                if (self.active & ((place < 0) | (place >= len(table.values)))).any():
                    raise OutOfBounds(f"{table.name}: a thread asks for what it has not")
                return np.asarray(table.values).take(place, mode="clip")
            case ir.Held(of=element):
                held = self.registers[element.of][self.element(element)]
                return np.asarray(np.nan_to_num(held, nan=-1), np.int64)
            case Binary(sign=sign, left=left, right=right):
                return np.asarray(SIGNS_OF[sign](self.index(left), self.index(right)))
        raise TypeError(f"{index} is no index")

    def condition(self, condition: Condition) -> Array:
        return self.active & self.holds(condition)

    def holds(self, condition: Condition) -> Array:
        """For threads that are elsewhere as well."""
        found = np.ones(self.shape, bool)
        for each in condition:
            found = found & COMPARED[each.sign](self.index(each.left), self.index(each.right))
        return found

    # places

    def element(self, element: ir.Element) -> tuple[Any, ...]:
        """Of the fragment's array [dims..., blocks, threads], whose indices are the same for all threads."""
        return tuple(int(self.index(each)) for each in element.at)

    def places(self, spot: ir.Spot, who: Array, more: int) -> tuple[Array, Any]:
        """Memory, and where in it threads are, for the element that lies so much behind."""
        if isinstance(spot, ir.Global):
            offset = self.index(spot.of.begin) if isinstance(spot.of, ir.Pointer) else 0
            memory = self.memory[spot.tensor]
            at: tuple[Array, ...] = (np.broadcast_to(offset + self.index(spot.at) + more, self.shape),)
            sizes, name = memory.shape, spot.tensor.name
        else:
            memory = self.shared[spot.of]
            at = tuple(np.broadcast_to(self.index(each), self.shape) for each in spot.at)
            sizes, name = spot.of.sizes, spot.of.name
            at = (*at[:-1], at[-1] + more)
        for place, size in zip(at, sizes, strict=True):
            outside = who & ((place < 0) | (place >= size))
            if outside.any():
                block, thread = (int(each[0]) for each in np.nonzero(outside))
                raise OutOfBounds(f"{name}: block {block}, thread {thread} is at {place[block, thread]} of {size}")
        at = tuple(each[who] for each in at)
        if isinstance(spot, ir.Global):
            return memory, at
        blocks, threads = np.nonzero(who)
        return memory, (blocks, threads // WARP, *at) if spot.of.per_warp else (blocks, *at)

    # nodes

    @singledispatchmethod
    def node(self, node: object) -> Waits | None:
        """What it does; where threads may have to wait within it, steps up to each such place."""
        raise TypeError(f"{type(node).__name__} has no meaning")

    @node.register
    def _(self, node: ir.Note) -> None:
        pass

    @node.register
    def _(self, node: ir.Sync) -> None:
        pass

    @node.register
    def _(self, node: ir.Let) -> None:
        self.variables[node.variable] = np.broadcast_to(self.index(node.index), self.shape)

    @node.register
    def _(self, node: ir.Declare) -> None:
        if isinstance(node.what, ir.Shared):
            warps = (self.kernel.threads // WARP,) if node.what.per_warp else ()
            self.shared[node.what] = np.full((len(self.blocks), *warps, *node.what.sizes), np.nan)
        elif isinstance(node.what, ir.Pipeline):
            self.rings[node.what] = Ring(node.what)
        elif isinstance(node.what, tuple):
            for each in node.what:
                self.registers[each] = np.full((*each.sizes, *self.shape), _START[node.start])

    @node.register
    def _(self, node: ir.For) -> Waits:
        before, at = self.active, np.broadcast_to(self.index(node.start), self.shape)
        while True:
            self.active = before & self.stays & (at < self.index(node.stop))
            if not self.active.any():
                break
            self.variables[node.variable] = at if not node.unrolled else at.flat[0]
            yield from self.body(node.body)
            at = at + self.index(node.step)
        self.active = before & self.stays

    @node.register
    def _(self, node: ir.If) -> Waits:
        before = self.active
        self.active = self.condition(node.condition)
        yield from self.body(node.body)
        self.active = before & self.stays

    @node.register
    def _(self, node: ir.Scope) -> Waits:
        yield from self.body(node.body)

    @node.register
    def _(self, node: ir.Roles) -> None:
        """In turns, each up to where it has to wait."""
        ends = np.cumsum([0, *(each.threads for each in node.roles)])
        threads = np.arange(self.kernel.threads)[None, :]
        of = [self.active & (threads >= low) & (threads < high) for low, high in itertools.pairwise(ends)]
        under_way = {each.name: (self.body(each.body), own) for each, own in zip(node.roles, of, strict=True)}
        while under_way:
            before = [(ring.filled, ring.drained) for ring in self.rings.values()]
            for name, (role, own) in list(under_way.items()):
                self.active = own
                if next(role, role) is role:
                    del under_way[name]
                else:
                    under_way[name] = role, self.active
            if len(under_way) > 0 and before == [(ring.filled, ring.drained) for ring in self.rings.values()]:
                raise Stuck(f"{self.kernel.name}: {', '.join(under_way)} wait forever")

    @node.register
    def _(self, node: ir.Fill) -> Waits:
        yield from pipelines.fill(self, node)

    @node.register
    def _(self, node: ir.Vacant) -> Waits:
        yield from pipelines.vacant(self, node.pipeline)

    @node.register
    def _(self, node: ir.Drain) -> Waits:
        yield from pipelines.drain(self, node)

    @node.register
    def _(self, node: ir.Slide) -> Waits:
        yield from pipelines.slide(self, node)

    @node.register
    def _(self, node: ir.Describe) -> None:
        pipelines.describe(self, node)

    @node.register
    def _(self, node: ir.Products) -> Waits:
        yield from self.body(node.body)

    @node.register
    def _(self, node: ir.Product) -> None:
        pipelines.product(self, node)

    @node.register
    def _(self, node: ir.Copy) -> None:
        pipelines.copy(self, node)

    @node.register
    def _(self, node: ir.Fence) -> None:
        pass

    @node.register
    def _(self, node: ir.Exit) -> None:
        self.stays = self.stays & ~(self.active & (self.index(node.variable) >= self.index(node.limit)))
        self.active = self.active & self.stays

    @node.register
    def _(self, node: ir.Load) -> None:
        who, found = self.condition(node.guard), np.zeros((node.into.vector, *self.shape))
        for more in range(node.into.vector):
            memory, at = self.places(node.source, who, more)
            found[more][who] = memory[at]
        self._set(node.into, found if node.into.is_pack else found[0], node.declares)

    @node.register
    def _(self, node: ir.Store) -> None:
        value = self.registers[node.value.of][self.element(node.value)]
        for more in range(node.value.vector):
            memory, at = self.places(node.to, self.active, more)
            memory[at] = (value[more] if node.value.is_pack else value)[self.active]

    @node.register
    def _(self, node: ir.Convert) -> None:
        value = self.registers[node.value.of][self.element(node.value)]
        value = nearest(value) if node.into.of.dtype == "tf32" and node.value.of.dtype == "float32" else value
        other = self.registers[node.otherwise.of][self.element(node.otherwise)] if node.otherwise else 0
        self._set(node.into, np.where(self.holds(node.guard), value, other) if node.guard else value, node.declares)

    @node.register
    def _(self, node: ir.Bits) -> None:
        values = [bits(self.registers[each.of][self.element(each)], each.of.dtype) for each in node.values]
        word = values[0] | values[1] << 16 if values[1:] else values[0]
        self._set(node.into, word.view(np.int32), True)

    @node.register
    def _(self, node: ir.Chain) -> None:
        values = {name: self.registers[each.of][self.element(each)] for name, each in node.inputs}
        for into, expr in node.results:
            self._set(into, np.broadcast_to(evaluate(expr, values), self.shape), True)

    @node.register
    def _(self, node: ir.Value) -> None:
        self._set(node.into, np.broadcast_to(self.index(node.index), self.shape), node.declares)

    @node.register
    def _(self, node: ir.Choose) -> None:
        best, choice, value = (
            self.registers[each.of][self.element(each)] for each in (node.best, node.choice, node.value)
        )
        taken = (choice < 0) | (value > best) | np.isnan(value)
        news = [(into, self.registers[new.of][self.element(new)]) for into, new in node.along]
        news += [(node.best, value), (node.choice, np.broadcast_to(self.index(node.number), self.shape))]
        for into, new in news:
            self._set(into, np.where(taken, new, self.registers[into.of][self.element(into)]), False)

    @node.register
    def _(self, node: ir.Accumulate) -> None:
        before, value = (self.registers[each.of][self.element(each)] for each in (node.into, node.value))
        self._set(node.into, _STEP[node.kind](before, value), False)

    @node.register
    def _(self, node: ir.Reduce) -> None:
        value = self.registers[node.into]
        step, many = _STEP[node.kind].reduce, node.sizes[0].value
        if node.over == "warps":
            together = np.full(value.shape, np.nan)
            together[..., 0] = step(value, axis=-1)
            self.registers[node.into] = together
            return
        if node.over == "groups":
            start = np.where(self.stays, value, _START[node.kind])  # of lanes without a row, whose threads are done
            apart = start.reshape(*value.shape[:-1], many, -1)
            together = np.broadcast_to(step(apart, axis=-2, keepdims=True), apart.shape)
        else:
            apart = value.reshape(*value.shape[:-1], -1, many)
            together = np.broadcast_to(step(apart, axis=-1, keepdims=True), apart.shape)
        self.registers[node.into] = together.reshape(value.shape)

    @node.register
    def _(self, node: ir.Split) -> None:
        value = self.registers[node.value.of][self.element(node.value)]
        high = nearest(value)
        self._set(node.into, high if node.part == "high" else value - high, node.declares)

    @node.register
    def _(self, node: ir.Mma) -> None:
        sums = self.registers[node.into]
        made = [multiplied(self.registers[rows], self.shared[tile], 2 * len(sums)) for rows, tile in node.terms]
        total = np.where(self.holds(node.adds), sums, 0) + sum(made)
        self.registers[node.into] = np.where(self.active, total, sums)

    @node.register
    def _(self, node: ir.Promote) -> None:
        ends = self.holds((Compare("==", node.round % node.every, Number(node.every - 1)),))
        into = self.registers[node.into]
        takes = self.active & (ends | self.holds(node.is_last))
        self.registers[node.into] = np.where(takes, into + self.registers[node.value], into)

    def _set(self, into: ir.Element, value: Array, declares: bool) -> None:
        if declares:
            self.registers[into.of] = np.full((*into.of.sizes, *self.shape), np.nan)
        registers, at = self.registers[into.of], self.element(into)
        registers[at] = np.where(self.active, value, registers[at])
