"""Judges every cheat, every attack of the second list and their honest twins on this machine, and writes what came.

    python benchmarks/record_cheats.py FILE [--only WORD,WORD] [--device auto]

The files are `tests/cheats` and `tests/attacks`; each says in its docstring which verdicts it may get, and under which
contract if that is another than tf32. Who is judged by gradients is tried beyond the task's own inputs too. One that
hides its runtime (`Costs:`) may not seem faster than half of its twin's. FILE (JSON) gets each one's verdict, whether
it is one of those, and the machine; the exit code is 1 where one is not.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import crucible
from crucible import hardware
from crucible.judge.verdict.evidence import Measured

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))
from support import CHEATS, SMALL_TASK  # noqa: E402 - the tests' own words for what a file expects
from test_cheats import ALONE, MUCH_FASTER, OTHER_TASK, expectation  # noqa: E402

ATTACKS = TESTS / "attacks"
LIMITS = crucible.Limits(shrink_s=0, stress_s=0, run_s=20, memory_bytes=8 << 30)
TOGETHER = 20
"""Candidates of a run: what is known is written after each."""


def batches(only: str) -> Iterator[tuple[Path, list[Path], bool]]:
    """Task, candidates and whether gradients are asked for: what may go into one run, all under one contract."""
    every, words = [*sorted(CHEATS.glob("*.py")), *sorted(ATTACKS.glob("*.py"))], only.split(",")
    files = [file for file in every if any(word in file.stem for word in words)]
    apart = [file for file in files if file.stem in ALONE or file.stem in OTHER_TASK or contract(file)]
    training = [file for file in files if is_training(file) and file not in apart]
    plain = [file for file in files if file not in apart and file not in training]
    for first in range(0, len(plain), TOGETHER):
        yield SMALL_TASK, plain[first : first + TOGETHER], False
    yield SMALL_TASK, training, True
    for file in apart:
        yield OTHER_TASK.get(file.stem, SMALL_TASK), [file], is_training(file)


def is_training(file: Path) -> bool:
    """Whether its docstring asks for gradients."""
    return "\nTraining: yes" in file.read_text()


def contract(file: Path) -> str:
    """The one that its docstring names."""
    found = re.search(r"^Contract: (\S+)$", file.read_text(), re.MULTILINE)
    return found[1] if found else ""


def entry(file: Path, verdict: crucible.Verdict, runtimes: dict[str, float]) -> dict[str, Any]:
    """A verdict beside what its file expects."""
    wanted, outcome = expectation(file), verdict.outcome
    found = {"name": file.stem, "list": file.parent.name, "expected": list(wanted.kinds), "verdict": outcome.kind}
    found |= {"words": outcome.words, "runtime_ms": verdict.runtime_ms, "right": outcome.kind in wanted.kinds}
    if wanted.costs and verdict.evaluation and isinstance(verdict.timing, Measured):
        found["twin_ms"] = runtimes.get(wanted.costs, -1.0)
        found["right"] &= found["runtime_ms"] > MUCH_FASTER * found["twin_ms"]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    device, entries = hardware.find_device(args.device), []
    for task, files, training in batches(args.only):
        if not files:
            continue
        twins = {CHEATS / f"{expectation(file).costs}.py" for file in files if expectation(file).costs}
        everyone = [*files, *sorted(twins - {*files})]
        run = crucible.judge(
            task, everyone, device=args.device, training=training, contract=contract(files[0]) or "tf32",
            baselines="eager", fresh=True, limits=replace(LIMITS, stress_s=20 if training else 0),
            say=lambda text: print(text, file=sys.stderr, flush=True),
        )  # fmt: skip
        runtimes = {verdict.candidate: verdict.runtime_ms for verdict in run.verdicts}
        entries += [entry(file, run.verdict(file.stem), runtimes) for file in files]
        record = {"device": device.name, "driver": device.driver, "versions": hardware.versions(), "files": entries}
        args.file.write_text(json.dumps(record, indent=1))
    wrong = [each for each in entries if not each["right"]]
    for each in wrong:
        print(
            f"{each['name']}: {each['words']} ({each['runtime_ms']:.3g} ms); expected {' or '.join(each['expected'])}"
        )
    print(f"{len(entries)} files, {len(wrong)} with another verdict than theirs")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
