"""Faults planted in public kernels, one at a time, and whether the emulator names each at its line.

    python benchmarks/planted_faults.py MANIFEST FOLDER [--jobs N] [--seconds S] [--file RESULTS] [--each 6] [--more]
    python benchmarks/planted_faults.py --table RESULTS

MANIFEST and FOLDER are those of `public_candidates.py`. A candidate takes part when its kernels, in one text of the
file, run as they are and no fault is found: that run is the twin of each fault planted in it. Every run is `crucible
check` of the candidate's file with a forward at the sizes that the judge would choose, and at ragged ones, behind it.
What is planted (`planting.py`) goes only where the twin's trace has an access or a barrier, so that it must matter.

RESULTS holds for each candidate `twin` (what was found in it, or why it takes no part) and `planted`: kind, line, edit,
`expected` kinds, `lines` where it may be named, and what came of it. Planted faults that nothing can come of are named,
with the reason, in `planted_not_named.txt` beside this file.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "src"
sys.path[:0] = [str(SOURCE), str(HERE)]

import planting  # noqa: E402
from public_candidates import Entry, text_of  # noqa: E402

NOT_NAMED = HERE / "planted_not_named.txt"
TOLD = ("never-ran", "never-reached", "index-overflow", "unchecked-launch")
"""Of a twin: that it says so is no false alarm, and no fault was planted by it."""
LAUNCH = """

if __name__ == "__main__":
    import json as _json
    import torch as _torch
    from crucible import emulator as _emulator

    def _forward(sizes, text=%(task)r):
        names = {}
        tree = __import__("ast").parse(text)
        exec(compile(__import__("crucible.shapes").shapes.set_in(tree, sizes), "task.py", "exec"), names)
        _torch.manual_seed(0)
        init, inputs = names["get_init_inputs"](), names["get_inputs"]()
        model = ModelNew(**init) if isinstance(init, dict) else ModelNew(*init)
        with _torch.no_grad(), _emulator.trace() as seen:
            model(*inputs)
        return [(line.line, line.operation, line.space) for line in seen.lines]

    print("TRACED " + _json.dumps([_forward(sizes) for sizes in %(sizes)r]))
