"""Convolutions of several phases by warpgroup instructions on a GPU that has them, and passes over their products: the
cases that run on the emulator (`tests/write/test_warpgroup_phases.py`), beside PyTorch in float64."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parents[1] / "write"))

import reducing_harness
from building import BUILDS, HOPPER, load
from conv_harness import ALONE, SUMS, Built, Case, build, is_right, sums_are_right
from test_warpgroup_phases import CASES, ROWS


@pytest.fixture(scope="module")
def built() -> tuple[Built, reducing_harness.Built]:
    """Cases and rows, at once."""
    if torch.cuda.get_device_capability() != HOPPER:
        pytest.skip("this GPU has no warpgroup instructions of compute capability 9.0")
    some = max(1, BUILDS // 2)
    with ThreadPoolExecutor(2) as pool:
        cases = pool.submit(build, CASES, load, "cuda", some)
        rows = pool.submit(reducing_harness.build, ROWS, load, "cuda", some)
        return cases.result(), rows.result()


def test_kernels_compute_what_pytorch_does(built: tuple[Built, reducing_harness.Built]) -> None:
    def words(case: Case) -> list[str]:
        element = [] if case.chain in ALONE else [is_right(built[0], case)]
        return [*element, *([sums_are_right(built[0], case)] if case.chain in SUMS else [])]

    assert [found for case in CASES for found in words(case) if found] == []


def test_rows_are_reduced_as_pytorch_does(built: tuple[Built, reducing_harness.Built]) -> None:
    found = {case.name: reducing_harness.wrong(built[1], case) for case in ROWS}
    assert {name: words for name, words in found.items() if words} == {}
