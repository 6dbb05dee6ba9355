"""Planes of input as they lie in memory, which a warp asks bulk copies for: a warp of its own, or the first of those
that stage, beside that."""

from __future__ import annotations

from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ZERO, Compare, Condition, Either, Index, Number, Smaller, Variable
from crucible.kernel.places import ITEM_BYTES
from crucible.kinds.convolution.walks.frame import UNIT
from crucible.kinds.convolution.weight_groups.frame import Frame, Item
from crucible.kinds.indices import total
from crucible.schedule.convolution.warpgroup.weight_shape import COLUMNS


def bring(frame: Frame, k: Builder, lane: Index, who: Condition = ()) -> ir.Steps:
    """Plane by plane, as somebody asks for them, or all where nobody says who brings them."""
    item, body = Variable("item", "int"), list[ir.Node]()
    if not who:
        frame.enter(k)
    placed = frame.item(item)
    steps = frame.steps(frame.read_planes(placed), item, placed)
    with k.apart(body):
        _plane(frame, k, placed, steps.window, lane)
    k.add(ir.Foresee(steps, tuple(body), who, is_all=not who))
    return steps


def _plane(frame: Frame, k: Builder, item: Item, plane: Index, lane: Index) -> None:
    """A lane a channel: those rows that there are."""
    walks, raw, (image, channel) = frame.walks, frame.ring.fed_by, frame.strides[0]
    assert raw
    planes, rows, width = walks.extents
    d = k.let("d", frame.reads(item.box[0], 0) + plane, "int")
    top = k.named("top", frame.reads(item.box[1], 1))
    # the larger of two: the verifier looks at either
    row = k.named("row", Either((Compare(">=", top, ZERO),), top, ZERO))
    count = k.named("rows", Smaller(top + walks.staged_rows, Number(rows)) - row)
    inside = k.test("inside", (Compare("in", d, Number(planes)), Compare(">=", count, Number(1))))
    number = Variable("c", "int")
    pitch = walks.raw_pitch * UNIT // ITEM_BYTES[frame.source.dtype]
    to = ir.InShared(frame.brought, (number * pitch + (row - top) * width,))
    inner = frame.operands[0].strides[2:]
    terms = [item.image * image, (frame.first_input + number) * channel]
    terms += [each * stride for each, stride in zip((d, row, ZERO)[-len(inner) :], inner, strict=True)]
    channels = walks.channel_tiles * COLUMNS
    copies: Index = Number(channels)
    if walks.of.in_channels % channels:
        copies = Smaller(copies, Number(walks.of.in_channels) - frame.first_input)
    source = ir.Global(frame.source, total(terms))
    k.add(ir.Fetch(raw, number, copies, to, source, count * width, inside, lane))
