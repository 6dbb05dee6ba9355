"""Pools backward: the gradients of everything that a pool and its chains read.

Where no element is in two windows, one kernel does it all: a thread reads the elements of its windows, computes the
chain before and finds the largest again, and writes the gradients of all elements that are nearest to its windows.
What many elements share gets a part from each window; programs add the parts up, in a fixed order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from crucible.write.expression import Expr, inputs, name_of, number, substitute, tensor
from crucible.write.gradient import gradients
from crucible.write.kernel import Buffer, Lowered
from crucible.write.pool import Pool, collapsed_pool
from crucible.write.pool_forward import (
    COUNT,
    TOTAL,
    average,
    comment,
    computed,
    declared,
    of_element,
    of_lane,
    over_lanes,
    place_in_grid,
)
from crucible.write.pool_loops import (
    after_values,
    beginnings,
    count,
    element_of,
    in_cell,
    in_space,
    inside,
    outer_place,
    over_cell,
    over_window,
    pack,
    row,
    row_start,
    value,
)
from crucible.write.pool_text import THREADS, Frame, block, framed, kernel, used
from crucible.write.program import Operand, Program, Result, contiguous
from crucible.write.stages import stages

SHARE = tensor("the gradient of each element's value")


@dataclass(frozen=True)
class Steps:
    """A computation in steps, launched in this order on one stream."""

    steps: tuple[Lowered | Program, ...]
    """Programs have no sums, and read tensors of the pool and buffers."""
    buffers: tuple[Buffer, ...]
    """What one step writes and later ones read."""
    results: tuple[str, ...]
    """The tensors that are there in the end."""


@dataclass(frozen=True)
class Target:
    """A gradient that the pool's kernel writes."""

    operand: Operand
    """Of the pool."""
    written: Operand
    """The gradient itself, laid like the operand; or parts of it, to be added up."""

    @property
    def parts(self) -> bool:
        return self.written.name.startswith("parts_")


def lower_pool_backward(pool: Pool, wanted: Sequence[str], upstream: str) -> Steps:
    """The gradients of the operands `wanted`, of both chains, as `grad_<operand>`, laid like the operands; those on
    which nothing depends are absent. `upstream` is the gradient of the result, laid like it."""
    return one_pass(pool, wanted, upstream)


@dataclass(frozen=True)
class Backward:
    """The gradients as expressions."""

    of_pooled: Expr
    of_after: dict[str, Expr]
    of_before: dict[str, Expr]
    """Of a maximum: of the chosen element, all the way from the result; of an average: of any element, from SHARE."""


def differentiated(pool: Pool, wanted: Sequence[str], upstream: Operand) -> Backward:
    """By the chain rule."""
    before = [each for each in pool.operands if each.name in wanted]
    after = [each for each in pool.after_operands if each.name in wanted]
    of_pooled, *rest = gradients(pool.after, [pool.pooled, *(each.leaf for each in after)], upstream.leaf)
    through = of_pooled if pool.kind == "max" else SHARE
    inner = gradients(pool.before, [each.leaf for each in before], through)
    of_after = {each.name: expr for each, expr in zip(after, rest, strict=True) if number(expr) != 0}
    of_before = {each.name: expr for each, expr in zip(before, inner, strict=True) if number(expr) != 0}
    return Backward(of_pooled, of_after, of_before if number(of_pooled) != 0 else {})


