"""Convolutions whose product is reduced over space: softmaxes, norms of an image's channel, means, sums.

A program reads the product and reduces it for each channel of each image. It takes as many passes as reductions wait
for one another, and each pass computes the product again: nothing of the output's size is written but the result, nor
read but other operands. A pass is a convolution whose chains end in sums; a small program puts the parts of its items
together and computes what rows share, before the next pass reads it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from crucible.algebra.buffer import Buffer
from crucible.algebra.convolution.fused import PRODUCT, Convolution, is_of_row
from crucible.algebra.convolution.reducing import ROWS, ReducingConvolution
from crucible.algebra.expression import Expr, name_of, nodes, parameter, substitute
from crucible.algebra.factors import factored
from crucible.algebra.program import Operand, Program, Reduction, Result, contiguous, reads, trimmed
from crucible.algebra.stages import partials, stages
from crucible.algebra.tidy import cheaper
from crucible.errors import MisuseError
from crucible.gpus import H200, Gpu
from crucible.kinds.convolution.backward import lower_product_backward
from crucible.kinds.convolution.lower import lower_convolution
from crucible.kinds.steps import Steps
from crucible.print.written import Lowered
from crucible.schedule.convolution.halo import UNITS
from crucible.schedule.convolution.pairs import corrected, maximum_of, schedule, tensors
from crucible.schedule.convolution.questions import Multiplying, answered
from crucible.schedule.convolution.tile_choice import tile
from crucible.schedule.convolution.tiling import Tiling
from crucible.schedule.convolution.warpgroup.phases import phase_division
from crucible.schedule.passes import Pass, fresh, hoisted


def lower_reducing(conv: ReducingConvolution, gpu: Gpu = H200, tiling: Tiling | None = None) -> Steps:
    """The steps that write the program's results; each pass divided as estimated best for it, or all in a given way."""
    return _Passes(conv.name, conv.conv, conv.program, gpu, tiling).steps()


def lower_reducing_backward(conv: ReducingConvolution, wanted: Sequence[str], upstream: str, gpu: Gpu = H200) -> Steps:
    """The steps that write `grad_<operand>` for the operands `wanted` on which the result depends, source and weight
    among them; they read the gradient `upstream` of the result, and what the forward program saves."""
    forward = replace(conv.program, results=conv.program.results[:1])
    saved = [each.name.removeprefix("saved_") for each in conv.program.results[1:]]
    back = replace(conv, program=forward).adjoint(wanted, upstream, saved)
    of_product = f"grad_{PRODUCT}"
    typed = tuple(replace(r, dtype=conv.conv.source.dtype) if r.name == of_product else r for r in back.results)
    chain = _Passes(f"{conv.name}_again", conv.conv, replace(back, results=typed), gpu).steps()
    if of_product not in chain.results:
        return chain
    deep = lower_product_backward(replace(conv.conv, name=conv.name), wanted, of_product, gpu)
    held = Buffer(of_product, conv.conv.source.dtype, math.prod(conv.conv.correlation.out_shape))
    results = (*(name for name in chain.results if name != of_product), *deep.results)
    return Steps((*chain.steps, *deep.steps), (held, *chain.buffers, *deep.buffers), results)


