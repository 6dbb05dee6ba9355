"""A convolution of several phases whose weights stay in shared memory, for warpgroups."""

from __future__ import annotations

import textwrap
from dataclasses import replace

from crucible.algebra.convolution.fused import Convolution
from crucible.gpus import Gpu
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import Place
from crucible.kinds.built import Built
from crucible.kinds.convolution.phases.consume import Consuming
from crucible.kinds.convolution.phases.frame import PhaseFrame
from crucible.kinds.convolution.phases.produce import AskingAhead, Staging
from crucible.kinds.convolution.walks.leave import LANES
from crucible.kinds.convolution.words import WORDS as WAYS
from crucible.schedule.convolution.warpgroup.phases import PhaseWalks, fetched_by, issued_by
from crucible.schedule.convolution.warpgroup.walks import ROWS, STAGING_REGISTERS, THREADS


def build_phases(conv: Convolution, walks: PhaseWalks, gpu: Gpu) -> Built:
    """The kernel that multiplies, and the buffer of its weight in order; chains are taken as they are."""
    walks = replace(walks, fetched=fetched_by(conv), issued=issued_by(conv, walks.machine))
    frame = PhaseFrame(conv, walks, gpu)
    told = tuple(_about(conv, walks))
    return Built((_kernel(frame, told),), (frame.scene.packed, *frame.parts), told)


def _about(conv: Convolution, walks: PhaseWalks) -> list[str]:
    """How the work is laid out, in words."""
    of, box = walks.of, "x".join(map(str, walks.box))
    walked = f", along {walks.walk} planes" if len(walks.box) == 3 else ""
    count = walks.together * walks.last_phases
    dealt = " and ".join(map(str, walks.dealt))
    comes = " What else they read is on its way beside the products." if walks.fetched else ""
    shares = f" ({dealt} blocks for each share of them)" if walks.shares > 1 else ""
    return [
        f"{list(of.in_shape)} to {list(of.out_shape)} by {len(of.products)} products of {of.in_channels} channels,"
        f" {WAYS[conv.math].about}, sums in fp32; warpgroup instructions, on compute capability 9.0"
        " alone.",
        f"A block makes {ROWS} channels of {count} phases{shares} at {box} positions at a time{walked}:"
        f" {walks.groups} warpgroups side by side, {walks.last_phases} phases each, while another one loads planes"
        f" of input into {walks.slots} slots; its weights stay in shared memory ({walks.shared_bytes // 1024} KiB)."
        f" Chains run where the products come to be.{comes}",
    ]


def _kernel(frame: PhaseFrame, told: tuple[str, ...]) -> ir.Kernel:
    k, roles, walks = Builder(), list[ir.Role](), frame.walks
    thread = Place("thread", walks.threads)
    lane, warp = k.let("lane", thread % 32, "int"), k.let("warp", thread // 32, "int")
    frame.begin(k)
    with k.role("consumers", walks.groups * THREADS, walks.registers, roles):
        Consuming(frame, k, lane, warp).consume()
    with k.role("producers", THREADS, STAGING_REGISTERS, roles):
        (AskingAhead if walks.asks_ahead else Staging)(frame, k).produce()
    k.add(ir.Roles(tuple(roles), warp, is_upwards=True))
    lines = tuple(line for sentence in told for line in textwrap.wrap(sentence, 104))
    return ir.Kernel(
        frame.conv.name, frame.tensors, (*frame.sizes, LANES), frame.blocks, walks.threads, "long long", k.body, lines,
    )  # fmt: skip
