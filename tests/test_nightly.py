"""What CI leaves to the night: part of a sweep, never all of it."""

from __future__ import annotations

import pytest

import support
from support import some


def test_by_day_a_part_and_at_night_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "NIGHTLY", False)
    assert some(range(8), 3) == [0, 3, 6]
    assert some("abcd", 9, lambda each: each in "cd") == ["a", "c", "d"]
    assert some([], 3) == []
    monkeypatch.setattr(support, "NIGHTLY", True)
    assert some(range(8), 3) == list(range(8))
