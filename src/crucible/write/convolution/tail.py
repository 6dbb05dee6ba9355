"""What becomes of the products of warpgroups: what all their tails share."""

from __future__ import annotations

from dataclasses import dataclass, field

from crucible.target.cuda import converted
from crucible.target.names import MARK
from crucible.write.convolution.fused import PRODUCT, is_of_row
from crucible.write.convolution.row_parts import chains
from crucible.write.convolution.rows import plain
from crucible.write.convolution.scene import Scene
from crucible.write.convolution.windows import CHOICE
from crucible.write.cuda import emit
from crucible.write.program import Result


@dataclass
class Tail:
    """Text behind the multiplication."""

    scene: Scene
    preamble: list[str] = field(default_factory=list)

    def _chain(self) -> list[str]:
        names = {each.name: f"{each.name}_value" for each in self.scene.operands} | {PRODUCT: "product"}
        found = emit(chains(self.scene.conv), names, mark=MARK)
        self.preamble += found.preamble
        lines = ["const float product = products.at[k];", *self._values_of_packs(), *found.statements]
        for each in self.scene.elementwise:
            chosen = each.expr is CHOICE
            word = "choices.at[k]" if chosen else converted(f"{each.name}_is", "float32", each.dtype)
            lines.append(f"{each.name}_pack.at[k] = {word};")
        return lines

    def _values_of_packs(self) -> list[str]:
        lines = []
        for operand in self.scene.operands:
            strides = plain(operand.strides, self.scene.conv.made_shape)
            if not is_of_row(operand) and strides[-1] != 0:
                read = converted(f"{operand.name}_pack.at[k]", operand.dtype, "float32")
                lines.append(f"const float {operand.name}_value = {read};")
        return lines

    def _total_at(self, each: Result) -> int:
        return self.scene.sums.index(each) * self.scene.tiling.channels
