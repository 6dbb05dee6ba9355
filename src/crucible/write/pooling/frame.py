"""What the kernels of pools have in common: how threads lie over windows, and the text of indices and accesses."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from crucible.graph import ITEM_BYTES
from crucible.target.cuda import CUDA_TYPES, INCLUDES, converted
from crucible.write.cuda import Emitted, emit
from crucible.write.expression import Expr
from crucible.write.kernel import BLOCK, Entry, Kernel, entered
from crucible.write.pool import Pool, Window
from crucible.write.program import Operand, Result, reads

THREADS = 256
TYPES = {**CUDA_TYPES, "int32": "int"}
"""Those of other kernels, and of the number of a chosen element."""
ROW = """\
template <typename T, int N>
struct alignas(sizeof(T) * N % 16 == 0 ? 16 : sizeof(T) * N % 8 == 0 ? 8 : 4) Row {
    T at[N];  // neighbours in memory
};
template <int N, bool aligned, typename T>
__device__ __forceinline__ Row<T, N> read_row(const T* from) {  // if aligned, by as few accesses as its size allows
    if constexpr (aligned) {
        return *reinterpret_cast<const Row<T, N>*>(from);
    } else {
        Row<T, N> row;
#pragma unroll
        for (int k = 0; k < N; ++k) row.at[k] = from[k];
        return row;
    }
}
template <bool aligned, typename T, int N>
__device__ __forceinline__ void write_row(T* to, const Row<T, N>& row) {
    if constexpr (aligned) {
        *reinterpret_cast<Row<T, N>*>(to) = row;
    } else {
#pragma unroll
        for (int k = 0; k < N; ++k) to[k] = row.at[k];
    }
}"""
ALIGNED = """\
template <typename... T>
__device__ __forceinline__ bool begin_at_16_bytes(const T*... tensors) {
    return (... && (reinterpret_cast<size_t>(tensors) % 16 == 0));
}"""
_LOCALS = (
    "item", "row", "first", "n", "c", "d", "h", "w", "plane", "first_n", "first_c", "first_plane", "first_d", "first_h",
    "first_w", "in_d", "in_h", "in_w", "kd", "kh", "kw", "k", "j", "end_d", "end_h", "end_w", "past_d", "past_h",
    "past_w", "window", "taken", "count", "largest", "smallest", "total", "value", "best", "choice", "chosen", "share",
    "share_of", "element_share", "from_windows", "Row", "read_row", "write_row", "aligned", "begin_at_16_bytes",
    "max_nan", "min_nan", "exp2_approx", "reciprocal_approx", "sum_of_block",
)  # fmt: skip
_DERIVED = ("value", "row", "at", "chosen", "gradient", "sum", "gradient_of", "total", "total_sum")
SECTOR_BYTES = 32
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
    the leading operand as one Row."""
    spread: int | None
    """An output dim along which a thread takes several windows that lie side by side in the output, not in the input:
    where both differ in layout, so that reads and writes are both of whole sectors."""
    spread_by: int
    """How many; 1 without."""
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
    def crossing(self) -> tuple[int, int] | None:
        """The dim along which the result is dense where what is read is not, and how many neighbours of what is read
        are a sector: a warp takes so many, and along that dim as many as it has threads left. None where the two lie
        alike, or threads take several windows."""
        shape, fastest = self.pool.output_shape, self.order[-1]
        dense = [dim for dim, stride in enumerate(self.pool.result.strides) if stride == 1 and shape[dim] > 1]
        count = SECTOR_BYTES // ITEM_BYTES[leading(self.pool).dtype]
        apart = bool(dense) and dense[0] != fastest and self.together == 1 and fastest < self.rank
        return (dense[0], count) if apart and shape[fastest] % count == 0 else None

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

    @property
    def together(self) -> int:
        """All windows of a thread."""
        return self.lanes * self.spread_by

    def of_first(self, strides: Sequence[int]) -> str:
        """The place of a thread's first window in a tensor laid over the output."""
        words = [f"first_{name}" if dim == self.spread else name for dim, name in enumerate(self.dims)]
        return self.offset(words, strides, self.pool.output_shape)

    # accesses

    def lanes_packed(self, tensor: Operand | Result) -> bool:
        """Whether what lies beside a thread's windows in the output is read or written as one Row."""
        lane = len(self.dims) - 1 if self.spread is None else self.spread
        return self.together > 1 and along(
            tensor.strides, self.pool.output_shape, lane, self.together, ITEM_BYTES[tensor.dtype]
        )

    def row_packed(self, operand: Operand) -> bool:
        """Whether a thread reads an operand's elements along the last dim as one Row."""
        last = len(self.dims) - 1
        elements, bytes_ = self.row_elements, ITEM_BYTES[operand.dtype]
        return self.rows and elements > 1 and along(operand.strides, self.pool.input_shape, last, elements, bytes_)

    def read(self, dtype: str, word: str) -> str:
        """A value as it is computed with."""
        return converted(word, dtype, "float32") if dtype in INCLUDES else word

    def stored(self, dtype: str, word: str) -> str:
        """A value as it is stored."""
        return converted(word, "float32", dtype) if dtype in INCLUDES else word

    # text of chains

    def chain(self, results: Mapping[str, Expr], names: Mapping[str, str]) -> Emitted:
        """Statements; `results` that are a leaf are left to `word`."""
        reserved = [*_LOCALS, *self.dims, *self.parameters.values()]
        reserved += [f"{name}_{end}" for name in self.tensors for end in _DERIVED if f"{name}_{end}" not in results]
        wide: dict[str, Any] = {} if self.pool.precision == "float32" else {"precision": self.pool.precision}
        return emit(results, names, reserved=reserved, **wide)


