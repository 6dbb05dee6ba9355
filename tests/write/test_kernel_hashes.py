"""Kernels are those that were recorded, and the comparison of machine code tells what is the same and what is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import kernel_corpus
from crucible import hardware

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import same_machine_code as machine

KERNEL = """\
__global__ void __launch_bounds__(128) {name}(const float* __restrict__ x, float* __restrict__ out) {{
    const unsigned {index} = blockIdx.x * 128 + threadIdx.x;{comment}
    out[{index}] = x[{index}] {sign} 1.0f;
}}
"""


@pytest.mark.parametrize("group", kernel_corpus.QUICK)
def test_kernels_are_those_on_record(group: str) -> None:
    """Where a text is meant to change: `python benchmarks/same_machine_code.py OLD NEW`, then --renew, and say which
    gate it passed."""
    found = {case: kernel_corpus.hashed(texts) for case, texts in kernel_corpus.QUICK[group]()}
    known = kernel_corpus.recorded()[group]
    assert found.keys() == known.keys()
    assert {case for case in found if found[case] != known[case]} == set()


def test_every_group_is_on_record() -> None:
    known = kernel_corpus.recorded()
    assert known.keys() == set(machine.GROUPS) == kernel_corpus.GROUPS.keys()
    assert all(known.values())


@pytest.mark.skipif(not hardware.nvcc(), reason="there is no nvcc here")
def test_machine_code_tells_names_from_arithmetic() -> None:
    def text(index: str, sign: str, comment: str = "") -> str:
        return KERNEL.format(name="kernel", index=index, sign=sign, comment=comment)

    old = {("g", "c", str(i)): text("i", "+") for i in range(4)}
    new = {
        ("g", "c", "0"): text("i", "+"),
        ("g", "c", "1"): text("place", "+", "  // renamed"),
        ("g", "c", "2"): text("i", "-"),
        ("g", "c", "4"): text("i", "+"),
    }
    found = machine.compared(old, new, "sm_90a", 1)
    words = {key[2]: word.partition(":")[0] for key, word in found.items()}
    assert words == {
        "0": "same text", "1": "same machine code", "2": "other machine code", "3": "in one tree alone",
        "4": "in one tree alone",
    }  # fmt: skip
