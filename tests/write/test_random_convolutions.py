"""Convolutions of random shapes and parameters on the emulator, forward and backward, however they are divided."""

from __future__ import annotations

import pytest
from conv_harness import Built, Case, WeightCase, build, is_right
from random_convolutions import directions, drawn

from support import some

pytestmark = pytest.mark.usefixtures("no_faults")
COUNT = 16
CASES = directions(some(drawn(COUNT), 6))


@pytest.fixture(scope="module")
def built() -> Built:
    return build(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_kernels_compute_what_pytorch_does(built: Built, case: Case | WeightCase) -> None:
    assert is_right(built, case) == ""
