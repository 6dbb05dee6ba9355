"""What a kernel means: its nodes run on the CPU over all threads of all blocks at once, before any text is made.

Values are arrays [blocks, threads], computed in float64; no node rounds to what it stores, so results are those of the
mathematics but for the order of sums. Of where threads go every step is taken as it will be: indices, guards, packs,
what lies in which fragment, which threads put what together. NumPy rather than torch: `algebra.evaluate`, the reference
for expressions, is.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np

from crucible.algebra.evaluate import evaluate
from crucible.gpus import WARP
from crucible.kernel import meaning_bulk as bulk
from crucible.kernel import meaning_pipelines as pipelines
from crucible.kernel import meaning_scaled as scaled
from crucible.kernel import meaning_sharing as sharing
from crucible.kernel import meaning_streams as streams
from crucible.kernel import meaning_windows as windows
from crucible.kernel import nodes as ir
from crucible.kernel.dispatch import by_type
from crucible.kernel.index import Compare, Number
from crucible.kernel.meaning_pipelines import Stuck
from crucible.kernel.places import words_of
from crucible.kernel.tensor_cores import (
    as_halves,
    as_words,
    bits,
    columns_of,
    converted,
    matrices,
    multiplied,
    nearest,
    pairs,
    pairs_multiplied,
    reinterpreted,
    turned,
    warp_multiplied,
)
from crucible.kernel.tiles import steps
from crucible.kernel.whereabouts import Array, OutOfBounds, Places, Raced, Waits

__all__ = ["OutOfBounds", "Raced", "Stuck", "run"]

_START = {"": np.nan, "sum": 0.0, "max": -np.inf, "min": np.inf, "none": -1.0, "all": 1.0}
_STEP = {"sum": np.add, "max": np.maximum, "min": np.minimum, "all": np.logical_and}


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


class _Run(Places):
    """Some blocks of a kernel at once; where roles wait for each other, one."""

    def done(self) -> None:
        for _ in self.body(self.kernel.body):
            raise Stuck("threads wait where nobody else works")

    def body(self, body: ir.Body) -> Waits:
        for node in body:
            yield from self.node(node) or ()

    # nodes

    @by_type
    def node(self, node: object) -> Waits | None:
        """What it does; where threads may have to wait within it, steps up to each such place."""
        raise TypeError(f"{type(node).__name__} has no meaning")

    @node.register
    def _(self, node: ir.Note) -> None:
        pass

    @node.register
    def _(self, node: ir.Sync) -> None:
        bulk.sync(self, node)

    @node.register
    def _(self, node: ir.Let) -> None:
        self.variables[node.variable] = np.broadcast_to(self.index(node.index), self.shape)

    @node.register
    def _(self, node: ir.Declare) -> None:
        if isinstance(node.what, ir.Shared):
            self._share(node.what)
        elif isinstance(node.what, ir.Pipeline):
            self.touched.clear()  # all threads of the block wait for each other
            self.of_teams.clear()
            pipelines.begin(self, node.what)
            if node.what.fed_by:
                pipelines.begin(self, node.what.fed_by)
        elif isinstance(node.what, ir.Turns):
            for tile in (*node.what.tiles, *node.what.coming):
                self.shared[tile] = np.full((len(self.blocks), *tile.sizes), np.nan)
                self.copied[tile] = np.full((len(self.blocks), *tile.sizes), -1)
        elif isinstance(node.what, tuple):
            for each in node.what:
                self.registers[each] = np.full((*each.sizes, *self.shape), _START[node.start])

    @node.register
    def _(self, node: ir.For) -> Waits:
        before, at = self.active, np.broadcast_to(self.index(node.start), self.shape)
        around, self.over = self.over, np.zeros(self.shape, bool)
        while True:
            self.active = before & self.stays & ~self.over & (at < self.index(node.stop))
            if not self.active.any():
                break
            self.variables[node.variable] = at if not node.unrolled else at.flat[0]
            yield from self.body(node.body)
            at = at + self.index(node.step)
        self.active, self.over = before & self.stays, around

    @node.register
    def _(self, node: ir.If) -> Waits:
        before, holds = self.active, self.holds(node.condition)
        if node.ends:
            self.over = self.over | (before & ~holds)
        for who, body in ((holds, node.body), (~holds, node.otherwise)):
            self.active = before & who & self.stays
            if self.active.any():
                yield from self.body(body)
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
    def _(self, node: ir.Deal) -> Waits:
        yield from pipelines.deal(self, node)

    @node.register(ir.Provide | ir.Provided)
    def _(self, node: ir.Provide | ir.Provided) -> None:
        """Roles run up to where they wait for stages, all threads of one at once."""

    @node.register
    def _(self, node: ir.Share) -> Waits:
        yield from sharing.share(self, node)

    @node.register
    def _(self, node: ir.Foresee) -> Waits:
        yield from sharing.foresee(self, node)

    @node.register
    def _(self, node: ir.Ask) -> Waits:
        yield from sharing.ask(self, node)

    @node.register
    def _(self, node: ir.Fetch) -> Waits:
        yield from sharing.fetch(self, node)

    @node.register
    def _(self, node: ir.Meet) -> None:
        sharing.meet(self, node)

    @node.register
    def _(self, node: ir.Bring) -> None:
        pipelines.bring(self, node)

    @node.register
    def _(self, node: ir.Brought) -> None:
        pipelines.brought(self)

    @node.register
    def _(self, node: ir.Send) -> Waits:
        yield from self.body(node.body)

    @node.register
    def _(self, node: ir.Stretch) -> None:
        bulk.stretch(self, node)

    @node.register
    def _(self, node: ir.Leave) -> None:
        pass

    @node.register
    def _(self, node: ir.InTurn) -> Waits:
        yield from bulk.turns(self, node)

    @node.register
    def _(self, node: ir.Collect) -> None:
        bulk.collect(self, node)

    @node.register
    def _(self, node: ir.Carry) -> None:
        streams.carry(self, node)

    @node.register
    def _(self, node: ir.MoveOn) -> None:
        streams.move_on(self, node)

    @node.register
    def _(self, node: ir.Ahead) -> None:
        streams.ahead(self, node)

    @node.register
    def _(self, node: ir.Advance) -> Waits:
        yield from streams.advance(self, node)

    @node.register
    def _(self, node: ir.Prefetch) -> None:
        for more in (0, self.index(node.elements) - 1):
            self.places(node.source, self.active, more)

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
        given, wanted = node.source.dtype, node.into.of.dtype
        many = node.into.vector * words_of(given, wanted)
        who, found = self.condition(node.guard), np.zeros((many, *self.shape))
        for more in range(many):
            memory, at = self.places(node.source, who, more)
            found[more][who] = memory[at]
        if many > node.into.vector:
            found = as_words(np.ascontiguousarray(bits(np.moveaxis(found, 0, -1), given), np.uint16))
            found = np.moveaxis(found, -1, 0)  # two neighbours a word
        else:
            found = converted(found, given, wanted)
        self._set(node.into, found if node.into.is_pack else found[0], node.declares)

    @node.register
    def _(self, node: ir.Store) -> None:
        value = self.registers[node.value.of][self.element(node.value)]
        if isinstance(node.to, ir.InShared) and node.to.halved:
            words = as_halves(self.shared[node.to.tile])
            _, at = self.places(node.to, self.active, 0)
            words[at] = bits(value[self.active], node.value.of.dtype)
            self.shared[node.to.tile] = as_words(words)
            return
        values = [each[self.active] for each in (value if node.value.is_pack else [value])]
        if node.value.of.dtype == "halves" != node.to.dtype:
            values = reinterpreted(values, "int32", node.to.dtype)
        for more, each in enumerate(values):
            memory, at = self.places(node.to, self.active, more)
            memory[at] = each

    @node.register
    def _(self, node: ir.Convert) -> None:
        value = self.registers[node.value.of][self.element(node.value)]
        value = converted(value, node.value.of.dtype, node.into.of.dtype)
        other = self.registers[node.otherwise.of][self.element(node.otherwise)] if node.otherwise else 0
        kept = self.holds(node.guard) if node.guard else None
        if node.mask:
            kept = self.registers[node.mask.of][self.element(node.mask)] == -1
        self._set(node.into, value if kept is None else np.where(kept, value, other), node.declares)

    @node.register
    def _(self, node: ir.Bits) -> None:
        values = [bits(self.registers[each.of][self.element(each)], each.of.dtype) for each in node.values]
        word = values[0] | values[1] << np.uint32(16) if values[1:] else values[0]
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
        if node.over == "columns":
            apart = value.reshape(*value.shape[:-1], -1, WARP // many, many)
            together = np.broadcast_to(step(apart, axis=-2, keepdims=True), apart.shape)
        elif node.over == "groups":
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
    def _(self, node: ir.SplitPairs) -> None:
        values = [self.registers[each.of][self.element(each)] for each in node.values]
        parts = [value if node.part == "high" else value - nearest(value) for value in values]
        self._set(node.into, pairs(parts[0], parts[1]), node.declares)

    @node.register
    def _(self, node: ir.Largest) -> None:
        self._set(node.into, scaled.largest(self, node), False)

    @node.register
    def _(self, node: ir.Scale) -> None:
        self._set(node.into, scaled.scale(self, node), True)

    @node.register
    def _(self, node: ir.SplitScaled) -> None:
        self._set(node.into, scaled.split(self, node), True)

    @node.register
    def _(self, node: ir.Mma) -> None:
        sums = self.registers[node.into]
        total = np.where(self.holds(node.adds), sums, 0)
        for rows, tile in node.terms:
            held = self.registers[rows]
            columns = columns_of(self.shared[tile], len(held), 2 * len(sums))
            total = total + (multiplied(held, columns) if rows.dtype == "tf32" else pairs_multiplied(held, columns))
        self.registers[node.into] = np.where(self.active, total, sums)

    @node.register
    def _(self, node: ir.Take) -> None:
        best, value = (self.registers[each.of][self.element(each)] for each in (node.best, node.value))
        taken = (self.index(node.number) == 0) | (value > best) | np.isnan(value)
        for into, before, new in windows.becoming(self, node):
            self._set(into, np.where(taken, new, before), False)

    @node.register
    def _(self, node: ir.Flip) -> None:
        value, signs = (self.registers[each.of][self.element(each)] for each in (node.value, node.signs))
        self._set(node.into, windows.flipped(value, signs, node.value.of.dtype), False)

    @node.register
    def _(self, node: ir.Vote) -> None:
        self._set(node.into, windows.voted(self.holds(node.condition) | ~self.active), True)

    @node.register
    def _(self, node: ir.Exchange) -> None:
        self._set(node.into, windows.exchanged(self.registers[node.values.of]), True)

    @node.register
    def _(self, node: ir.AsyncCopy) -> None:
        who = self.condition(node.guard)
        for more in range(node.words):
            source, at = self.places(node.source, who, more)
            value = np.zeros(self.shape)
            (value[who],) = reinterpreted([source[at]], node.source.dtype, node.to.dtype)
            memory, to = self.places(node.to, self.active, more)
            memory[to] = value[self.active]
            self.copied[node.to.tile][to] = np.nonzero(self.active)[1]

    @node.register
    def _(self, node: ir.Turn) -> None:
        for held in (self.shared, self.copied):
            for one, other in zip(node.of.tiles, node.of.coming, strict=False):
                held[one], held[other] = held[other], held[one]

    @node.register
    def _(self, node: ir.Own) -> Waits:
        self.own = node.tiles
        yield from self.body(node.body)
        self.own = ()

    @node.register
    def _(self, node: ir.LoadMatrix) -> None:
        words = np.zeros((4, *self.shape))
        for more in range(4):
            memory, at = self.places(node.source, self.active, more)
            words[more][self.active] = memory[at]
        found = matrices(words)[: node.into.vector]
        self._set(node.into, turned(words)[: node.into.vector] if node.turned else found, False)

    @node.register
    def _(self, node: ir.WarpMma) -> None:
        sums, rows, columns = (
            self.registers[each.of][self.element(each)] for each in (node.into, node.rows, node.columns)
        )
        self._set(node.into, sums + warp_multiplied(rows, columns, node.math), False)

    @node.register(ir.LoadTiles | ir.MultiplyTiles)
    def _(self, node: ir.LoadTiles | ir.MultiplyTiles) -> Waits:
        yield from self.body(steps(node))

    @node.register
    def _(self, node: ir.Promote) -> None:
        ends = self.holds((Compare("==", node.round % node.every, Number(node.every - 1)),))
        into = self.registers[node.into]
        takes = self.active & (ends | self.holds(node.is_last))
        self.registers[node.into] = np.where(takes, into + self.registers[node.value], into)

    def _share(self, what: ir.Shared) -> None:
        """Nothing is in it; in the place of another array it takes what that had."""
        if what.base is not what and what.over:
            words = self.shared[what.base].reshape(len(self.blocks), -1)
            first = what.over[1] // ir.ITEM_BYTES[what.base.dtype]
            own = words[:, first : first + what.bytes // ir.ITEM_BYTES[what.base.dtype]]
            own[:] = np.nan
            self.shared[what] = own.reshape(len(self.blocks), *what.sizes)  # the same memory: one dim is split
            return
        warps = (self.kernel.threads // WARP,) if what.per_warp else ()
        self.shared[what] = np.full((len(self.blocks), *warps, *what.sizes), np.nan)

    def _set(self, into: ir.Element, value: Array, declares: bool) -> None:
        if declares:
            self.registers[into.of] = np.full((*into.of.sizes, *self.shape), np.nan)
        registers, at = self.registers[into.of], self.element(into)
        registers[at] = np.where(self.active, value, registers[at])
