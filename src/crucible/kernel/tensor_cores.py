"""What tensor cores and the rings before them mean: arrays of numpy by the layouts that instructions have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from crucible.algebra.evaluate import cast
from crucible.kernel.places import Pipeline

Array: TypeAlias = npt.NDArray[Any]
WARPS, ROWS, LANES = 4, 8, 4
"""Of a warpgroup; of a warp its lanes as [row][place in it]."""


class Ring:
    """The stages of a pipeline in one block; NaN where nothing was stored, or all have read it, 0 in rows of its slack
    that nobody ever stored, and where no bulk copy ever goes."""

    def __init__(self, of: Pipeline) -> None:
        self.of = of
        self.tiles = {tile: np.full((of.stages, *tile.sizes), np.nan) for tile in of.tiles}
        self.untouched = {tile: np.zeros(held.shape, bool) for tile, held in self.tiles.items()}
        for each in self.untouched.values() if of.slack else ():
            each[..., -of.slack :, :] = True
        for each in self.untouched.values() if of.in_bulk else ():
            each[:] = True
        if of.cleared:
            self.untouched[of.cleared][:] = True
        self.filled = self.drained = self.turn = 0

    @property
    def may_be_filled(self) -> bool:
        return self.filled - self.drained < self.of.stages

    @property
    def may_be_drained(self) -> bool:
        return self.drained < self.filled

    def fill(self) -> None:
        """All stored what they do in the next stage."""
        number = self.filled % self.of.stages
        for tile, held in self.tiles.items():
            self.untouched[tile][number] &= np.isnan(held[number])
            held[number][self.untouched[tile][number]] = 0
        self.filled += 1

    def leave(self) -> None:
        """The oldest stage."""
        for each in self.stage(self.drained).values():
            each[:] = np.nan
        self.drained += 1

    def stage(self, number: int) -> dict[Any, Array]:
        """Its tiles, each as the array of one block."""
        at = number % self.of.stages
        return {tile: held[at : at + 1] for tile, held in self.tiles.items()}


def nearest(value: Array) -> Array:
    """The TF32 that is nearest, of two the one further from 0."""
    with np.errstate(invalid="ignore"):
        bits = value.astype(np.float32).view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)


def pairs(first: Array, second: Array) -> Array:
    """Words of two bfloat16, the nearest to each, the first in the lower half."""
    apart = [bits(cast(each, "bfloat16"), "bfloat16").astype(np.uint16) for each in (first, second)]
    return as_words(np.stack(apart, axis=-1))[..., 0]


def cut(value: Array) -> Array:
    """To the TF32 that tensor cores make of a float32."""
    with np.errstate(invalid="ignore"):
        bits = value.astype(np.float32).view(np.uint32)
    return (bits & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)


def halves(words: Array, dtype: str) -> Array:
    """The two values of each word, [..., 2]."""
    apart = as_halves(words[..., None])
    if dtype == "fp16":
        return apart.view(np.float16).astype(np.float64)
    return (apart.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)


def as_halves(words: Array) -> Array:
    """The bits of words [..., n] as those of [..., 2 n] halves; what is in none of them is NaN in any half type."""
    return np.ascontiguousarray(bits(words, "halves")).view(np.uint16)


def as_words(halves: Array) -> Array:
    return halves.view(np.int32).astype(np.float64)


def bits(value: Array, dtype: str) -> Array:
    """As unsigned words: of 16-bit types in the lower half."""
    if dtype == "halves":
        return np.nan_to_num(value, nan=0x7FFF7FFF).astype(np.int64).astype(np.uint32)
    if dtype == "half":
        return np.nan_to_num(value, nan=0x7FFF).astype(np.uint32)
    if dtype == "float16":
        return value.astype(np.float16).view(np.uint16).astype(np.uint32)
    words = value.astype(np.float32).view(np.uint32)
    return words >> np.uint32(16) if dtype == "bfloat16" else words


def converted(value: Array, given: str, wanted: str) -> Array:
    """Of element types; rounded to TF32 alone."""
    if (given, wanted) in (("float32", "tf32"), ("word", "tf32")):
        return nearest(value)
    if (given, wanted) in (("int32", "tf32"), ("int32", "word")):
        return value.astype(np.int32).view(np.float32).astype(np.float64)
    if (given, wanted) == ("uint8", "bytes"):
        return np.asarray(value[0] + 256 * value[1])
    return bits(value, given).astype(np.float64) if wanted == "half" != given else value


def columns_of(tile: Array, steps: int, count: int) -> Array:
    """[column][k] of the first columns of a tile, so many steps of K."""
    return tile[0, : 2 * steps, :count].transpose(1, 0, 2).reshape(count, -1)


def multiplied(rows: Array, columns: Array) -> Array:
    """Sums of all threads, from what they hold of rows [k / 8][4][blocks, threads], and columns [column][k]."""
    steps, _, blocks, threads = rows.shape
    assert blocks == 1, "roles go through one block after the other"
    apart = rows.reshape(steps, 2, 2, -1, WARPS, ROWS, LANES)  # step, half of k, half of rows, group, warp, row, k
    left = apart.transpose(3, 4, 2, 5, 0, 1, 6).reshape(-1, 2 * WARPS * ROWS, steps * 2 * LANES)
    return _of_threads(left @ columns.T, len(columns)).reshape(-1, blocks, threads)


def halves_multiplied(rows: Array, columns: Array, math: str) -> Array:
    """The same of one instruction's words of two halves each: rows [4][blocks, threads]."""
    apart = halves(rows, math).reshape(2, 2, -1, WARPS, ROWS, LANES, 2)  # half of k, of rows, group, warp, row, k, one
    left = apart.transpose(2, 3, 1, 4, 0, 5, 6).reshape(-1, 2 * WARPS * ROWS, 4 * LANES)
    return _of_threads(left @ columns.T, len(columns))[:, None]


