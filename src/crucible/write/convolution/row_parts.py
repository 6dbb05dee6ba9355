"""Reductions over space: the part that each item has of the number that a channel of an image shares.

    <name>_parts[item][channel]

An item is of one image, and one warp or one thread writes each part, so sums are added in the same order on every run
and on every GPU. Where nothing else is made of the products they are reduced in the registers in which they came to be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from crucible.target.cuda import START, STEPS, block, combining, converted, unrolled
from crucible.target.names import MARK
from crucible.write.convolution.fused import PRODUCT, Convolution, is_of_row
from crucible.write.convolution.halo import THREADS, decoded, times
from crucible.write.convolution.pairs import LOWEST
from crucible.write.convolution.scene import Scene
from crucible.write.convolution.tiling import WARPS
from crucible.write.convolution.windows import CHOICE
from crucible.write.cuda import emit, literal
from crucible.write.expression import Expr, tensor
from crucible.write.program import Reduction, Result, reads


def row_values(scene: Scene) -> list[str]:
    """Those operands, read for channel `c` of image `n`."""
    lines = []
    for operand in filter(is_of_row, scene.operands):
        image = f"n * {operand.strides[0]}LL" if operand.strides[0] else ""
        at = " + ".join(filter(None, (image, times("c", operand.strides[1])))) or "0"
        read = converted(f"{operand.name}[{at}]", operand.dtype, "float32")
        lines.append(f"const float {operand.name}_value = {read};")
    return lines


def chains(conv: Convolution) -> dict[str, Expr]:
    """What is computed of each product, by the variable."""
    named: list[Result | Reduction] = [*conv.results, *conv.reductions]
    return {f"{each.name}_is": each.expr for each in named if each.expr is not CHOICE}


@dataclass
class RowParts:
    """Text for the reductions of a convolution."""

    scene: Scene
    preamble: list[str]

    # where products go through shared memory, a warp a channel

    def begun(self) -> list[str]:
        return [f"float {each.name}_part = {START[each.kind]['float32']};" for each in self.scene.conv.reductions]

    def added(self, reductions: Sequence[Reduction] | None = None) -> list[str]:
        """One more element."""
        found = []
        for each in reductions or self.scene.conv.reductions:
            found.append(STEPS[each.kind].format(f"{each.name}_part", f"{each.name}_is"))
            self._calls(each.kind)
        return found

    def stored(self) -> list[str]:
        lines = self._over_lanes(32, self.scene.conv.reductions)
        place = f"item * {self._channels}LL + part * {self.scene.tiling.channels} + channel - first_channel"
        for each, buffer in zip(self.scene.conv.reductions, self.scene.row_parts, strict=True):
            lines.append(f"if (lane == 0) {buffer.name}[{place}] = {each.name}_part;")
        return lines

    @property
    def _channels(self) -> int:
        return self.scene.parts * self.scene.tiling.channels

    def _over_lanes(self, count: int, reductions: Sequence[Reduction]) -> list[str]:
        found = []
        for each in reductions:
            self._calls(each.kind)
            found.append(f"{each.name}_part = {each.kind}_over_team<{count}>({each.name}_part);")
        return found

    def _calls(self, kind: str) -> None:
        if kind == "max":
            self.preamble += emit({"larger": tensor("a").maximum(tensor("b"))}).preamble
        self.preamble.append(combining(kind)[f"{kind}_over_team"])

    # where they stay in registers

    @cached_property
    def fit_registers(self) -> bool:
        """Whether reductions are all that is made of the products, each of its own and of what a row shares."""
        conv = self.scene.conv
        alone = bool(conv.reductions) and not conv.results and all(map(is_of_row, self.scene.operands))
        return alone and self.scene.tiling.reduces_in_registers(len(conv.reductions))

    @property
    def _warps(self) -> int:
        """That have products of the same channels."""
        return WARPS // self.scene.tiling.rows

    def shared(self) -> list[str]:
        sizes = f"[{len(self.scene.conv.reductions)}][{self._warps}][{self.scene.tiling.channels}]"
        return [f"__shared__ float own_parts{sizes};  // of an item, what each warp has"]

    def lines(self) -> list[str]:
        """A lane has two products of eight positions, of two channels: those of its slots and tiles, then those of the
        four lanes of a channel, then those of the warps are put together."""
        tiling, reductions = self.scene.tiling, self.scene.conv.reductions
        upper = [f"const int of_channel = (row * {tiling.m_tiles} + i) * 16 + upper * 8 + lane / 4;", *self._channel()]
        first = [each for each in reductions if each.name not in self._maxima]
        upper += [*self.begun(), *self._products(first), *self._over_lanes(4, first)]
        if self._maxima:
            relative = [each for each in reductions if each.name in self._maxima]
            upper += [*self._own_maxima(), *self._products(relative), *self._over_lanes(4, relative)]
        warp = "column" if len(tiling.teams) == 1 else f"team * {tiling.columns} + column"
        stores = [f"own_parts[{k}][{warp}][of_channel] = {each.name}_part;" for k, each in enumerate(reductions)]
        upper += block("if (lane % 4 == 0)", stores)
        lines = unrolled("i", str(tiling.m_tiles), unrolled("upper", "2", upper))
        return [*lines, "__syncthreads();", *self._together()]

    def _channel(self) -> list[str]:
        of, tiling = self.scene.conv.correlation, self.scene.tiling
        channel = "first_channel + of_channel"
        if of.out_channels % tiling.channels:
            channel = f"min({channel}, {of.out_channels - 1})"
        group = f"group * {of.out_channels} + " if of.groups > 1 else ""
        values = row_values(self.scene)
        return [f"const int c = {group}{channel};", *values] if values else []

    @cached_property
    def _maxima(self) -> dict[str, str]:
        """For each sum of what is relative to a maximum, that one."""
        names = [each.name for each in self.scene.conv.reductions]
        read = {each.name: reads(each.expr).intersection(names) for each in self.scene.conv.reductions}
        return {name: largest for name, found in read.items() for largest in found}

    def _own_maxima(self) -> list[str]:
        """What these lanes take out; a finite number also where all are minus infinity."""
        names = dict.fromkeys(self._maxima.values())
        return [f"const float {name}_own = max_nan({name}_part, {literal(LOWEST)});" for name in names]

    def _products(self, reductions: Sequence[Reduction]) -> list[str]:
        """They are gone over for reductions that do not read one another."""
        tiling, names = self.scene.tiling, {PRODUCT: "product"}
        names |= {largest: f"{largest}_own" for largest in self._maxima.values()}
        names |= {each.name: f"{each.name}_value" for each in self.scene.operands}
        found = emit({f"{each.name}_is": each.expr for each in reductions}, names, mark=MARK)
        self.preamble += found.preamble
        chain = ["const float product = sums[slot][i][j][upper * 2 + k];", *found.statements, *self.added(reductions)]
        lines, tests = self._inside()
        chain = [*lines, *(block(f"if ({' && '.join(tests)})", chain) if tests else chain)]
        return unrolled("slot", str(tiling.slots), unrolled("j", str(tiling.n_tiles), unrolled("k", "2", chain)))

    def _inside(self) -> tuple[list[str], list[str]]:
        """Where product k of tile j of a slot is, and the tests that it is an output; both empty where all are."""
        tiling, of = self.scene.tiling, self.scene.conv.correlation
        lines, tests = [], []
        cut = [d for d, axis in enumerate(of.axes) if tiling.boxes[d] * tiling.output_box[d] > axis.outputs]
        if len(set(map(len, tiling.teams))) > 1:
            tests.append("phase >= 0")
        beyond = tiling.columns * tiling.n_tiles * 8 > math.prod(tiling.box)
        if beyond or cut:
            lines.append(f"const int position = (column * {tiling.n_tiles} + j) * 8 + lane % 4 * 2 + k;")
        if beyond:
            tests.append(f"position < {math.prod(tiling.box)}")
        at, phases = decoded("position", tiling.box), decoded("phase", of.phases)
        for d in cut:
            place = f"box_{self.scene.dims[d]}" + (f" + {at[d]}" if at[d] != "0" else "")
            if of.phases[d] > 1:
                place = f"({place}) * {of.phases[d]} + {phases[d]}"
            tests.append(f"{place} < {of.axes[d].outputs}")
        if any("phase" in test for test in tests):
            lines.insert(0, f"const int phase = {self._phase()};")
        return lines, tests

    def _phase(self) -> str:
        """Of a slot, -1 where the team has none for it."""
        slots = range(self.scene.tiling.slots)
        text = ""
        for number, team in enumerate(self.scene.tiling.teams):
            of_team = [team[slot] if slot < len(team) else -1 for slot in slots]
            word = str(of_team[-1])
            for slot in reversed(slots[:-1]):
                word = f"slot == {slot} ? {of_team[slot]} : {word}"
            text = f"team == {number} ? ({word}) : {text}" if number + 1 < len(self.scene.tiling.teams) else text + word
        return text

    def _together(self) -> list[str]:
        """A thread a channel, the warps in order. What is relative to a maximum gets the factor to the common one."""
        tiling, lines = self.scene.tiling, []
        for k, (each, buffer) in enumerate(zip(self.scene.conv.reductions, self.scene.row_parts, strict=True)):
            lines.append(f"float {each.name}_part = {self._of_warp(k, '0')};")
            step = STEPS[each.kind].format(f"{each.name}_part", self._of_warp(k, "w"))
            lines += ["#pragma unroll", f"for (int w = 1; w < {self._warps}; ++w) {step}"]
            place = f"item * {self._channels}LL + part * {tiling.channels} + p"
            lines.append(f"{buffer.name}[{place}] = {each.name}_part;")
        return block(f"for (int p = threadIdx.x; p < {tiling.channels}; p += {THREADS})", lines)

    def _of_warp(self, k: int, warp: str) -> str:
        reductions = self.scene.conv.reductions
        largest = self._maxima.get(reductions[k].name)
        if largest is None:
            return f"own_parts[{k}][{warp}][p]"
        own = f"own_parts[{[each.name for each in reductions].index(largest)}][{warp}][p]"
        low = literal(LOWEST)
        return f"own_parts[{k}][{warp}][p] * expf(max_nan({own}, {low}) - max_nan({largest}_part, {low}))"
