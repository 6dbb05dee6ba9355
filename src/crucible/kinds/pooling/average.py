"""What averages divide by."""

from __future__ import annotations

from collections.abc import Iterable

from crucible.algebra.expression import Expr, inputs, name_of, parameter, tensor
from crucible.algebra.pool import Pool
from crucible.kernel import nodes as ir
from crucible.kernel.index import ONE, ZERO, Index, Larger, Number, Smaller
from crucible.kinds.pooling.frame import Frame
from crucible.kinds.pooling.loops import end, start

TOTAL, COUNT = tensor("the sum of the window"), parameter("the count of the window")


def average(pool: Pool, total: Expr) -> Expr:
    """Divided as PyTorch divides; by a power of two that is a product."""
    divisor = pool.count
    if divisor is None:
        return total / COUNT
    return total * (1 / divisor) if divisor > 0 and divisor & (divisor - 1) == 0 else total / float(divisor)


def count(frame: Frame, exprs: Iterable[Expr]) -> None:
    """Computes what an average divides by, where that differs between windows and expressions read it."""
    if not any(COUNT in inputs(expr) for expr in exprs):
        return
    found: Index = ONE
    for position in range(len(frame.layout.windows)):
        found = found * _counted(frame, position)
    fragment = frame.leaves[name_of(COUNT)] = ir.Fragment("count", frame.precision)
    frame.k.add(ir.Value(ir.Element(fragment), found))


def _counted(frame: Frame, position: int) -> Index:
    window, dim, pool, k = frame.layout.windows[position], frame.layout.spatial[position], frame.pool, frame.k
    counts = {pool.counted(window, output) for output in range(window.outputs)}
    if len(counts) == 1:
        return Number(counts.pop())
    first = k.let(f"from_{dim}", start(frame, position), "int")
    if window.adaptive:
        return k.let(f"to_{dim}", end(frame, position), "int") - first
    limit: Index = frame.size(f"extent_{dim}", window.extent)
    limit = limit + frame.size(f"padding_{dim}", window.padding) if pool.count_include_pad else limit
    past = k.let(f"to_{dim}", Smaller(first + frame.size(f"size_{dim}", window.size), limit), "int")
    return past - (first if pool.count_include_pad else Larger(first, ZERO))
