"""The ledger: no submission is lost or finished twice, whatever order workers claim, die and come back in."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from crucible.errors import StoreError
from crucible.fleet.ledger import MOST_LOSSES, MOST_RECLAIMS, Ledger, Status, is_gone, worker_name
from crucible.fleet.submission import Submission

WORKERS = ("a", "b", "c")
KINDS = ("cpu", "cuda", "auto")


def submission(number: int, task: int = 0, *, device: str = "auto", priority: int = 0) -> Submission:
    return Submission(
        f"task{task}", f"# task {task}", f"candidate{number}", f"# {number}", {"device": device}, priority
    )


def record(passed: bool = True) -> dict[str, Any]:
    return {"candidates": [{"evaluation": passed}]}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(tmp_path: Path, clock: Clock) -> Ledger:
    return Ledger(tmp_path / "ledger.sqlite", clock)


class Fleets(RuleBasedStateMachine):
    """Any order of what submitters, workers and killed heads do, beside what a dictionary says must hold."""

    @initialize()
    def begin(self) -> None:
        self.clock = Clock()
        self.folder = tempfile.TemporaryDirectory()
        self.ledger = Ledger(Path(self.folder.name) / "ledger.sqlite", self.clock)
        self.known: dict[str, Submission] = {}
        self.finished: dict[str, int] = {}
        self.cancelled: set[str] = set()
        self.held: dict[str, set[str]] = {worker: set() for worker in WORKERS}
        self.priority: dict[str, int] = {}

    def teardown(self) -> None:
        if hasattr(self, "ledger"):
            self.ledger.close()
            self.folder.cleanup()

    @rule(numbers=st.lists(st.integers(0, 11), min_size=1, max_size=4), priority=st.integers(0, 1))
    def add(self, numbers: list[int], priority: int) -> None:
        new = [submission(n, n % 3, device=KINDS[n % 2], priority=priority) for n in numbers]
        ids = self.ledger.add(new)
        assert ids == [one.id for one in new]
        for one in new:
            if self.ledger.entry(one.id).state == "queued":  # type: ignore[union-attr]
                self.cancelled.discard(one.id)
                self.priority[one.id] = max(priority, self.priority.get(one.id, priority))
            self.known.setdefault(one.id, one)

    def held_ids(self) -> set[str]:
        return set().union(*self.held.values())

    @rule(
        worker=st.sampled_from(WORKERS),
        kinds=st.sets(st.sampled_from(KINDS), min_size=1),
        most=st.integers(1, 5),
        fewest=st.integers(1, 3),
    )
    def claim(self, worker: str, kinds: set[str], most: int, fewest: int) -> None:
        waiting = [e for e in self.ledger.results(self.known).values() if e.state == "queued"]
        fitting = [e for e in waiting if e.submission.kind in kinds]
        got = [one.submission for one in self.ledger.claim(worker, kinds, most, fewest=fewest)]
        assert bool(got) == bool(fitting)
        assert len(got) < most + fewest
        assert len({one.batch for one in got}) <= 1
        assert all(one.kind in kinds for one in got)
        if got:
            assert self.priority[got[0].id] == max(self.priority[e.id] for e in fitting)
        ids = {one.id for one in got}
        assert not ids & self.held_ids(), "one submission is with two workers"
        self.held[worker] |= ids

    @precondition(lambda self: any(self.held.values()))
    @rule(data=st.data(), passed=st.booleans())
    def finish(self, data: st.DataObject, passed: bool) -> None:
        worker = data.draw(st.sampled_from([w for w in WORKERS if self.held[w]]))
        key = data.draw(st.sampled_from(sorted(self.held[worker])))
        first = self.ledger.finish(key, record(passed), "device")
        assert first == (key not in self.finished and key not in self.cancelled)
        if first:
            self.finished[key] = self.finished.get(key, 0) + 1
        self.held[worker].discard(key)

    @rule(worker=st.sampled_from(WORKERS))
    def die(self, worker: str) -> None:
        for key in self.ledger.give_up(worker, "lost"):
            assert self.ledger.entry(key).losses >= MOST_LOSSES  # type: ignore[union-attr]
        self.held[worker].clear()

    @rule(worker=st.sampled_from(WORKERS))
    def end_in_order(self, worker: str) -> None:
        before = {key: self.ledger.entry(key).losses for key in self.held[worker]}  # type: ignore[union-attr]
        self.ledger.release(worker)
        assert before == {key: self.ledger.entry(key).losses for key in before}  # type: ignore[union-attr]
        self.held[worker].clear()

    @rule()
    def head_is_killed(self) -> None:
        """All workers with it; the next one finds their leases over."""
        self.clock.now += 1000
        self.ledger.close()
        self.ledger = Ledger(self.ledger.path, self.clock)
        self.ledger.reclaim_lost()
        assert self.ledger.status().running == 0
        for keys in self.held.values():
            keys.clear()

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.known)))
        if self.ledger.cancel(key):
            assert key not in self.finished
            self.cancelled.add(key)
            for keys in self.held.values():
                keys.discard(key)

    @invariant()
    def nothing_is_lost(self) -> None:
        if not hasattr(self, "ledger"):
            return
        entries = self.ledger.results(self.known)
        assert set(entries) == set(self.known)
        assert {k for k, e in entries.items() if e.state == "done"} == set(self.finished)
        assert all(entries[key].run is not None for key in self.finished)
        assert all(count == 1 for count in self.finished.values())
        assert {k for k, e in entries.items() if e.state == "running"} == self.held_ids()
        assert {k for k, e in entries.items() if e.state == "cancelled"} == self.cancelled
        assert all(e.reason for e in entries.values() if e.state == "failed")
        assert self.ledger.status().total == len(self.known)


TestFleets = Fleets.TestCase
TestFleets.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)


def test_higher_priorities_first_then_who_came_first(ledger: Ledger) -> None:
    ledger.add([submission(i, task=i) for i in range(3)])
    ledger.add([submission(3, task=3, priority=5)])
    order = [ledger.claim("a", {"auto"})[0].submission.candidate_name for _ in range(4)]
    assert order == ["candidate3", "candidate0", "candidate1", "candidate2"]
    assert ledger.claim("a", {"auto"}) == []


def test_a_batch_is_of_one_task_and_goes_together(ledger: Ledger) -> None:
    ledger.add([submission(i, task=i % 2) for i in range(6)])
    assert [one.submission.candidate_name for one in ledger.claim("a", {"auto"}, 8)] == [
        "candidate0",
        "candidate2",
        "candidate4",
    ]


def test_fewer_than_are_worth_a_run_are_not_left_behind(ledger: Ledger) -> None:
    ledger.add([submission(number) for number in range(9)])
    sizes = [len(ledger.claim("a", ["auto"], most=4, fewest=2)) for _ in range(3)]
    assert sizes == [4, 5, 0]
    ledger.add([submission(number, task=1) for number in range(6)])
    assert [len(ledger.claim("a", ["auto"], most=4, fewest=2)) for _ in range(2)] == [4, 2]


def test_the_same_content_is_one_submission_under_any_name(ledger: Ledger) -> None:
    one = submission(0)
    twin = Submission("other", one.task_source, "another", one.candidate_source, {"device": "auto", "training": False})
    assert ledger.add([one]) == ledger.add([twin])
    assert ledger.status().total == 1
    assert submission(0, device="cpu").id != one.id


def test_what_is_done_stays_so_until_it_is_asked_for_again(ledger: Ledger) -> None:
    (key,) = ledger.add([submission(0)])
    ledger.claim("a", {"auto"})
    assert ledger.finish(key, record(), "H200")
    assert not ledger.finish(key, record(False), "H200")
    ledger.add([submission(0)], devices=["H200"])
    assert ledger.status() == Status(done=1, passed=1)
    ledger.add([submission(0)], devices=["H100"])
    assert ledger.status() == Status(queued=1)
    ledger.finish(key, record(), "H100")
    ledger.add([submission(0)], again=True)
    assert [one.fresh for one in ledger.claim("a", {"auto"})] == [True]


def test_a_verdict_of_another_judge_is_none(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    (key,) = ledger.add([submission(0)])
    ledger.finish(key, record())
    monkeypatch.setattr("crucible.store.code_digest", lambda: "a later version")
    later = Ledger(ledger.path)
    later.add([submission(0)])
    assert later.status() == Status(queued=1)


def test_a_submission_that_costs_one_worker_after_another_fails_alone(ledger: Ledger) -> None:
    """Its neighbours wait again, and are told from it by going in ever smaller parties."""
    ids = ledger.add([submission(i) for i in range(6)])
    bad, deaths = ids[2], 0
    while batch := ledger.claim("a", {"auto"}, 32):
        for one in batch:
            if one.submission.id == bad:
                deaths += 1
                ledger.give_up("a", "killed")
                break
            ledger.finish(one.submission.id, record())
    assert deaths == MOST_LOSSES
    assert ledger.status() == Status(done=5, failed=1, passed=5)
    entry = ledger.entry(bad)
    assert entry is not None and (entry.state, entry.reason, entry.run) == ("failed", "killed", None)
    ledger.add([submission(2)])
    assert ledger.status().queued == 1, "asked for again, it has another chance"


def test_a_late_verdict_counts_once(ledger: Ledger, clock: Clock) -> None:
    """Of a worker that was taken for lost."""
    (key,) = ledger.add([submission(0)])
    ledger.claim("a", {"auto"})
    clock.now += 61
    assert ledger.reclaim_lost() == 1
    assert len(ledger.claim("b", {"auto"})) == 1
    assert ledger.finish(key, record())
    assert not ledger.finish(key, record())
    assert ledger.give_up("b", "lost") == []
    assert ledger.status() == Status(done=1, passed=1)


def test_a_lease_that_is_renewed_is_not_over(ledger: Ledger, clock: Clock) -> None:
    ledger.add([submission(0)])
    ledger.claim("a", {"auto"})
    for _ in range(4):
        clock.now += 50
        ledger.renew("a")
        assert ledger.reclaim_lost() == 0


def test_what_kills_head_after_head_fails_in_the_end(ledger: Ledger, clock: Clock) -> None:
    ledger.add([submission(0)])
    for _ in range(MOST_RECLAIMS):
        assert ledger.claim("a", {"auto"})
        clock.now += 61
        ledger.reclaim_lost()
    assert ledger.status() == Status(failed=1)


def test_a_batch_stays_with_one_kind_of_device(ledger: Ledger) -> None:
    ledger.add([submission(0), submission(1), submission(2, task=1)])
    both = ("H100", "H200")
    assert ledger.claim("a", {"auto"}, device="H200", others=both)[0].submission.task_name == "task0"
    assert ledger.claim("b", {"auto"}, device="H100", others=both)[0].submission.task_name == "task1"
    assert ledger.claim("b", {"auto"}, device="H100", others=both) == []
    assert ledger.claim("a", {"auto"}, device="H200", others=both)[0].submission.task_name == "task0"


def test_what_devices_of_other_days_began_binds_nobody(ledger: Ledger) -> None:
    one, _ = ledger.add([submission(0), submission(1)])
    ledger.finish(one, record(), "H100")
    assert ledger.claim("a", {"auto"}, device="H200", others=("H200",))


def test_only_ones_own(ledger: Ledger) -> None:
    others, own = ledger.add([submission(0)]), ledger.add([submission(1)])
    assert [one.submission.id for one in ledger.claim("a", {"auto"}, 8, only=own)] == own
    assert ledger.claim("a", {"auto"}, 8, only=own) == []
    assert ledger.status(own) == Status(running=1)
    assert ledger.place_in_queue(others[0]) == 0


def test_the_place_in_the_queue(ledger: Ledger) -> None:
    ids = ledger.add([submission(0), submission(1), submission(2, priority=1)])
    assert [ledger.place_in_queue(key) for key in ids] == [1, 2, 0]


def test_threads_share_it(ledger: Ledger) -> None:
    """Each with a connection of its own; nothing is claimed twice."""
    ids = ledger.add([submission(i, task=i) for i in range(40)])
    claimed: list[str] = []

    def work(name: str) -> None:
        while batch := ledger.claim(name, {"auto"}):
            claimed.append(batch[0].submission.id)
            ledger.finish(batch[0].submission.id, record())

    threads = [threading.Thread(target=work, args=(f"w{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(claimed) == sorted(ids)
    assert ledger.status() == Status(done=40, passed=40)


def _claim_and_wait(path: str, ready: Any) -> None:
    ledger = Ledger(path)
    ledger.claim(worker_name("slot"), {"auto"}, 2)
    ready.set()
    signal.pause()


def test_what_a_killed_process_held_is_taken_back_at_once(tmp_path: Path) -> None:
    """Without waiting for its lease: the system knows that it is no more."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.add([submission(0), submission(1), submission(2)])
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=_claim_and_wait, args=(str(ledger.path), ready))
    process.start()
    assert ready.wait(60)
    assert ledger.reclaim_lost() == 0
    assert ledger.status() == Status(queued=1, running=2)
    process.kill()
    process.join()
    assert ledger.reclaim_lost() == 2
    assert ledger.status() == Status(queued=3)


