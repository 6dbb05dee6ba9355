"""Rewards: monotone in the speed-up, wrong never above right, finite; and never a number for what is not known."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crucible.errors import RewardError
from crucible.judge.verdict.evidence import Measured, NotMeasured, Speedup
from crucible.judge.verdict.parts import Parts
from crucible.judge.verdict.reward import POLICIES
from crucible.judge.verdict.verdict import (
    Cheated,
    Crashed,
    DoesNotBuild,
    DoesNotImport,
    NotJudged,
    Outcome,
    OutOfMemory,
    Passed,
    TimedOut,
    Verdict,
    Wrong,
    from_json,
    to_json,
)
from crucible.judge.verdict.whose import Whose
from crucible.run import candidate_json, verdict_from_json

RAN = (("start", 1.0), ("import or build", 1.0), ("audit", 0.1), ("construction", 0.1), ("forward", 0.1))
WRONG = Verdict("a", Wrong("forward", "x"), stages_s=RAN)
BROKEN = Verdict("a", DoesNotBuild("x"), stages_s=RAN[:2])


def timed(*speedups: Speedup, median_ms: float = 2.0) -> Measured:
    return Measured(median_ms, (median_ms * 0.9, median_ms * 1.25), 9, "CUDA events", "forward", speedups=speedups)


def over(baseline: str, ratio: float, low: float | None = None) -> Speedup:
    low = ratio if low is None else low
    return Speedup(baseline, ratio, (low, ratio * 1.2), (ratio,) * 3)


def passed(ratio: float, low: float | None = None, share: float | NotMeasured = 0.5) -> Verdict:
    race = timed(over("eager", ratio, low), over("compile", ratio, low))
    return Verdict("a", Passed(), timing=race, share_of_floor=share, stages_s=RAN)


ratios = st.floats(1e-6, 1e6)
names = pytest.mark.parametrize("policy", POLICIES)


@names
@settings(max_examples=40)
@given(ratios, ratios, st.floats(1e-9, 4.0), st.floats(1e-9, 4.0))
def test_rewards_rise_with_speed_and_are_finite(
    policy: str, one: float, two: float, near: float, nearer: float
) -> None:
    slower, faster = sorted((one, two))
    worse, better = passed(slower, share=min(near, nearer)), passed(faster, share=max(near, nearer))
    assert worse.reward(policy) <= better.reward(policy)
    assert all(math.isfinite(v.reward(policy, bound="median")) for v in (worse, better))


KINDS = [
    BROKEN,
    WRONG,
    Verdict("a", DoesNotImport("x")),
    Verdict("a", Cheated("forked", "x"), stages_s=RAN),
    Verdict("a", Cheated("early exit", "x"), stages_s=RAN[:2]),
    Verdict("a", TimedOut("forward", 1), stages_s=RAN),
    Verdict("a", OutOfMemory("x"), stages_s=RAN),
    Verdict("a", Crashed("construction", "x"), stages_s=RAN[:4]),
]


@names
@settings(max_examples=40)
@given(ratios, st.floats(1e-9, 4.0))
def test_what_is_wrong_never_earns_more_than_what_is_right(policy: str, ratio: float, share: float) -> None:
    worst = passed(ratio, share=share).reward(policy)
    for verdict in KINDS:
        assert verdict.reward(policy) <= worst
        assert verdict.reward(policy) <= WRONG.reward(policy)  # nor what never ran, or cheated, than what is wrong


@names
def test_noise_earns_nothing(policy: str) -> None:
    """A wide interval counts by its lower end; who wants the median says so."""
    noisy, sure = passed(3.0, low=0.9), passed(0.9)
    if policy != "roofline":
        assert noisy.reward(policy) == sure.reward(policy) < noisy.reward(policy, bound="median")
    assert passed(3.0).reward("roofline") == 0.5 / 1.25 < passed(3.0).reward("roofline", bound="median") == 0.5


@pytest.mark.parametrize(
    ("policy", "verdict", "reward"),
    [
        ("beats-baseline", passed(1.2), 1.0),
        ("beats-baseline", passed(1.2, low=0.99), 0.0),
        ("beats-baseline", WRONG, 0.0),
        ("cuda-agent", WRONG, -1.0),
        ("cuda-agent", passed(1.04), 1.0),
        ("cuda-agent", passed(1.06), 3.0),
        ("cuda-agent", replace(passed(1.0), timing=timed(over("eager", 1.06), over("compile", 1.04))), 2.0),
        ("cuda-agent", replace(passed(1.0), timing=timed(over("eager", 1.04), over("compile", 1.06))), 1.0),
        ("kernrl", BROKEN, -0.5),
        ("kernrl", WRONG, -0.25),
        ("kernrl", KINDS[3], -0.5),
        ("kernrl", passed(0.8), -0.1),
        ("kernrl", passed(0.1), -0.25),
        ("kernrl", passed(1.5), 0.5),
        ("kernrl", passed(9.0), 2.0),
        ("roofline", WRONG, 0.0),
        ("roofline", passed(1.0, share=2.0), 1.0),
        ("weighted", BROKEN, 0.0),
        ("weighted", WRONG, 0.3),
        ("weighted", KINDS[3], 0.0),
        ("weighted", passed(0.5), 0.7),
        ("weighted", passed(1.5), 0.85),
        ("weighted", passed(5.0), 1.0),
    ],
)
def test_policies_give_what_the_field_does(policy: str, verdict: Verdict, reward: float) -> None:
    assert verdict.reward(policy) == pytest.approx(reward)


def test_another_baseline_may_be_asked_for() -> None:
    race = timed(over("eager", 4.0), over("compile", 1.5), over("max-autotune", 1.2, low=0.9))
    verdict = replace(passed(1.0), timing=race)
    assert verdict.reward("kernrl") == 2.0 and verdict.reward("kernrl", baseline="compile") == 0.5
    assert verdict.reward("beats-baseline") == 0.0 and verdict.reward("beats-baseline", baseline="compile") == 1.0
    assert verdict.parts.over("strongest").baseline == "max-autotune"
    assert verdict.reward(lambda parts: parts.speedup or 0.0, baseline="compile") == 1.5
    with pytest.raises(
        RewardError, match=r"'kernrl' needs speedup.*no turns were taken with channels-last.*eager, comp"
    ):
        verdict.reward("kernrl", baseline="channels-last")


UNTIMED = Verdict("a", Passed(), timing=NotMeasured("the emulator shows no time"), stages_s=RAN)


@names
def test_a_pass_without_a_time_is_an_error_that_names_policy_and_reason(policy: str) -> None:
    with pytest.raises(RewardError, match=rf"'{policy}' needs (speedup|share_of_floor).*: the emulator shows no time"):
        UNTIMED.reward(policy)
    parts = UNTIMED.parts
    assert (parts.correct, parts.speedup, parts.speedup_lower, parts.share_of_floor) == (True, None, None, None)
    assert parts.reasons["speedup"] == "the emulator shows no time" and parts.metrics == {"compiled": 1, "correct": 1}
    assert UNTIMED.reward(lambda parts: float(bool(parts.correct))) == 1.0


@names
@pytest.mark.parametrize("outcome", [NotJudged("needs tilelang"), NotJudged("the oracle was lost", failed=True)])
def test_what_was_not_judged_has_no_reward(policy: str, outcome: NotJudged) -> None:
    verdict = Verdict("a", outcome)
    for rule in (policy, lambda parts: 0.0):
        with pytest.raises(RewardError, match="neither right nor wrong: not judged"):
            verdict.reward(rule)
    assert verdict.parts.correct is None and verdict.parts.metrics == {}


@pytest.mark.parametrize("value", [math.nan, math.inf, None, "1", 1j])
def test_a_policy_of_ones_own_gives_a_finite_number(value: object) -> None:
    with pytest.raises(RewardError, match="no finite number"):
        WRONG.reward(lambda parts: value)  # type: ignore[arg-type, return-value]
    assert WRONG.reward(lambda parts: -3) == -3.0


def test_unknown_names_are_told() -> None:
    with pytest.raises(RewardError, match="no reward policy 'best': choose one of beats-baseline, cuda-agent"):
        WRONG.reward("best")
    with pytest.raises(RewardError, match="no bound 'upper': choose one of lower, median"):
        WRONG.reward("kernrl", bound="upper")


def test_every_outcome_has_its_parts() -> None:
    known = {"compiled", "correct"}
    for kind in get_args(Outcome):
        outcome = kind(*[() if f.name == "missing" else "x" for f in fields(kind)])
        parts = Verdict("a", outcome, stages_s=RAN).parts
        assert isinstance(parts, Parts) and parts.kind == kind.kind
        nones = {name for name in Parts.__dataclass_fields__ if getattr(parts, name) is None}
        assert nones and nones <= set(parts.reasons) and set(parts.metrics) <= known
        assert parts.correct is (True if kind is Passed else None if kind is NotJudged else False)
    assert not BROKEN.parts.compiled and WRONG.parts.compiled


def test_whose_kernels_ran_is_a_part() -> None:
    whose = Whose(("mine",), ("at::copy",), 0.75, "the profiler")
    parts = replace(passed(2.0), whose=whose, outcome=Passed("an extension did not build")).parts
    assert (parts.own_share, parts.whose, parts.fallback) == (0.75, whose, "an extension did not build")
    emulated = replace(passed(2.0), whose=replace(whose, own_share=NotMeasured("no time"))).parts
    assert emulated.own_share is None and emulated.whose is not None and emulated.reasons["own_share"] == "no time"
    json.dumps(parts.metrics, allow_nan=False)


def test_the_share_of_the_floor_is_kept_with_the_verdict() -> None:
    verdict = passed(2.0, share=0.25)
    assert from_json(to_json(verdict)) == verdict
    assert verdict_from_json(candidate_json(1, verdict)).share_of_floor == 0.25
    assert verdict_from_json(candidate_json(1, WRONG)).share_of_floor == WRONG.share_of_floor
