"""The weight of a correlation in memory, and where an element of it lies."""

from __future__ import annotations

import math
from typing import Literal

from crucible.algebra.convolution.correlation import Correlation
from crucible.kernel import nodes as ir
from crucible.kernel.index import ZERO, Compare, Condition, Index, Number, Size


class Weight:
    """The parameter of a kernel."""

    def __init__(self, of: Correlation, name: str, dtype: str, access: Literal["read", "write"]) -> None:
        self.of = of
        apart, taps = of.apart, math.prod(axis.kernel for axis in of.axes)
        channels = apart.groups * apart.in_channels * apart.out_channels // (len(of.folds) or 1)
        self.tensor = ir.Tensor(name, dtype, access, channels * taps)
        named = ("group_stride", "made_stride", "read_stride")
        self.strides = tuple(Size(name, stride) for name, stride in zip(named, of.weight_strides, strict=True))

    def at(self, made: Index, read: Index, tap: Index, group: Index = ZERO) -> tuple[Condition, Index]:
        """Whether there is a weight between an output and an input channel of a group, and its place; the tap's is its
        offset from the first one."""
        of = self.of
        of_group, of_made, of_read = self.strides
        inside: Condition = (Compare("<", made, Number(of.out_channels)), Compare("<", read, Number(of.in_channels)))
        if of.merged > 1:
            outputs, inputs = of.apart.out_channels, of.apart.in_channels
            inside += (Compare("==", made // outputs, read // inputs),)
            group, made, read = group * of.merged + made // outputs, made % outputs, read % inputs
        place = made * of_made
        if of.folds:
            channels = of.out_channels // len(of.folds)
            place = made % channels * of_made + made // channels
        return inside, group * of_group + place + read * of_read + tap
