"""What kinds make of problems: kernels of the IR, and among them programs that are kernels of their own kind."""

from __future__ import annotations

from dataclasses import dataclass

from crucible.algebra.buffer import Buffer
from crucible.algebra.program import Program
from crucible.kernel import nodes as ir
from crucible.kinds.steps import Steps
from crucible.print.cuda import printed
from crucible.print.written import Lowered


@dataclass(frozen=True)
class Built:
    """A computation as kernels of the IR, launched in this order."""

    kernels: tuple[ir.Kernel, ...]
    buffers: tuple[Buffer, ...] = ()
    notes: tuple[str, ...] = ()

    def lowered(self) -> Lowered:
        """As text."""
        return Lowered(tuple(map(printed, self.kernels)), self.buffers, self.notes)


@dataclass(frozen=True)
class BuiltSteps:
    """Steps before there is text of them."""

    steps: tuple[Built | Program, ...]
    """Programs have no sums; they read its tensors and buffers."""
    buffers: tuple[Buffer, ...]
    """What one step writes and later ones read."""
    results: tuple[str, ...]
    """The tensors that are there in the end."""

    def lowered(self) -> Steps:
        """As text."""
        steps = tuple(each.lowered() if isinstance(each, Built) else each for each in self.steps)
        return Steps(steps, self.buffers, self.results)
