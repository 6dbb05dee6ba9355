"""gym_verdicts: a verdict in the words of KernelGYM's `EvaluationResponse`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crucible import legible
from crucible.judge.timing.baselines import ANCHOR
from crucible.judge.verdict.evidence import Costs, Measured
from crucible.judge.verdict.verdict import (
    Crashed,
    DoesNotBuild,
    DoesNotImport,
    IllegalAccess,
    LaunchError,
    NotJudged,
    Outcome,
    OutOfMemory,
    Passed,
    Raises,
    TimedOut,
    Verdict,
)
from crucible.judge.verdict.whose import Whose

_BASELINES = {"torch_compile": "compile", "compile": "compile"}
"""Their `reference_backend` by our baseline; every other word is eager."""
_BEFORE_IT_RAN = ("import or build", "construction")
_ERRORS: dict[type, str] = {
    DoesNotBuild: "COMPILATION_ERROR",
    DoesNotImport: "IMPORT_ERROR",
    Raises: "RUNTIME_ERROR",
    LaunchError: "RUNTIME_ERROR",
    IllegalAccess: "RUNTIME_ERROR",
    OutOfMemory: "RUNTIME_ERROR",
    Crashed: "RUNTIME_ERROR",
    TimedOut: "TIMEOUT_ERROR",
}


def evaluation(verdict: Verdict, reference_backend: str | None = None) -> dict[str, Any]:
    """The fields of a result but for ids and times.

    `completed` whatever the candidate did, so that `failed` is left for what is not its doing: their client takes both
    for the kernel's fault, and only a verdict is. Runtimes in ms, -1 where there is none; `speedup` 0 then.
    """
    outcome = verdict.outcome
    if isinstance(outcome, NotJudged):
        code = "SYSTEM_ERROR" if outcome.failed else "RESOURCE_ERROR"
        return failure(outcome.words, code)
    reference_ms, speedup = _against(verdict, _BASELINES.get(reference_backend or "", ANCHOR))
    passed = isinstance(outcome, Passed)
    return {
        "status": "completed",
        "compiled": _compiled(outcome),
        "correctness": passed,
        "decoy_kernel": _decoy(verdict),
        "reference_runtime": reference_ms,
        "kernel_runtime": verdict.runtime_ms,
        "speedup": speedup,
        "metadata": _metadata(verdict),
        "error_message": None if passed else legible.line(outcome.words),
        "error_code": None if passed else _ERRORS.get(type(outcome), "CORRECTNESS_ERROR"),
    }


def failure(words: str, code: str = "SYSTEM_ERROR") -> dict[str, Any]:
    """Infrastructure trouble: an error, and nothing at all about the kernel."""
    return {"status": "failed", "error_message": legible.line(words), "error_code": code}


def _compiled(outcome: Outcome) -> bool:
    early = isinstance(outcome, TimedOut | Crashed) and outcome.stage in _BEFORE_IT_RAN
    return not (early or isinstance(outcome, DoesNotBuild | DoesNotImport))


def _decoy(verdict: Verdict) -> bool | None:
    """Whether it brought kernels and others answered; None where nobody looked at what ran."""
    whose = verdict.whose
    if isinstance(verdict.outcome, Passed) and verdict.outcome.fallback:
        return True
    if not isinstance(whose, Whose) or not (_kernels(verdict) or whose.by == "the emulator"):
        return None
    return not whose.own


def _against(verdict: Verdict, baseline: str) -> tuple[float, float]:
    """The reference's time in ms and how many times faster the candidate is."""
    timing = verdict.timing
    faster = timing.speedup_over(baseline) if isinstance(timing, Measured) and verdict.evaluation else None
    return (faster.ratio * verdict.runtime_ms, faster.ratio) if faster else (-1.0, 0.0)


def _metadata(verdict: Verdict) -> dict[str, Any]:
    timing = verdict.timing
    shared = {"verdict": verdict.outcome.kind, "judge": "crucible", **_coverage(verdict)}
    if isinstance(timing, Measured):
        bounds = {speedup.baseline: list(speedup.interval) for speedup in timing.speedups}
        shared |= {
            "speedup_intervals": bounds,
            "runtime_quartiles_ms": list(timing.quartiles_ms),
            "clock": timing.clock,
        }
    return shared


def _coverage(verdict: Verdict) -> Mapping[str, Any]:
    """Whose kernels ran, by number and by time in us; empty where no kernel was seen."""
    kernels, whose = _kernels(verdict), verdict.whose
    if not kernels or not isinstance(whose, Whose) or not isinstance(verdict.costs, Costs):
        if not isinstance(whose, Whose) or whose.by != "the emulator":
            return {}
        return {"num_custom_kernels": len(whose.own), "num_total_kernels": len(whose.own) + len(whose.others)}
    total_us = 1e3 * sum(kernel.time_ms for kernel in verdict.costs.kernels)
    share = whose.own_share if isinstance(whose.own_share, float) else 0.0
    custom = sum(count for name, count in kernels.items() if name in whose.own)
    return {
        "num_custom_kernels": custom,
        "num_total_kernels": sum(kernels.values()),
        "custom_kernel_cuda_time_in_profiling_us": share * total_us,
        "total_kernel_run_time_in_profiling_us": total_us,
        "custom_kernel_cuda_time_coverage": f"{share:.2%}",
    }


def _kernels(verdict: Verdict) -> Mapping[str, int]:
    costs = verdict.costs
    return {kernel.name: kernel.count for kernel in costs.kernels} if isinstance(costs, Costs) else {}
