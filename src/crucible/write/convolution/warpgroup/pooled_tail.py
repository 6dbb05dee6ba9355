"""What is left of windows of products in a warpgroup's registers, and what becomes of it.

A lane has two neighbouring windows of a channel in each tile of eight, which it stores itself, four lanes 32 bytes in a
row where they are float32. Choices are a byte each: four lanes exchange those of four tiles, and store 8 bytes each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from crucible.graph import ITEM_BYTES
from crucible.target.cuda import CUDA_TYPES, LOAD, PACK, STORE, block, converted, unrolled
from crucible.write.convolution.fused import is_of_row
from crucible.write.convolution.halo import times
from crucible.write.convolution.rows import plain
from crucible.write.convolution.running import Running
from crucible.write.convolution.tail import Tail
from crucible.write.convolution.warpgroup.pooled import PooledWalks
from crucible.write.program import Operand, Result

TILES = 4
"""Whose choices are stored at once."""
EXCHANGE = """\
// Of four lanes, each with two bytes of each of four neighbouring tiles, the bytes of the tile of its own number.
__device__ __forceinline__ uint2 exchanged(const unsigned (&pairs)[4]) {
    const int own = threadIdx.x % 4;
    const unsigned low = pairs[0] | pairs[1] << 16, high = pairs[2] | pairs[3] << 16;
    const unsigned far = __shfl_xor_sync(0xffffffffu, own & 2 ? low : high, 2), near = own & 2 ? high : low;
    const unsigned first = own & 2 ? far : near, second = own & 2 ? near : far;  // of lanes own % 2 and own % 2 + 2
    const unsigned evens = __byte_perm(first, second, 0x5410), odds = __byte_perm(first, second, 0x7632);
    const unsigned mine = own & 1 ? odds : evens, other = __shfl_xor_sync(0xffffffffu, own & 1 ? evens : odds, 1);
    const unsigned even = own & 1 ? other : mine, odd = own & 1 ? mine : other;
    return {__byte_perm(even, odd, 0x5410), __byte_perm(even, odd, 0x7632)};
}"""


@dataclass
class PooledTail(Tail):
    """Text behind the multiplication."""

    @property
    def _pooled(self) -> PooledWalks:
        assert isinstance(self.scene.tiling, PooledWalks)
        return self.scene.tiling

    @cached_property
    def running(self) -> Running:
        assert self.scene.conv.pool is not None
        return Running(self.scene.conv, self.scene.conv.pool, self.preamble)

    @property
    def _counts(self) -> tuple[int, int]:
        """Channels of a lane, its windows of one."""
        return self._pooled.channels_a_lane, self._pooled.columns_of_b // 4

    # around planes

    def asked(self) -> list[str]:
        """What a warp that multiplies knows of its channels, whatever the image."""
        lanes = 8 * self._pooled.channels_a_lane
        channel = f"first_channel + warp % 4 * {lanes} + lane / 4"
        lines = [f"const int channel = {channel};" + "  // and that 8 further" * (lanes > 8)]
        return lines + [line for each in self._of_rows if not each.strides[0] for line in self._values(each)]

    def before(self) -> list[str]:
        """Of each channel what its products come multiplied by; and whether all channels of the warp have a direction,
        so that lanes stay together."""
        way, count = self.running.direction, str(self._counts[0])
        if way is None or not (way.turns or way.of):
            return []
        values, names = self._values_of_channel()
        each = [*values, *way.lines(names), "turning[i] = falls ? -1.0f : 1.0f;"]
        each += [f"is_decided &= {way.decided(names)};"] if way.of else []
        lines = [f"float turning[{count}];", *(["bool is_decided = true;"] if way.of else [])]
        lines += unrolled("i", count, each)
        return [*lines, *(["const bool decided = __all_sync(0xffffffffu, is_decided);"] if way.of else [])]

    def before_item(self) -> list[str]:
        """And of an image."""
        return [line for each in self._of_rows if each.strides[0] for line in self._values(each)]

    @property
    def _of_rows(self) -> list[Operand]:
        return [each for each in self.scene.operands if is_of_row(each)]

    def _values(self, operand: Operand) -> list[str]:
        count = str(self._counts[0])
        return [
            f"float {operand.name}_values[{count}];",
            *unrolled("i", count, [f"{operand.name}_values[i] = {self.of_row(operand, 'channel + i * 8')};"]),
        ]

    def of_row(self, operand: Operand, channel: str) -> str:
        """What one of `_of_rows` holds for a channel, or for the last one where that is none."""
        at = [f"n * {operand.strides[0]}LL"] if operand.strides[0] else []
        if operand.strides[1]:
            last = self.scene.conv.correlation.out_channels - 1
            at.append(times(f"min({channel}, {last})", operand.strides[1]))
        return converted(f"{operand.name}[{' + '.join(at) or '0'}]", operand.dtype, "float32")

    # windows

    def begun(self) -> list[str]:
        """A plane's windows, none of whose elements have come."""
        channels, windows = self._counts
        lines = [f"{each.type} {each.word}_of[{channels}][{windows}];" for each in self.running.states]
        first = [f"{each.word}_of[i][v] = {each.first};" for each in self.running.states]
        return [*lines, *unrolled("i", str(channels), unrolled("v", str(windows), first))]

    def _window(self, number: str) -> list[str]:
        return [f"{each.type}& {each.word} = {each.word}_of[i][{number}];" for each in self.running.states]

    def _values_of_channel(self) -> tuple[list[str], dict[str, str]]:
        """Operands of channel `i`."""
        names = {each.name: f"{each.name}_value" for each in self._of_rows}
        return [f"const float {value} = {name}_values[i];" for name, value in names.items()], names

    def _names(self) -> tuple[list[str], dict[str, str]]:
        """And what its products come multiplied by."""
        values, names = self._values_of_channel()
        way = self.running.direction
        return [*values, *(["const float toward = turning[i];"] if way and (way.turns or way.of) else [])], names

    def elements(self) -> list[str]:
        """What the warpgroup's products of a pass `own` make of its windows."""
        running = self.running
        _, names = self._names()
        taken = self._taken(running.taken(names), numbered=running.is_numbered)
        if running.direction is None or not running.direction.of:
            return taken
        compared = self._taken(running.compared(names), numbered=True)
        return [*block("if (decided)", taken)[:-1], *block("} else", compared)]

    def _taken(self, taken: list[str], *, numbered: bool) -> list[str]:
        walks = self._pooled
        values, _ = self._names()
        at = "e * 2" if walks.pairs else "i * 2"
        element = [
            f"const float product = sums[v / 2 * 4 + {at} + v % 2];",
            *([f"const int number = own{' * 2 + e' if walks.pairs else ''};"] if numbered else []),
            *taken,
        ]
        if walks.pairs:
            element = unrolled("e", "2", element)
        channels, windows = self._counts
        inner = [*self._window("v"), *element]
        return unrolled("i", str(channels), [*values, *unrolled("v", str(windows), inner)])

    # to memory

    def lines(self) -> list[str]:
        """When all of a plane's windows are there: their chains."""
        walks, size = self._pooled, self._together
        self.preamble.append(PACK)
        values, _ = self._names()
        tiles = walks.row_pitch // 8
        starts = [line for each in self._tensors for line in self._row(each)]
        starts += [f"unsigned {each.name}_pairs[{TILES}];" for each in self._exchanged]
        rows = [f"const int row_in = j / {tiles}, w_in = j % {tiles} * 8 + lane % 4 * 2;"]
        rows += self._neighbours() if size == 2 else unrolled("g", "2", self._neighbours())
        if self._exchanged:
            rows += block(f"if (j % {TILES} == {TILES - 1})", self._exchange())
        rows = unrolled("j", str(walks.columns_of_b // 8), rows)
        return unrolled("i", str(self._counts[0]), [*values, *starts, *rows])

    def _neighbours(self) -> list[str]:
        """The windows of a lane in tile `j` that are loaded and stored at once."""
        size, scene = self._together, self.scene
        _, names = self._names()
        window = f"j * 2 + {'k' if size == 2 else 'g'}"
        left = [*self._window(window), *self.running.left("products.at[k]", "choices.at[k]", names)]
        lines = [f"Pack<float, {size}> products;", *([f"Pack<int, {size}> choices;"] * self.running.keeps)]
        lines += self._each(left)
        at = "w_in" if size == 2 else "(w_in + g)"
        test = self._tests(at)
        lines.append(f"const bool inside = {test or 'true'};")
        for operand in self._laid_out:
            self.preamble.append(LOAD)
            name, place = f"{operand.name}_pack", self._place_of(operand, at)
            lines += [f"Pack<{CUDA_TYPES[operand.dtype]}, {size}> {name}{{}};"]
            lines += [f"if (inside) {name} = load<{size}>({place});"]
        lines += [f"Pack<{CUDA_TYPES[each.dtype]}, {size}> {each.name}_pack;" for each in scene.elementwise]
        lines += self._each(self._chain())
        for each in scene.elementwise:
            self.preamble.append(STORE)
            if each in self._exchanged:
                lines.append(f"{each.name}_pairs[j % {TILES}] = {each.name}_pack.at[0] | {each.name}_pack.at[1] << 8;")
            else:
                lines.append(f"if (inside) store({self._place_of(each, at)}, {each.name}_pack);")
        return lines

    def _each(self, lines: list[str]) -> list[str]:
        """Of neighbours."""
        size = self._together
        return unrolled("k", str(size), lines)

    def _exchange(self) -> list[str]:
        """Each of four lanes stores eight neighbours of one of the last tiles."""
        self.preamble.append(EXCHANGE)
        tiles = self._pooled.row_pitch // 8
        lines = [f"const int first = (j % {tiles} - {TILES - 1} + lane % 4) * 8;"]
        for each in self._exchanged:
            lines.append(f"const uint2 {each.name}_bytes = exchanged({each.name}_pairs);")
            place = f"reinterpret_cast<unsigned*>({self._place_of(each, 'first')})"
            test = self._tests("first")
            guard = f"if ({test}) " if test else ""
            lines.append(f"{guard}store({place}, Pack<unsigned, 2>{{{each.name}_bytes.x, {each.name}_bytes.y}});")
        return lines

    # where windows are

    @property
    def _laid_out(self) -> list[Operand]:
        """Operands with an element for each window."""
        return [each for each in self.scene.operands if not is_of_row(each)]

    @property
    def _tensors(self) -> list[Operand | Result]:
        """All that are laid over windows."""
        return [*self.scene.elementwise, *self._laid_out]

    def _strides(self, tensor: Operand | Result) -> tuple[int, ...]:
        return plain(tensor.strides, self.scene.conv.made_shape)

    def _row(self, tensor: Operand | Result) -> list[str]:
        """Where the plane's windows of channel `i` begin."""
        strides, scene = self._strides(tensor), self.scene
        terms = [f"n * {strides[0]}LL" if strides[0] else "", times("(channel + i * 8)", strides[1])]
        terms += [times(f"box_{dim}", stride) for dim, stride in zip(scene.dims, strides[2:], strict=True)]
        return [f"auto* {tensor.name}_row = {tensor.name} + {' + '.join(filter(None, terms)) or '0'};"]

    def _place_of(self, tensor: Operand | Result, at: str) -> str:
        strides = self._strides(tensor)
        row = times("row_in", strides[-2]) if len(self._pooled.box) > 1 else ""
        return " + ".join(filter(None, (f"{tensor.name}_row", row, times(at, strides[-1]))))

    def _tests(self, at: str) -> str:
        """Tests that windows from `at` in the row on are there; empty where all are."""
        walks, of, tests = self._pooled, self.scene.conv.correlation, []
        *made, last = self.scene.conv.made_shape[2:]
        for dim, (name, size) in enumerate(zip(self.scene.dims, made, strict=False)):
            if walks.boxes[dim] * walks.box[dim] > size:
                row = " + row_in" if dim == len(walks.box) - 2 else ""
                tests.append(f"box_{name}{row} < {size}")
        if of.out_channels % walks.channels:
            tests.append(f"channel + i * 8 < {of.out_channels}")
        if walks.boxes[-1] > 1 and walks.boxes[-1] * walks.box[-1] > last:
            tests.append(f"{at} < min({walks.box[-1]}, {last} - box_w)")
        elif min(walks.box[-1], last) < walks.row_pitch:
            tests.append(f"{at} < {min(walks.box[-1], last)}")
        return " && ".join(tests)

    @cached_property
    def _together(self) -> int:
        """Neighbours that are all inside or none, and that begin at a multiple of their size in every tensor."""
        sizes = [2, self.scene.conv.made_shape[-1], self._pooled.box[-1]]
        for each in self._tensors:
            strides = self._strides(each)
            if strides[-1] != 1:
                return 1
            sizes += strides[:-1]
        return math.gcd(*sizes)

    @cached_property
    def _exchanged(self) -> list[Result]:
        """Results of a byte that leave by eights."""
        walks, found = self._pooled, []
        whole = math.gcd(self.scene.conv.made_shape[-1], walks.box[-1]) % 8 == 0 and walks.row_pitch % (8 * TILES) == 0
        for each in self.scene.elementwise:
            if whole and self._together == 2 and ITEM_BYTES[each.dtype] == 1:
                found += [each] * (math.gcd(*self._strides(each)[:-1]) % 8 == 0)
        return found
