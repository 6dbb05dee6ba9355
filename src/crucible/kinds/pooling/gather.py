"""Pools backward where windows overlap: each element of the input gathers from the windows that it is in.

Three steps: which element each window chose (saved by the forward pass, or found again), the gradient of the pool's
value (a program, unless it is simply that of the result), and the gathering.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from crucible.algebra.adjoint import adjoint
from crucible.algebra.buffer import Buffer
from crucible.algebra.expression import Expr, name_of, substitute
from crucible.algebra.pool import Pool
from crucible.algebra.program import Operand, Program, Result, contiguous, reads
from crucible.algebra.stages import partials, stages
from crucible.kernel import nodes as ir
from crucible.kernel.index import Compare, Condition
from crucible.kinds.built import Built, BuiltSteps
from crucible.kinds.pooling.average import average, count
from crucible.kinds.pooling.forward import build_saved, is_choice, saved
from crucible.kinds.pooling.frame import Frame
from crucible.kinds.pooling.items import elements, grid_of
from crucible.kinds.pooling.layout import Layout, used
from crucible.kinds.pooling.loops import in_window, over_windows, read_elements
from crucible.kinds.pooling.targets import SHARE, Target, differentiated, of_elements, of_items, still, totals
from crucible.kinds.pooling.values import chosen


def gathered(pool: Pool, wanted: Sequence[str], upstream: str, kept: Sequence[str]) -> BuiltSteps:
    """The steps for a pool whose outer dims are collapsed; `kept` are those of `saved(pool)` that there are."""
    above = Operand(upstream, pool.result.dtype, pool.result.strides)
    found = differentiated(pool, wanted, above, through=False)
    work = _Gathering(pool, found.of_before, _Handed.of(pool, found.of_pooled, above)) if found.of_before else None
    inner = [work.handed.pooled] if work and work.handed.pooled else []
    programs = _after(pool, [*found.of_after, *inner], upstream)
    again = _again(pool, programs, work is not None, kept)
    steps: list[Built | Program] = [build_saved(pool, [each.name for each in again])] if again else []
    buffers = [Buffer(each.name, each.dtype, math.prod(pool.output_shape)) for each in again]
    results = [f"grad_{name}" for name in found.of_after]
    steps += programs
    if work:
        parts = [target for target in work.targets if target.parts]
        steps += [work.built(), *(step for target in parts for step in target.adding(pool))]
        buffers += [Buffer(f"grad_{name}", pool.precision, math.prod(pool.output_shape)) for name in inner]
        buffers += [target.buffer() for target in parts]
        results += [f"grad_{target.operand.name}" for target in work.targets]
    buffers += partials([step for step in steps if isinstance(step, Program)])
    return BuiltSteps(tuple(steps), tuple(buffers), tuple(results))


def _again(pool: Pool, programs: Sequence[Program], choices: bool, kept: Sequence[str]) -> list[Result]:
    """What of the forward pass has to be computed again."""
    needed = {operand.name for program in programs for operand in program.operands}
    return [
        each for each in saved(pool) if each.name not in kept and (choices if is_choice(each) else each.name in needed)
    ]


def _after(pool: Pool, wanted: Sequence[str], upstream: str) -> tuple[Program, ...]:
    """The gradients of what the chain after reads, the pool's value among them."""
    if not wanted:
        return ()
    pooled = Operand(f"{pool.name}_pooled", pool.precision, contiguous(pool.output_shape))
    result = replace(pool.result, expr=substitute(pool.after, {pool.pooled: pooled.leaf}))
    shape, operands = pool.output_shape, (pooled, *pool.after_operands)
    program = Program(f"{pool.name}_after", shape, len(shape), operands, (), (result,), pool.precision)
    return stages(adjoint(program, wanted, {result.name: upstream}))


