"""A convolution whose product is reduced over space: what is computed, and its gradient as a program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from crucible.algebra.adjoint import adjoint, saving
from crucible.algebra.convolution.fused import PRODUCT, Convolution
from crucible.algebra.program import Operand, Program, contiguous
from crucible.algebra.tidy import without_idle_maxima

ROWS = 2
"""Batch and channels; columns are the spatial dims."""


@dataclass(frozen=True)
class ReducingConvolution:
    """A convolution and what becomes of its product."""

    name: str
    """A C++ identifier."""
    conv: Convolution
    """Without chains of its own."""
    program: Program
    """Over the convolution's `out_shape`, batch and channels being rows. It reads the product as an operand `PRODUCT`,
    and its first result is that of the step."""

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Tensors besides the product."""
        return tuple(each for each in self.program.operands if each.name != PRODUCT)

    def differentiable(self, wanted: Sequence[str]) -> tuple[ReducingConvolution, tuple[str, ...]]:
        """With the reductions as further results that its gradients read (`saved_*`, a number a row), and without
        maxima that nobody needs; and words on these."""
        program, notes = without_idle_maxima(self.program)
        slim = replace(self, program=program)
        names = [reduction.name for reduction in program.reductions]
        read = {each.name for each in slim.adjoint(wanted, "upstream", names).operands}
        return replace(slim, program=saving(program, [name for name in names if f"saved_{name}" in read])), notes

    def adjoint(self, wanted: Sequence[str], upstream: str, saved: Sequence[str]) -> Program:
        """The program for the gradients of the product, where source or weight are wanted, and of operands."""
        deep = [PRODUCT] if {self.conv.source.name, self.conv.weight.name} & set(wanted) else []
        own = [each.name for each in self.operands if each.name in wanted]
        return adjoint(self.program, [*deep, *own], {self.program.results[0].name: upstream}, saved)


def product(conv: Convolution) -> Operand:
    """What programs read as the product."""
    return Operand(PRODUCT, "float32", contiguous(conv.correlation.out_shape))
