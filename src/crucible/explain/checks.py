"""Findings about the check itself, and what the judge noted beside a verdict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from crucible.judge.verdict.evidence import Finding, Measured
from crucible.judge.verdict.verdict import Passed, Verdict, Wrong
from crucible.run import Run, tied

_CAUSES = ("is read in another order than the reference reads it",)
"""Of the judge's own findings: those that are why an answer is wrong, wherever they stand in a claim."""
_REMEDIES = {
    "is read in another order": "swap the weight's leading dimensions in the kernel's index: wrong is where it shows",
    "fallback: an extension did not build": "mend the build: 0 of its kernels are what is judged",
    "fallback: none of its kernels ran": "call them: 0 launches were seen",
    "fallback: an exception was caught": "take the try around it out: what is judged is the fallback",
    "not bitwise reproducible": "sum in a fixed order (no atomics on floats) where runs must agree bit by bit",
    "not judged with new weights": "name and shape parameters as the reference does: so far only its own were seen",
    "weights were paired otherwise": "name parameters as the reference does where a state dict is to be loaded by name",
    "wrong by the judge's own": "judge with --contract tf32: the benchmark's tolerance is too wide to tell here",
    "weights without a counterpart": "name and shape parameters as the reference does, so that weights are copied",
    "weights of the reference found no counterpart": "name and shape parameters as the reference does",
    "faster than the floor": "look whether it computes all: its time is below what the work needs",
    "the public benchmark's rule would refuse": "judge with --contract fp32 for an error within the benchmark's 1e-4",
    "the public benchmark's rule would accept": "the contract is stricter than allclose: the relative L2 error counts",
}
_REPEATED = ("the emulator found:", "a kernel never ran", "a barrier was never reached", "inference only:",
             "wrong gradients, which were not asked for",
             "it computes another function than the reference", "its backward computes another function")  # fmt: skip
"""Told by other findings, from the records behind them."""


def causes_that_the_judge_found(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """What the judge found while it looked for the cause of a wrong answer."""
    if isinstance(verdict.outcome, Passed):
        return
    yield from (_with_remedy(f) for f in verdict.findings if any(cause in f.claim for cause in _CAUSES))


def notes_of_the_judge(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """All else that it noted."""
    for finding in verdict.findings:
        cause = not isinstance(verdict.outcome, Passed) and any(cause in finding.claim for cause in _CAUSES)
        if not cause and not finding.claim.startswith(_REPEATED):
            yield _with_remedy(finding)


def irreproducible(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """Right once, wrong the next time."""
    outcome = verdict.outcome
    if isinstance(outcome, Wrong) and outcome.what == "not reproducible":
        yield Finding(
            "the same inputs gave a right answer and then a wrong one",
            outcome.detail,
            "look for threads that depend on each other's order, and for memory that keeps something between calls",
        )


def ties(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """Who cannot be told from it."""
    same = [v for v in run.passed if v.candidate != verdict.candidate and verdict.evaluation and tied(v, verdict)]
    timing = verdict.timing
    if same and isinstance(timing, Measured):
        names = ", ".join(f"{v.candidate} ({v.runtime_ms:.4g} ms)" for v in same[:4])
        yield Finding(
            f"its runtime cannot be told from that of {len(same)} other candidate{'s' if len(same) > 1 else ''}",
            f"{timing.median_ms:.4g} ms, at 95 % confidence the same as {names}",
            "choose by something else (memory, backward), or judge with a longer --race-limit",
        )


def weak_check(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """A pass under a check that would let something plainly wrong pass as well."""
    if not verdict.evaluation:
        return
    for finding in run.findings:
        if finding.claim.startswith("the task is vacuous"):
            yield replace(finding, remedy="do not count it: what computes nothing passes", confidence="certain")
        elif finding.claim.startswith("the check is weak here"):
            remedy = "give the task inputs or weights whose answer varies more: 1 plainly wrong answer would pass"
            yield replace(finding, remedy=remedy, confidence="certain")


def _with_remedy(finding: Finding) -> Finding:
    if finding.remedy:
        return finding
    remedy = next((words for mark, words in _REMEDIES.items() if mark in finding.claim), "")
    return replace(finding, remedy=remedy)
