"""Convolutions with reductions over space, forward and backward, on the emulator against PyTorch in float64."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from conv_harness import forward, transposed
from reducing_harness import Built, Reducing, build, wrong

pytestmark = pytest.mark.usefixtures("no_faults")
CASES = [
    Reducing(transposed("cut", (2, 8, 2, 5, 6), 20, (3, 3, 3), stride=2, padding=1, exact=True), "bounded"),
    Reducing(transposed("whole", (2, 12, 3, 9), 16, (4, 4), stride=2, padding=1), "bounded"),
    Reducing(forward("ragged", (2, 5, 37, 19), 24, (3, 3), padding=1, exact=True), "softmax"),
    Reducing(forward("grouped", (3, 12, 9, 8), 18, (3, 3), groups=3, padding=1, exact=True), "normal"),
    Reducing(forward("few", (2, 16, 7, 11), 6, (2, 5), padding=2, exact=True), "largest"),
    Reducing(forward("halves", (2, 24, 90), 33, (3,), stride=2, dtype="float16"), "mean"),
    Reducing(transposed("bfloats", (1, 7, 6, 9), 5, (2, 5), stride=3, dtype="bfloat16"), "gate"),
]


@pytest.fixture(scope="module")
def built() -> Built:
    return build(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_kernels_compute_what_pytorch_does(built: Built, case: Reducing) -> None:
    assert wrong(built, case) == []


def test_runs_agree_bit_by_bit(built: Built) -> None:
    case = CASES[0]
    one, other = (built(case, case.known()) for _ in range(2))
    assert all(torch.equal(one[name], other[name]) for name in ("out", "saved_total", "grad_x", "grad_weight"))


def test_products_that_are_only_summed_stay_in_registers(built: Built) -> None:
    first = {case.name: next(k for k in case.lowered.kernels if "__shared__ float own_parts" in k.text or "tile[" in k.text or "float* tile" in k.text) for case in CASES}
    assert "own_parts" in first["cut_bounded"].text and "phase" in first["cut_bounded"].text
