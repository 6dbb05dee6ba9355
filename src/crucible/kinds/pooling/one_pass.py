"""Pools backward where no element is in two windows: one kernel.

A thread reads the elements of its windows, computes the chain before and finds the largest again, and writes the
gradients of all elements that are nearest to its windows. What many elements share is added up by blocks, or gets a
part from each window; programs add the parts up.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from crucible.algebra.expression import Expr, inputs, name_of, substitute
from crucible.algebra.pool import Pool
from crucible.algebra.program import Operand
from crucible.algebra.stages import partials
from crucible.kernel import nodes as ir
from crucible.kernel.index import Compare
from crucible.kinds.built import Built, BuiltSteps
from crucible.kinds.pooling.average import TOTAL, average, count
from crucible.kinds.pooling.frame import Frame
from crucible.kinds.pooling.items import Grid, grid_of, windows
from crucible.kinds.pooling.layout import laid_out, used
from crucible.kinds.pooling.loops import (
    begin_rows,
    in_cell,
    inside,
    over_cell_dim,
    over_lanes,
    over_row,
    read_elements,
    read_rows,
)
from crucible.kinds.pooling.targets import SHARE, Slopes, Target, differentiated, of_elements, of_items, still, totals
from crucible.kinds.pooling.values import BEST, choose, chosen, gather


def one_pass(pool: Pool, wanted: Sequence[str], upstream: str) -> BuiltSteps:
    """The steps for a pool whose outer dims are collapsed."""
    above = Operand(upstream, pool.result.dtype, pool.result.strides)
    found = differentiated(pool, wanted, above, through=pool.kind == "max")
    before = [each for each in pool.operands if each.name in found.of_before]
    after = [each for each in pool.after_operands if each.name in found.of_after]
    layout = laid_out(pool)
    items = windows(layout)
    grid = grid_of(items, any(still(pool, each) for each in (*before, *after)))
    targets = [of_elements(pool, each) if pool.moves(each) else of_items(items, grid, each) for each in before]
    targets += [of_items(items, grid, each) for each in after]
    if not targets:
        return BuiltSteps((), (), ())
    built = _Pass(Frame(layout), found, above, targets, grid).built()
    parts = [each for each in targets if each.parts]
    programs = [step for each in parts for step in each.adding(pool)]
    results = tuple(f"grad_{each.operand.name}" for each in targets)
    return BuiltSteps((built, *programs), (*(each.buffer() for each in parts), *partials(programs)), results)


class _Pass:
    """The body of the kernel, written step by step."""

    def __init__(self, frame: Frame, found: Slopes, above: Operand, targets: Sequence[Target], grid: Grid) -> None:
        self.frame, self.pool, self.k = frame, frame.pool, frame.k
        self.found, self.above, self.targets, self.grid = found, above, targets, grid
        self.maximum = self.pool.kind == "max"
        self.elements = [t for t in targets if t.by == "element"]
        self.still = [t for t in targets if t.operand in self.pool.operands and t.by != "element"]
        self.slopes = list(found.of_before.values())
        of_window = [*([found.of_pooled] if found.of_before else []), *found.of_after.values()]
        self.again = bool(self.maximum and self.slopes) or any(self.pool.pooled in inputs(expr) for expr in of_window)
        """Whether the pool's value is found once more."""
        self.sloping = [each for each in used(self.pool.operands, *self.slopes) if self.pool.moves(each)]
        """What slopes read of each element."""
        self.exprs = [*([self.pool.before] if self.again else []), *self.slopes, *of_window]
        self.after = [*used(self.pool.after_operands, *self.exprs), above]
        self.sums = {t.written.name: frame.own(f"{t.operand.name}_sum") for t in self.still if t.by == "item"}
        """What an average's elements give to the gradients of what they share."""
        self.totals = totals(targets, frame.precision)
        self.handed: dict[str, ir.Fragment] = {}
        """What windows hand on to their elements."""

    def built(self) -> Built:
        frame = self.frame
        frame.take(used(self.pool.operands, *self.exprs), "read", self.pool.input_shape)
        frame.take(self.after, "read", self.pool.output_shape)
        for target in self.targets:
            frame.take([target.written], "write", target.space)
        with self.grid.begin(frame):
            frame.beginnings([*([self.pool.before] if self.again else []), *self.slopes])
            frame.begin(target.written for target in self.elements)
            self.k.add(*(ir.Declare((total,), "sum") for total in self.totals.values()))
            with self.grid.each(frame):
                self._item()
            self.grid.sums(frame, self.totals)
        name = f"{self.pool.name}_backward"
        return frame.kernel(name, self.grid.blocks, self.grid.threads, [self._note()])

    def _note(self) -> str:
        lanes = self.frame.layout.lanes
        whose = f"its {lanes} windows" if lanes > 1 else "its window"
        notes = [f"A thread writes the gradients of all elements of {whose}, in one pass."]
        for way, by in (("block", "each block"), ("item", "each window"), ("element", "each element")):
            if names := [t.operand.name for t in self.targets if t.parts and t.by == way]:
                notes.append(f"The gradient of {', '.join(names)} is added up from parts of {by}.")
        return " ".join(notes)

    def _item(self) -> None:
        frame = self.frame
        if self.again and self.maximum:
            self.choice = choose(frame, self.sloping, in_cell)
        elif self.again:
            gather(frame, self.pool.before, [TOTAL])
        self._windows()
        if self.elements or (self.still and not self.maximum):
            self._spread()

    # what each window gives

    def _windows(self) -> None:
        frame, pool, found = self.frame, self.pool, self.found
        results: dict[str, Expr] = {f"{name}_gradient": expr for name, expr in found.of_after.items()}
        if self.maximum:
            results |= {f"{name}_gradient": expr for name, expr in found.of_before.items()}
        elif found.of_before:
            results["share"] = average(pool, found.of_pooled)
        pooled = BEST if self.maximum else average(pool, TOTAL)
        results = {name: substitute(expr, {pool.pooled: pooled}) for name, expr in results.items()}
        read = used((*pool.after_operands, self.above), *results.values())
        rows = frame.rows_of_windows(read)
        handed = [f"{target.operand.name}_gradient" for target in self.elements] if self.maximum else ["share"]
        several = {name: frame.own(f"{name}_of") for name in handed if name in results and frame.layout.lanes > 1}
        self.k.add(*(ir.Declare((each,)) for each in several.values()))
        with over_lanes(frame):
            count(frame, results.values())
            frame.window_values(read, rows)
            values = frame.computed(results)
            self.k.add(*(ir.Convert(frame.register(each), values[name]) for name, each in several.items()))
            self.handed = {name: several.get(name, values[name].of) for name in handed if name in results}
            from_windows = [each for each in self.targets if each.operand in pool.after_operands]
            for target in [*from_windows, *(self.still if self.maximum else [])]:
                self._given(target, values[f"{target.operand.name}_gradient"])

    def _given(self, target: Target, value: ir.Element) -> None:
        """What a window gives to the gradient of what it shares."""
        if target.by == "block":
            self.k.add(ir.Accumulate("sum", ir.Element(self.totals[target.written.name]), value))
        else:
            self.k.add(ir.Store(value, self.frame.of_window(target.written)))

    # what each element gets

    def _spread(self) -> None:
        """Writes the gradients of a window's elements, and of those that no window has."""
        frame, k, last = self.frame, self.k, len(self.frame.layout.windows) - 1
        of_items = [] if self.maximum else [target for target in self.still if target.by == "item"]
        k.add(*(ir.Declare((self.sums[each.written.name],), "sum") for each in of_items))
        if not self.again:
            begin_rows(frame)
        with ExitStack() as loops:
            for position in range(last):
                loops.enter_context(over_cell_dim(frame, position))
            if not self.maximum and not (self.again and last == 0):  # else they are still there
                read_rows(frame, self.sloping)
            rows = {t.written.name: row for t in self.elements if (row := frame.row_of(t.written))}
            k.add(*(ir.Declare((row.fragment,)) for row in rows.values()))
            with over_row(frame) if frame.layout.rows else over_cell_dim(frame, last):
                for target, value in self._of_chosen() if self.maximum else self._of_each():
                    row = rows.get(target.written.name)
                    if row:
                        k.add(ir.Convert(row.element(frame.place), value))
                    else:
                        k.add(ir.Store(value, frame.of_element(target.written)))
            for target in self.elements:
                if target.written.name in rows:
                    rows[target.written.name].store(k, frame.of_element(target.written))
        if of_items:
            with over_lanes(frame):
                for target in of_items:
                    self._given(target, frame.register(self.sums[target.written.name]))

    def _of_chosen(self) -> list[tuple[Target, ir.Element]]:
        """The whole gradient for the element that was chosen."""
        frame = self.frame
        guard = (Compare("==", chosen(frame, self.choice), in_cell(frame)),)
        found = []
        for target in self.elements:
            value = ir.Element(ir.Fragment(f"{target.written.name}_value", frame.precision))
            given = frame.register(self.handed[f"{target.operand.name}_gradient"])
            self.k.add(ir.Convert(value, given, declares=True, guard=guard))
            found.append((target, value))
        return found

    def _of_each(self) -> list[tuple[Target, ir.Element]]:
        """The gradients of an element, from its share of its window's."""
        frame, k = self.frame, self.k
        read_elements(frame, self.sloping)
        share = frame.leaves[name_of(SHARE)] = ir.Fragment("element_share", frame.precision)
        k.add(ir.Convert(ir.Element(share), frame.register(self.handed["share"]), declares=True, guard=inside(frame)))
        values = frame.computed({f"{name}_gradient": expr for name, expr in self.found.of_before.items()})
        for target in self.still:
            into = frame.register({**self.sums, **self.totals}[target.written.name])
            k.add(ir.Accumulate("sum", into, values[f"{target.operand.name}_gradient"]))
        return [(target, values[f"{target.operand.name}_gradient"]) for target in self.elements]
