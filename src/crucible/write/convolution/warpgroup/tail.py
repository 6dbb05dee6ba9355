"""What becomes of a warpgroup's products: each warp has 16 channels of a plane, and a tile for them. They go to the
tile, and the chain runs over its rows, as in the kernels for all GPUs; `bulk` has a faster way for most outputs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from crucible.target.cuda import block, unrolled
from crucible.write.convolution.sharing import Sharing
from crucible.write.convolution.tail import Tail
from crucible.write.convolution.warpgroup.walks import ROWS, Walks


@dataclass
class WarpgroupTail(Tail):
    """Text behind the multiplication."""

    @property
    def ways(self) -> str:
        """How outputs leave, in words."""
        return "What a warpgroup makes leaves by the rows of its output."

    @property
    def _walks(self) -> Walks:
        assert isinstance(self.scene.tiling, Walks)
        return self.scene.tiling

    def before(self) -> list[str]:
        """Before the first item: what a warp that multiplies knows."""
        return []

    def after(self) -> list[str]:
        """Behind the last item."""
        return []

    def ahead(self) -> list[str]:
        """Before a warpgroup's turn: what of a plane can begin beside its products."""
        return []

    def lines(self) -> list[str]:
        """A plane."""
        guard = f"if ({' && '.join(self._inside)}) " if self._inside else ""
        each = self._of_products([f"{guard}{self._in_tile('float', 'into')} = products;"])
        each = [f"float* into = tile + (lane / 4 + i * 8) * {self._walks.pitch};", *each]
        rows = self._rows()
        return [*unrolled("i", "2", each), "__syncwarp();", *self._laid.left(), *rows, "__syncwarp();"]

    # where products are

    @property
    def _together(self) -> int:
        """Neighbours of a lane that the chain takes at once: one, where a row's end or an odd width may part them."""
        return 2 if self._walks.plane[1] % 2 == self._walks.box[-1] % 2 == 0 else 1

    def _of_products(self, lines: list[str]) -> list[str]:
        """What is done with all of a lane's `products` of one channel, each at a `place` in the channel's outputs."""
        width, outputs, together = self._walks.plane[1], self._walks.box[-1], self._together
        pair = ["sums[j * 4 + i * 2]", "sums[j * 4 + i * 2 + 1]"] if together == 2 else ["sums[j * 4 + i * 2 + k]"]
        body = [
            f"const int column = j * 8 % {width} + lane % 4 * 2{'' if together == 2 else ' + k'};",
            # eight positions may begin in the row before: divided so, both are constants but for the lane's part
            f"const bool beyond = column >= {width};",
            f"const int row_in = j * 8 / {width} + beyond, w_in = column - (beyond ? {width} : 0);",
            f"const int place = row_in * {outputs} + w_in;",
            f"const Pack<float, {together}> products = {{{', '.join(pair)}}};",
            *lines,
        ]
        body = body if together == 2 else unrolled("k", "2", body)
        return unrolled("j", str(self._walks.columns_of_b // 8), body)

    def _in_tile(self, type_: str, row: str) -> str:
        """At `place`."""
        return f"*reinterpret_cast<Pack<{type_}, {self._together}>*>({row} + place)"

    @property
    def _inside(self) -> list[str]:
        """Tests that a position is one of the box: those between two rows of outputs are not."""
        walks = self._walks
        width, outputs = walks.plane[1], walks.box[-1]
        rows = walks.outputs_a_plane // outputs
        return [f"w_in < {outputs}"] * (width > outputs) + [f"row_in < {rows}"] * (walks.columns_of_b > rows * width)

    # rows of the tile

    @cached_property
    def _sharing(self) -> Sharing:
        return Sharing(self.scene, self._laid, self._walks.tile_rows, 32)

    def _over_rows(self, lanes: int, lines: list[str]) -> list[str]:
        """A warp takes its own."""
        start = "0" if lanes == 32 else f"lane / {lanes}"
        return block(f"for (int r = {start}; r < 16; r += {32 // lanes})", lines)

    @property
    def _local_channel(self) -> str:
        return "warp % 4 * 16 + r"

    # sums over batch and space: each warpgroup adds its own part up

    def totals(self) -> list[str]:
        walks = self._walks
        if not walks.sums:
            return []
        words = walks.groups * walks.total_words
        return [
            f"float* all_totals = reinterpret_cast<float*>(loaded + {walks.barriers});  // of each warpgroup",
            f"for (int p = threadIdx.x; p < {words}; p += {walks.threads}) all_totals[p] = 0;",
        ]

    def own_totals(self) -> list[str]:
        words = self._walks.total_words
        return [f"float* totals = all_totals + team * {words};"] if words else []

    def store_totals(self) -> list[str]:
        walks, parts = self._walks, self.scene.parts
        lines = ["__syncthreads();"] if walks.sums else []
        for each, buffer in zip(self.scene.sums, self.scene.partials, strict=True):
            into = f"{buffer.name}[(blockIdx.x / {parts} * {parts} + part) * {ROWS} + p]"
            own = [f"all_totals[{g * walks.total_words + self._total_at(each)} + p]" for g in range(walks.groups)]
            lines.append(f"if (const int p = threadIdx.x; p < {ROWS}) {into} = {' + '.join(own)};")
        return lines
