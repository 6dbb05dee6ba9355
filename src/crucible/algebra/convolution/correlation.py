"""Correlations: what a convolution, a transposed one and the gradients of their inputs have in common.

    out[n, o, q * out_stride + phase] = sum of weight[o, i, tap] * in[n, i, q * in_stride + shift]

over input channels i and the phase's taps, each with its shift.

A convolution has one phase, and its taps are shifts of what it reads. A transposed convolution of stride s writes s
phases a dim, each a convolution of stride 1 with every s-th tap; no zeros are inserted and nothing is scattered. The
gradient of either one's input is the other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import sub
from typing import NamedTuple

from crucible.algebra.program import contiguous

MERGED = 16
"""Output channels of a tensor-core instruction."""


class Tap(NamedTuple):
    """One weight along one dim."""

    number: int
    """In the weight."""
    shift: int
    """What it reads, from `q * in_stride`."""


@dataclass(frozen=True)
class Axis:
    """One spatial dim."""

    extent: int
    """Elements of what is read; outside of them are zeros."""
    outputs: int
    in_stride: int
    out_stride: int
    phases: tuple[tuple[Tap, ...], ...]
    """The taps of each of the `out_stride` phases."""
    kernel: int
    """Elements of the weight."""

    @property
    def steps(self) -> int:
        """How many q there are; the last may lie beyond the outputs of some phases."""
        return -(-self.outputs // self.out_stride)

    @cached_property  # asked for by every division that is tried: half a million times for a dozen layers
    def shifts(self) -> range:
        """From the least to the greatest shift."""
        found = [tap.shift for phase in self.phases for tap in phase] or [0]
        return range(min(found), max(found) + 1)


def axis(extent: int, outputs: int, kernel: int, stride: int, padding: int, dilation: int) -> Axis:
    """A dim of a convolution."""
    taps = tuple(Tap(k, k * dilation - padding) for k in range(kernel))
    return Axis(extent, outputs, stride, 1, (taps,), kernel)


def transposed_axis(extent: int, outputs: int, kernel: int, stride: int, padding: int, dilation: int) -> Axis:
    """A dim of a transposed convolution: output q * stride + phase takes the taps k for which phase + padding -
    k * dilation is a multiple of the stride."""
    phases = tuple(
        tuple(
            Tap(k, (phase + padding - k * dilation) // stride)
            for k in range(kernel)
            if (phase + padding - k * dilation) % stride == 0
        )
        for phase in range(stride)
    )
    return Axis(extent, outputs, 1, stride, phases, kernel)


class Product(NamedTuple):
    """One tap over all dims, of one phase."""

    phase: int
    """Counted over the phases of all dims, the last dim fastest."""
    shift: tuple[int, ...]
    weight: int
    """Offset of its weight from the first tap's, in elements."""


@dataclass(frozen=True)
class Correlation:
    """The geometry of one; everything is divided among groups."""

    batch: int
    groups: int
    in_channels: int
    """Of a group."""
    out_channels: int
    """Of a group."""
    axes: tuple[Axis, ...]
    """One to three."""
    weight_strides: tuple[int, int, int]
    """Of the weight's groups, of output channels within one, of input channels within one; taps are contiguous behind
    them."""
    merged: int = 1
    """Groups of the weight that are one here, with zeros for the weights between them: see `together`."""
    folds: tuple[int, ...] = ()
    """Shifts of the last dim's taps, in order, where they are multiplied as if they were output channels (tap by tap,
    each of all channels): see `folded`."""

    @cached_property
    def products(self) -> tuple[Product, ...]:
        """In the order of phases, then taps."""
        strides = contiguous([each.kernel for each in self.axes])
        found = []
        for number, phase in enumerate(itertools.product(*(each.phases for each in self.axes))):
            for taps in itertools.product(*phase):
                offset = sum(tap.number * stride for tap, stride in zip(taps, strides, strict=True))
                found.append(Product(number, tuple(tap.shift for tap in taps), offset))
        return tuple(found)

    @cached_property
    def behind(self) -> tuple[tuple[tuple[int, ...], int], ...]:
        """Of each product how far its output is behind the first that an input is multiplied for, along every dim, and
        the place of its weight."""
        last = [axis.shifts[-1] for axis in self.axes]
        return tuple((tuple(map(sub, last, each.shift)), each.weight) for each in self.products)

    @property
    def is_dense(self) -> bool:
        """Whether every output channel is made of all input channels."""
        return self.groups == self.merged == 1

    @property
    def apart(self) -> Correlation:
        """With the weight's own groups."""
        made, read = self.out_channels // self.merged, self.in_channels // self.merged
        return replace(self, groups=self.groups * self.merged, out_channels=made, in_channels=read, merged=1)

    @cached_property
    def phases(self) -> tuple[int, ...]:
        """Of each dim."""
        return tuple(each.out_stride for each in self.axes)

    @property
    def depth(self) -> int:
        """Products that are added up for an output, in the mean of all phases."""
        return self.in_channels * len(self.products) // math.prod(self.phases)

    @property
    def in_shape(self) -> tuple[int, ...]:
        return (self.batch, self.groups * self.in_channels, *(each.extent for each in self.axes))

    @property
    def out_shape(self) -> tuple[int, ...]:
        return (self.batch, self.groups * self.out_channels, *(each.outputs for each in self.axes))

    @property
    def flops(self) -> int:
        """Of its products, those with zeros included."""
        q = math.prod(each.steps for each in self.axes)
        return 2 * self.batch * self.groups * self.in_channels * self.out_channels * q * len(self.products)


