"""Seconds a candidate costs the judge, cold and warm.

    python benchmarks/judge_throughput.py [--device auto] [--scale small] [--candidates 4] [--json FILE]

Cold: nothing known. Warm: the same files again, answered from the store. Candidates are copies of the task's
plain PyTorch one that differ in a comment, and, where `--builds` is given, a C++ extension through load_inline
that differs in a comment, built with and without the precompiled header.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from crucible import hardware

TASKS = Path(__file__).parents[1] / "tasks"
EXTENSION = """
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

module = load_inline(
    name="throughput_{i}",
    cpp_sources="torch::Tensor run(torch::Tensor x) {{ return x.clone(); }} // {i}",
    functions=["run"],
)

class ModelNew(nn.Module):
    def forward(self, x):
        return module.run(x)
"""
IDENTITY = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return x * 1.0

def get_inputs():
    return [torch.rand(64, 64)]

def get_init_inputs():
    return []
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--scale", default=None)
    parser.add_argument("--candidates", type=int, default=4)
    parser.add_argument("--builds", type=int, default=0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = []
    for task in sorted(TASKS.iterdir()):
        source = (task / "candidates/plain_pytorch.py").read_text()
        files = {f"plain{i}": f"{source}\n# copy {i}\n" for i in range(args.candidates)}
        rows.append({"task": task.name, **_measure(task, files, args)})
    if args.builds:
        rows.append({"task": "a C++ extension, load_inline", **_measure_builds(args)})
    device = hardware.find_device(args.device)
    result = {
        "device": device.name,
        "driver": device.driver,
        "versions": hardware.versions(),
        "cores": hardware.cores(),
    }
    result |= {"candidates": args.candidates, "seconds_a_candidate": rows}
    print(json.dumps(result, indent=1))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")


def _measure(task: Path, files: dict[str, str], args: argparse.Namespace, home: Path | None = None) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        paths = []
        for name, text in files.items():
            paths.append(folder / f"{name}.py")
            paths[-1].write_text(text)
        scale = ["--scale", args.scale] if args.scale else []
        command = [
            sys.executable,
            "-m",
            "crucible",
            "judge",
            str(task),
            *map(str, paths),
            "--device",
            args.device,
            *scale,
        ]
        env = {**os.environ, "CRUCIBLE_HOME": str(home or folder / "home")}
        cold = _seconds([*command, "--fresh"], env)
        warm = _seconds(command, env)
    return {"cold": round(cold / len(files), 2), "warm": round(warm / len(files), 3), "warm_run": round(warm, 2)}


def _measure_builds(args: argparse.Namespace) -> dict[str, float]:
    """The same builds without a precompiled header (two candidates, too few to make one) and with it."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "identity").mkdir()
        (folder / "identity/reference.py").write_text(IDENTITY)
        args.scale = None
        without = _measure(folder / "identity", {f"e{i}": EXTENSION.format(i=i) for i in range(2)}, args)
        home = folder / "home"
        many = {f"e{i}": EXTENSION.format(i=i) for i in range(max(3, args.builds))}
        first = _measure(folder / "identity", many, args, home)
        again = _measure(folder / "identity", {f"e{i}": EXTENSION.format(i=i + 100) for i in range(2)}, args, home)
    return {"no_header": without["cold"], "making_the_header": first["cold"], "with_header": again["cold"]}


def _seconds(command: list[str], env: dict[str, str]) -> float:
    start = time.monotonic()
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} gave {done.returncode}:\n{done.stdout}{done.stderr}")
    return time.monotonic() - start


if __name__ == "__main__":
    main()
