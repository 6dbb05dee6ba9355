"""What the cases showed of one candidate, and the outcome that a wrong tensor is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from crucible.judge.verdict.evidence import (
    NO_VARIANT,
    Check,
    Compared,
    Finding,
    NotCompared,
    NoVariant,
    TensorError,
    Variant,
)
from crucible.judge.verdict.verdict import Incomplete, Outcome, Wrong, from_json
from crucible.legible import are, counted


@dataclass
class Verification:
    """What the cases showed so far."""

    forward: list[TensorError] = field(default_factory=list)
    gradients: list[TensorError] = field(default_factory=list)
    missing: tuple[str, ...] = ()
    backward_failed: str = ""
    findings: list[Finding] = field(default_factory=list)
    variant: Variant | NoVariant = NO_VARIANT
    multiple: float = 1.0
    cases: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    """PyTorch's, in its first run."""

    @property
    def forward_check(self) -> Check:
        if not self.forward:
            return NotCompared("not reached")
        return Compared(tuple(self.forward), self.multiple, cases=self.cases)

    @property
    def backward_check(self) -> Check:
        if self.backward_failed:
            return NotCompared(self.backward_failed)
        if self.gradients or self.missing:
            return Compared(tuple(self.gradients), self.multiple, self.missing, self.cases)
        return NotCompared("not asked for")

    @property
    def without_gradients(self) -> str:
        """Why nothing more is asked of its gradients; empty where they are right, or nobody looked."""
        if self.backward_failed or any(not error.ok for error in self.gradients if not error.case):
            return self.backward_failed or "its gradients are wrong on the task's own inputs"
        return "it gives no gradients" if self.missing and not self.gradients else ""

    def note(self, claim: str, evidence: str) -> None:
        self.findings.append(Finding(claim, evidence))

    def note_run(self, reply: dict[str, Any]) -> None:
        """What a run brings along."""
        self.operations = tuple(reply["operations"])
        if reply["swallowed"]:
            evidence = "; ".join(dict.fromkeys(reply["swallowed"]))
            self.note("fallback: an exception was caught in forward, and other code gave the answer", evidence)
        weights = reply["weights"]
        if weights["only_in_candidate"]:
            claim = "weights without a counterpart in the reference were left as seeded"
            self.note(claim, ", ".join(weights["only_in_candidate"]))
        if weights["only_in_reference"]:
            claim = "weights of the reference found no counterpart, so they were not copied"
            self.note(claim, ", ".join(weights["only_in_reference"]))
        if weights["paired"]:
            self.note("weights were paired otherwise than by name", "; ".join(weights["paired"]))

    def note_rule(self, seen: dict[str, Any], *, passes: bool) -> None:
        """Where the contract and the benchmark's rule (allclose, against eager) say different things."""
        if not seen["rule"]:
            return
        if seen["rule"][0]["stricter"]:
            self._note_stricter([from_json(rule["stricter"]) for rule in seen["rule"]], passes)
            return
        beyond = sum(rule["beyond"] + rule["nan"] for rule in seen["rule"])
        total = sum(rule["elements"] for rule in seen["rule"])
        if passes and beyond:
            evidence = (
                f"{beyond} of {counted(total, 'element')} {are(beyond)} beyond its tolerance of eager PyTorch's output"
            )
            self.note("the public benchmark's rule would refuse this candidate", evidence)
        if not passes and not beyond:
            evidence = f"all {counted(total, 'element')} {are(total)} within its tolerance of eager PyTorch's output"
            self.note("the public benchmark's rule would accept this candidate", evidence)

    def _note_stricter(self, errors: list[TensorError], passes: bool) -> None:
        """What the judge's own rule says of a candidate that the benchmark's lets through."""
        wrong = [error for error in errors if not error.ok]
        if passes and wrong:
            evidence = wrong_tensor(wrong[0], "forward", "its own inputs").words
            self.note("right by the public benchmark's rule, wrong by the judge's own (contract tf32)", evidence)


def wrong_tensor(error: TensorError, what: str, case: str, others: list[str] | None = None) -> Outcome:
    """The outcome for a tensor that is not right."""
    if error.unwritten:
        share = f"{error.unwritten / error.elements:.1%} of {error.name}"
        return Incomplete(f"{share} was never written, or computed from memory that nobody wrote")
    if error.nan:
        return Wrong(
            "nan", f"{error.nan} of {counted(error.elements, 'element')} of {error.name} {are(error.nan)} NaN ({case})"
        )
    also = f"; also {', '.join(others)}" if others else ""
    return Wrong(what, f"{error.name} is off by {_size(error)} on {case}, worst at {list(error.worst_index)}{also}")


def _size(error: TensorError) -> str:
    l2 = f"{error.relative_l2:.2g} in relative L2 (allowed {error.relative_l2_allowed:.2g})"
    peak = f"{error.peak:.2g} at its peak (allowed {error.peak_allowed:.2g})"
    return l2 if error.relative_l2 / error.relative_l2_allowed >= error.peak / error.peak_allowed else peak