def test_a_writer_killed_at_any_moment_leaves_it_whole(tmp_path: Path) -> None:
    """One that adds, claims and finishes as fast as it can, killed several times."""
    script = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from fleet.test_ledger import *\n"
        "ledger = Ledger(sys.argv[1]); print('up', flush=True)\n"
        "for i in range(10**6):\n"
        "    ledger.add([submission(i)])\n"
        "    for one in ledger.claim('x', {'auto'}): ledger.finish(one.submission.id, record())\n"
    )
    tests = str(Path(__file__).parents[1])
    total = 0
    for pause in (0.05, 0.31):
        command = [sys.executable, "-c", script, str(tmp_path / "ledger.sqlite"), tests]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None and process.stdout.readline() == "up\n"
            threading.Event().wait(pause)
            os.kill(process.pid, signal.SIGKILL)
        found = Ledger(tmp_path / "ledger.sqlite")
        status = found.status()
        assert status.total >= total and status.queued + status.running <= 2
        first = found.results(submission(i).id for i in range(5)).values()
        assert all(entry.run for entry in first if entry.state == "done")
        total = status.total
    assert total > 0


def test_a_ledger_that_cannot_be_used_says_so(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").write_text("this is no database, however long it may be" * 50)
    with pytest.raises(StoreError, match=r"ledger\.sqlite cannot be used: file is not a database"):
        Ledger(tmp_path / "ledger.sqlite").status()


def test_names_of_workers_tell_whether_they_are_gone() -> None:
    own = worker_name("gpu0")
    assert not is_gone(own)
    machine, process, _ = own.split(":")
    assert is_gone(f"{machine}:{process}:1/gpu0"), "another process of the same number"
    assert not is_gone(f"elsewhere:{process}:1/gpu0")
    assert not is_gone("a")
