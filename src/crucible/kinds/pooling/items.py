"""How a pool's work lies over blocks and threads: one item a thread, or rows of items a block."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from crucible.kernel import nodes as ir
from crucible.kernel.index import ONE, ZERO, Compare, Index, Place, Size, Smaller, Variable
from crucible.kinds.pooling.frame import Frame
from crucible.kinds.pooling.layout import Layout

THREADS = 256
BLOCKS = 2048
"""Blocks that are enough to fill a GPU: beyond them a block takes several times its threads, so that fewer sums are
left to add up."""
SHORTEST = 16
"""Items of a row from which on a block of its own is not wasted on it."""


@dataclass(frozen=True)
class Items:
    """What threads count through: windows, or elements of the input. One a thread."""

    layout: Layout
    of: str
    """`windows` or `elements`."""
    counts: tuple[int, ...]
    lanes: int = 1
    """How many steps an item has along one dim."""
    lane: int = -1
    """That dim."""

    @property
    def order(self) -> tuple[int, ...]:
        """The dims from the slowest to the fastest."""
        return self.layout.order

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
        return math.prod(self.counts[self.layout.rank :])

    @property
    def rows(self) -> int:
        return math.prod(self.counts[: self.layout.rank])

    @property
    def by_rows(self) -> bool:
        """Whether blocks can stay in a batch and channel and still read neighbouring memory."""
        rank = self.layout.rank
        return set(self.order[:rank]) == set(range(rank)) and self.row >= SHORTEST

    threads = THREADS

    @property
    def blocks(self) -> int:
        return -(-self.total // THREADS)

    @contextmanager
    def begin(self, frame: Frame) -> Iterator[None]:
        """Each thread its item, with the coordinates that the body reads."""
        k, threads = frame.k, frame.size("threads", THREADS, counts=False)
        place = Place("block", self.blocks) * threads + Place("thread", THREADS)
        item = k.let("item", place, "unsigned" if frame.layout.index == "int" else "index")
        if self.total % THREADS:
            k.add(ir.Exit(item, frame.size(self.of, self.total, counts=False)))
        with self.coordinates(frame, item, self.order):
            yield

    @contextmanager
    def each(self, frame: Frame) -> Iterator[None]:
        """A thread's items: the one."""
        yield

    def sums(self, frame: Frame, totals: Mapping[str, ir.Fragment]) -> None:
        """A thread adds nothing up."""
        assert not totals

    @contextmanager
    def coordinates(self, frame: Frame, item: Variable, dims: Sequence[int]) -> Iterator[None]:
        """Some coordinates, given from slow to fast, from an index that counts through them, if they are read."""
        names = {**frame.first, **(frame.inside if self.of == "elements" else {})}
        with ExitStack() as stack:
            for name, index in self._coordinates(frame, item, dims).items():
                variable = names[name]
                assert isinstance(variable, Variable)
                stack.enter_context(frame.k.placed(variable, index))
            yield

    def _coordinates(self, frame: Frame, item: Variable, dims: Sequence[int]) -> dict[str, Index]:
        found: dict[str, Index] = {}
        divisor: Index = ONE
        step = 1
        total = math.prod(self.counts[dim] for dim in dims)
        for dim, size, times in reversed(self._steps(frame, dims, item.type == "int")):
            index = item // divisor
            step, divisor = step * size.value, divisor * size
            index = index if size.value > 1 and step == total else index % size
            index = index * times
            name = frame.layout.dims[dim]
            found[name] = index + found[name] if name in found else index
        return found

    def _steps(self, frame: Frame, dims: Sequence[int], narrow: bool) -> list[tuple[int, Size, Index]]:
        """Dims from slow to fast, how often they are counted through, and by how many at a time."""
        names, lane = frame.layout.dims, self.lane % len(self.counts)
        sizes = {dim: frame.size(f"{self.of}_{names[dim]}", self.counts[dim], narrow) for dim in dims}
        times: dict[int, Index] = {lane: frame.size("together", self.lanes)}
        steps = [(dim, size, times.get(dim, ONE)) for dim, size in sizes.items()]
        if self.layout.crossing is None or tuple(dims) != self.order:
            return steps
        (other, tile), fastest = self.layout.crossing, dims[-1]
        side = frame.size(f"tile_{names[fastest]}", tile, narrow)
        tiles = frame.size(f"tiles_{names[fastest]}", self.counts[fastest] // tile, narrow)
        first = [each for each in steps if each[0] not in (other, fastest)]
        return [*first, (fastest, tiles, side), *(each for each in steps if each[0] == other), (fastest, side, ONE)]


def windows(layout: Layout) -> Items:
    """An item for each window, or for as many as a thread takes."""
    shape = layout.pool.output_shape
    counts = tuple(size // layout.together if dim == layout.along else size for dim, size in enumerate(shape))
    return Items(layout, "windows", counts, layout.together, layout.along)


def elements(layout: Layout) -> Items:
    """An item for each element of the input."""
    return Items(layout, "elements", layout.pool.input_shape)


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

    @contextmanager
    def begin(self, frame: Frame) -> Iterator[None]:
        """Each block its row, and its part of it."""
        block, chunks, rank = Place("block", self.blocks), frame.size("chunks", self.chunks), frame.layout.rank
        row = frame.k.let("row", block // chunks, "int")
        start = block % chunks * frame.size("chunk", self.chunk)
        frame.start = frame.k.let("first", start, "int") if self.chunks > 1 else ZERO
        with self.items.coordinates(frame, row, [dim for dim in self.items.order if dim < rank]):
            yield

    @contextmanager
    def each(self, frame: Frame) -> Iterator[None]:
        """A thread's items, in its block's part of the row."""
        k, items, rank = frame.k, self.items, frame.layout.rank
        chunk, row = frame.size("chunk", self.chunk), frame.size("row_items", items.row)
        first = frame.start
        past = first + chunk if not items.row % self.chunk else Smaller(first + chunk, row) if self.chunks > 1 else row
        # int, not unsigned: nvcc then sees that the elements of a row lie side by side, and writes 16 bytes at a time
        stop, threads = k.let("past", past, "int"), frame.size("threads", self.threads)
        inner = [dim for dim in items.order if dim >= rank]
        with (
            k.loop("item", first + Place("thread", self.threads), stop, threads, "int") as item,
            items.coordinates(frame, item, inner),
        ):
            yield

    def sums(self, frame: Frame, totals: Mapping[str, ir.Fragment]) -> None:
        """Adds up a variable over the block's threads, for each tensor that holds a number of each block."""
        k, threads = frame.k, frame.size("threads", self.threads)
        k.add(*(ir.Reduce("sum", total, "warps", (threads,)) for total in totals.values()))
        with k.when((Compare("==", Place("thread", self.threads), ZERO),)):
            for name, total in totals.items():
                k.add(ir.Store(ir.Element(total), ir.Global(frame.tensors[name], Place("block", self.blocks))))


Grid: TypeAlias = Items | Rows


def grid_of(items: Items, adds_up: bool) -> Grid:
    """By rows where blocks can add up what a row shares: as few blocks as fill the GPU."""
    if not (adds_up and items.by_rows):
        return items
    threads = min(THREADS, -(-items.row // 32) * 32)
    times = 1
    while times < 8 and items.rows * -(-items.row // (threads * times * 2)) >= BLOCKS:
        times *= 2
    return Rows(items, threads, threads * times)
