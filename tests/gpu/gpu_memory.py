"""How much device memory the oracle takes for the largest shipped task."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys, torch
from pathlib import Path
from crucible.judge.oracle.oracle import Oracle
from crucible.task import Task

task = Task.load(sys.argv[1])
folder = Path(sys.argv[2])
for name in ("inputs", "vault"):
    (folder / name).mkdir()
oracle = Oracle(
    dict(source=task.source, path=str(task.path), sizes={}, first=[], smaller_weights=[], further=[], asked=False, mode="train",
         training=False, contract="tf32", device="cuda", seed=0, secrets=[[12345, 67890]],
         folder=str(folder / "inputs"), vault=str(folder / "vault")),
    print,
)
oracle.prepare()
largest = max(e.values.numel() * 4 for e in oracle.cases[0].outputs)
print(torch.cuda.max_memory_allocated(), largest)
"""


def oracle_peak_copies(folder: Path) -> tuple[float, int]:
    """Peak device bytes over the bytes of the task's largest tensor, and the peak."""
    task = Path(__file__).parents[2] / "tasks/conv3d_leakyrelu_sum_clamp_gelu"
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(task), str(folder)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the oracle failed:\n{done.stderr}")
    peak, largest = map(int, done.stdout.strip().splitlines()[-1].split())
    return peak / largest, peak
