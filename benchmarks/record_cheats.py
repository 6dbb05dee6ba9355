"""Judges every cheat, every attack of the second list and their honest twins on this machine, and writes what came.

    python benchmarks/record_cheats.py FILE [--only WORD,WORD] [--shard 1/4] [--again wrong] [--limit 540]
    python benchmarks/record_cheats.py FILE --merge PART PART ...

The files are `tests/cheats` and `tests/attacks`; each says in its docstring which verdicts it may get, and under which
contract if that is another than tf32. Who is judged by gradients is tried beyond the task's own inputs too. One that
hides its runtime (`Costs:`) may not seem faster than half of its twin's. FILE (JSON) gets each one's verdict, whether
it is one of those, and the machine, after each verdict; what stands there is not judged again but for what `--again`
names (`wrong`, or `all`). Processes may share a GPU, since races wait for each other: `--shard 1/4` takes a fourth of
the files. The exit code is 1 where one has another verdict than its own, 3 where some have none.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import crucible
from crucible import hardware, legible
from crucible.judge.verdict.evidence import Measured
from crucible.listening import Listener
from crucible.run import Run

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))
from support import CHEATS, SMALL_TASK, attack  # noqa: E402 - the tests' own words for what a file expects
from test_cheats import ALONE, MUCH_FASTER, OTHER_TASK, TWINS, expectation  # noqa: E402

ATTACKS = TESTS / "attacks"
LIMITS = crucible.Limits(shrink_s=0, stress_s=0, run_s=20, memory_bytes=8 << 30)
TOGETHER = 20
"""Candidates of a run at most."""
START_S, VERDICT_S, RACED_S = 15.0, 4.0, 8.0
"""What a run, a verdict, and one with a slow race take, about: shards are made as long as each other by it."""
LAST = ("kills_everybody", "stops_the_judge", *ALONE)
"""May end the judge itself: alone and after all others, so that these have their verdicts."""
Entry = dict[str, Any]


@dataclass(frozen=True)
class Unit:
    """What goes into one run."""

    files: tuple[Path, ...]
    task: Path
    training: bool
    contract: str
    raced: bool
    last: str
    """Its only file where that may end the judge."""

    @property
    def seconds(self) -> float:
        return START_S + len(self.files) * (RACED_S if self.raced else VERDICT_S)


def units(files: Sequence[Path]) -> list[Unit]:
    """All files in runs; what may end the judge comes last."""
    groups: dict[tuple[Any, ...], list[Path]] = {}
    for file in files:
        last, raced = file.stem if file.stem in LAST else "", bool(costs(file)) or file.stem in TWINS
        key = (OTHER_TASK.get(file.stem, SMALL_TASK), is_training(file), contract(file), raced, last)
        groups.setdefault(key, []).append(file)
    parts = [(key, tuple(part)) for key, group in groups.items() for part in _parts(group)]
    return sorted((Unit(part, *key) for key, part in parts), key=lambda unit: bool(unit.last))


def _parts(group: list[Path]) -> Iterator[list[Path]]:
    """Of much the same length."""
    many = -(-len(group) // TOGETHER)
    return (group[first::many] for first in range(many))


def shard(every: Sequence[Unit], number: int, of: int) -> list[Unit]:
    """The units of one of some shards, which take much the same time: the longest are dealt out first."""
    loads, dealt = [0.0] * of, []
    for unit in sorted(every, key=lambda unit: -unit.seconds):
        least = loads.index(min(loads))
        loads[least] += unit.seconds
        dealt += [unit] if least == number else []
    return [unit for unit in every if unit in dealt]


def is_training(file: Path) -> bool:
    """Whether its docstring asks for gradients."""
    return "\nTraining: yes" in file.read_text()


def contract(file: Path) -> str:
    """The one that its docstring names."""
    found = re.search(r"^Contract: (\S+)$", file.read_text(), re.MULTILINE)
    return found[1] if found else "tf32"


def costs(file: Path) -> str:
    """The honest file whose runtime it must not undercut."""
    return expectation(file).costs


def entry(file: Path, verdict: crucible.Verdict, twin_ms: float) -> Entry:
    """A verdict beside what its file expects."""
    wanted, outcome = expectation(file), verdict.outcome
    found = {"name": file.stem, "list": file.parent.name, "expected": list(wanted.kinds), "verdict": outcome.kind}
    found |= {"words": outcome.words, "runtime_ms": verdict.runtime_ms, "right": outcome.kind in wanted.kinds}
    found |= {"total_s": round(verdict.total_s, 1)}
    if wanted.costs and verdict.evaluation and isinstance(verdict.timing, Measured):
        found["twin_ms"] = twin_ms
        found["right"] &= twin_ms > 0 and verdict.runtime_ms > MUCH_FASTER * twin_ms
    return found


class Recorder(Listener):
    """Hears of verdicts, twins' first, and writes each down; ends the run when the time is up."""

    def __init__(self, unit: Unit, write: Callable[[Entry], None], deadline: float) -> None:
        self.files = {file.stem: file for file in unit.files}
        self.write, self.deadline = write, deadline
        self.runtimes: dict[str, float] = {}

    def reached(self, run: Run) -> None:
        for verdict in run.verdicts:
            self.runtimes[verdict.candidate] = verdict.runtime_ms
            file = self.files.get(verdict.candidate)
            if file is not None:
                self.write(entry(file, verdict, self.runtimes.get(costs(file), -1.0)))

    def is_over(self) -> bool:
        return time.monotonic() > self.deadline


