"""The gradient of a program, which is a program over the same space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from crucible.algebra.expression import Expr, number, substitute, where
from crucible.algebra.gradient import gradients
from crucible.algebra.program import Operand, Program, Reduction, Result, contiguous, trimmed


def adjoint(program: Program, wanted: Sequence[str], upstream: Mapping[str, str], saved: Sequence[str] = ()) -> Program:
    """The program for the gradients of the operands `wanted`, as results `grad_<operand>` laid like the operands;
    those on which nothing depends are absent.

    `upstream` names the operand that holds the gradient of each result (results that are not named have none); it is
    laid like the result. Reductions in `saved` are read as operands `saved_<name>` of one element for each row (see
    `saving`), the others are computed again. Where several elements of a row share
    the maximum, its gradient is shared out evenly.
    """
    work = _Work(program, tuple(wanted), frozenset(saved))
    for result in program.results:
        if result.name in upstream:
            work.result(result, upstream[result.name])
    for reduction in reversed(program.reductions):
        work.reduction(reduction)
    return work.program(f"{program.name}_backward")


def saving(program: Program, names: Sequence[str]) -> Program:
    """The program with reductions as further results `saved_<name>`, one element for each row, for its adjoint."""
    strides = contiguous(program.row_shape)
    kept = [
        Result(f"saved_{r.name}", program.precision, strides, r.leaf) for r in program.reductions if r.name in names
    ]
    return replace(program, results=(*program.results, *kept))


@dataclass
class _Work:
    """Gradients found so far: those of values for each element, and those of values for each row."""

    forward: Program
    wanted: tuple[str, ...]
    saved: frozenset[str]
    by_element: dict[Expr, Expr] = field(default_factory=dict)
    by_row: dict[Expr, Expr] = field(default_factory=dict)
    operands: list[Operand] = field(default_factory=list)
    reductions: list[Reduction] = field(default_factory=list)

    def result(self, result: Result, upstream: str) -> None:
        per_row = self.forward.is_per_row(result)
        strides = result.strides + (0,) * (len(self.forward.shape) - len(result.strides))
        operand = Operand(upstream, result.dtype, strides, shared=per_row)
        self.operands.append(operand)
        self._flow(result.expr, operand.leaf, self.by_row if per_row else self.by_element)

    def reduction(self, reduction: Reduction) -> None:
        gradient = None if reduction.constant else self._of_row(reduction.leaf, f"grad_{reduction.name}")
        if gradient is None:
            return
        if reduction.kind == "max":
            ties = Reduction(f"{reduction.name}_ties", "sum", where(self._is_largest(reduction), 1.0, 0.0))
            self.reductions.append(ties)
            gradient = where(self._is_largest(reduction), gradient / ties.leaf, 0.0)
        self._flow(reduction.expr, gradient, self.by_element, reduction.still)

    def program(self, name: str) -> Program:
        results = [found for name in self.wanted if (found := self._gradient(self.forward.operand(name)))]
        kept = {r.leaf: self._saved(r) for r in self.forward.reductions if r.name in self.saved}
        read = {leaf: operand.leaf for leaf, operand in kept.items()}
        again = [r for r in self.forward.reductions if r.name not in self.saved] + self.reductions
        return trimmed(
            replace(
                self.forward,
                name=name,
                operands=(*self.forward.operands, *kept.values(), *self.operands),
                reductions=tuple(replace(r, expr=substitute(r.expr, read)) for r in again),
                results=tuple(replace(r, expr=substitute(r.expr, read)) for r in results),
            )
        )

    def _flow(self, expr: Expr, upstream: Expr, into: dict[Expr, Expr], still: frozenset[str] = frozenset()) -> None:
        ends = [self.forward.operand(name).leaf for name in self.wanted]
        ends += [r.leaf for r in self.forward.reductions if r.name not in still]
        for end, gradient in zip(ends, gradients(expr, ends, upstream), strict=True):
            if number(gradient) != 0:
                into[end] = into[end] + gradient if end in into else gradient

    def _is_largest(self, reduction: Reduction) -> Expr:
        return reduction.expr.equals(reduction.leaf)

    def _of_row(self, leaf: Expr, name: str) -> Expr | None:
        """The gradient of what a whole row shares: what its elements add up to, and what its own results give."""
        parts = [self.by_row[leaf]] if leaf in self.by_row else []
        if leaf in self.by_element:
            total = Reduction(name, "sum", self.by_element[leaf])
            self.reductions.append(total)
            parts.insert(0, total.leaf)
        return None if not parts else parts[0] if len(parts) == 1 else parts[0] + parts[1]

    def _gradient(self, operand: Operand) -> Result | None:
        rows, shape = self.forward.rows, self.forward.shape
        name = f"grad_{operand.name}"
        strides = operand.strides
        if rows < len(shape) and not any(strides[rows:]):
            expr = self._of_row(operand.leaf, f"{name}_row")
            strides = strides[:rows]
        else:
            expr = self.by_element.get(operand.leaf)
        sums = any(not stride and size > 1 for stride, size in zip(strides, shape, strict=False))
        return None if expr is None else Result(name, operand.dtype, strides, expr, sums)

    def _saved(self, reduction: Reduction) -> Operand:
        rows, shape = self.forward.rows, self.forward.shape
        strides = contiguous(shape[:rows]) + (0,) * (len(shape) - rows)
        return Operand(f"saved_{reduction.name}", self.forward.precision, strides, shared=True)
