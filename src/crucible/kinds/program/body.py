"""One kernel: a program in a geometry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TypeAlias

from crucible.algebra.expression import Expr, parameter, substitute, tensor
from crucible.algebra.program import Operand, Program, Reduction, Result
from crucible.algebra.tidy import is_of_rows
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ZERO, Compare, Condition, Index
from crucible.kinds.program.frame import Frame
from crucible.kinds.program.geometry import LOADS, Geometry
from crucible.kinds.program.layout import begins_anywhere
from crucible.kinds.values import computed, inputs_of
from crucible.schedule.passes import Pass, fresh, heavy, hoisted, kept, loaded, noun, passes

Spot: TypeAlias = tuple[Index, Index]
"""A row and a column."""


def kernel(program: Program, geometry: Geometry, notes: Sequence[str]) -> ir.Kernel:
    """The kernel that computes a program.

    Where a row has several blocks, `<reduction>_parts` takes what each of them found instead of row results:
    [row][chunk] along columns, [chunk][row] along rows.
    """
    frame = Frame(program, geometry)
    body = _Body(frame)
    body.write()
    written = [each for each in program.results if frame.is_wide(each) or not frame.split]
    tensors = [frame.tensors[name] for name in (*(o.name for o in program.operands), *(r.name for r in written))]
    return ir.Kernel(
        program.name, (*tensors, *frame.parts.values()), frame.sizes, geometry.blocks(program.row_count),
        geometry.threads, frame.type, body.k.body, tuple(notes), is_told_threads=frame.is_told_threads,
    )  # fmt: skip


class _Body:
    def __init__(self, frame: Frame) -> None:
        program = frame.program
        self.frame, self.program, self.k = frame, program, Builder()
        self.taken = {each.name for each in frame.all} | {each.name for each in program.reductions}
        """Names of leaves of expressions."""
        self.of_rows = [each for each in program.operands if is_of_rows(each, program.rows)]
        self.shared = frozenset(each.name for each in self.of_rows) | {r.name for r in program.reductions}
        self.row_values: dict[Expr, Expr] = {}
        """Values that a row shares and that were computed, and what reads them."""
        own = (frame.vector,) if frame.along_rows else ()
        self.leaves = {r.name: ir.Fragment(r.name, program.precision, own) for r in program.reductions}
        """What tensors and parameters of expressions are."""
        for each in program.operands:
            shape = own if each in self.of_rows else ()
            self.leaves[each.name] = ir.Fragment(f"{each.name}_value", program.precision, shape)
        self.in_pack = frame.geometry.vector > 1 or frame.along_rows
        """Whether arithmetic stands in a loop over the elements of a pack."""
        self.scratch: ir.Shared | None = None
        turned = [each for each in frame.all if frame.is_turned(each)]
        sizes, note = ((frame.block_rows, frame.step + 1), "odd, against conflicts")
        if not frame.along_rows:
            sizes, note = (frame.step, frame.line), ""
        self.tiles = {each.name: ir.Shared(f"{each.name}_tile", each.dtype, sizes, note) for each in turned}

    def write(self) -> None:
        self.frame.head(self.k)
        self.frame.bases(self.k)
        self._turned_in()
        self._row_operands()
        self._passes()
        self._turned_out()
        self._ends()

    # what a row shares

    def _row_operands(self) -> None:
        """Operands of which a row reads one element."""
        frame, k = self.frame, self.k
        guard = (Compare("<", frame.row, frame.rows),) if frame.rows_missing else ()
        for each in self.of_rows:
            fragment = self.leaves[each.name]
            if not frame.along_rows:
                k.add(ir.Load(ir.Element(fragment), frame.row_element(each, ZERO), guard, declares=True))
                continue
            k.add(ir.Declare((fragment,)))
            with k.unrolled("j", frame.vector) as j:
                k.add(ir.Load(ir.Element(fragment, (j,)), frame.row_element(each, j), guard))

    def _row_values(self, exprs: Mapping[str, Expr]) -> None:
        """Values for each row, under their names."""
        if not exprs:
            return
        frame, k, precision = self.frame, self.k, self.program.precision
        shape = (frame.vector,) if frame.along_rows else ()
        made = {name: ir.Fragment(name, precision, shape) for name in exprs}
        if frame.along_rows:
            k.add(ir.Declare(tuple(made.values())))
            with k.unrolled("j", frame.vector) as j:
                values = self.computed(exprs, ZERO, j)
                k.add(*(ir.Convert(ir.Element(made[name], (j,)), values[name]) for name in exprs))
        else:
            results = tuple((ir.Element(made[name]), expr) for name, expr in exprs.items())
            k.add(ir.Chain(results, inputs_of(exprs.values(), lambda name: self.element(name, ZERO, ZERO)), precision))
        self.leaves |= made
        self.row_values |= {expr: parameter(name) for name, expr in exprs.items()}
        self.shared |= frozenset(exprs)

    # passes

    def _passes(self) -> None:
        steps = passes(self.program)
        between = [] if self.frame.geometry.looped else kept(self.program)
        held: dict[Expr, str] = {}
        for number, step in enumerate(steps):
            wanted = between[number] if number < len(between) else ()
            keep = {node: held.get(node) or fresh(f"kept_{noun(node)}", self.taken) for node in wanted}
            self.k.add(ir.Note(), *([ir.Note(f"pass {number + 1}")] if len(steps) > 1 else []))
            self._pass(step, held, keep)
            held = keep

    def _pass(self, step: Pass, held: dict[Expr, str], keep: dict[Expr, str]) -> None:
        """A pass that reads the values `held` in registers and leaves those to `keep` there."""
        frame, k = self.frame, self.k
        new = {node: name for node, name in keep.items() if node not in held}
        known = {**self.row_values, **{node: tensor(name) for node, name in held.items()}}
        roots = tuple(substitute(expr, known) for expr in (*step.roots, *new))
        roots, shared = hoisted(roots, self.shared, self.taken)
        self._row_values(shared)
        shape = tuple(size for size in (frame.packs, frame.vector) if size.value > 1)
        for name in new.values():
            self.leaves[name] = ir.Fragment(name, self.program.precision, shape)
            k.add(ir.Declare((self.leaves[name],)))
        k.add(*(ir.Declare((self.leaves[each.name],), each.kind) for each in step.reductions))
        names = [*(r.name for r in step.reductions), *(r.name for r in step.results), *new.values()]
        self._tiles(step, dict(zip(names, roots, strict=True)), list(new.values()))
        for reduction in step.reductions:
            self._combine(reduction)

    def _tiles(self, step: Pass, exprs: dict[str, Expr], new: list[str]) -> None:
        """Tile after tile where a thread takes several, else the one."""
        frame = self.frame
        if frame.geometry.looped:
            with self.k.loop("tile", frame.begin, frame.end, frame.step) as frame.tile:
                _Tile(self, step, exprs, new).write()
        else:
            with self.k.scope() if len(passes(self.program)) > 1 else nullcontext():
                _Tile(self, step, exprs, new).write()

    def _combine(self, reduction: Reduction) -> None:
        """Over all threads that share a row."""
        frame, k, into = self.frame, self.k, self.leaves[reduction.name]
        if frame.geometry.team == 1:
            return
        if not frame.along_rows and frame.geometry.team <= 32:
            k.add(ir.Reduce(reduction.kind, into, "team", (frame.team,)))
            return
        if self.scratch is None:
            shape = (frame.groups, frame.pitch) if frame.along_rows else (frame.threads // 32,)
            self.scratch = ir.Shared("parts", self.program.precision, shape)
            k.add(ir.Declare(self.scratch))
        else:
            k.add(ir.Sync("others may still be reading the parts"))
        sizes = (frame.groups, frame.lanes) if frame.along_rows else (frame.threads,)
        k.add(ir.Reduce(reduction.kind, into, "groups" if frame.along_rows else "block", sizes, self.scratch))

    # the ends of rows

    def _ends(self) -> None:
        """Row results, or what this block found of them."""
        frame, program, k = self.frame, self.program, self.k
        results = [] if frame.split else [each for each in program.results if program.is_per_row(each)]
        if not (results or (frame.split and program.reductions)):
            return
        k.add(ir.Note())
        with k.when(frame.first), k.unrolled("j", frame.vector) if frame.along_rows else nullcontext(ZERO) as j:
            for reduction in program.reductions if frame.split else ():
                k.add(ir.Store(self.element(reduction.name, ZERO, j), frame.part(reduction.name, j)))
            values = self.computed({r.name: substitute(r.expr, self.row_values) for r in results}, ZERO, j)
            k.add(*(ir.Store(values[each.name], frame.row_element(each, j)) for each in results))

    # values

    def element(self, name: str, pack: Index, j: Index) -> ir.Element:
        """A leaf of expressions, of the j-th element of a pack."""
        fragment = self.leaves[name]
        return ir.Element(fragment, tuple(pack if size is self.frame.packs else j for size in fragment.shape))

    def computed(self, exprs: Mapping[str, Expr], pack: Index, j: Index) -> dict[str, ir.Element]:
        """Values of their own, `<name>_value`; what is a leaf is read as that, and what is equal is computed once."""
        named = {f"{name}_value": expr for name, expr in exprs.items()}
        found = computed(self.k, named, lambda name: self.element(name, pack, j), self.program.precision)
        return {name: found[f"{name}_value"] for name in exprs}

    # tensors that lie in another order than threads go: by the line to and from shared memory, turned round there

    def turned(self, each: Operand | Result, pack: Index, j: Index) -> ir.InShared:
        """The thread's j-th of its pack."""
        frame = self.frame
        if not frame.along_rows:
            column = (pack * frame.team + frame.thread) * frame.vector + j
            return ir.InShared(self.tiles[each.name], (column, frame.lane // frame.team))
        row, column = frame.lane % frame.lanes * frame.vector + j, pack * frame.groups + frame.thread
        return ir.InShared(self.tiles[each.name], (row, column))

    def _turned_in(self) -> None:
        frame, k = self.frame, self.k
        if not self.tiles:
            return
        k.add(*(ir.Declare(tile) for tile in self.tiles.values()))
        own = frame.lane % frame.lanes * frame.vector if frame.along_rows else frame.lane // frame.team
        self.first_row = k.let("first_row", frame.row - own)
        operands = [each for each in self.program.operands if each.name in self.tiles]
        for each in operands:
            with k.scope():
                brought = ir.Fragment("brought", each.dtype, (self._rounds,))
                k.add(ir.Declare((brought,)))
                with k.unrolled("t", self._rounds) as t:
                    row, column = self._line(self._in_tile(t))
                    k.add(ir.Load(ir.Element(brought, (t,)), frame.at(each, row, column), self._is_there(row, column)))
                with k.unrolled("t", self._rounds) as t:
                    k.add(ir.Store(ir.Element(brought, (t,)), self._on_the_line(each, self._in_tile(t))))
        if operands:
            k.add(ir.Sync())

    def _turned_out(self) -> None:
        frame, k = self.frame, self.k
        results = [each for each in self.program.results if each.name in self.tiles]
        if results:
            k.add(ir.Sync())
        for each in results:
            with k.unrolled("t", self._rounds) as t:
                spot = self._by_whole_lines(each, self._in_tile(t))
                row, column = self._line(spot)
                with k.when(self._is_there(row, column)):
                    value = ir.Element(ir.Fragment(f"{each.name}_turned", each.dtype))
                    k.add(ir.Load(value, self._on_the_line(each, spot), declares=True))
                    k.add(ir.Store(value, frame.at(each, row, column)))

    @property
    def _rounds(self) -> Index:
        """In each of which a thread brings or takes away an element of a tile."""
        frame = self.frame
        return frame.block_rows * frame.step // frame.threads

    def _line(self, spot: Spot) -> Spot:
        """The row and column that a thread brings or takes away; neighbouring threads have neighbours in memory."""
        frame, k = self.frame, self.k
        row, column = spot
        begin = frame.chunk * frame.step if frame.along_rows else ZERO
        return k.let("row", self.first_row + row), k.let("column", begin + column)

    def _by_whole_lines(self, each: Result, spot: Spot) -> Spot:
        """As it is; where lines begin anywhere, one with which a warp stores to whole ones, all but the one that has
        both ends: a thread's place is its address's among as many (a tanh to odd planes 1.80 -> 1.61 ms; H100)."""
        frame, (row, column) = self.frame, spot
        if not begins_anywhere(each, self.program, across=not frame.along_rows):
            return spot
        if frame.along_rows:
            first = frame.offset(each, self.first_row + row, frame.chunk * frame.step)
            return row, self._addressed(column, first, frame.step)
        return self._addressed(row, frame.offset(each, self.first_row, column), frame.block_rows), column

    def _addressed(self, place: Index, first: Index, count: Index) -> Index:
        """The place whose address, among `count` from `first` on, is of the rest `place`."""
        return self.k.let("place", (place + (count - first % count)) % count)

    def _on_the_line(self, each: Operand | Result, spot: Spot) -> ir.InShared:
        row, column = spot
        return ir.InShared(self.tiles[each.name], (row, column) if self.frame.along_rows else (column, row))

    def _in_tile(self, t: Index) -> Spot:
        frame = self.frame
        if frame.along_rows:
            return t * (frame.threads // frame.step) + frame.lane // frame.step, frame.lane % frame.step
        return frame.lane % frame.block_rows, t * (frame.threads // frame.block_rows) + frame.lane // frame.block_rows

    def _is_there(self, row: Index, column: Index) -> Condition:
        frame = self.frame
        if not frame.along_rows:
            return (Compare("<", row, frame.rows),) if frame.rows_missing else ()
        ragged = self.program.column_count % frame.geometry.tile != 0
        return (Compare("<", column, frame.columns),) if ragged else ()


class _Tile:
    """What a thread loads at once, computes and stores."""

    def __init__(self, body: _Body, step: Pass, exprs: dict[str, Expr], new: list[str]) -> None:
        self.body, self.frame, self.k = body, body.frame, body.k
        self.step, self.exprs, self.new = step, exprs, new
        self.operands = [body.program.operand(name) for name in loaded(body.program, tuple(exprs.values()))]
        frame, traffic, few = self.frame, heavy(body.program), self.frame.packs.value <= LOADS
        several = frame.packs.value > 1
        self.early = [
            each
            for each in self.operands
            if several and (each.name in traffic or (few and frame.access(each) == "same"))
        ]
        """Read for all packs of a tile before anything is computed, so that many loads are under way. What many
        elements share comes out of a cache, and would take as many registers."""
        read = self.operands if several or body.in_pack else []
        self.buffers = {each.name: self._buffer(each) for each in read}

    def _buffer(self, operand: Operand) -> ir.Fragment:
        own = () if self.frame.access(operand) == "same" else (self.frame.vector,)
        shape = (self.frame.packs, *own) if operand in self.early else own
        return ir.Fragment(f"{operand.name}_read", operand.dtype, shape, packed=bool(own))

    def write(self) -> None:
        """All loads, then the arithmetic of `exprs` (of reductions and results, and of the values `new`), then
        stores."""
        k = self.k
        k.add(*(ir.Declare((self.buffers[each.name],)) for each in self.early))
        if self.early:
            with self._each_pack() as pack:
                for each in self.early:
                    self._load(each, pack)
        with self._each_pack() as pack:
            for each in (each for each in self.operands if each not in self.early):
                self._load(each, pack)
            self._arithmetic(pack)

    @contextmanager
    def _each_pack(self) -> Iterator[Index]:
        """Pack after pack, each where there is a column for it."""
        frame, k = self.frame, self.k
        with k.unrolled("k", frame.packs) as pack, k.placed(frame.column, frame.column_of(pack)), k.when(frame.guard):
            yield pack

    def _load(self, operand: Operand, pack: Index) -> None:
        """Into the operand's buffer; without one straight to its value."""
        frame, k, access = self.frame, self.k, self.frame.access(operand)
        buffer, late = self.buffers.get(operand.name), operand not in self.early
        if buffer is None:
            value = ir.Element(self.body.leaves[operand.name])
            k.add(ir.Load(value, self._spot(operand, pack, ZERO), declares=True))
            return
        at = () if late else (pack,)
        if access != "each":
            k.add(ir.Load(ir.Element(buffer, at), frame.pack(operand), declares=late))
            return
        if late:
            k.add(ir.Declare((buffer,)))
        with k.unrolled("j", frame.vector) as j:
            k.add(ir.Load(ir.Element(buffer, (*at, j)), self._spot(operand, pack, j)))

    def _spot(self, each: Operand | Result, pack: Index, j: Index) -> ir.Spot:
        frame = self.frame
        if each.name in self.body.tiles:
            return self.body.turned(each, pack, j)
        return frame.element(each, j) if frame.access(each) == "each" else frame.pack(each)

    def _arithmetic(self, pack: Index) -> None:
        body, frame, k = self.body, self.frame, self.k
        packs = {
            each.name: ir.Fragment(f"{each.name}_pack", each.dtype, (frame.vector,), packed=True)
            for each in self.step.results
            if frame.access(each) == "pack"
        }
        k.add(*(ir.Declare((fragment,)) for fragment in packs.values()))
        with k.unrolled("j", frame.vector) if body.in_pack else nullcontext(ZERO) as j:
            for operand in (each for each in self.operands if each.name in self.buffers):
                self._value(operand, pack, j)
            values = body.computed(self.exprs, pack, j)
            for reduction in self.step.reductions:
                into = body.element(reduction.name, pack, j)
                k.add(ir.Accumulate(reduction.kind, into, values[reduction.name]))
            k.add(*(ir.Convert(body.element(name, pack, j), values[name]) for name in self.new))
            for result in self.step.results:
                if result.name in packs:
                    k.add(ir.Convert(ir.Element(packs[result.name], (j,)), values[result.name]))
                else:
                    k.add(ir.Store(values[result.name], self._spot(result, pack, j)))
        for result in (each for each in self.step.results if each.name in packs):
            k.add(ir.Store(ir.Element(packs[result.name]), frame.pack(result)))

    def _value(self, operand: Operand, pack: Index, j: Index) -> None:
        """An element of what was read, in the precision of arithmetic."""
        buffer = self.buffers[operand.name]
        at = ((pack,) if operand in self.early else ()) + ((j,) if buffer.packed else ())
        value = ir.Element(self.body.leaves[operand.name])
        self.k.add(ir.Convert(value, ir.Element(buffer, at), declares=True))
