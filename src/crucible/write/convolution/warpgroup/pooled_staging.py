"""How planes of the input come into their slots once for each shift of the last dim."""

from __future__ import annotations

import math
from dataclasses import dataclass

from crucible.target.cuda import CUDA_TYPES, block, converted, unrolled
from crucible.write.convolution.halo import STEP_UNITS, UNITS, Halo
from crucible.write.convolution.pieces import WORDS
from crucible.write.convolution.scene import Scene
from crucible.write.convolution.warpgroup.pooled import PooledWalks
from crucible.write.convolution.warpgroup.staging import Planes
from crucible.write.convolution.warpgroup.walks import MOST_UNITS, WARPS

SHARES = 2
"""Of the warps that stage, each with planes of its own."""
WARPS_A_SHARE = WARPS // SHARES


def unit_of(values: str, scene: Scene) -> list[str]:
    """The words of 16 bytes of input channels, of an array of as many elements as they hold."""
    convert, count = WORDS[scene.conv.math].convert, UNITS[scene.conv.source.dtype]
    parts = [f"{convert}({values}[{k}])" for k in range(count)]
    if not scene.half:
        return parts
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return [f"(static_cast<unsigned>({low}) | static_cast<unsigned>({high}) << 16)" for low, high in pairs]


@dataclass(frozen=True)
class Elements(Halo):
    """Of the input, as they are read: were they rounded at once, some loads would wait for those of others."""

    def element(self, c: str) -> str:
        """Channel `c` of unit `u`."""
        zero = converted("0.0f", "float32", self.source.dtype)
        return f"{self._test('0', c)} ? from[(u * {self.unit} + {c}) * {self.source.strides[1]}] : {zero}"


@dataclass(frozen=True)
class PooledPlanes(Planes):
    """Staging of planes once for each shift of the last dim."""

    @property
    def _pooled(self) -> PooledWalks:
        assert isinstance(self.scene.tiling, PooledWalks)
        return self.scene.tiling

    def slack(self, threads: int) -> list[str]:
        """What is never loaded is 0 once and for all: the ends of rows."""
        walks, (rows, columns) = self._pooled, self._pooled.staged_plane
        first, end, width, pitch = walks.first_column, walks.first_column + columns, walks.box[-1], walks.row_pitch
        lines = []
        if first:
            lines.append(f"for (int spot = 0; spot < {first} - copy; ++spot) row[spot] = uint4{{}};")
        if min(width, end - walks.copies + 1) < pitch:
            last = f"min({width}, {end} - copy)"
            lines.append(f"for (int spot = {last}; spot < {pitch}; ++spot) row[spot] = uint4{{}};")
        if not lines:
            return []
        count = walks.slots * walks.slot_units // pitch
        head = f"for (int p = threadIdx.x; p < {count}; p += {threads})"
        place = [f"const int copy = p / {rows} % {walks.copies};", f"uint4* const row = ring + p * {pitch};"]
        return block(head, [*place, *lines])

    def lines(self) -> list[str]:
        """Each half of the warps brings every other plane, so that loads of one are on their way while another is
        written."""
        return [f"const int half = warp % {WARPS} / {WARPS_A_SHARE};", *super().lines()]

    @property
    def _there(self) -> str:
        staged = math.prod(self._pooled.staged_plane)
        return f"p < {staged}" if staged % 32 else ""

    def _load(self) -> list[str]:
        """A warp has every other unit of channels of all positions: loaded first, then the slot is waited for, then
        they are stored."""
        walks, source = self._pooled, self.scene.conv.source
        units, rounds = walks.steps * STEP_UNITS // WARPS_A_SHARE, -(-math.prod(walks.staged_plane) // 32)
        together = max(1, min(rounds, MOST_UNITS * 4 // (units * walks.unit)))
        position = f"const int p = lane + {'k' if together == rounds else '(first + k)'} * 32;"
        unit = f"const int u = j * {WARPS_A_SHARE} + warp % {WARPS_A_SHARE};"
        element = Elements(walks.of, source, walks, "").element("e")
        load = unrolled("e", str(walks.unit), [f"values[k][j][e] = {element};"])
        guard = " && ".join([f"first + k < {rounds}"] * (rounds % together != 0) + [self._there] * bool(self._there))
        stores = unrolled("j", str(units), [unit, *self._unit_stored()])
        stores = block(f"if ({guard})", stores) if guard else stores
        lines = [
            f"{CUDA_TYPES[source.dtype]} values[{together}][{units}][{walks.unit}];",
            *unrolled("k", str(together), [position, *self._place(), *unrolled("j", str(units), [unit, *load])]),
            f"mbarrier_wait(done + slot, plane / {walks.slots} % 2 ^ 1);  // with what was in the slot before",
            *unrolled("k", str(together), [position, *stores]),
        ]
        if together < rounds:
            lines = block(f"for (int first = 0; first < {rounds}; first += {together})", lines)
        return [
            f"if (plane % {SHARES} != half) continue;",
            *lines,
            "fence_proxy_async();",
            "mbarrier_arrive(loaded + slot);",
        ]

    def _unit_stored(self) -> list[str]:
        """To its place of each copy."""
        walks, columns = self._pooled, self._pooled.staged_plane[1]
        first = f" + {walks.first_column}" if walks.first_column else ""
        at = f"slot * {walks.slot_units} + u * {walks.points} + p / {columns} * {walks.row_pitch}"
        lines = [
            f"const int column = p % {columns}{first};",
            f"uint4* const to = ring + {at} + column;",
            f"const uint4 word = make_uint4({', '.join(unit_of('values[k][j]', self.scene))});",
        ]
        end = walks.first_column + columns
        for copy in range(walks.copies):
            tests = [f"column >= {copy}"] if copy > walks.first_column else []
            tests += [f"column < {copy + walks.box[-1]}"] if end > copy + walks.box[-1] else []
            guard = f"if ({' && '.join(tests)}) " if tests else ""
            lines.append(f"{guard}to[{copy * (walks.copy_units - 1)}] = word;")
        return lines
