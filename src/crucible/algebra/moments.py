"""Moments: what the first pass of a norm needs of a tensor, taken where the tensor is made.

For each channel of each image they are the sum, over space, of how far its values are off a number near them, and the
sum of the squares of that, unless means are all that is asked for. The sum of any polynomial of degree two over the
same values is made of them, whatever its coefficients are, as long as these are one number for a channel of an image:
with h = near + u,

    sum of f(h) = elements * f(near) + f'(near) * sum of u + f'' / 2 * sum of u * u

So a program whose first sums are such polynomials reads the tensor once less. Far off the values, `near` would leave
nothing of what float32 keeps of their variance: its error in float32 is that of a squared distance over it.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace

from crucible.algebra.buffer import Buffer
from crucible.algebra.expression import Expr, constant, inputs, nodes, number, substitute
from crucible.algebra.gradient import derivative
from crucible.algebra.program import Operand, Program, Reduction, Result, contiguous, phases, reads, trimmed
from crucible.algebra.simplify import simplify
from crucible.graph import TensorType

ROWS = 2
"""Batch and channels."""
POLYNOMIAL = frozenset({"add", "sub", "mul", "square", "neg", "fma"})


@dataclass(frozen=True)
class Moments:
    """Of a tensor [N, C, *space] without gaps: the tensors that hold them, float32."""

    names: tuple[str, ...]
    """`near` [C]; sums [N, C] of what values are off it; and perhaps of the squares."""

    def types(self, shape: Sequence[int]) -> dict[str, TensorType]:
        """Of these tensors, for a tensor of a shape."""
        near, *sums = self.names
        shapes = {near: tuple(shape[1:ROWS]), **dict.fromkeys(sums, tuple(shape[:ROWS]))}
        return {name: TensorType(of, contiguous(of), "float32") for name, of in shapes.items()}


@dataclass(frozen=True)
class Given:
    """Moments as a program takes them."""

    operand: str
    """Of the program: the tensor that they are of."""
    moments: tuple[Operand, ...]
    """Laid over the program's space, with strides of 0 along the tensor's."""
    elements: int
    """Of a channel of an image."""

    @property
    def operands(self) -> tuple[Operand, ...]:
        """What is read."""
        return self.moments


def given(program: Program, operand: str, shape: Sequence[int], names: Sequence[str]) -> Given | None:
    """How a program takes moments of an operand, a tensor of this shape. None where its first sums are not made of
    them, or where its dims are not the tensor's."""
    elements = math.prod(shape[ROWS:])
    laid = _laid(program, program.operand(operand), shape, elements)
    if laid is None:
        return None
    moments = tuple(
        Operand(name, "float32", strides, _is_shared(strides, program.shape), constant=True)
        for name, strides in zip(names, laid, strict=False)
    )
    found = Given(operand, moments, elements)
    due = phases(program)
    first = {each.name for each in program.reductions if due[each.name] == 0}
    return found if first and first <= {each.name for each in _sums(program, found)} else None


def asks_for_squares(program: Program, of: Given) -> bool:
    """Whether a sum that is made of moments is more than a mean."""
    leaf = program.operand(of.operand).leaf
    return any(number(_slopes(each.expr, leaf)[1]) != 0 for each in _sums(program, of))


def without_elements(program: Program, of: Given) -> tuple[tuple[Program, ...], tuple[Buffer, ...]]:
    """The program as two: the first makes sums of moments, the second is the rest of it, which reads these as
    `<reduction>_whole`. And what is between them. There is no second where sums of rows are all that is asked for."""
    sums = _sums(program, of)
    later = [each for each in program.reductions if each not in sums]
    waiting = {each.name for each in later}
    ends = [each for each in program.results if program.is_per_row(each) and not waiting & reads(each.expr)]
    rest = [each for each in program.results if each not in ends]
    read = frozenset[str]().union(*map(reads, (*(each.expr for each in rest), *(each.expr for each in later))))
    strides = contiguous(program.row_shape)
    wholes = {each: Result(f"{each.name}_whole", "float32", strides, each.leaf) for each in sums if each.name in read}
    first = _of_moments(program, of, sums, [*ends, *wholes.values()])
    if not rest:
        return (first,), ()
    columns = (0,) * len(program.column_shape)
    known = {each.leaf: Operand(whole.name, "float32", (*strides, *columns), True) for each, whole in wholes.items()}
    leaves = {leaf: operand.leaf for leaf, operand in known.items()}
    second = replace(
        program,
        name=f"{program.name}_rest",
        operands=(*program.operands, *known.values()),
        reductions=tuple(replace(each, expr=substitute(each.expr, leaves)) for each in later),
        results=tuple(replace(each, expr=substitute(each.expr, leaves)) for each in rest),
    )
    between = tuple(Buffer(each.name, "float32", program.row_count) for each in wholes.values())
    return (first, trimmed(second)), between


