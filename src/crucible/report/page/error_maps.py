"""Error maps as pictures: what the script draws, and what stands there without it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from crucible.explain.words import dimension, indices, listed
from crucible.judge.verdict.error_map import Along, ErrorMap
from crucible.judge.verdict.evidence import Compared, TensorError
from crucible.judge.verdict.verdict import Verdict
from crucible.report import cells

EVEN = 5.0
"""Percentage points by which bars may differ and still say nothing."""


@dataclass(frozen=True)
class Strip:
    """The share of wrong elements along one dimension."""

    label: str
    bars: tuple[float, ...]
    """Heights from 0 to 100, one for each index or piece."""
    words: str
    """Where wrong elements are."""


@dataclass(frozen=True)
class MapOfTensor:
    """How one tensor is wrong."""

    id: str
    tensor: TensorError
    map: ErrorMap
    case: str
    strips: tuple[Strip, ...]
    even: str
    """Dimensions along which wrong elements are spread evenly, in words; empty without any."""

    @property
    def choices(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """Leading dimensions of which there is more than one plane to choose from, with their indices."""
        indices = [picture.index for picture in self.map.pictures]
        values = [sorted(set(column)) for column in zip(*indices, strict=True)]
        return tuple((dim, tuple(found)) for dim, found in enumerate(values) if len(found) > 1)


def maps_of(verdict: Verdict, name: str) -> tuple[MapOfTensor, ...]:
    """A candidate's wrong tensors; their ids begin with `name`."""
    checks = [check for check in (verdict.forward, verdict.backward) if isinstance(check, Compared)]
    found = [
        (tensor, tensor.map, cells.case(check, tensor.case))
        for check in checks
        for tensor in check.tensors
        if tensor.map is not None
    ]
    return tuple(
        MapOfTensor(f"{name}m{i}", tensor, seen, case, _strips(seen), _evenly(seen))
        for i, (tensor, seen, case) in enumerate(found, 1)
    )


def drawn(one: MapOfTensor) -> dict[str, Any]:
    """For the script: planes by their indices, a character of `LEVELS` for each cell."""
    places = [picture.index for picture in one.map.pictures]
    worst = tuple(one.tensor.worst_index[:-2])
    return {
        "shape": one.map.shape,
        "start": places.index(worst) if worst in places else 0,
        "pictures": [{"index": picture.index, "rows": picture.rows} for picture in one.map.pictures],
    }


def _strips(seen: ErrorMap) -> tuple[Strip, ...]:
    dims = len(seen.shape)
    return tuple(
        Strip(dimension(along.dim, dims), _bars(along), indices(along) if along.stands_out else "no pattern")
        for along in seen.along
        if along.stands_out or _varies(along)
    )


def _evenly(seen: ErrorMap) -> str:
    even = [along.dim for along in seen.along if along.dim >= 0 and not along.stands_out and not _varies(along)]
    if not even:
        return ""
    return "evenly spread" if len(even) == len(seen.shape) else f"evenly spread along dimension {listed(even)}"


def _varies(along: Along) -> bool:
    bars = _bars(along)
    return len(bars) > 1 and max(bars) - min(bars) > EVEN


def _bars(along: Along) -> tuple[float, ...]:
    return tuple(round(100 * min(1.0, max(0.0, share)), 1) for share in along.profile)
