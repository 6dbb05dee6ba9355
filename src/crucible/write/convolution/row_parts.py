"""What chains read and compute behind the products of warpgroups, by name."""

from __future__ import annotations

from crucible.write.convolution.fused import Convolution
from crucible.write.convolution.windows import CHOICE
from crucible.write.expression import Expr
from crucible.write.program import Reduction, Result


def chains(conv: Convolution) -> dict[str, Expr]:
    """What is computed of each product, by the variable."""
    named: list[Result | Reduction] = [*conv.results, *conv.reductions]
    return {f"{each.name}_is": each.expr for each in named if each.expr is not CHOICE}
