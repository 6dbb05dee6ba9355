"""The script for SLURM in docs/fleet.md, with stand-ins for SLURM's and Ray's programs: who starts what, and where."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fleet.fleeting import OPTIONS
from support import PLAIN, SMALL_TASK, write

DOCS = Path(__file__).parents[2] / "docs/fleet.md"
STAND_INS = {
    "scontrol": "echo node1; echo node2; echo node3",
    "sleep": "",
    "srun": 'echo "srun $*" >> "$STARTED"; while [ "$1" != ray ]; do shift; done; "$@"',
    "ray": 'echo "ray $* with $RAY_AUTH_MODE $RAY_AUTH_TOKEN" >> "$STARTED"',
    "crucible": 'echo "judge for $RAY_ADDRESS" >> "$STARTED"; exec {python} -m crucible "${{@//ray/local}}" {options}',
}
"""`crucible` is the real one, on this machine's workers."""


def script() -> str:
    section = DOCS.read_text().partition("## SLURM")[2].partition("\n## ")[0]
    return "".join(line[4:] + "\n" for line in section.splitlines() if line.startswith("    "))


@pytest.mark.slow
def test_one_node_has_the_head_the_others_join_with_its_token_and_all_is_judged(tmp_path: Path) -> None:
    for name, text in STAND_INS.items():
        filled = text.format(python=sys.executable, options=" ".join(OPTIONS)) if name == "crucible" else text
        write(tmp_path / "bin" / name, f"#!/bin/bash\n{filled}\n").chmod(0o755)
    write(tmp_path / "tasks/small.py", (SMALL_TASK / "reference.py").read_text())
    write(tmp_path / "candidates/small_plain.py", PLAIN.read_text())
    started = tmp_path / "started"
    slurm = {"SLURM_JOB_NODELIST": "node[1-3]", "SLURM_NNODES": "3", "STARTED": str(started)}
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", write(tmp_path / "job.sh", script())],
        cwd=tmp_path,
        env={**os.environ, **slurm, "PATH": path, "CRUCIBLE_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = started.read_text()
    rays = [line for line in said.splitlines() if line.startswith("ray ")]
    head, other = sorted(rays, key=lambda line: "--head" not in line)
    assert head.startswith("ray start --head --port=6379 --block with token ")
    assert other.startswith("ray start --address=node1:6379 --block with token ")
    token = head.split()[-1]
    assert len(token) == 64 and other.endswith(token)
    assert "srun --overlap --nodes=1 --ntasks=1 -w node1 ray start --head" in said
    assert "srun --overlap --nodes=2 --ntasks=2 -x node1 ray start --address" in said
    assert "judge for node1:6379" in said
    run = json.loads((tmp_path / "runs.json").read_text())
    assert [(entry["name"], entry["evaluation"]) for entry in run["candidates"]] == [("small_plain", True)]
