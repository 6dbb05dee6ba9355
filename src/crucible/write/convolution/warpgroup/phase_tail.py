"""What becomes of a warpgroup's products of several phases, in the registers in which they came to be.

A lane has two neighbouring positions of a channel with all their phases of the last dim: neighbouring outputs, which it
stores itself, four lanes 64 bytes in a row where outputs are float32 and the stride is 2. What the chain reads of other
tensors for these it loads itself too, all of a turn before it waits for that turn: so it comes beside the products.
Reductions of a row are added up over an item's planes, and then over the four lanes that have the same channel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from crucible.graph import ITEM_BYTES
from crucible.target.cuda import CUDA_TYPES, LOAD, PACK, START, STEPS, STORE, combining, converted, unrolled
from crucible.write.convolution.fused import is_of_row
from crucible.write.convolution.halo import decoded, times
from crucible.write.convolution.rows import plain
from crucible.write.convolution.tail import Tail
from crucible.write.convolution.warpgroup.phases import PhaseWalks
from crucible.write.convolution.warpgroup.walks import ROWS
from crucible.write.program import Operand, Result

WORD = 16
"""Bytes that a lane stores at once."""


@dataclass
class PhaseTail(Tail):
    """Text behind the multiplication."""

    @property
    def _phased(self) -> PhaseWalks:
        assert isinstance(self.scene.tiling, PhaseWalks)
        return self.scene.tiling

    @cached_property
    def _of_rows(self) -> list[Operand]:
        """Operands that hold a number for a channel, or for that of an image."""
        return [each for each in self.scene.operands if is_of_row(each)]

    @cached_property
    def _loaded_ahead(self) -> list[Operand]:
        """The others: of the output's size, or laid over it."""
        return [each for each in self.scene.operands if not is_of_row(each)]

    # around planes

    def before(self) -> list[str]:
        """What a warp that multiplies knows of its channels, whatever the image."""
        lines = ["const int channel = first_channel + warp % 4 * 16 + lane / 4;  // and that 8 further"]
        return lines + [line for each in self._of_rows if not each.strides[0] for line in self._values(each)]

    def before_item(self) -> list[str]:
        """What it knows of them in an image; and where reductions begin."""
        lines = [line for each in self._of_rows if each.strides[0] for line in self._values(each)]
        for each in self.scene.conv.reductions:
            start = START[each.kind]["float32"]
            lines.append(f"float {each.name}_sofar[2] = {{{start}, {start}}};  // of this warpgroup's planes")
        return lines

    def _values(self, operand: Operand) -> list[str]:
        at = [f"n * {operand.strides[0]}LL"] if operand.strides[0] else []
        if operand.strides[1]:
            last = self.scene.conv.correlation.out_channels - 1
            at.append(times(f"min(channel + i * 8, {last})", operand.strides[1]))
        read = converted(f"{operand.name}[{' + '.join(at) or '0'}]", operand.dtype, "float32")
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
                f"if (lane % 4 == 0) {buffer.name}[{place}] = {each.name}_part;",
            ]
        return unrolled("i", "2", lines) if lines else []

    # a plane

    def ahead(self) -> list[str]:
        """What the chain reads of this turn's outputs, loaded before the turn comes."""
        if not self._loaded_ahead:
            return []
        self.preamble += [PACK, LOAD]
        kept, rows, packs = [], [], []
        for each in self._loaded_ahead:
            size = self._size_of(each)
            tiles, count = self._phased.columns_of_b // 8, self._packs
            kept.append(f"Pack<{CUDA_TYPES[each.dtype]}, {size}> {each.name}_ahead[2][{tiles}][{count}] = {{}};")
            rows.append(f"const {self._row(each)}")
            from_ = f"{each.name}_row + {self._offset(each)}"
            packs.append(f"if (inside) {self._kept(each)} = load<{size}>({from_});")
        return [*self._begins(), *kept, *self._over_packs(rows, [*self._at(), *packs])]

    def lines(self) -> list[str]:
        scene = self.scene
        rows = [
            *[f"const float {each.name}_value = {each.name}_values[i];" for each in self._of_rows],
            *[f"float& {each.name}_part = {each.name}_sofar[i];" for each in scene.conv.reductions],
            *[self._row(each) for each in scene.elementwise],
        ]
        begins = [] if self._loaded_ahead else self._begins()
        return [*begins, *self._over_packs(rows, self._pack())]

    def _over_packs(self, of_channel: list[str], of_pack: list[str]) -> list[str]:
        """For each of a lane's channels, and there for all its neighbouring outputs."""
        column = [*self._place(), *self._of_rows_inside()]
        column += unrolled("e", str(self._packs), of_pack) if self._packs > 1 else of_pack
        return unrolled("i", "2", [*of_channel, *unrolled("j", str(self._phased.columns_of_b // 8), column)])

    @property
    def _packs(self) -> int:
        """Of a pair of positions."""
        return 2 * self._phased.last_phases // self._vector_size

    def _kept(self, operand: Operand) -> str:
        """The pack that was loaded ahead."""
        return f"{operand.name}_ahead[i][j][{'e' if self._packs > 1 else 0}]"

    def _size_of(self, operand: Operand) -> int:
        """Elements of it for a pack: one where the last dim shares it."""
        return self._vector_size if self._strides(operand)[-1] else 1

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
        """Neighbouring outputs of a lane that are all inside or none, and loaded or stored at once: as many as divide
        every row, and every distance between rows in all that is read or written."""
        walks, of = self._phased, self.scene.conv.correlation
        cut = [walks.box[-1] * walks.last_phases] if walks.boxes[-1] > 1 else []
        sizes = [2 * walks.last_phases, of.axes[-1].outputs, *cut]
        tensors: list[Operand | Result] = [*self.scene.elementwise, *self._loaded_ahead]
        for each in tensors:
            strides = self._strides(each)
            if strides[-1] not in (0, 1):
                return 1
            if strides[-1]:
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

    def _row(self, tensor: Operand | Result) -> str:
        """Where it has the plane's first output of a channel."""
        strides, type_ = self._strides(tensor), CUDA_TYPES[tensor.dtype]
        terms = [f"{name} * {n}LL" for name, n in zip(("n", "(channel + i * 8)"), strides, strict=False) if n]
        terms += [times(name, stride) for name, stride in zip(self.scene.dims, strides[2:], strict=True)]
        place = " + ".join(filter(None, [tensor.name, *terms]))
        return f"{type_}* {tensor.name}_row = {place};"

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
        if of.out_channels % ROWS and (self.scene.elementwise or self._loaded_ahead):
            tests.append(f"channel + i * 8 < {of.out_channels}")
        return [f"const bool of_row = {' && '.join(tests)};"] if tests else []

    def _at(self) -> list[str]:
        """Of a pack of neighbouring outputs: the place in the row, and whether they are inside."""
        walks, of = self._phased, self.scene.conv.correlation
        phases, last = walks.last_phases, of.axes[-1]
        end, box = f"{last.outputs}", walks.box[-1] * phases
        if walks.boxes[-1] > 1:
            end = f"min({box}, {last.outputs} - w)"
        of_row = "of_row && " if self._of_rows_inside() else ""
        at = times("w_in", phases) + (f" + {self._first}" if self._packs > 1 else "")
        return [f"const int at = {at};  // in the row", f"const bool inside = {of_row}at < {end};"]

    @property
    def _first(self) -> str:
        """Of a pack, among the outputs of a pair of positions."""
        return f"e * {self._vector_size}"

    def _pack(self) -> list[str]:
        """Neighbouring outputs: their chain, and what becomes of it where they are inside."""
        phases, size = self._phased.last_phases, self._vector_size
        number = f"({self._first} + k)" if self._packs > 1 else "k"
        product = f"sums[{number} % {phases}][j * 4 + i * 2 + {number} / {phases}]"
        self.preamble.append(PACK)
        lines = [
            *self._at(),
            f"Pack<float, {size}> products;",
            *unrolled("k", str(size), [f"products.at[k] = {product};"]),
            *map(self._read, self._loaded_ahead),
            *[f"Pack<{CUDA_TYPES[each.dtype]}, {size}> {each.name}_pack;" for each in self.scene.elementwise],
            *unrolled("k", str(size), [*self._chain(), *self._added()]),
        ]
        return lines + [line for each in self.scene.elementwise for line in self._stores_of(each)]

    def _read(self, operand: Operand) -> str:
        """What the chain calls a loaded pack, or its only value."""
        if self._strides(operand)[-1]:
            return f"const auto& {operand.name}_pack = {self._kept(operand)};"
        value = converted(f"{self._kept(operand)}.at[0]", operand.dtype, "float32")
        return f"const float {operand.name}_value = {value};"

    def _strides(self, tensor: Operand | Result) -> tuple[int, ...]:
        return plain(tensor.strides, self.scene.conv.correlation.out_shape)

    def _offset(self, tensor: Operand | Result) -> str:
        """Of a pack, from the begin of its channel's plane."""
        strides = self._strides(tensor)
        row = times("row_in", strides[-2] * self._phased.of.phases[-2]) if len(self._phased.box) > 1 else ""
        return " + ".join(filter(None, (row, times("at", strides[-1])))) or "0"

    def _stores_of(self, result: Result) -> list[str]:
        self.preamble.append(STORE)
        return [f"if (inside) store({result.name}_row + {self._offset(result)}, {result.name}_pack);"]

    def _added(self) -> list[str]:
        """An element to its row's reductions, where it is one."""
        found = []
        for each in self.scene.conv.reductions:
            step = STEPS[each.kind].format(f"{each.name}_part", f"{each.name}_is")
            found.append(f"if (inside) {step}")
        return found
