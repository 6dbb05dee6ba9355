"""What is left of a window of products: which of them decides."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from crucible.algebra.convolution.fused import LEAF, PRODUCT, Convolution
from crucible.algebra.convolution.windows import CHOICE, Windows
from crucible.algebra.expression import tensor
from crucible.algebra.pool import Pool, Window
from crucible.algebra.program import Operand, Result, contiguous, reads
from crucible.algebra.sinking import LARGEST, SMALLEST, Sunk, sink

END_WORDS, END_KINDS = {LARGEST: "largest", SMALLEST: "smallest"}, {LARGEST: "max", SMALLEST: "min"}
"""Their words, and the reductions that find them."""


@dataclass
class Choosing:
    """One window of a convolution's pool."""

    conv: Convolution
    pool: Windows

    @cached_property
    def keeps(self) -> bool:
        """Whether which element is chosen is written."""
        return any(each.expr is CHOICE for each in self.conv.results)

    @cached_property
    def operands(self) -> tuple[Operand, ...]:
        """What the comparison reads beside the products."""
        if self.pool.kind == "avg" or (self.ends and len(self.ends.ends) == 1):
            return ()
        return tuple(each for each in self.conv.operands if each.name in reads(self.pool.before))

    def note(self) -> str:
        """In words."""
        size = "x".join(map(str, self.pool.sizes))
        if self.pool.kind == "avg":
            return f"Of windows of {size} products their mean is left."
        kept = " and which it is" if self.keeps else ""
        how = f" {self.ends.note}" if self.ends else ""
        return f"Of windows of {size} the product of the largest value is left{kept}.{how}"

    @cached_property
    def ends(self) -> Sunk | None:
        """Where the largest or the smallest product gives the largest value; which element it is of several then is
        another matter."""
        if self.keeps:
            return None
        of = self.conv.correlation
        windows = tuple(
            Window(size, size, n, n // size) for size, n in zip(self.pool.sizes, of.out_shape[2:], strict=True)
        )
        product = Operand(PRODUCT, "float32", contiguous(of.out_shape))
        shared = tuple(each for each in self.conv.operands if each.name in reads(self.pool.before))
        left = Result("left", "float32", contiguous(self.conv.made_shape), tensor("pooled"))
        found = sink(Pool("sunk", "max", of.out_shape[:2], windows, (product, *shared), self.pool.before, (), left))
        return found if found.inner is LEAF else None
