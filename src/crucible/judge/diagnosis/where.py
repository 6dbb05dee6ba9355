"""Where the wrong elements of a tensor are: indices of dimensions that stand out, periods, tails."""

from __future__ import annotations

import math

import torch

from crucible.judge.verdict.error_map import MOST_RANGES, MOST_VALUES, Along

PERIODS = (*range(2, 65), 96, 128, 160, 192, 224, 256, 320, 384, 512, 768, 1024)
"""Of the flattened index: vector widths, warps, blocks, and what else is common."""
COUNTED = 1 << 18
"""Wrong elements that the flattened index is looked at for."""
NEARLY_ALL = 0.98
CLEARLY = 3.0
"""Times as many wrong elements at an index that stands out as at others."""
SURPRISE = 12.0
"""Nats: how unlikely wrong elements at random places would keep to so few indices, those being free to choose."""
MOSTLY = 0.95
"""Share of elements from which on those that are right, not those that are wrong, would have to repeat."""
DENSE = 0.9
"""Share of a tail that is wrong: some values come out right by chance."""


def along_dimension(bad: torch.Tensor, dim: int) -> Along:
    """Which indices of a dimension stand out, and how wrong each is."""
    counts = bad.sum([d for d in range(bad.dim()) if d != dim]) if bad.dim() > 1 else bad.to(torch.int64)
    size = counts.numel()
    share = counts.double() * size / max(1, bad.numel())
    high = _standing_out(share, counts)
    along = _described(dim, share, counts, high)
    return Along(**{**vars(along), "profile": _profile(share)})


def along_flat(bad: torch.Tensor) -> Along:
    """The period of the flattened index whose residues hold the wrong elements, where there is one."""
    flat = bad.flatten()
    places = flat.nonzero()[:COUNTED, 0]
    seen = int(places[-1]) + 1 if places.numel() == COUNTED else flat.numel()
    best: tuple[float, int, torch.Tensor] | None = None
    for period in PERIODS if places.numel() < MOSTLY * seen else ():
        if period * 4 > seen or places.numel() < 8:
            break
        counts = torch.bincount(places % period, minlength=period)
        share = counts.double() * period / seen
        high = _standing_out(share, counts)
        inside = float(share[high].mean()) if bool(high.any()) else 0.0
        holds = float(counts[high].sum()) / places.numel()
        if inside >= 0.5 and holds >= NEARLY_ALL and (best is None or inside > 1.2 * best[0]):
            best = (inside, period, high)
    if best is None:
        return Along(-1, flat.numel(), (), 0, (), 0.0, 0.0, 0.0)
    inside, period, high = best
    residues = tuple(high.nonzero()[:MOST_RANGES, 0].tolist())
    counts = torch.bincount(places % period, minlength=period)
    outside = float(counts[~high].sum()) * period / (seen * max(1, int((~high).sum())))
    return Along(-1, flat.numel(), (), period, residues, inside, outside, float(counts[high].sum()) / places.numel())


def tail_of(bad: torch.Tensor) -> int:
    """The flattened index from which nearly all elements are wrong and before which none is; -1 without one."""
    places = bad.flatten().nonzero()[:, 0]
    if not places.numel():
        return -1
    first = int(places[0])
    return first if first and places.numel() >= DENSE * (bad.numel() - first) else -1


def share_in_box(bad: torch.Tensor, dims: list[Along]) -> float:
    """Share of elements that are wrong at the indices of all dimensions that hold nearly every wrong one."""
    box = bad
    for along in dims:
        if along.holds >= NEARLY_ALL:
            box = box.index_select(along.dim, _indices(along))
    return float(box.double().mean()) if box.numel() else 0.0


def covered_share(bad: torch.Tensor, dims: list[Along]) -> float:
    """Share of wrong elements at an index that stands out in any dimension."""
    total, left = int(bad.sum()), bad
    for along in dims:
        if along.stands_out:
            others = torch.ones(along.size, dtype=torch.bool)
            others[_indices(along)] = False
            left = left.index_select(along.dim, others.nonzero()[:, 0])
    return 1 - int(left.sum()) / total if total else 0.0


def _standing_out(share: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Indices above the widest gap between shares, if there are clearly more wrong elements there and that is no
    chance."""
    none = torch.zeros(share.numel(), dtype=torch.bool)
    if share.numel() < 2:
        return none
    ordered = share.sort().values
    gaps = ordered[1:] - ordered[:-1]
    widest = int(gaps.argmax())
    high = share > (ordered[widest] + ordered[widest + 1]) / 2
    low_share = float(share[~high].mean())
    if float(gaps[widest]) <= 0 or float(share[high].mean()) < CLEARLY * low_share:
        return none
    return high if _surprise(counts, high) > SURPRISE else none


def _surprise(counts: torch.Tensor, high: torch.Tensor) -> float:
    """log of how unlikely it is that wrong elements at random fall on these indices so often, over all choices."""
    size, chosen, total = high.numel(), int(high.sum()), int(counts.sum())
    inside = int(counts[high].sum())
    p, q = chosen / size, inside / total
    divergence = q * math.log(q / p) + ((1 - q) * math.log((1 - q) / (1 - p)) if q < 1 and p < 1 else 0.0)
    runs = int((high[1:] != high[:-1]).sum()) + 1
    choices = min(chosen, runs) * math.log(size * math.e / min(chosen, runs))
    return total * divergence - choices


def _described(dim: int, share: torch.Tensor, counts: torch.Tensor, high: torch.Tensor) -> Along:
    total = max(1, int(counts.sum()))
    if not bool(high.any()):
        return Along(dim, share.numel(), (), 0, (), 0.0, float(share.mean()), 0.0)
    period = _period(high)
    residues = tuple(high[:period].nonzero()[:MOST_RANGES, 0].tolist()) if period else ()
    ranges = _ranges(high)
    return Along(
        dim,
        share.numel(),
        ranges if len(ranges) <= MOST_RANGES else (),
        period if period or len(ranges) <= MOST_RANGES else share.numel(),
        residues if period or len(ranges) <= MOST_RANGES else tuple(high.nonzero()[:MOST_RANGES, 0].tolist()),
        float(share[high].mean()),
        float(share[~high].mean()),
        int(counts[high].sum()) / total,
    )


def _period(high: torch.Tensor) -> int:
    """The least period of a mask, at most a third of its length and at least 2; 0 without one."""
    for period in range(2, high.numel() // 3 + 1):
        if torch.equal(high[period:], high[:-period]):
            return period
    return 0


def _ranges(high: torch.Tensor) -> tuple[tuple[int, int], ...]:
    edges = torch.cat([high.new_zeros(1), high, high.new_zeros(1)]).to(torch.int8).diff()
    starts, stops = (edges == 1).nonzero()[:, 0].tolist(), (edges == -1).nonzero()[:, 0].tolist()
    return tuple(zip(starts, stops, strict=True))


def _indices(along: Along) -> torch.Tensor:
    """The indices that stand out."""
    every = torch.arange(along.size)
    if along.ranges:
        return torch.cat([every[start:stop] for start, stop in along.ranges])
    return every[torch.isin(every % along.period, torch.tensor(along.residues))]


def _profile(share: torch.Tensor) -> tuple[float, ...]:
    pooled = torch.nn.functional.adaptive_avg_pool1d(share[None, None].float(), min(MOST_VALUES, share.numel()))
    return tuple(round(value, 4) for value in pooled[0, 0].tolist())
