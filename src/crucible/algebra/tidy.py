"""Programs made cheaper before they become kernels: the same values, fewer passes, fewer instructions."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from crucible.algebra.expression import Expr, constant, inputs, make, name_of, nodes, substitute
from crucible.algebra.interval import Interval
from crucible.algebra.program import Operand, Program, Reduction, Result, collapsed, trimmed
from crucible.algebra.ranges import interval
from crucible.algebra.simplify import simplify

LARGEST_EXPONENT = 60.0
"""exp of twice that is a float32, of minus that no subnormal one; sums of 10^11 such powers stay finite."""
INVERTED = (
    "divided by what a row shares: multiplied by its reciprocal, which is off by 1.2e-7 of the value more, and is "
    "infinite where a divisor is below 3e-39"
)
_LARGEST = 3.4028234663852886e38


@dataclass(frozen=True)
class Tidied:
    """What became of a program."""

    program: Program
    notes: tuple[str, ...]
    """What was done and what it costs in accuracy, a sentence each."""


def tidied(program: Program, tolerance: float = 3e-7) -> Tidied:
    """The program with fewer dims, without maxima that nobody needs and sums of what a row shares, simplified.

    `tolerance` is that of `simplify`; in float64 no function is approximated.
    """
    return cheaper(_with_dims(collapsed(program)), tolerance)


def cheaper(program: Program, tolerance: float = 3e-7) -> Tidied:
    """The same in the space as it is."""
    slim, notes = without_idle_maxima(program)
    slim = trimmed(_without_even_rows(_without_columns(slim)))
    simple, more = _simplified(slim, tolerance if program.precision == "float32" else 0.0)
    simple, also = _inverted(trimmed(simple))
    return Tidied(simple, (*notes, *more, *also))


def without_idle_maxima(program: Program) -> tuple[Program, tuple[str, ...]]:
    """Without the maxima that are taken out for the sake of range alone, where the range is known and small.

    A gradient that reads saved reductions must be made of what this gives, or of the same program before: the choice
    depends on nothing but the expression of which the maximum is taken.
    """
    notes = []
    for reduction in program.reductions:
        range_ = interval(reduction.expr, known_bounds(program))
        if reduction.constant and reduction.kind == "max" and range_.magnitude <= LARGEST_EXPONENT:
            program = _settled(program, reduction, constant(0.0))
            bounds = f"[{range_.low:.3g}, {range_.high:.3g}]"
            notes.append(f"no maximum is needed: the values lie in {bounds}, so nothing overflows")
    return program, tuple(notes)


def known_bounds(program: Program) -> dict[str, Interval]:
    """Of the operands of which something is known."""
    return {each.name: each.bounds for each in program.operands if each.bounds is not None}


def _settled(program: Program, known: Reduction, value: Expr) -> Program:
    """With a value in place of a reduction."""
    reductions = tuple(
        replace(r, expr=substitute(r.expr, {known.leaf: value})) for r in program.reductions if r is not known
    )
    results = tuple(replace(r, expr=substitute(r.expr, {known.leaf: value})) for r in program.results)
    return replace(program, reductions=reductions, results=results)


def _with_dims(program: Program) -> Program:
    """A space of no dims as one of a single element."""
    if program.shape:
        return program
    operands = tuple(replace(each, strides=(0,)) for each in program.operands)
    results = tuple(replace(each, strides=(0,)) for each in program.results)
    return replace(program, shape=(1,), rows=1, operands=operands, results=results)


def _without_columns(program: Program) -> Program:
    """Rows of one element need no reduction, nor do rows of none, which have no elements to write."""
    if program.column_count == 0:
        for reduction in program.reductions:
            current = next(r for r in program.reductions if r.name == reduction.name)
            program = _settled(program, current, constant(0.0 if reduction.kind == "sum" else -math.inf))
        results = tuple(result for result in program.results if program.is_per_row(result))
        return _of_rows(replace(program, results=results))
    if not program.column_shape:
        for name in [reduction.name for reduction in program.reductions]:
            current = next(r for r in program.reductions if r.name == name)
            program = _settled(program, current, current.expr)
    return program


def _of_rows(program: Program) -> Program:
    """The space of rows alone."""
    rows = program.rows
    operands = tuple(replace(each, strides=each.strides[:rows]) for each in program.operands)
    return _with_dims(replace(program, shape=program.row_shape, operands=operands))


def per_row(program: Program) -> Program | None:
    """The results of rows in a space of rows alone, for a program that reduces nothing."""
    results = tuple(result for result in program.results if program.is_per_row(result))
    return trimmed(_of_rows(replace(program, results=results))) if results else None


def _without_even_rows(program: Program) -> Program:
    """A sum of what a whole row shares is a multiple of it."""
    shared = {each.name for each in program.operands if is_of_rows(each, program.rows)}
    shared |= {reduction.name for reduction in program.reductions}
    for name in [reduction.name for reduction in program.reductions]:
        current = next(r for r in program.reductions if r.name == name)
        if {name_of(leaf) for leaf in inputs(current.expr)} <= shared:
            times = program.column_count if current.kind == "sum" else 1
            program = _settled(program, current, current.expr * times)
    return program


def _inverted(program: Program) -> tuple[Program, tuple[str, ...]]:
    """A division of elements by what their row shares becomes a product: one division for the row, a multiplication
    (1 instruction, not 10) for each element."""
    shared = {each.name for each in program.operands if is_of_rows(each, program.rows)}
    shared |= {reduction.name for reduction in program.reductions}
    if program.precision == "float64" or not program.reductions:
        return program, ()

    def of_rows(expr: Expr) -> bool:
        return {name_of(leaf) for leaf in inputs(expr)} <= shared

    def changed(expr: Expr) -> Expr:
        done: dict[Expr, Expr] = {}
        for node in nodes(expr):
            args = tuple(done[arg] for arg in node.args)
            same = make(node.kind, args, *node.attributes)
            divides = node.kind == "div" and not of_rows(node) and of_rows(node.args[1]) and inputs(node.args[1])
            done[node] = args[0] * args[1].reciprocal() if divides else same
        return done[expr]

    reductions = tuple(replace(r, expr=changed(r.expr)) for r in program.reductions)
    results = tuple(replace(r, expr=changed(r.expr)) for r in program.results)
    after = replace(program, reductions=reductions, results=results)
    return after, (INVERTED,) if after != program else ()


def is_of_rows(operand: Operand, rows: int) -> bool:
    """Whether all elements of a row share its element."""
    return not any(operand.strides[rows:])


def _simplified(program: Program, tolerance: float) -> tuple[Program, tuple[str, ...]]:
    roots = [*(r.expr for r in program.reductions), *(r.expr for r in program.results)]
    if program.precision == "float64" and any(node.kind == "cast" for node in nodes(*roots)):
        return program, ()  # the rules take float32 for what registers hold
    simple = simplify(*roots, bounds=_bounds(program), tolerance=tolerance)
    count = len(program.reductions)
    reductions = tuple(replace(r, expr=e) for r, e in zip(program.reductions, simple.exprs, strict=False))
    results = tuple(_stored(r, e) for r, e in zip(program.results, simple.exprs[count:], strict=True))
    notes = [
        "; ".join(filter(None, (f"{each.before} is a {each.rule}, right to {each.error:.2g}", each.note)))
        for each in simple.rewrites
        if each.rule in ("polynomial", "power of two")
    ]
    return replace(program, reductions=reductions, results=results), tuple(dict.fromkeys(notes))


def _stored(result: Result, expr: Expr) -> Result:
    """Storing rounds; a cast before it does nothing more."""
    idle = expr.kind == "cast" and expr.attributes[0] == result.dtype
    return replace(result, expr=expr.args[0] if idle else expr)


def _bounds(program: Program) -> dict[str, Interval]:
    """Where reductions and operands lie."""
    bounds = known_bounds(program)
    for reduction in program.reductions:
        each = interval(reduction.expr, bounds)
        bounds[reduction.name] = each if reduction.kind == "max" else _sum(each, program.column_count)
    return bounds


def _sum(each: Interval, count: int) -> Interval:
    """Of `count` float32 numbers in any order: each addition is off by half a unit of a partial sum."""
    if each.empty:
        return each
    slack = count * 2.0**-23 * count * each.magnitude
    low = each.low * count - slack if each.low < 0 else 0.0
    high = each.high * count + slack if each.high > 0 else 0.0
    beyond = max(-low, high) >= _LARGEST
    low, high = (-math.inf if low <= -_LARGEST else low), (math.inf if high >= _LARGEST else high)
    return Interval(low, high, each.nan or (beyond and low < 0 < high))
