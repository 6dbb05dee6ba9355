"""How much faster a fleet of several workers judges than one worker, and whether the ranks are the same.

    python benchmarks/fleet_scaling.py --output benchmarks/results/fleet_two_gpus.json      # on a machine with two GPUs

Candidates of each task differ in how often they compute the same, so that their ranks are clear; one is wrong.
What a machine does once (reads PyTorch from disk, precompiles its headers) is done before, by judging a few on all
workers; then each number of workers judges all afresh.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crucible import hardware

TASK = """import torch
import torch.nn as nn
import torch.nn.functional as F


class {name}(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        for _ in range({times}):
            y = F.{function}(x * self.scale)
        return y{wrong}


def get_inputs():
    return [torch.rand({rows}, {features})]


def get_init_inputs():
    return [{features}]
"""
FUNCTIONS = ("relu", "gelu", "silu", "softplus", "elu", "mish", "hardswish", "selu", "tanh", "sigmoid")
TIMES = (1, 3, 9, 27)


def write_work(folder: Path, tasks: int, size: int, all_times: Sequence[int] = TIMES) -> None:
    for place in ("tasks", "candidates"):
        (folder / place).mkdir(parents=True)
    for number in range(tasks):
        task = f"t{number:02d}x"
        filled = {"function": FUNCTIONS[number % len(FUNCTIONS)], "rows": size, "features": size + number}
        reference = TASK.format(name="Model", times=3, wrong="", **filled)
        (folder / f"tasks/{task}.py").write_text(reference)
        for times in all_times:
            text = TASK.format(name="ModelNew", times=times, wrong="", **filled)
            (folder / f"candidates/{task}_{times:02d}.py").write_text(text)
        wrong = TASK.format(name="ModelNew", times=1, wrong=" * 2", **filled)
        (folder / f"candidates/{task}_wrong.py").write_text(wrong)


def judged(folder: Path, home: Path, workers: int, device: str, baselines: str) -> dict[str, Any]:
    """Seconds, and each candidate's verdict and rank."""
    file = folder / "runs.json"
    command = [sys.executable, "-m", "crucible", "judge", str(folder / "tasks"), str(folder / "candidates"),
               "--on=local", f"--workers={workers}", f"--device={device}", f"--baselines={baselines}",
               "--shrink-limit=0", "--fresh", f"--json={file}"]  # fmt: skip
    began = time.monotonic()
    environment = {**os.environ, "CRUCIBLE_HOME": str(home)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    took_s = time.monotonic() - began
    if done.returncode:
        raise SystemExit(f"{workers} workers ended with {done.returncode}: {done.stderr[-3000:]}")
    data = json.loads(file.read_text())
    runs = data if isinstance(data, list) else [data]
    ranks = {c["name"]: (c["evaluation"], c["rank"]) for run in runs for c in run["candidates"]}
    return {"workers": workers, "took_s": round(took_s, 1), "device": runs[0]["device"]["name"], "ranks": ranks}


def told(found: dict[str, Any]) -> dict[str, Any]:
    """`found`, after saying so: what was measured before a run is cut off is not lost."""
    print(f"{found['workers']} workers: {found['took_s']} s, {len(found['ranks'])} candidates", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--size", type=int, default=4096, help="rows and features of each input")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--baselines", default="eager")
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cf") as name:
        write_work(Path(name), asked.tasks, asked.size)
        write_work(Path(name, "warm"), asked.workers, asked.size, all_times=TIMES[:1])
        judged(Path(name, "warm"), Path(name, "home"), asked.workers, asked.device, asked.baselines)
        several, one = (
            told(judged(Path(name), Path(name, "home"), count, asked.device, asked.baselines))
            for count in (asked.workers, 1)
        )
    differing = {name: (one["ranks"][name], several["ranks"].get(name)) for name in one["ranks"]
                 if one["ranks"][name] != several["ranks"].get(name)}  # fmt: skip
    found = {
        "what": "benchmarks/fleet_scaling.py",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "device": one["device"],
        "versions": hardware.versions(),
        "tasks": asked.tasks,
        "candidates": len(one["ranks"]),
        "workers": asked.workers,
        "baselines": asked.baselines,
        "took_s": {"one worker": one["took_s"], f"{asked.workers} workers": several["took_s"]},
        "share_of_one_workers_time": round(several["took_s"] / one["took_s"], 3),
        "same_ranks": not differing,
        "differing": differing,
    }
    text = json.dumps(found, indent=1)
    print(text)
    if asked.output:
        asked.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
