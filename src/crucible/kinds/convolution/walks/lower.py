"""A convolution whose weights stay in shared memory, for warpgroups."""

from __future__ import annotations

import textwrap
from dataclasses import replace

from crucible.algebra.convolution.fused import Convolution
from crucible.errors import MisuseError
from crucible.gpus import Gpu
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import Number, Place
from crucible.kinds.built import Built
from crucible.kinds.convolution.scene import Scene
from crucible.kinds.convolution.walks.consume import Consuming
from crucible.kinds.convolution.walks.frame import WORDS, Frame
from crucible.kinds.convolution.walks.produce import Producing
from crucible.kinds.convolution.words import by_warpgroups
from crucible.schedule.convolution.row_parts import check_adds_up_beside
from crucible.schedule.convolution.warpgroup.walk_choice import chain_of
from crucible.schedule.convolution.warpgroup.walks import ROWS, STAGING_REGISTERS, THREADS, Walks


def build_walks(conv: Convolution, walks: Walks, gpu: Gpu) -> Built:
    """The kernel that multiplies, and the buffer of its weight in order. Raises MisuseError where what it reads does
    not fit in a block, and for reductions that are not added up beside a result."""
    frame = Frame(conv, _fitted(conv, walks, gpu), gpu)
    told = tuple(_about(frame.scene, frame.walks))
    return Built((_kernel(frame, told),), (frame.scene.packed, *frame.parts), told)


def _fitted(conv: Convolution, walks: Walks, gpu: Gpu) -> Walks:
    """With the chain as it is. Raises MisuseError where what it reads does not fit in a block, for reductions that
    are not added up beside a result, and for rows that are narrower than what lanes share."""
    check_adds_up_beside(conv)
    walks = replace(walks, chain=chain_of(conv), exact=conv.keeps_float32)
    if not walks.lies_in_two_rows:
        raise MisuseError(
            f"{conv.name}: {8 * walks.copies} positions of planes {walks.plane[1]} wide lie in more than two rows: give"
            " it boxes of one row, or tiles"
        )
    most = gpu.shared_memory_per_block_bytes
    if walks.shared_bytes > most:
        raise MisuseError(
            f"{conv.name}: its planes and {walks.tiles} tiles a warp take {walks.shared_bytes} bytes of shared memory,"
            f" and a block of {gpu.name} has {most}: give it smaller boxes"
        )
    return walks


def _about(scene: Scene, walks: Walks) -> list[str]:
    """How the work is laid out, in words."""
    of = walks.of
    box = "x".join(map(str, walks.box))
    walked = f", along {walks.walk} planes" if len(walks.box) == 3 else ""
    leaves = "run by run" if walks.in_bulk else "by the rows of its output"
    comes = " What else its chain reads comes in bulk copies, beside its products." if walks.loads else ""
    held = f", what rounding leaves of {walks.lower_held} taps in registers" if walks.lower_held else ""
    return [
        f"{list(of.in_shape)} to {list(of.out_shape)} by {len(of.products)} products of {of.in_channels} channels,"
        f" {by_warpgroups(scene.conv)}, sums in fp32; warpgroup instructions, on compute"
        " capability 9.0 alone.",
        f"A block makes {ROWS} channels at {box} positions at a time{walked}: {walks.groups} warpgroups in turn,"
        f" while {'two others in turn load' if walks.stagers > 1 else 'another one loads'} planes of input into"
        f" {walks.slots} slots; its weights stay in shared memory"
        f" ({walks.shared_bytes // 1024} KiB){held}. What a warpgroup makes leaves {leaves}.{comes}",
    ]


def _kernel(frame: Frame, told: tuple[str, ...]) -> ir.Kernel:
    k, roles, walks = Builder(), list[ir.Role](), frame.walks
    thread = Place("thread", walks.threads)
    lane, warp = k.let("lane", thread % 32, "int"), k.let("warp", thread // 32, "int")
    part = k.named("part", Place("block", frame.blocks) % frame.scene.parts)
    first_channel = k.named("first_channel", part * ROWS)
    k.add(ir.Declare(frame.weights))
    packed = ir.Pointer("own", frame.packed, part * (walks.packed_units * WORDS), is_of_units=True)
    k.add(ir.Declare(packed))
    with k.loop("p", thread, Number(walks.weight_units), Number(walks.threads), "int") as p:
        k.add(ir.Copy(ir.InShared(frame.weights, (p, Number(0))), ir.Global(packed, p * WORDS)))
    k.add(ir.Declare(frame.ring))
    consuming = Consuming(frame, k, lane, warp, part, first_channel)
    with k.role("consumers", walks.groups * THREADS, walks.registers, roles):
        consuming.consume()
    with k.role("producers", walks.stagers * THREADS, STAGING_REGISTERS, roles):
        Producing(frame, k).produce()
    k.add(ir.Roles(tuple(roles), warp, is_upwards=True))
    lines = tuple(line for sentence in told for line in textwrap.wrap(sentence, 104))
    return ir.Kernel(
        frame.conv.name, frame.tensors, (*frame.sizes, consuming.leaving.lanes), frame.blocks, walks.threads,
        "long long", k.body, lines,
    )  # fmt: skip
