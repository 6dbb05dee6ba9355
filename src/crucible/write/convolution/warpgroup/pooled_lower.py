"""A transposed convolution with a pool over its phases as a kernel for warpgroups, which puts the weight in order
itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from crucible.gpus import Gpu
from crucible.write.convolution.direction import Direction
from crucible.write.convolution.fused import Convolution
from crucible.write.convolution.halo import STEP_UNITS, Halo
from crucible.write.convolution.pieces import WORDS
from crucible.write.convolution.scene import Scene
from crucible.write.convolution.warpgroup import pieces
from crucible.write.convolution.warpgroup.lower import Body
from crucible.write.convolution.warpgroup.pooled import ENTRY, PooledWalks
from crucible.write.convolution.warpgroup.pooled_tail import PooledTail
from crucible.write.convolution.warpgroup.staging import MOST_WORDS, Planes
from crucible.write.convolution.warpgroup.walks import ROWS, STAGING_REGISTERS, WARPS
from crucible.write.families.source import CUDA_TYPES, block, converted, unrolled
from crucible.write.kernel import Buffer, Lowered
from crucible.write.program import Operand, reads

SHARES = 2
"""Of the warps that stage, each with planes of its own."""
WARPS_A_SHARE = WARPS // SHARES
MOST_TOGETHER = 64
"""Elements of the weight that a thread loads at once: there are no sums yet."""


def lower_pooled(conv: Convolution, walks: PooledWalks, gpu: Gpu) -> Lowered:
    """The kernel; chains are taken as they are."""
    scene = Scene(conv, walks, Buffer(conv.weight.name, conv.source.dtype, 0), gpu)
    body = PooledBody(scene, walks, PooledPlanes(scene), PooledTail(scene))
    return Lowered((body.kernel(),), (), tuple(body.notes()))


@dataclass(frozen=True)
class Rounded(Halo):
    """What is read, rounded wherever it is from: a condition around roundings takes three instructions for each."""

    def _value(self, step: str, k: int) -> str:
        dtype = self.source.dtype
        zero = converted("0.0f", "float32", dtype)
        read = (
            f"{self.convert}({self._test(step, k)} ? from[(u * {self.unit} + {k}) * {self.source.strides[1]}] : {zero})"
        )
        return f"static_cast<unsigned>({read})" if self.unit == 8 else read


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
        walks, scene = self._pooled, self.scene
        units, rounds = walks.steps * STEP_UNITS // WARPS_A_SHARE, -(-math.prod(walks.staged_plane) // 32)
        together = max(1, min(rounds, MOST_WORDS // units))
        position = f"const int p = lane + {'k' if together == rounds else '(first + k)'} * 32;"
        unit = f"const int u = j * {WARPS_A_SHARE} + warp % {WARPS_A_SHARE};"
        halo = Rounded(walks.of, scene.conv.source, walks, WORDS[scene.conv.math].convert)
        load = unrolled("j", str(units), [unit, *halo.word("0"), "words[k][j] = word;"])
        stores = unrolled("j", str(units), [unit, *self._stores()])
        guard = " && ".join([f"first + k < {rounds}"] * (rounds % together != 0) + [self._there] * bool(self._there))
        stores = block(f"if ({guard})", stores) if guard else stores
        lines = [
            f"uint4 words[{together}][{units}];",
            *unrolled("k", str(together), [position, *self._place(), *load]),
            f"wait(done + slot, plane / {walks.slots} % 2 ^ 1);  // with what was in the slot before",
            *unrolled("k", str(together), [position, *stores]),
        ]
        if together < rounds:
            lines = block(f"for (int first = 0; first < {rounds}; first += {together})", lines)
        return [f"if (plane % {SHARES} != half) continue;", *lines, "publish();", "arrive(loaded + slot);"]

    def _stores(self) -> list[str]:
        walks, columns = self._pooled, self._pooled.staged_plane[1]
        first = f" + {walks.first_column}" if walks.first_column else ""
        at = f"slot * {walks.slot_units} + u * {walks.points} + p / {columns} * {walks.row_pitch}"
        lines = [f"const int column = p % {columns}{first};", f"uint4* const to = ring + {at} + column;"]
        end = walks.first_column + columns
        for copy in range(walks.copies):
            tests = [f"column >= {copy}"] if copy > walks.first_column else []
            tests += [f"column < {copy + walks.box[-1]}"] if end > copy + walks.box[-1] else []
            guard = f"if ({' && '.join(tests)}) " if tests else ""
            lines.append(f"{guard}to[{copy * (walks.copy_units - 1)}] = words[k][j];")
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
            "const int lane = threadIdx.x % 32;",
            # nvcc sees that all lanes agree, and keeps planes, turns and what follows from them in uniform registers,
            # which products are described by: half the instructions between two of them
            "const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);",
            f"const int part = blockIdx.x % {self.scene.parts};",
            f"const int first_channel = part * {walks.channels};",
            *self._asked(),
            *self._start(),
            *self._divided(multiply, loads),
        ]

    def _barriers(self) -> list[str]:
        last = f"unsigned long long* ordered = turns + {self.walks.groups};  // are the weights"
        return [*super()._barriers(), last]

    def _start(self) -> list[str]:
        walks = self.walks
        prepare = [
            f"for (int s = 0; s < {walks.slots}; ++s) prepare(loaded + s, {WARPS_A_SHARE}),"
            f" prepare(done + s, {walks.groups * WARPS});",
            f"for (int s = 0; s < {walks.groups}; ++s) prepare(turns + s, {WARPS});",
            f"prepare(ordered, {walks.groups * WARPS});",
        ]
        zeros = f"for (int p = threadIdx.x; p < {walks.weight_units}; p += {walks.threads}) weights[p] = uint4{{}};"
        return [
            *([zeros] if walks.has_gaps else []),
            *self.staging.slack(walks.threads),
            *block("if (threadIdx.x == 0)", prepare),
            # the others do so with the weights: here it would wait for the loads of those
            f"if (warp >= {walks.groups * WARPS}) publish();",
            "__syncthreads();",
        ]

    # weights: a thread takes one tap of every so many channels, so that loads are of neighbours and where they go is
    # computed once. The first loads begin before anything else does.

    @cached_property
    def _kernel_taps(self) -> int:
        return math.prod(axis.kernel for axis in self.walks.of.axes)

    @cached_property
    def _apart(self) -> int:
        """From one channel of a thread to its next: a power of two, as the channels of a tile are."""
        most = min(self.walks.channels, self.walks.groups * WARPS * 32 // self._kernel_taps)
        return 1 << most.bit_length() - 1

    @property
    def _made(self) -> int:
        """Channels of a thread."""
        return self.walks.channels // self._apart

    @property
    def _pieces(self) -> int:
        """Units of input channels, of each of its channels, that a thread orders."""
        return self._made * self.walks.steps * STEP_UNITS

    @property
    def _together(self) -> int:
        """Of them, those that it has on their way at once."""
        most = max(1, MOST_TOGETHER // self.walks.unit)
        return -(-self._pieces // -(-self._pieces // most))

    @property
    def _orders(self) -> str:
        """Whether a thread orders weights."""
        return f"threadIdx.x < {self._apart * self._kernel_taps}"

    def _asked(self) -> list[str]:
        """The first loads, beside which shared memory is prepared."""
        type_ = CUDA_TYPES[self.scene.conv.source.dtype]
        return [
            "// The thread's tap and first channel of the weight, which it puts in order.",
            f"const int tap = threadIdx.x % {self._kernel_taps}, made = threadIdx.x / {self._kernel_taps};",
            f"{type_} values[{self._together}][{self.walks.unit}];",
            *block(f"if ({self._orders})", self._loaded("0")),
            *self._signs_asked(),
            *self.tail.asked(),
        ]

    def _ordered(self) -> list[str]:
        """The weight to shared memory, by the warpgroups that multiply."""
        walks, kernel = self.walks, self.walks.of.axes[-1].kernel
        table = sum((entry << 1 | upper) << 4 * tap for tap, (entry, upper) in enumerate(walks.last_taps))
        lines = [
            f"const int last = {hex(table)}ull >> tap % {kernel} * 4 & 15;  // the matrix, and its half",
            f"uint4* const of_tap = weights + (tap / {kernel} * {walks.entries_a_tap} + last / 2) * {ENTRY}"
            f" + last % 2 * 8 + {self._row('made') if self._rows_apart else '0'};",
            *self._turned(),
            *self._stored("0"),
        ]
        if self._together < self._pieces:
            head = f"for (int begin = {self._together}; begin < {self._pieces}; begin += {self._together})"
            lines += block(head, [*self._loaded("begin"), *self._stored("begin")])
        return ["// The weight in the order in which tensor cores take it.", *block(f"if ({self._orders})", lines)]

    @property
    def _way(self) -> Direction | None:
        """Where channels' weights are turned round: those of falling ones."""
        way = self.tail.running.direction
        return way if way and way.turns else None

    @property
    def _deciding(self) -> list[Operand]:
        """What signs are read from."""
        read = frozenset[str]().union(*map(reads, self._way.signs)) if self._way else frozenset[str]()
        return [each for each in self.scene.operands if each.name in read]

    def _signs_asked(self) -> list[str]:
        lines, count = list[str](), str(self._made)
        for each in self._deciding:
            read = self.tail.of_row(each, f"first_channel + m * {self._apart} + made")
            lines += [f"float {each.name}_made[{count}];", *unrolled("m", count, [f"{each.name}_made[m] = {read};"])]
        return lines

    def _turned(self) -> list[str]:
        """Of each channel of a thread the bits of its weights that are turned round."""
        if self._way is None:
            return []
        names = {each.name: f"{each.name}_value" for each in self._deciding}
        each = [f"const float {value} = {name}_made[m];" for name, value in names.items()]
        bits = "0x80008000u" if self.scene.half else "0x80000000u"
        each += [*self._way.lines(names), f"turned[m] = falls ? {bits} : 0u;"]
        return [f"unsigned turned[{self._made}];", *unrolled("m", str(self._made), each)]

    def _piece(self, begin: str) -> list[str]:
        number = "k" if begin == "0" else f"({begin} + k)"
        return [f"const int u = {number} / {self._made}, m = {number} % {self._made};"]

    def _loaded(self, begin: str) -> list[str]:
        """Of input channels and channels that are not there: 0."""
        walks, dtype = self.walks, self.scene.conv.source.dtype
        _, made, read = walks.of.weight_strides
        channel = f"first_channel + m * {self._apart} + made"
        tests = [f"begin + k < {self._pieces}"] * (begin != "0" and self._pieces % self._together != 0)
        tests += [f"{channel} < {walks.of.out_channels}"] * (walks.of.out_channels % walks.channels != 0)
        tests += [f"u * {walks.unit} + j < {walks.of.in_channels}"] * (
            walks.of.in_channels % (walks.unit * STEP_UNITS) != 0
        )
        at = f"(u * {walks.unit} + j) * {read} + ({channel}) * {made} + tap"
        value = f"{self.scene.word[self.scene.packed.name]}[{at}]"
        if tests:
            value = f"{' && '.join(tests)} ? {value} : {converted('0.0f', 'float32', dtype)}"
        each = [*self._piece(begin), *unrolled("j", str(walks.unit), [f"values[k][j] = {value};"])]
        return unrolled("k", str(self._together), each)

    def _stored(self, begin: str) -> list[str]:
        """A unit of 16 bytes at once, to where tensor cores take it from."""
        walks, scene = self.walks, self.scene
        convert = "raw" if scene.half else WORDS[scene.conv.math].convert
        parts = [f"{convert}(values[k][{j}])" for j in range(walks.unit)]
        if scene.half:
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [f"static_cast<unsigned>({low}) | static_cast<unsigned>({high}) << 16" for low, high in pairs]
        parts = (
            [f"({part}) ^ turned[m]" if scene.half else f"{part} ^ turned[m]" for part in parts] if self._way else parts
        )
        terms = [
            f"u / {STEP_UNITS} * {walks.entries * ENTRY}" if walks.steps > 1 else "",
            f"u % {STEP_UNITS} * {ROWS}",
            f"m * {self._apart * (2 if walks.pairs else 1)}"
            if self._rows_apart
            else self._row(f"(m * {self._apart} + made)"),
        ]
        store = f"of_tap[{' + '.join(filter(None, terms))}] = make_uint4({', '.join(parts)});"
        if self._pieces % self._together and begin != "0":
            store = f"if (begin + k < {self._pieces}) {store}"
        return unrolled("k", str(self._together), [*self._piece(begin), store])

    @property
    def _rows_apart(self) -> bool:
        """Whether the rows of a thread's channels are all equally far apart."""
        return not self.walks.pairs or self._apart % 8 == 0

    def _row(self, channel: str) -> str:
        """Of a matrix of weights: of two phases, each eight channels are followed by their others."""
        return f"{channel} / 8 * 16 + {channel} % 8" if self.walks.pairs else channel

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
        planes = [f"(plane + {number})" if number else "plane" for number in range(walks.span)]
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
            *(f"wait(loaded + {each} % {walks.slots}, {each} / {walks.slots} % 2);" for each in planes),
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