def pairs_multiplied(rows: Array, columns: Array) -> Array:
    """Sums of all threads, from what they hold of rows [k / 16][4][blocks, threads], in words of two bfloat16, and
    columns [column][k]."""
    each = zip(rows, np.split(columns, len(rows), axis=1), strict=True)
    return np.asarray(sum(halves_multiplied(held, some, "bf16") for held, some in each))


def spread(made: Array, groups: int) -> Array:
    """The sums of 64 rows [row][column] as threads have them, the same for each of so many warpgroups."""
    return _of_threads(np.tile(made, (groups, 1)), made.shape[1])[:, None]


def _of_threads(made: Array, count: int) -> Array:
    """Sums [warpgroup's row][column] as [sum][thread]."""
    apart = made.reshape(-1, WARPS, 2, ROWS, count // 8, LANES, 2)
    return apart.transpose(4, 2, 6, 0, 1, 3, 5).reshape(count // 2, -1)


def reinterpreted(values: Sequence[Array], given: str, wanted: str) -> list[Array]:
    """Elements that lie one behind the other as those of another type, by their bits."""
    if given == wanted or (given, wanted) in (("float32", "tf32"), ("float32", "word")):
        return list(values)
    words = np.stack(values, axis=-1).astype(np.int64).astype(np.uint32)
    if given != "int32":
        raise TypeError(f"{given} is copied as {wanted}: only words are")
    if wanted == "halves":
        found = words
    elif wanted == "float16":
        found = words.view(np.float16)
    elif wanted == "bfloat16":
        found = (words.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    else:
        found = words.view(np.float32)
    return list(np.moveaxis(found.astype(np.float64), -1, 0))


# of warps: threads as [warp][row][place in it]


def matrices(rows: Array) -> Array:
    """Of rows [word][blocks, threads], eight lanes' a matrix, what lanes have: [matrix][blocks, threads]."""
    words, blocks, threads = rows.shape
    apart = rows.reshape(words, blocks, -1, 4, ROWS)  # word, block, warp, matrix, row
    return apart.transpose(3, 1, 2, 4, 0).reshape(4, blocks, threads)


def turned(rows: Array) -> Array:
    """The same of matrices of halves, turned."""
    words, blocks, threads = rows.shape
    apart = as_halves(rows[..., None]).reshape(words, blocks, -1, 4, LANES, 2, 2)  # .., matrix, rows, one of two, half
    made = np.ascontiguousarray(apart.transpose(3, 1, 2, 0, 6, 4, 5))  # matrix, block, warp, word, half, rows, one
    return as_words(made).reshape(4, blocks, threads)


def warp_multiplied(rows: Array, columns: Array, math: str) -> Array:
    """[4][blocks, threads]: the products of 16 rows and 8 columns of each warp, from what lanes hold of both."""
    if math in ("fp16", "bf16"):
        return _multiplied_by_warps(halves(rows, math), halves(columns, math))
    if math == "tf32":
        return _multiplied_by_warps(cut(rows)[..., None], cut(columns)[..., None])
    if math == "mixed":
        both = [cast(np.stack([x, x - nearest(x)], axis=-1), "bfloat16") for x in (rows, columns)]
        small = _multiplied_by_warps(both[0][..., ::-1], both[1])
        return np.asarray(small + _multiplied_by_warps(nearest(rows)[..., None], nearest(columns)[..., None]))
    (low, high), (low_columns, high_columns) = ((nearest(x - nearest(x)), nearest(x)) for x in (rows, columns))
    parts = ((low, high_columns), (high, low_columns), (high, high_columns))
    first, second, third = (_multiplied_by_warps(one[..., None], other[..., None]) for one, other in parts)
    return first + second + third


def _multiplied_by_warps(rows: Array, columns: Array) -> Array:
    """Of rows [4][blocks, threads][values of a word], columns [2][blocks, threads][values of a word]."""
    _, blocks, threads, values = rows.shape
    left = rows.reshape(2, 2, blocks, -1, ROWS, LANES, values)  # half of k, half of rows, block, warp, row, k, value
    left = left.transpose(2, 3, 1, 4, 0, 5, 6).reshape(blocks, -1, 2 * ROWS, 2 * LANES * values)
    right = columns.reshape(2, blocks, -1, ROWS, LANES, values)  # half of k, block, warp, column, k, value
    right = right.transpose(1, 2, 0, 4, 5, 3).reshape(blocks, -1, 2 * LANES * values, ROWS)
    made = (left @ right).reshape(blocks, -1, 2, ROWS, LANES, 2)  # block, warp, half of rows, row, columns, one of two
    return made.transpose(2, 5, 0, 1, 3, 4).reshape(4, blocks, threads)
