"""Outcomes are a closed set with words of their own, and every record survives JSON."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, get_args

import pytest

from crucible.judge.verdict import verdict as verdicts
from crucible.judge.verdict.evidence import Compared, Finding, Measured, NotCompared, NotMeasured, TensorError
from crucible.judge.verdict.verdict import (
    OUTCOMES,
    Cheated,
    Crashed,
    DoesNotBuild,
    DoesNotImport,
    Faulty,
    Fragile,
    IllegalAccess,
    Incomplete,
    InferenceOnly,
    LaunchError,
    NotJudged,
    Outcome,
    OutOfMemory,
    Passed,
    Raises,
    TimedOut,
    Verdict,
    Wrong,
    from_json,
    to_json,
)

EVERY_OUTCOME: list[tuple[Outcome, str]] = [
    (Passed(), "passed"),
    (Wrong("shape", "output is [2], should be [3]"), "wrong shape: output is [2], should be [3]"),
    (Fragile(("NaN", "ties"), "NaN: wrong nan"), "fragile (NaN, ties): NaN: wrong nan"),
    (Incomplete("3% of output"), "incomplete: 3% of output"),
    (Faulty("race-shared: read"), "faulty (its answers were right, by luck): race-shared: read"),
    (InferenceOnly(("input[0]", "bias")), "inference only: no gradient for input[0], bias"),
    (DoesNotBuild("main.cpp:3: no"), "does not build: main.cpp:3: no"),
    (DoesNotImport("it defines no class ModelNew"), "does not import: it defines no class ModelNew"),
    (Raises("forward", "line 3: ValueError"), "raises in forward: line 3: ValueError"),
    (LaunchError("invalid argument"), "launch error: invalid argument"),
    (IllegalAccess("illegal memory access"), "illegal access: illegal memory access"),
    (OutOfMemory("20 GiB"), "out of memory: 20 GiB"),
    (TimedOut("forward", 60.0), "timed out: forward took over 60 s"),
    (Crashed("backward", "killed by SIGSEGV"), "crashed in backward: killed by SIGSEGV"),
    (Cheated("early exit", "it ended"), "refused (early exit): it ended"),
    (NotJudged("no GPU"), "not judged here: no GPU"),
]


def error(**changes: Any) -> TensorError:
    same = TensorError("output", 0, 0.5, 1.0, 0.25, 1.0, (1, 2), 0, 0, 100)
    return dataclasses.replace(same, **changes)


def measured(median: float = 1.5) -> Measured:
    return Measured(median, (median - 0.1, median + 0.1), 100, "CPU time", "forward")


RECORDS = [
    error(),
    Compared((error(), error(case=1)), 4.0, ("bias",)),
    NotCompared("not asked for"),
    measured(),
    NotMeasured("it crashed"),
    Finding("fallback", "line 3"),
    Verdict(
        "a",
        Wrong("forward", "off"),
        Compared((error(peak=7.0),), 4.0),
        NotCompared("x"),
        measured(),
        (Finding("c", "e"),),
        1.0,
        2.0,
        log="text",
    ),
]


@pytest.mark.parametrize(("outcome", "words"), EVERY_OUTCOME)
def test_each_outcome_has_its_words(outcome: Outcome, words: str) -> None:
    assert outcome.words == words


def test_the_set_of_outcomes_is_whole() -> None:
    """Every class with a kind is in the union, and this file knows an example of each."""
    with_a_kind = {c for c in vars(verdicts).values() if isinstance(c, type) and isinstance(vars(c).get("kind"), str)}
    assert with_a_kind == set(get_args(Outcome)) == set(OUTCOMES.values()) == {type(o) for o, _ in EVERY_OUTCOME}
    assert all(OUTCOMES[outcome.kind] is type(outcome) for outcome, _ in EVERY_OUTCOME)
    assert len(OUTCOMES) == len(get_args(Outcome))


@pytest.mark.parametrize("record", [*(outcome for outcome, _ in EVERY_OUTCOME), *RECORDS])
def test_every_record_survives_json(record: Any) -> None:
    assert from_json(json.loads(json.dumps(to_json(record)))) == record


@pytest.mark.parametrize(("outcome", "_"), EVERY_OUTCOME)
def test_a_verdict_survives_json_with_every_outcome(outcome: Outcome, _: str) -> None:
    verdict = Verdict("a", outcome, findings=(Finding("claim", "evidence"),))
    assert from_json(json.loads(json.dumps(to_json(verdict)))) == verdict


@pytest.mark.parametrize("data", [{"kind": "unheard-of"}, {"kind": "passed", "extra": 1}, {"words": "x"}])
def test_records_of_another_version_are_refused(data: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError)):
        from_json(data)


@pytest.mark.parametrize(("outcome", "_"), EVERY_OUTCOME)
def test_only_a_pass_evaluates_to_true_and_has_a_runtime(outcome: Outcome, _: str) -> None:
    verdict = Verdict("a", outcome, timing=measured(2.5))
    passed = isinstance(outcome, Passed)
    assert verdict.evaluation is passed
    assert verdict.runtime_ms == (2.5 if passed else -1.0)


def test_a_pass_without_a_runtime_has_none() -> None:
    assert Verdict("a", Passed()).runtime_ms == -1.0


def test_where_an_answer_came_from_does_not_make_it_another() -> None:
    assert Verdict("a", Passed(), cached=True) == Verdict("a", Passed())


@pytest.mark.parametrize(
    ("changes", "ratio", "ok"),
    [
        ({}, 0.5, True),
        ({"relative_l2": 1.0}, 1.0, True),
        ({"relative_l2": 1.01}, 1.01, False),
        ({"peak": 3.0}, 3.0, False),
        ({"nan": 1}, float("inf"), False),
        ({"relative_l2": float("inf")}, float("inf"), False),
    ],
)
def test_the_worse_of_both_errors_counts(changes: dict[str, Any], ratio: float, ok: bool) -> None:
    assert error(**changes).ratio == ratio
    assert error(**changes).ok is ok


def test_a_part_is_right_when_all_of_it_is() -> None:
    right = Compared((error(), error(case=1, peak=0.9)), 4.0)
    assert (right.ok, right.words, right.worst.case, right.noise_multiple) == (True, "ok", 1, 3.6)
    wrong = Compared((error(), error(case=1, peak=2.0)), 4.0)
    assert (wrong.ok, wrong.words, wrong.worst.case, wrong.noise_multiple) == (False, "wrong", 1, 8.0)


def test_missing_gradients_are_not_right() -> None:
    part = Compared((error(),), 4.0, ("bias",))
    none = Compared((), 4.0, ("bias",))
    assert (part.ok, part.words) == (False, "partly missing")
    assert (none.ok, none.words, none.noise_multiple) == (False, "missing", 0.0)


def test_what_was_not_compared_is_not_right() -> None:
    assert NotCompared("x").ok is False
    assert NotCompared("x").words == "-"
    assert NotCompared("raises ValueError").raised and not NotCompared("its backward raises").raised
