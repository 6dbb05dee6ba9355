"""A convolution by warps that multiply each for itself, for any GPU from compute capability 8.0 on."""

from __future__ import annotations

import math
import textwrap

from crucible.algebra.convolution.fused import Convolution
from crucible.algebra.convolution.windows import SPREAD
from crucible.errors import MisuseError
from crucible.gpus import Gpu
from crucible.kernel import nodes as ir
from crucible.kernel.index import ZERO, Index, Number, Variable
from crucible.kinds.built import Built
from crucible.kinds.convolution.front import note
from crucible.kinds.convolution.scene import Scene
from crucible.kinds.convolution.warps.choose import Choose
from crucible.kinds.convolution.warps.frame import Frame
from crucible.kinds.convolution.warps.multiply import Multiplying, Staging
from crucible.kinds.convolution.warps.reduce import Reducing, in_registers
from crucible.kinds.convolution.warps.rows import Leaving
from crucible.kinds.convolution.warps.tile import Tile
from crucible.kinds.convolution.words import WORDS
from crucible.schedule.convolution.halo import THREADS
from crucible.schedule.convolution.tiling import Tiling


def build_warps(conv: Convolution, tiling: Tiling, gpu: Gpu) -> Built:
    """The kernel that multiplies, and its buffers: that of the weight in order, which it reads, is the first. Raises
    MisuseError where a block's sums do not fit beside its tiles."""
    frame = Frame(conv, tiling, gpu)
    _check_shared_memory(frame.scene)
    told, scene = tuple(_about(frame.scene)), frame.scene
    return Built((_Kernel(frame).made(told),), (scene.packed, *scene.partials, *scene.row_parts), told)


def _check_shared_memory(scene: Scene) -> None:
    """Raises MisuseError for a kernel that would not start."""
    tiling, sums = scene.tiling, 4 * len(scene.sums) * scene.tiling.channels
    most = scene.gpu.shared_memory_per_block_bytes
    if tiling.shared_bytes + sums > most:
        raise MisuseError(
            f"{scene.conv.name}: {len(scene.sums)} sums for each of {tiling.channels} channels take {sums} bytes of"
            f" shared memory beside {tiling.shared_bytes}, and a block of {scene.gpu.name} has {most}: give it a tiling"
            " of fewer positions, or add some of them up elsewhere"
        )


def _about(scene: Scene) -> list[str]:
    """How the work is laid out, in words."""
    conv, of, tiling = scene.conv, scene.conv.correlation, scene.tiling
    box = "x".join(map(str, tiling.box))
    phases = f" of {math.prod(of.phases)} phases" if math.prod(of.phases) > 1 else ""
    kept = "stay" if tiling.is_resident else f"come {tiling.staged} of {tiling.steps} steps at a time"
    folded = f" (of {len(tiling.of.folds)} taps at once, in the place of channels)" if tiling.of.folds else ""
    between = f" ({of.merged} groups at once, with zeros between)" if of.merged > 1 else ""
    ahead = " The next inputs are loaded beside the multiplication." if tiling.ahead else ""
    return [
        f"{list(of.in_shape)} to {list(of.out_shape)} by {len(tiling.of.products)} products{folded} of"
        f" {of.in_channels} channels{between}, {WORDS[conv.math].about}, sums in fp32.",
        f"A block makes {tiling.channels} channels{phases} at {box} positions; its inputs are in shared memory"
        f" with their halo, its weights {kept} there ({tiling.shared_bytes // 1024} KiB).{ahead}",
        *([] if conv.front is None else [note(conv.front)]),
        *([scene.choosing.note()] if scene.choosing else []),
        *([SPREAD] if conv.spread else []),
    ]


class _Kernel:
    """It while it is made."""

    def __init__(self, frame: Frame) -> None:
        self.frame, self.k, self.tiling = frame, frame.k, frame.tiling
        self.multiplying = Multiplying(frame)
        sums = self.multiplying.sums
        self.reducing = Reducing(frame, sums) if in_registers(frame) else None
        choose = Choose(frame, frame.scene.choosing) if frame.scene.choosing else None
        self.tile = None if self.reducing else Tile(frame, sums, choose)
        self.leaving = Leaving(frame, self.tile, choose) if self.tile else self.reducing

    def made(self, told: tuple[str, ...]) -> ir.Kernel:
        k, frame, tiling = self.k, self.frame, self.tiling
        stays = [ir.Declare(frame.weights)] if tiling.is_resident else []
        k.add(*stays, ir.Declare(frame.turns))
        frame.begin()
        self.multiplying.begin()
        if self.tile:
            self.tile.begin()
        frame.begin_channels()
        assert self.leaving is not None
        self.leaving.begin()
        self.staging = Staging(frame)
        self.staging.first()
        step = Number(frame.scene.blocks_a_part)
        with k.loop("item", frame.first_item, Number(tiling.items), step, "int") as item:
            self._item(item)
        self.leaving.end()
        lines = tuple(line for sentence in told for line in textwrap.wrap(sentence, 104))
        sizes = (*self.staging.sizes, *frame.sizes, *self.leaving.sizes)
        return ir.Kernel(
            frame.conv.name, frame.tensors, sizes, frame.blocks, THREADS, "long long", k.body, lines,
            together=tiling.blocks,
        )  # fmt: skip

    def _item(self, item: Index) -> None:
        k, tiling, sums = self.k, self.tiling, self.multiplying.sums
        here = self.frame.item(item)
        k.add(ir.Declare((sums,), "sum"))

        def some(step: Index) -> None:
            self.staging.ready(item, here, step)
            self.multiplying.multiply(step)

        if tiling.is_resident:
            some(ZERO)
        else:
            step, body = Variable("step", "int"), list[ir.Node]()
            with k.apart(body):
                some(step)
            ends = ZERO, Number(tiling.steps), Number(tiling.staged)
            k.add(ir.For(step, *ends, tuple(body), unrolled=False, is_hidden=self.staging.is_held))
        assert self.leaving is not None
        self.leaving.leave(item, here)
