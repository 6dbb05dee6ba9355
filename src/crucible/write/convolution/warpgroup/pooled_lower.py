"""A transposed convolution with a pool over its phases as a kernel for warpgroups, which puts the weight in order
itself."""

from __future__ import annotations

import math
from dataclasses import dataclass

from crucible.gpus import Gpu
from crucible.write.convolution.fused import Convolution
from crucible.write.convolution.halo import STEP_UNITS
from crucible.write.convolution.pieces import WORDS
from crucible.write.convolution.scene import Scene
from crucible.write.convolution.warpgroup import pieces
from crucible.write.convolution.warpgroup.lower import Body
from crucible.write.convolution.warpgroup.pooled import ENTRY, PooledWalks
from crucible.write.convolution.warpgroup.pooled_tail import PooledTail
from crucible.write.convolution.warpgroup.staging import Planes
from crucible.write.convolution.warpgroup.walks import ROWS, STAGING_REGISTERS, WARPS
from crucible.write.families.source import CUDA_TYPES, block, unrolled
from crucible.write.kernel import Buffer, Lowered

MOST_TOGETHER = 32
"""Elements of the weight that a thread loads at once."""


def lower_pooled(conv: Convolution, walks: PooledWalks, gpu: Gpu) -> Lowered:
    """The kernel; chains are taken as they are."""
    scene = Scene(conv, walks, Buffer(conv.weight.name, conv.source.dtype, 0), gpu)
    body = PooledBody(scene, walks, PooledPlanes(scene), PooledTail(scene))
    return Lowered((body.kernel(),), (), tuple(body.notes()))


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

    def _stores(self, units: int) -> list[str]:
        walks, columns = self._pooled, self._pooled.staged_plane[1]
        first = f" + {walks.first_column}" if walks.first_column else ""
        lines = [
            f"const int column = p % {columns}{first};",
            f"uint4* const to = ring + slot * {walks.slot_units} + p / {columns} * {walks.row_pitch} + column;",
        ]
        end = walks.first_column + columns
        for copy in range(walks.copies):
            tests = [f"column >= {copy}"] if copy > walks.first_column else []
            tests += [f"column < {copy + walks.box[-1]}"] if end > copy + walks.box[-1] else []
            place = f"u * {walks.points}" + (f" + {copy * (walks.copy_units - 1)}" if copy else "")
            store = unrolled("u", str(units), [f"to[{place}] = words[k][u];"])
            lines += block(f"if ({' && '.join(tests)})", store) if tests else store
        return lines


