"""Convolutions of several phases by warpgroup instructions on a GPU that has them, and passes over their products: the
cases that run on the emulator (`tests/write/test_warpgroup_phases.py`), beside PyTorch in float64."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parents[1] / "write"))

import reducing_harness
from conv_harness import ALONE, SUMS, Case, build, is_right, sums_are_right
from test_warpgroup_phases import CASES, ROWS
from test_warpgroups_on_gpu import HOPPER, load


@pytest.fixture(scope="module", autouse=True)
def hopper() -> None:
    if torch.cuda.get_device_capability() != HOPPER:
        pytest.skip("this GPU has no warpgroup instructions of compute capability 9.0")


def test_kernels_compute_what_pytorch_does() -> None:
    built = build(CASES, load, "cuda")

    def words(case: Case) -> list[str]:
        element = [] if case.chain in ALONE else [is_right(built, case)]
        return [*element, *([sums_are_right(built, case)] if case.chain in SUMS else [])]

    assert [found for case in CASES for found in words(case) if found] == []


def test_rows_are_reduced_as_pytorch_does() -> None:
    built = reducing_harness.build(ROWS, load, "cuda")
    assert {case.name: reducing_harness.wrong(built, case) for case in ROWS} == {case.name: [] for case in ROWS}
