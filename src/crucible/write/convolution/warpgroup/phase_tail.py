"""What becomes of a warpgroup's products of several phases, in the registers in which they came to be.

A lane has two neighbouring positions of a channel with all their phases of the last dim: neighbouring outputs, which it
stores itself, four lanes 64 bytes in a row where outputs are float32 and the stride is 2. Reductions of a row are added
up over an item's planes, and then over the four lanes that have the same channel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from crucible.graph import ITEM_BYTES
from crucible.write.convolution.halo import decoded, times
from crucible.write.convolution.rows import plain
from crucible.write.convolution.warpgroup.phases import PhaseWalks
from crucible.write.convolution.warpgroup.tail import WarpgroupTail
from crucible.write.convolution.warpgroup.walks import ROWS
from crucible.write.families.source import CUDA_TYPES, PACK, START, STEPS, STORE, combining, converted, unrolled
from crucible.write.program import Operand, Result

WORD = 16
"""Bytes that a lane stores at once."""


@dataclass
class PhaseTail(WarpgroupTail):
    """Text behind the multiplication."""

    @property
    def _phased(self) -> PhaseWalks:
        assert isinstance(self.scene.tiling, PhaseWalks)
        return self.scene.tiling

    # around planes

    def before(self) -> list[str]:
        """What a warp that multiplies knows of its channels, whatever the image."""
        lines = ["const int channel = first_channel + warp % 4 * 16 + lane / 4;  // and that 8 further"]
        return lines + [line for each in self.scene.operands if not each.strides[0] for line in self._values(each)]

    def before_item(self) -> list[str]:
        """What it knows of them in an image; and where reductions begin."""
        lines = [line for each in self.scene.operands if each.strides[0] for line in self._values(each)]
        for each in self.scene.conv.reductions:
            start = START[each.kind]["float32"]
            lines.append(f"float {each.name}_sofar[2] = {{{start}, {start}}};  // of this warpgroup's planes")
        return lines

    def _values(self, operand: Operand) -> list[str]:
        at = [f"n * {operand.strides[0]}LL"] if operand.strides[0] else []
        if operand.strides[1]:
            last = self.scene.conv.correlation.out_channels - 1
            at.append(times(f"min(channel + i * 8, {last})", operand.strides[1]))
        read = converted(f"{self.scene.word[operand.name]}[{' + '.join(at) or '0'}]", operand.dtype, "float32")
        return [
            f"float {operand.name}_values[2];",
            *unrolled("i", "2", [f"{operand.name}_values[i] = {read};"]),
        ]

    def after_item(self) -> list[str]:
        """A lane of four writes what its warpgroup has of a channel."""
        walks, scene = self._phased, self.scene
        channels = walks.channel_tiles * ROWS
        item = f"item * {walks.shares} + share" if walks.shares > 1 else "item"
        place = f"(({item}) * {walks.groups} + team) * {channels} + channel + i * 8"
        lines = []
        for each, buffer in zip(scene.conv.reductions, scene.row_parts, strict=True):
            self.preamble.append(combining(each.kind)[f"{each.kind}_over_team"])
            lines += [
                f"const float {each.name}_part = {each.kind}_over_team<4>({each.name}_sofar[i]);",
                f"if (lane % 4 == 0) {scene.word[buffer.name]}[{place}] = {each.name}_part;",
            ]
        return unrolled("i", "2", lines) if lines else []

    # a plane

    def lines(self) -> list[str]:
        walks, scene = self._phased, self.scene
        rows = [
            *[f"const float {each.name}_value = {each.name}_values[i];" for each in scene.operands],
            *[f"float& {each.name}_part = {each.name}_sofar[i];" for each in scene.conv.reductions],
            *[line for each in scene.elementwise for line in self._row(each)],
        ]
        count = 2 * walks.last_phases // self._vector_size
        column = [*self._place(), *self._of_rows_inside()]
        column += unrolled("e", str(count), self._pack()) if count > 1 else self._pack()
        return [*self._begins(), *unrolled("i", "2", [*rows, *unrolled("j", str(walks.columns_of_b // 8), column)])]

    def _place(self) -> list[str]:
        """Of tile j's pair of positions: the row and the place in it."""
        pitch, width = self._phased.row_pitch, self._phased.box[-1]
        if pitch % 8:
            # Eight positions may begin in the row before. So divided, both are constants but for the lane's part.
            return [
                f"const int column = j * 8 % {pitch} + lane % 4 * 2;",
                f"const bool beyond = column >= {pitch};",
                f"const int row_in = j * 8 / {pitch} + beyond, w_in = column - (beyond ? {pitch} : 0);",
            ]
        tiles = pitch // 8
        between = [f"if (j % {tiles} * 8 >= {width}) continue;  // between rows"] * (width <= pitch - 8)
        return [*between, f"const int row_in = j / {tiles}, w_in = j % {tiles} * 8 + lane % 4 * 2;"]

    @cached_property
    def _vector_size(self) -> int:
        """Neighbouring outputs of a lane that are all inside or none, and stored at once: as many as divide every row,
        and every distance between rows in all that is written."""
        walks, of = self._phased, self.scene.conv.correlation
        cut = [walks.box[-1] * walks.last_phases] if walks.boxes[-1] > 1 else []
        sizes = [2 * walks.last_phases, of.axes[-1].outputs, *cut]
        for each in self.scene.elementwise:
            strides = self._strides(each)
            if strides[-1] != 1:
                return 1
            sizes += [WORD // ITEM_BYTES[each.dtype], *strides[:-1]]
        return math.gcd(*sizes)

    def _begins(self) -> list[str]:
        """Where the plane's outputs begin, of the phase in all dims but the last."""
        walks, dims = self._phased, self.scene.dims
        phases, lines = decoded("phase", walks.of.phases[:-1]), []
        for dim, (name, factor) in enumerate(zip(dims, walks.of.phases, strict=True)):
            start = f"box_{name}"
            word = times(start, factor)
            if dim + 1 < len(dims) and factor > 1:
                word += f" + {phases[dim]}"
            lines.append(f"const int {name} = {word};")
        return lines

    def _row(self, result: Result) -> list[str]:
        strides, type_ = self._strides(result), CUDA_TYPES[result.dtype]
        terms = [f"n * {strides[0]}LL", f"(channel + i * 8) * {strides[1]}LL"]
        terms += [times(name, stride) for name, stride in zip(self.scene.dims, strides[2:], strict=True)]
        return [f"{type_}* {result.name}_row = {self.scene.word[result.name]} + {' + '.join(filter(None, terms))};"]

    def _of_rows_inside(self) -> list[str]:
        """Of a pair of positions, but for where in the row: whether they are outputs."""
        walks, of, tests = self._phased, self.scene.conv.correlation, []
        rows = walks.box[-2] if len(walks.box) > 1 else 1
        if walks.columns_of_b > rows * walks.row_pitch:
            tests.append(f"row_in < {rows}")
        for dim, (name, axis) in enumerate(zip(self.scene.dims[:-1], of.axes, strict=False)):
            if walks.boxes[dim] * walks.box[dim] * axis.out_stride > axis.outputs:
                row = f" + row_in * {axis.out_stride}" if dim == len(walks.box) - 2 else ""
                tests.append(f"{name}{row} < {axis.outputs}")
        if of.out_channels % ROWS and self.scene.elementwise:
            tests.append(f"channel + i * 8 < {of.out_channels}")
        return [f"const bool of_row = {' && '.join(tests)};"] if tests else []

    def _pack(self) -> list[str]:
        """Neighbouring outputs: their chain, and what becomes of it where they are inside."""
        walks, of, size = self._phased, self.scene.conv.correlation, self._vector_size
        phases, last = walks.last_phases, of.axes[-1]
        first = f"e * {size}" if 2 * phases > size else "0"
        end, box = f"{last.outputs}", walks.box[-1] * phases
        if walks.boxes[-1] > 1:
            end = f"min({box}, {last.outputs} - w)"
        number = f"({first} + k)" if first != "0" else "k"
        of_row = "of_row && " if self._of_rows_inside() else ""
        at = times("w_in", phases) + (f" + {first}" if first != "0" else "")
        product = f"sums[{number} % {phases}][j * 4 + i * 2 + {number} / {phases}]"
        self.preamble.append(PACK)
        lines = [
            f"const int at = {at};  // in the row",
            f"const bool inside = {of_row}at < {end};",
            f"Pack<float, {size}> products;",
            *unrolled("k", str(size), [f"products.at[k] = {product};"]),
            *[f"Pack<{CUDA_TYPES[each.dtype]}, {size}> {each.name}_pack;" for each in self.scene.elementwise],
            *unrolled("k", str(size), [*self._chain(), *self._added()]),
        ]
        return lines + [line for each in self.scene.elementwise for line in self._stores_of(each)]

    def _strides(self, result: Result) -> tuple[int, ...]:
        return plain(result.strides, self.scene.conv.correlation.out_shape)

    def _stores_of(self, result: Result) -> list[str]:
        strides = self._strides(result)
        row = times("row_in", strides[-2] * self._phased.of.phases[-2]) if len(self._phased.box) > 1 else ""
        at = " + ".join(filter(None, (row, times("at", strides[-1])))) or "0"
        self.preamble.append(STORE)
        return [f"if (inside) store<true>({result.name}_row + {at}, {result.name}_pack);"]

    def _added(self) -> list[str]:
        """An element to its row's reductions, where it is one."""
        found = []
        for each in self.scene.conv.reductions:
            step = STEPS[each.kind].format(f"{each.name}_part", f"{each.name}_is")
            found.append(f"if (inside) {step}")
        return found
