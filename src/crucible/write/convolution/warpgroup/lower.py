"""The frame of a kernel for warpgroups whose products are of several phases, with a pool over them."""

from __future__ import annotations

from dataclasses import dataclass

from crucible.target.cuda import block
from crucible.target.sm90 import ARCHITECTURE, MAKE_SMEM_DESC
from crucible.write.convolution.scene import Scene
from crucible.write.convolution.tail import Tail
from crucible.write.convolution.warpgroup import packing, pieces
from crucible.write.convolution.warpgroup.staging import Planes
from crucible.write.convolution.warpgroup.walks import WARPS, Walks
from crucible.write.kernel import Kernel


@dataclass(frozen=True)
class Body:
    """The kernel that multiplies."""

    scene: Scene
    walks: Walks
    staging: Planes
    tail: Tail

    def kernel(self) -> Kernel:
        walks, scene, lines = self.walks, self.scene, self._lines()
        before = [
            *packing.conversions(scene.conv.math),
            *pieces.BARRIERS,
            MAKE_SMEM_DESC,
            *pieces.BEGIN,
            *pieces.REGISTERS,
            *pieces.products(scene.conv.math, walks.columns_of_b),
            *self.tail.preamble,
        ]
        return scene.kernel(self.notes(), lines, before, (1, walks.threads), walks.shared_bytes,
                            blocks=self._blocks, architecture=ARCHITECTURE)  # fmt: skip

    @property
    def _blocks(self) -> int:
        return self.scene.parts * self.scene.blocks_a_part

    def notes(self) -> list[str]:
        raise NotImplementedError

    def _lines(self) -> list[str]:
        raise NotImplementedError

    def _memory(self) -> list[str]:
        return [
            "extern __shared__ uint4 memory[];",
            "uint4* weights = memory;",
            f"uint4* ring = weights + {self.walks.weight_units};  // slots of planes",
        ]

    def _barriers(self) -> list[str]:
        """Behind `loaded`."""
        walks = self.walks
        turns = f"unsigned long long* turns = done + {walks.slots};  // of warpgroups to multiply"
        return [
            f"unsigned long long* done = loaded + {walks.slots};  // with each slot",
            *([turns] if walks.turns else []),
        ]

    def _divided(self, multiply: list[str], loads: list[str]) -> list[str]:
        """Among those that multiply and that which loads."""
        branch = f"if (warp < {self.walks.groups * WARPS})"
        return [*block(branch, multiply)[:-1], *block("} else", loads)]
