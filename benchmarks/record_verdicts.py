"""Judges the shipped tasks and writes what came out, with device and versions, as one JSON file.

    python benchmarks/record_verdicts.py FILE [--contract tf32] [--scale full] [--device auto] [--written] [--only WORD]
    python benchmarks/record_verdicts.py FILE --markdown     the table of a file that was written before

Each candidate's entry says whether the verdict is the one that its own first line states. With --written the module
that Crucible writes for each task is judged among them, and has to pass. What FILE holds of other tasks or contracts is
left as it is.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from resuming import held
from rich.console import Console

import crucible
from crucible import fusing, hardware
from crucible.report.table import PLAIN_WIDTH, show
from crucible.task import Task

TASKS = Path(__file__).parents[1] / "tasks"
WRITTEN = "written_by_crucible"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--contract", action="append")
    parser.add_argument("--scale", default=None)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--written", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()
    if args.markdown:
        print(markdown(json.loads(args.file.read_text())))
        return
    record(args)


def record(args: argparse.Namespace) -> None:
    """Judges and writes, after each task."""
    device = hardware.find_device(args.device)
    record: dict[str, Any] = {
        "device": device.name,
        "driver": device.driver,
        "versions": hardware.versions(),
    }
    record["runs"] = held(args.file, record, "runs") or []
    for contract in args.contract or ["tf32"]:
        for task in (each for each in sorted(TASKS.iterdir()) if args.only in each.name):
            start = time.monotonic()
            options: dict[str, Any] = {"contract": contract, "scale": args.scale, "device": args.device}
            with tempfile.TemporaryDirectory() as folder:
                own = [task / "candidates", *([_written(task, contract, Path(folder), args)] if args.written else [])]
                run = crucible.judge(task, own, fresh=True, say=_say(start), **options)
            show(run, Console(width=PLAIN_WIDTH))
            others = [r for r in record["runs"] if (r["task"], r["contract"]) != (run.task.name, contract)]
            entry = _entry(run, contract, time.monotonic() - start)
            record["runs"] = sorted([*others, entry], key=lambda each: (each["contract"], each["task"]))
            args.file.write_text(json.dumps(record, indent=1) + "\n")
    stated = [c["as_stated"] for r in record["runs"] for c in r["candidates"]]
    print(f"{sum(stated)} of {len(stated)} verdicts are as stated")


def _written(task: Path, contract: str, folder: Path, args: argparse.Namespace) -> Path:
    """The fused module of a task, for the sizes that are judged."""
    small = hardware.find_device(args.device).kind == "cpu"
    loaded = Task.load(task).at(scale=args.scale, training=True, mode="train", small_by_default=small)
    file = folder / f"{WRITTEN}.py"
    file.write_text(fusing.write(loaded, tf32=contract != "fp32"))
    return file


def markdown(record: dict[str, Any]) -> str:
    """The README's table."""
    names = ["task", "candidate", "Evaluation", "Runtime (ms)", "over eager", "over the best baseline", "of floor"]
    rows = [f"| {' | '.join([*names, 'error / noise', 'verdict'])} |", "|" + "---|" * (len(names) + 2)]
    for run in record["runs"]:
        best = _best_baseline(run)
        for entry in run["candidates"] + run["baselines"]:
            rows.append(f"| {run['task'].split('_')[0]} ({run['contract']}) | {' | '.join(_cells(entry, best))} |")
    return "\n".join(rows)


def _cells(entry: dict[str, Any], best: str) -> list[str]:
    errors = [_noise_multiple(entry[part]) for part in ("forward", "backward")]
    error = max((e for e in errors if e is not None), default=None)
    right, timing = entry["evaluation"], entry["timing"]
    rank = f"{entry['rank']}. " if entry["rank"] else ""
    words = entry["verdict"]["words"].replace("|", "\\|") if "as_stated" in entry else "baseline"
    return [
        f"{rank}{entry['name']}",
        str(right),
        f"{timing['median_ms']:.3g}" if right else "-1",
        *(_speedup(timing, rival) if right else "-" for rival in ("eager", best)),
        f"{entry['share_of_floor']:.1%}" if right else "-",
        "-" if error is None else f"{error:.2g}",
        words,
    ]


def _speedup(timing: dict[str, Any], rival: str) -> str:
    found = next((s for s in timing["speedups"] if s["baseline"] == rival), None)
    return f"{found['ratio']:.3g} [{found['interval'][0]:.3g}, {found['interval'][1]:.3g}]" if found else "-"


def _best_baseline(run: dict[str, Any]) -> str:
    right = [b for b in run["baselines"] if b["evaluation"]]
    return str(min(right, key=lambda b: b["runtime_ms"])["name"]) if right else ""


def _noise_multiple(check: dict[str, Any]) -> float | None:
    if check["kind"] != "Compared" or not check["tensors"] or any(t["nan"] for t in check["tensors"]):
        return None
    ratios = [max(t["relative_l2"] / t["relative_l2_allowed"], t["peak"] / t["peak_allowed"]) for t in check["tensors"]]
    return max(ratios) * float(check["multiple"])


def _entry(run: crucible.Run, contract: str, seconds: float) -> dict[str, Any]:
    data = run.to_json()
    for entry in data["candidates"] + data["baselines"]:
        entry.pop("log")
    for entry in data["candidates"]:
        entry["as_stated"] = entry["verdict"]["kind"] == _stated(run.task.path.parent, entry["name"], contract)
    for key in ("device", "versions"):
        data.pop(key)
    return {**data, "seconds": round(seconds, 1)}


def _stated(folder: Path, name: str, contract: str) -> str:
    if name == WRITTEN:
        return "passed"
    line = (folder / f"candidates/{name}.py").read_text().splitlines()[0]
    kinds = dict(re.findall(r"(Expected|\w+): ([\w-]+)", line))
    return kinds.get(contract, kinds["Expected"])


def _say(start: float) -> Any:
    return lambda text: print(f"{time.monotonic() - start:6.1f} s  {text}", file=sys.stderr)


if __name__ == "__main__":
    main()
