"""What chains read and compute behind the products of warpgroups, by name."""

from __future__ import annotations

from crucible.target.cuda import converted
from crucible.write.convolution.fused import Convolution, is_of_row
from crucible.write.convolution.halo import times
from crucible.write.convolution.scene import Scene
from crucible.write.convolution.windows import CHOICE
from crucible.write.expression import Expr
from crucible.write.program import Reduction, Result


def row_values(scene: Scene) -> list[str]:
    """Those operands, read for channel `c` of image `n`."""
    lines = []
    for operand in filter(is_of_row, scene.operands):
        image = f"n * {operand.strides[0]}LL" if operand.strides[0] else ""
        at = " + ".join(filter(None, (image, times("c", operand.strides[1])))) or "0"
        read = converted(f"{operand.name}[{at}]", operand.dtype, "float32")
        lines.append(f"const float {operand.name}_value = {read};")
    return lines


def chains(conv: Convolution) -> dict[str, Expr]:
    """What is computed of each product, by the variable."""
    named: list[Result | Reduction] = [*conv.results, *conv.reductions]
    return {f"{each.name}_is": each.expr for each in named if each.expr is not CHOICE}
