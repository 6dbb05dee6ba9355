"""What `tests/gpu` builds in one extension has names of its own."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "gpu"))

import pytest
import test_warpgroups_on_gpu as on_gpu


@pytest.mark.parametrize("cases", [on_gpu.CASES, on_gpu.POOLED, on_gpu.WINDOWS], ids=["all", "pooled", "windows"])
def test_no_two_cases_have_one_name(cases: list[object]) -> None:
    found = Counter(case.name for case in cases)  # type: ignore[attr-defined]
    assert [name for name, count in found.items() if count > 1] == []