@dataclass
class _Passes:
    """A program over a convolution's product, as convolutions and small programs."""

    name: str
    conv: Convolution
    program: Program
    gpu: Gpu
    given: Tiling | None = None
    made: list[Lowered | Program] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    rows: dict[str, Operand] = field(default_factory=dict)
    """Tensors with a number for each row, by name: those that are given, and those that passes left."""
    taken: set[str] = field(default_factory=set)
    due: dict[str, int] = field(default_factory=dict)
    """Of results of rows: the number of passes that must be behind."""
    packed: dict[str, str] = field(default_factory=dict)
    """The weight as tensor cores take it, by the text of the kernel that put it in order."""

    def steps(self) -> Steps:
        self.program, notes = _readied(self.program)
        program = self.program
        self.rows = {each.name: each for each in program.operands if is_of_row(each)}
        self.taken = {each.name for each in program.operands} | {each.name for each in program.results}
        self.taken |= {each.name for each in program.reductions}
        waiting = schedule(program, self._tiling(0))
        of_rows = [each for each in program.results if program.is_per_row(each)]
        self.due = _due(waiting, of_rows)
        self._of_rows([each for each in of_rows if self.due[each.name] == 0])
        for number in range(len(waiting)):
            name = f"{self.name}_pass_{number + 1}" if len(waiting) > 1 else self.name
            after = [each for each in of_rows if self.due[each.name] == number + 1]
            self._pass(name, waiting[number], self._shared(waiting, number, of_rows), after)
        if notes:
            self.made.insert(0, Lowered((), notes=notes))
        return Steps(tuple(self.made), tuple(self.buffers), tuple(each.name for each in program.results))

    def _pass(self, name: str, step: Pass, shared: list[Result], results: list[Result]) -> None:
        if any(PRODUCT in reads(root) for root in step.roots):
            tiling = self._convolve(name, step)
            if step.reductions:
                self._add_up(name, tiling, step.reductions, [*shared, *results])
        else:
            found = replace(self.program, name=name, operands=(*self._others, *self.rows.values()))
            made = (*step.results, *shared, *results)
            self._staged(trimmed(replace(found, reductions=step.reductions, results=made)))
        for each in shared:
            strides = (*each.strides, *(0,) * len(self.program.column_shape))
            self.rows[each.name] = Operand(each.name, each.dtype, strides, shared=True)
            self.buffers.append(Buffer(each.name, each.dtype, self.program.row_count))

    @property
    def _others(self) -> list[Operand]:
        return [each for each in self.program.operands if not is_of_row(each) and each.name != PRODUCT]

    # what rows share

    def _shared(self, waiting: list[Pass], number: int, results: list[Result]) -> list[Result]:
        """What later passes and results read of this pass's reductions: they themselves, and what rows share in the
        next pass, computed a row at a time instead of an element at a time. What waits then reads these."""
        found: dict[str, Expr] = {}
        own = waiting[number].reductions
        strides = contiguous(self.program.row_shape)
        if own and number + 1 < len(waiting):
            names = frozenset((*self.rows, *(each.name for each in own)))
            roots, found = hoisted(waiting[number + 1].roots, names, self.taken)
            waiting[number + 1] = _with_roots(waiting[number + 1], roots)
        leaves = {each.leaf: parameter(fresh(f"row_{each.name}", self.taken)) for each in own}
        for at in range(number + 1, len(waiting)):
            waiting[at] = _with_roots(waiting[at], [substitute(root, leaves) for root in waiting[at].roots])
        for at, each in enumerate(results):
            if self.due[each.name] > number + 1:
                results[at] = replace(each, expr=substitute(each.expr, leaves))
        later = [root for step in waiting[number + 1 :] for root in step.roots]
        later += [each.expr for each in results if self.due[each.name] > number + 1]
        read = frozenset[str]().union(*map(reads, later))
        found |= {name_of(new): leaf for leaf, new in leaves.items() if name_of(new) in read}
        return [Result(name, "float32", strides, expr) for name, expr in found.items()]

    def _of_rows(self, results: list[Result]) -> None:
        """Results that read no reduction: a program over rows."""
        if results:
            shape = self.program.row_shape
            operands = tuple(replace(each, strides=each.strides[:ROWS]) for each in self.rows.values())
            program = Program(f"{self.name}_rows", shape, ROWS, operands, (), tuple(results))
            self._staged(trimmed(program))

    def _add_up(self, name: str, tiling: Tiling, reductions: Sequence[Reduction], results: Sequence[Result]) -> None:
        rows = tuple(self.rows.values())
        self._staged(added_up(f"{name}_rows", self.conv, tiling, reductions, results, rows))

    def _staged(self, program: Program) -> None:
        found = stages(program)
        self.buffers += partials(found)
        self.made += found

    # passes over the product

    def _tiling(self, tensors: int) -> Tiling:
        """For a pass that reads and writes so many. Products have the same bits in all of them but where taps are
        folded into channels: then one serves all, since a gradient of a maximum asks which are equal to it."""
        if self.given is not None:
            return self.given
        of, unit = self.conv.correlation, UNITS[self.conv.source.dtype]
        found = tile(of, unit, self.gpu, tensors=tensors)
        usual = tile(of, unit, self.gpu)
        if found is None or usual is None:
            raise MisuseError(f"{self.name}: no tile of it fits in shared memory, or it has too many taps")
        return usual if found.of.folds or usual.of.folds else found

    def _divided(self, conv: Convolution, tensors: int) -> Tiling:
        """For a pass: as measured, else among warps, or warpgroups where they take less time by the estimates."""
        found, alike = self._tiling(tensors), _compares(self.program)
        measured: Tiling | None = None if self.given else answered(self.gpu, Multiplying(conv, tensors, alike))
        if measured is not None:
            return measured
        if self.given is not None or alike:
            return found
        phased = phase_division(conv, self.gpu)
        faster = phased is not None and phased.total_clocks < found.total_clocks_with(tensors)
        return phased if phased is not None and faster else found

    def _convolve(self, name: str, step: Pass) -> Tiling:
        wanted = frozenset[str]().union(*map(reads, step.roots))
        operands = tuple(each for each in (*self._others, *self.rows.values()) if each.name in wanted)
        summed = [each for each in step.results if each.sums]
        results = tuple(self._each(result) if result.sums else result for result in step.results)
        conv = replace(self.conv, name=name, operands=operands, results=results, reductions=step.reductions)
        tiling = self._divided(conv, tensors(step, self.program))
        self.made.append(self._packed_once(lower_convolution(conv, tiling, self.gpu)))
        for result in summed:
            operand = Operand(f"{result.name}_each", "float32", contiguous(self.program.shape))
            total = replace(result, expr=operand.leaf)
            shape = self.program.shape
            self._staged(Program(f"{name}_{result.name}", shape, len(shape), (operand,), (), (total,)))
        return tiling

    def _each(self, result: Result) -> Result:
        """A sum over other dims than a row's: its elements, to be added up later."""
        name = f"{result.name}_each"
        self.buffers.append(Buffer(name, "float32", math.prod(self.program.shape)))
        return Result(name, "float32", contiguous(self.program.shape), result.expr)

    def _packed_once(self, found: Lowered) -> Lowered:
        """With the weight that an earlier pass put in the same order."""
        order, own = found.kernels[0], found.buffers[0].name
        first = self.packed.setdefault(order.text.replace(order.name, ""), own)
        if first == own:
            return found
        kernels = tuple(
            replace(kernel, reads=tuple(first if read == own else read for read in kernel.reads))
            for kernel in found.kernels[1:]
        )
        return replace(found, kernels=kernels, buffers=found.buffers[1:])


