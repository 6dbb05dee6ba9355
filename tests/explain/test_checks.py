"""What is said of the check itself, and the judge's notes with what to do about them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from explaining import a_run, claims, why

from crucible.explain.findings import explain
from crucible.judge.verdict.evidence import Finding, Measured
from crucible.judge.verdict.verdict import NotJudged, Passed, Verdict, Wrong
from crucible.run import Ground

WEAK = Finding("the check is weak here: zeros everywhere would pass", "on 3 cases (its own inputs)")


def timed(name: str, median: float, **more: Any) -> Verdict:
    return Verdict(
        name, Passed(), timing=Measured(median, (0.99 * median, 1.01 * median), 9, "CPU time", "forward"), **more
    )


def test_a_pass_under_a_weak_check_is_told_as_such() -> None:
    run = a_run(timed("a", 1.0), Verdict("b", Wrong("shape", "[3]")), ground=Ground((WEAK,)))
    assert "the check is weak here" in claims(explain(run.verdicts[0], run))
    assert "the check is weak here" not in claims(explain(run.verdicts[1], run))
    assert (
        explain(timed("a", 1.0), a_run(timed("a", 1.0), ground=Ground((Finding("judged at another shape too", ""),))))
        == ()
    )


def test_a_tie_is_told_to_both_and_nobody_else() -> None:
    one, two, other = timed("one", 1.0), timed("two", 1.005), timed("other", 2.0)
    run = a_run(one, two, other)
    first = explain(one, run)[0]
    assert first.claim == "its runtime cannot be told from that of 1 other candidate"
    assert "two (1.005 ms)" in first.evidence
    assert "cannot be told" in claims(explain(two, run))
    assert "cannot be told" not in claims(explain(other, run))


def test_right_once_and_wrong_the_next_time_is_irreproducible() -> None:
    assert "a right answer and then a wrong one" in claims(why(Wrong("not reproducible", "right once, then wrong")))
    assert "a right answer" not in claims(why(Wrong("forward", "off")))


@pytest.mark.parametrize(
    "claim",
    [
        "not bitwise reproducible",
        "the public benchmark's rule would refuse this candidate",
        "the public benchmark's rule would accept this candidate",
        "fallback: an extension did not build, and it went on without",
        "weights without a counterpart in the reference were left as seeded",
    ],
)
def test_the_judges_notes_come_with_what_to_do(claim: str) -> None:
    note = Finding(claim, "3 of 4")
    (found,) = why(Passed(), findings=(note,))
    assert found.remedy
    assert replace(found, remedy="") == note


def test_a_weight_read_in_another_order_is_the_cause_of_a_wrong_answer() -> None:
    note = Finding("conv.weight is read in another order than the reference reads it", "a change of conv.weight[0, 1]")
    other = Finding("the public benchmark's rule would accept this candidate", "all 4 elements")
    found = why(Wrong("forward", "off"), findings=(other, note))
    assert [finding.claim for finding in found] == [note.claim, other.claim]


def test_what_records_tell_is_not_told_twice() -> None:
    assert why(Passed(), findings=(Finding("the emulator found: race-shared", "race-shared: ..."),)) == ()


def test_who_was_not_judged_is_told_why() -> None:
    (found,) = why(NotJudged("size-specialised: line 3 holds 1031"))
    assert "not judged here" in found.claim and found.evidence == "size-specialised: line 3 holds 1031"
