"""Pools backward where windows overlap: each element of the input gathers from the windows that it is in.

Three steps: which element each window chose (saved by the forward pass, or found again), the gradient of the pool's
value (a program, unless it is simply that of the result), and the gathering.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from crucible.write.adjoint import adjoint
from crucible.write.expression import Expr, inputs, name_of, substitute
from crucible.write.kernel import Buffer, Lowered
from crucible.write.pool import Pool, Window
from crucible.write.pooling.average import COUNT, average, count
from crucible.write.pooling.forward import comment, is_choice, lower_saved, saved
from crucible.write.pooling.frame import Frame, block, kernel, noted, used
from crucible.write.pooling.items import BLOCK_SUM, Rows, elements, rows_of
from crucible.write.pooling.lanes import computed
from crucible.write.pooling.loops import UNROLLED, after_values, beginnings, element_of, in_window, outer_place, start
from crucible.write.pooling.loops import value as read_element
from crucible.write.pooling.targets import SHARE, Target, differentiated, of_elements, of_items, still
from crucible.write.program import Operand, Program, Result, contiguous, reads
from crucible.write.stages import partials, stages
from crucible.write.steps import Steps


def gathered(pool: Pool, wanted: Sequence[str], upstream: str, kept: Sequence[str]) -> Steps:
    """The steps for a pool whose outer dims are collapsed; `kept` are those of `saved(pool)` that there are."""
    above = Operand(upstream, pool.result.dtype, pool.result.strides)
    found = differentiated(pool, wanted, above, through=False)
    work = _Gathering(pool, found.of_before, _Handed.of(pool, found.of_pooled, above)) if found.of_before else None
    inner = [work.handed.pooled] if work and work.handed.pooled else []
    programs = _after(pool, [*found.of_after, *inner], upstream)
    again = _again(pool, programs, work is not None, kept)
    steps: list[Lowered | Program] = [lower_saved(pool, [each.name for each in again])] if again else []
    buffers = [Buffer(each.name, each.dtype, math.prod(pool.output_shape)) for each in again]
    results = [f"grad_{name}" for name in found.of_after]
    steps += programs
    if work:
        parts = [target for target in work.targets if target.parts]
        steps += [work.lowered(), *(step for target in parts for step in target.adding(pool))]
        buffers += [Buffer(f"grad_{name}", pool.precision, math.prod(pool.output_shape)) for name in inner]
        buffers += [target.buffer() for target in parts]
        results += [f"grad_{target.operand.name}" for target in work.targets]
    buffers += partials([step for step in steps if isinstance(step, Program)])
    return Steps(tuple(steps), tuple(buffers), tuple(results))


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


@dataclass
class _Gathering:
    """The kernel in which a thread takes an element of the input."""

    pool: Pool
    slopes: dict[str, Expr]
    handed: _Handed
    preamble: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        pool = self.pool
        choice = saved(pool)[1] if pool.kind == "max" else None
        self.choice = None if choice is None else Operand(choice.name, choice.dtype, choice.strides)
        self.read = [*used(pool.operands, *self.slopes.values()), *used(self.handed.operands, self.handed.expr)]
        self.read += [self.choice] if self.choice else []
        self.frame = Frame(pool, 1, False, None, 1, tuple(each.name for each in self.read))
        wanted = [each for each in pool.operands if each.name in self.slopes]
        items = elements(self.frame)
        together = items.by_rows and any(still(pool, each) for each in wanted)
        self.rows: Rows | None = rows_of(items) if together else None
        self.targets: list[Target] = [
            of_elements(pool, each) if pool.moves(each) else of_items(items, self.rows, each) for each in wanted
        ]
        written = [target.written.name for target in self.targets]
        self.frame = replace(self.frame, tensors=(*self.frame.tensors, *written))
        self.names = {each.name: f"{each.name}_value" for each in self.read}

    def lowered(self) -> Lowered:
        head, item = self._head(), self._item()
        body = self._in_grid(head, item)
        read = {each.name: each.dtype for each in self.read}
        writes = {each.written.name: each.written.dtype for each in self.targets}
        grid = (self.rows.blocks, self.rows.threads) if self.rows else (elements(self.frame).blocks, None)
        text = kernel(f"{self.pool.name}_backward", self.frame, body, self.preamble, read, writes, *grid)
        note = "Windows overlap: a thread takes an element of the input and gathers from the windows that it is in."
        return Lowered((noted(text, comment(note)),), notes=(note,))

    def _in_grid(self, head: list[str], item: list[str]) -> list[str]:
        if self.rows is None:
            return [*elements(self.frame).begin([*head, *item]), *head, *item]
        self.preamble.append(BLOCK_SUM)
        blocks = [target for target in self.targets if target.by == "block"]
        totals = {self.frame.parameters[t.written.name]: f"{t.operand.name}_total" for t in blocks}
        return self.rows.summing(head, item, totals)

    def _head(self) -> list[str]:
        lines = beginnings(self.frame, list(self.slopes.values()))
        for target in self.targets:
            if target.by != "block":
                lines += outer_place(self.frame, target.written.name, target.written.strides)
        return lines

    def _item(self) -> list[str]:
        frame, pool = self.frame, self.pool
        share = average(pool, SHARE) if pool.kind == "avg" and pool.count is not None else SHARE
        slopes = {f"{n}_gradient": substitute(e, {SHARE: share}) for n, e in self.slopes.items()}
        statements, words, preamble = computed(frame, slopes, {**self.names, name_of(SHARE): "from_windows"})
        self.preamble += preamble
        lines = [f"{frame.real} from_windows = 0;", *self._over_windows(self._window())]
        lines += [read_element(frame, each) for each in used(pool.operands, *slopes.values()) if pool.moves(each)]
        lines += statements
        for target in self.targets:
            name, written = target.operand.name, target.written
            word = words[f"{name}_gradient"]
            if target.by == "block":
                lines.append(f"{name}_total += {word};")
            else:
                lines.append(f"{element_of(frame, written)} = {frame.stored(written.dtype, word)};")
        return lines

    def _window(self) -> list[str]:
        """What one window gives."""
        frame, pool = self.frame, self.pool
        expr = self.handed.expr
        if pool.kind == "avg" and pool.count is None:
            expr = average(pool, expr)
        statements, words, preamble = computed(frame, {"window": expr}, {**self.names, name_of(COUNT): "count"})
        self.preamble += preamble
        lines = count(frame) if COUNT in inputs(expr) else []
        lines += [*after_values(frame, [expr], self.handed.operands)[1], *statements]
        lines.append(f"from_windows += {words['window']};")
        if self.choice is None:
            return lines
        chosen = f"{frame.parameters[self.choice.name]}[{frame.of_window(self.choice.strides)}]"
        return block(f"if ({chosen} == {in_window(frame)})", lines)

    def _over_windows(self, inner: list[str]) -> list[str]:
        """Loops over the windows that an element is in: over the places that it may have in them."""
        for window, dim in reversed(list(zip(self.frame.windows, self.frame.spatial, strict=True))):
            inner = _over_windows_along(window, dim, inner, self.pool.elements() <= UNROLLED)
        return inner


def _over_windows_along(window: Window, dim: str, inner: Sequence[str], unroll: bool) -> list[str]:
    if window.adaptive:
        extent, outputs = window.extent, window.outputs
        first, past = f"in_{dim} * {outputs} / {extent}", f"((in_{dim} + 1) * {outputs} + {extent - 1}) / {extent}"
        within = f"const int k{dim} = in_{dim} - {start(window, dim)};"
        return block(f"for (int {dim} = {first}; {dim} < {past}; ++{dim})", [within, *inner])
    padded = f"in_{dim} + {window.padding}" if window.padding else f"in_{dim}"
    step = f"k{dim}" if window.dilation == 1 else f"k{dim} * {window.dilation}"
    at = padded if window.size == 1 else f"{padded} - {step}"
    if window.stride == 1:
        lines = [f"const int {dim} = {at};", f"if ({dim} < 0 || {dim} >= {window.outputs}) continue;"]
    else:
        over = window.outputs * window.stride
        condition = f"past_{dim} < 0 || past_{dim} >= {over} || past_{dim} % {window.stride} != 0"
        lines = [f"const int past_{dim} = {at};", f"if ({condition}) continue;"]
        lines.append(f"const int {dim} = past_{dim} / {window.stride};")
    head = f"for (int k{dim} = 0; k{dim} < {window.size}; ++k{dim})"
    return [*(["#pragma unroll"] if unroll else []), *block(head, [*lines, *inner])]
