"""What `tests/gpu` builds at once has names of its own, and cases in several extensions run as in one."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "gpu"))

import pytest
import test_warpgroup_phases_on_gpu as phases
import test_warpgroups_on_gpu as on_gpu
import torch
from conv_harness import Built, WeightCase, build, forward, is_right
from launcher import loaded

from crucible.print.written import Kernel, Lowered

CASES = [
    forward("small", (1, 4, 9), 8, (3,)),
    forward("halves", (1, 4, 5, 6), 8, (3, 2), dtype="float16", chain="biased"),
    WeightCase(forward("of_weight", (1, 4, 9), 8, (3,))),
]
FILL = Kernel(
    "fill", "__global__ void fill(float* out) { out[threadIdx.x] = threadIdx.x; }", (), (), ("out",), (1, 1, 1), 32
)


@pytest.mark.parametrize("cases", [on_gpu.EVERY, phases.CASES, phases.ROWS], ids=["all", "phases", "rows"])
def test_no_two_cases_have_one_name(cases: list[object]) -> None:
    found = Counter(case.name for case in cases)  # type: ignore[attr-defined]
    assert [name for name, count in found.items() if count > 1] == []


@pytest.fixture(scope="module")
def built() -> Built:
    return build(CASES, builds=2)


@pytest.mark.usefixtures("no_faults")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_cases_in_several_extensions_are_right(built: Built, case: object) -> None:
    assert is_right(built, case) == ""  # type: ignore[arg-type]


def test_a_launch_that_fails_is_told_by_its_kernel() -> None:
    """Of more threads than a block may have; one of no blocks does nothing."""
    wide = replace(FILL, name="wide", text=FILL.text.replace("fill(", "wide("), threads=2048)
    empty = replace(FILL, name="empty", text=FILL.text.replace("fill(", "empty("), grid=(0, 1, 1))
    run = loaded("fills", [Lowered((FILL, wide, empty))], [{"out": "float32"}])
    out = torch.zeros(32)
    with pytest.raises(RuntimeError, match="wide: invalid configuration argument"):
        run(1, [out])
    run(2, [out])
    assert not out.any()
    run(0, [out])
    assert torch.equal(out, torch.arange(32.0))
