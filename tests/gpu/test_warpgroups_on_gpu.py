"""Convolutions by warpgroup instructions on a GPU that has them: the cases that run on the emulator
(`tests/write/test_warpgroups.py`, `test_scatters.py`, `test_warpgroup_weights.py`, `test_warpgroup_weight_windows.py`,
`test_warpgroup_pools.py`, `test_warpgroup_streams.py`), beside PyTorch in float64."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parents[1] / "write"))

import pooled_harness
from building import BUILDS, HOPPER, load
from conv_harness import ALONE, SUMS, Built, Case, WeightCase, build, is_right, sums_are_right
from random_scatters import drawn
from test_scatters import CASES as SCATTERS
from test_warpgroup_pools import CASES as POOLED
from test_warpgroup_streams import CASES as STREAMED
from test_warpgroup_weight_windows import CASES as WINDOWS
from test_warpgroup_weights import CASES as WEIGHTS
from test_warpgroups import CASES as WALKS

CASES = [*WALKS, *SCATTERS, *STREAMED, *WEIGHTS, *drawn(40)]
WITH_RESULTS = [case for case in CASES if not (isinstance(case, Case) and case.chain in ALONE)]
WITH_SUMS = [case for case in CASES if isinstance(case, Case) and case.chain in SUMS]
EVERY = [*CASES, *POOLED, *WINDOWS]


@pytest.fixture(scope="module")
def built() -> Built:
    if torch.cuda.get_device_capability() != HOPPER:
        pytest.skip("this GPU has no warpgroup instructions of compute capability 9.0")
    return build(EVERY, load, "cuda", BUILDS)


@pytest.mark.parametrize("case", WITH_RESULTS, ids=lambda case: case.name)
def test_kernels_compute_what_pytorch_does(built: Built, case: Case | WeightCase) -> None:
    assert is_right(built, case) == ""


@pytest.mark.parametrize("case", WITH_SUMS, ids=lambda case: case.name)
def test_kernels_add_up_what_pytorch_does(built: Built, case: Case) -> None:
    assert sums_are_right(built, case) == ""


@pytest.mark.parametrize("case", POOLED, ids=lambda case: case.name)
def test_kernels_with_a_pool_compute_what_pytorch_does(built: Built, case: pooled_harness.PooledCase) -> None:
    assert pooled_harness.is_right(built, case) == ""


@pytest.mark.parametrize("case", WINDOWS, ids=lambda case: case.name)
def test_gradients_of_windows_are_what_pytorch_computes(built: Built, case: pooled_harness.SpreadCase) -> None:
    assert pooled_harness.is_spread_right(built, case) == ""
