"""Baselines kept from run to run: what they say of a candidate, what is believed of a file, who takes turns."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import crucible
from crucible import store
from crucible.judge.process import oracle_process
from crucible.judge.timing.baselines import BASELINES
from crucible.judge.timing.kept import Kept, KeptBaselines, through_anchor, told
from crucible.judge.verdict.evidence import Measured, NotMeasured, Speedup
from crucible.judge.verdict.verdict import Crashed, Passed, Raises, TimedOut, Verdict, from_json, to_json
from crucible.spread import interval
from support import PLAIN, SMALL_TASK

SINCE = "2026-11-24T09:12:00Z"
BOTH = [BASELINES["eager"], BASELINES["compile"]]


def over(baseline: str, *rounds: float) -> Speedup:
    found = interval(rounds)
    return Speedup(baseline, found.value, (found.low, found.high), rounds)


def timed(*speedups: Speedup, ms: float = 3.0, covers: str = "forward", how: str = "as called") -> Measured:
    return Measured(ms, (ms, ms), 60, "CUDA events", covers, how, ms, speedups)


def a_baseline(*speedups: Speedup, name: str = "compile", **more: Any) -> Verdict:
    return Verdict(name, Passed(), timing=timed(*(speedups or (over("eager", 2.0, 2.0, 2.1, 1.9),))), **more)


# --- what follows for a candidate


def test_a_ratio_goes_through_the_anchor() -> None:
    own = timed(over("eager", 6.0, 6.0, 6.0, 6.0), ms=1.0)
    found = through_anchor(own, [Kept(a_baseline(), SINCE)])
    eager, compiled = found.speedups
    assert (eager, compiled.baseline, compiled.kept) == (own.speedups[0], "compile", SINCE)
    assert compiled.ratio == pytest.approx(3.0)
    assert statistics.median(compiled.rounds) == pytest.approx(3.0)


def test_its_interval_is_that_of_both_races() -> None:
    """Wider than either race's alone: sure of the candidate, unsure of the baseline, and the other way round."""
    sure, unsure = (6.0,) * 20, tuple(6.0 + 0.06 * (i % 11 - 5) for i in range(20))
    kept_sure, kept_unsure = (2.0,) * 20, tuple(2.0 + 0.02 * (i % 11 - 5) for i in range(20))

    def width(own: tuple[float, ...], baselines: tuple[float, ...]) -> float:
        kept = Kept(a_baseline(over("eager", *baselines)), SINCE)
        low, high = through_anchor(timed(over("eager", *own)), [kept]).speedups[1].interval
        assert low < 3.0 < high
        return high - low

    neither, one, other, both = (width(a, b) for a in (sure, unsure) for b in (kept_sure, kept_unsure))
    assert neither < min(one, other) <= max(one, other) < both


@pytest.mark.parametrize("covers, how", [("forward+backward", "as called"), ("forward", "graph replay")])
def test_only_what_was_timed_alike_is_compared(covers: str, how: str) -> None:
    own = timed(over("eager", 6.0, 6.0), covers=covers, how=how)
    assert through_anchor(own, [Kept(a_baseline(), SINCE)]) == own
    further = (timed(over("eager", 4.0, 4.0), covers=covers, how=how),)
    found = through_anchor(own, [Kept(a_baseline(further=further), SINCE)])
    assert found.speedups[1].ratio == pytest.approx(1.5)


def test_without_the_anchor_there_is_nothing_to_compare_through() -> None:
    own = timed(over("channels-last", 2.0, 2.0))
    assert through_anchor(own, [Kept(a_baseline(), SINCE)]) == own


def test_a_baseline_that_is_wrong_has_no_ratio() -> None:
    wrong = Verdict("compile", Raises("forward", "no"))
    assert through_anchor(timed(over("eager", 2.0, 2.0)), [Kept(wrong, SINCE)]).speedups == (over("eager", 2.0, 2.0),)


def test_a_run_says_what_is_kept_and_whether_the_anchor_is_what_it_was() -> None:
    kept = [Kept(a_baseline(), SINCE)]  # 3 ms, and eager took twice that
    same, slower = (Verdict("eager", Passed(), timing=timed(ms=ms)) for ms in (6.2, 7.0))
    (finding,) = told(kept, same)
    assert SINCE in finding.evidence and "compile" in finding.evidence
    _, doubt = told(kept, slower)
    assert doubt.evidence == "eager took 6 ms beside them and takes 7 ms now"
    assert told([], same) == ()
    assert len(told(kept, None)) == 1


# --- files


def test_what_was_kept_comes_back() -> None:
    kept = KeptBaselines("task", "gpu")
    assert kept.recall(BOTH) == {}
    assert kept.keep([a_baseline(), a_baseline(name="eager")]) == ""
    found = KeptBaselines("task", "gpu").recall(BOTH)
    assert list(found) == ["compile"]  # never the anchor
    assert found["compile"].verdict == a_baseline()
    assert found["compile"].verdict.cached
    assert KeptBaselines("task", "another gpu").recall(BOTH) == {}
    assert KeptBaselines("task", "gpu").recall([BASELINES["compile"]]) == {}  # eager takes no turns in that run


def test_failures_are_kept_unless_by_chance() -> None:
    kept = KeptBaselines("task")
    kept.keep([Verdict("compile", Raises("forward", "unsupported")), Verdict("max-autotune", TimedOut("import", 1.0))])
    kept.keep([Verdict("channels-last", Crashed("timing", "SIGSEGV"))])
    assert list(kept.recall(BASELINES.values())) == ["compile"]


