"""A Ray fleet under fire: 300 candidates of 20 tiny tasks, two workers killed, the head killed once and started again.

    python benchmarks/fleet_survives.py --output benchmarks/results/fleet_ray_cpu.json

Starts a Ray cluster of its own on this machine, judges with `crucible judge --on ray`, kills a worker's process, then
an actor, then the driver, and gives the same command once more. Checks that every verdict is there and as known
beforehand, and that none was judged twice: what was finished before the driver was killed is in the ledger unchanged.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import secrets
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from crucible import hardware

TASK = '''"""A tiny task: {name}."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return {formula}


def get_inputs():
    return [torch.rand(4, {features})]


def get_init_inputs():
    return [{features}]
'''
FORMULAS = (
    "F.relu(x) * self.scale",
    "torch.tanh(x + self.scale)",
    "F.gelu(x) + self.scale",
    "torch.sigmoid(x * self.scale)",
)
WRONG = ("(x - self.scale) * 3", "torch.zeros_like(x)", "F.relu(x)[:2]")
OPTIONS = ["--device=cpu", "--baselines=none", "--race-limit=0.05", "--shrink-limit=0", "--stress-limit=0"]


def write_work(folder: Path, tasks: int, each: int) -> dict[str, bool]:
    """Tasks and candidates as files; which candidates are right."""
    (folder / "tasks").mkdir()
    (folder / "candidates").mkdir()
    right: dict[str, bool] = {}
    for number in range(tasks):
        name, formula = f"t{number:02d}x", FORMULAS[number % len(FORMULAS)]
        text = TASK.format(name=name, formula=formula, features=8 + number)
        (folder / f"tasks/{name}.py").write_text(text)
        for k in range(each):
            wrong = k % 5 == 4
            own = text.replace(formula, WRONG[k % len(WRONG)]) if wrong else text
            candidate = f"{name}_{k:02d}"
            (folder / f"candidates/{candidate}.py").write_text(
                own.replace("class Model(", "class ModelNew(") + f"\n# {k}\n"
            )
            right[candidate] = not wrong
    return right


class Ledger:
    """Read beside those who write it."""

    def __init__(self, home: Path) -> None:
        self.file = home / "fleet/ledger.sqlite"

    def rows(self, query: str) -> list[Any]:
        if not self.file.exists():
            return []
        with contextlib.closing(sqlite3.connect(self.file, timeout=60)) as connection:
            try:
                return connection.execute(query).fetchall()
            except sqlite3.OperationalError:  # its tables are not there yet
                return []

    @property
    def done(self) -> int:
        return sum(count for (count,) in self.rows("SELECT count(*) FROM submissions WHERE state = 'done'"))

    def finished(self) -> dict[str, tuple[float, str]]:
        """When each was finished, and with what."""
        rows = self.rows("SELECT id, finished, run FROM submissions WHERE state = 'done'")
        return {key: (when, run) for key, when, run in rows}


@contextlib.contextmanager
def cluster(folder: Path, home: Path, cores: int) -> Iterator[dict[str, str]]:
    """A Ray head of our own; the environment in which its drivers find it."""
    port = 20000 + os.getpid() % 20000
    command = [str(Path(sys.executable).parent / "ray"), "start", "--head", "--block", f"--port={port}",
               f"--num-cpus={cores}", "--num-gpus=0", "--include-dashboard=false", "--disable-usage-stats",
               f"--temp-dir={folder}/r"]  # fmt: skip
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    environment = {**os.environ, **token, "RAY_worker_niceness": "0", "CRUCIBLE_HOME": str(home)}
    with (folder / "ray.log").open("w") as log:
        head = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        wait_for(lambda: "Ray runtime started" in (folder / "ray.log").read_text(), 300)
        yield {**environment, "RAY_ADDRESS": f"127.0.0.1:{port}"}
    finally:
        head.send_signal(signal.SIGTERM)
        head.wait(60)


def wait_for(true: Callable[[], bool], seconds: float, alive: subprocess.Popen[Any] | None = None) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        if alive is not None and alive.poll() is not None:
            raise SystemExit(f"the driver ended by itself, with {alive.returncode}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited for {seconds} s")
        time.sleep(0.05)


def worker_processes(home: Path) -> list[int]:
    """Of this run's fleet."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_worker = b"crucible.fleet.workers" in (folder / "cmdline").read_bytes()
            if is_worker and str(home).encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return sorted(found)


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def kill_a_worker(home: Path) -> str:
    os.kill(worker_processes(home)[0], signal.SIGKILL)
    return "a worker's process"


def kill_an_actor(home: Path) -> str:
    os.kill(parent_of(worker_processes(home)[0]), signal.SIGKILL)
    return "an actor"


def under_fire(command: list[str], environment: dict[str, str], home: Path, ledger: Ledger, total: int) -> list[Any]:
    """Runs the command until it is killed; what was killed, and when."""
    began, killed = time.monotonic(), []
    with (home / "first.log").open("w") as log:
        head = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    for share, kill in ((0.2, kill_a_worker), (0.4, kill_an_actor)):
        wait_for(lambda share=share: ledger.done >= share * total and len(worker_processes(home)) > 0, 3000, head)
        killed.append({"what": kill(home), "at_done": ledger.done, "at_s": round(time.monotonic() - began, 1)})
        print(killed[-1], file=sys.stderr, flush=True)
    wait_for(lambda: ledger.done >= 0.6 * total, 3000, head)
    head.kill()
    head.wait()
    killed.append({"what": "the head", "at_done": ledger.done, "at_s": round(time.monotonic() - began, 1)})
    print(killed[-1], file=sys.stderr, flush=True)
    return killed


def measure(tasks: int, each: int, workers: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="cf") as name:
        folder = Path(name)
        home = folder / "home"
        home.mkdir()
        right, ledger = write_work(folder, tasks, each), Ledger(home)
        with cluster(folder, home, workers) as environment:
            command = [sys.executable, "-m", "crucible", "judge", str(folder / "tasks"), str(folder / "candidates"),
                       "--on=ray", f"--workers={workers}", *OPTIONS, f"--json={folder / 'runs.json'}"]  # fmt: skip
            began = time.monotonic()
            killed = under_fire(command, environment, home, ledger, len(right))
            before = ledger.finished()
            again = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
            took_s = time.monotonic() - began
        return {
            **checked(folder, right, before, ledger, again),
            "tasks": tasks, "candidates": len(right), "workers": workers, "killed": killed,
            "finished_before_the_head_was_killed": len(before), "took_s": round(took_s, 1),
        }  # fmt: skip


def checked(folder: Path, right: dict[str, bool], before: dict[str, Any], ledger: Ledger, again: Any) -> dict[str, Any]:
    """What must hold; raises SystemExit where it does not."""
    if again.returncode:
        raise SystemExit(f"the second run ended with {again.returncode}: {again.stderr[-3000:]}")
    runs = json.loads((folder / "runs.json").read_text())
    told = [(entry["name"], entry["evaluation"]) for run in runs for entry in run["candidates"]]
    after = ledger.finished()
    problems = []
    if sorted(name for name, _ in told) != sorted(right):
        problems.append(f"{len(told)} verdicts for {len(right)} candidates")
    problems += [f"{name} is {verdict}" for name, verdict in told if right.get(name) != verdict]
    changed = [key for key, found in before.items() if after.get(key) != found]
    problems += [f"{len(changed)} were judged twice"] if changed else []
    if problems:
        raise SystemExit("; ".join(problems[:10]))
    return {"every_verdict_there": True, "none_twice": True, "passed": sum(verdict for _, verdict in told)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--each", type=int, default=15, help="candidates of each task")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    found = {
        "what": "benchmarks/fleet_survives.py",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "device": hardware.find_device("cpu").name,
        "cores": hardware.cores(),
        "load_at_start": round(os.getloadavg()[0], 1),
        "versions": {**hardware.versions(), "ray": _ray_version()},
        **measure(asked.tasks, asked.each, asked.workers),
    }
    text = json.dumps(found, indent=1)
    print(text)
    if asked.output:
        asked.output.write_text(text + "\n")


def _ray_version() -> str:
    from importlib.metadata import version

    return version("ray")


if __name__ == "__main__":
    main()
