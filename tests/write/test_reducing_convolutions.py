"""Convolutions with reductions over space, forward and backward, on the emulator against PyTorch in float64."""

from __future__ import annotations

import pytest
import torch
from conv_harness import forward, transposed
from reducing_harness import WANTED, Built, Reducing, build, wrong

from support import some

pytestmark = pytest.mark.usefixtures("no_faults")
CASES = [
    Reducing(transposed("cut", (2, 8, 2, 5, 6), 20, (3, 3, 3), stride=2, padding=1, exact=True), "bounded", WANTED),
    Reducing(forward("ragged", (3, 6, 19, 17), 36, (3, 2), groups=2, padding=1, exact=True), "softmax"),
    Reducing(forward("merged", (2, 24, 19, 17), 24, (3, 2), groups=24, padding=1, exact=True), "softmax"),
    Reducing(forward("long", (2, 12, 700), 20, (2,), padding=1, exact=True), "normal"),
    Reducing(forward("few", (2, 16, 7, 11), 6, (2, 5), padding=2, exact=True), "largest"),
    Reducing(forward("halves", (2, 24, 90), 33, (3,), stride=2, dtype="float16"), "mean"),
    Reducing(transposed("bfloats", (1, 7, 6, 9), 5, (2, 5), stride=3, dtype="bfloat16"), "gate"),
]

TRIED = some(CASES, 2, lambda case: case.ending == "normal")
"""Of both of a softmax one, and of half types one."""
MASKED = Reducing(forward("masked", (2, 3, 700), 16, (1,)), "softmax", ())


@pytest.fixture(scope="module")
def built() -> Built:
    return build([*TRIED, MASKED])


@pytest.mark.parametrize("case", TRIED, ids=lambda case: case.name)
def test_kernels_compute_what_pytorch_does(built: Built, case: Reducing) -> None:
    assert wrong(built, case) == []


def test_items_of_nothing_but_minus_infinity_add_nothing_to_a_softmax(built: Built) -> None:
    known = MASKED.known()
    known["weight"][:, 0] = 1
    known["x"][:, 0, 64:600] = -torch.inf
    found, right = built(MASKED, known)["out"], MASKED.wanted(known)["out"]
    assert torch.isfinite(right).all()
    torch.testing.assert_close(found.double(), right, rtol=1e-3, atol=1e-6)


def test_runs_agree_bit_by_bit(built: Built) -> None:
    case = CASES[0]
    one, other = (built(case, case.known()) for _ in range(2))
    assert all(torch.equal(one[name], other[name]) for name in ("out", "saved_total", "grad_bias"))


def test_products_that_are_only_summed_stay_in_registers(built: Built) -> None:
    """Where neither other tensors are read in their order nor taps stand for channels."""
    texts = {case.ending: [k.text for k in case.lowered.kernels if "unsigned* halo" in k.text] for case in CASES}
    own = {ending: ["float own_parts" in text for text in found].count(True) for ending, found in texts.items()}
    assert own == {"bounded": 1, "softmax": 1, "normal": 2, "largest": 0, "mean": 0, "gate": 1}
    assert "phase /" in texts["bounded"][0]  # of some phases the last positions are outside
