"""What becomes of sums whose rows are positions, in the registers in which they came to be: a lane has, of each tile,
two positions of an eighth of the channels; eight lanes have eight neighbours of a row, 32 bytes of float32."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from crucible.target.cuda import CUDA_TYPES, PACK, block, converted, unrolled
from crucible.write.convolution.fused import is_of_row
from crucible.write.convolution.halo import times
from crucible.write.convolution.row_parts import row_values
from crucible.write.convolution.rows import plain
from crucible.write.convolution.tail import Tail
from crucible.write.convolution.warpgroup.streams import GROUPS, Streams
from crucible.write.convolution.warpgroup.walks import WARPS
from crucible.write.program import Operand, Result


@dataclass
class StreamTail(Tail):
    """Text behind the multiplication."""

    @property
    def _streams(self) -> Streams:
        assert isinstance(self.scene.tiling, Streams)
        return self.scene.tiling

    def lines(self) -> list[str]:
        """A plane of outputs: channel by channel, so that what belongs to a channel is read once."""
        streams, sums = self._streams, self.scene.sums
        positions = unrolled("i", str(streams.tiles), unrolled("r", "2", [*self._position(), *self._element()]))
        each = [
            *self._channel(),
            *row_values(self.scene),
            *(f"float {each.name}_total = 0;" for each in sums),
            *positions,
            *(line for each in sums for line in self._added_up(each)),
        ]
        return [*self._plane(), *unrolled("j", str(streams.channels // 8), unrolled("e", "2", each))]

    def _channel(self) -> list[str]:
        """Where there are sums all lanes go on: they add up together."""
        place, channels = "first_channel + j * 8 + lane % 4 * 2 + e", self.scene.conv.correlation.out_channels
        if channels % self._streams.channels == 0:
            return [f"const int c = {place};"]
        if self.scene.sums:
            return [f"const int channel = {place}, c = min(channel, {channels - 1});"]
        return [f"const int c = {place};", f"if (c >= {channels}) continue;"]

    # sums over batch and space: eight lanes have the same channel

    def _added_up(self, each: Result) -> list[str]:
        total = f"{each.name}_total"
        lines = [f"{total} += __shfl_xor_sync(0xffffffff, {total}, {lanes});" for lanes in (4, 8, 16)]
        return [*lines, f"if (lane < 4) totals[{self._total_at(each)} + j * 8 + lane * 2 + e] += {total};"]

    def totals(self) -> list[str]:
        streams = self._streams
        if not self.scene.sums:
            return []
        words = GROUPS * WARPS * streams.total_words
        return [
            f"float* all_totals = reinterpret_cast<float*>(done + {streams.slots});  // of each warp",
            f"for (int p = threadIdx.x; p < {words}; p += {streams.threads}) all_totals[p] = 0;",
        ]

    def own_totals(self) -> list[str]:
        return [f"float* totals = all_totals + warp * {self._streams.total_words};"] if self.scene.sums else []

    def store_totals(self) -> list[str]:
        """Added in one order on every run."""
        streams, parts = self._streams, self.scene.parts
        lines = []
        for each, buffer in zip(self.scene.sums, self.scene.partials, strict=True):
            into = f"{buffer.name}[(blockIdx.x / {parts} * {parts} + part) * {streams.channels} + p]"
            own = [f"all_totals[{w * streams.total_words + self._total_at(each)} + p]" for w in range(GROUPS * WARPS)]
            lines += textwrap.wrap(f"{into} = {' + '.join(own)};", 100)
        head = f"if (const int p = threadIdx.x; p < {streams.channels})"
        return ["__syncthreads();", *block(head, lines)] if lines else []

    # a plane

    def _plane(self) -> list[str]:
        """Of those that have sums, the oldest."""
        streams = self._streams
        if not streams.is_walked:
            return []
        before = f" - {streams.live - 1}" if streams.live > 1 else ""
        return [f"const int d = first_plane + t{before};"]

    def _position(self) -> list[str]:
        """Of row half r of tile i."""
        streams, dims = self._streams, self.scene.dims
        tile = f"(team * {streams.tiles} + i)"
        across = streams.tiles_in_row
        row = f"{tile} / {across}" if across > 1 else tile
        column = f"{tile} % {across} * {streams.tile_columns}" if across > 1 else "0"
        if streams.tile_rows > 1:
            row, column = f"{row} * 8 + warp % 4 * 2 + r", f"{column} + lane / 4"
        else:
            column = f"{column} + warp % 4 * 16 + r * 8 + lane / 4"
        lines = [f"const int {dims[-1]} = box_{dims[-1]} + {column};"]
        if len(dims) > 1:
            lines.append(f"const int {dims[-2]} = box_{dims[-2]} + {row};")
        tests = []
        for dim in range(int(streams.is_walked), len(dims)):
            outputs = streams.of.axes[dim].outputs
            if streams.boxes[dim] * streams.box[dim] > outputs:
                tests.append(f"{dims[dim]} < {outputs}")
        channels = self.scene.conv.correlation.out_channels
        if self.scene.sums and channels % streams.channels:
            tests.append(f"channel < {channels}")
        return [*lines, *([f"if (!({' && '.join(tests)})) continue;"] if tests else [])]

    def _element(self) -> list[str]:
        self.preamble.append(PACK)
        first = f"{(self._streams.live - 1) * self._streams.channels // 2} + " if self._streams.live > 1 else ""
        lines = [f"const Pack<float, 1> products = {{sums[i][{first}j * 4 + r * 2 + e]}};"]
        for operand in self.scene.operands:
            if not is_of_row(operand):
                pack = f"{operand.name}_pack"
                lines.append(f"const Pack<{CUDA_TYPES[operand.dtype]}, 1> {pack} = {{{self._at(operand)}}};")
        lines += [f"Pack<{CUDA_TYPES[each.dtype]}, 1> {each.name}_pack;" for each in self.scene.elementwise]
        lines += [line.replace("[k]", "[0]") for line in self._chain()]
        lines += [f"{each.name}_total += {each.name}_is;" for each in self.scene.sums]
        return lines + [f"{self._at(each)} = {each.name}_pack.at[0];" for each in self.scene.elementwise]

    def _values_of_packs(self) -> list[str]:
        return [
            f"const float {each.name}_value = {converted(f'{each.name}_pack.at[k]', each.dtype, 'float32')};"
            for each in self.scene.operands
            if not is_of_row(each)
        ]

    def _at(self, tensor: Operand | Result) -> str:
        image, channel, *space = plain(tensor.strides, self.scene.conv.made_shape)
        terms = [f"n * {image}LL" if image else "", times("c", channel)]
        terms += [times(name, stride) for name, stride in zip(self.scene.dims, space, strict=True)]
        return f"{tensor.name}[{' + '.join(filter(None, terms)) or '0'}]"