def test_a_passed_one_without_a_time_is_not_kept() -> None:
    kept = KeptBaselines("task")
    kept.keep([Verdict("compile", Passed(), timing=NotMeasured("not reached"))])
    kept.keep([a_baseline(over("channels-last", 1.0, 1.0), name="max-autotune")])  # never met eager
    assert kept.recall(BASELINES.values()) == {}


def _changed(**fields: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda data: {**data, **fields}


def _timed(**fields: Any) -> Callable[[dict[str, Any]], Any]:
    def change(data: dict[str, Any]) -> Any:
        data["verdict"]["timing"].update(fields)
        return data

    return change


def _over_eager(**fields: Any) -> Callable[[dict[str, Any]], Any]:
    def change(data: dict[str, Any]) -> Any:
        data["verdict"]["timing"]["speedups"][0].update(fields)
        return data

    return change


@pytest.mark.parametrize(
    "poison",
    [
        _changed(schema="crucible.baseline/0"),
        _changed(key="0" * 64),
        _changed(since="yesterday"),
        _changed(since=None),
        _changed(verdict=None),
        _changed(verdict=[]),
        _changed(verdict={"kind": "Passed"}),
        _changed(verdict={"kind": "no-such-record"}),
        _changed(verdict=to_json(a_baseline(name="max-autotune"))),
        _changed(verdict=to_json(Passed())),
        _timed(median_ms=0.0),
        _timed(median_ms=float("inf")),
        _timed(median_ms="3"),
        _timed(speedups=[]),
        _timed(unknown=1),
        _over_eager(rounds=[2.0]),
        _over_eager(rounds=[2.0, float("nan")]),
        _over_eager(rounds=[2.0, -2.0]),
        _over_eager(rounds=[2.0, 1e9]),
        _over_eager(rounds=["2", "2"]),
        _over_eager(rounds=2.0),
        _over_eager(ratio=True),
        _over_eager(interval=[2.0, None]),
        lambda data: [data],
        lambda data: "text",
    ],
)
def test_a_file_that_is_not_in_order_counts_as_absent(poison: Callable[[dict[str, Any]], Any]) -> None:
    kept = KeptBaselines("task")
    kept.keep([a_baseline()])
    file = kept.folder / "compile.json"
    assert kept.recall(BOTH)
    file.write_text(json.dumps(poison(json.loads(file.read_text()))))
    assert kept.recall(BOTH) == {}


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"null", b"1e999"])
def test_a_file_that_is_no_json_counts_as_absent(text: bytes) -> None:
    kept = KeptBaselines("task")
    kept.keep([a_baseline()])
    (kept.folder / "compile.json").write_bytes(text)
    assert kept.recall(BOTH) == {}


def test_a_place_that_cannot_be_written_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CRUCIBLE_HOME", str(tmp_path / "file"))
    assert "cannot write" in KeptBaselines("task").keep([a_baseline()])


def test_the_record_of_a_ratio_says_since_when() -> None:
    speedup = replace(over("compile", 2.0, 2.0), kept=SINCE)
    assert from_json(to_json(speedup)) == speedup
    assert speedup.divided(2.0) == replace(over("compile", 1.0, 1.0), kept=SINCE)


# --- in runs


def test_baselines_are_measured_once_and_whenever_asked(tmp_path: Path) -> None:
    said: list[str] = []

    def judge(**options: Any) -> tuple[crucible.Run, set[str]]:
        said.clear()
        limits = crucible.Limits(race_s=0.05, shrink_s=0, stress_s=0)
        settings = {"device": "cpu", "baselines": "eager,channels-last", "limits": limits, "fresh": True}
        run = crucible.judge(SMALL_TASK, [PLAIN], say=said.append, **{**settings, **options})
        assert [verdict.evaluation for verdict in (*run.verdicts, *run.ground.baselines)] == [True] * 3
        (started,) = [line for line in said if line.startswith("baselines: ")]
        return run, set(started.removeprefix("baselines: ").split(", "))

    def ratio(run: crucible.Run, over: str) -> Speedup:
        timing = run.verdicts[0].timing
        assert isinstance(timing, Measured)
        found = timing.speedup_over(over)
        assert found
        return found

    first, started = judge()
    assert started == {"eager", "channels-last"}
    assert not ratio(first, "channels-last").kept
    second, started = judge()
    assert started == {"eager"}
    kept = ratio(second, "channels-last")
    assert kept.kept and not ratio(second, "eager").kept
    assert 0.2 < kept.ratio < 5  # the same code
    assert [verdict.cached for verdict in second.ground.baselines] == [False, True]
    assert second.ground.baselines[1].timing == first.ground.baselines[1].timing
    assert any(kept.kept in finding.evidence for finding in second.findings)
    assert judge(fresh_baselines=True)[1] == {"eager", "channels-last"}
    for file in (store.home() / "baselines").rglob("*.json"):
        file.write_text(file.read_text().replace('"rounds": [', '"rounds": [-'))
    assert judge()[1] == {"eager", "channels-last"}
    assert judge(training=True)[1] == {"eager", "channels-last"}  # another task: nobody has measured that


def test_a_cpus_rates_hold_for_a_while(
    judge_batch: Callable[..., crucible.Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured twice they differ in some digit, and the better ones are kept."""

    def floor() -> float:
        (found,) = judge_batch(SMALL_TASK, [PLAIN]).ground.floors
        return found.time_ms

    monkeypatch.setattr(oracle_process, "_rates", {})
    first, second = floor(), floor()
    assert second <= first
    assert floor() == second
    monkeypatch.setattr(oracle_process, "RATES_KEPT_S", 0.0)
    assert floor() != second
