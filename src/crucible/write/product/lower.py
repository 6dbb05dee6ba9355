"""A product of matrices as kernels for warpgroups: float32 by three products of TF32, sums promoted to float32."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from crucible.gpus import Gpu
from crucible.target.cuda import block, indented, unrolled
from crucible.write.convolution.warpgroup import held, pieces
from crucible.write.kernel import BLOCK, Buffer, Entry, Kernel, Lowered, entered
from crucible.write.product.division import PROMOTED, STAGES, STEP, TILE, ProductDivision, divided
from crucible.write.product.matrix import Product
from crucible.write.steps import Steps

CONSUMERS, PRODUCERS = 2, 2
"""Warpgroups that multiply, and that stage."""
THREADS = 128 * (CONSUMERS + PRODUCERS)
CONSUMER_REGISTERS, PRODUCER_REGISTERS = 176, 80
CHUNKS = STEP // 4
"""Of sixteen bytes, along the depth of a step."""
CHUNK_UNITS = TILE + 1
"""Units of sixteen bytes from a chunk to the next: one more than columns, so that eight chunks go to all banks."""
ROW_PITCH, LINE_PITCH = STEP + 4, TILE + 8
"""Words from a row of the left operand to the next, where its depth are neighbours; from a line of 128 rows to the
next, where rows are: fragments are read without bank conflicts."""
FINISH_THREADS = 256
ARCHITECTURE = "sm_90a"


def lower_product(product: Product, gpu: Gpu) -> Lowered:
    """The kernels: one multiplies, a second adds parts of the depth up where there are several."""
    division = divided(product, gpu)
    text = _Text(division)
    if division.parts == 1:
        return Lowered((text.kernel(),), (), text.notes)
    elements = product.batch * product.rows * product.columns
    parts = Buffer(f"{product.result}_parts", "float32", division.parts * elements)
    return Lowered((text.kernel(parts), _finish(division, parts)), (parts,), text.notes)


def lower_product_backward(product: Product, wanted: tuple[str, ...], upstream: str, gpu: Gpu) -> Steps:
    """The gradients of those operands that are wanted, as `grad_<operand>`."""
    made = [product.gradient(name, upstream) for name in wanted]
    return Steps(tuple(lower_product(each, gpu) for each in made), (), tuple(each.result for each in made))


@dataclass(frozen=True)
class _Text:
    """The kernel that multiplies."""

    division: ProductDivision

    @property
    def product(self) -> Product:
        return self.division.product

    @property
    def left_is_deep(self) -> bool:
        """Whether along the depth its elements are neighbours."""
        return self.product.left.strides[2] == 1

    @property
    def right_is_deep(self) -> bool:
        return self.product.right.strides[2] == 1

    @property
    def left_units(self) -> int:
        return (TILE * ROW_PITCH if self.left_is_deep else STEP * LINE_PITCH) // 4

    @property
    def slot_units(self) -> int:
        """Of sixteen bytes: the left operand as it is, the higher words of the right one, its lower ones."""
        return self.left_units + 2 * CHUNKS * CHUNK_UNITS

    @property
    def notes(self) -> tuple[str, ...]:
        product, division = self.product, self.division
        batch = f"{product.batch} products of " if product.batch > 1 else ""
        parts = f", the depth in {division.parts} parts that are added up in order" if division.parts > 1 else ""
        return (
            f"{batch}{product.rows} x {product.depth} by {product.depth} x {product.columns}, each product of float32"
            f" as three of TF32, sums promoted to float32 every {PROMOTED * STEP} of the depth; warpgroup"
            " instructions, on compute capability 9.0 alone.",
            f"A block makes {TILE} x {TILE} at a time{parts}: {CONSUMERS} warpgroups multiply 64 rows each, from"
            f" registers, by columns that {PRODUCERS} others have split and stored, {STEP} of the depth at a time in"
            f" {STAGES} slots ({STAGES * self.slot_units * 16 // 1024} KiB).",
        )

    def kernel(self, parts: Buffer | None = None) -> Kernel:
        product = self.product
        before = [pieces.ADDRESS, pieces.BARRIERS, pieces.PUBLISH, pieces.DESCRIBE, pieces.BEGIN, pieces.REGISTERS]
        before += [pieces.HIGHER_AND_LOWER, pieces.SETTLED, *held.held_products("tf32", TILE, 1)]
        comment = [f"// {line}" for sentence in self.notes for line in textwrap.wrap(sentence, 104)]
        head = [
            f"__global__ void __launch_bounds__({THREADS}, 1) {product.name}(",
            "        const float* __restrict__ left, const float* __restrict__ right, float* __restrict__ result) {",
        ]
        text = "\n".join([*comment, *head, *indented(self._lines()), "}"])
        written = parts.name if parts else product.result
        return Kernel(
            product.name, text, tuple(before), (product.left.name, product.right.name), (written,),
            (self.division.blocks, 1, 1), THREADS, STAGES * self.slot_units * 16, ARCHITECTURE,
        )  # fmt: skip

    def _lines(self) -> list[str]:
        prepare = [
            f"for (int s = 0; s < {STAGES}; ++s) {{",
            f"    prepare(loaded + s, {PRODUCERS * 128});",
            f"    prepare(done + s, {CONSUMERS * 128});",
            "}",
        ]
        return [
            "extern __shared__ uint4 memory[];  // slots: left as it is, right's higher words, its lower ones",
            f"__shared__ unsigned long long loaded[{STAGES}], done[{STAGES}];",
            f"constexpr int slot_units = {self.slot_units}, right_units = {self.left_units};  // of 16 bytes",
            f"constexpr int lower_units = {CHUNKS * CHUNK_UNITS};  // from the higher words on",
            "const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;",
            *block("if (threadIdx.x == 0)", prepare),
            "publish();",
            "__syncthreads();",
            *block(f"if (warp >= {CONSUMERS * 4})", [f"leave_registers<{PRODUCER_REGISTERS}>();", *self._produce()])[
                :-1
            ],
            *block("} else", [f"take_registers<{CONSUMER_REGISTERS}>();", *self._consume()]),
        ]

    # what blocks take

    def _item(self) -> list[str]:
        """Declares what an item is: all rows of some columns first, so that the right operand is read once."""
        division, product = self.division, self.product
        lines, tile = [], "item"
        if division.parts > 1:
            tile = "tile"
            lines += [f"const int tile = item % {division.tiles}, part = item / {division.tiles};"]
        lines.append(f"const int first_row = {_part(tile, 1, division.row_tiles)} * {TILE};")
        lines.append(f"const int first_column = {_part(tile, division.row_tiles, division.column_tiles)} * {TILE};")
        if product.batch > 1:
            lines.append(f"const int b = {tile} / {division.row_tiles * division.column_tiles};")
        return lines

    def _steps(self) -> tuple[str, str]:
        """The first step of an item and the one behind its last."""
        steps, parts = self.division.steps, self.division.parts
        if parts == 1:
            return "0", str(steps)
        return f"part * {steps} / {parts}", f"(part + 1) * {steps} / {parts}"

    def _each_step(self, before: list[str], lines: list[str], after: list[str]) -> list[str]:
        first, behind = self._steps()
        loop = block(f"for (int step = {first}; step < {behind}; ++step)", lines)
        items = f"for (int item = blockIdx.x; item < {self.division.items}; item += {self.division.blocks})"
        return block(items, [*self._item(), *before, *loop, *after])

    @staticmethod
    def _next_slot() -> str:
        return f"if (++slot == {STAGES}) slot = 0, phase ^= 1;"

    # staging

    def _produce(self) -> list[str]:
        """What is loaded in a step is stored in the next one, when it has come."""
        store = [
            *block("if (is_there)", ["wait(done + slot, phase ^ 1);", *self._store(), "publish();",
                                     "arrive(loaded + slot);", self._next_slot()]),
        ]  # fmt: skip
        move = unrolled("i", "4", ["left_words[i] = next_left[i], right_words[i] = next_right[i];"])
        return [
            f"const int thread = threadIdx.x - {CONSUMERS * 128};",
            *self._own_place(),
            "uint4 left_words[4], right_words[4];  // on their way",
            "bool is_there = false;",
            "int slot = 0, phase = 0;",
            *self._each_step([], ["uint4 next_left[4], next_right[4];", *self._load(), *store, *move,
                                  "is_there = true;"], []),
            *store,
        ]  # fmt: skip

    def _own_place(self) -> list[str]:
        """Where a thread's words of the right operand go. Loads are whole lines of 128 bytes, stores of eight lanes go
        to all banks: eight chunks of a column, or four chunks of two columns four apart."""
        chunk, column = "thread % 8", "thread / 8"
        if not self.right_is_deep:
            chunk, column = "thread % 4 + thread / 32 % 2 * 4", "(thread / 4 % 8 + thread / 64 * 8) * 4"
        return [f"const int own_chunk = {chunk}, own_column = {column};  // of the right operand"]

    def _load(self) -> list[str]:
        product = self.product
        left = self._load_side("left", "first_row", product.rows, product.left.strides, self.left_is_deep, False)
        right = self._load_side(
            "right", "first_column", product.columns, product.right.strides, self.right_is_deep, True
        )
        return [*unrolled("i", "4", left), *unrolled("i", "4", right)]

    def _load_side(
        self, name: str, first: str, lines: int, strides: tuple[int, ...], is_deep: bool, is_turned: bool
    ) -> list[str]:
        """Four neighbours along the depth of a row, or of rows; of the right operand then four of the depth, which
        a thread turns."""
        depth = self.product.depth
        if is_deep:
            own = "own_column" if is_turned else "thread / 8"
            row, k = f"{first} + {own} + i * 32", f"step * {STEP} + thread % 8 * 4"
        elif is_turned:
            row, k = f"{first} + own_column", f"step * {STEP} + own_chunk * 4 + i"
        else:
            row, k = f"{first} + thread % 32 * 4", f"step * {STEP} + thread / 32 + i * 8"
        tests = [f"row < {lines}"] if lines % TILE else []
        tests += [f"k < {depth}"] if depth % STEP else []
        at = f"row * {strides[1]}LL + k" if is_deep else f"row + k * {strides[2]}LL"
        at = f"b * {strides[0]}LL + {at}" if self.product.batch > 1 else at
        value = f"*reinterpret_cast<const uint4*>({name} + {at})"
        guarded = f"{' && '.join(tests)} ? {value} : uint4{{}}" if tests else value
        return [f"const int row = {row}, k = {k};", f"next_{name}[i] = {guarded};"]

    def _store(self) -> list[str]:
        words = ["uint4* at = memory + slot * slot_units;"]
        if self.left_is_deep:
            place = f"(thread / 8 + i * 32) * {ROW_PITCH // 4} + thread % 8"
        else:
            place = f"(thread / 32 + i * 8) * {LINE_PITCH // 4} + thread % 32"
        words += unrolled("i", "4", [f"at[{place}] = left_words[i];"])
        words.append(f"uint4* to = at + right_units + own_chunk * {CHUNK_UNITS} + own_column;")
        if self.right_is_deep:
            each = ["to[i * 32] = higher(right_words[i]);", "to[i * 32 + lower_units] = lower(right_words[i]);"]
            return [*words, *unrolled("i", "4", each)]
        for j, word in enumerate("xyzw"):
            turned = ", ".join(f"right_words[{i}].{word}" for i in range(4))
            words += [f"const uint4 column_{j} = {{{turned}}};"]
            words += [f"to[{j}] = higher(column_{j});", f"to[{j} + lower_units] = lower(column_{j});"]
        return words

    # multiplying

    def _consume(self) -> list[str]:
        promoted = unrolled("i", "64", ["totals[i] += sums[0][i];"])
        first, behind = self._steps()
        since = "step" if first == "0" else f"(step - {first})"
        ends = f"{since} % {PROMOTED} == {PROMOTED - 1} || step == {behind} - 1"
        step = [
            "wait(loaded + slot, phase);",
            "const uint4* at = memory + slot * slot_units;",
            *self._fragments(),
            "begin_products();",
            f"const unsigned long long higher_columns = describe(at + right_units, {CHUNK_UNITS});",
            f"const unsigned long long lower_columns = describe(at + right_units + lower_units, {CHUNK_UNITS});",
            *unrolled("s", "4", self._products(since)),
            "commit_products();",
            f"{held.FINISH}(sums);",
            "arrive(done + slot);",
            self._next_slot(),
            *block(f"if ({ends})", promoted),
        ]
        before = ["float totals[64] = {};"]
        return [
            "const int own_row = warp * 16 + lane / 4;  // and eight below it",
            "float sums[1][64] = {};",
            "int slot = 0, phase = 0;",
            *self._each_step(before, step, self._results()),
        ]

    def _fragments(self) -> list[str]:
        """Of the left operand, as mma.sync has them: rows r and r + 8, k and k + 4."""
        across, down = (1, ROW_PITCH) if self.left_is_deep else (LINE_PITCH, 1)
        row = f"own_row * {down}" if down > 1 else "own_row"
        lane = f"lane % 4 * {across}" if across > 1 else "lane % 4"
        words = [f"words[s * {8 * across} + {8 * down * (i % 2) + 4 * across * (i // 2)}]" for i in range(4)]
        each = [f"const unsigned word[4] = {{{', '.join(words)}}};"]
        split = ["upper[s][i] = settled(higher(word[i]));", "rest[s][i] = settled(lower(word[i]));"]
        return [
            f"const unsigned* words = reinterpret_cast<const unsigned*>(at) + {row} + {lane};",
            "unsigned upper[4][4], rest[4][4];",
            *unrolled("s", "4", [*each, *unrolled("i", "4", split)]),
        ]

    @staticmethod
    def _products(since: str) -> list[str]:
        """The smallest first."""
        name, lines = held.multiply_held("tf32"), []
        move = f"s * {2 * CHUNK_UNITS}"
        for words, columns, adds in (
            ("rest", "higher_columns", f"s > 0 || {since} % {PROMOTED} > 0"),
            ("upper", "lower_columns", "true"),
            ("upper", "higher_columns", "true"),
        ):
            held_words = ", ".join(f"{words}[s][{i}]" for i in range(4))
            lines.append(f"{name}(sums[0], {held_words}, {columns} + {move}, {adds});")
        return lines

    def _results(self) -> list[str]:
        """A thread has two rows, of each eight columns two."""
        product, division = self.product, self.division
        batch, row_stride = product.result_strides
        if division.parts > 1:
            batch, row_stride = product.rows * product.columns, product.columns
        places = [f"part * {product.batch * product.rows * product.columns}LL"] if division.parts > 1 else []
        places += [f"b * {batch}LL"] if product.batch > 1 else []
        places += [f"row * {row_stride}LL", "column"]
        tests = ["row < " + str(product.rows)] if product.rows % TILE else []
        tests += ["column < " + str(product.columns)] if product.columns % TILE else []
        store = [
            "const int row = first_row + own_row + r * 8, column = first_column + j * 8 + lane % 4 * 2;",
            *([f"if (!({' && '.join(tests)})) continue;"] if tests else []),
            f"*reinterpret_cast<float2*>(result + {' + '.join(places)}) ="
            " make_float2(totals[j * 4 + r * 2], totals[j * 4 + r * 2 + 1]);",
        ]
        return unrolled("r", "2", unrolled("j", "16", store))


def _part(of: str, step: int, count: int) -> str:
    """Digit of a number: `of / step % count`."""
    if count == 1:
        return "0"
    return f"{of} % {count}" if step == 1 else f"{of} / {step} % {count}"


def _finish(division: ProductDivision, parts: Buffer) -> Kernel:
    """Adds up what was made of each part of the depth, in order."""
    product = division.product
    elements = product.batch * product.rows * product.columns
    batch, row = product.result_strides
    fours = product.columns // 4
    into = [f"i / {fours * product.rows} * {batch}LL"] if product.batch > 1 else []
    into += [f"{_part('i', fours, product.rows)} * {row}LL", f"i % {fours} * 4"]
    name = f"{product.name}_finish"
    adds = [
        f"const float4 more = from[part * {elements // 4}LL];",
        "total.x += more.x, total.y += more.y, total.z += more.z, total.w += more.w;",
    ]
    lines = [
        f"    const int i = {BLOCK} * {FINISH_THREADS} + threadIdx.x;  // of whole fours",
        f"    if (i >= {elements // 4}) return;",
        "    const float4* from = reinterpret_cast<const float4*>(parts) + i;",
        "    float4 total = from[0];",
        "#pragma unroll",
        *indented(block(f"for (int part = 1; part < {division.parts}; ++part)", adds)),
        f"    *reinterpret_cast<float4*>(result + {' + '.join(into)}) = total;",
    ]
    parameters = (("const float* __restrict__", "parts"), ("float* __restrict__", "result"))
    note = f"// Adds up what was made of {division.parts} parts of the depth, in order."
    blocks = -(-(elements // 4) // FINISH_THREADS)
    entry = Entry(parameters, tuple(lines), (note,))
    return entered(name, entry, (), (parts.name,), (product.result,), blocks, FINISH_THREADS)
