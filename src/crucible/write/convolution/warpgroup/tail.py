"""What becomes of a warpgroup's products: each warp has 16 channels of a plane, and a tile for them.

Where a channel's outputs are one run of whole 16 bytes and its chain reads nothing but them, the chain runs in
registers, and the tile leaves in bulk copies, a run each. Otherwise products go to the tile and the chain runs over its
rows, as in the kernels for all GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from crucible.graph import ITEM_BYTES
from crucible.write.convolution.rows import Rows, plain
from crucible.write.convolution.tail import Tail
from crucible.write.convolution.warpgroup.pieces import COPY_OUT
from crucible.write.convolution.warpgroup.walks import ROWS, Walks
from crucible.write.families.source import CUDA_TYPES, PACK, block, converted, unrolled
from crucible.write.program import Operand, Result

BULK = 16
"""Bytes of which a bulk copy takes multiples."""


@dataclass
class WarpgroupTail(Tail):
    """Text behind the multiplication."""

    @property
    def _walks(self) -> Walks:
        assert isinstance(self.scene.tiling, Walks)
        return self.scene.tiling

    @cached_property
    def is_bulk(self) -> bool:
        """Whether each channel's outputs leave in one copy."""
        return self._runs is not None

    @cached_property
    def _runs(self) -> Rows | None:
        """The outputs as runs of whole 16 bytes."""
        scene = self.scene
        if scene.sums or len(scene.elementwise) != 1 or not all(map(_is_of_channel, scene.operands)):
            return None
        (result,) = scene.elementwise
        most = BULK // ITEM_BYTES[result.dtype]
        laid = Rows(scene.tiling, (self._strides(result),), scene.dims, most)
        return laid if laid.vector == most and laid.runs == 1 else None

    def _strides(self, result: Result) -> tuple[int, ...]:
        return plain(result.strides, self.scene.conv.correlation.out_shape)

    # before the first item

    def before(self) -> list[str]:
        """What a warp that multiplies knows of its channels."""
        if not self.is_bulk:
            return self.alignment()
        lines = []
        for operand in self.scene.operands:
            word, stride = self.scene.word[operand.name], operand.strides[1]
            lines.append(f"float {operand.name}_values[2];  // of the channels of this lane's products")
            at = f"min(channel + i * 8, {self.scene.conv.correlation.out_channels - 1}) * {stride}" if stride else "0"
            read = converted(f"{word}[{at}]", operand.dtype, "float32")
            lines += unrolled("i", "2", [f"{operand.name}_values[i] = {read};"])
        return ["const int channel = first_channel + warp % 4 * 16 + lane / 4;", *lines] if lines else []

    def after(self) -> list[str]:
        return ["wait_for_copies_out();"] if self.is_bulk else []

    # a plane

    def lines(self) -> list[str]:
        return self._in_bulk() if self.is_bulk else self._by_rows()

    def _stores(self, pack: str, type_: str) -> list[str]:
        """A pack of two positions to the tile; one by one where a row's end or an odd width parts them."""
        walks = self._walks
        width, outputs = walks.plane[1], walks.box[-1]
        rows = walks.outputs_a_plane // outputs
        tests = [f"w_in < {outputs}"] * (width > outputs)
        tests += [f"row_in < {rows}"] * (walks.columns_of_b > rows * width)
        guard = f"if ({' && '.join(tests)}) " if tests else ""
        lines = [f"const int column = j * 8 % {width} + lane % 4 * 2;"]
        place = f"into[row_in * {outputs} + w_in]"
        if width % 2 == outputs % 2 == 0:
            store = f"{guard}*reinterpret_cast<Pack<{type_}, 2>*>(&{place}) = {pack};"
            return [*lines, *self._position(""), store]
        return [*lines, *unrolled("k", "2", [*self._position(" + k"), f"{guard}{place} = {pack}.at[k];"])]

    def _position(self, more: str) -> list[str]:
        """The row of a position and its place in it; eight positions may begin in the row before. Divided so, both are
        constants but for the lane's part."""
        width = self._walks.row_pitch
        return [
            f"const bool beyond = column{more} >= {width};",
            f"const int row_in = j * 8 / {width} + beyond, w_in = column{more} - (beyond ? {width} : 0);",
        ]

    def _pair(self) -> str:
        return "{sums[j * 4 + i * 2], sums[j * 4 + i * 2 + 1]}"

    def _in_bulk(self) -> list[str]:
        (result,) = self.scene.elementwise
        walks, type_ = self._walks, CUDA_TYPES[result.dtype]
        self.preamble += [PACK, COPY_OUT]
        pitch = walks.pitch * 4 // ITEM_BYTES[result.dtype]
        each = [
            f"const Pack<float, 2> products = {self._pair()};",
            f"Pack<{type_}, 2> {result.name}_pack;",
            *unrolled("k", "2", self._chain()),
            *self._stores(f"{result.name}_pack", type_),
        ]
        of_channel = [f"const float {each.name}_value = {each.name}_values[i];" for each in self.scene.operands]
        each = [
            f"{type_}* into = reinterpret_cast<{type_}*>(tile) + (lane / 4 + i * 8) * {pitch};",
            *of_channel,
            *unrolled("j", str(walks.columns_of_b // 8), each),
        ]
        return [
            "wait_for_reads();  // of what was in the tile before",
            "__syncwarp();",
            *unrolled("i", "2", each),
            "publish();",
            "__syncwarp();",
            *self._copies(result, pitch),
        ]

    def _copies(self, result: Result, pitch: int) -> list[str]:
        """A lane a channel."""
        laid, type_ = self._runs, CUDA_TYPES[result.dtype]
        assert laid is not None
        left = laid.left()
        count = "left" if left else str(laid.run)
        channels = self.scene.conv.correlation.out_channels
        inside = "lane < 16" + (f" && first_channel + warp % 4 * 16 + lane < {channels}" if channels % 64 else "")
        lines = [
            "const int c = first_channel + warp % 4 * 16 + lane;",
            *laid.outer(),
            f"{type_}* to = {self.scene.word[result.name]} + {laid.begin(self._strides(result))};",
            f"copy_out(to, reinterpret_cast<{type_}*>(tile) + lane * {pitch}, {count} * {ITEM_BYTES[result.dtype]});",
        ]
        return [*left, *block(f"if ({inside})", lines)]

    def _by_rows(self) -> list[str]:
        each = [f"const Pack<float, 2> products = {self._pair()};", *self._stores("products", "float")]
        each = [
            f"float* into = tile + (lane / 4 + i * 8) * {self._walks.pitch};",
            *unrolled("j", str(self._walks.columns_of_b // 8), each),
        ]
        rows = self._rows()
        return [*unrolled("i", "2", each), "__syncwarp();", *self._laid.left(), *rows, "__syncwarp();"]

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
            f"float* all_totals = reinterpret_cast<float*>(turns + {walks.groups});  // of each warpgroup",
            f"for (int p = threadIdx.x; p < {words}; p += {walks.threads}) all_totals[p] = 0;",
        ]

    def own_totals(self) -> list[str]:
        words = self._walks.total_words
        return [f"float* totals = all_totals + team * {words};"] if words else []

    def store_totals(self) -> list[str]:
        walks, parts = self._walks, self.scene.parts
        lines = ["__syncthreads();"] if walks.sums else []
        for each, buffer in zip(self.scene.sums, self.scene.partials, strict=True):
            into = f"{self.scene.word[buffer.name]}[(blockIdx.x / {parts} * {parts} + part) * {ROWS} + p]"
            own = [f"all_totals[{g * walks.total_words + self._total_at(each)} + p]" for g in range(walks.groups)]
            lines.append(f"if (const int p = threadIdx.x; p < {ROWS}) {into} = {' + '.join(own)};")
        return lines


def _is_of_channel(operand: Operand) -> bool:
    """Whether a channel has one element of it, in all images."""
    return not any(stride for dim, stride in enumerate(operand.strides) if dim != 1)
