"""Rows of the next stage, which those that stage ask for while they load this one: a lane a channel, whose rows are one
run where boxes are as wide as the input."""

from __future__ import annotations

from crucible.algebra.program import contiguous
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ONE, ZERO, Compare, Either, Index, Number, Smaller, Variable
from crucible.kinds.convolution.streams.frame import Frame, Item
from crucible.kinds.convolution.streams.parts import depth, is_over
from crucible.kinds.convolution.streams.positions import first_of
from crucible.kinds.indices import total
from crucible.schedule.convolution.halo import STEP_UNITS
from crucible.schedule.convolution.warpgroup.walks import WARPS


def fetches(frame: Frame) -> bool:
    """Whether boxes and tensors are as that needs."""
    conv, streams = frame.conv, frame.streams
    dense = conv.source.strides == contiguous(conv.correlation.in_shape)
    return streams.fetches and streams.is_run and dense and not conv.spread


def ahead(frame: Frame, k: Builder, thread: Index, lane: Index) -> ir.Walk:
    """Says what is asked for, stage by stage."""
    streams, number, body = frame.streams, Variable("item", "int"), list[ir.Node]()
    t, m, s = (Variable(name, "int") for name in "tms")
    item, parts = frame.item(number), len(streams.parts)
    of_step, of_part = ir.Level(s, Number(streams.steps)), ir.Level(m, Number(parts))
    if streams.once:
        of_part = ir.Level(m, Number(parts), is_over(streams, item, t, m))
    inner = (of_part, of_step) if streams.by_part else (of_step, of_part)
    planes = ir.Level(t, item.planes + (streams.live - 1))
    levels = (planes, *(each for each in inner if each.count != ONE))
    with k.apart(body):
        _rows(frame, k, item, (t, m if parts > 1 else ZERO, s if streams.steps > 1 else ZERO), thread, lane)
    items, by = Number(streams.items), Number(frame.scene.blocks_a_part)
    walk = ir.Walk("next", number, frame.first_item, items, by, item.lets, levels)
    k.add(ir.Ahead(walk, tuple(body)))
    return walk


def _rows(
    frame: Frame, k: Builder, item: Item, at: tuple[Index, Index, Index], thread: Index, lane: Index
) -> None:  # fmt: skip
    """Of a channel, those that there are."""
    streams, (t, m, s) = frame.streams, at
    axes, whole, channels = streams.of.axes, streams.of.axes[-1].extent, streams.unit * STEP_UNITS
    each = channels // (streams.staging * WARPS)
    channel = k.let("channel", s * channels + thread // 32 * each + lane, "int")
    tests, terms = [Compare("<", lane, Number(each))], [item.image * frame.source.strides[0]]
    terms.append(channel * frame.channel_stride)
    tests += [Compare("<", channel, Number(streams.of.in_channels))] if streams.of.in_channels % channels else []
    if streams.is_walked:
        d = k.let("d", depth(streams, item, t, m), "int")
        tests.append(Compare("in", d, Number(axes[0].extent)))
        terms.append(d * frame.source.strides[2])
    rows: Index = ONE
    if len(streams.box) > 1:
        first = first_of(streams, len(streams.box) - 2)
        begin = item.starts[-2] * axes[-2].in_stride
        top = k.let("top", begin - -first if first < 0 else begin + first, "int")
        # the larger of two: the verifier looks at either
        row = k.let("row", Either((Compare(">=", top, ZERO),), top, ZERO), "int")
        rows = k.let("rows", Smaller(top + streams.staged_plane[0], Number(axes[-2].extent)) - row, "int")
        tests.append(Compare(">=", rows, ONE))
        terms.append(row * whole)
    with k.when(tuple(tests)):
        k.add(ir.Prefetch(ir.Global(frame.source.tensor, total(terms)), rows * whole))