@dataclass(frozen=True)
class _Handed:
    """The gradient of the pool's value, as the gathering reads it."""

    expr: Expr
    operands: tuple[Operand, ...]
    """Over the output."""
    pooled: str | None
    """The name of the pool's value, if a program computes its gradient."""

    @classmethod
    def of(cls, pool: Pool, of_pooled: Expr, above: Operand) -> _Handed:
        """Computed at each window, if it reads nothing but the gradient of the result."""
        if reads(of_pooled) <= {above.name}:
            return cls(of_pooled, (above,), None)
        name = f"{pool.name}_pooled"
        gradient = Operand(f"grad_{name}", pool.precision, contiguous(pool.output_shape))
        return cls(gradient.leaf, (gradient,), name)


class _Gathering:
    """The kernel in which a thread takes an element of the input."""

    def __init__(self, pool: Pool, slopes: dict[str, Expr], handed: _Handed) -> None:
        self.pool, self.handed = pool, handed
        share = average(pool, SHARE) if pool.kind == "avg" and pool.count is not None else SHARE
        self.slopes = {f"{name}_gradient": substitute(expr, {SHARE: share}) for name, expr in slopes.items()}
        choice = saved(pool)[1] if pool.kind == "max" else None
        self.choice = None if choice is None else Operand(choice.name, choice.dtype, choice.strides)
        self.frame = Frame(Layout(pool))
        wanted = [each for each in pool.operands if each.name in slopes]
        items = elements(self.frame.layout)
        self.grid = grid_of(items, any(still(pool, each) for each in wanted))
        self.targets: list[Target] = [
            of_elements(pool, each) if pool.moves(each) else of_items(items, self.grid, each) for each in wanted
        ]
        self.totals = totals(self.targets, pool.precision)

    def built(self) -> Built:
        frame, pool, slopes = self.frame, self.pool, list(self.slopes.values())
        frame.take(used(pool.operands, *slopes), "read", pool.input_shape)
        frame.take(used(self.handed.operands, self.handed.expr), "read", pool.output_shape)
        frame.take([self.choice] if self.choice else [], "read", pool.output_shape)
        for target in self.targets:
            frame.take([target.written], "write", target.space)
        with self.grid.begin(frame):
            frame.beginnings(slopes)
            frame.begin(target.written for target in self.targets if target.by != "block")
            frame.k.add(*(ir.Declare((total,), "sum") for total in self.totals.values()))
            with self.grid.each(frame):
                self._item()
            self.grid.sums(frame, self.totals)
        note = "Windows overlap: a thread takes an element of the input and gathers from the windows that it is in."
        return frame.kernel(f"{pool.name}_backward", self.grid.blocks, self.grid.threads, [note])

    def _item(self) -> None:
        frame, k, pool = self.frame, self.frame.k, self.pool
        total = ir.Fragment("from_windows", frame.precision)
        k.add(ir.Declare((total,), "sum"))
        with over_windows(frame), k.when(self._is_chosen()):
            k.add(ir.Accumulate("sum", ir.Element(total), self._window()))
        frame.leaves[name_of(SHARE)] = total
        read_elements(frame, [each for each in used(pool.operands, *self.slopes.values()) if pool.moves(each)])
        values = frame.computed(self.slopes)
        for target in self.targets:
            value, written = values[f"{target.operand.name}_gradient"], target.written
            if target.by == "block":
                k.add(ir.Accumulate("sum", ir.Element(self.totals[written.name]), value))
            else:
                k.add(ir.Store(value, frame.of_element(written)))

    def _is_chosen(self) -> Condition:
        """Whether the window's choice is this element."""
        if self.choice is None:
            return ()
        choice = ir.Fragment("choice", "int32")
        self.frame.k.add(ir.Load(ir.Element(choice), self.frame.of_window(self.choice), declares=True))
        return (Compare("==", chosen(self.frame, choice), in_window(self.frame)),)

    def _window(self) -> ir.Element:
        """What one window gives."""
        frame, pool, expr = self.frame, self.pool, self.handed.expr
        expr = average(pool, expr) if pool.kind == "avg" and pool.count is None else expr
        count(frame, [expr])
        frame.window_values(used(self.handed.operands, expr), {})
        return frame.computed({"window": expr})["window"]
