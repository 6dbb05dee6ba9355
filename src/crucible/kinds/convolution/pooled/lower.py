"""A transposed convolution with a pool over its phases, for warpgroups, which put the weight in order themselves."""

from __future__ import annotations

import textwrap

from crucible.algebra.convolution.fused import Convolution
from crucible.gpus import Gpu
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import Place, Variable
from crucible.kinds.built import Built
from crucible.kinds.convolution.pooled.consume import Consuming
from crucible.kinds.convolution.pooled.frame import PooledFrame
from crucible.kinds.convolution.pooled.leave import Leaving
from crucible.kinds.convolution.pooled.order import Ordering
from crucible.kinds.convolution.pooled.produce import Staging
from crucible.kinds.convolution.words import WORDS as WAYS
from crucible.schedule.convolution.warpgroup.pooled import PooledWalks
from crucible.schedule.convolution.warpgroup.walks import STAGING_REGISTERS, THREADS


def build_pooled(conv: Convolution, walks: PooledWalks, gpu: Gpu) -> Built:
    """The kernel; chains are taken as they are."""
    frame = PooledFrame(conv, walks, gpu)
    told = tuple(_about(frame))
    return Built((_kernel(frame, told),), (), told)


def _about(frame: PooledFrame) -> list[str]:
    """How the work is laid out, in words."""
    walks, of = frame.walks, frame.walks.of
    box = "x".join(map(str, walks.box))
    walked = f", along {walks.walk} planes" if len(walks.box) == 3 else ""
    pairs = " (a lane has two neighbours of a channel at once)" if walks.pairs else ""
    return [
        f"{list(of.in_shape)} to {list(of.out_shape)} by {len(of.products)} products of {of.in_channels} channels,"
        f" {WAYS[frame.conv.math].about}, sums in fp32; warpgroup instructions, on compute capability 9.0"
        " alone.",
        f"A block makes {walks.channels} channels of {box} windows at a time{walked}: {walks.groups} warpgroups in"
        f" turn, the elements of a window one after another{pairs}, while another one loads planes of input into"
        f" {walks.slots} slots; its weights stay in shared memory ({walks.shared_bytes // 1024} KiB).",
        frame.running.note(),
    ]


def _kernel(frame: PooledFrame, told: tuple[str, ...]) -> ir.Kernel:
    k, roles, walks = Builder(), list[ir.Role](), frame.walks
    thread, warp = Place("thread", walks.threads), Variable("warp", "int")
    lane = k.let("lane", thread % 32, "int")
    k.add(ir.Let(warp, thread // 32, of_warp=True))
    frame.begin(k)
    leaving = Leaving(frame, k, lane, warp)
    ordering = Ordering(frame, k, leaving.turning)
    ordering.ask()
    leaving.ask()
    ordering.clear()
    k.add(ir.Declare(frame.ring))
    with k.role("consumers", walks.groups * THREADS, walks.registers, roles):
        Consuming(frame, k, leaving, ordering).consume()
    with k.role("producers", THREADS, STAGING_REGISTERS, roles):
        Staging(frame, k, lane, warp).produce()
    k.add(ir.Roles(tuple(roles), warp, is_upwards=True))
    lines = tuple(line for sentence in told for line in textwrap.wrap(sentence, 104))
    return ir.Kernel(
        frame.conv.name, frame.tensors, frame.sizes, frame.blocks, walks.threads, "long long", k.body, lines,
    )  # fmt: skip
