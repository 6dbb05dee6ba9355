"""What `benchmarks/judge_written.py` recorded: the judge passed every written module and task, forward and backward."""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]
RECORD = json.loads((ROOT / "benchmarks/results/written_judged_emulator.json").read_text())
MOST_REFUSED = 3


def test_the_record_is_of_the_modules_as_they_are_named() -> None:
    modules = [file.stem for file in (ROOT / "tests/modules").glob("*.py")]
    tasks = [file.parent.name for file in (ROOT / "tasks").glob("*/reference.py")]
    assert sorted(RECORD["modules"]) == sorted([*modules, *tasks])
    assert len(RECORD["modules"]) >= 43


def test_each_passed_with_gradients_or_was_refused() -> None:
    refused = [name for name, found in RECORD["modules"].items() if found["words"].startswith("refused: ")]
    assert len(refused) <= MOST_REFUSED
    for name, found in RECORD["modules"].items():
        if name not in refused:
            assert (found["evaluation"], found["forward"], found["backward"]) == (True, "ok", "ok"), name