def added_up(
    name: str, conv: Convolution, tiling: Tiling, reductions: Sequence[Reduction], results: Sequence[Result],
    rows: Sequence[Operand],
) -> Program:  # fmt: skip
    """The program that puts together what items have of each reduction of a convolution, `<reduction>_parts` as its
    tiling lays them, over (batch, groups, channels, parts of an image). Results are of (batch, channel), and read
    reductions and `rows`: operands laid over the output that hold a number for a channel, or for that of an image."""
    of = conv.correlation
    boxes, padded = tiling.parts_of_image, tiling.channel_tiles * tiling.channels
    strides = (boxes * of.groups * padded, padded, 1, of.groups * padded)
    parts = {each.name: Operand(f"{each.name}_parts", "float32", strides) for each in reductions}
    totals = []
    for each in reductions:
        part, largest = parts[each.name].leaf, maximum_of(each, reductions)
        expr = corrected(part, parts[largest.name].leaf, largest.leaf) if largest else part
        totals.append(Reduction(each.name, each.kind, expr))

    def laid(strides: Sequence[int]) -> tuple[int, ...]:
        return (strides[0], strides[1] * of.out_channels, strides[1])

    operands = [*parts.values(), *(replace(each, strides=(*laid(each.strides), 0)) for each in rows)]
    made = tuple(replace(each, strides=laid(each.strides)) for each in results)
    shape = (of.batch, of.groups, of.out_channels, boxes)
    return trimmed(Program(name, shape, 3, tuple(operands), tuple(totals), made))


def _readied(program: Program) -> tuple[Program, tuple[str, ...]]:
    """Made cheaper, what rows share taken together; and words on it."""
    tidy = cheaper(program)
    found, notes = factored(tidy.program)
    return trimmed(found), (*tidy.notes, *notes)


def _compares(program: Program) -> bool:
    """Whether passes must have products of the same bits: where maxima are sought, and compared."""
    roots = [*(each.expr for each in program.results), *(each.expr for each in program.reductions)]
    sought = any(each.kind == "max" for each in program.reductions)
    return sought or any(node.kind == "eq" for node in nodes(*roots))


def _due(steps: Sequence[Pass], results: Sequence[Result]) -> dict[str, int]:
    """For each result the number of passes that give what it reads."""
    behind = {r.name: number + 1 for number, step in enumerate(steps) for r in step.reductions}
    return {each.name: max((behind.get(name, 0) for name in reads(each.expr)), default=0) for each in results}


def _with_roots(step: Pass, roots: Sequence[Expr]) -> Pass:
    count = len(step.reductions)
    reductions = tuple(replace(r, expr=e) for r, e in zip(step.reductions, roots[:count], strict=True))
    results = tuple(replace(r, expr=e) for r, e in zip(step.results, roots[count:], strict=True))
    return Pass(reductions, results)
