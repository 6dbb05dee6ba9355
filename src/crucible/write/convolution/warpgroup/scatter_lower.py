"""The kernel of a convolution of few output channels for warpgroups (`scatter`) that multiplies."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

from crucible.errors import MisuseError
from crucible.gpus import Gpu
from crucible.target.cuda import PACK, block, unrolled
from crucible.target.sm90 import ARCHITECTURE, MAKE_SMEM_DESC, SETTLED
from crucible.write.convolution.fused import Convolution
from crucible.write.convolution.halo import STEP_UNITS, decoded, times
from crucible.write.convolution.pieces import WORDS
from crucible.write.convolution.scene import Scene
from crucible.write.convolution.warpgroup import packing, pieces
from crucible.write.convolution.warpgroup.held import FINISH, held_products, multiply_held
from crucible.write.convolution.warpgroup.scatter import (
    CHANNELS,
    COPYING,
    KEPT_REGISTERS,
    MULTIPLYING,
    POSITIONS,
    TEAMS,
    Scatter,
)
from crucible.write.convolution.warpgroup.scatter_tail import Adding
from crucible.write.convolution.warpgroup.walks import PASSES, THREADS, WARPS
from crucible.write.kernel import Kernel, Lowered
from crucible.write.program import contiguous

EVERYONE = TEAMS + 1
"""The number of the barrier of all warpgroups that multiply, behind those of each."""


def lower_scatter(conv: Convolution, division: Scatter, gpu: Gpu) -> Lowered:
    """The kernel; the chain is taken as it is. Raises MisuseError where what a block holds does not fit."""
    division = replace(division, exact=conv.math == "fp32")
    if division.shared_bytes > gpu.shared_memory_per_block_bytes:
        raise MisuseError(
            f"{conv.name}: its rows and inputs take {division.shared_bytes} bytes of shared memory, and a block of"
            f" {gpu.name} has {gpu.shared_memory_per_block_bytes}: give it smaller boxes"
        )
    scene = Scene(conv, division, packing.packed(conv.name, division), gpu)
    body = _Body(scene, division, Adding(scene, division))
    return Lowered((body.kernel(),), (scene.packed,), tuple(body.notes()))


@dataclass(frozen=True)
class _Body:
    """The kernel that multiplies."""

    scene: Scene
    division: Scatter
    adding: Adding

    def kernel(self) -> Kernel:
        division, math, lines = self.division, self._math, self._lines()
        before = [*packing.conversions(self.scene.conv.math), PACK, *pieces.BARRIERS]
        before += [MAKE_SMEM_DESC, *pieces.BEGIN, *pieces.COPY_IN, pieces.TOGETHER, *pieces.REGISTERS]
        before += held_products(math, division.columns, 1 if division.exact else division.groups)
        before += [SETTLED] if division.exact else []
        return self.scene.kernel(self.notes(), lines, [*before, *self.adding.preamble], (1, division.threads),
                                 division.shared_bytes, architecture=ARCHITECTURE)  # fmt: skip

    @property
    def _math(self) -> str:
        """Of an instruction."""
        return "tf32"

    def notes(self) -> list[str]:
        """How the work is laid out, in words."""
        of, division = self.division.of, self.division
        box = "x".join(map(str, division.box))
        walked = f" Sums of {division.groups} taps of the inner dim meet in registers." if division.groups > 1 else ""
        return [
            f"{list(of.in_shape)} to {list(of.out_shape)}: every input by all {len(of.products)} taps at once,"
            f" {WORDS[self.scene.conv.math].about}, sums in fp32, added up in shared memory; warpgroup instructions, on"
            " compute capability 9.0 alone.",
            f"A block makes {CHANNELS} channels of {box} outputs: two warpgroups take every other row of inputs,"
            f" {POSITIONS} positions at a time, while another one copies what comes next into {division.slots} slots;"
            f" its weights stay in shared memory ({division.shared_bytes // 1024} KiB).{walked}",
        ]

    def _lines(self) -> list[str]:
        multiplying, staying = KEPT_REGISTERS if self.division.exact else (MULTIPLYING, COPYING)
        copying = [f"setmaxnreg_dec<{staying}>();", *self._each_item(self._copies())]
        return [
            *self._memory(),
            *self._start(),
            "int count = 0;  // of places that were filled",
            *block(f"if (team < {TEAMS})", [f"setmaxnreg_inc<{multiplying}>();", *self._multiplying()])[:-1],
            *block("} else", copying),
        ]

    def _memory(self) -> list[str]:
        division = self.division
        return [
            "extern __shared__ uint4 memory[];",
            "uint4* weights = memory;",
            f"float* slots = reinterpret_cast<float*>(weights + {division.weight_words // 4});  // for inputs",
            f"float* rows = slots + {division.slots * division.slot_words};  // of sums that more is added to",
            f"float* finished = rows + {division.rows_words};  // of each warpgroup, two rows",
            "unsigned long long* loaded = reinterpret_cast<unsigned long long*>(finished"
            f" + {division.finished_words});  // each slot",
            f"unsigned long long* done = loaded + {division.slots};  // with each slot",
            f"unsigned long long* turns = done + {division.slots};  // of warpgroups to add up",
            "const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, team = warp / 4;",
            f"const int part = blockIdx.x % {self.scene.parts};",
            f"const int first_channel = part * {CHANNELS};",
        ]

    def _start(self) -> list[str]:
        """Weights and barriers; what no copy ever fills of a slot is 0, as it is multiplied too."""
        division, scene = self.division, self.scene
        units, threads = division.weight_words // 4, division.threads
        begin = f"(reinterpret_cast<const uint4*>({scene.packed.name}) + part * {units})[p]"
        prepare = [
            f"for (int s = 0; s < {division.slots}; ++s) mbarrier_init(loaded + s, {WARPS}),"
            f" mbarrier_init(done + s, {TEAMS * THREADS});",
            f"for (int s = 0; s < {TEAMS}; ++s) mbarrier_init(turns + s, {THREADS});",
        ]
        words = division.slots * division.slot_words
        return [
            f"for (int p = threadIdx.x; p < {units}; p += {threads}) weights[p] = {begin};",
            f"for (int p = threadIdx.x; p < {words}; p += {threads}) slots[p] = 0;",
            *block("if (threadIdx.x == 0)", prepare),
            "fence_proxy_async();",
            "__syncthreads();",
        ]

    def _each_item(self, lines: list[str]) -> list[str]:
        scene, step = self.scene, self.scene.blocks_a_part
        first = f"blockIdx.x / {scene.parts}" if scene.parts > 1 else "blockIdx.x"
        head = f"for (int item = {first}; item < {self.division.items}; item += {step})"
        return block(head, [*self._place(), *lines])

    def _place(self) -> list[str]:
        """Of an item: its sample, its first output along each dim, and the inputs that those need."""
        division, (*_, last) = self.division, self.scene.dims
        boxes = math.prod(division.boxes)
        found = decoded("item" if division.of.batch == 1 else f"item % {boxes}", division.boxes)
        lines = ["const int n = item;" if boxes == 1 else f"const int n = item / {boxes};"]
        for dim, word, size, count in zip(self.scene.dims, found, division.box, division.boxes, strict=True):
            lines.append(f"const int box_{dim} = {times(f'({word})', size) if count > 1 else '0'};")
        lines += self._range("row", division.outer)
        if division.inner is not None:
            lines += self._range("plane", division.inner)
        shift = division.axis(division.last).shifts[0]
        return [*lines, f"const int first_column = {f'max(0, box_{last} - {-shift})' if shift else f'box_{last}'};"]

    def _range(self, name: str, dim: int) -> list[str]:
        axis, start = self.division.axis(dim), f"box_{self.scene.dims[dim]}"
        end = self.division.size(dim) + axis.shifts[-1]
        first = f"max(0, {start} - {-axis.shifts[0]})" if axis.shifts[0] else start
        return [f"const int first_{name} = {first}, last_{name} = min({axis.extent}, {start} + {end});"]

    # dims of the source

    @cached_property
    def _strides(self) -> tuple[int, int, int, int]:
        """Of the source: sample, channel, outer, inner."""
        whole, division = contiguous(self.division.of.in_shape), self.division
        inner = whole[2 + division.inner] if division.inner is not None else 0
        return whole[0], whole[1], whole[2 + division.outer], inner

    def _begin(self, channel: str, row: str) -> str:
        """The first element that is read of a channel in a row, as an offset in the source."""
        sample, of_channel, outer, inner = self._strides
        terms = [f"n * {sample}LL", times(channel, of_channel), times(row, outer), times("plane", inner)]
        return " + ".join([*filter(None, terms), "first_column"])

    # a warpgroup copies

    def _copies(self) -> list[str]:
        """Two rows at each place of the inner dim, whole sixteen bytes: what begins within some begins with them. All
        warps of a warpgroup share the channels, as a warp issues its lanes' copies one by one, by nine instructions."""
        division, source = self.division, self.scene.conv.source.name
        of_row = "" if division.is_joined else f" + s * {division.team_words}"
        lines = [
            f"const int slot = count % {division.slots};",
            f"mbarrier_wait(done + slot, count / {division.slots} % 2 ^ 1);",
            "const int both = min(2, last_row - row);",
            "int bytes = 0;",
            *self._each_channel(["bytes += size;"]),
            "bytes = __reduce_add_sync(0xffffffffu, bytes);",
            "if (lane == 0) mbarrier_expect_tx(loaded + slot, bytes);",
            *self._each_channel(
                [
                    f"float* to = slots + slot * {division.slot_words} + c * {division.pitch}{of_row};",
                    f"bulk_copy(to, {source} + from, size, loaded + slot);",
                ]
            ),
            "++count;",
        ]
        return self._walk(self._chunked(lines))

    def _walk(self, lines: list[str]) -> list[str]:
        if self.division.inner is not None:
            lines = block("for (int plane = first_plane; plane < last_plane; ++plane)", lines)
        return block("for (int row = first_row; row < last_row; row += 2)", lines)

    def _chunked(self, lines: list[str]) -> list[str]:
        division = self.division
        if division.chunks == 1:
            return lines
        return block(f"for (int chunk = 0; chunk < {division.chunks}; ++chunk)", lines)

    def _each_channel(self, lines: list[str]) -> list[str]:
        """Of a lane: where its run is `from`, and its `size` in bytes."""
        division = self.division
        channels = min(division.chunk * CHANNELS, division.of.in_channels)
        channel = f"(chunk * {channels} + c)" if division.chunks > 1 else "c"
        extent = division.axis(division.last).extent
        width = str(extent) if division.is_whole else f"min({POSITIONS}, {extent} - first_column)"
        count = f"both * {width}" if division.is_joined else width
        row = "row" if division.is_joined else "(row + s)"
        inner = [
            f"const long long begin = {self._begin(channel, row)}, from = begin / 4 * 4;",
            f"const int size = static_cast<int>((begin + {count} + 3) / 4 * 4 - from) * 4;",
            *lines,
        ]
        inner = inner if division.is_joined else block("for (int s = 0; s < both; ++s)", inner)
        return block(f"for (int c = lane * {WARPS} + warp % {WARPS}; c < {channels}; c += {WARPS * 32})", inner)

    # warpgroups multiply

    def _multiplying(self) -> list[str]:
        division = self.division
        item = [
            *self.adding.clear(EVERYONE),
            *block("for (int row = first_row; row < last_row; row += 2)", self._rows()),
            *self.adding.rest(EVERYONE),
        ]
        return [
            "int turn = 0;  // of adding up",
            f"const int own_column = warp % {WARPS} * 16 + lane / 4 * 2;  // and that behind it: of this lane's inputs",
            *self.adding.before(),
            f"float sums[{division.groups}][{division.columns // 2}];  // of each place of the inner dim",
            *self._each_item(item),
        ]

    def _rows(self) -> list[str]:
        """Every place of the inner dim by turns: sums of the one that no later input adds to leave."""
        division = self.division
        mine = "const bool mine = row + team < last_row;"
        if division.inner is None:
            return [mine, "constexpr int phase = 0;", *self._products("false"), *self.adding.lines()]
        pending = division.groups - 1
        inside = self._products("plane > first_plane")
        each = [
            "const int plane = begin_plane + phase;",
            f"if (plane >= last_plane + {pending}) break;" if pending else "",
            *(block("if (plane < last_plane)", inside) if pending else inside),
            *self.adding.lines(),
        ]
        over = f"for (int begin_plane = first_plane; begin_plane < last_plane + {pending};"
        head = f"{over} begin_plane += {division.groups})"
        return [mine, *block(head, unrolled("phase", str(division.groups), [line for line in each if line]))]

    def _products(self, adds: str) -> list[str]:
        """Of a row of inputs by all taps, chunk by chunk of their channels."""
        division = self.division
        step = STEP_UNITS * division.every_column
        at = f" + chunk * {division.chunk * step}" if division.chunks > 1 else ""
        described = f"const unsigned long long b = make_smem_desc(weights{at} + k * {step}, {division.every_column});"
        before, loaded = self._inputs()
        multiplied = self._kept(described, loaded, adds) if division.exact else self._rounded(described, loaded, adds)
        mine = [*before, *multiplied]
        lines = [
            f"const int slot = count % {division.slots};",
            f"mbarrier_wait(loaded + slot, count / {division.slots} % 2);",
            *block("if (mine)", mine)[:-1],
            *block("} else", ["mbarrier_arrive(done + slot);"]),
            "++count;",
        ]
        return self._chunked(lines) if division.chunks > 1 else block("", lines)

    def _rounded(self, described: str, loaded: list[str], adds: str) -> list[str]:
        """All taps of a chunk, added to what there is."""
        division, lines = self.division, list[str]()
        name, words = multiply_held(self._math), ", ".join(f"inputs[k][{i}]" for i in range(4))
        products = []
        for index, first, of_adds in self._groups(adds, "k > 0" if division.chunks == 1 else "k + chunk > 0"):
            products.append(f"{name}(sums[{index}], {words}, b + {first}, {of_adds});")
        for first, end in self._halves:
            head = f"for (int k = {first}; k < {end}; ++k)"
            lines += ["#pragma unroll", *block(head, loaded)]
            lines += ["mbarrier_arrive(done + slot);"] if end == division.chunk else []
            lines += ["wgmma_fence();", "#pragma unroll", *block(head, [described, *products]), "wgmma_commit();"]
        return [*lines, f"{FINISH}(sums);"]

    def _kept(self, described: str, loaded: list[str], adds: str) -> list[str]:
        """The same in float32: of a chunk by itself, what is small first, then added to what there is. Tensor cores cut
        something off at each addition: by a model of that P90's gradient is 1.6e-7 off so, 1.7e-6 if added at once."""
        division, count = self.division, self.division.columns // 2
        head = f"for (int k = 0; k < {division.chunk}; ++k)"
        lines = ["#pragma unroll", *block(head, loaded), "mbarrier_arrive(done + slot);", f"float fresh[1][{count}];"]
        for index, first, of_adds in self._groups(adds, "false" if division.chunks == 1 else "chunk > 0"):
            lines.append("wgmma_fence();")
            for number, (of_weight, of_input) in enumerate(PASSES):
                words = ", ".join(f"{'lower_' * of_input}inputs[k][{i}]" for i in range(4))
                at = first + of_weight * division.weight_units
                product = f"{multiply_held(self._math)}(fresh[0], {words}, b + {at}, {'true' if number else 'k > 0'});"
                lines += ["#pragma unroll", *block(head, [described, product])]
            lines += ["wgmma_commit();", f"{FINISH}(fresh);"]
            before = "" if of_adds == "false" else f"({of_adds} ? sums[{index}][i] : 0.0f) + "
            lines += unrolled("i", str(count), [f"sums[{index}][i] = {before}fresh[0][i];"])
        return lines

    def _groups(self, adds: str, later: str) -> list[tuple[str, int, str]]:
        """Of each place of the inner dim: its sums, its first column of weights, and when there is something in them:
        `later` in a row of inputs, or from rows before."""
        division, found = self.division, list[tuple[str, int, str]]()
        groups, inner = division.groups, [tap[0] for tap in division.taps]
        for group in dict.fromkeys(inner):
            index = f"(phase + {group}) % {groups}" if groups > 1 else "0"
            begins = group == groups - 1 or adds == "false"
            given = later if begins else adds if later == "false" else f"{later} || {adds}"
            found.append((index, inner.index(group) * CHANNELS, given))
        return found

    @property
    def _halves(self) -> list[tuple[int, int]]:
        """Of a chunk's steps: tensor cores begin with the first half while the second comes into registers."""
        half = self.division.chunk // 2
        return [(0, half), (half, self.division.chunk)] if half else [(0, 1)]

    def _inputs(self) -> tuple[list[str], list[str]]:
        """Into registers: two neighbouring positions of two channels of each step; nothing beyond a row. What comes
        before, and a step."""
        division = self.division
        row = "row" if division.is_joined else "(row + team)"
        chunk = f"chunk * {division.chunk * CHANNELS} + " if division.chunks > 1 else ""
        lane = f"({chunk}lane % 4)"
        extent = division.axis(division.last).extent
        lines = [
            f"const int before = static_cast<int>(({self._begin(lane, row)}) % 4);  // of what was copied with it",
            f"const float* own = slots + slot * {division.slot_words} + lane % 4 * {division.pitch}"
            f" + team * {division.team_words} + before + own_column;",
            f"unsigned inputs[{division.chunk}][4]{f', lower_inputs[{division.chunk}][4]' if division.exact else ''};",
        ]
        convert = WORDS[self.scene.conv.math].convert
        masks = ["", ""]
        if extent < POSITIONS or not division.is_whole:
            columns = str(extent) if division.is_whole else f"{extent} - first_column"
            lines.append(f"const unsigned inside = own_column < {columns} ? ~0u : 0u;  // bits that are kept")
            lines.append(f"const unsigned next_inside = own_column + 1 < {columns} ? ~0u : 0u;")
            masks = [" & inside", " & next_inside"]
        each = []
        for upper in (0, 1):
            at = f"own + k * {CHANNELS * division.pitch}" + (f" + {4 * division.pitch}" if upper else "")
            values = [f"({at})[0]", f"({at})[1]"]
            if self._is_even:
                each.append(f"const Pack<float, 2> pair_{upper} = *reinterpret_cast<const Pack<float, 2>*>({at});")
                values = [f"pair_{upper}.at[0]", f"pair_{upper}.at[1]"]
            for i in (0, 1):
                each += self._input(f"[k][{upper * 2 + i}]", f"{convert}({values[i]}){masks[i]}")
        return lines, each

    def _input(self, place: str, word: str) -> list[str]:
        if not self.division.exact:
            return [f"inputs{place} = {word};"]
        return [f"inputs{place} = tf32_high({word});", f"lower_inputs{place} = settled(tf32_low({word}));"]

    @property
    def _is_even(self) -> bool:
        """Whether every row begins with a pair of words that one load takes."""
        division = self.division
        first = [division.box[-1], division.axis(division.last).shifts[0]] if not division.is_whole else []
        return all(n % 2 == 0 for n in (*self._strides, division.team_words, *first))
