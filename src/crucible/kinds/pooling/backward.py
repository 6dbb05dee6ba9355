"""Pools backward: the gradients of everything that a pool and its chains read."""

from __future__ import annotations

from collections.abc import Sequence

from crucible.algebra.pool import Pool, collapsed_pool
from crucible.kinds.built import BuiltSteps
from crucible.kinds.pooling.forward import saved
from crucible.kinds.pooling.gather import gathered
from crucible.kinds.pooling.one_pass import one_pass
from crucible.kinds.steps import Steps


def lower_pool_backward(pool: Pool, wanted: Sequence[str], upstream: str, kept: Sequence[str] = ()) -> Steps:
    """What `build_pool_backward` builds, as text."""
    return build_pool_backward(pool, wanted, upstream, kept).lowered()


def build_pool_backward(pool: Pool, wanted: Sequence[str], upstream: str, kept: Sequence[str] = ()) -> BuiltSteps:
    """The gradients of the operands `wanted`, of both chains, as `grad_<operand>`, laid like the operands; those on
    which nothing depends are absent. `upstream` is the gradient of the result, laid like it. `kept` names what the
    forward pass has saved, of what is `useful`; the rest is computed again.

    Elements that are not chosen, or are in no window, get 0, even where PyTorch multiplies that by an infinite slope.
    """
    slim = collapsed_pool(pool)
    return one_pass(slim, wanted, upstream) if slim.apart else gathered(slim, wanted, upstream, kept)


def useful(pool: Pool, wanted: Sequence[str], upstream: str) -> tuple[str, ...]:
    """Which of `saved(pool)` the backward pass would compute again if they are not kept."""
    steps = build_pool_backward(pool, wanted, upstream)
    return tuple(each.name for each in saved(pool) if each.name in {buffer.name for buffer in steps.buffers})
