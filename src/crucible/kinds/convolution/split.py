"""Numbers of float32 as the two words that tensor cores multiply, see `schedule.convolution.exact`."""

from __future__ import annotations

from typing import TypeAlias

from crucible.kernel import nodes as ir
from crucible.kernel.index import Number

Split: TypeAlias = ir.Split | ir.SplitScaled


def split_words(value: ir.Element) -> tuple[Split, Split]:
    """Of a pack, in TF32, which begin here."""
    high, low = (ir.Element(ir.Fragment(name, "tf32", value.of.shape[-1:], True)) for name in ("high", "low"))
    return ir.Split(high, value, "high", declares=True), ir.Split(low, value, "low", declares=True)


def split_scaled(value: ir.Element, scale: ir.Element) -> tuple[Split, Split]:
    """Of a pack times a scale in fp16, which begin here."""
    count = Number(value.vector // 2)
    high, low = (ir.Element(ir.Fragment(name, "halves", (count,), True)) for name in ("high", "low"))
    return ir.SplitScaled(high, value, scale, "high"), ir.SplitScaled(low, value, scale, "low")
