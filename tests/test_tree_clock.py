"""The kernel's account of a tree of processes, read from outside of it."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from crucible.judge.process.tree_clock import NOTHING, Spent, kept_waiting_ms, spent

WORK = "import time; end = time.process_time() + {s}\nwhile time.process_time() < end: pass"
CHILD = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {work!r}]); {then}; input()"


def after(code: str, seconds: float) -> Spent:
    """What is spent below this process from now until a child that runs `code` has worked so long."""
    before = spent(os.getpid())
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    deadline = time.monotonic() + 60
    try:
        while time.monotonic() < deadline:
            found = spent(os.getpid()).since(before)
            if found.worked_ms >= seconds * 1e3:
                return found
            time.sleep(0.02)
        raise AssertionError(f"only {found}")
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize(
    "code",
    [
        WORK.format(s=0.3) + "\ninput()",
        f"import threading; t = threading.Thread(target=exec, args=({WORK.format(s=0.3)!r}, {{}}))\n"
        "t.start(); t.join(); input()",
        CHILD.format(work=WORK.format(s=0.3), then="pass"),
        CHILD.format(work=WORK.format(s=0.3), then="p.wait()"),
    ],
    ids=["itself", "a thread that ended", "a child that nobody waited for", "a child that was waited for"],
)
def test_work_is_seen_wherever_it_is_done(code: str) -> None:
    assert after(code, 0.3).worked_ms >= 300


def test_a_sleeper_spends_next_to_nothing() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"], stdout=-1)
    assert child.stdout is not None
    child.stdout.readline()
    before = spent(os.getpid())
    time.sleep(0.3)
    assert spent(os.getpid()).since(before).worked_ms < 100
    child.kill()
    child.wait()


def test_what_was_spent_is_never_negative() -> None:
    assert NOTHING.since(Spent(5.0, 5.0)) == NOTHING


def test_a_thread_without_a_processor_is_known_to_wait() -> None:
    allowed = os.sched_getaffinity(0)
    one = min(allowed)
    rival = subprocess.Popen([sys.executable, "-c", f"import os\nos.sched_setaffinity(0, [{one}])\nwhile True: pass"])
    try:
        os.sched_setaffinity(0, [one])
        before, end = kept_waiting_ms(), time.monotonic() + 1.0
        while time.monotonic() < end:
            pass
        assert kept_waiting_ms() - before > 50
    finally:
        os.sched_setaffinity(0, allowed)
        rival.kill()
        rival.wait()


def test_a_thread_that_sleeps_does_not_wait_for_a_processor() -> None:
    before = kept_waiting_ms()
    time.sleep(0.5)
    assert kept_waiting_ms() - before < 250
