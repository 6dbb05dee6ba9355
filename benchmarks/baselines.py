"""Times PyTorch's own ways to run the three tasks, forward and forward+backward, and writes one JSON file.

    python benchmarks/baselines.py FILE [--contract tf32] [--scale full] [--device auto]
    python benchmarks/baselines.py FILE --markdown      the table of a file that was written before

The baselines take turns with each other and with the reference as its own candidate, as in every run of the judge;
each is compared with the oracle first. Ratios are to eager, paired, with 95 % intervals.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import crucible
from crucible import hardware
from crucible.contract import find_contract
from crucible.judge.examine import convolution_and_product_flags
from crucible.judge.verdict.evidence import Measured
from crucible.judge.verdict.verdict import Verdict, to_json

TASKS = Path(__file__).parents[1] / "tasks"
COVERS = ("forward", "forward+backward")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--contract", default="tf32")
    parser.add_argument("--scale", default=None)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()
    if args.markdown:
        print(markdown(json.loads(args.file.read_text())))
        return
    record(args)


def record(args: argparse.Namespace) -> None:
    """Times and writes, after each task."""
    device, contract = hardware.find_device(args.device), find_contract(args.contract)
    convolutions, products = convolution_and_product_flags(contract)
    record: dict[str, Any] = {
        "device": device.name,
        "driver": device.driver,
        "versions": hardware.versions(),
        "contract": contract.name,
        "allow_tf32": {"convolutions": convolutions, "matrix products": products},
        "tasks": {},
    }
    for task in sorted(TASKS.iterdir()):
        start = time.monotonic()
        run = crucible.judge(
            task,
            [task / "candidates/plain_pytorch.py"],
            contract=contract.name,
            training=True,
            scale=args.scale,
            device=args.device,
            baselines="all",
            fresh=True,
            say=lambda text, start=start: print(f"{time.monotonic() - start:6.1f} s  {text}", file=sys.stderr),  # type: ignore[misc]
        )
        record["tasks"][task.name] = {
            "scale": run.task.scale,
            "floors": {floor.covers: floor.time_ms for floor in run.ground.floors},
            "rows": {v.candidate: _row(v) for v in (*run.ground.baselines, *run.verdicts)},
            "seconds": round(time.monotonic() - start, 1),
        }
        args.file.write_text(json.dumps(record, indent=1) + "\n")
    print(markdown(record))


def markdown(record: dict[str, Any]) -> str:
    """Milliseconds by task and baseline; the ratio to eager with its interval."""
    lines = ["| task | | forward (ms) | over eager | forward+backward (ms) | over eager |", "|---|---|---|---|---|---|"]
    for task, entry in record["tasks"].items():
        for name, row in entry["rows"].items():
            cells = [cell for covers in COVERS for cell in _cells(row, covers)]
            lines.append(f"| {task.split('_')[0]} | {name} | {' | '.join(cells)} |")
        floors = [cell for covers in COVERS for cell in (f"{entry['floors'].get(covers, float('nan')):.3g}", "")]
        lines.append(f"| {task.split('_')[0]} | floor | {' | '.join(floors)} |")
    return "\n".join(lines)


def _cells(row: dict[str, Any], covers: str) -> list[str]:
    timing = row["timings"].get(covers)
    if timing is None:
        return [row["verdict"], ""]
    eager = next((s for s in timing["speedups"] if s["baseline"] == "eager"), None)
    low, high = eager["interval"] if eager else (1.0, 1.0)
    return [f"{timing['median_ms']:.3g}", f"{eager['ratio']:.3g} [{low:.3g}, {high:.3g}]" if eager else "1"]


def _row(verdict: Verdict) -> dict[str, Any]:
    timings = [t for t in (verdict.timing, *verdict.further) if isinstance(t, Measured) and t.how == "as called"]
    return {"verdict": verdict.outcome.words, "timings": {t.covers: to_json(t) for t in timings}}


if __name__ == "__main__":
    main()
