"""What a convolution kernel is made of: its tensors, and how many blocks share the work."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from crucible.algebra.buffer import Buffer
from crucible.algebra.convolution.choosing import Choosing
from crucible.algebra.convolution.fused import Convolution
from crucible.algebra.program import Operand, Result, reads
from crucible.gpus import Gpu
from crucible.schedule.convolution.halo import DIMS
from crucible.schedule.convolution.tiling import Tiling


@dataclass(frozen=True)
class Scene:
    """A convolution, how it is divided, and the buffer of its packed weight."""

    conv: Convolution
    tiling: Tiling
    packed: Buffer
    gpu: Gpu

    @cached_property
    def rank(self) -> int:
        return len(self.conv.correlation.axes)

    @cached_property
    def dims(self) -> tuple[str, ...]:
        return DIMS[-self.rank :]

    @cached_property
    def choosing(self) -> Choosing | None:
        """How products are pooled, if they are."""
        return Choosing(self.conv, self.conv.pool) if self.conv.pool else None

    @cached_property
    def elementwise(self) -> list[Result]:
        return [each for each in self.conv.results if not each.sums]

    @cached_property
    def sums(self) -> list[Result]:
        return [each for each in self.conv.results if each.sums]

    @cached_property
    def operands(self) -> list[Operand]:
        read = frozenset[str]().union(*map(reads, self.conv.exprs))
        if self.choosing:
            read |= {each.name for each in self.choosing.operands}
        return [each for each in self.conv.operands if each.name in read]

    @property
    def choices(self) -> tuple[str, ...]:
        """The tensor that says where the source is not 0, if there is one."""
        spread = self.conv.spread
        return (spread.choices,) if spread and spread.choices else ()

    @cached_property
    def parts(self) -> int:
        """Blocks of one part have the same weights: a tile of output channels of a group."""
        return self.tiling.channel_tiles * self.conv.correlation.groups

    @cached_property
    def blocks_a_part(self) -> int:
        return max(1, min(self.tiling.items, self.gpu.sms * self.tiling.blocks // self.parts))

    @cached_property
    def partials(self) -> list[Buffer]:
        """A sum's parts: [blocks of a part][channels]."""
        channels = self.parts * self.tiling.channels
        return [Buffer(f"{each.name}_parts", "float32", self.blocks_a_part * channels) for each in self.sums]

    @cached_property
    def row_parts(self) -> list[Buffer]:
        """Of reductions over space: [image][its parts, an item each][channels]."""
        elements = self.tiling.of.batch * self.tiling.parts_of_image * self.parts * self.tiling.channels
        return [Buffer(f"{each.name}_parts", "float32", elements) for each in self.conv.reductions]

    @cached_property
    def crossings(self) -> list[Buffer]:
        """Of reductions over channels: [part][image][position]; of one part they are all that there is."""
        batch, _, *space = self.conv.made_shape
        word = "_parts" if self.parts > 1 else ""
        elements = self.parts * batch * math.prod(space)
        return [Buffer(f"{each.name}{word}", "float32", elements) for each in self.conv.crossings]
