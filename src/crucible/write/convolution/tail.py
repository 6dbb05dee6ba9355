"""What becomes of the products: through shared memory the chain runs over them in the order of the output's memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from crucible.target.cuda import (
    CUDA_TYPES,
    LOAD,
    PACK,
    STORE,
    block,
    combining,
    converted,
    unrolled,
)
from crucible.target.names import MARK
from crucible.write.convolution.fused import PRODUCT, is_of_row
from crucible.write.convolution.halo import THREADS
from crucible.write.convolution.placing import Placing
from crucible.write.convolution.row_parts import RowParts, chains, row_values
from crucible.write.convolution.rows import MOST, Rows, plain
from crucible.write.convolution.scene import Scene
from crucible.write.convolution.sharing import Sharing
from crucible.write.convolution.windows import CHOICE
from crucible.write.cuda import emit
from crucible.write.program import Operand, Result


@dataclass
class Tail:
    """Text behind the multiplication."""

    scene: Scene
    preamble: list[str] = field(default_factory=list)

    @cached_property
    def row_parts(self) -> RowParts:
        return RowParts(self.scene, self.preamble)

    @cached_property
    def in_registers(self) -> bool:
        """Whether products are reduced where they are, and do not go through shared memory."""
        return self.row_parts.fit_registers

    def lines(self) -> list[str]:
        """16 channels of each warp at a time go through shared memory, so that the chain runs in the order of the
        output's memory."""
        if self.in_registers:
            return self.row_parts.lines()
        tile = "float* tile = reinterpret_cast<float*>(halo);  // of products, when the halo is done with"
        return [tile, *self._through_tile()]

    def _through_tile(self) -> list[str]:
        tiling, placing = self.scene.tiling, Placing(self.scene)
        if tiling.of.folds:
            lines = ["__syncthreads();", *placing.all_slices(), "__syncthreads();", *self._rows()]
            return [*self._laid.left(), *lines]
        lines = ["__syncthreads();", *placing.slice(), "__syncthreads();", *self._rows()]
        if tiling.m_tiles == 1:
            return [*self._laid.left(), *(line.replace("[slice]", "[0]") for line in lines)]
        return [*self._laid.left(), *unrolled("slice", str(tiling.m_tiles), lines)]

    @cached_property
    def _laid(self) -> Rows:
        scene = self.scene
        shape = scene.conv.made_shape
        tensors = [each.strides for each in scene.elementwise]
        tensors += [each.strides for each in scene.operands if not is_of_row(each)]
        laid = tuple(dict.fromkeys(plain(each, shape) for each in tensors))
        most = 1 if scene.tiling.of.folds else MOST
        if self._pools_tile:  # as many windows as have four neighbours in a row of the tile
            most = math.gcd(max(1, MOST // scene.tiling.pool[-1]), scene.tiling.made_box[-1])
        return Rows(scene.tiling, laid, scene.dims, most)

    @cached_property
    def _sharing(self) -> Sharing:
        tiling, channels = self.scene.tiling, self.scene.conv.correlation.out_channels
        return Sharing(self.scene, self._laid, channels if tiling.of.folds else tiling.tile_rows, THREADS)

    @property
    def _pools_tile(self) -> bool:
        return bool(self.scene.tiling.pool) and not self.scene.tiling.pools_registers

    # rows of the tile to memory

    def _rows(self) -> list[str]:
        tiling, of, scene = self.scene.tiling, self.scene.conv.correlation, self.scene
        lanes = self._sharing.lanes
        self.preamble.append(PACK)
        lines = [f"const int channel = first_channel + {self._local_channel};"]
        if of.out_channels % tiling.channels and not tiling.of.folds:
            lines.append(f"if (channel >= {of.out_channels}) continue;")
        group = f"group * {of.out_channels} + " if of.groups > 1 else ""
        lines += [f"const int c = {group}channel;", *self._channel_values()]
        lines += [f"float {each.name}_total = 0;" for each in scene.sums]
        lines += self.row_parts.begun()
        own = "lane" if lanes == 32 else f"lane % {lanes}"
        lines += self._vectors(own)
        for each in scene.sums:
            lines.append(f"{each.name}_total = sum_over_team<{lanes}>({each.name}_total);")
            self.preamble.append(combining("sum")["sum_over_team"])
            lines.append(
                f"if ({own} == 0) totals[{self._total_at(each)} + channel - first_channel] += {each.name}_total;"
            )
        lines += self.row_parts.stored()
        return self._over_rows(lanes, lines)

    def _over_rows(self, lanes: int, lines: list[str]) -> list[str]:
        """So many lanes take a row."""
        start = "warp" if lanes == 32 else f"threadIdx.x / {lanes}"
        return block(f"for (int r = {start}; r < {self._sharing.rows}; r += {THREADS // lanes})", lines)

    @property
    def _local_channel(self) -> str:
        """Of row r of the tile."""
        tiling = self.scene.tiling
        slice_ = " + slice * 16" if tiling.m_tiles > 1 and not tiling.of.folds else ""
        if tiling.rows == 1 or tiling.of.folds:
            return f"r{slice_}"
        return f"r / 16 * {tiling.m_tiles * 16}{slice_} + r % 16"

    def _channel_values(self) -> list[str]:
        """Operands of which all outputs of an image's channel read one element."""
        return row_values(self.scene)

    def _vectors(self, own: str) -> list[str]:
        """A row's vectors, of lane `own` of those that share it: what several load, then what becomes of them."""
        sharing, vectors = self._sharing, self._laid.vectors
        if sharing.each:
            self.preamble.append(LOAD)
        step = sharing.together * sharing.lanes
        place = f"const int v = first + j * {sharing.lanes};"
        tests = [f"v < {vectors}"] if vectors % step else []
        lines = [f"{each.type_} {name}_each[{sharing.together}];" for name, each in sharing.each.items()]
        came = [f"{name}_each[j] = {each.text};" for name, each in sharing.each.items()]
        for body in filter(None, (came, self._made())):
            lines += unrolled("j", str(sharing.together), [place, *self._vector(body, tests)])
        if step >= vectors:
            return [f"const int first = {own};", *lines]
        return block(f"for (int first = {own}; first < {vectors}; first += {step})", lines)

    def _vector(self, body: list[str], tests: Sequence[str] = ()) -> list[str]:
        """What is done with vector `v`, where it is."""
        lines, inside = self._laid.place()
        guard = " && ".join((*tests, *inside))
        return [*lines, *(block(f"if ({guard})", body) if guard else body)]

    def _made(self) -> list[str]:
        """Of a vector: its products, their chain, and what leaves."""
        vector = self._laid.vector
        body = self._products(vector)
        for name, load in self._sharing.each.items():
            word = "value" if load.type_ == "float" else "pack"
            body.append(f"const {load.type_} {name}_{word} = {name}_each[j];")
        body += [f"Pack<{CUDA_TYPES[each.dtype]}, {vector}> {each.name}_pack;" for each in self.scene.elementwise]
        chain = [*self._chain(), *self._added()]
        body += [line.replace("[k]", "[0]") for line in chain] if vector == 1 else unrolled("k", str(vector), chain)
        for each in self.scene.elementwise:
            into = f"{each.name} + {self._offset(each)}"
            body += self._stored(each.name, into)
        return body

    def _products(self, vector: int) -> list[str]:
        """`products`, and which of their windows' they are where that is kept."""
        tiling, choosing = self.scene.tiling, self.scene.choosing
        if tiling.of.folds:
            return ["Pack<float, 1> products = {};", *self._unfolded()]
        if choosing and self._pools_tile:
            return choosing.of_tile(tiling, vector, {o.name: f"{o.name}_value" for o in choosing.operands})
        at = f"tile + r * {tiling.pitch} + v * {vector}"
        lines = [f"const auto products = *reinterpret_cast<const Pack<float, {vector}>*>({at});"]
        if choosing and choosing.keeps:
            at = f"{at} + {tiling.tile_rows * tiling.pitch}"
            lines.append(f"const auto choices = *reinterpret_cast<const Pack<int, {vector}>*>({at});")
        return lines

    def _unfolded(self) -> list[str]:
        """The sum over the taps that were multiplied as if they were channels, each of its own place in the row."""
        tiling = self.scene.tiling
        source, width = tiling.of.axes[-1].extent, tiling.output_box[-1]
        made = self.scene.conv.correlation.out_channels
        lines = [
            f"const int w_in = v % {width};",
            f"const float* folded = tile + r * {tiling.pitch} + v / {width} * {source};",
        ]
        for number, shift in enumerate(tiling.of.folds):
            at = f"w_in {'-' if shift < 0 else '+'} {abs(shift)}" if shift else "w_in"
            word = f"folded[{number * made * tiling.pitch} + {at}]"
            lines.append(f"if (static_cast<unsigned>({at}) < {source}) products.at[0] += {word};")
        return lines

    def _offset(self, tensor: Operand | Result) -> str:
        return self._laid.offset(plain(tensor.strides, self.scene.conv.made_shape))

    def _stored(self, name: str, into: str) -> list[str]:
        self.preamble.append(STORE)
        return [f"store({into}, {name}_pack);"]

    def _chain(self) -> list[str]:
        names = {each.name: f"{each.name}_value" for each in self.scene.operands} | {PRODUCT: "product"}
        found = emit(chains(self.scene.conv), names, mark=MARK)
        self.preamble += found.preamble
        lines = ["const float product = products.at[k];", *self._values_of_packs(), *found.statements]
        for each in self.scene.elementwise:
            chosen = each.expr is CHOICE
            word = "choices.at[k]" if chosen else converted(f"{each.name}_is", "float32", each.dtype)
            lines.append(f"{each.name}_pack.at[k] = {word};")
        return lines

    def _added(self) -> list[str]:
        """What the chain gives, to sums and reductions."""
        return [*(f"{each.name}_total += {each.name}_is;" for each in self.scene.sums), *self.row_parts.added()]

    def _values_of_packs(self) -> list[str]:
        lines = []
        for operand in self.scene.operands:
            strides = plain(operand.strides, self.scene.conv.made_shape)
            if not is_of_row(operand) and strides[-1] != 0:
                read = converted(f"{operand.name}_pack.at[k]", operand.dtype, "float32")
                lines.append(f"const float {operand.name}_value = {read};")
        return lines

    # sums over batch and space

    def _total_at(self, each: Result) -> int:
        return self.scene.sums.index(each) * self.scene.tiling.channels

    def totals(self) -> list[str]:
        size = len(self.scene.sums) * self.scene.tiling.channels
        return [
            f"__shared__ float totals[{size}];  // of this block, for each channel",
            f"for (int p = threadIdx.x; p < {size}; p += {THREADS}) totals[p] = 0;",
            "__syncthreads();",
        ]

    def store_totals(self) -> list[str]:
        channels, parts = self.scene.tiling.channels, self.scene.parts
        lines = ["__syncthreads();"]
        for each, buffer in zip(self.scene.sums, self.scene.partials, strict=True):
            place = f"blockIdx.x / {parts} * {parts * channels} + part * {channels} + p"
            into = f"{buffer.name}[{place}]"
            loop = f"for (int p = threadIdx.x; p < {channels}; p += {THREADS})"
            lines.append(f"{loop} {into} = totals[{self._total_at(each)} + p];")
        return lines