def judged(unit: Unit, device: str, race_s: float, recorder: Recorder) -> None:
    """One run of a unit's files behind their twins; the recorder hears what comes."""
    twins = sorted({CHEATS / f"{costs(file)}.py" for file in unit.files if costs(file)} - {*unit.files})
    everyone = [*twins, *sorted(unit.files, key=lambda file: not file.stem.startswith("honest_"))]
    run = crucible.judge(
        unit.task,
        [attack(file) if file.parent == ATTACKS else file for file in everyone],
        device=device,
        training=unit.training,
        contract=unit.contract,
        baselines="eager",
        fresh=True,
        limits=replace(LIMITS, stress_s=20 if unit.training else 0, race_s=race_s),
        say=lambda text: print(legible.line(str(text)), file=sys.stderr, flush=True),
        listener=recorder,
    )
    if run.trouble:
        print(f"the run ended early: {legible.line(run.trouble)}", file=sys.stderr, flush=True)


def merged(parts: Sequence[Path]) -> dict[str, Any]:
    """Several processes' records as one. Raises SystemExit where they are of different machines."""
    records = [json.loads(part.read_text()) for part in parts]
    machines = {json.dumps({k: v for k, v in record.items() if k != "files"}, sort_keys=True) for record in records}
    if len(machines) != 1:
        raise SystemExit(f"these records are of {len(machines)} machines: {', '.join(sorted(machines))}")
    entries = {each["name"]: each for record in records for each in record["files"]}
    return {**records[0], "files": sorted(entries.values(), key=_place)}


def _place(each: Entry) -> tuple[bool, str]:
    """Cheats before attacks, as ever."""
    return each["list"] != "cheats", each["name"]


def written(file: Path, record: dict[str, Any]) -> None:
    """Whole, or as it was before."""
    part = file.with_name(f"{file.name}.part")
    part.write_text(json.dumps(record, indent=1) + "\n")
    part.replace(file)


def told(record: dict[str, Any], wanted: Sequence[Path]) -> int:
    """Says which verdicts are others than their files', and what is missing; the exit code."""
    wrong = [each for each in record["files"] if not each["right"]]
    for each in wrong:
        print(
            f"{each['name']}: {legible.line(each['words'])} ({each['runtime_ms']:.3g} ms); "
            f"expected {' or '.join(each['expected'])}"
        )
    missing = sorted({file.stem for file in wanted} - {each["name"] for each in record["files"]})
    print(f"{len(record['files'])} files, {len(wrong)} with another verdict than theirs, {len(missing)} without")
    if missing:
        print("no verdict yet:", ", ".join(missing))
    return 3 if missing else 1 if wrong else 0


def main() -> int:
    asked = _arguments()
    every = [*sorted(CHEATS.glob("*.py")), *sorted(ATTACKS.glob("*.py"))]
    files = [file for file in every if any(word in file.stem for word in asked.only.split(","))]
    if asked.merge:
        record = merged(asked.merge)
        written(asked.file, record)
        return told(record, files)
    device, deadline = hardware.find_device(asked.device), time.monotonic() + asked.limit
    machine = {"device": device.name, "driver": device.driver, "versions": hardware.versions()}
    known = _known(asked.file, machine)
    number, of = (int(each) for each in asked.shard.split("/"))
    chosen = shard(units(files), number - 1, of)
    stand = {name for name, each in known.items() if asked.again == "" or (asked.again == "wrong" and each["right"])}

    def write(each: Entry) -> None:
        known[each["name"]] = each
        written(asked.file, {**machine, "files": sorted(known.values(), key=_place)})
        how = "right" if each["right"] else "NOT ITS OWN"
        print(f"{len(known)}: {each['name']} {how}: {legible.line(each['words'][:120])}", flush=True)

    for unit in chosen:
        left = tuple(file for file in unit.files if file.stem not in stand)
        if left and time.monotonic() < deadline:
            unit = replace(unit, files=left)
            judged(unit, asked.device, asked.race_limit, Recorder(unit, write, deadline))
    return told({"files": list(known.values())}, [file for unit in chosen for file in unit.files])


def _known(file: Path, machine: dict[str, Any]) -> dict[str, Entry]:
    """What stands in the file. Raises SystemExit for another machine's record."""
    if not file.exists():
        return {}
    record = json.loads(file.read_text())
    if {key: record.get(key) for key in machine} != machine:
        raise SystemExit(f"{file} is of another machine or version: give another file")
    return {each["name"]: each for each in record["files"]}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="", help="files whose names hold one of these words")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--shard", default="1/1", help="which part of how many")
    parser.add_argument("--merge", type=Path, nargs="+", metavar="PART", help="makes one record of these")
    parser.add_argument("--again", choices=("wrong", "all"), default="")
    parser.add_argument("--limit", type=float, default=1e9, help="seconds, after which what is left waits")
    parser.add_argument("--race-limit", type=float, default=0.0, help="seconds of a race; 0: as usual")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