def _of_moments(program: Program, of: Given, sums: Sequence[Reduction], results: Sequence[Result]) -> Program:
    """Rows are the program's; columns are those of its dims that are not the tensor's space: the channels of a group,
    or the batch. Where there are none, a sum is what it is made of."""
    kept = [*range(program.rows), *(d for d in range(program.rows, len(program.shape)) if _is_kept(program, of, d))]
    shape = tuple(program.shape[d] for d in kept)
    wide = [each for each in (*program.operands, *of.moments) if not _goes_over_space(program, of, each)]
    operands = tuple(replace(each, strides=tuple(each.strides[d] for d in kept)) for each in wide)
    made = {each: _made(program, of, each) for each in sums}
    reductions = tuple(replace(each, expr=expr) for each, expr in made.items())
    if len(shape) == program.rows:
        leaves = dict[Expr, Expr]()
        for each, expr in made.items():
            leaves[each.leaf] = substitute(expr, leaves)
        results, reductions = [replace(each, expr=substitute(each.expr, leaves)) for each in results], ()
    name = f"{program.name}_of_moments"
    return trimmed(Program(name, shape, program.rows, operands, reductions, tuple(results), program.precision))


def _sums(program: Program, of: Given) -> tuple[Reduction, ...]:
    """Those that are made of moments, and of one another."""
    found: list[Reduction] = []
    for each in program.reductions:
        if _is_made_of(program, of, each, {made.name for made in found}):
            found.append(each)
    return tuple(found)


def _is_made_of(program: Program, of: Given, reduction: Reduction, known: Container[str]) -> bool:
    """Whether it is the sum of a polynomial of degree two at most, whose coefficients do not differ within space."""
    leaf, reductions = program.operand(of.operand).leaf, {each.name for each in program.reductions}
    read = reads(reduction.expr) - {of.operand}
    beside = [program.operand(name) for name in read - reductions]
    if reduction.kind != "sum" or any(name not in known for name in read & reductions):
        return False
    if any(_goes_over_space(program, of, each) for each in beside) or not _is_polynomial(reduction.expr, leaf):
        return False
    return leaf not in inputs(_slopes(reduction.expr, leaf)[1])


def _is_polynomial(expr: Expr, leaf: Expr) -> bool:
    """Whether it is one of the leaf by its form. What bends elsewhere has derivatives that do not tell."""
    through = [node for node in nodes(expr) if node.args and leaf in inputs(node)]
    return leaf in inputs(expr) and {node.kind for node in through} <= POLYNOMIAL


def _slopes(expr: Expr, leaf: Expr) -> tuple[Expr, Expr]:
    """Its first and second derivative."""
    (slope,) = simplify(derivative(expr, leaf, constant(1.0))).exprs
    (bend,) = simplify(derivative(slope, leaf, constant(1.0))).exprs
    return slope, bend


def _made(program: Program, of: Given, reduction: Reduction) -> Expr:
    """What it is made of, for a channel of an image."""
    leaf = program.operand(of.operand).leaf
    near, total, *squares = (each.leaf for each in of.moments)
    slope, bend = _slopes(reduction.expr, leaf)
    value, slope = (substitute(each, {leaf: near}) for each in (reduction.expr, slope))
    made = value * float(of.elements) + slope * total
    (found,) = simplify(made if number(bend) == 0 else made + bend * 0.5 * squares[0]).exprs
    return found


def _goes_over_space(program: Program, of: Given, operand: Operand) -> bool:
    """Whether its elements differ within the space of a channel, or there are dims of it that it does not share."""
    columns = range(program.rows, len(program.shape))
    return any(operand.strides[d] and program.shape[d] > 1 for d in columns if not _is_kept(program, of, d))


def _is_kept(program: Program, of: Given, dim: int) -> bool:
    """Whether a dim is one of batch or channels."""
    return program.operand(of.operand).strides[dim] >= of.elements


def _laid(
    program: Program, operand: Operand, shape: Sequence[int], elements: int
) -> tuple[tuple[int, ...], ...] | None:
    """Strides of moments over a program's space; None where that is not made of the tensor's dims, space among the
    columns."""
    of_channel, channels = [0] * len(program.shape), shape[1]
    of_image = [0] * len(program.shape)
    if math.prod(program.shape) != math.prod(shape) or operand.start:
        return None
    space = 1
    for dim, (size, stride) in enumerate(zip(program.shape, operand.strides, strict=True)):
        if size == 1:
            continue
        if stride < elements:
            space *= size
            if not stride or dim < program.rows:
                return None
            continue
        step = stride // elements
        if stride % elements or (step < channels < step * size):
            return None
        of_image[dim], of_channel[dim] = step, step % channels
    laid = (tuple(of_channel), tuple(of_image), tuple(of_image))
    return laid if space == elements else None


def _is_shared(strides: Sequence[int], shape: Sequence[int]) -> bool:
    return any(not stride and size > 1 for stride, size in zip(strides, shape, strict=True))
