"""What averages divide by."""

from __future__ import annotations

from crucible.write.expression import Expr, parameter, tensor
from crucible.write.pool import Pool, Window
from crucible.write.pooling.frame import Frame
from crucible.write.pooling.loops import end, start

TOTAL, COUNT = tensor("the sum of the window"), parameter("the count of the window")


def average(pool: Pool, total: Expr) -> Expr:
    """Divided as PyTorch divides; by a power of two that is a product."""
    divisor = pool.count
    if divisor is None:
        return total / COUNT
    return total * (1 / divisor) if divisor > 0 and divisor & (divisor - 1) == 0 else total / float(divisor)


def count(frame: Frame) -> list[str]:
    """Declares what an average divides by, where that differs between windows."""
    words = [_counted(frame, window, dim) for window, dim in zip(frame.windows, frame.spatial, strict=True)]
    return [f"const {frame.real} count = {' * '.join(words)};"]


def _counted(frame: Frame, window: Window, dim: str) -> str:
    if len({frame.pool.counted(window, output) for output in range(window.outputs)}) == 1:
        return str(frame.pool.counted(window, 0))
    first = start(window, dim)
    if window.adaptive:
        return f"({end(window, dim)} - ({first}))"
    limit = window.extent + (window.padding if frame.pool.count_include_pad else 0)
    last = f"min({first} + {window.size}, {limit})"
    return f"({last} - ({first}))" if frame.pool.count_include_pad else f"({last} - max({first}, 0))"
