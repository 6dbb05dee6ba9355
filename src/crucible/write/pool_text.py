"""What the kernels of pools have in common: how threads lie over windows, and the text of indices and accesses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from crucible.write.cuda import Emitted, emit
from crucible.write.expression import Expr
from crucible.write.kernel import Kernel
from crucible.write.pool import Pool, Window
from crucible.write.program import Operand, reads

THREADS = 256
TYPES = {"float32": "float", "float64": "double", "float16": "__half", "bfloat16": "__nv_bfloat16", "int32": "int",
         "uint8": "unsigned char"}  # fmt: skip
BYTES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int32": 4, "uint8": 1}
_READ = {"float16": "__half2float({})", "bfloat16": "__bfloat162float({})"}
_ROUNDED = {"float16": "__float2half_rn({})", "bfloat16": "__float2bfloat16_rn({})"}
_INCLUDES = {"float16": "#include <cuda_fp16.h>", "bfloat16": "#include <cuda_bf16.h>"}
PACK = """\
template <typename T, int N, int Bytes = sizeof(T) * N>
struct alignas(Bytes % 16 == 0 ? 16 : Bytes % 8 == 0 ? 8 : Bytes % 4 == 0 ? 4 : 2) Pack {
    T at[N];  // neighbours, read and written by as few accesses as their size allows
};"""
_LOCALS = (
    "item", "row", "first", "n", "c", "d", "h", "w", "plane", "in_d", "in_h", "in_w", "kd", "kh", "kw", "k", "j",
    "end_d", "end_h", "end_w", "count", "largest", "smallest", "total", "value", "pooled", "result", "result_row",
    "best", "choice", "chosen", "share", "share_of", "element_share", "Pack", "max_nan", "min_nan",
)  # fmt: skip
_DERIVED = ("value", "row", "at", "chosen", "gradient", "sum", "gradient_of")
LARGEST_ROW = 16
"""Elements of a row that a thread holds in registers."""


def indented(lines: Iterable[str]) -> list[str]:
    """One level deeper; directives stay at the margin."""
    return [line if line.startswith("#") or not line else f"    {line}" for line in lines]


def block(head: str, inner: Iterable[str]) -> list[str]:
    return [f"{head} {{", *indented(inner), "}"]


def unrolled(variable: str, count: int, inner: Sequence[str]) -> list[str]:
    return ["#pragma unroll", *block(f"for (int {variable} = 0; {variable} < {count}; ++{variable})", inner)]


@dataclass(frozen=True)
class Frame:
    """A pool (its outer dims collapsed), and how threads lie over it: each takes `lanes` windows along the last dim."""

    pool: Pool
    lanes: int
    rows: bool
    """Whether a thread goes over the elements of all its windows along the last dim in one loop, and reads those of
    the leading operand as one Pack."""
    tensors: tuple[str, ...]
    """All names that become parameters of the function."""

    @property
    def windows(self) -> tuple[Window, ...]:
        return self.pool.windows

    @property
    def rank(self) -> int:
        return len(self.pool.outer)

    @property
    def row_elements(self) -> int:
        """Elements of a thread's windows along the last dim."""
        return self.lanes * self.windows[-1].size

    @cached_property
    def dims(self) -> tuple[str, ...]:
        """Names of output dims."""
        outer = {0: (), 1: ("plane",), 2: ("n", "c")}.get(self.rank)
        if outer is None:
            outer = ("n", *(f"n{i}" for i in range(1, self.rank - 1)), "c")
        return (*outer, *self.spatial)

    @property
    def spatial(self) -> tuple[str, ...]:
        return ("d", "h", "w")[3 - len(self.windows) :]

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Output dims from the slowest to the fastest, by the strides of the largest tensor that is read."""
        return slow_to_fast(leading(self.pool).strides)

    @cached_property
    def wide(self) -> bool:
        """Whether 32 bits are too few for an index."""
        pool = self.pool
        ends = [extent(each.strides, pool.input_shape) for each in pool.operands]
        ends += [extent(each.strides, pool.output_shape) for each in pool.after_operands]
        ends.append(extent(pool.result.strides, pool.output_shape))
        return max(*ends, math.prod(pool.input_shape), math.prod(pool.output_shape)) >= 2**31 - 2**16

    @property
    def index(self) -> str:
        return "long long" if self.wide else "int"

    @property
    def real(self) -> str:
        """The type that is computed in."""
        return TYPES[self.pool.precision]

    @cached_property
    def parameters(self) -> dict[str, str]:
        """What each tensor is called inside of the function."""
        taken = {*_LOCALS, *self.dims, *(f"{name}_{end}" for name in self.tensors for end in _DERIVED)}
        found: dict[str, str] = {}
        for name in self.tensors:
            word = name
            while word in taken:
                word += "_"
            taken.add(word)
            found[name] = word
        return found

    # indices

    def offset(self, words: Sequence[str], strides: Sequence[int], shape: Sequence[int]) -> str:
        """The sum of words times strides."""
        suffix = "LL" if self.wide else ""
        terms = [
            word if stride == 1 else f"{word} * {stride}{suffix}"
            for word, stride, size in zip(words, strides, shape, strict=True)
            if stride and size > 1
        ]
        return " + ".join(terms) or "0"

    def lane(self, dim: str) -> str:
        return "(w + j)" if self.lanes > 1 and dim == "w" else dim

    def of_window(self, strides: Sequence[int]) -> str:
        """The place of a window's value in a tensor laid over the output."""
        return self.offset([self.lane(dim) for dim in self.dims], strides, self.pool.output_shape)

    def of_outer(self, strides: Sequence[int]) -> str:
        return self.offset(self.dims[: self.rank], strides[: self.rank], self.pool.outer)

    def counts(self) -> list[int]:
        """How many items there are along each output dim."""
        *before, last = self.pool.output_shape
        return [*before, last // self.lanes]

    def items(self) -> int:
        return math.prod(self.counts())

    def coordinates(self, item: str, dims: Sequence[int]) -> list[str]:
        """Declares the names of some output dims, given from slow to fast, from an index that counts through them."""
        counts, words, step = self.counts(), [], 1
        total = math.prod(counts[dim] for dim in dims)
        for dim in reversed(dims):
            word = item if step == 1 else f"{item} / {step}"
            step *= counts[dim]
            word = word if step == total else f"{word} % {counts[dim]}"
            if counts[dim] == 1:
                word = "0"
            if dim == len(counts) - 1 and self.lanes > 1:
                word = f"{word} * {self.lanes}"
            words.append(f"{self.dims[dim]} = {word}")
        named = [word for word in words if not word.endswith("= 0")]
        return [f"const int {', '.join(named)};"] if named else []

    # accesses

    def packed(self, strides: Sequence[int], shape: Sequence[int], elements: int, dtype: str) -> bool:
        """Whether so many neighbours along the last dim can be read at once, wherever a thread's begin."""
        return elements > 1 and strides[-1] == 1 and fits(strides, shape, elements, BYTES[dtype])

    def row_packed(self, operand: Operand) -> bool:
        """Whether a thread reads an operand's elements along the last dim as one Pack."""
        return self.rows and self.packed(operand.strides, self.pool.input_shape, self.row_elements, operand.dtype)

    def read(self, dtype: str, word: str) -> str:
        """A value as it is computed with."""
        return _READ.get(dtype, "{}").format(word)

    def stored(self, dtype: str, word: str) -> str:
        """A value as it is stored."""
        return _ROUNDED.get(dtype, "{}").format(word)

    # text of chains

    def chain(self, results: Mapping[str, Expr], names: Mapping[str, str]) -> Emitted:
        """Statements; `results` that are a leaf are left to `word`."""
        reserved = [*_LOCALS, *self.dims, *self.parameters.values()]
        reserved += [f"{name}_{end}" for name in self.tensors for end in _DERIVED if f"{name}_{end}" not in results]
        return emit(results, names, reserved=reserved)


def slow_to_fast(strides: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(range(len(strides)), key=lambda dim: -strides[dim]))


def leading(pool: Pool) -> Operand:
    """The operand by whose layout threads are laid: the first that differs everywhere, else the first."""
    moving = [operand for operand in pool.operands if pool.moves(operand)]
    return next((each for each in moving if all(each.strides)), (*moving, *pool.operands)[0])


def extent(strides: Sequence[int], shape: Sequence[int]) -> int:
    """Elements from the first to the last."""
    return 1 + sum((max(size, 1) - 1) * stride for size, stride in zip(shape, strides, strict=True))


def fits(strides: Sequence[int], shape: Sequence[int], elements: int, bytes_: int) -> bool:
    """Whether Packs of so many elements are aligned in every row."""
    pack = elements * bytes_
    aligned = min(16, pack & -pack) // bytes_
    return all(stride % aligned == 0 for stride, size in zip(strides[:-1], shape[:-1], strict=True) if size > 1)


def framed(pool: Pool, tensors: Iterable[str]) -> Frame:
    """As many windows a thread as fill 16 bytes of every row, if the windows tile."""
    best = Frame(pool, 1, False, tuple(dict.fromkeys(tensors)))
    window, lead = pool.windows[-1], leading(pool)
    if not window.tiles or best.order[-1] != len(best.dims) - 1 or lead.strides[-1] != 1:
        return best
    rows = [each for each in pool.operands if pool.moves(each) and each.strides[-1] == 1]
    widest = BYTES[lead.dtype]
    for lanes in range(1, LARGEST_ROW // window.size + 1):
        elements = lanes * window.size
        fit = all(fits(each.strides, pool.input_shape, elements, BYTES[each.dtype]) for each in rows)
        if window.outputs % lanes == 0 and fit and _width(elements * BYTES[lead.dtype]) > widest:
            best, widest = replace(best, lanes=lanes, rows=True), _width(elements * BYTES[lead.dtype])
    return best


def _width(pack: int) -> int:
    return min(16, pack & -pack)


def kernel(name: str, frame: Frame, body: Sequence[str], preamble: Iterable[str], reads_: Mapping[str, str],
           writes: Mapping[str, str], blocks: int) -> Kernel:  # fmt: skip
    """The function around a body; `reads_` and `writes` give the dtypes of its tensors."""
    arguments = [f"const {TYPES[dtype]}* __restrict__ {frame.parameters[each]}" for each, dtype in reads_.items()]
    arguments += [f"{TYPES[dtype]}* __restrict__ {frame.parameters[each]}" for each, dtype in writes.items()]
    head = f"__global__ void __launch_bounds__({THREADS}) {name}("
    inside = f"\n        {arguments[0]}" + "".join(f",\n        {each}" for each in arguments[1:])
    text = "\n".join([f"{head}{inside}) {{", *indented(body), "}"])
    dtypes = {*reads_.values(), *writes.values()}
    before = [_INCLUDES[dtype] for dtype in _INCLUDES if dtype in dtypes]
    before += [PACK] if "Pack<" in text else []
    return Kernel(name, text, tuple(dict.fromkeys([*before, *preamble])), tuple(reads_), tuple(writes),
                  (blocks, 1, 1), THREADS)  # fmt: skip


def used(operands: Iterable[Operand], *exprs: Expr) -> list[Operand]:
    """The operands that are read."""
    names = frozenset[str]().union(*(reads(expr) for expr in exprs))
    return [operand for operand in operands if operand.name in names]