def convolution(
    in_shape: Sequence[int],
    weight_shape: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Correlation:
    """`in_shape` is [N, C, *spatial], `weight_shape` [C_out, C / groups, *kernel]."""
    kernel = weight_shape[2:]
    dims = zip(in_shape[2:], kernel, stride, padding, dilation, strict=True)
    axes = tuple(axis(n, (n + 2 * p - d * (k - 1) - 1) // s + 1, k, s, p, d) for n, k, s, p, d in dims)
    taps, in_channels = math.prod(kernel), weight_shape[1]
    made = weight_shape[0] // groups
    strides = (made * in_channels * taps, in_channels * taps, taps)
    return together(Correlation(in_shape[0], groups, in_channels, made, axes, strides))


def transposed_convolution(
    in_shape: Sequence[int],
    weight_shape: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Correlation:
    """`in_shape` is [N, C, *spatial], `weight_shape` [C, C_out / groups, *kernel]."""
    kernel = weight_shape[2:]
    dims = zip(in_shape[2:], kernel, stride, padding, output_padding, dilation, strict=True)
    axes = tuple(
        transposed_axis(n, (n - 1) * s - 2 * p + d * (k - 1) + 1 + more, k, s, p, d) for n, k, s, p, more, d in dims
    )
    taps, made = math.prod(kernel), weight_shape[1]
    in_channels = weight_shape[0] // groups
    strides = (in_channels * made * taps, taps, made * taps)
    return together(Correlation(in_shape[0], groups, in_channels, made, axes, strides))


def together(of: Correlation) -> Correlation:
    """The correlation with as many groups in one as have `MERGED` channels, where groups have few: tensor cores
    multiply by so many anyway, and inputs and outputs are staged and written for all of them at once. A value that is
    not finite makes NaN of the channels that are merged with its own, as the weights between them are zeros."""
    most = MERGED // max(of.in_channels, of.out_channels)
    count = max((n for n in range(1, most + 1) if of.groups % n == 0), default=1)
    return replace(
        of,
        groups=of.groups // count,
        in_channels=of.in_channels * count,
        out_channels=of.out_channels * count,
        merged=count,
    )


def input_gradient(of: Correlation) -> Correlation:
    """The correlation that takes the gradient of the output to that of the input."""
    group, made, read = of.weight_strides
    return replace(
        of,
        in_channels=of.out_channels,
        out_channels=of.in_channels,
        axes=tuple(map(_turned, of.axes)),
        weight_strides=(group, read, made),
    )


def folded(of: Correlation) -> Correlation | None:
    """The correlation with each tap of the last dim in the place of as many output channels: each input is multiplied
    once for all of them, and products of neighbouring positions are to be added up. Fewer channels than tensor cores
    multiply by (16) waste less. None where positions and outputs of that dim are not one for one, or where there are
    not several taps."""
    last = of.axes[-1]
    taps = last.phases[0]
    one_by_one = of.is_dense and math.prod(of.phases) == last.in_stride == 1
    if not one_by_one or len(taps) < 2 or [tap.number for tap in taps] != [*range(last.kernel)]:
        return None
    axis = replace(last, outputs=last.extent, phases=((Tap(0, 0),),))
    shifts = tuple(tap.shift for tap in taps)
    return replace(of, out_channels=of.out_channels * len(taps), axes=(*of.axes[:-1], axis), folds=shifts)


def _turned(one: Axis) -> Axis:
    """in[q * a + shift] goes to out[q * b + phase]; turned round, gradients go from there to here."""
    stride = one.in_stride
    phases: list[list[Tap]] = [[] for _ in range(stride)]
    for phase, taps in enumerate(one.phases):
        for tap in taps:
            step, at = divmod(tap.shift, stride)  # element (q + step) * stride + at takes from q
            phases[at].append(Tap(tap.number, phase - step * one.out_stride))
    return Axis(one.outputs, one.extent, one.out_stride, stride, tuple(map(tuple, phases)), one.kernel)
