"""The supervisor, started for real: it passes ends on, holds limits, and leaves no process behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crucible.judge.process.supervisor import descendants, watched

MAIN = "import json, sys; from crucible.judge.process.supervisor import watch; watch(json.loads(sys.argv[1]))"
SLEEP = "import time; time.sleep(60)"
ORPHAN = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1] + ".new", "w").write(str(os.getpid()))
        os.rename(sys.argv[1] + ".new", sys.argv[1])
        time.sleep(60)
    os._exit(0)
os.wait()
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
"""


class Kept:
    """A supervisor with a child, and the pipe on which it says how that one ended."""

    def __init__(self, code: str, *arguments: str, **changes: Any) -> None:
        self.reading, status = os.pipe()
        settings = {
            "argv": [sys.executable, "-S", "-c", code, *arguments],
            "pass": [],
            "status": status,
            "judge": os.getpid(),
            "memory_bytes": 1 << 30,
            "processes": 50,
            **changes,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", MAIN, json.dumps(settings)],
            pass_fds=(status, *settings["pass"]),
            start_new_session=True,
        )
        os.close(status)

    def end(self) -> dict[str, Any]:
        """What it said, once it is gone; an empty answer where it said nothing."""
        text = b""
        while data := os.read(self.reading, 4096):
            text += data
        os.close(self.reading)
        self.process.wait(20)
        found: dict[str, Any] = json.loads(text or b"{}")
        return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def pid_in(file: Path) -> int:
    deadline = time.monotonic() + 20
    while not (file.exists() and file.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return int(file.read_text())


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(pid)


@pytest.mark.parametrize(
    ("code", "end"),
    [
        ("pass", 0),
        ("raise SystemExit(7)", 7),
        ("import os; os.kill(os.getpid(), 9)", -9),
        ("import os; os.abort()", -6),
    ],
)
def test_how_the_child_ended_is_passed_on(code: str, end: int) -> None:
    assert Kept(code).end() == {"end": "exit", "code": end}


def test_descriptors_reach_the_child_and_do_not_stay_open_in_the_supervisor() -> None:
    reading, writing = os.pipe()
    kept = Kept(f"import os; os.write({writing}, b'hello'); os.close({writing}); {SLEEP}", **{"pass": [writing]})
    os.close(writing)
    assert os.read(reading, 10) == b"hello"
    assert os.read(reading, 10) == b""  # the end, though the supervisor lives
    assert kept.process.poll() is None
    os.close(reading)
    kept.process.terminate()
    kept.end()


def test_too_much_memory_ends_it() -> None:
    kept = Kept(f"held = b'x' * (300 << 20); {SLEEP}", memory_bytes=200 << 20)
    end = kept.end()
    assert end["end"] == "memory"
    assert end["bytes"] > 200 << 20


def test_the_memory_of_all_processes_counts_together() -> None:
    code = f"import os; [os.fork() for _ in range(2)]; held = b'x' * (80 << 20); {SLEEP}"
    assert Kept(code, memory_bytes=200 << 20).end()["end"] == "memory"


def test_too_many_processes_end_it() -> None:
    code = "import subprocess, time; p = [subprocess.Popen(['sleep', '60']) for _ in range(8)]; time.sleep(60)"
    end = Kept(code, processes=5).end()
    assert end["end"] == "processes"
    assert end["count"] > 5


def test_what_slips_away_is_killed_with_the_rest(tmp_path: Path) -> None:
    """Forked twice, in a session of its own, its parent gone: the supervisor adopts and kills it."""
    kept = Kept(ORPHAN, str(tmp_path / "pid"))
    orphan = pid_in(tmp_path / "pid")
    assert kept.end() == {"end": "exit", "code": 0}
    assert gone(orphan)


def test_asked_to_stop_it_kills_all_it_keeps(tmp_path: Path) -> None:
    kept = Kept(f"{ORPHAN}\n{SLEEP}", str(tmp_path / "pid"))
    orphan = pid_in(tmp_path / "pid")
    below = descendants(kept.process.pid)
    assert orphan in below
    assert set(watched(kept.process.pid)) == set(below)
    kept.process.terminate()
    assert kept.end() == {}
    assert all(gone(pid) for pid in below)


def test_ctrl_c_is_left_to_the_judge(tmp_path: Path) -> None:
    code = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(0.5)"
    kept = Kept(code, str(tmp_path / "pid"))
    pid_in(tmp_path / "pid")
    kept.process.send_signal(signal.SIGINT)
    assert kept.end() == {"end": "exit", "code": 0}


def test_without_its_judge_it_ends_itself_and_its_child(tmp_path: Path) -> None:
    child = f"import os, sys\nopen(sys.argv[1], 'w').write(str(os.getpid()))\n{SLEEP}"
    judge = f"""
import json, os, subprocess, sys
reading, status = os.pipe()
settings = {{"argv": [sys.executable, "-c", {child!r}, sys.argv[1]], "pass": [], "status": status,
            "judge": os.getpid(), "memory_bytes": 1 << 30, "processes": 50}}
p = subprocess.Popen([sys.executable, "-c", {MAIN!r}, json.dumps(settings)], pass_fds=(status,))
print(p.pid, flush=True)
p.wait()
"""
    process = subprocess.Popen([sys.executable, "-c", judge, str(tmp_path / "pid")], stdout=subprocess.PIPE)
    assert process.stdout
    supervisor = int(process.stdout.readline())
    kept = pid_in(tmp_path / "pid")
    process.kill()
    process.wait()
    process.stdout.close()
    assert gone(kept)
    assert gone(supervisor)


@pytest.mark.parametrize("descendants", [descendants, watched])
def test_descendants_are_found_through_generations_with_their_memory(
    descendants: Callable[[int], dict[int, int]],
) -> None:
    child = subprocess.Popen(["sh", "-c", "sleep 30 & echo ready; wait"], stdout=subprocess.PIPE)
    assert child.stdout
    child.stdout.readline()
    deadline = time.monotonic() + 5
    while not all((below := descendants(child.pid)).values()) and time.monotonic() < deadline:
        time.sleep(0.01)  # while it becomes `sleep` a process has no memory at all
    found = descendants(os.getpid())
    assert child.pid in found
    assert len(below) == 1
    assert set(below) < set(found)
    assert all(resident > 0 for resident in below.values())
    for pid in [*below, child.pid]:
        os.kill(pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert descendants(child.pid) == {}
