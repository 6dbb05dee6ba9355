"""A run ranks what passed by runtime, ties what cannot be told apart, and says it all as JSON."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from crucible.contract import CONTRACTS
from crucible.hardware import Device
from crucible.judge.verdict.evidence import Finding, Measured, NotMeasured, Speedup
from crucible.judge.verdict.verdict import NotJudged, Outcome, Passed, Verdict, Wrong, to_json
from crucible.roofline import Floor
from crucible.run import BELIEVABLE, SCHEMA, Ground, Run, ground_from_json, tied
from crucible.task import Task


def passed(name: str, median: float, low: float | None = None, high: float | None = None) -> Verdict:
    quartiles = (median if low is None else low, median if high is None else high)
    return Verdict(name, Passed(), timing=Measured(median, quartiles, 100, "CPU time", "forward"))


def raced(name: str, *rounds: float, median: float = 1.0, baseline: str = "eager") -> Verdict:
    """One that took turns with a baseline, and was so many times as fast in each round."""
    speedup = Speedup(baseline, rounds[0], (min(rounds), max(rounds)), rounds)
    timing = Measured(median, (median, median), 100, "CUDA events", "forward", speedups=(speedup,))
    return Verdict(name, Passed(), timing=timing)


def failed(name: str, outcome: Outcome | None = None) -> Verdict:
    return Verdict(name, outcome or Wrong("forward", "off"))


def run(*verdicts: Verdict, **more: Any) -> Run:
    task = Task("a_task", Path("a_task/reference.py"), "", {})
    device = Device("cpu", "CPU: none", "1")
    return Run(task, CONTRACTS["tf32"], device, {"torch": "2.13"}, 7, verdicts, **more)


def ranks(*verdicts: Verdict) -> list[tuple[int, str]]:
    return [(rank, verdict.candidate) for rank, verdict in run(*verdicts).ranked]


def test_the_fastest_comes_first() -> None:
    assert ranks(passed("slow", 3), passed("fast", 1), passed("middle", 2)) == [
        (1, "fast"),
        (2, "middle"),
        (3, "slow"),
    ]
    assert run(passed("slow", 3), passed("fast", 1)).best == "fast"


def test_overlapping_ranges_share_a_rank_and_the_next_rank_is_left_out() -> None:
    found = ranks(passed("c", 5, 4.9, 5.1), passed("b", 1.1, 1.0, 1.2), passed("a", 1.0, 0.9, 1.05))
    assert found == [(1, "a"), (1, "b"), (3, "c")]


def test_ranges_that_touch_tie() -> None:
    assert ranks(passed("a", 1, 0.9, 1.5), passed("b", 2, 1.5, 2.1)) == [(1, "a"), (1, "b")]


# --- who took turns with the same baseline


def about(ratio: float, seed: int, count: int = 12) -> Sequence[float]:
    draw = random.Random(seed)
    return [ratio * draw.uniform(0.99, 1.01) for _ in range(count)]


def test_those_who_raced_are_ranked_through_the_baseline_and_not_by_their_runtimes() -> None:
    """The machine was half as fast when the second one was timed, and the baseline beside it."""
    found = ranks(
        raced("slow", *about(1.5, 1), median=2.0),
        raced("fast", *about(3.0, 2), median=2.2),
        raced("middle", *about(2.0, 3)),
    )
    assert found == [(1, "fast"), (2, "middle"), (3, "slow")]


def test_it_is_the_anchor_they_are_compared_through() -> None:
    """Each baseline's turns are its own: another one may have been disturbed beside one candidate."""
    verdicts = []
    for name, over_eager, over_compile in (("a", 2.0, 9.0), ("b", 3.0, 1.0)):
        speedups = [
            Speedup(baseline, ratio, (ratio, ratio), (ratio,) * 8)
            for baseline, ratio in (("compile", over_compile), ("eager", over_eager))
        ]
        timing = Measured(1.0, (1.0, 1.0), 9, "CUDA events", "forward", speedups=tuple(speedups))
        verdicts.append(Verdict(name, Passed(), timing=timing))
    assert ranks(*verdicts) == [(1, "b"), (2, "a")]


def test_those_whose_ratio_may_be_one_tie() -> None:
    found = ranks(raced("a", *about(2.0, 1)), raced("b", *about(2.005, 2)), raced("c", *about(1.5, 3)))
    assert sorted(found[:2]) == [(1, "a"), (1, "b")]
    assert found[2] == (3, "c")


def test_ties_are_with_the_first_of_a_rank_so_that_they_do_not_run_on() -> None:
    found = ranks(
        *(raced(name, *about(ratio, i)) for i, (name, ratio) in enumerate(zip("abc", (2.0, 1.97, 1.94), strict=True)))
    )
    assert found == [(1, "a"), (1, "b"), (3, "c")]


def test_what_two_processes_of_one_code_differ_by_is_a_tie() -> None:
    """Without any spread within either race."""
    assert tied(raced("a", *[2.0] * 8), raced("b", *[1.985] * 8))
    assert not tied(raced("a", *[2.0] * 8), raced("b", *[1.975] * 8))


def test_a_tie_is_one_from_both_sides() -> None:
    one, two = raced("a", *about(2.0, 1)), raced("b", *about(2.02, 2))
    assert tied(one, two) is tied(two, one)
    assert tied(one, one)


def test_one_outlier_is_no_tie_and_breaks_none() -> None:
    assert not tied(raced("a", *about(2.0, 1, 11), 0.5), raced("b", *about(1.5, 2)))
    assert tied(raced("a", *about(2.0, 1, 11), 9.0), raced("b", *about(2.0, 2)))


