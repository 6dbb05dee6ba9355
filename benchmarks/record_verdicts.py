"""Judges the shipped tasks and writes what came out, with device and versions, as one JSON file.

    python benchmarks/record_verdicts.py FILE [--contract tf32] [--scale full] [--device auto]
    python benchmarks/record_verdicts.py FILE --markdown     the table of a file that was written before

Each candidate's entry says whether the verdict is the one that its own first line states.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console

import crucible
from crucible import hardware
from crucible.report.table import show

TASKS = Path(__file__).parents[1] / "tasks"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--contract", action="append")
    parser.add_argument("--scale", default=None)
    parser.add_argument("--device", default="auto")
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
        "runs": [],
    }
    for contract in args.contract or ["tf32"]:
        for task in sorted(TASKS.iterdir()):
            start = time.monotonic()
            run = crucible.judge(
                task, contract=contract, scale=args.scale, device=args.device, fresh=True, say=_say(start)
            )
            show(run, Console(width=140))
            record["runs"].append(_entry(run, contract, time.monotonic() - start))
            args.file.write_text(json.dumps(record, indent=1) + "\n")
    stated = [c["as_stated"] for r in record["runs"] for c in r["candidates"]]
    print(f"{sum(stated)} of {len(stated)} verdicts are as stated")


def markdown(record: dict[str, Any]) -> str:
    """The README's table."""
    rows = ["| task | candidate | Evaluation | Runtime (ms) | error / noise | verdict |", "|---|---|---|---|---|---|"]
    for run in record["runs"]:
        for c in run["candidates"]:
            errors = [_noise_multiple(c[part]) for part in ("forward", "backward")]
            error = max((e for e in errors if e is not None), default=None)
            timing = c["timing"]
            time_ms = f"{timing['median_ms']:.3g}" if c["evaluation"] else "-1"
            words = c["verdict"]["words"].replace("|", "\\|")
            rows.append(
                f"| {run['task'].split('_')[0]} ({run['contract']}) | {c['name']} | {c['evaluation']} | {time_ms} "
                f"| {'-' if error is None else f'{error:.2g}'} | {words} |"
            )
    return "\n".join(rows)


def _noise_multiple(check: dict[str, Any]) -> float | None:
    if check["kind"] != "Compared" or not check["tensors"] or any(t["nan"] for t in check["tensors"]):
        return None
    ratios = [max(t["relative_l2"] / t["relative_l2_allowed"], t["peak"] / t["peak_allowed"]) for t in check["tensors"]]
    return max(ratios) * float(check["multiple"])


def _entry(run: crucible.Run, contract: str, seconds: float) -> dict[str, Any]:
    data = run.to_json()
    for entry in data["candidates"]:
        entry.pop("log")
        entry["as_stated"] = entry["verdict"]["kind"] == _stated(run.task.path.parent, entry["name"], contract)
    for key in ("device", "versions"):
        data.pop(key)
    return {**data, "seconds": round(seconds, 1)}


def _stated(folder: Path, name: str, contract: str) -> str:
    line = (folder / f"candidates/{name}.py").read_text().splitlines()[0]
    kinds = dict(re.findall(r"(Expected|\w+): ([\w-]+)", line))
    return kinds.get(contract, kinds["Expected"])


def _say(start: float) -> Any:
    return lambda text: print(f"{time.monotonic() - start:6.1f} s  {text}", file=sys.stderr)


if __name__ == "__main__":
    main()
