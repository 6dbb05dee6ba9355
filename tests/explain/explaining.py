"""Records to explain, made as the judge makes them: tensors compared and mapped, runs with one candidate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from crucible.contract import CONTRACTS
from crucible.explain.findings import explain
from crucible.hardware import Device
from crucible.judge.diagnosis.mapping import Mapper
from crucible.judge.oracle.compare import Difference, Expected
from crucible.judge.verdict.evidence import Compared, Finding, TensorError
from crucible.judge.verdict.verdict import Outcome, Passed, Verdict, Wrong
from crucible.run import Ground, Run
from crucible.task import Task

ALLOWED = 1e-4
SHAPE = (3, 8, 5, 13, 11)


def oracle(*shape: int, seed: int = 0) -> torch.Tensor:
    """What the answer is."""
    return torch.randn(shape or SHAPE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def compared(got: torch.Tensor, want: torch.Tensor, name: str = "output", pieces: int = 1) -> TensorError:
    """The two as the oracle compares and maps them, in so many pieces."""
    scale = float(want.double().square().mean().sqrt()) or 1.0
    expected = Expected(name, want.flatten(), got.dtype, tuple(want.shape), scale, ALLOWED, 4 * ALLOWED)
    flat = got.contiguous().flatten()
    difference = Difference(expected)
    for piece in flat.chunk(pieces):
        difference.add(piece)
    error = difference.result(0)
    if error.ok:
        return error
    mapper = Mapper(expected, error.worst_index, error.peak)
    for piece in flat.chunk(pieces):
        mapper.add(piece)
    return TensorError(**{**vars(error), "map": mapper.result()})


def a_run(*verdicts: Verdict, source: str = "", **more: Any) -> Run:
    """A run of these verdicts on an H200, all with one text."""
    task = Task("a_task", Path("a_task/reference.py"), "", {})
    sources = {verdict.candidate: source for verdict in verdicts}
    device = Device("cuda", "NVIDIA H200", "580")
    settings: dict[str, Any] = {"ground": Ground(), "sources": sources, **more}
    return Run(task, CONTRACTS["tf32"], device, {"torch": "2.13.0"}, 0, verdicts, **settings)


def why(outcome: Outcome, source: str = "", **evidence: Any) -> tuple[Finding, ...]:
    """The findings of one verdict."""
    verdict = Verdict("candidate", outcome, **evidence)
    return explain(verdict, a_run(verdict, source=source))


def why_wrong(got: torch.Tensor, want: torch.Tensor) -> tuple[Finding, ...]:
    """The findings of a candidate whose forward gives `got`."""
    tensor = compared(got.float(), want)
    outcome: Outcome = Passed() if tensor.ok else Wrong("nan" if tensor.nan else "forward", "output is off")
    return why(outcome, forward=Compared((tensor,), 4.0))


def claims(findings: tuple[Finding, ...]) -> str:
    return "\n".join(finding.claim for finding in findings)