def test_where_one_did_not_race_runtimes_decide() -> None:
    found = ranks(raced("raced", *about(9.0, 1), median=2.0), passed("alone", 1.0, 0.9, 1.1))
    assert found == [(1, "alone"), (2, "raced")]
    found = ranks(raced("other", *about(9.0, 1), median=2.0, baseline="compile"), passed("alone", 1.0, 0.9, 1.1))
    assert found == [(1, "alone"), (2, "other")]


def test_what_passed_and_was_not_timed_ties_with_nobody() -> None:
    untimed = Verdict("untimed", Passed(), timing=NotMeasured("no"))
    assert not tied(passed("a", 1), untimed)
    assert not tied(untimed, untimed)


# --- the floor


FLOORS = (
    Floor("forward", 2.0, "memory", "2 ms: 8 GB at 4 TB/s"),
    Floor("forward+backward", 5.0, "matrix products", "5 ms"),
)


def timing(median: float, covers: str = "forward") -> Measured:
    return Measured(median, (median, median), 9, "CUDA events", covers)


def test_the_share_of_the_floor_is_by_what_was_timed() -> None:
    ground = Ground(floors=FLOORS)
    assert ground.share_of_floor(timing(8.0)) == 0.25
    assert ground.share_of_floor(timing(8.0, "forward+backward")) == 0.625
    assert ground.share_of_floor(NotMeasured("no")) == 0
    assert Ground(floors=FLOORS[:1]).share_of_floor(timing(8.0, "forward+backward")) == 0
    assert Ground().share_of_floor(timing(8.0)) == 0
    assert ground.share_of_floor(timing(0.0)) == 0


def test_faster_than_the_floor_is_questioned_and_nothing_else_is() -> None:
    ground = Ground(floors=FLOORS)
    assert ground.questions(timing(2.0)) == ground.questions(timing(2.0 / BELIEVABLE * 1.001)) == ()
    assert ground.questions(NotMeasured("no")) == ()
    (finding,) = ground.questions(timing(1.0))
    assert "faster than the floor" in finding.claim
    assert "1 ms" in finding.evidence
    assert "2 ms: 8 GB at 4 TB/s" in finding.evidence


def test_what_holds_for_a_run_comes_back_from_its_json() -> None:
    ground = Ground((Finding("claim", "evidence"),), (raced("eager", 1.0, 1.0), failed("compile")), FLOORS)
    assert ground_from_json(json.loads(json.dumps(to_json(ground)))) == ground
    for broken in ({}, {"findings": [], "baselines": []}, {"findings": [{"kind": "x"}], "baselines": [], "floors": []}):
        with pytest.raises((KeyError, TypeError)):
            ground_from_json(broken)


# --- the rest


def test_what_was_not_judged_stands_before_what_failed() -> None:
    found = ranks(failed("wrong"), failed("gpu", NotJudged("no GPU")), passed("right", 1), failed("bad"))
    assert found == [(1, "right"), (0, "gpu"), (0, "wrong"), (0, "bad")]


@pytest.mark.parametrize("verdicts", [(), (failed("a"),), (failed("a", NotJudged("x")),)])
def test_without_a_pass_there_is_no_best(verdicts: tuple[Verdict, ...]) -> None:
    assert run(*verdicts).best is None


def test_a_verdict_is_found_by_name() -> None:
    one = run(failed("a"), passed("b", 1))
    assert one.verdict("b").evaluation
    with pytest.raises(KeyError):
        one.verdict("c")


def test_baselines_and_floors_are_in_the_json_and_not_among_the_candidates() -> None:
    ground = Ground(baselines=(raced("compile", 1.0, 1.0, median=4.0), failed("max-autotune")), floors=FLOORS)
    data = json.loads(json.dumps(run(raced("a", 2.0, 2.0, median=8.0), failed("b"), ground=ground).to_json()))
    assert [floor["covers"] for floor in data["floors"]] == ["forward", "forward+backward"]
    shares = {entry["name"]: entry["share_of_floor"] for entry in data["baselines"] + data["candidates"]}
    assert shares == {"compile": 0.5, "max-autotune": 0, "a": 0.25, "b": 0}
    assert {entry["name"]: entry["evaluation"] for entry in data["baselines"]} == {
        "compile": True,
        "max-autotune": False,
    }
    assert data["best"] == "a"
    assert data["candidates"][0]["timing"]["speedups"][0]["baseline"] == "eager"


def test_the_json_holds_the_fields_columns_and_the_evidence() -> None:
    one = run(failed("a"), passed("b", 1.5), ground=Ground((Finding("claim", "evidence"),)), trouble="disk full")
    data = json.loads(json.dumps(one.to_json()))
    assert list(data) == [
        "schema",
        "task",
        "device",
        "gpu",
        "versions",
        "contract",
        "scale",
        "training",
        "mode",
        "seed",
        "findings",
        "floors",
        "baselines",
        "candidates",
        "best",
        "trouble",
        "cut_short",
    ]
    assert (data["schema"], data["task"], data["contract"], data["seed"]) == (SCHEMA, "a_task", "tf32", 7)
    assert (data["best"], data["trouble"]) == ("b", "disk full")
    assert data["findings"] == [to_json(Finding("claim", "evidence"))]
    first, second = data["candidates"]
    required = ["name", "evaluation", "runtime_ms", "verdict", "rank", "forward", "backward", "timing"]
    assert list(first)[: len(required)] == required
    assert {"further_timings", "costs", "resources", "findings", "build_s", "total_s", "cached", "log"} <= set(first)
    assert (first["name"], first["evaluation"], first["runtime_ms"], first["rank"]) == ("b", True, 1.5, 1)
    assert (second["evaluation"], second["runtime_ms"], second["rank"]) == (False, -1.0, 0)
    assert second["verdict"] == {"kind": "wrong", "what": "forward", "detail": "off", "words": "wrong forward: off"}
