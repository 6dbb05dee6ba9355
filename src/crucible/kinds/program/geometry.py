"""How the work of a program is laid out over blocks and threads, and why."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from crucible.algebra.program import Program
from crucible.graph import ITEM_BYTES
from crucible.kinds.program.layout import (
    PACK_BYTES,
    SECTOR_BYTES,
    Tensor,
    access_of,
    begins_anywhere,
    crossed,
    index_type,
    is_across,
    is_crossed,
    runs_along_rows,
    vector_width,
    wide,
)
from crucible.schedule.passes import heavy, kept, loaded, passes

WARP = 32
WORDS = 32
"""Registers of a thread for values that are loaded or kept: with addresses and arithmetic that comes to about 64,
with which 1024 threads fit on a multiprocessor."""
LOADS = 4
"""Loads of 16 bytes of a thread that are under way at once, over all operands. A multiprocessor needs about 20 KB under
way (4.25 TB/s x 600 ns / 132): a thousand threads with two loads of 16 bytes are enough, half full as well."""
MOST_LOADS = 16
"""Of smaller ones, of which it takes more for as many bytes: that many addresses fit in registers beside what comes."""
BLOCK = 256
SHARED_BYTES = 16 * 1024
"""For what groups of threads exchange; half as much again for what is turned round."""
WORD_BYTES = 4
"""Of a bank of shared memory."""
LINE_BYTES, LEAST_TURNED_BYTES = 128, 64
"""What a block takes of a row at most, and at least, where the other order goes through shared memory: by sectors alone
chains over channels-last tensors moved 2.5 of 4.25 TB/s (H200)."""
LEAST_RUN_BYTES = 64
"""What a group reads in a row when there are too few rows for wider blocks: two sectors."""
LEAST_COLUMNS = 256
"""Along rows, columns below which it does not pay to give another block a part of them."""
THREADS = 1024
"""Of a multiprocessor, below which too little is under way."""
LEAST_CHUNK = 8192
"""Elements below which it does not pay to give another block a part of a row."""
BLOCKS, MANY_BLOCKS = 8, 32
"""Of a multiprocessor, where several share a row: as many as run at once, where registers allow it; and where parts
stay longer than the least four times over, so many that it matters little how full the last round of them is. 1152
blocks of 256 threads were two rounds, the second of 96. Rows of single elements are shared by as many as have a part of
the least (see `_rows_shared`)."""


MOST_TURNED = 512
"""Threads of a block whose rows are turned round."""


@dataclass(frozen=True)
class Geometry:
    """Who computes what.

    A thread takes `packs` packs of `vector` neighbours at once, which is a tile. Along columns, `team` threads share
    a row and a block has threads / team rows. Along rows, a pack is of neighbouring rows; `team` groups of threads
    share the columns.
    """

    along: Literal["rows", "columns"]
    vector: int
    threads: int
    """Of a block."""
    team: int
    packs: int
    looped: bool
    """Whether a thread takes tile after tile, and every pass reads anew."""
    chunks: int
    """Blocks that share a row."""
    chunk: int
    """Columns of one of them."""
    index: str
    """The type of indices."""
    turned: bool = False
    """Whether tensors whose neighbours lie the other way than threads go pass through shared memory."""
    line: int = 0
    """Elements there from a column to the next, where rows are turned round."""

    @property
    def lanes(self) -> int:
        """Threads along rows."""
        return self.threads // self.team

    @property
    def block_rows(self) -> int:
        """Rows of a block."""
        return self.lanes * (self.vector if self.along == "rows" else 1)

    @property
    def tile(self) -> int:
        """Columns that a team takes at once."""
        return self.team * self.packs * (self.vector if self.along == "columns" else 1)

    def blocks(self, rows: int) -> int:
        return math.ceil(rows / self.block_rows) * self.chunks


def power_of_two(at_least: float) -> int:
    """The smallest that is."""
    return 1 << max(0, math.ceil(math.log2(max(at_least, 1))))


@dataclass(frozen=True)
class Needs:
    """What a program asks of a thread, in registers for each element it holds."""

    loads: int
    """Operands read in the pass that reads the most."""
    held: int
    """Values held at once, where rows stay in registers."""

    @staticmethod
    def of(program: Program) -> Needs:
        steps, between = passes(program), kept(program)
        wide = 2 if program.precision == "float64" else 1
        traffic = set(heavy(program))
        loads = [max(1, len(traffic & set(loaded(program, step.roots)))) for step in steps]
        keeps = [len(values) for values in between]
        return Needs(max(loads), wide * max(loads[0], *keeps, 1))  # what was loaded first is kept in the same place


def choose(program: Program, sms: int, may_split: bool = True) -> Geometry:
    """The geometry of a tidied, ordered program with at least one element."""
    if not program.reductions:
        return _crossed(program, sms) if program.rows else _pointwise(program, sms)
    along_rows = program.rows > 0 and runs_along_rows(program)
    return _along_rows(program, sms, may_split) if along_rows else _along_columns(program, sms, may_split)


def _pointwise(program: Program, sms: int) -> Geometry:
    """A tile for each block; smaller tiles where there would be too few blocks."""
    count, vector = program.column_count, vector_width(program, along_rows=False)
    packs = _pointwise_packs(program, vector, sms)
    tile = BLOCK * vector * packs
    return Geometry("columns", vector, BLOCK, BLOCK, packs, False, math.ceil(count / tile), tile, index_type(program))


def _packs_under_way(program: Program, vector: int) -> int:
    """Packs of a thread, so that it has enough bytes under way: more where they are smaller than 16 bytes."""
    item = max((ITEM_BYTES[each.dtype] for each in wide(program)), default=WORD_BYTES)
    smaller = max(1, PACK_BYTES // (vector * item))
    return max(1, min(LOADS * smaller, MOST_LOADS) // Needs.of(program).loads)


def _chunks(blocks: int, columns: int, least: int, sms: int) -> int:
    """Blocks that share a row, or some rows, of which there are `blocks`; of at least so many columns each."""
    many = min(math.ceil(MANY_BLOCKS * sms / blocks), columns // (MANY_BLOCKS // BLOCKS * least))
    return max(many, min(math.ceil(BLOCKS * sms / blocks), columns // least))


def _pointwise_packs(program: Program, vector: int, sms: int) -> int:
    packs = _packs_under_way(program, vector)
    while packs > 1 and math.prod(program.shape) < sms * THREADS * vector * packs:
        packs //= 2
    return packs


def _crossed(program: Program, sms: int) -> Geometry:
    """A tile of a few rows and many columns for each block, where tensors lie in different orders."""
    vector = vector_width(program, along_rows=True)
    turned = _turned(program, vector, sms)
    if turned is not None:
        return turned
    lanes = _lanes_of_a_sector(program, vector)
    team, packs = BLOCK // lanes, _pointwise_packs(program, vector, sms)
    chunks = math.ceil(program.column_count / (team * packs))
    return Geometry("rows", vector, BLOCK, team, packs, False, chunks, team * packs, index_type(program))


def _turned(program: Program, vector: int, sms: int) -> Geometry | None:
    """A tile that is turned round in shared memory, so that every tensor is read and written by the line; None where
    rows do not fill it, and where there is too little for all multiprocessors."""
    item = max(ITEM_BYTES[each.dtype] for each in wide(program))
    lanes = LINE_BYTES // (vector * item)
    while lanes > 1 and program.row_count % (lanes * vector):
        lanes //= 2
    if lanes * vector * item < LEAST_TURNED_BYTES or lanes > BLOCK:
        return None
    team, packs = BLOCK // lanes, max(1, LOADS // Needs.of(program).loads)
    through = sum(access_of(each, program, vector, along_rows=True) == "each" for each in wide(program))
    while packs > 1 and through * lanes * vector * (team * packs + 1) * item > SHARED_BYTES * 3 // 2:
        packs //= 2
    fits = through * lanes * vector * (team * packs + 1) * item <= SHARED_BYTES * 3 // 2
    enough = program.row_count * program.column_count >= sms * THREADS * vector * packs
    if not fits or not enough or BLOCK % (team * packs):
        return None
    chunks = math.ceil(program.column_count / (team * packs))
    return Geometry("rows", vector, BLOCK, team, packs, False, chunks, team * packs, index_type(program), turned=True)


def _lanes_of_a_sector(program: Program, vector: int) -> int:
    """Neighbouring threads whose packs are a sector.

    Where tensors lie in different orders a warp takes so much of a row of the one, and as many rows as there are
    threads left, which are neighbours in the other: 64 bytes of float32, 32 of halves.
    """
    item = max(ITEM_BYTES[each.dtype] for each in wide(program))
    return max(1, SECTOR_BYTES // (vector * item))


def _lanes_of_a_line(program: Program, vector: int) -> int:
    """The same where rows that are neighbours are reduced, of a whole line: gradients of chains behind convolutions
    that run channels-last take 1.86 ms for 3.00 (64 rows of 8.4 million), 1.38 for 2.03, and 0.92 for 1.23 (H200)."""
    item = max(ITEM_BYTES[each.dtype] for each in wide(program))
    return max(1, LINE_BYTES // (vector * item))


def _along_columns(program: Program, sms: int, may_split: bool) -> Geometry:
    needs, vector = Needs.of(program), vector_width(program, along_rows=False)
    rows, columns, index = program.row_count, program.column_count, index_type(program)
    single = len(passes(program)) == 1
    largest = 256 if single else 1024
    team = _team(rows, math.ceil(columns / vector), sms, WORDS // (vector * needs.held) or 1, largest)
    if is_crossed(program):
        team = max(team, min(_lanes_of_a_sector(program, vector), power_of_two(columns / vector)))
    elif rows * columns >= sms * THREADS * vector * LOADS:
        item = max(ITEM_BYTES[each.dtype] for each in wide(program))
        team = max(team, min(LEAST_RUN_BYTES // (vector * item), power_of_two(columns / vector)))
    packs = math.ceil(columns / (vector * team))
    if packs * vector * needs.held <= WORDS or packs == 1:
        held = Geometry("columns", vector, team if team > WARP else 128, team, packs, False, 1, columns, index)
        return _turned_rows(program, held, sms) or held
    packs = _packs_under_way(program, vector)
    shared = _rows_shared(program, vector, packs, sms) if may_split and rows < 4 * sms else None
    if shared is not None:
        return shared
    team = 1024 if rows < 2 * sms and columns >= 4096 * vector else 512 if rows < 8 * sms else BLOCK
    return Geometry("columns", vector, team, team, packs, True, 1, columns, index)


def _rows_shared(program: Program, vector: int, packs: int, sms: int) -> Geometry | None:
    """Long rows with several blocks each; None where they are not long.

    Those of single elements (odd planes) have as many blocks as there are parts of LEAST_CHUNK, so that the blocks
    that run at once read and write near each other. 128 rows of 6.8 million in two tensors, written to a third (H100):
    6.81 ms with 33 blocks a row and 6.29 with 51, 16 loads a thread; 4.17 with 737 and 8 loads. Not measured in packs.
    """
    columns, team = program.column_count, BLOCK
    chunks = _chunks(program.row_count, columns, LEAST_CHUNK, sms)
    if vector == 1:
        chunks, packs = columns // LEAST_CHUNK, max(1, MOST_LOADS // 2 // Needs.of(program).loads)
    if chunks <= 1:
        return None
    tile = team * vector * packs
    chunk = math.ceil(columns / chunks / tile) * tile
    return Geometry("columns", vector, team, team, packs, True, math.ceil(columns / chunk), chunk, index_type(program))


def _turned_rows(program: Program, held: Geometry, sms: int) -> Geometry | None:
    """The geometry of rows in registers with as many rows a block as are a line of the tensors whose neighbours are
    rows, which pass through shared memory; None where there are none, and where they do not fit. Two lines where they
    begin anywhere: fewer ends (a softmax over 128 channels of odd planes: 0.979 ms, 1.237 with one; H100)."""
    across = [each for each in wide(program) if is_across(each, program)]
    if not across or held.team >= WARP or held.vector == 1:
        return None
    anywhere = any(begins_anywhere(each, program, across=True) for each in across)
    found = [_lines_of_rows(program, held, across, lines) for lines in ((2, 1) if anywhere else (1,))]
    return next((each for each in found if each and each.blocks(program.row_count) >= sms), None)


def _lines_of_rows(program: Program, held: Geometry, across: list[Tensor], lines: int) -> Geometry | None:
    """With so many lines of rows a block; None where they do not fit."""
    item = max(ITEM_BYTES[each.dtype] for each in across)
    threads = max(held.threads, held.team * lines * LINE_BYTES // item)
    apart = max(1, WARP // held.team // held.vector) * max(1, WORD_BYTES // item)
    line = threads // held.team + apart  # the rows of a warp and the columns of its packs meet all banks
    geometry = replace(held, threads=threads, turned=True, line=line)
    bytes_ = sum(ITEM_BYTES[each.dtype] for each in across) * program.column_count * line
    fits = threads <= MOST_TURNED and bytes_ <= lines * SHARED_BYTES * 3 // 2
    return geometry if fits and program.column_count == geometry.tile else None


def _ends_turned(program: Program, sms: int) -> bool:
    """Whether the last pass reduces nothing and, by itself, would go through shared memory: then passes are kernels."""
    steps = passes(program)
    if len(steps) < 2 or steps[-1].reductions or not is_crossed(program):
        return False
    last = crossed(replace(program, reductions=(), results=steps[-1].results))
    return last.rows > 0 and _turned(last, vector_width(last, along_rows=True), sms) is not None


def _team(rows: int, packs: int, sms: int, most: int, largest: int) -> int:
    """Threads for a row of so many packs, at most `most` a thread if that can be; more threads where rows are few."""
    team = min(power_of_two(packs / most), largest)
    while team < min(largest, power_of_two(packs)) and rows * team < sms * THREADS:
        team *= 2
    return team


def _are_short(program: Program, team: int, packs: int, most: int) -> bool:
    """Whether half the groups would do for the columns of a row: with at most so many packs a thread, where more rows
    are left than `most` threads take, and all tensors have their neighbours there."""
    enough = program.row_count * team >= most and program.column_count * 2 <= team * packs
    return team > 1 and enough and not is_crossed(program)


def _along_rows(program: Program, sms: int, may_split: bool) -> Geometry:
    needs, vector = Needs.of(program), vector_width(program, along_rows=True)
    rows, columns, index = program.row_count, program.column_count, index_type(program)
    widest = _lanes_of_a_line(program, vector) if is_crossed(program) else WARP
    lanes = min(widest, power_of_two(rows / vector))
    item = max(ITEM_BYTES[each.dtype] for each in wide(program))
    parts = max(1, columns // LEAST_COLUMNS) if may_split else 1
    while rows * parts < sms * lanes * vector and lanes * vector * item > LEAST_RUN_BYTES:
        lanes //= 2
    most = WORDS // (vector * needs.held) or 1
    word = 8 if program.precision == "float64" else 4
    largest = min(1024 // lanes, SHARED_BYTES // (lanes * vector * word))
    team = max(BLOCK // lanes, min(power_of_two(columns / most), largest))
    team = min(team, power_of_two(columns), largest)
    while _are_short(program, team, min(_packs_under_way(program, vector), most), MANY_BLOCKS * sms * BLOCK * vector):
        team, lanes = team // 2, lanes * 2
    packs = math.ceil(columns / team)
    blocks = math.ceil(rows / (lanes * vector))
    if packs <= most:
        return Geometry("rows", vector, lanes * team, team, packs, False, 1, columns, index)
    packs = _packs_under_way(program, vector)
    team, chunks = min(BLOCK // lanes, largest), 1
    if may_split and blocks < 4 * sms:
        chunks = _chunks(blocks, columns, max(LEAST_COLUMNS, team * packs), sms)
    elif may_split and _ends_turned(program, sms):
        chunks = min(2, columns // max(LEAST_COLUMNS, team * packs))
    if chunks <= 1:
        team = largest if blocks < 2 * sms else team
        return Geometry("rows", vector, lanes * team, team, packs, True, 1, columns, index)
    tile = team * packs
    chunk = math.ceil(columns / chunks / tile) * tile
    return Geometry("rows", vector, lanes * team, team, packs, True, math.ceil(columns / chunk), chunk, index)
