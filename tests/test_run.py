"""A run ranks what passed by runtime, ties where ranges overlap, and says it all as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crucible.contract import CONTRACTS
from crucible.hardware import Device
from crucible.judge.verdict import Finding, Measured, NotJudged, Outcome, Passed, Verdict, Wrong
from crucible.run import SCHEMA, Run
from crucible.task import Task


def passed(name: str, median: float, low: float | None = None, high: float | None = None) -> Verdict:
    quartiles = (median if low is None else low, median if high is None else high)
    return Verdict(name, Passed(), timing=Measured(median, quartiles, 100, "CPU time", "forward"))


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


def test_the_json_holds_the_fields_columns_and_the_evidence() -> None:
    one = run(failed("a"), passed("b", 1.5), findings=(Finding("claim", "evidence"),), trouble="disk full")
    data = json.loads(json.dumps(one.to_json()))
    assert list(data) == [
        "schema",
        "task",
        "device",
        "versions",
        "contract",
        "scale",
        "training",
        "mode",
        "seed",
        "findings",
        "candidates",
        "best",
        "trouble",
        "cut_short",
    ]
    assert (data["schema"], data["task"], data["contract"], data["seed"]) == (SCHEMA, "a_task", "tf32", 7)
    assert (data["best"], data["trouble"]) == ("b", "disk full")
    assert data["findings"] == [{"kind": "Finding", "claim": "claim", "evidence": "evidence"}]
    first, second = data["candidates"]
    required = ["name", "evaluation", "runtime_ms", "verdict", "rank", "forward", "backward", "timing", "findings"]
    assert list(first)[: len(required)] == required
    assert {"build_s", "total_s", "cached", "log"} <= set(first)
    assert (first["name"], first["evaluation"], first["runtime_ms"], first["rank"]) == ("b", True, 1.5, 1)
    assert (second["evaluation"], second["runtime_ms"], second["rank"]) == (False, -1.0, 0)
    assert second["verdict"] == {"kind": "wrong", "what": "forward", "detail": "off", "words": "wrong forward: off"}
