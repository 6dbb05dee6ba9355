"""How planes of the input come into their slots: one warpgroup loads the next while others multiply."""

from __future__ import annotations

from dataclasses import dataclass

from crucible.target.cuda import block
from crucible.write.convolution.halo import decoded, times
from crucible.write.convolution.scene import Scene
from crucible.write.convolution.warpgroup.walks import WARPS, Walks

LANES = WARPS * 32


@dataclass(frozen=True)
class Planes:
    """Text of the warpgroup that stages."""

    scene: Scene

    @property
    def _walks(self) -> Walks:
        assert isinstance(self.scene.tiling, Walks)
        return self.scene.tiling

    def item(self) -> list[str]:
        """Where an item is, and how many planes of outputs it has."""
        walks, dims = self._walks, self.scene.dims
        words = decoded("item", (walks.of.batch, *walks.places))
        lines = [f"const int n = {words[0]};"]
        sizes = [walks.walk, *walks.box[1:]] if len(walks.box) == 3 else walks.box
        for name, word, size in zip(dims, words[1:], sizes, strict=True):
            start = word if size == 1 or word == "0" else f"({word}) * {size}"
            first = name == dims[0] and len(dims) == 3
            lines.append(f"const int {'first_plane' if first else f'box_{name}'} = {start};")
        return lines

    @property
    def planes(self) -> str:
        """Of outputs, of an item."""
        walks = self._walks
        if len(walks.box) < 3:
            return "1"
        planes = walks.boxes[0]
        return str(walks.walk) if planes % walks.walk == 0 else f"min({walks.walk}, {planes} - first_plane)"

    def slack(self, threads: int) -> list[str]:
        """What is never loaded is 0 once and for all."""
        raise NotImplementedError

    def lines(self) -> list[str]:
        walks, scene = self._walks, self.scene
        planes = [
            *(["const int d = first_plane + t" + self._moved(0) + ";"] if len(walks.box) == 3 else []),
            f"const int slot = plane % {walks.slots};",
            *self._load(),
        ]
        count = f"{self.planes} + {walks.span - 1}" if walks.span > 1 else self.planes
        each = [
            *self.item(),
            f"const auto* origin = {scene.conv.source.name} + n * {scene.conv.source.strides[0]}LL;",
            *block(f"for (int t = 0; t < {count}; ++t, ++plane)", planes),
        ]
        return [f"const int thread = threadIdx.x - {walks.groups * LANES};", "int plane = 0;", *self.each_item(each)]

    def each_item(self, lines: list[str]) -> list[str]:
        """The loop over the block's items."""
        scene = self.scene
        first = f"static_cast<int>(blockIdx.x) / {scene.parts}"
        return block(f"for (int item = {first}; item < {self._walks.items}; item += {scene.blocks_a_part})", lines)

    def _moved(self, dim: int, more: int = 0) -> str:
        first = self._walks.of.axes[dim].shifts[0] + more
        return f" {'-' if first < 0 else '+'} {abs(first)}" if first else ""

    def _load(self) -> list[str]:
        """A thread's positions: loaded first, then the slot is waited for, then they are stored."""
        raise NotImplementedError

    @property
    def _there(self) -> str:
        """Whether a thread has a position; empty where each has."""
        raise NotImplementedError

    def _place(self) -> list[str]:
        """Where position p is in the tensor, and whether it is inside."""
        walks, source = self._walks, self.scene.conv.source
        rank, terms = len(walks.box), []
        tests = [self._there] if self._there else []
        words = decoded("p", walks.staged_plane) if rank > 1 else ["p"]
        lines = []
        for dim in range(rank):
            name = self.scene.dims[dim]
            walked = rank == 3 and dim == 0
            if not walked:
                word, more = words[dim - rank], walks.first_column if dim == rank - 1 else 0
                lines.append(f"const int {name} = box_{name} + {word}{self._moved(dim, more)};")
            axis, first = walks.of.axes[dim], walks.of.axes[dim].shifts[0]
            reached = walks.boxes[dim] * walks.box[dim] - 1 + axis.shifts[-1]
            if first < 0 or reached >= axis.extent:
                tests.append(f"static_cast<unsigned>({name}) < {axis.extent}")
            terms.append(times(name, source.strides[2 + dim]))
        lines.append(f"const bool inside = {' && '.join(tests) or 'true'};")
        return [*lines, f"const auto* from = origin + {' + '.join(filter(None, terms)) or '0'};"]
