"""Makes error maps: a second look at a tensor that is wrong, as it streams by.

One byte an element is kept of the whole tensor, and the values of a million elements around the worst one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from crucible.judge.boundary.bits import INTEGER_VIEWS, POISON
from crucible.judge.diagnosis.relations import bounds, by_sign, fits, matches, rounded_to, values_of
from crucible.judge.diagnosis.where import NEARLY_ALL, along_dimension, along_flat, covered_share, share_in_box, tail_of
from crucible.judge.oracle.compare import Expected, pieces
from crucible.judge.verdict.error_map import INFINITE, LEVELS, NAN, RIGHT, UNWRITTEN, ErrorMap, Picture

MOST_ELEMENTS = 1 << 30
"""Looked at: a byte each."""
SAMPLE_ELEMENTS = 1 << 20
"""Whose values are kept: a second of a core's work for all relations together."""
MOST_PICTURES = 16
"""Along the channels."""
MOST_SLICES = 6
"""Along each other dimension."""
CELLS = 64
FIRST = 8
_KINDS = ((UNWRITTEN, "unwritten"), (NAN, "nan"), (INFINITE, "infinite"), (RIGHT + 1, "wrong"))


@dataclass
class Mapper:
    """Takes the chunks of one tensor, like `compare.Difference`."""

    expected: Expected
    worst: tuple[int, ...]
    """Where the first look saw its peak."""
    peak: float
    """What that was."""
    index: int = 0
    levels: torch.Tensor = field(init=False)
    kept: list[torch.Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        e = self.expected
        self.levels = torch.zeros(min(e.values.numel(), MOST_ELEMENTS), dtype=torch.int8)
        self.start, self.shape = sample_of(e.shape, self.worst, SAMPLE_ELEMENTS)

    def add(self, got: torch.Tensor) -> None:
        """The next elements, flat, on the device to compare on."""
        for piece in pieces(got) if got.numel() else ():
            want = self.expected.values[self.index : self.index + piece.numel()].to(piece.device)
            room = max(0, self.levels.numel() - self.index)
            self.levels[self.index : self.index + piece.numel()] = self._levels(piece, want)[:room].cpu()
            first = max(0, self.start - self.index)
            last = self.start + math.prod(self.shape) - self.index
            if first < piece.numel() and last > 0:
                self.kept.append(piece[first:last].cpu().clone())
            self.index += piece.numel()

    def result(self) -> ErrorMap | None:
        """None where the second look shows nothing wrong."""
        e = self.expected
        level, what = next(((lv, w) for lv, w in _KINDS if bool((self.levels >= lv).any())), (0, ""))
        if not what:
            return None
        bad = self.levels >= level
        whole = bad.view(e.shape) if bad.numel() == math.prod(e.shape) else bad
        dims = [along_dimension(whole, dim) for dim in range(whole.dim())] if whole is not bad else []
        box, flat = share_in_box(whole, dims), along_flat(bad)
        told = any(along.holds >= NEARLY_ALL for along in dims) and flat.inside <= 1.2 * box
        got = torch.cat(self.kept).double().view(self.shape)
        want = e.values[self.start : self.start + got.numel()].double().view(self.shape)
        wrong = (self.levels[self.start : self.start + got.numel()] >= level).view(self.shape)
        return ErrorMap(
            shape=e.shape,
            looked_at=bad.numel(),
            what=what,
            count=int(bad.sum()),
            along=tuple(dims) if told or not flat.period else (*dims, flat),
            in_box=box,
            covered=covered_share(whole, dims),
            first=tuple(_coordinates(int(i), e.shape) for i in bad.nonzero()[:FIRST, 0]),
            tail=tail_of(bad),
            sample=got.numel(),
            got=values_of(got),
            want=values_of(want),
            by_sign=by_sign(want, wrong),
            at_bounds=bounds(want, wrong),
            rounded_to=rounded_to(got, want) if e.dtype.is_floating_point else "",
            fits=fits(got, want, wrong, len(e.shape) - len(self.shape), e.relative_l2_allowed),
            matches=matches(got, want, len(e.shape) - len(self.shape), e.relative_l2_allowed),
            pictures=self._pictures(),
        )

    def _levels(self, got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
        """Each element's level of `LEVELS`."""
        e = self.expected
        if not e.dtype.is_floating_point:
            return torch.where(got == want.to(got.dtype), 0, INFINITE - 1).to(torch.int8)
        value, exact = got.double(), want.double()
        distance = torch.where(value == exact, 0.0, value - exact).abs()
        size = torch.where(torch.isfinite(exact), exact.abs(), 0.0)
        ratio = distance / (e.absolute + e.relative * size) if e.absolute is not None else distance / (size + e.scale)
        ratio = ratio if e.absolute is not None else ratio / self._allowed()
        level = (4 * ratio.log10()).ceil().nan_to_num(0.0, posinf=99, neginf=-99).clamp(-RIGHT, INFINITE - 1 - RIGHT)
        level = level + RIGHT
        level[torch.isinf(value) & ~torch.isinf(exact)] = INFINITE
        level[torch.isnan(value) & ~torch.isnan(exact)] = NAN
        payload = POISON.get(got.dtype)
        if payload is not None:
            level[(got.view(INTEGER_VIEWS[got.element_size()]) == payload) & ~torch.isnan(exact)] = UNWRITTEN
        return level.to(torch.int8)

    def _allowed(self) -> float:
        """What one element may be off by. Where none is beyond the peak's bound it is the sum that is wrong, and
        its own bound tells who brings it about."""
        e = self.expected
        return e.peak_allowed if self.peak > e.peak_allowed else min(e.peak_allowed, e.relative_l2_allowed)

    def _pictures(self) -> tuple[Picture, ...]:
        """Planes through the worst element's: along its channels, and along each other leading dimension, those with
        most errors."""
        shape = self.expected.shape
        if self.levels.numel() != math.prod(shape) or not shape:
            return ()
        levels = self.levels.view(shape if len(shape) > 1 else (1, *shape))
        leading = tuple(self.worst[:-2])
        chosen = {leading}
        for dim in range(len(leading)):
            planes = [(*leading[:dim], i, *leading[dim + 1 :]) for i in range(shape[dim])]
            planes.sort(key=lambda index: int((levels[index] > RIGHT).sum()), reverse=True)
            chosen |= set(planes[: MOST_PICTURES if dim == min(1, len(leading) - 1) else MOST_SLICES])
        return tuple(Picture(index, _drawn(levels[index])) for index in sorted(chosen))


def sample_of(shape: tuple[int, ...], worst: tuple[int, ...], most: int) -> tuple[int, tuple[int, ...]]:
    """Start (flat) and shape of a contiguous part of at most `most` elements around the worst one: whole trailing
    dimensions, and as many indices of the next as fit."""
    start, stride = 0, math.prod(shape)
    for dim, size in enumerate(shape):
        stride //= max(size, 1)
        if size * stride <= most:
            return start, shape[dim:]
        fitting = max(1, most // stride)
        if fitting > 1 or dim == len(shape) - 1:
            first = min(max(0, worst[dim] - fitting // 2), size - fitting)
            return start + first * stride, (fitting, *shape[dim + 1 :])
        start += worst[dim] * stride
    return start, ()


def _drawn(plane: torch.Tensor) -> tuple[str, ...]:
    """A plane as rows of characters, at most 64 by 64, each the worst of its cell."""
    cells = plane.float()[None, None]
    size = (min(CELLS, plane.shape[0]), min(CELLS, plane.shape[1]))
    pooled = torch.nn.functional.adaptive_max_pool2d(cells, size)[0, 0].to(torch.int64)
    return tuple("".join(LEVELS[level] for level in row) for row in pooled.tolist())


def _coordinates(index: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in torch.unravel_index(torch.tensor(index), shape)) if shape else ()
