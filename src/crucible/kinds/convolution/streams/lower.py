"""A convolution whose weights are streamed, for warpgroups."""

from __future__ import annotations

import textwrap
from dataclasses import replace

from crucible.algebra.convolution.fused import Convolution
from crucible.algebra.convolution.windows import SPREAD
from crucible.errors import MisuseError
from crucible.gpus import Gpu
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import Place, Variable
from crucible.kinds.built import Built
from crucible.kinds.convolution.streams.ahead import fetches
from crucible.kinds.convolution.streams.consume import Consuming
from crucible.kinds.convolution.streams.frame import Frame
from crucible.kinds.convolution.streams.leave import LANES, add_up
from crucible.kinds.convolution.streams.produce import Producing
from crucible.kinds.convolution.words import SCALED, by_warpgroups
from crucible.schedule.convolution.halo import STEP_UNITS
from crucible.schedule.convolution.row_parts import check_adds_up_beside, check_crosses_alone
from crucible.schedule.convolution.warpgroup.stream_choice import moved_by
from crucible.schedule.convolution.warpgroup.streams import GROUPS, Streams
from crucible.schedule.convolution.warpgroup.walks import THREADS


def build_streams(conv: Convolution, streams: Streams, gpu: Gpu) -> Built:
    """The kernel; the chain is taken as it is. Raises MisuseError where its sums do not fit beside the slots,
    boxes begin inside of windows, or reductions are not added up beside a result."""
    frame = Frame(conv, _fitted(conv, streams, gpu), gpu)
    told = tuple(_about(frame))
    scene = frame.scene
    crossings = scene.crossings if scene.parts > 1 else ()
    return Built((_kernel(frame, told),), (scene.packed, *scene.partials, *scene.row_parts, *crossings), told)


def _fitted(conv: Convolution, streams: Streams, gpu: Gpu) -> Streams:
    """With the sums of its chain."""
    check_adds_up_beside(conv)
    check_crosses_alone(conv)
    if conv.spread and not (streams.spread == conv.spread.sizes and streams.begins_at_windows):
        raise MisuseError(
            f"{conv.name}: boxes {streams.box} begin inside of windows {conv.spread.sizes}, or are for others"
            f" ({streams.spread}): give it boxes of whole windows"
        )
    exact, most = conv.keeps_float32, gpu.shared_memory_per_block_bytes
    if exact and conv.spread:
        raise MisuseError(f"{conv.name}: streams that keep float32 exact read no gradients of windows")
    streams = replace(streams, sums=moved_by(conv).sums, exact=exact)
    if not streams.holds_stages:
        raise MisuseError(
            f"{conv.name}: a stage of {streams.dealt} positions is more than threads hold at once, which its scale asks"
            f" for: give it smaller boxes than {streams.box}"
        )
    if streams.shared_bytes > most:
        raise MisuseError(
            f"{conv.name}: {streams.slots} slots and {streams.sums} sums of each channel take {streams.shared_bytes}"
            f" bytes of shared memory, and a block of {gpu.name} has {most}: give it fewer slots"
        )
    return streams


def _about(frame: Frame) -> list[str]:
    """How the work is laid out, in words."""
    of, streams = frame.streams.of, frame.streams
    words = SCALED if streams.scaled else by_warpgroups(frame.conv)
    box = "x".join(map(str, streams.box))
    walked = f", along {streams.walk} planes" if streams.walk > 1 else ""
    planes = " Each plane of input is staged once for all planes of outputs that read it." if streams.once else ""
    planes += " The rows of the next stage are asked for ahead, to the L2 cache." if fetches(frame) else ""
    return [
        f"{list(of.in_shape)} to {list(of.out_shape)} by {len(of.products)} products of {of.in_channels} channels,"
        f" {words}, sums in fp32; warpgroup instructions, on compute capability 9.0 alone.",
        f"A block makes {streams.channels} channels at {box} positions at a time{walked}: {GROUPS} warpgroups"
        f" multiply {streams.tiles} tiles of 64 positions each, while {streams.staging} load"
        f" {streams.unit * STEP_UNITS} channels of a plane at a time into {streams.slots} slots, the weights beside"
        f" them in one copy ({streams.shared_bytes // 1024} KiB).{planes}",
        *([SPREAD] if frame.conv.spread else []),
    ]


def _kernel(frame: Frame, told: tuple[str, ...]) -> ir.Kernel:
    k, roles, streams = Builder(keeps_loops=True), list[ir.Role](), frame.streams
    thread, warp = Place("thread", streams.threads), Variable("warp", "int")
    lane = k.let("lane", thread % 32, "int")
    k.add(ir.Let(warp, thread // 32))
    frame.begin(k)
    with k.role("consumers", GROUPS * THREADS, streams.registers, roles):
        Consuming(frame, k, lane, warp).consume()
    with k.role("producers", streams.staging * THREADS, streams.staging_registers, roles):
        Producing(frame, k, lane).produce()
    k.add(ir.Roles(tuple(roles), warp, is_upwards=True))
    if frame.part_tensors:
        add_up(frame, k)
    lines = tuple(line for sentence in told for line in textwrap.wrap(sentence, 104))
    sizes = (*frame.sizes, LANES)
    return ir.Kernel(
        frame.conv.name, frame.tensors, sizes, frame.blocks, streams.threads, "long long", k.body, lines,
    )  # fmt: skip
