"""Writes the fused module of each file in tests/modules and of the three tasks and has the judge judge it with
gradients; one JSON file.

    python benchmarks/judge_written.py FILE [--scale small] [--device auto] [--contract tf32] [--only WORD]

Without a GPU on the emulator, 7 s a module. What FILE holds already is left as it is.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from resuming import held

import crucible
from crucible import fusing, hardware
from crucible.errors import CaptureError
from crucible.task import Task

ROOT = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--scale", default="small")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--contract", default="tf32")
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    device = hardware.find_device(args.device)
    record = {"device": device.name, "versions": hardware.versions(), "contract": args.contract, "scale": args.scale}
    known = held(args.file, record, "modules") or {}
    for file in [*sorted((ROOT / "tasks").glob("*/reference.py")), *sorted((ROOT / "tests/modules").glob("*.py"))]:
        name = file.parent.name if file.name == "reference.py" else file.stem
        if args.only in str(file.relative_to(ROOT)) and name not in known:
            known[name] = judged(file, args)
            print(name, known[name]["words"], flush=True)
            args.file.write_text(json.dumps({**record, "modules": dict(sorted(known.items()))}, indent=1) + "\n")


def judged(file: Path, args: argparse.Namespace) -> dict[str, Any]:
    """The verdict on one written module, or why it was refused."""
    task = Task.load(file).at(scale=args.scale, training=True, mode="train", small_by_default=True)
    try:
        text = fusing.write(task, tf32=args.contract != "fp32")
    except CaptureError as error:
        return {"evaluation": False, "words": f"refused: {error}", "device": ""}
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / f"{file.stem}_written.py"
        written.write_text(text)
        options: dict[str, Any] = {"device": args.device, "contract": args.contract, "scale": args.scale}
        run = crucible.judge(file, [written], training=True, baselines="none", **options)
    (verdict,) = run.verdicts
    checks = {"forward": verdict.forward.words, "backward": verdict.backward.words}
    on = run.gpu and f"emulator, as {run.gpu}"
    return {"evaluation": verdict.evaluation, "words": verdict.outcome.words, **checks, "device": on or run.device.name}


if __name__ == "__main__":
    main()
