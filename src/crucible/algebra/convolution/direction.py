"""Which way the chain before a maximum goes, where a number of each channel tells.

A chain that rises with its product has the largest value at the largest product, one that falls at the smallest. Where
a factor's sign decides, it does so once a channel: a kernel that turns the products of falling channels round, which is
exact, follows the largest of all channels alone.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from crucible.algebra.convolution.fused import LEAF, PRODUCT, is_of_row
from crucible.algebra.expression import Expr, constant, name_of, parameter, substitute, tensor, where
from crucible.algebra.interval import Interval
from crucible.algebra.monotone import monotonicity
from crucible.algebra.program import Operand, reads
from crucible.algebra.simplify import simplify
from crucible.algebra.sinking import MODERATE, MOST, breaks_between

LEAST = 1e-18
"""Size of a sign that decides: what is nearer to zero may make zeros of products that differ."""
MOST_SIGNS = 2


@dataclass(frozen=True)
class Direction:
    """Of a chain of `LEAF` and of numbers of its channel."""

    falls: bool
    """Where no sign, or an even number of them, is negative."""
    signs: tuple[Expr, ...]
    of: tuple[Operand, ...]
    """The numbers. Where one is not moderate, nothing is decided; without any, all channels have the direction."""

    @property
    def turns(self) -> bool:
        """Whether there are channels where the chain falls."""
        return self.falls or bool(self.signs)

    @property
    def falling(self) -> Expr:
        """The condition that it falls, of one that has signs."""
        first, *rest = (sign < 0.0 for sign in simplify(*self.signs).exprs)
        for each in rest:
            first = (first & ~each) | (~first & each)
        return ~first if self.falls else first

    @property
    def toward(self) -> Expr:
        """What products of a channel are to be multiplied by, so that it rises with them."""
        return where(self.falling, -1.0, 1.0) if self.signs else constant(-1.0 if self.falls else 1.0)

    @property
    def moderate(self) -> Expr:
        """The condition that it has a direction, of one of channels' numbers. A sign's size is that of its negative:
        nvcc 13.0 makes other code where a number that is one has its size computed once for both tests."""
        tests = [abs(parameter(each.name, each.dtype)) <= MOST for each in self.of]
        tests += [abs(-sign) >= LEAST for sign in simplify(*self.signs).exprs]
        return functools.reduce(Expr.__and__, tests)


def direction(before: Expr, operands: Sequence[Operand], *, strict: bool) -> Direction | None:
    """Of a chain before a maximum, where it has one for each channel; `strict` if different products must not give one
    value: the choice of an element is then that of its product. None where that is not proven, for parameters up to
    `MOST` and signs from `LEAST` on, or where something else than the channel decides."""
    of = tuple(each for each in operands if each.name in reads(before))
    if PRODUCT not in reads(before) or any(each.strides[0] or not is_of_row(each) for each in of):
        return None
    still = {each.name: MODERATE for each in of}
    found = monotonicity(before, LEAF, still)
    signs = tuple(dict.fromkeys(found.signs))
    if found.direction not in ("increasing", "decreasing") or len(found.signs) > MOST_SIGNS:
        return None
    if len(signs) < len(found.signs) or not found.keeps_nan or (strict and not found.strict):
        return None
    known = {sign: tensor(f"the sign of {number}") for number, sign in enumerate(signs)}
    function = substitute(before, known)
    for way in itertools.product((Interval(LEAST, MOST), Interval(-MOST, -LEAST)), repeat=len(signs)):
        bounds = {**still, **{name_of(known[sign]): each for sign, each in zip(signs, way, strict=True)}}
        own = monotonicity(function, LEAF, bounds)
        if own.makes_nan or not own.known or (strict and not own.strict) or breaks_between(function, LEAF, bounds):
            return None
    return Direction(found.direction == "decreasing", found.signs, of)
