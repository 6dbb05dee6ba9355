"""What work of Python's own takes alone, and inside of the judge: as a candidate is imported, made, checked and timed.

    python benchmarks/host_work.py [--device auto]

A candidate does the same work on the host each time, and prints what it took. Wall time beyond processor time is
waiting for a processor. Processor time beyond that of the same work alone is a slower processor (its clock, a neighbour
on the same core), unless the last columns show something of the judge's in the process: other threads at work, a
tracing or profiling function.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import crucible

CALLS = 10
FIRST_TIMED = 20
"""Calls of a candidate from there on are timed ones: fewer check it."""
COLUMNS = ("wall ms", "processor ms", "of all its threads ms", "kept waiting ms", "traced")
WORK = """
import json, sys, time


def work():
    def clocks():
        waited = int(open("/proc/thread-self/schedstat").read().split()[1]) / 1e9
        return [time.perf_counter(), time.thread_time(), time.process_time(), waited]

    before = clocks()
    sum(range(1_000_000))
    taken = [(after - start) * 1e3 for after, start in zip(clocks(), before)]
    return [*taken, float(bool(sys.gettrace() or sys.getprofile()))]
"""
ALONE = f"{WORK}\nprint(json.dumps([work() for _ in range({CALLS})]))\n"
TASK = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x + 1


def get_inputs():
    return [torch.rand(64, 64)]


def get_init_inputs():
    return []
"""
CANDIDATE = f"""{WORK}
import torch
from torch import nn

TAKEN = {{"imported": [work() for _ in range({CALLS})], "made": [], "checked": [], "timed": []}}


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        TAKEN["made"] = [work() for _ in range({CALLS})]
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        TAKEN["checked" if self.calls < {FIRST_TIMED} else "timed"].append(work())
        if self.calls == {FIRST_TIMED + CALLS}:
            print("TAKEN " + json.dumps(TAKEN), flush=True)
        return x + 1
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    asked = parser.parse_args()
    print(told(asked.device))


def told(device: str) -> str:
    """Markdown: a place a row, medians."""
    before = alone()
    taken, runtime_ms = judged(device)
    rows = {"alone, before": before, **taken, "alone, after": alone()}
    lines = [f"| {' | '.join(['', *COLUMNS])} |", f"|{'---|' * (len(COLUMNS) + 1)}"]
    for place, calls in rows.items():
        middle = (f"{statistics.median(column):.2f}" for column in zip(*calls, strict=True))
        lines.append(f"| {' | '.join([place, *middle])} |")
    return "\n".join([*lines, "", f"The judge says: {runtime_ms:.2f} ms a call."])


def alone() -> list[list[float]]:
    """The same work by a Python of its own."""
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout))


def judged(device: str) -> tuple[dict[str, list[list[float]]], float]:
    """By where the candidate was, what each call of the work took; and its runtime, in milliseconds."""
    with tempfile.TemporaryDirectory() as temporary:
        task, candidate = Path(temporary, "plus_one.py"), Path(temporary, "works.py")
        task.write_text(TASK)
        candidate.write_text(CANDIDATE)
        limits = crucible.Limits(shrink_s=0, stress_s=0)
        root = Path(temporary, "home")
        run = crucible.judge(task, [candidate], device=device, baselines="eager", fresh=True, limits=limits, root=root)
    verdict = run.verdict("works")
    (line,) = (line for line in verdict.log.splitlines() if line.startswith("TAKEN "))
    return json.loads(line.removeprefix("TAKEN ")), verdict.runtime_ms


if __name__ == "__main__":
    main()