"""


def main() -> None:
    asked = _arguments()
    if asked.table:
        print("\n".join(table(json.loads(asked.table.read_text()), known())))
        return
    if asked.sizes:
        print(json.dumps(_sizes_of(asked.sizes)))
        return
    entries: list[Entry] = json.loads(asked.manifest.read_text())
    file = asked.file or HERE / "results/planted_faults.json"
    results: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    wanted = [entry for entry in _mixed(entries) if _is_wanted(entry, results, asked)]
    wanted.sort(key=lambda entry: entry["id"] not in results)
    for name, found in _by_turns(wanted, asked, results):
        if name in results and found["twin"] != "clean":  # it was, and is kept
            continue
        results[name] = found
        partial = file.with_name(file.name + ".part")
        partial.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
        partial.replace(file)
        came = collections.Counter(each["outcome"] for each in found["planted"])
        print(f"{name}: {found['twin']}; {dict(came)}", flush=True)
    print("\n".join(table(results, known())))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manifest", type=Path, nargs="?")
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--file", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which no candidate is begun")
    parser.add_argument("--each", type=int, default=6, help="faults planted in one candidate at most")
    parser.add_argument("--limit", type=float, default=60, help="seconds for one run")
    parser.add_argument("--more", action="store_true", help="those that are clean take faults again, up to --each")
    parser.add_argument("--sample", type=int, default=0, help="candidates at most")
    parser.add_argument("--only", default="", help="a word that the id holds")
    parser.add_argument("--table", type=Path, help="runs nothing: a record summed up")
    parser.add_argument("--sizes", type=Path, help="runs nothing: the sizes for one task")
    return parser.parse_args()


def _mixed(entries: list[Entry]) -> list[Entry]:
    """Those that passed where they were published, in an order of their own."""
    passed = [entry for entry in entries if entry["published"] == "passed"]
    return sorted(passed, key=lambda entry: hashlib.sha256(entry["id"].encode()).hexdigest())


def _is_wanted(entry: Entry, results: dict[str, Any], asked: argparse.Namespace) -> bool:
    """Whether it is new, or may take more faults than it has."""
    found = results.get(entry["id"])
    more = found is not None and found["twin"] == "clean" and len(found["planted"]) < asked.each
    return found is None or (asked.more and more)


def _by_turns(entries: list[Entry], asked: argparse.Namespace, results: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    ends = time.monotonic() + asked.seconds
    wanted = [entry for entry in entries if asked.only in entry["id"]]
    wanted = wanted[: asked.sample] if asked.sample else wanted

    def one(entry: Entry) -> Any:
        known = results.get(entry["id"], {"planted": []})["planted"]
        if time.monotonic() > ends:
            return None
        return planted_in(entry, asked.folder, asked.each, known, asked.limit)

    code = f"import sys; sys.path.insert(0, {str(SOURCE)!r}); from crucible.emulator import toolchain as t; "
    subprocess.run([sys.executable, "-c", code + "t.prepare(whole=True)"], check=True)
    with ThreadPoolExecutor(asked.jobs) as pool:
        begun = {pool.submit(one, entry): entry for entry in wanted}
        for done in as_completed(begun):
            if (found := done.result()) is not None:
                yield begun[done]["id"], found


def planted_in(entry: Entry, folder: Path, most: int, known: list[dict[str, Any]], limit_s: float) -> dict[str, Any]:
    """One candidate: its twin, and what came of each fault that was planted in it, the known ones before."""
    task, text = text_of(entry["task"], folder), text_of(entry["candidate"], folder)
    held = planting.held(text)
    if held is None:
        return {"twin": "no part: its kernels are not in one text", "planted": []}
    with tempfile.TemporaryDirectory(prefix="planted-") as made:
        place = Path(made)
        (place / "task.py").write_text(task)
        sizes = _asked([__file__, "--sizes", str(place / "task.py")], limit_s)
        if sizes is None:
            return {"twin": "no part: the task takes no smaller sizes", "planted": []}
        behind = LAUNCH % {"task": task, "sizes": json.loads(sizes)}
        twin = _checked(place, text + behind, limit_s)
        faults = _faults(twin)
        if twin is None or twin["raised"] or faults or not twin["launched"]:
            return {"twin": _why_not(twin, faults), "planted": []}
        traced = next((line[7:] for line in twin["log"].splitlines() if line.startswith("TRACED ")), "[]")
        touched = {tuple(row) for run in json.loads(traced) for row in run}
        sites = planting.sites(held, touched, most - len(known), {(each["kind"], each["line"]) for each in known})
        came = [_outcome(site, _checked(place, site.text + behind, limit_s)) for site in sites]
        return {"twin": "clean", "planted": known + came}


def _why_not(twin: Any, faults: list[Any]) -> str:
    if twin is None:
        return "no part: it did not end, is not covered, or launched nothing"
    if faults:
        return "at fault: " + "; ".join(sorted({f"{fault['kind']} in line {fault['python_line']}" for fault in faults}))
    return f"no part: {twin['raised'][:200]}" if twin["raised"] else "no part: no kernel ran"


def _outcome(site: planting.Site, run: Any) -> dict[str, Any]:
    """`named` (its kind, at its line), `elsewhere` (its kind, at another), `other` (another fault), `unnoticed`, or
    `refused`: it does not build, or ran out of time."""
    faults = _faults(run)
    right = [fault for fault in faults if fault["kind"] in site.expected]
    at = [fault for fault in right if {fault["python_line"], fault["other_python_line"]} & set(site.lines)]
    kind = "refused" if run is None else "named" if at else "elsewhere" if right else "other" if faults else "unnoticed"
    if kind == "unnoticed" and run["raised"] and "building" in run["raised"]:
        kind = "refused"
    first = (at or right or faults or [None])[0]
    words = f"{first['kind']} in line {first['python_line']}, {first['other_python_line']}: " if first else ""
    words += f"{first['memory']}; {first['detail']}"[:160] if first else (run["raised"][:200] if run else "")
    return {"kind": site.kind, "line": site.line, "edit": site.words, "expected": list(site.expected),
            "lines": sorted(site.lines), "outcome": kind, "said": words}  # fmt: skip


def _faults(run: Any) -> list[Any]:
    return [fault for fault in (run or {"faults": []})["faults"] if fault["kind"] not in TOLD]


def _checked(place: Path, text: str, limit_s: float) -> Any:
    """What `crucible check` says of a file; None where it did not come to an end, or uses what is not covered."""
    file, record = place / "kernels.py", place / "check.json"
    file.write_text(text)
    record.unlink(missing_ok=True)
    _asked(["-m", "crucible", "check", str(file), "--json", str(record), "--limit", str(limit_s)], limit_s + 30)
    found = json.loads(record.read_text()) if record.exists() else None
    return None if found is None or found.get("not_covered") else found


def _asked(arguments: list[str], limit_s: float) -> str | None:
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, env=environment)
    except subprocess.TimeoutExpired:
        return None
    return done.stdout if done.stdout.strip() else None


def _sizes_of(file: Path) -> list[dict[str, Any]]:
    """What the judge would choose for a task on the emulator: cut down, and ragged."""
    from crucible.judge.oracle.sizing import Survey, choices, in_order
    from crucible.task import Task

    loaded = Task.load(file).at(scale=None, training=False, mode="train", small_by_default=True).cut_down(own=False)
    survey = Survey(loaded.source, str(file), loaded.sizes, mode="train", seed=0)
    cut = next((one for one in choices(list(loaded.first), list(loaded.smaller_weights), survey.rate)), None)
    first = cut.sizes if cut and cut.cost < 100 else {}
    wanted = [{**first, **sizes} for sizes in (loaded.tries[0] if loaded.tries else ())]
    other = next((one.sizes for one in in_order(wanted, survey.rate) if one.cost < 100), None)
    return [{**loaded.sizes, **sizes} for sizes in (first, other) if sizes is not None]


def known() -> dict[tuple[str, int, str], str]:
    """Planted faults of which nothing can come: why, by candidate, line and kind."""
    lines = [line for line in NOT_NAMED.read_text().splitlines() if line and not line.startswith("#")]
    parts = [[part.strip() for part in line.split(" | ")] for line in lines]
    return {(name, int(line), kind): why for name, line, kind, why in parts}


def table(results: dict[str, Any], harmless: dict[tuple[str, int, str], str]) -> list[str]:
    """Counts by kind, then each that was not named at its line."""
    every = [(name, each) for name, found in results.items() for each in found["planted"]]
    built = [pair for pair in every if pair[1]["outcome"] != "refused"]
    count = [pair for pair in built if (pair[0], pair[1]["line"], pair[1]["kind"]) not in harmless]
    named = [pair for pair in count if pair[1]["outcome"] == "named"]
    twins = [found["twin"] for found in results.values()]
    lines = [
        f"{len(count)} planted in {len({name for name, _ in count})} kernels' files; named at their line {len(named)} "
        f"({len(named) / max(1, len(count)):.1%}); {len(every) - len(built)} did not build or end, "
        f"{len(built) - len(count)} cannot matter",
        f"twins: {twins.count('clean')} clean, {sum(twin.startswith('at fault') for twin in twins)} at fault, "
        f"{sum(twin.startswith('no part') for twin in twins)} took no part",
    ]
    by_kind = collections.defaultdict(collections.Counter)
    for _, each in count:
        by_kind[each["kind"]][each["outcome"]] += 1
    lines += [f"  {kind}: {dict(outcomes)}" for kind, outcomes in sorted(by_kind.items())]
    lines += [f"  {name}: {found['twin']}" for name, found in results.items() if found["twin"].startswith("at fault")]
    lines += [f"  {name}, line {each['line']}: {each['kind']}, {each['outcome']}: {each['edit']}; {each['said']}"
              for name, each in count if each["outcome"] != "named"]  # fmt: skip
    return lines


if __name__ == "__main__":
    main()
