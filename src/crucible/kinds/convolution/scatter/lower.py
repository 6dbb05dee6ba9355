"""A convolution of few output channels, for warpgroups."""

from __future__ import annotations

import textwrap
from dataclasses import replace

from crucible.algebra.convolution.fused import Convolution
from crucible.errors import MisuseError
from crucible.gpus import Gpu
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import Place
from crucible.kinds.built import Built
from crucible.kinds.convolution.scatter.consume import Consuming
from crucible.kinds.convolution.scatter.frame import Frame
from crucible.kinds.convolution.scatter.produce import Producing
from crucible.kinds.convolution.words import by_warpgroups
from crucible.schedule.convolution.warpgroup.scatter import (
    CHANNELS,
    COPYING,
    KEPT_REGISTERS,
    MULTIPLYING,
    POSITIONS,
    TEAMS,
    Scatter,
)
from crucible.schedule.convolution.warpgroup.walks import THREADS


def build_scatter(conv: Convolution, division: Scatter, gpu: Gpu) -> Built:
    """The kernel that multiplies, and the buffer of its weight in order; the chain is taken as it is. Raises
    MisuseError where what a block holds does not fit."""
    division = replace(division, exact=conv.keeps_float32)
    if division.shared_bytes > gpu.shared_memory_per_block_bytes:
        raise MisuseError(
            f"{conv.name}: its rows and inputs take {division.shared_bytes} bytes of shared memory, and a block of"
            f" {gpu.name} has {gpu.shared_memory_per_block_bytes}: give it smaller boxes"
        )
    frame = Frame(conv, division, gpu)
    told = tuple(_about(conv, division))
    return Built((_kernel(frame, told),), (frame.scene.packed,), told)


def _about(conv: Convolution, division: Scatter) -> list[str]:
    """How the work is laid out, in words."""
    of, box = division.of, "x".join(map(str, division.box))
    walked = f" Sums of {division.groups} taps of the inner dim meet in registers." if division.groups > 1 else ""
    return [
        f"{list(of.in_shape)} to {list(of.out_shape)}: every input by all {len(of.products)} taps at once,"
        f" {by_warpgroups(conv)}, sums in fp32, added up in shared memory; warpgroup"
        " instructions, on compute capability 9.0 alone.",
        f"A block makes {CHANNELS} channels of {box} outputs: two warpgroups take every other row of inputs,"
        f" {POSITIONS} positions at a time, while another one copies what comes next into {division.slots} slots;"
        f" its weights stay in shared memory ({division.shared_bytes // 1024} KiB).{walked}",
    ]


def _kernel(frame: Frame, told: tuple[str, ...]) -> ir.Kernel:
    k, roles, division = Builder(keeps_loops=True), list[ir.Role](), frame.division
    thread = Place("thread", division.threads)
    lane, warp = k.let("lane", thread % 32, "int"), k.let("warp", thread // 32, "int")
    team = k.let("team", thread // THREADS, "int")
    frame.begin(k)
    multiplying, copying = KEPT_REGISTERS if division.exact else (MULTIPLYING, COPYING)
    with k.role("consumers", TEAMS * THREADS, multiplying, roles):
        Consuming(frame, k, lane, warp, team).consume()
    with k.role("producers", THREADS, copying, roles):
        Producing(frame, k, lane, warp).produce()
    k.add(ir.Roles(tuple(roles), warp, is_upwards=True))
    lines = tuple(line for sentence in told for line in textwrap.wrap(sentence, 104))
    return ir.Kernel(
        frame.conv.name, frame.tensors, frame.sizes, frame.blocks, division.threads, "long long", k.body, lines
    )
