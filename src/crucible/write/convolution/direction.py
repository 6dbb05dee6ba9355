"""Which way the chain before a maximum goes, where a number of each channel tells.

A chain that rises with its product has the largest value at the largest product, one that falls at the smallest. Where
a factor's sign decides, it does so once a channel: a kernel that turns the products of falling channels round, which is
exact, follows the largest of all channels alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crucible.write.convolution.fused import LEAF, PRODUCT, is_of_row
from crucible.write.cuda import emit, literal
from crucible.write.expression import Expr, name_of, substitute, tensor
from crucible.write.interval import Interval
from crucible.write.monotone import monotonicity
from crucible.write.program import Operand, reads
from crucible.write.simplify import simplify
from crucible.write.sinking import MODERATE, MOST, breaks_between

LEAST = 1e-18
"""Size of a sign that decides: what is nearer to zero may make zeros of products that differ."""
MOST_SIGNS = 2
SIGN_WORDS = tuple(f"sign_{number}" for number in range(MOST_SIGNS))


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

    def lines(self, names: Mapping[str, str], reserved: Sequence[str] = ()) -> list[str]:
        """Declares `falls`, and the signs that `decided` reads; `names` are those of what operands hold."""
        words = SIGN_WORDS[: len(self.signs)]
        simple = simplify(*self.signs).exprs
        found = emit(dict(zip(words, simple, strict=True)), names, reserved=[*reserved, *names.values()])
        negative = [f"({word} < 0.0f)" for word in words]
        return [
            *found.statements,
            f"const bool falls = {' != '.join([*negative, *(['true'] * self.falls)]) or 'false'};",
        ]

    def decided(self, names: Mapping[str, str]) -> str:
        """Whether it is the chain's direction."""
        tests = [f"fabsf({names[each.name]}) <= {literal(MOST)}" for each in self.of]
        tests += [f"fabsf({word}) >= {literal(LEAST)}" for word in SIGN_WORDS[: len(self.signs)]]
        return " && ".join(tests) or "true"


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
