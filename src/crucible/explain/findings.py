"""Why: each candidate's findings in order, the cause first."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from crucible.explain import (
    building,
    checks,
    faults,
    gradients,
    incomplete,
    sanitizer,
    smallest,
    speed,
    values,
    variants,
)
from crucible.judge.verdict.evidence import Finding
from crucible.judge.verdict.verdict import Verdict
from crucible.run import Run

FINDERS: tuple[Callable[[Verdict, Run], Iterable[Finding]], ...] = (
    building.why_it_does_not_build,
    building.why_it_does_not_import,
    building.why_it_raises,
    sanitizer.reported_of_what_failed,
    faults.faults_that_end_it,
    incomplete.placeholder_bodies,
    faults.faults_behind_it,
    incomplete.unwritten_outputs,
    values.wrong_form,
    values.stale_weights,
    checks.causes_that_the_judge_found,
    variants.another_function,
    gradients.missing_gradients,
    gradients.wrong_gradients,
    values.wrong_values,
    values.wrong_case,
    smallest.smallest_failing_shape,
    checks.irreproducible,
    incomplete.kernels_never_launched,
    faults.sizes_it_was_written_for,
    *speed.FINDERS,
    gradients.inference_alone,
    gradients.wrong_though_not_asked_for,
    faults.faults_without_harm,
    sanitizer.reported_of_what_passed,
    sanitizer.tools_that_ended_early,
    checks.ties,
    checks.weak_check,
    checks.notes_of_the_judge,
)
"""In the order in which what they find is the cause of what later ones find."""


def explain(verdict: Verdict, run: Run) -> tuple[Finding, ...]:
    """All that is known of why a candidate of this run is wrong or slow, the cause first. Reads records alone."""
    found = [finding for finder in FINDERS for finding in finder(verdict, run)]
    return tuple(dict.fromkeys(found))


def findings(run: Run) -> dict[str, tuple[Finding, ...]]:
    """`explain` of each candidate, by name."""
    return {verdict.candidate: explain(verdict, run) for verdict in run.verdicts}
