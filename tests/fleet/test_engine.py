"""The fleet over workers that do as they are told: what becomes of submissions when they fail, die, or are unwell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crucible.errors import DeviceError, JudgeError
from crucible.fleet import engine
from crucible.fleet.engine import Fleet
from crucible.fleet.ledger import MOST_LOSSES, Ledger, Status
from crucible.fleet.submission import Submission
from fleet.fleeting import InProcess, Judged, wait_for


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.sqlite")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses: what is tested is what comes after them."""
    monkeypatch.setattr(engine, "LONGEST_PAUSE_S", 0.0)
    monkeypatch.setattr(engine, "_POLL_S", 0.01)


def submissions(count: int, tasks: int = 1, device: str = "auto") -> list[Submission]:
    pairs = [(i % tasks, i) for i in range(count)]
    return [Submission(f"t{t}", f"# task {t}", f"c{i}", f"# {i}", {"device": device}) for t, i in pairs]


def passed(one: dict[str, Any]) -> str:
    return "passed"


def drained(ledger: Ledger, ids: list[str], *workers: InProcess) -> Status:
    with Fleet(ledger, workers) as fleet:
        return fleet.drain(ids)


def by_name(**what: str) -> Judged:
    return lambda one: what.get(one["candidate_name"], "passed")


def test_all_are_judged_once_by_several_workers(ledger: Ledger) -> None:
    ids = ledger.add(submissions(60, tasks=3))
    workers = [InProcess(passed, f"w{i}") for i in range(3)]
    assert drained(ledger, ids, *workers) == Status(done=60, passed=60)
    judged = [name for worker in workers for batch in worker.batches for name in batch]
    assert sorted(judged) == sorted(f"c{i}" for i in range(60))
    assert all(len({int(name[1:]) % 3 for name in batch}) == 1 for worker in workers for batch in worker.batches)


def test_a_candidate_that_kills_its_worker_fails_and_its_neighbours_do_not(ledger: Ledger) -> None:
    ids = ledger.add(submissions(8))
    worker = InProcess(by_name(c3="dies"))
    assert drained(ledger, ids, worker) == Status(done=7, passed=7, failed=1)
    assert worker.starts == 1 + MOST_LOSSES
    assert worker.batches[-1] == ["c3"]
    entry = ledger.entry(ids[3])
    assert entry is not None and entry.reason == "w0 ended by signal 9"


def test_trouble_of_the_judge_is_never_a_verdict(ledger: Ledger) -> None:
    """Tried again; and where it stays, failed with the reason, beside those that are wrong."""
    tries: dict[str, int] = {}

    def judged(one: dict[str, Any]) -> str:
        name = one["candidate_name"]
        tries[name] = tries.get(name, 0) + 1
        if name == "c0":
            return "failed"
        return "failed" if name == "c1" and tries[name] == 1 else "wrong"

    ids = ledger.add(submissions(3))
    assert drained(ledger, ids, InProcess(judged)) == Status(done=2, failed=1)
    entry = ledger.entry(ids[0])
    assert entry is not None and (entry.run, entry.reason) == (None, "out of memory")
    assert tries == {"c0": MOST_LOSSES, "c1": 2, "c2": 1}


def test_a_task_that_cannot_be_judged_fails_at_once(ledger: Ledger) -> None:
    ids = ledger.add(submissions(3))
    worker = InProcess(by_name(c0="misuse"))
    assert drained(ledger, ids, worker) == Status(failed=3)
    assert [entry.misuse for entry in ledger.results(ids).values()] == [True] * 3
    assert worker.starts == 1, "the worker is not to blame"


def test_a_batch_that_the_judge_gave_up_on_is_tried_again_by_a_fresh_worker(ledger: Ledger) -> None:
    once = iter(["trouble"])
    ids = ledger.add(submissions(3))
    worker = InProcess(lambda one: next(once, "passed"))
    assert drained(ledger, ids, worker) == Status(done=3, passed=3)
    assert worker.starts == 2


def test_a_device_that_computes_no_more_fails_nobody(ledger: Ledger) -> None:
    """The worker is left alone after a few starts; what waits goes on waiting, for another machine or day."""
    ids = ledger.add(submissions(3))
    worker = InProcess(passed, trouble=["the GPU computes no more"] * 99)
    with pytest.raises(JudgeError, match=r"no worker is left \(w0: the GPU computes no more\); 0 of 3 are finished"):
        drained(ledger, ids, worker)
    assert worker.starts == engine.UNWELL_STARTS
    assert ledger.status() == Status(queued=3)


def test_one_bad_worker_among_good_ones(ledger: Ledger) -> None:
    ids = ledger.add(submissions(12, tasks=4))
    bad, good = InProcess(passed, "bad", trouble=["broken"] * 99), InProcess(passed, "good")
    assert drained(ledger, ids, bad, good) == Status(done=12, passed=12)


def test_a_device_that_comes_back_goes_on(ledger: Ledger) -> None:
    ids = ledger.add(submissions(2))
    worker = InProcess(passed, trouble=["resetting", "resetting"])
    assert drained(ledger, ids, worker) == Status(done=2, passed=2)
    assert worker.starts == 3


def test_a_worker_of_another_version_judges_nothing(ledger: Ledger) -> None:
    ids = ledger.add(submissions(1))
    with pytest.raises(JudgeError, match="another version of Crucible"):
        drained(ledger, ids, InProcess(passed, judge="older"))
    assert ledger.status() == Status(queued=1)


def test_nobody_takes_it(ledger: Ledger) -> None:
    ids = ledger.add(submissions(1, device="cuda"))
    with pytest.raises(DeviceError, match="no worker for --device cuda: these take auto, cpu"):
        drained(ledger, ids, InProcess(passed))


def test_what_is_not_finished_waits_when_a_fleet_ends(ledger: Ledger) -> None:
    """And nobody is to blame for it."""
    ids = ledger.add(submissions(2))
    stuck = InProcess(passed)
    stuck.give = lambda batch, fresh: None  # type: ignore[method-assign]
    with Fleet(ledger, [stuck]) as fleet:
        wait_for(lambda: ledger.status().running == 2)
    assert ledger.status() == Status(queued=2)
    assert [entry.losses for entry in ledger.results(ids).values()] == [0, 0]
    assert [one.state for one in fleet.health()] == ["ended"]


def test_a_worker_that_says_nothing_is_lost(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "PATIENCE_S", 0.1)
    ids = ledger.add(submissions(1))
    worker = InProcess(passed)
    give = worker.give
    worker.give = lambda batch, fresh: give(batch, fresh) if worker.starts > 1 else None  # type: ignore[method-assign]
    assert drained(ledger, ids, worker) == Status(done=1, passed=1)
    assert worker.starts == 2


def test_two_fleets_over_one_ledger_keep_to_their_own(ledger: Ledger) -> None:
    first, second = ledger.add(submissions(2)), ledger.add(submissions(6)[2:])
    one, two = InProcess(passed), InProcess(passed)
    with Fleet(ledger, [one], only=first) as a, Fleet(ledger, [two], only=second) as b:
        a.drain(first)
        b.drain(second)
    assert sorted(name for batch in one.batches for name in batch) == ["c0", "c1"]
    assert sorted(name for batch in two.batches for name in batch) == ["c2", "c3", "c4", "c5"]
