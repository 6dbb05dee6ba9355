"""CUDA in the sandbox: it starts, computes, and loses no speed; the doors stay shut beside it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import sandbox_speed

from crucible import hardware
from crucible.doctor import examined
from crucible.judge.process import sandbox
from crucible.judge.process.probe import probe

pytestmark = pytest.mark.alone
needs_both = pytest.mark.skipif(bool(sandbox.layers().missing), reason=sandbox.layers().missing)


@needs_both
def test_cuda_starts_and_computes_in_the_sandbox() -> None:
    inside = probe(sandbox.layers(), gpu=True)
    assert (inside.cuda, inside.open) == ("", [])


@needs_both
def test_the_doctor_finds_nothing_wrong_with_cuda() -> None:
    health = examined(hardware.find_device())
    assert health.rows["CUDA"] == "in the sandbox: starts and computes"
    assert [words for words in health.complaints if "CUDA" in words or "sandbox" in words] == []


@needs_both
def test_kernels_lose_no_speed_in_the_sandbox() -> None:
    found = sandbox_speed.measured("cuda", groups=3, rounds=8)
    assert sandbox_speed.slower(found["workloads"]) == [], found["workloads"]
