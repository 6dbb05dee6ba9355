"""Products from registers to their tile in shared memory, where a channel's outputs lie in the order of the output."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from crucible.target.cuda import block, unrolled
from crucible.write.convolution.halo import decoded, times
from crucible.write.convolution.scene import Scene


@dataclass(frozen=True)
class Placing:
    """Text between the multiplication and the chain."""

    scene: Scene

    def places(self) -> list[str]:
        """Where a lane's first position of each tile of eight is in a row of the tile."""
        tiling = self.scene.tiling
        if not self._has_phases or tiling.pools_registers:
            return []
        inner = [
            f"const int position = {self._position};",
            f"spot[j] = {self._spot('position')};",
        ]
        return [f"int spot[{tiling.n_tiles}];  // in the tile of products", *unrolled("j", str(tiling.n_tiles), inner)]

    @property
    def _position(self) -> str:
        return f"(column * {self.scene.tiling.n_tiles} + j) * 8 + lane % 4 * 2"

    @cached_property
    def _has_phases(self) -> bool:
        return math.prod(self.scene.tiling.of.phases) > 1

    def _spot(self, position: str) -> str:
        """The place of a position's output of the first phase."""
        tiling, terms, step = self.scene.tiling, [], 1
        words = decoded(position, tiling.box)
        for word, size, phases in reversed(list(zip(words, tiling.output_box, tiling.of.phases, strict=True))):
            if word != "0":
                terms.append(times(f"({word})", phases * step))
            step *= size
        return " + ".join(reversed(terms)) or "0"

    def all_slices(self) -> list[str]:
        """All channels, where taps take the place of some."""
        tiling = self.scene.tiling
        stores = [
            f"float* into = tile + ((row * {tiling.m_tiles} + i) * 16 + lane / 4) * {tiling.pitch} + {self._position};",
            *self._neighbours("sums[0][i][j]"),
        ]
        return unrolled("i", str(tiling.m_tiles), unrolled("j", str(tiling.n_tiles), stores))

    def slice(self) -> list[str]:
        """16 channels of each row of warps."""
        tiling = self.scene.tiling
        at = f"tile + (row * 16 + lane / 4) * {tiling.pitch}"
        if tiling.pools_registers:
            return self._windows(at)
        if not self._has_phases:
            stores = [f"float* into = {at} + {self._position};", *self._neighbours("sums[0][slice][j]")]
            return unrolled("j", str(tiling.n_tiles), stores)
        lines, slot = [], 0
        while slot < tiling.slots:
            together = 2 if tiling.is_paired else 1
            phases = [team[slot] if slot < len(team) else None for team in tiling.teams]
            into = f"float* into = {at} + spot[j] + {self._phase_word(phases)};"
            stores = [into, *(self._pair(slot) if together == 2 else self._single(slot))]
            if tiling.columns * tiling.n_tiles * 8 > math.prod(tiling.box):
                stores = [f"if ({self._position} >= {math.prod(tiling.box)}) continue;", *stores]
            loop = unrolled("j", str(tiling.n_tiles), stores)
            test = " && ".join(f"team != {team}" for team, phase in enumerate(phases) if phase is None)
            lines += block(f"if ({test})", loop) if test else loop
            slot += together
        return lines

    def _windows(self, at: str) -> list[str]:
        """What is left of the windows of a lane's positions, in the registers of one phase after another."""
        scene, tiling, choosing = self.scene, self.scene.tiling, self.scene.choosing
        assert choosing is not None
        of, names = scene.conv.correlation, {each.name: f"{each.name}_own" for each in choosing.operands}
        lines = ["Pack<float, 2> products;", *(["Pack<int, 2> choices;"] * choosing.keeps)]
        left = choosing.lines(lambda e: f"sums[{e}][slice][j][half * 2 + k]", "products.at[k]", "choices.at[k]", names)
        lines += unrolled("k", "2", left)
        lines.append(f"float* into = {at} + half * {8 * tiling.pitch} + {self._position};")
        lines.append("*reinterpret_cast<Pack<float, 2>*>(into) = products;")
        if choosing.keeps:
            behind = tiling.tile_rows * tiling.pitch
            lines.append(f"*reinterpret_cast<Pack<int, 2>*>(into + {behind}) = choices;")
        lines = unrolled("j", str(tiling.n_tiles), lines)
        if choosing.operands:
            slice_ = f"(row * {tiling.m_tiles} + slice)" if tiling.m_tiles > 1 else "row"
            own = f"first_channel + {slice_} * 16 + lane / 4 + half * 8"
            group = f"group * {of.out_channels} + " if of.groups > 1 else ""
            head = [f"const int c = {group}min({own}, {of.out_channels - 1});"]
            lines = [*head, *(scene.of_channel(each, names[each.name]) for each in choosing.operands), *lines]
        return unrolled("half", "2", lines)

    def _neighbours(self, sums: str) -> list[str]:
        return [
            f"const auto& own = {sums};",
            "*reinterpret_cast<float2*>(into) = make_float2(own[0], own[1]);",
            f"*reinterpret_cast<float2*>(into + {8 * self.scene.tiling.pitch}) = make_float2(own[2], own[3]);",
        ]

    def _pair(self, slot: int) -> list[str]:
        """Two phases of the last dim alternate in it."""
        words = [f"sums[{slot + k % 2}][slice][j][{k // 2}]" for k in range(8)]
        far = 8 * self.scene.tiling.pitch
        return [
            f"*reinterpret_cast<float4*>(into) = make_float4({', '.join(words[:4])});",
            f"*reinterpret_cast<float4*>(into + {far}) = make_float4({', '.join(words[4:])});",
        ]

    def _single(self, slot: int) -> list[str]:
        tiling = self.scene.tiling
        far = 8 * tiling.pitch
        lines = [f"const auto& own = sums[{slot}][slice][j];", "into[0] = own[0];", f"into[{far}] = own[2];"]
        if tiling.box[-1] % 2 == 0:
            step = tiling.of.phases[-1]
            return [*lines, f"into[{step}] = own[1];", f"into[{far + step}] = own[3];"]
        following = [
            f"const int position = {self._position} + 1;",
            f"if (position >= {math.prod(tiling.box)}) continue;",
            f"into += {self._spot('position')} - spot[j];",
            "into[0] = own[1];",
            f"into[{far}] = own[3];",
        ]
        return [*lines, *following]

    def _phase_word(self, phases: Sequence[int | None]) -> str:
        """How far a slot's phase is from the first, which depends on the team."""
        known = [(team, self._moved(phase)) for team, phase in enumerate(phases) if phase is not None]
        text = str(known[-1][1])
        for team, moved in reversed(known[:-1]):
            text = f"team == {team} ? {moved} : {text}"
        return f"({text})" if len(known) > 1 else text

    def _moved(self, phase: int) -> int:
        tiling, step, moved = self.scene.tiling, 1, 0
        for size, phases in zip(reversed(tiling.output_box), reversed(tiling.of.phases), strict=True):
            phase, own = divmod(phase, phases)
            moved += own * step
            step *= size
        return moved
