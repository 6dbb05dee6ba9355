"""How a pool's work lies over blocks and threads, as text: one item a thread, or rows of items a block."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from crucible.write.pooling.frame import THREADS, Frame, block

BLOCKS = 2048
"""Blocks that are enough to fill a GPU: beyond them a block takes several times its threads, so that fewer sums are
left to add up."""
SHORTEST = 16
"""Items of a row from which on a block of its own is not wasted on it."""
BLOCK_SUM = """\
template <int Threads, typename T>
__device__ __forceinline__ T sum_of_block(T value) {  // in an order that is always the same; in thread 0
    __shared__ T sums[Threads / 32];
    for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xffffffff, value, lanes);
    __syncthreads();  // sums may still be read from the last time
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
    __syncthreads();
    T total = 0;
    if (threadIdx.x == 0)
        for (int warp = 0; warp < Threads / 32; ++warp) total += sums[warp];
    return total;
}"""


@dataclass(frozen=True)
class Items:
    """What threads count through: windows, or elements of the input."""

    frame: Frame
    names: tuple[str, ...]
    """Of the coordinates; those of outer dims come first."""
    counts: tuple[int, ...]
    order: tuple[int, ...]
    """The dims from the slowest to the fastest."""
    lanes: int = 1
    """How many steps an item has along one dim."""
    lane: int = -1
    """That dim."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Steps along each coordinate."""
        lane = self.lane % len(self.counts)
        return tuple(count * self.lanes if dim == lane else count for dim, count in enumerate(self.counts))

    @property
    def total(self) -> int:
        return math.prod(self.counts)

    @property
    def row(self) -> int:
        """Items of one batch and channel."""
        return math.prod(self.counts[self.frame.rank :])

    @property
    def rows(self) -> int:
        return math.prod(self.counts[: self.frame.rank])

    @property
    def by_rows(self) -> bool:
        """Whether blocks can stay in a batch and channel and still read neighbouring memory."""
        rank = self.frame.rank
        return set(self.order[:rank]) == set(range(rank)) and self.row >= SHORTEST

    # flat

    @property
    def blocks(self) -> int:
        return -(-self.total // THREADS)

    def begin(self, body: Sequence[str]) -> list[str]:
        """Each thread its item, with the coordinates that the body reads."""
        lines = [f"const unsigned item = blockIdx.x * {THREADS} + threadIdx.x;"]
        if self.frame.wide:
            lines = [f"const long long item = blockIdx.x * {THREADS}LL + threadIdx.x;"]
        if self.total % THREADS:
            lines.append(f"if (item >= {self.total}) return;")
        return [*lines, *self.coordinates("item", self.order, body)]

    def coordinates(self, item: str, dims: Sequence[int], body: Sequence[str]) -> list[str]:
        """Declares some coordinates, given from slow to fast, from an index that counts through them, if read."""
        terms: dict[int, str] = {}
        steps, step = self._steps(dims), 1
        total = math.prod(self.counts[dim] for dim in dims)
        for dim, count, times in reversed(steps):
            word = item if step == 1 else f"{item} / {step}"
            step *= count
            word = word if step == total else f"{word} % {count}"
            if dim == self.lane % len(self.counts) and self.lanes > 1:
                word = f"{word} * {self.lanes}"
            word = "0" if count == 1 else f"{word} * {times}" if times > 1 else word
            terms[dim] = f"{word} + {terms[dim]}" if dim in terms else word
        read = set(re.findall(r"\w+", "\n".join(body)))
        words = [f"{self.names[dim]} = {word}" for dim, word in terms.items() if self.names[dim] in read]
        return [f"const int {', '.join(words)};"] if words else []

    def _steps(self, dims: Sequence[int]) -> list[tuple[int, int, int]]:
        """Dims from slow to fast, how often they are counted through, and by how many at a time."""
        steps = [(dim, self.counts[dim], 1) for dim in dims]
        if self.frame.crossing is None or tuple(dims) != self.order:
            return steps
        other, tile = self.frame.crossing
        fastest = dims[-1]
        first = [each for each in steps if each[0] not in (other, fastest)]
        return [
            *first,
            (fastest, self.counts[fastest] // tile, tile),
            (other, self.counts[other], 1),
            (fastest, tile, 1),
        ]


def windows(frame: Frame) -> Items:
    """An item for each window, or for as many as a thread takes."""
    lane = len(frame.dims) - 1 if frame.spread is None else frame.spread
    shape = frame.pool.output_shape
    counts = tuple(size // frame.together if dim == lane else size for dim, size in enumerate(shape))
    names = tuple(f"first_{name}" if dim == frame.spread else name for dim, name in enumerate(frame.dims))
    return Items(frame, names, counts, frame.order, frame.together, lane)


def elements(frame: Frame) -> Items:
    """An item for each element of the input."""
    names = (*frame.dims[: frame.rank], *(f"in_{dim}" for dim in frame.spatial))
    return Items(frame, names, frame.pool.input_shape, frame.order)


@dataclass(frozen=True)
class Rows:
    """A grid in which each block stays in one batch and channel, so that it can add up what these share."""

    items: Items
    threads: int
    chunk: int
    """Items of a block."""

    @property
    def chunks(self) -> int:
        """Blocks of a row."""
        return -(-self.items.row // self.chunk)

    @property
    def blocks(self) -> int:
        return self.items.rows * self.chunks

    def begin(self, head: Sequence[str], item: Sequence[str]) -> list[str]:
        """Each block its row and its part of it."""
        items, rank = self.items, self.items.frame.rank
        row = f"blockIdx.x / {self.chunks}" if self.chunks > 1 else "blockIdx.x"
        first = f"blockIdx.x % {self.chunks} * {self.chunk}" if self.chunks > 1 else "0"
        outer = items.coordinates("row", [dim for dim in items.order if dim < rank], [*head, *item])
        return [f"const int row = {row}, first = {first};", *outer]

    def each(self, body: Sequence[str]) -> list[str]:
        """A loop over a thread's items."""
        items, rank = self.items, self.items.frame.rank
        last = f"first + {self.chunk}"
        if items.row % self.chunk:
            last = f"min({last}, {items.row})" if self.chunks > 1 else str(items.row)
        inside = items.coordinates("item", [dim for dim in items.order if dim >= rank], body)
        # int, not unsigned: nvcc then sees that the elements of a row lie side by side, and writes 16 bytes at a time
        head = f"for (int item = first + threadIdx.x; item < {last}; item += {self.threads})"
        return block(head, [*inside, *body])

    def summing(self, head: Sequence[str], item: Sequence[str], totals: dict[str, str]) -> list[str]:
        """The whole body: `totals` names the variable that items add to, for each tensor that holds a number of each
        block."""
        real = self.items.frame.real
        declared = [f"{real} {variable} = 0;" for variable in totals.values()]
        return [*self.begin(head, item), *head, *declared, *self.each(item), *self.sums(totals)]

    def sums(self, variables: dict[str, str]) -> list[str]:
        """Adds up a variable over the block's threads, for each tensor that holds a number of each block."""
        real, call = self.items.frame.real, f"sum_of_block<{self.threads}>"
        declared = [f"const {real} {name}_sum = {call}({name});" for name in variables.values()]
        stores = [f"{tensor}[blockIdx.x] = {name}_sum;" for tensor, name in variables.items()]
        return [*declared, *block("if (threadIdx.x == 0)", stores)]


def rows_of(items: Items) -> Rows:
    """As few blocks as fill the GPU."""
    threads = min(THREADS, -(-items.row // 32) * 32)
    times = 1
    while times < 8 and items.rows * -(-items.row // (threads * times * 2)) >= BLOCKS:
        times *= 2
    return Rows(items, threads, threads * times)
