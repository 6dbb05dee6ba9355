"""Runs put together from a ledger, and what is said on the way there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crucible import store
from crucible.candidate import Candidate
from crucible.contract import find_contract
from crucible.errors import JudgeError
from crucible.fleet import campaign, local
from crucible.fleet.assembly import Wanted, assemble
from crucible.fleet.campaign import Progress, judge_on, ledger_file
from crucible.fleet.ledger import DONE, FAILED, Entry, Ledger, Status
from crucible.fleet.submission import Submission
from crucible.hardware import Device
from crucible.judge.verdict.evidence import Finding
from crucible.judge.verdict.verdict import NotJudged, Passed, Raises, Verdict
from crucible.run import Ground, Run, run_from_json
from crucible.task import Task
from fleet.fleeting import InProcess, files
from support import SMALL_TASK

TASK = Task.load(SMALL_TASK)
RUN = Run(TASK, find_contract("tf32"), Device("cuda", "NVIDIA H200", "570"), {}, 7, ())


def wanted(*names: str) -> Wanted:
    candidates = [Candidate(name, Path(f"{name}.py"), f"# {name}") for name in names]
    return Wanted(TASK, candidates, [Submission.of(TASK, candidate) for candidate in candidates])


def entry(submission: Submission, run: Run | None = None, *, reason: str = "", misuse: bool = False) -> Entry:
    state = DONE if run else FAILED
    return Entry(submission.id, submission, state, reason, 0, "", run.to_json() if run else None, misuse)


def judged(verdict: Verdict, **what: Any) -> Run:
    return replace(RUN, verdicts=(verdict,), sources={verdict.candidate: "# under another name"}, **what)


def test_verdicts_of_several_workers_are_one_run_in_the_store() -> None:
    """Under the names that they have here, with what the best informed of them knows of the task."""
    group = wanted("a", "b", "c")
    one, two, _ = group.submissions
    baseline = Verdict("eager", Passed())
    entries = {
        one.id: entry(one, judged(Verdict("elsewhere", Passed()))),
        two.id: entry(two, judged(Verdict("b", Raises("forward", "no")), ground=Ground((), (baseline,)))),
    }
    (run,) = assemble(group, entries)
    assert [(v.candidate, v.evaluation) for v in run.verdicts] == [("a", True), ("b", False)]
    assert run.sources == {"a": "# a", "b": "# b"}
    assert [v.candidate for v in run.ground.baselines] == ["eager"]
    assert set(run.explanations) >= {"b"}
    (kept,) = store.read_run("latest")
    assert {v.candidate for v in run_from_json(kept).verdicts} == {"a", "b"}


def test_times_of_two_kinds_of_gpu_stand_in_two_tables() -> None:
    group = wanted("a", "b")
    other = Device("cuda", "NVIDIA H100", "570")
    runs = [judged(Verdict("a", Passed())), judged(Verdict("b", Passed()), device=other)]
    entries = {s.id: entry(s, run) for s, run in zip(group.submissions, runs, strict=True)}
    assert [(run.device.name, len(run.verdicts)) for run in assemble(group, entries)] == [
        ("NVIDIA H200", 1),
        ("NVIDIA H100", 1),
    ]


def test_what_failed_is_not_judged_and_says_why() -> None:
    group = wanted("a", "b")
    one, two = group.submissions
    entries = {one.id: entry(one, judged(Verdict("a", Passed()))), two.id: entry(two, reason="killed thrice")}
    (run,) = assemble(group, entries)
    assert run.verdict("b").outcome == NotJudged("killed thrice", failed=True)
    (alone,) = assemble(wanted("b"), entries)
    assert alone.verdict("b").outcome == NotJudged("killed thrice", failed=True)
    assert assemble(wanted("b"), {two.id: entry(two, reason="no such shape", misuse=True)}) == []


def test_a_run_that_was_cut_short_says_so() -> None:
    group = wanted("a", "b")
    entries = {group.submissions[0].id: entry(group.submissions[0], judged(Verdict("a", Passed())))}
    (run,) = assemble(group, entries, "interrupted", "interrupted")
    assert run.cut_short == "interrupted"
    assert run.trouble == "interrupted; 1 of 2 candidates were judged; the same command goes on"
    assert assemble(wanted("c"), entries, "interrupted", "interrupted") == []


class Stopped:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_progress_is_of_the_whole() -> None:
    said: list[str] = []
    clock = Stopped()
    progress = Progress(said.append, clock)
    progress(Status(queued=200, done=100, passed=60))
    clock.now = 60.0
    progress(Status(queued=180, running=2, done=117, passed=70, failed=1))
    progress(Status(queued=180, running=2, done=117, passed=70, failed=1))
    clock.now = 120.0
    progress(Status(done=299, failed=1, passed=150))
    assert said == [
        "100 of 300 done, 60 passed",
        "118 of 300 done, 70 passed, 1 failed, 18 a minute, 10 min left",
        "300 of 300 done, 150 passed, 1 failed, 100 a minute, 0 s left",
    ]


def test_with_nothing_judged_the_failure_or_the_interruption_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "LocalWorker", lambda slot: InProcess(lambda one: "passed", trouble=["broken"] * 99))
    monkeypatch.setattr("crucible.fleet.engine.LONGEST_PAUSE_S", 0.0)
    with pytest.raises(JudgeError, match=r"the fleet failed: no worker is left \(w0: broken\); 0 of 2 are finished"):
        judge_on("local", SMALL_TASK, [files(tmp_path, 2)], workers=1, device="cpu")
    assert Ledger(ledger_file()).status() == Status(queued=2)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(campaign, "Progress", lambda say: interrupt)
    with pytest.raises(KeyboardInterrupt):
        judge_on("local", SMALL_TASK, [files(tmp_path, 2)], workers=1, device="cpu")


def test_a_warning_of_the_ground_stays() -> None:
    group = wanted("a")
    told = Ground((Finding("the test is vacuous", "zeros pass"),))
    entries = {group.submissions[0].id: entry(group.submissions[0], judged(Verdict("a", Passed()), ground=told))}
    assert assemble(group, entries)[0].findings == told.findings
