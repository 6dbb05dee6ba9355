"""What `crucible fuse --tune` finds for the three tasks: every division that was tried, its estimate and its time.

    python benchmarks/tune.py FILE [--only WORD] [--scale full] [--contract tf32]
    python benchmarks/tune.py FILE --markdown

On a GPU alone; the kernels of a task build in a few extensions side by side, one to three minutes, and each division is
held against float64 before any is timed. What is kept under CRUCIBLE_HOME is not measured again: set it to an empty
folder for new times. FILE also shows where estimates go wrong: they order divisions, and the order is all they are for.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from resuming import held

from crucible import fusing, hardware, store
from crucible.gpus import closest_gpu
from crucible.task import Task

TASKS = sorted((Path(__file__).parents[1] / "tasks").glob("*/reference.py"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--scale", choices=("full", "small"), default="full")
    parser.add_argument("--contract", choices=("tf32", "fp32"), default="tf32")
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()
    if args.markdown:
        print(markdown(json.loads(args.file.read_text())))
    else:
        record(args)


def record(args: argparse.Namespace) -> None:
    """Tunes, and writes after each task."""
    device = hardware.find_device("cuda")
    record = {"device": device.name, "driver": device.driver, "versions": hardware.versions(), "scale": args.scale}
    known = held(args.file, record, "tasks") or {}
    for file in (file for file in TASKS if args.only in file.parent.name):
        task = Task.load(file).at(scale=args.scale, training=False, mode="train", small_by_default=False)
        gpu = closest_gpu(torch.cuda.get_device_name())
        before = set(kept())
        text = fusing.write(task, tf32=args.contract == "tf32", gpu=gpu, tune=True, say=print)
        told = [json.loads(each.read_text()) for each in kept() if each not in before]
        lines = fusing.plan_of(text).splitlines()
        known[file.parent.name] = {
            "plan": lines,
            "convolutions": [{name: each[name] for name in ("question", "chosen", "tried")} for each in told],
        }
        store.write_text(args.file, json.dumps({**record, "tasks": known}, indent=1) + "\n")


def kept() -> list[Path]:
    """In the order in which they were measured."""
    return sorted((store.home() / "tuned").glob("*.json"), key=lambda file: file.stat().st_mtime_ns)


def markdown(record: dict[str, Any]) -> str:
    """A row for each convolution: its estimated best, its fastest, and the place of that by the estimate."""
    lines = ["| task | tried | estimated best (ms) | fastest (ms) | its place by estimate | division |"]
    lines.append("|---|---|---|---|---|---|")
    for name, found in record["tasks"].items():
        for each in found["convolutions"]:
            tried = each["tried"]
            fastest = min(tried, key=lambda way: way["ms"])
            place = sorted(tried, key=lambda way: way["estimate_ms"]).index(fastest) + 1
            first, ms = tried[0]["ms"], fastest["ms"]
            lines.append(f"| {name} | {len(tried)} | {first:.3g} | {ms:.3g} | {place} | {fastest['way']} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
