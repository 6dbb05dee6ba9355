"""A convolution whose weights stay in shared memory, for warpgroups: as a kernel of the IR where its results leave in
runs."""

from __future__ import annotations

import textwrap

from crucible.gpus import Gpu
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import Number, Place
from crucible.kinds.built import Built
from crucible.kinds.convolution.walks.consume import Consuming
from crucible.kinds.convolution.walks.frame import WORDS, Frame
from crucible.kinds.convolution.walks.produce import Producing
from crucible.write.convolution.fused import Convolution
from crucible.write.convolution.tiling import Tiling
from crucible.write.convolution.warpgroup.bulk import IN_RUNS
from crucible.write.convolution.warpgroup.lower import about, fitted
from crucible.write.convolution.warpgroup.walks import ROWS, STAGING_REGISTERS, THREADS, Walks


def is_walked(conv: Convolution, tiling: Tiling, gpu: Gpu) -> bool:
    """Whether a division is of this kind, and the chain one that it has: of the product and of what is one number a
    channel, to one tensor that leaves in runs."""
    if type(tiling) is not Walks or conv.front is not None:
        return False
    walks = fitted(conv, tiling, gpu)
    chain = walks.chain
    return walks.in_bulk and not (chain.sums or chain.loads or walks.lower_held)


def build_walks(conv: Convolution, walks: Walks, gpu: Gpu) -> Built:
    """The kernel that multiplies, and the buffer of its weight in order. Raises MisuseError where what it reads does
    not fit in a block."""
    frame = Frame(conv, fitted(conv, walks, gpu), gpu)
    told = tuple(about(frame.scene, frame.walks, IN_RUNS))
    return Built((_kernel(frame, told),), (frame.scene.packed,), told)


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
    with k.role("consumers", walks.groups * THREADS, walks.registers, roles):
        Consuming(frame, k, lane, warp, first_channel).consume()
    with k.role("producers", walks.stagers * THREADS, STAGING_REGISTERS, roles):
        Producing(frame, k).produce()
    k.add(ir.Roles(tuple(roles), warp, is_upwards=True))
    lines = tuple(line for sentence in told for line in textwrap.wrap(sentence, 104))
    return ir.Kernel(
        frame.conv.name, frame.tensors, frame.sizes, frame.blocks, walks.threads, "long long", k.body, lines,
    )  # fmt: skip
