"""The gradient of a convolution's weight, for warpgroups: the kernel that makes parts of it."""

from __future__ import annotations

import textwrap

from crucible.algebra.buffer import Buffer
from crucible.algebra.program import Operand
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import Place
from crucible.kinds.convolution.weight_groups.bring import bring
from crucible.kinds.convolution.weight_groups.consume import Consuming
from crucible.kinds.convolution.weight_groups.frame import CONSUMERS, Frame
from crucible.kinds.convolution.weight_groups.produce import Producing
from crucible.kinds.convolution.words import WORDS
from crucible.schedule.convolution.warpgroup.walks import ROWS
from crucible.schedule.convolution.warpgroup.weight_shape import COLUMNS
from crucible.schedule.convolution.warpgroup.weight_walks import WeightWalks


def partial_of_groups(walks: WeightWalks, result: str) -> Buffer:
    """[block of a part][part][eight input channels of a tap][channel][8]"""
    return Buffer(f"{result}_parts", "float32", walks.blocks_a_part * walks.parts * walks.part_words)


def weight_parts_of_groups(name: str, walks: WeightWalks, source: Operand, grad: Operand, partial: Buffer) -> ir.Kernel:
    """The kernel that writes what each block has of the gradient; source and `grad` are contiguous."""
    frame, k, roles = Frame(walks, source, grad, partial), Builder(keeps_loops=True), list[ir.Role]()
    thread = Place("thread", walks.threads)
    lane, warp = k.let("lane", thread % 32, "int"), k.let("warp", thread // 32, "int")
    frame.begin(k)
    with k.role("consumers", CONSUMERS, walks.registers, roles):
        Consuming(frame, k, lane, warp).consume()
    with k.role("producers", walks.staging_warps * 32, walks.staging_registers, roles):
        Producing(frame, k, lane).produce()
    if walks.has_bringer:
        with k.role("bringers", 32, walks.staging_registers, roles, is_beside=True):
            bring(frame, k, lane)
    k.add(ir.Roles(tuple(roles), warp, is_upwards=True))
    lines = tuple(textwrap.wrap(_about(frame), 104))
    return ir.Kernel(name, frame.tensors, frame.sizes, frame.blocks, walks.threads, "long long", k.body, lines)


def _about(frame: Frame) -> str:
    walks = frame.walks
    moves = f" The gradient's channels are rows {walks.moves.count} times, moved on." if walks.moves else ""
    moves += " The input is made of windows' gradients." if walks.windows else ""
    bulk = ", made of what bulk copies bring" if walks.raw else ""
    return (
        f"The gradient of a weight of {len(walks.whole.products)} taps, by warpgroup instructions, on compute"
        f" capability 9.0 alone: a block adds up {ROWS} x {walks.channel_tiles * COLUMNS} channels for"
        f" {walks.outer * walks.inner} taps over boxes of {walks.walk}x{walks.rows}x{walks.width} positions,"
        f" {WORDS[frame.math].about}. Two warpgroups hold the output's gradient in registers; the input is in shared"
        f" memory ({walks.shared_bytes // 1024} KiB), a copy for each tap of a row{bulk}.{moves}"
    )
