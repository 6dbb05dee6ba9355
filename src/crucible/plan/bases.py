"""What lazy values start from besides tensors: pools and convolutions, each with the chain that follows it."""

from __future__ import annotations

from collections.abc import Sequence

from crucible.algebra.program import Operand, contiguous
from crucible.plan import convolutions, pools, reducing
from crucible.plan.join import plain
from crucible.plan.lazy import CannotJoin, Convolving, Lazy, whole
from crucible.plan.settle import Settled


def fits(value: Lazy) -> bool:
    """Whether the chain after a pool or convolution goes over its own output."""
    if isinstance(value.base, Convolving):
        return reducing.fits(value) if value.reductions else convolutions.over(value) is not None
    if value.base is None:
        return False
    shape, usual = value.base.shape, contiguous(value.base.shape)
    try:
        laid = plain(pools.over(value, shape))
    except CannotJoin:
        return False
    (own,) = (operand for operand in laid.operands if operand.name == value.base.name)
    in_order = all(n == 1 or s == u for n, s, u in zip(shape, own.strides, usual, strict=False))  # no two exchanged
    return laid.shape == shape and in_order


def alone(value: Lazy) -> Lazy:
    """The pool or convolution without the chain after it."""
    assert value.base is not None
    shape = value.base.shape
    operand = next(o for o in value.operands if o.name == value.base.name)
    laid = Operand(operand.name, operand.dtype, contiguous(shape))
    return Lazy(shape, whole(shape), (laid,), laid.leaf, operand.dtype, {laid.name: laid.name}, base=value.base)


def settled(value: Lazy, name: str, strides: Sequence[int]) -> Settled:
    """The pool or convolution with its chain that writes the value to a tensor `name` laid as `strides` say."""
    if not isinstance(value.base, Convolving):
        return pools.settled(value, name, strides)
    settle = reducing.settled if value.reductions else convolutions.settled
    return settle(value, name, strides)
