"""The gradients of a pool: as expressions, where they are written, and how what elements share is added up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from crucible.algebra.buffer import Buffer
from crucible.algebra.expression import Expr, number, tensor
from crucible.algebra.gradient import gradients
from crucible.algebra.pool import Pool
from crucible.algebra.program import Operand, Program, Result, contiguous
from crucible.algebra.stages import stages
from crucible.kernel import nodes as ir
from crucible.kinds.pooling.items import Grid, Items, Rows

SHARE = tensor("the gradient of an element's value")
"""What the chain before gets from above at an element."""


@dataclass(frozen=True)
class Slopes:
    """Gradients as expressions; operands on which nothing depends are absent."""

    of_pooled: Expr
    of_after: dict[str, Expr]
    of_before: dict[str, Expr]
    """Of a maximum whose `of_pooled` goes all to one element: from the result; else from SHARE."""


def differentiated(pool: Pool, wanted: Sequence[str], upstream: Operand, through: bool) -> Slopes:
    """By the chain rule; `through` says whether the chain before is differentiated from the result on."""
    before = [each for each in pool.operands if each.name in wanted]
    after = [each for each in pool.after_operands if each.name in wanted]
    of_pooled, *rest = gradients(pool.after, [pool.pooled, *(each.leaf for each in after)], upstream.leaf)
    inner = gradients(pool.before, [each.leaf for each in before], of_pooled if through else SHARE)
    of_after = {each.name: expr for each, expr in zip(after, rest, strict=True) if number(expr) != 0}
    of_before = {each.name: expr for each, expr in zip(before, inner, strict=True) if number(expr) != 0}
    return Slopes(of_pooled, of_after, of_before if number(of_pooled) != 0 else {})


@dataclass(frozen=True)
class Target:
    """A gradient that a pool's kernel writes."""

    operand: Operand
    """Of the pool."""
    written: Operand
    """The gradient itself, laid like the operand; or parts of it, to be added up."""
    by: Literal["element", "item", "block"]
    """What writes one number: an element of the input, an item (a window, say), or a block."""
    space: tuple[int, ...]
    """What `written` is laid over."""
    kept: tuple[int, ...]
    """The operand's strides over that space."""

    @property
    def parts(self) -> bool:
        return self.written.name != f"grad_{self.operand.name}"

    def adding(self, pool: Pool) -> tuple[Program, ...]:
        """The programs that add the parts up, in a fixed order."""
        if not self.parts:
            return ()
        name = f"grad_{self.operand.name}"
        total = Result(name, self.operand.dtype, self.kept, self.written.leaf, shares(self.kept, self.space))
        rows = len(self.space)
        return stages(Program(f"{pool.name}_{name}", self.space, rows, (self.written,), (), (total,), pool.precision))

    def buffer(self) -> Buffer:
        """Of the parts."""
        return Buffer(self.written.name, self.written.dtype, math.prod(self.space))


def totals(targets: Sequence[Target], precision: str) -> dict[str, ir.Fragment]:
    """What a thread adds up of those of which a block writes a number, by the tensor's name."""
    of_blocks = [each for each in targets if each.by == "block"]
    return {each.written.name: ir.Fragment(f"{each.operand.name}_total", precision) for each in of_blocks}


def shares(strides: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether elements share a place."""
    return any(not stride and size > 1 for stride, size in zip(strides, shape, strict=True))


def of_elements(pool: Pool, operand: Operand) -> Target:
    """The gradient of what differs within windows."""
    name, shape = f"grad_{operand.name}", pool.input_shape
    written = Operand(name, operand.dtype, operand.strides)
    if shares(operand.strides, shape):
        written = Operand(f"parts_{name}", pool.precision, contiguous(shape))
    return Target(operand, written, "element", shape, operand.strides)


def of_items(items: Items, grid: Grid, operand: Operand) -> Target:
    """The gradient of what all elements of an item share. It may be laid over another space than items are: where it
    differs along no spatial dim its strides there are 0."""
    pool, name = items.layout.pool, f"grad_{operand.name}"
    shape = items.shape
    strides = operand.strides
    if operand in pool.after_operands and not shares(strides, shape):
        return Target(operand, Operand(name, operand.dtype, strides), "item", shape, strides)
    if isinstance(grid, Rows) and still(pool, operand):
        space = (*pool.outer, grid.chunks)
        parts = Operand(f"parts_{name}", pool.precision, contiguous(space))
        return Target(operand, parts, "block", space, (*strides[: len(pool.outer)], 0))
    dense = contiguous([shape[dim] for dim in items.order])
    laid = tuple(dense[items.order.index(dim)] for dim in range(len(shape)))
    return Target(operand, Operand(f"parts_{name}", pool.precision, laid), "item", shape, strides)


def still(pool: Pool, operand: Operand) -> bool:
    """Whether an operand is the same for all of a batch and channel."""
    sizes = pool.output_shape if operand in pool.after_operands else pool.input_shape
    rank = len(pool.outer)
    return not any(stride and size > 1 for stride, size in zip(operand.strides[rank:], sizes[rank:], strict=True))