def slow_to_fast(strides: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(range(len(strides)), key=lambda dim: -strides[dim]))


def leading(pool: Pool) -> Operand:
    """The operand by whose layout threads are laid: the first that differs everywhere, else the first."""
    moving = [operand for operand in pool.operands if pool.moves(operand)]
    return next((each for each in moving if all(each.strides)), (*moving, *pool.operands)[0])


def extent(strides: Sequence[int], shape: Sequence[int]) -> int:
    """Elements from the first to the last."""
    return 1 + sum((max(size, 1) - 1) * stride for size, stride in zip(shape, strides, strict=True))


def along(strides: Sequence[int], shape: Sequence[int], lane: int, elements: int, bytes_: int) -> bool:
    """Whether so many neighbours along one dim lie side by side, and aligned for a Row wherever a thread's begin."""
    aligned = _width(elements * bytes_) // bytes_
    others = [stride for dim, stride in enumerate(strides) if dim != lane and shape[dim] > 1]
    return strides[lane] == 1 and all(stride % aligned == 0 for stride in others)


def framed(pool: Pool, tensors: Iterable[str], result: Result | None = None) -> Frame:
    """As many windows a thread as fill 16 bytes of every row, if the windows tile; if `result` is laid out in another
    order than what is read, as many as fill 32 bytes of it."""
    one = Frame(pool, 1, False, None, 1, tuple(dict.fromkeys(tensors)))
    if result is not None and (turned := _turned(one, result)):
        return turned
    window, lead = pool.windows[-1], leading(pool)
    if not window.tiles or one.order[-1] != len(one.dims) - 1 or lead.strides[-1] != 1:
        return one
    best, widest = one, ITEM_BYTES[lead.dtype]
    for lanes in range(1, LARGEST_ROW // window.size + 1):
        frame = replace(one, lanes=lanes, rows=True)
        rows = [each for each in pool.operands if pool.moves(each) and each.strides[-1] == 1]
        width = _width(frame.row_elements * ITEM_BYTES[lead.dtype])
        if window.outputs % lanes == 0 and width > widest and all(frame.row_packed(each) for each in rows):
            best, widest = frame, width
    return best


def _turned(frame: Frame, result: Result) -> Frame | None:
    """With several windows a thread along the dim in which the result is dense, where the input is not."""
    shape = frame.pool.output_shape
    dense = [dim for dim, stride in enumerate(result.strides) if stride == 1 and shape[dim] > 1]
    if not dense or dense[0] == frame.order[-1] or leading(frame.pool).strides[frame.order[-1]] != 1:
        return None
    bytes_ = ITEM_BYTES[result.dtype]
    for count in (32 // bytes_, 16 // bytes_, 8 // bytes_):
        if count > 1 and shape[dense[0]] % count == 0 and along(result.strides, shape, dense[0], count, bytes_):
            turned = replace(frame, spread=dense[0], spread_by=count, rows=frame.windows[-1].tiles)
            whole = frame.order[-1] == len(frame.dims) - 1 and turned.row_packed(leading(frame.pool))
            return turned if whole else replace(turned, rows=False)
    return None


def _width(pack: int) -> int:
    return min(16, pack & -pack)


def kernel(name: str, frame: Frame, body: Sequence[str], preamble: Iterable[str], reads_: Mapping[str, str],
           writes: Mapping[str, str], blocks: int, threads: int | None = None) -> Kernel:  # fmt: skip
    """The function around a body; `reads_` and `writes` give the dtypes of its tensors."""
    arguments = [(f"const {TYPES[dtype]}* __restrict__", frame.parameters[each]) for each, dtype in reads_.items()]
    arguments += [(f"{TYPES[dtype]}* __restrict__", frame.parameters[each]) for each, dtype in writes.items()]
    signature = ",\n        ".join(["", *map(" ".join, arguments)])[1:]
    first, body = list[str](), [line.replace("blockIdx.x", BLOCK) for line in body]
    rows = dict.fromkeys(re.findall(r"(?:read_row<\d+, aligned>|write_row<aligned>)\((\w+)", "\n".join(body)))
    if rows:
        inner = f"template <bool aligned>\n__device__ __forceinline__ void {name}_body({signature}) {{"
        first = [inner, *indented(body), "}"]
        given = ", ".join(frame.parameters[each] for each in (*reads_, *writes))
        body = [f"if (begin_at_16_bytes({', '.join(rows)}))", f"    {name}_body<true>({given});", "else"]
        body.append(f"    {name}_body<false>({given});")
    dtypes = {*reads_.values(), *writes.values()}
    before = [INCLUDES[dtype] for dtype in INCLUDES if dtype in dtypes] + [ROW, ALIGNED] * bool(rows)
    preamble = tuple(dict.fromkeys([*before, *preamble]))
    has_shared = any("__shared__" in each for each in (*preamble, *first, *body))
    entry = Entry(tuple(arguments), tuple(indented(body)), tuple(first), any(BLOCK in line for line in first),
                  has_shared, "\n        ", ",\n        ")  # fmt: skip
    return entered(name, entry, preamble, tuple(reads_), tuple(writes), blocks, threads or THREADS)


def used(operands: Iterable[Operand], *exprs: Expr) -> list[Operand]:
    """The operands that are read."""
    names = frozenset[str]().union(*(reads(expr) for expr in exprs))
    return [operand for operand in operands if operand.name in names]


def noted(kernel: Kernel, note: str) -> Kernel:
    """With lines that say what it does."""
    assert kernel.entry
    entry = replace(kernel.entry, before=(*note.splitlines(), *kernel.entry.before))
    return replace(kernel, text=note + kernel.text, entry=entry)
