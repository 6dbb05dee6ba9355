"""Every shipped candidate gets the verdict that its first line states, at full size, on the GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

import crucible
from support import TASKS, stated_kind, write_zeros

ACCEPTS_ZEROS = {("avgpool3d_convtranspose3d_clamp_softmax_scale", "kernelbench")}
"""Outputs are at most 2.1e-5 at full size, and the benchmark's own rule forgives 1e-4: the run has to say so."""


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_stated_verdicts_at_full_size(task: Path) -> None:
    _hold(task, sorted((task / "candidates").glob("*.py")), "tf32")


@pytest.mark.parametrize("contract", ["fp32", "kernelbench", "bf16"])
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_good_and_bad_differ_under_the_other_contracts(task: Path, contract: str, tmp_path: Path) -> None:
    """Plain PyTorch passes, zeros where the run says so alone, and a candidate whose verdict differs there differs."""
    files = sorted((task / "candidates").glob("*.py"))
    differing = [f for f in files if stated_kind(f, contract) != stated_kind(f, "tf32")]
    plain = [f for f in files if f.stem == "plain_pytorch"]
    zeros = write_zeros(tmp_path, task, "full")
    accepts_zeros = (task.name, contract) in ACCEPTS_ZEROS
    run = _hold(task, [*plain, *differing[:1], zeros], contract, zeros="passed" if accepts_zeros else "wrong")
    weak = [finding.claim for finding in run.findings if finding.claim.startswith("the check is weak here")]
    assert any("zeros everywhere" in claim for claim in weak) == accepts_zeros, weak


def _hold(task: Path, files: list[Path], contract: str, zeros: str = "") -> crucible.Run:
    run = crucible.judge(task, files, contract=contract, device="cuda", fresh=True)
    stated = {file.stem: zeros if file.stem == "zeros" else stated_kind(file, contract) for file in files}
    assert {v.candidate: v.outcome.kind for v in run.verdicts} == stated, "\n".join(
        f"{v.candidate}: {v.outcome.words}" for v in run.verdicts
    )
    return run
