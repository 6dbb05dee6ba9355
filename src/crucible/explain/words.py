"""Places and numbers in words."""

from __future__ import annotations

from collections.abc import Sequence

from crucible.judge.verdict.error_map import Along

SHOWN = 6
"""Items of a list that are written out."""


def listed(items: Sequence[object]) -> str:
    """`1, 2, 3 and 9 more`."""
    words = ", ".join(str(item) for item in items[:SHOWN])
    return f"{words} and {len(items) - SHOWN} more" if len(items) > SHOWN else words


def indices(along: Along) -> str:
    """`index 3`, `the first and the last index`, `indices 100 to 127 (the end)`, `every 4th index (from 3)`."""
    if along.period and (len(along.ranges) > 2 or not along.ranges):
        return _periodic(along)
    if along.ranges == ((0, 1), (along.size - 1, along.size)):
        return "the first and the last index"
    if not along.ranges:
        return "no index in particular"
    words = [_one(start, stop, along.size) for start, stop in along.ranges[:SHOWN]]
    more = f" and {len(along.ranges) - SHOWN} more ranges" if len(along.ranges) > SHOWN else ""
    return ("index " if along.count == 1 else "indices ") + ", ".join(words) + more


def _periodic(along: Along) -> str:
    if along.period >= along.size:  # more ranges than the map keeps
        return f"scattered indices, among them {', '.join(map(str, along.residues[:SHOWN]))},"
    if (along.period, along.residues) in ((2, (0,)), (2, (1,))):
        return f"the {'odd' if along.residues[0] else 'even'} indices"
    if len(along.residues) == 1:
        return f"every {nth(along.period)} index (from {along.residues[0]})"
    return f"indices that leave {listed(along.residues)} when divided by {along.period}"


def _one(start: int, stop: int, size: int) -> str:
    if stop - start == 1:
        return f"{start}" + (" (the last)" if stop == size and size > 1 else "")
    return f"{start} to {stop - 1}" + (" (the end)" if stop == size else "")


def nth(number: int) -> str:
    """`1st`, `2nd`, `3rd`, `4th`, `11th`."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if 10 <= number % 100 <= 20 else ending}"


def dimension(dim: int, dims: int) -> str:
    """`dimension 1 (of 5)`, or `the flattened index`."""
    return "the flattened index" if dim < 0 else f"dimension {dim} (of {dims})"


def share(part: float) -> str:
    """`all`, `none`, `12 %`, `0.03 %`."""
    return "all" if part >= 1 else "none" if part <= 0 else f"{100 * part:.2g} %" if part < 0.995 else "over 99 %"


def size_of(count: float) -> str:
    """Bytes: `1.5 GB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