@dataclass(frozen=True)
class PooledBody(Body):
    """The kernel that multiplies."""

    walks: PooledWalks
    tail: PooledTail

    def notes(self) -> list[str]:
        walks, of = self.walks, self.walks.of
        box = "x".join(map(str, walks.box))
        walked = f", along {walks.walk} planes" if len(walks.box) == 3 else ""
        pairs = " (a lane has two neighbours of a channel at once)" if walks.pairs else ""
        return [
            f"{list(of.in_shape)} to {list(of.out_shape)} by {len(of.products)} products of {of.in_channels} channels,"
            f" {WORDS[self.scene.conv.math].about}, sums in fp32; warpgroup instructions, on compute capability 9.0"
            " alone.",
            f"A block makes {walks.channels} channels of {box} windows at a time{walked}: {walks.groups} warpgroups in"
            f" turn, the elements of a window one after another{pairs}, while another one loads planes of input into"
            f" {walks.slots} slots; its weights stay in shared memory ({walks.shared_bytes // 1024} KiB).",
            self.tail.running.note(),
        ]

    def _lines(self) -> list[str]:
        walks = self.walks
        multiply = [
            f"take_registers<{walks.registers}>();",
            "const int team = warp / 4;",
            *self._ordered(),
            "publish();",
            "arrive(ordered);",
            *self.tail.before(),
            "wait(ordered, 0);",
            *self._multiply(),
        ]
        loads = [f"leave_registers<{STAGING_REGISTERS}>();", *self.staging.lines()]
        ring = f"ring + {walks.slots * walks.slot_units}"
        return [
            *self._memory(),
            f"unsigned long long* loaded = reinterpret_cast<unsigned long long*>({ring});  // each slot",
            *self._barriers(),
            "const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;",
            f"const int part = blockIdx.x % {self.scene.parts};",
            f"const int first_channel = part * {walks.channels};",
            *self._start(),
            *self._divided(multiply, loads),
        ]

    def _barriers(self) -> list[str]:
        last = f"unsigned long long* ordered = turns + {self.walks.groups};  // are the weights"
        return [*super()._barriers(), last]

    def _start(self) -> list[str]:
        walks = self.walks
        prepare = [
            f"for (int s = 0; s < {walks.slots}; ++s) prepare(loaded + s, {WARPS}),"
            f" prepare(done + s, {walks.groups * WARPS});",
            f"for (int s = 0; s < {walks.groups}; ++s) prepare(turns + s, {WARPS});",
            f"prepare(ordered, {walks.groups * WARPS});",
        ]
        zeros = f"for (int p = threadIdx.x; p < {walks.weight_units}; p += {walks.threads}) weights[p] = uint4{{}};"
        return [
            *([zeros] if walks.has_gaps else []),
            *self.staging.slack(walks.threads),
            *block("if (threadIdx.x == 0)", prepare),
            "publish();",
            "__syncthreads();",
        ]

    # weights

    def _ordered(self) -> list[str]:
        """The weight to shared memory, by the warpgroups that multiply: a thread takes one tap of every so many pairs
        of channels, so that loads are of neighbours and what depends on the tap is computed once."""
        walks, of = self.walks, self.walks.of
        taps, kernel = math.prod(axis.kernel for axis in of.axes), of.axes[-1].kernel
        apart, count = walks.groups * WARPS * 32 // taps, of.in_channels * walks.channels
        rounds = -(-count // apart)
        together = -(-rounds // -(-rounds // MOST_TOGETHER))
        table = sum((entry << 1 | upper) << 4 * tap for tap, (entry, upper) in enumerate(walks.last_taps))
        place = [
            f"const int p = (begin + k) * {apart} + threadIdx.x / {taps};",
            f"const int read = p / {walks.channels}, made = p % {walks.channels};",
        ]
        test = " && ".join(
            [f"p < {count}"] + [f"first_channel + made < {of.out_channels}"] * (of.out_channels % walks.channels != 0)
        )
        values = [
            f"{CUDA_TYPES[self.scene.conv.source.dtype]} values[{together}];",
            *unrolled("k", str(together), [*place, f"if ({test}) values[k] = {self._element()};"]),
            *unrolled("k", str(together), [*place, f"if ({test}) {self._ordered_element('values[k]')};"]),
        ]
        lines = [
            f"const int last = {hex(table)}ull >> tap % {kernel} * 4 & 15;  // the matrix, and its half",
            f"uint4* const of_tap = weights + (tap / {kernel} * {walks.entries_a_tap} + last / 2) * {ENTRY}"
            " + last % 2 * 8;",
            *block(f"for (int begin = 0; begin < {rounds}; begin += {together})", values),
        ]
        head = f"if (const int tap = threadIdx.x % {taps}; threadIdx.x < {apart * taps})"
        return ["// The weight in the order in which tensor cores take it.", *block(head, lines)]

    def _element(self) -> str:
        """Of a tap, the weight of channel `made` of channel `read`."""
        _, made, read = self.walks.of.weight_strides
        return f"{self.scene.word[self.scene.packed.name]}[read * {read} + (first_channel + made) * {made} + tap]"

    def _ordered_element(self, value: str) -> str:
        """It to where tensor cores take it from."""
        walks, scene = self.walks, self.scene
        unit, step = walks.unit, walks.unit * STEP_UNITS
        type_, convert = ("unsigned short", "raw") if scene.half else ("unsigned", WORDS[scene.conv.math].convert)
        terms = [
            f"read / {step} * {walks.entries * ENTRY}" if walks.steps > 1 else "",
            f"read % {step} / {unit} * {ROWS}",
            "made / 8 * 16 + made % 8" if walks.pairs else "made",
        ]
        place = f"of_tap + {' + '.join(filter(None, terms))}"
        return f"reinterpret_cast<{type_}*>({place})[read % {unit}] = {convert}({value})"

    # multiplying

    def _multiply(self) -> list[str]:
        walks = self.walks
        plane = block("for (int t = 0; t < planes; ++t, ++turn, ++plane)", self._plane())
        item = [
            *self.staging.item(),
            f"const int planes = {self.staging.planes};",
            *self.tail.before_item(),
            *plane,
            *([f"plane += {walks.span - 1};"] if walks.span > 1 else []),
        ]
        rounds = f"(turn + {walks.groups - 1}) / {walks.groups}"
        rest = f"for (const int all = {rounds} * {walks.passes}; passes < all; ++passes)"
        return [
            "int plane = 0, turn = 0, passes = 0;  // of all items; of this warpgroup",
            *self.staging.each_item(item),
            *block(rest, [self._turn, self._next]),  # the others may have one more turn
        ]

    @property
    def _turn(self) -> str:
        return "wait(turns + team, passes % 2 ^ (team == 0));  // for its turn"

    @property
    def _next(self) -> str:
        return f"arrive(turns + (team + 1) % {self.walks.groups});"

    def _plane(self) -> list[str]:
        """Of windows: made by the warpgroup whose turn it is, passed by the others."""
        walks = self.walks
        newest = f"(plane + {walks.span - 1})" if walks.span > 1 else "plane"
        own = [
            f"float sums[{walks.columns_of_b // 2}];",
            self._turn,
            *self._products(),
            *block(f"if (own == {walks.passes - 1})", [self._left()]),
            *self.tail.elements(),
        ]
        return [
            *self._passed(),
            *(["const int box_d = first_plane + t;"] if len(walks.box) == 3 else []),
            *self.tail.begun(),
            f"wait(loaded + {newest} % {walks.slots}, {newest} / {walks.slots} % 2);",
            "#pragma unroll 1",
            *block(f"for (int own = 0; own < {walks.passes}; ++own, ++passes)", own),
            *self.tail.lines(),
        ]

    def _products(self) -> list[str]:
        """Of pass `own`, each in one go: where they begin outside of branches, nvcc makes them wait for each other."""
        walks, lines = self.walks, list[str]()
        for number, taps in enumerate(walks.multiplied):
            test = f"if (own == {number})" if number + 1 < walks.passes else ""
            lines += block(f"else {test}".strip() if number else test, self._of_pass(taps))
        return lines

    def _of_pass(self, taps: tuple[tuple[int, int, int], ...]) -> list[str]:
        """The next warpgroup's follow when the last of them is on its way."""
        walks, name = self.walks, pieces.multiply(self.scene.conv.math)
        several = walks.steps > 1
        lines = [
            f"const unsigned long long a = describe(weights{f' + s * {walks.entries * ENTRY}' * several}, {ROWS});"
        ]
        lines += [self._described(plane) for plane in sorted({plane for plane, _, _ in taps})]
        for number, (plane, at, entry) in enumerate(taps):
            adds = "true" if number else "s > 0" if several else "false"
            lines.append(f"{name}(sums, a + {entry * ENTRY}, b_{plane} + {at}, {adds});")
        if several:
            lines = block(f"for (int s = 0; s < {walks.steps}; ++s)", lines)
        return ["begin_products();", *lines, "commit_products();", self._next, "finish_products(sums);"]
