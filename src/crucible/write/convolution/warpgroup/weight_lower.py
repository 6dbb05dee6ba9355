"""The gradient of a convolution's weight as kernels for warpgroups: one makes parts of it, one adds them up."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from crucible.gpus import Gpu
from crucible.graph import ITEM_BYTES
from crucible.target.cuda import CUDA_TYPES, INCLUDES, PACK, block, indented, unrolled
from crucible.target.sm90 import ARCHITECTURE, MAKE_SMEM_DESC
from crucible.write.convolution.correlation import Correlation
from crucible.write.convolution.fused import arithmetic
from crucible.write.convolution.halo import decoded, times
from crucible.write.convolution.pieces import WORDS
from crucible.write.convolution.warpgroup import packing, pieces
from crucible.write.convolution.warpgroup.held import FINISH, held_products, multiply_held
from crucible.write.convolution.warpgroup.walks import ROWS, THREADS, WARPS
from crucible.write.convolution.warpgroup.weight_choice import weight_walk
from crucible.write.convolution.warpgroup.weight_moves import WARP_ROWS
from crucible.write.convolution.warpgroup.weight_shape import COLUMNS, TEAMS
from crucible.write.convolution.warpgroup.weight_staging import Copies, read
from crucible.write.convolution.warpgroup.weight_walks import WeightWalks
from crucible.write.convolution.windows import Spread
from crucible.write.kernel import Buffer, Kernel, Lowered
from crucible.write.program import Operand, contiguous


def weight_division(
    of: Correlation, source: Operand, grad: Operand, gpu: Gpu, spread: Spread | None = None
) -> WeightWalks | None:
    """How warpgroups would share the gradient of the weight; None where they do not serve it: GPUs without them,
    tensors that are not contiguous, groups, rows of an odd number of half types, sums that registers do not hold."""
    sizes = spread.sizes if spread else (1,) * len(of.axes)
    read = (*of.in_shape[:2], *(n // size for n, size in zip(of.in_shape[2:], sizes, strict=True)))
    if (source.strides, grad.strides) != (contiguous(read), contiguous(of.out_shape)):
        return None
    return weight_walk(of, ITEM_BYTES[source.dtype], gpu, spread)


def weight_parts_for_warpgroups(name: str, walks: WeightWalks, source: Operand, grad: Operand, result: str) -> Lowered:
    """The kernel that writes what each block has of the gradient `result`, and the buffer of that; source and `grad`
    are contiguous."""
    body = _Body(name, walks, source, grad, result, arithmetic(source.dtype, exact=False))
    return Lowered((body.kernel(),), (body.partial,))


@dataclass(frozen=True)
class _Body:
    name: str
    walks: WeightWalks
    source: Operand
    grad: Operand
    result: str
    math: str

    @property
    def partial(self) -> Buffer:
        """[block of a part][part][eight input channels of a tap][channel][8]"""
        walks = self.walks
        return Buffer(f"{self.result}_parts", "float32", walks.blocks_a_part * walks.parts * walks.part_words)

    @property
    def _copies(self) -> Copies:
        return Copies(self.walks, self.source, self.math)

    def kernel(self) -> Kernel:
        walks, type_ = self.walks, CUDA_TYPES[self.source.dtype]
        moves = f" The gradient's channels are rows {walks.moves.count} times, moved on." if walks.moves else ""
        moves += " The input is made of windows' gradients." if walks.windows else ""
        bulk = ", made of what bulk copies bring" if walks.raw else ""
        about = (
            f"The gradient of a weight of {len(walks.whole.products)} taps, by warpgroup instructions, on compute"
            f" capability 9.0 alone: a block adds up {ROWS} x {walks.channel_tiles * COLUMNS} channels for"
            f" {walks.outer * walks.inner} taps over boxes of {walks.walk}x{walks.rows}x{walks.width} positions,"
            f" {WORDS[self.math].about}. Two warpgroups hold the output's gradient in registers; the input is in shared"
            f" memory ({walks.shared_bytes // 1024} KiB), a copy for each tap of a row{bulk}.{moves}"
        )
        head = [
            *(f"// {line}" for line in textwrap.wrap(about, 104)),
            f"__global__ void __launch_bounds__({walks.threads}, 1) {self.name}(",
            f"        const {type_}* __restrict__ source, const {type_}* __restrict__ grad,"
            f"{' const unsigned char* __restrict__ choices,' if walks.windows else ''}",
            "        float* __restrict__ partial) {",
        ]
        text = "\n".join([*head, *indented(self._lines()), "}"])
        choices = [walks.windows.spread.choices] if walks.windows else []
        include = [INCLUDES[self.source.dtype]] if self.source.dtype in INCLUDES else []
        preamble = [*include, *packing.conversions(self.math), PACK, *pieces.BARRIERS,
                    MAKE_SMEM_DESC, *pieces.BEGIN, *pieces.REGISTERS, *(pieces.COPY_IN if walks.raw else ()),
                    *held_products(self.math, walks.columns, walks.chunks)]  # fmt: skip
        return Kernel(self.name, text, tuple(dict.fromkeys(preamble)), (self.source.name, self.grad.name, *choices),
                      (self.partial.name,), (walks.parts * walks.blocks_a_part, 1, 1), walks.threads,
                      walks.shared_bytes, ARCHITECTURE)  # fmt: skip

    def _lines(self) -> list[str]:
        walks = self.walks
        prepare = [
            f"for (int s = 0; s < {walks.slots}; ++s) mbarrier_init(loaded + s, {32 * walks.staging_warps}),"
            f" mbarrier_init(done + s, {TEAMS * THREADS});",
            f"mbarrier_init(multiplied, {TEAMS * THREADS});",
        ]
        if walks.raw:
            taken = f"mbarrier_init(taken + s, {32 * walks.staging_warps})"
            prepare.append(f"for (int s = 0; s < {walks.raw}; ++s) mbarrier_init(came + s, 1), {taken};")
        lines = [
            "extern __shared__ uint4 memory[];",
            "uint4* ring = memory;  // slots of planes",
            f"unsigned long long* loaded = reinterpret_cast<unsigned long long*>(ring + {walks.shared_units});",
            f"unsigned long long* done = loaded + {walks.slots};  // each slot is loaded, and done with",
            f"unsigned long long* multiplied = done + {walks.slots};  // is all",
            *self._copies.memory(),
            "const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;",
            f"const int part = blockIdx.x % {walks.parts};",
            f"const int first_channel = part / {walks.in_parts * walks.outer_parts} * {ROWS};",
            f"const int first_input = part / {walks.outer_parts} % {walks.in_parts} * {walks.channel_tiles * COLUMNS};",
            *([f"const int first_tap = part % {walks.outer_parts} * {walks.outer};"] * (walks.outer_parts > 1)),
            *block("if (threadIdx.x == 0)", prepare),
            "fence_proxy_async();",
            "__syncthreads();",
        ]
        loads = [f"setmaxnreg_dec<{walks.staging_registers}>();", *self._copies.lines()]
        branch = f"if (warp < {TEAMS * WARPS})"
        return [*lines, *block(branch, self._multiplies())[:-1], *block("} else", loads)]

    # multiplying

    def _waits(self) -> list[str]:
        """For the planes of input that are new: all of an item's first plane of the gradient."""
        walks = self.walks
        if walks.span == 1:
            return [f"mbarrier_wait(loaded + plane % {walks.slots}, plane / {walks.slots} % 2);"]
        new = walks.span - min(walks.strides[0], walks.span)
        first = f"t ? {new} : 0" if new else "0"
        wait = f"mbarrier_wait(loaded + (plane + k) % {walks.slots}, (plane + k) / {walks.slots} % 2);"
        return [f"for (int k = {first}; k < {walks.span}; ++k) {wait}"]

    def _multiplies(self) -> list[str]:
        walks = self.walks
        words = walks.depths * 2
        leave = f"t + 1 < planes ? {walks.strides[0]} : {walks.span}" if walks.span > walks.strides[0] else walks.span
        plane = [
            *self._waits(),
            *self._steps_of_team(),
            f"const int leave = {leave};  // planes of input that nothing later reads",
            f"for (int k = 0; k < leave; ++k) mbarrier_arrive(done + (plane + k) % {walks.slots});",
        ]
        item = [
            f"const int planes = {self._copies.planes}{'' if walks.each_once else f', steps = {self._steps}'};",
            *block(f"for (int t = 0; t < planes; ++t, plane += {walks.strides[0]})", plane),
            *([f"plane += {walks.span - walks.strides[0]};"] if walks.span > walks.strides[0] else []),
        ]
        return [
            f"setmaxnreg_inc<{walks.registers}>();",
            *self._rows(),
            f"float sums[{walks.chunks}][{walks.columns // 2}] = {{}};",
            f"unsigned coming[2][{words}];  // words of channel and channel + 8, of the next step of this warpgroup",
            f"int next_item = static_cast<int>(blockIdx.x) / {walks.parts}, next_t = 0;",
            *([] if walks.each_once else self._moves()),
            "const auto ask = [&] {  // for the next step's words, and on to that after it",
            *indented(self._ask()),
            "};",
            *([] if walks.each_once else ["move_on();"]),
            "ask();",
            "int plane = 0;",
            *([] if walks.each_once else ["int s = team;"]),
            *self._copies.each_item(read(self._copies.item(), item)),
            *self._store(),
        ]

    def _rows(self) -> list[str]:
        """Which of the gradient a thread has, with that which is 8 channels on."""
        walks = self.walks
        if not walks.moves:
            return ["const int team = warp / 4, channel = first_channel + warp % 4 * 16 + lane / 4;"]
        warps = walks.whole.out_channels // WARP_ROWS
        lines = [f"const int team = warp / 4, channel = {_rest('warp % 4', warps)} * {WARP_ROWS} + lane / 4;"]
        lines.append(f"const int move = warp % 4 / {warps};  // by how many positions it is on")
        along = (range(1), *walks.moves.along)[-3:]
        words = decoded("move", walks.moves.places)
        for name, word, each in zip(("plane", "row"), words, along, strict=False):
            if len(each) > 1:
                lines.append(f"const int {name}_move = {word}{f' - {-each[0]}' if each[0] else ''};")
        return lines

    def _steps_of_team(self) -> list[str]:
        """Of a plane; the warpgroups take turns from one plane to the next."""
        if self.walks.each_once:
            return block("", self._step("team"))
        return [*block(f"for (; s < steps; s += {TEAMS})", self._step("s")), "s -= steps;"]

    @property
    def _steps(self) -> str:
        """Of a plane: those that have positions."""
        walks = self.walks
        if walks.outputs[1] % walks.rows == 0:
            return str(walks.steps)
        more = f" + {walks.step_rows - 1}" if walks.step_rows > 1 else ""
        return f"min({walks.steps}, ({walks.outputs[1]} - box_h{more}) / {walks.step_rows})"

    def _moves(self) -> list[str]:
        walks = self.walks
        advance = [
            f"const int planes = {self._copies.planes}, steps = {self._steps};",
            "if (next_s < steps) break;",
            "next_s -= steps;",
            f"if (++next_t == planes) next_t = 0, next_item += {walks.blocks_a_part};",
        ]
        loop = block(f"while (next_item < {walks.items})", read(self._copies.item("next_item"), advance))
        return ["int next_s = team;", "const auto move_on = [&] {  // to a step that there is", *indented(loop), "};"]

    def _ask(self) -> list[str]:
        """A lane's words are neighbours in memory; the order of the positions is that in which the input is staged."""
        walks, grad, vector = self.walks, self.grad, self.walks.vector
        rows = walks.step_rows
        terms = [f"n * {grad.strides[0]}LL", f"channel * {grad.strides[1]}LL"]
        places, outputs = walks.moves.places if walks.moves else (1, 1, 1), walks.whole.axes
        on = " + plane_move" if places[0] > 1 else ""
        names = (f"(first_plane + next_t{on})", "row", "w")[-len(outputs) :]
        terms += [times(name, stride) for name, stride in zip(names, grad.strides[2:], strict=True)]
        step = 4 * vector * walks.per_word
        tests = []
        if walks.moves:
            tests += [f"move < {walks.moves.count}"] if walks.of.out_channels < ROWS else []
        elif walks.of.out_channels % ROWS:
            tests.append(f"channel + i * 8 < {walks.of.out_channels}")
        if on:
            tests.append(f"static_cast<unsigned>{names[0]} < {outputs[0].outputs}")
        if places[1] > 1:
            tests.append(f"static_cast<unsigned>(row + r) < {outputs[-2].outputs}")
        elif walks.places[1] * walks.rows > walks.outputs[1]:
            tests.append(f"row + r < {walks.outputs[1]}")
        if walks.places[2] * walks.width > walks.outputs[2]:
            tests.append(f"w + q * {step} < {walks.outputs[2]}")
        guard = f"if ({' && '.join(tests)}) " if tests else ""
        loads = walks.depths_a_row * 2 // vector
        type_ = {1: "unsigned", 2: "uint2", 4: "uint4"}[vector]
        moved = f"i * {8 * grad.strides[1]} + r * {grad.strides[-2] if len(names) > 1 else 0} + q * {step}"
        parts = ["words"] if vector == 1 else [f"words.{part}" for part in "xyzw"[:vector]]
        at = f"(r * {loads} + q) * {vector}"
        each = [
            f"{type_} words = {{}};",
            f"{guard}words = *reinterpret_cast<const {type_}*>(from + {moved});",
            *(f"coming[i][{at}{f' + {n}' if n else ''}] = {part};" for n, part in enumerate(parts)),
        ]
        loop = [
            f"const auto* from = grad + {' + '.join(terms)};",
            *unrolled("i", "2", unrolled("r", str(rows), unrolled("q", str(loads), each))),
        ]
        row = f"const int row = box_h + {'team' if walks.each_once else 'next_s'} * {rows}"
        row += " + row_move;" if places[1] > 1 else ";"
        loop = read([row, f"const int w = box_w + lane % 4 * {vector * walks.per_word};"], loop)
        if walks.each_once:
            on = f"if (++next_t == {self._copies.planes}) next_t = 0, next_item += {walks.blocks_a_part};"
            lines = read(self._copies.item("next_item"), [*loop, on])
        else:
            lines = [*read(self._copies.item("next_item"), loop), f"next_s += {TEAMS};", "move_on();"]
        return block(f"if (next_item < {walks.items})", lines)

    def _step(self, number: str) -> list[str]:
        walks = self.walks
        words = walks.depths * 2
        convert = "rounded(__uint_as_float(coming[i][k]))" if walks.item == 4 else "coming[i][k]"
        lines = [
            f"unsigned words[2][{words}];",
            *unrolled("i", "2", unrolled("k", str(words), [f"words[i][k] = {convert};"])),
            "ask();",
            *(
                [f"const int row = {times(number, walks.step_rows * walks.strides[1])};  // of the plane's input"]
                * (walks.steps > 1)
            ),
            *self._described(),
            "wgmma_fence();",
        ]
        for r in range(walks.step_rows):
            for depth in range(walks.depths_a_row):
                lines += self._products(r, depth)
        return [*lines, "wgmma_commit();", f"{FINISH}(sums);"]

    def _described(self) -> list[str]:
        """The input of each outer tap, of the step's first row."""
        walks = self.walks
        planes, rows, _ = walks.taps
        inner_rows = 1 if walks.together else len(rows.numbers)
        lines = []
        for number in range(walks.outer):
            if walks.outer_parts == 1:
                plane, row = number // inner_rows * planes.spacing, number % inner_rows * rows.spacing
                moved = f"plane + {plane}" if plane else "plane"
                down = f" + {row}" if row else ""
            else:
                tap = f"min(first_tap + {number}, {walks.all_outer - 1})"
                moved = f"plane + {tap} / {inner_rows} * {planes.spacing}"
                down = f" + {tap} % {inner_rows} * {rows.spacing}" if inner_rows > 1 else ""
            first = "row" if walks.steps > 1 else "0"
            at = f"ring + ({moved}) % {walks.slots} * {walks.slot_units} + ({first}{down}) * {walks.row_units}"
            lines.append(f"const unsigned long long b_{number} = make_smem_desc({at}, {walks.half_units});")
        return lines

    def _products(self, row: int, depth: int) -> list[str]:
        """By one instruction's positions."""
        walks = self.walks
        k = (row * walks.depths_a_row + depth) * 2
        a = f"words[0][{k}], words[1][{k}], words[0][{k + 1}], words[1][{k + 1}]"
        lines = []
        for tile in range(walks.channel_tiles):
            at = tile * walks.tile_units + depth * 2 * walks.half_units + row * walks.strides[1] * walks.row_units
            for number in range(walks.outer):
                chunk = tile * walks.outer + number
                moved = f" + {at}" if at else ""
                lines.append(f"{multiply_held(self.math)}(sums[{chunk}], {a}, b_{number}{moved}, true);")
        return lines

    # what is left

    def _store(self) -> list[str]:
        """The second warpgroup's sums go to the first one through shared memory, when nothing else there is read."""
        walks = self.walks
        count = walks.columns // 2
        lanes = WARPS * 32
        each = [f"totals[(c * {count} + i) * {lanes} + threadIdx.x % {lanes}]"]
        chunks = str(walks.chunks)
        given = unrolled("c", chunks, unrolled("i", str(count), [f"{each[0]} = sums[c][i];"]))
        taken = unrolled("c", chunks, unrolled("i", str(count), [f"sums[c][i] += {each[0]};"]))
        tile = [
            f"float* to = into + ((c * {walks.inner} + j) * {ROWS} + warp % 4 * 16 + lane / 4) * {COLUMNS}"
            " + lane % 4 * 2;",
            "*reinterpret_cast<float2*>(to) = make_float2(sums[c][j * 4], sums[c][j * 4 + 1]);",
            f"*reinterpret_cast<float2*>(to + {8 * COLUMNS}) = make_float2(sums[c][j * 4 + 2], sums[c][j * 4 + 3]);",
        ]
        return [
            "float* totals = reinterpret_cast<float*>(ring);",
            "mbarrier_arrive(multiplied);",
            "mbarrier_wait(multiplied, 0);",
            *block("if (team == 1)", given),
            "mbarrier_arrive(multiplied);",
            "if (team == 1) return;",
            "mbarrier_wait(multiplied, 1);",
            *taken,
            f"float* into = partial + blockIdx.x * {walks.part_words}LL;",
            *unrolled("c", chunks, unrolled("j", str(walks.inner), tile)),
        ]


def _rest(word: str, count: int) -> str:
    return f"{word} % {count}" if count > 1 else "0"
