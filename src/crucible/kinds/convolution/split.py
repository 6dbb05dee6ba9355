"""Numbers of float32 as the two words that tensor cores multiply, see `schedule.convolution.exact`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from crucible.kernel import nodes as ir
from crucible.kernel.index import Number
from crucible.schedule.convolution.exact import Pass

Split: TypeAlias = ir.Split | ir.SplitInHalves | ir.SplitScaled


def split_words(value: ir.Element, passes: Sequence[Pass]) -> tuple[Split, Split]:
    """Of a pack of an input's, which begin here."""
    names = (("high", "tf32"), ("low", "halves" if passes[0].in_halves else "tf32"))
    high, low = (ir.Element(ir.Fragment(name, dtype, value.of.shape[-1:], True)) for name, dtype in names)
    return ir.Split(high, value, "high", declares=True), second_word(low, value, passes, declares=True)


def split_scaled(value: ir.Element, scale: ir.Element) -> tuple[Split, Split]:
    """Of a pack times a scale in fp16, which begin here."""
    count = Number(value.vector // 2)
    high, low = (ir.Element(ir.Fragment(name, "halves", (count,), True)) for name in ("high", "low"))
    return ir.SplitScaled(high, value, scale, "high"), ir.SplitScaled(low, value, scale, "low")


def second_word(
    into: ir.Element, value: ir.Element, passes: Sequence[Pass], *,
    of_weight: bool = False, declares: bool = False, settles: bool = False,
) -> Split:  # fmt: skip
    """Of an input's, or a weight's."""
    if passes[0].in_halves:
        return ir.SplitInHalves(into, value, "rest" if of_weight else "near", declares=declares, settles=settles)
    return ir.Split(into, value, "low", declares=declares, settles=settles)
