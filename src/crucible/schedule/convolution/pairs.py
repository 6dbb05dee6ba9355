"""Passes over a convolution's product: a maximum and the sum of what is relative to it come of the same one.

A softmax of values whose range is not known takes their maximum out before it adds up exponentials. An item of the
convolution takes out its own instead; when the parts of items are put together, each sum gets the factor that it is off
by, exp(own maximum - maximum). So such a softmax takes two passes, not three.
"""

from __future__ import annotations

from collections.abc import Sequence

from crucible.algebra.convolution.fused import PRODUCT, is_of_row
from crucible.algebra.expression import Expr
from crucible.algebra.program import Program, Reduction, reads
from crucible.schedule.convolution.tiling import Tiling
from crucible.schedule.passes import Pass, passes

LOWEST = -3.4028234663852886e38
"""Stands for the maximum where all values are minus infinity, which lies at no distance from itself."""


def tensors(step: Pass, program: Program) -> int:
    """Of the output's size that a pass reads, besides the product, and writes."""
    read = frozenset[str]().union(*map(reads, step.roots)) - {PRODUCT}
    return len(step.results) + sum(each.name in read and not is_of_row(each) for each in program.operands)


def schedule(program: Program, tiling: Tiling) -> list[Pass]:
    """The passes over the program's columns, where those that only reduce the product are done by a tiling."""
    steps = [*passes(program)]
    at = 0
    while at + 1 < len(steps):
        if _are_one(steps[at], steps[at + 1], program, tiling):
            both = (*steps[at].reductions, *steps[at + 1].reductions)
            steps[at : at + 2] = [Pass(both, ())]
        at += 1
    return steps


def maximum_of(reduction: Reduction, among: Sequence[Reduction]) -> Reduction | None:
    """The maximum to which what a sum adds up is relative: of exp(x - m) that of x."""
    power = reduction.expr
    if reduction.kind != "sum" or power.kind != "exp" or power.args[0].kind != "sub":
        return None
    value, leaf = power.args[0].args
    return next((m for m in among if m.kind == "max" and m.leaf is leaf and m.expr is value), None)


def corrected(part: Expr, own: Expr, largest: Expr) -> Expr:
    """An item's part of such a sum, relative to the maximum of all of them."""
    return part * (own.maximum(LOWEST) - largest).exp()


def _are_one(step: Pass, after: Pass, program: Program, tiling: Tiling) -> bool:
    """Where the product stays in registers, to be gone over twice."""
    stays = not tensors(step, program) and not tensors(after, program)
    stays = stays and tiling.reduces_in_registers(len(step.reductions) + len(after.reductions))
    return stays and all(maximum_of(each, step.reductions) for each in after.reductions)
