"""Nodes of kernels whose warps multiply, each for itself: what any GPU from compute capability 8.0 on has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from crucible.kernel.index import Condition, Range
from crucible.kernel.places import Element, Global, InShared, Shared, Turns

Math: TypeAlias = Literal["tf32", "fp32", "mixed", "fp16", "bf16"]
"""How words are multiplied."""


@dataclass(frozen=True)
class AsyncCopy:
    """A word from global to shared memory, which is on its way while the thread goes on; 0 where `guard` does not
    hold."""

    to: InShared
    source: Global
    guard: Condition = ()
    words: int = 1
    """Or a unit of four, of sixteen bytes, from words as they are packed: without a guard."""


@dataclass(frozen=True)
class Turn:
    """What this thread copied is there, for itself alone; where tiles were coming, they are at hand from here on, and
    those that were at hand are the ones to come."""

    of: Turns


@dataclass(frozen=True)
class Own:
    """A thread reads and writes the words of tiles that it copied itself, before anybody else may."""

    tiles: tuple[Shared, ...]
    body: tuple[Any, ...]


@dataclass(frozen=True)
class LoadMatrix:
    """Matrices of 8 x 8 halves, or 8 x 4 words, to a pack of as many registers: each lane has a row of one, eight lanes
    one matrix; then lane l has of each the word l % 4 of row l / 4. `turned`, of halves: rows 2 (l % 4) and the next
    of column l / 4; of two matrices lanes from 16 on have no row."""

    into: Element
    source: InShared
    turned: bool = False


@dataclass(frozen=True)
class WarpMma:
    """Each warp adds a product to four sums: 16 rows by 8 columns, of a depth of 8, or 16 of half types.

    Of rows a lane holds r = lane / 4 and r + 8, at k = lane % 4, then both at k + 4; of columns lane / 4 at k and
    k + 4; of sums 2 k and 2 k + 1 of both rows."""

    into: Element
    rows: Element
    columns: Element
    math: Math
    """`fp32` is three products of TF32, which are added up before they are added; `mixed` one of TF32, and one of
    bfloat16 for what that leaves of both."""


@dataclass(frozen=True)
class LoadTiles:
    """Columns for products, eight to a tile: of two tiles at once four matrices, so far behind `source` as each lane's
    `places` say. It stands for `tiles.steps`; text calls a function."""

    into: Element
    """[tile], packs of two."""
    source: InShared
    places: Element
    """[two tiles]"""
    reach: Range
    """Where places lie."""


@dataclass(frozen=True)
class MultiplyTiles:
    """Products of tiles of 16 rows, 128 words each as lanes take them, and tiles of columns; the same of it."""

    into: Element
    """[tile of rows][tile of columns], four sums."""
    rows: InShared
    columns: Element
    """[tile], packs of two."""
    math: Math


HELD = {"tf32": "tf32", "fp32": "word", "mixed": "word", "fp16": "halves", "bf16": "halves"}
"""What is multiplied so, as registers hold it."""
