"""Indices put together of others."""

from __future__ import annotations

from collections.abc import Sequence

from crucible.kernel.index import ZERO, Index


def decoded(number: Index, sizes: Sequence[int]) -> list[Index]:
    """Coordinates of a number in a box."""
    found, step = list[Index](), 1
    for dim in reversed(range(len(sizes))):
        found.append(number // step % sizes[dim] if dim else number // step)
        step *= sizes[dim]
    return found[::-1]


def total(terms: Sequence[Index]) -> Index:
    found: Index = ZERO
    for each in terms:
        found = found + each
    return found
