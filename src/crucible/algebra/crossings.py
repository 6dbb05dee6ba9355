"""Crossings: reductions over the channels of a tensor, for each position of an image, taken where the tensor is made.

A program whose reductions all are such, and whose results are what rows share (the minimum over channels and what
follows it), then reads a number for each position and nothing of the tensor. They are of the tensor's own values, so a
maximum has the bits of one of them, which a gradient asks for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from crucible.algebra.expression import Expr, nodes, substitute, tensor
from crucible.algebra.program import Operand, Program, Reduction, contiguous, reads, trimmed
from crucible.graph import TensorType

WRITTEN = tensor("written")
"""An element of the tensor, as a crossing reads it."""


@dataclass(frozen=True)
class Crossings:
    """Of a tensor [N, C, *space] without gaps; each a float32 tensor [N, *space] of its name."""

    reductions: tuple[Reduction, ...]
    """Over channels, of `WRITTEN`."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.reductions)

    def types(self, shape: Sequence[int]) -> dict[str, TensorType]:
        """Of these tensors, for a tensor of a shape."""
        rows = (shape[0], *shape[2:])
        return {name: TensorType(rows, contiguous(rows), "float32") for name in self.names}

    def of(self, value: Expr) -> tuple[Reduction, ...]:
        """Where the tensor's elements are that value."""
        return tuple(replace(each, expr=substitute(each.expr, {WRITTEN: value})) for each in self.reductions)


@dataclass(frozen=True)
class Crossed:
    """Crossings as a program takes them."""

    operands: tuple[Operand, ...]
    """For each of its reductions the tensor that holds it; laid over the program's space."""


def crossed(program: Program, operand: str, shape: Sequence[int], names: Sequence[str]) -> Crossed | None:
    """How a program takes its reductions from tensors of these names. None where they are not of the channels of an
    operand, a tensor of this shape, or where anything but rows is asked for."""
    strides = _laid(program, program.operand(operand), shape)
    if strides is None or not program.reductions or program.precision != "float32":
        return None
    if any(reads(each.expr) != {operand} for each in program.reductions):
        return None
    if not all(each.kind == "sum" or _is_exact(each.expr) for each in program.reductions):
        return None
    rows = all(program.is_per_row(each) and operand not in reads(each.expr) for each in program.results)
    found = (Operand(name, "float32", strides, shared=True, constant=True) for name in names)
    return Crossed(tuple(found)) if rows else None


def crossings(program: Program, operand: str) -> Crossings:
    """What such a program takes, by the names of its reductions."""
    leaves = {program.operand(operand).leaf: WRITTEN}
    return Crossings(tuple(Reduction(r.name, r.kind, substitute(r.expr, leaves)) for r in program.reductions))


def of_rows(program: Program, taken: Crossed) -> Program:
    """The program over its rows alone."""
    rows = program.rows
    whole = [replace(each, strides=each.strides[:rows], shared=False) for each in taken.operands]
    leaves = {each.leaf: operand.leaf for each, operand in zip(program.reductions, whole, strict=True)}
    wide = [each for each in program.operands if not any(each.strides[rows:])]
    operands = tuple(replace(each, strides=each.strides[:rows]) for each in wide)
    results = tuple(replace(each, expr=substitute(each.expr, leaves)) for each in program.results)
    name = f"{program.name}_of_crossings"
    return trimmed(Program(name, program.row_shape, rows, (*operands, *whole), (), results, program.precision))


def _is_exact(expr: Expr) -> bool:
    """Whether it has no rounding: gradients compare what they compute of the tensor anew with a maximum."""
    return {node.kind for node in nodes(expr)} <= {"tensor", "neg", "abs"}


def _laid(program: Program, operand: Operand, shape: Sequence[int]) -> tuple[int, ...] | None:
    """Strides of a number for each position over a program's space; None where its columns are not the channels, or
    its rows not all the rest."""
    space, channels = math.prod(shape[2:]), shape[1]
    if math.prod(program.shape) != math.prod(shape) or operand.start or program.column_count != channels:
        return None
    strides = []
    for dim, (size, stride) in enumerate(zip(program.shape, operand.strides, strict=True)):
        of_image = stride % (channels * space) == 0 and stride > 0
        if size == 1:
            strides.append(0)
        elif dim >= program.rows:
            if size != channels or stride != space:
                return None
            strides.append(0)
        elif of_image or 0 < stride * size <= space:
            strides.append(stride // channels if of_image else stride)
        else:
            return None
    return tuple(strides)
