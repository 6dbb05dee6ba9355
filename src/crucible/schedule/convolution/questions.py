"""Which division a convolution's kernels take: asked while they are lowered, answered by what was measured.

Lowering hands `gpu` down to wherever a division is chosen. A `Tuned` one also knows answers: what lowering asks is
looked up there first, and what it does not know is divided as estimated best, as on any other GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

from crucible.algebra.convolution.correlation import Correlation
from crucible.algebra.convolution.fused import Convolution, arithmetic
from crucible.algebra.convolution.windows import WHOLE, Spreads
from crucible.algebra.expression import Expr, nodes
from crucible.algebra.program import Operand
from crucible.gpus import Gpu

Fronts: TypeAlias = tuple[Expr | None, Expr | None]
"""Chains in front of what is multiplied for a weight's gradient: of the source, of the gradient; of one at most."""
NO_FRONTS: Fronts = (None, None)
Way: TypeAlias = Any
"""A division: a Tiling, Walks or PhaseWalks of a multiplication, a Division of a weight's gradient."""


@dataclass(frozen=True)
class Multiplying:
    """How a convolution with its chain is divided: forward, the gradient of a chain, that of an input, a pass of a
    reduction."""

    conv: Convolution
    tensors: int
    """Of the output's size, that its chain reads and writes."""
    alike: bool = False
    """Whether its products must have the same bits as other kernels': then warps alone multiply."""

    @property
    def name(self) -> str:
        return self.conv.name

    @property
    def text(self) -> str:
        """All that its kernels depend on but their name and the GPU: equal for equal questions, in any process."""
        conv = self.conv
        named = [(each.name, each.dtype, each.strides, each.sums) for each in conv.results]
        reduced = [(each.name, each.kind) for each in conv.reductions]
        pool = (conv.pool.kind, conv.pool.sizes) if conv.pool else None
        roots = (*conv.exprs, *([conv.pool.before] if conv.pool else []))
        operands = (conv.source, conv.weight, *conv.operands)
        parts = [
            conv.correlation,
            operands,
            conv.weight_shape,
            named,
            reduced,
            pool,
            conv.spread,
            conv.exact,
            self.alike,
        ]
        parts += [[(each.name, each.kind) for each in conv.crossings]] if conv.crossings else []
        fronts = [] if conv.front is None else _written((conv.front,))
        return "\n".join([*map(repr, parts), *_written(roots), *fronts])


@dataclass(frozen=True)
class WeightGradient:
    """How the gradient of a weight is divided."""

    name: str
    of: Correlation
    source: Operand
    grad: Operand
    spreads: Spreads = WHOLE
    exact: bool = False
    fronts: Fronts = NO_FRONTS

    @property
    def math(self) -> str:
        """As a convolution's; it is a sum over the positions of all samples."""
        depth = self.of.batch * math.prod(axis.steps for axis in self.of.axes)
        return arithmetic(self.source.dtype, exact=self.exact, depth=depth)

    @property
    def text(self) -> str:
        """As of `Multiplying`."""
        parts = ("weight gradient", self.of, self.source, self.grad, self.spreads, self.exact)
        fronts = [line for front in self.fronts if front is not None for line in _written((front,))]
        return "\n".join([*map(repr, parts), *fronts])


Question: TypeAlias = Multiplying | WeightGradient


@dataclass(frozen=True, eq=False)
class Tuned(Gpu):
    """A GPU of which divisions were measured. It equals one that knows other answers: estimates, which are cached by
    GPU, do not depend on them."""

    answer: Callable[[Question], Way | None] = lambda question: None
    notes: tuple[str, ...] = ()
    """What was measured, for the header of a written file."""


def tuned(gpu: Gpu, answer: Callable[[Question], Way | None], notes: tuple[str, ...] = ()) -> Tuned:
    """The GPU with answers."""
    return Tuned(**{each.name: getattr(gpu, each.name) for each in fields(Gpu)}, answer=answer, notes=notes)


def answered(gpu: Gpu, question: Question) -> Way | None:
    """The division that was measured as fastest; None where none was."""
    return gpu.answer(question) if isinstance(gpu, Tuned) else None


def renamed(question: Question, name: str) -> Question:
    """The same, of kernels of another name."""
    if isinstance(question, WeightGradient):
        return replace(question, name=name)
    return replace(question, conv=replace(question.conv, name=name))


def _written(roots: tuple[Expr, ...]) -> list[str]:
    """Expressions node by node, arguments by number."""
    numbers: dict[Expr, int] = {}
    lines = []
    for node in nodes(*roots):
        numbers[node] = len(numbers)
        lines.append(f"{node.kind} {[numbers[each] for each in node.args]} {node.attributes!r}")
    return [*lines, repr([numbers[each] for each in roots])]