def sums(strides: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether elements share."""
    return any(not stride and size > 1 for stride, size in zip(strides, shape, strict=True))


def one_pass(pool: Pool, wanted: Sequence[str], upstream: str) -> Steps:
    """The steps where no element is in two windows."""
    slim = collapsed_pool(pool)
    above = Operand(upstream, slim.result.dtype, slim.result.strides)
    found = differentiated(slim, wanted, above)
    frame = framed(slim, [each.name for each in (*slim.operands, *slim.after_operands, above)])
    targets = [_target(frame, each) for each in slim.operands if each.name in found.of_before]
    targets += [_after_target(frame, each) for each in slim.after_operands if each.name in found.of_after]
    if not targets:
        return Steps((), (), ())
    frame = replace(frame, tensors=(*frame.tensors, *(each.written.name for each in targets)))
    work = _Pass(frame, found, above, targets)
    body = work.body()
    read = {each.name: each.dtype for each in work.read}
    writes = {each.written.name: each.written.dtype for each in targets}
    text = kernel(f"{pool.name}_backward", frame, body, work.preamble, read, writes, -(-frame.items() // THREADS))
    note = _note(frame, targets)
    lowered = Lowered((replace(text, text=comment(note) + text.text),), notes=(note,))
    parts = [each for each in targets if each.parts]
    buffers = tuple(Buffer(p.written.name, p.written.dtype, _size(frame, p)) for p in parts)
    programs = [step for each in parts for step in stages(adding(frame, each))]
    return Steps((lowered, *programs), buffers, tuple(f"grad_{each.operand.name}" for each in targets))


def _target(frame: Frame, operand: Operand) -> Target:
    pool = frame.pool
    name = f"grad_{operand.name}"
    if not pool.moves(operand):
        return Target(operand, _by_window(frame, name))
    if sums(operand.strides, pool.input_shape):
        return Target(operand, Operand(f"parts_{name}", pool.precision, contiguous(pool.input_shape)))
    return Target(operand, Operand(name, operand.dtype, operand.strides))


def _after_target(frame: Frame, operand: Operand) -> Target:
    name = f"grad_{operand.name}"
    if sums(operand.strides, frame.pool.output_shape):
        return Target(operand, _by_window(frame, name))
    return Target(operand, Operand(name, operand.dtype, operand.strides))


def _by_window(frame: Frame, name: str) -> Operand:
    """A part from each window, in the order of threads."""
    shape = frame.pool.output_shape
    dense = contiguous([shape[dim] for dim in frame.order])
    strides = tuple(dense[frame.order.index(dim)] for dim in range(len(shape)))
    return Operand(f"parts_{name}", frame.pool.precision, strides)


def _space(frame: Frame, target: Target) -> tuple[int, ...]:
    """The space over which a target is laid."""
    moves = target.operand in frame.pool.operands and frame.pool.moves(target.operand)
    return frame.pool.input_shape if moves else frame.pool.output_shape


def _size(frame: Frame, target: Target) -> int:
    return math.prod(_space(frame, target))


def adding(frame: Frame, target: Target) -> Program:
    """The program that adds parts up."""
    shape, operand, parts = _space(frame, target), target.operand, target.written
    total = Result(f"grad_{operand.name}", operand.dtype, operand.strides, parts.leaf, sums(operand.strides, shape))
    name = f"{frame.pool.name}_grad_{operand.name}"
    return Program(name, shape, len(shape), (parts,), (), (total,), frame.pool.precision)


def _note(frame: Frame, targets: Sequence[Target]) -> str:
    windows = "its window" if frame.lanes == 1 else f"its {frame.lanes} windows"
    names = [each.operand.name for each in targets if each.parts]
    way = f"A thread writes the gradients of all elements of {windows}, in one pass."
    return f"{way} Parts of the gradients of {', '.join(names)} are added up afterwards." if names else way


@dataclass
class _Pass:
    """The body of the kernel, written step by step."""

    frame: Frame
    found: Backward
    above: Operand
    targets: list[Target]
    preamble: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        pool, found = self.frame.pool, self.found
        self.maximum = pool.kind == "max"
        self.elements = [t for t in self.targets if t.operand in pool.operands and pool.moves(t.operand)]
        self.still = [t for t in self.targets if t.operand in pool.operands and not pool.moves(t.operand)]
        self.afterwards = [t for t in self.targets if t.operand in pool.after_operands]
        self.of_window = [found.of_pooled] if found.of_before else []
        self.of_window += found.of_after.values()
        self.slopes = list(found.of_before.values())
        choosing = (self.maximum and self.slopes) or self._reads_pooled()
        self.gathered = [pool.before] if choosing else []
        exprs = [*self.gathered, *self.slopes, *self.of_window]
        self.read = [*used(pool.operands, *exprs), *used(pool.after_operands, *exprs), self.above]
        self.names = {each.name: f"{each.name}_value" for each in (*pool.operands, *pool.after_operands, self.above)}

    def _reads_pooled(self) -> bool:
        return any(self.frame.pool.pooled in inputs(expr) for expr in self.of_window)

    def body(self) -> list[str]:
        lines = place_in_grid(self.frame)
        lines += beginnings(self.frame, [*self.gathered, *self.slopes])
        for target in self.elements:
            lines += outer_place(self.frame, target.written.name, target.written.strides)
        if self.gathered:
            lines += self._chosen() if self.maximum else self._total()
        lines += self._windows()
        if self.elements or (self.still and not self.maximum):
            lines += self._spread()
        return lines

    # the value of the pool again

    def _chosen(self) -> list[str]:
        """PyTorch's choice: the first of the largest, or the last NaN."""
        frame, pool = self.frame, self.frame.pool
        lines = [declared(frame, "best", "-INFINITY"), declared(frame, "choice", "-1", "int")]
        kept = [each for each in used(pool.operands, *self.slopes) if pool.moves(each)]
        lines += [declared(frame, f"{each.name}_chosen", "0.0f") for each in kept]
        statements, word = self._computed("value", pool.before)
        best, choice = of_element(frame, "best"), of_element(frame, "choice")
        taken = [f"{best} = {word};", f"{choice} = {in_cell(frame)};"]
        taken += [f"{of_element(frame, f'{each.name}_chosen')} = {each.name}_value;" for each in kept]
        condition = f"if ({choice} < 0 || {word} > {best} || isnan({word}))"
        return [*lines, *over_window(frame, [pool.before], [*statements, *block(condition, taken)])]

    def _total(self) -> list[str]:
        frame = self.frame
        statements, word = self._computed("value", frame.pool.before)
        element = [*statements, f"{of_element(frame, 'total')} += {word};"]
        return [declared(frame, "total", "0.0f"), *over_window(frame, [frame.pool.before], element)]

    def _moving(self) -> list[Operand]:
        return [each for each in self.frame.pool.operands if self.frame.pool.moves(each)]

    # what each window gives

    def _windows(self) -> list[str]:
        frame, pool = self.frame, self.frame.pool
        results: dict[str, Expr] = {f"{name}_gradient": expr for name, expr in self.found.of_after.items()}
        if self.maximum:
            results |= {f"{name}_gradient": expr for name, expr in self.found.of_before.items()}
        elif self.found.of_before:
            results["share"] = average(pool, self.found.of_pooled)
        pooled = average(pool, TOTAL) if not self.maximum else pool.pooled
        results = {name: substitute(expr, {pool.pooled: pooled}) for name, expr in results.items()}
        exprs = list(results.values())
        lines = count(frame) if pool.kind == "avg" and pool.count is None else []
        lines += after_values(frame, exprs, (*pool.after_operands, self.above))
        emitted = frame.chain(results, self._lane_names())
        self.preamble += emitted.preamble
        lines += emitted.statements
        flows = self._flows()
        outside = [f"{frame.real} {flow}_of[{frame.lanes}];" for flow in flows if frame.lanes > 1]
        lines += [f"{flow}_of[j] = {flow};" for flow in flows if frame.lanes > 1]
        for target in [*self.afterwards, *(self.still if self.maximum else [])]:
            lines.append(self._stored(target, f"{target.operand.name}_gradient"))
        return [*outside, *over_lanes(frame, lines)]

    def _flows(self) -> list[str]:
        """What windows hand on to their elements."""
        if self.maximum:
            return [f"{target.operand.name}_gradient" for target in self.elements]
        return ["share"] if self.found.of_before else []

    def _flow(self, name: str) -> str:
        """The same, of the window that an element is in."""
        return name if self.frame.lanes == 1 else of_element(self.frame, f"{name}_of")

    def _lane_names(self) -> dict[str, str]:
        frame = self.frame
        words = {
            name_of(frame.pool.pooled): of_lane(frame, "best"),
            name_of(TOTAL): of_lane(frame, "total"),
            name_of(COUNT): "count",
        }
        chosen = {each.name: of_lane(frame, f"{each.name}_chosen") for each in self._moving()}
        return {**self.names, **words, **chosen}

    def _stored(self, target: Target, word: str) -> str:
        """Writes what a window gives."""
        written = target.written
        place = f"{self.frame.parameters[written.name]}[{self.frame.of_window(written.strides)}]"
        return f"{place} = {self.frame.stored(written.dtype, word)};"

    # what each element gets

    def _spread(self) -> list[str]:
        """Writes the gradients of a window's elements, and of those that no window has."""
        frame = self.frame
        packs = [target for target in self.elements if frame.row_packed(target.written)]
        inner = self._of_chosen() if self.maximum else self._of_each()
        for target in self.elements:
            packed = target in packs
            place = f"{target.written.name}_row.at[k]" if packed else element_of(frame, target.written)
            word = f"{target.operand.name}_gradient"
            if self.maximum:
                word = f"chosen ? {self._flow(word)} : 0.0f"
            inner.append(f"{place} = {frame.stored(target.written.dtype, word)};")
        around = (
            [f"{pack(frame, t.written)} {t.written.name}_row;" for t in packs],
            [self._row_stored(t) for t in packs],
        )
        return self._with_sums(self._with_rows(inner, around))

    def _of_chosen(self) -> list[str]:
        return [f"const bool chosen = {of_element(self.frame, 'choice')} == {in_cell(self.frame)};"]

    def _of_each(self) -> list[str]:
        """The gradients of an element, from its share of its window's."""
        frame = self.frame
        moving = [each for each in used(frame.pool.operands, *self.slopes) if frame.pool.moves(each)]
        share = self._flow("share")
        if inside(frame):
            share = f"{inside(frame)} ? {share} : 0.0f"
        names = {**self.names, name_of(SHARE): "element_share"}
        results = {f"{name}_gradient": expr for name, expr in self.found.of_before.items()}
        emitted = frame.chain(results, names)
        self.preamble += emitted.preamble
        lines = [value(frame, each) for each in moving]
        lines += [f"const {frame.real} element_share = {share};", *emitted.statements]
        for target in self.still:
            lines.append(f"{of_element(frame, f'{target.operand.name}_sum')} += {target.operand.name}_gradient;")
        return lines

    def _with_rows(self, inner: list[str], around: tuple[list[str], list[str]]) -> list[str]:
        """In loops, with the rows that an average's slopes read again."""
        frame = self.frame
        read = [] if self.maximum else used(frame.pool.operands, *self.slopes)
        rows = [row(frame, each) for each in read if frame.pool.moves(each) and frame.row_packed(each)]
        begins = [] if self.gathered else row_start(frame)
        return [*begins, *over_cell(frame, inner, ([*rows, *around[0]], around[1]))]

    def _with_sums(self, lines: list[str]) -> list[str]:
        """With what an average's elements add to the gradients of what they share."""
        sums_ = [] if self.maximum else self.still
        before = [declared(self.frame, f"{target.operand.name}_sum", "0.0f") for target in sums_]
        after = [self._stored(t, of_lane(self.frame, f"{t.operand.name}_sum")) for t in sums_]
        return [*before, *lines, *(over_lanes(self.frame, after) if after else [])]

    def _row_stored(self, target: Target) -> str:
        frame, written = self.frame, target.written
        to = f"{frame.parameters[written.name]} + {in_space(frame, written.name, written.strides)}"
        return f"*reinterpret_cast<{pack(frame, written)}*>({to}) = {written.name}_row;"

    def _computed(self, name: str, expr: Expr) -> tuple[list[str], str]:
        lines, word, preamble = computed(self.frame, name, expr, self.names)
        self.preamble += preamble
        return lines, word
