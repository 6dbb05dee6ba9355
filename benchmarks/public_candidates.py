"""Judges public candidates without a GPU, one after another, and writes each verdict beside the published one.

    python benchmarks/public_candidates.py MANIFEST FOLDER [--file RESULTS] [--only WORD,...] [--sample N]
        [--again KIND,...] [--limit 240] [--option=--shrink-limit=0 ...]

MANIFEST (JSON) is a list of candidates: `id`, `task` and `candidate` (each `repository`, `commit`, `path`, and `part`
where one file holds many: the keys down to a text, separated by `/`, of JSON or of the line of that number, where each
holds an object), `model`, `published` (`passed`, `wrong`, `does-not-build`, `raises` or "" where nobody says) and,
where somebody has looked at a disagreement, `why`. FOLDER holds a clone of each repository as OWNER/NAME; nothing is
fetched, and nothing of a clone is run but in the judge's own sandbox.

RESULTS (JSON; without it the manifest's own name with `.results`) is written after each candidate, and what it holds
already is not judged again; `--again` names kinds of verdicts that are (`all` for every one). The last lines are the
shares of definite verdicts and of those that agree, the times, and the causes by number.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

NOT_DEFINITE = ("not-judged", "timed-out", "out-of-memory", "judge-failed")
"""Verdicts that say nothing of the candidate: `judge-failed` stands for no verdict at all."""
Entry = dict[str, Any]


def main() -> None:
    asked = _arguments()
    entries: list[Entry] = json.loads(asked.manifest.read_text())
    file = asked.file or asked.manifest.with_suffix(".results.json")
    results: dict[str, Entry] = json.loads(file.read_text()) if file.exists() else {}
    again = set(asked.again.split(",")) - {""}
    for entry in _chosen(entries, asked.only, asked.sample):
        known = results.get(entry["id"])
        if known is not None and not ({known["verdict"], "all"} & again):
            continue
        results[entry["id"]] = judged(entry, asked.folder, asked.limit, asked.option)
        _say(entry, results[entry["id"]])
        written = file.with_name(file.name + ".part")
        written.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
        written.replace(file)
    print("\n".join(summary(entries, results)))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manifest", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--file", type=Path)
    parser.add_argument("--only", default="", help="words, one of which an id holds")
    parser.add_argument("--sample", type=int, default=0, help="the first so many, in an order that ids alone decide")
    parser.add_argument("--again", default="", help="kinds of verdicts to judge again")
    parser.add_argument("--limit", type=float, default=240, help="seconds for one candidate, all together")
    parser.add_argument("--option", action="append", default=[], help="handed to `crucible judge`")
    return parser.parse_args()


def _chosen(entries: list[Entry], only: str, sample: int) -> list[Entry]:
    """In an order of their own, so that a sample is of all authors."""
    words = [word for word in only.split(",") if word]
    named = [entry for entry in entries if not words or any(word in entry["id"] for word in words)]
    mixed = sorted(named, key=lambda entry: hashlib.sha256(entry["id"].encode()).hexdigest())
    return mixed[:sample] if sample else mixed


def text_of(where: Entry, folder: Path) -> str:
    """What a manifest's place holds. Raises CalledProcessError where the clone has no such file or commit."""
    clone, at = folder / where["repository"], f"{where['commit']}:{where['path']}"
    text = subprocess.run(["git", "-C", clone, "show", at], check=True, capture_output=True, text=True).stdout
    if not where.get("part"):
        return text
    keys = where["part"].split("/")
    try:
        held: Any = json.loads(text)
    except ValueError:  # an object a line
        held, keys = json.loads(text.splitlines()[int(keys[0])]), keys[1:]
    for key in keys:
        held = held[int(key)] if isinstance(held, list) else held[key]
    return str(held)


def judged(entry: Entry, folder: Path, limit_s: float, options: list[str]) -> Entry:
    """Its verdict by a process of its own, as `crucible judge` gives it to anybody."""
    with tempfile.TemporaryDirectory(prefix="public-") as made:
        task, candidate, record = (Path(made) / name for name in ("task.py", "candidate.py", "run.json"))
        task.write_text(text_of(entry["task"], folder))
        candidate.write_text(text_of(entry["candidate"], folder))
        command = [sys.executable, "-m", "crucible", "judge", task, candidate, "--device", "emulator", "--fresh"]
        command += ["--contract", "kernelbench", "--baselines", "none", "--json", record, *options]
        start, before = time.monotonic(), os.times()
        words = _run([str(part) for part in command], Path(made), limit_s)
        wall_s, after = time.monotonic() - start, os.times()
        processor_s = after.children_user + after.children_system - before.children_user - before.children_system
        found = {"wall_s": round(wall_s, 1), "processor_s": round(processor_s, 1)}
        return found | (_read(json.loads(record.read_text())) if record.exists() else _no_verdict(words))


def _run(command: list[str], folder: Path, limit_s: float) -> str:
    """What the judge said on its way; it ends in order when its time is up."""
    with (folder / "said").open("w+") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, cwd=folder, start_new_session=True)
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            process.wait()
            return f"took over {limit_s:g} s"
        said.seek(0)
        return said.read()


def _no_verdict(words: str) -> Entry:
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    return {"verdict": "judge-failed", "words": " | ".join(lines[-3:])[-400:]}


def _read(run: Entry) -> Entry:
    if not run["candidates"]:
        return {"verdict": "judge-failed", "words": str(run.get("trouble"))[-400:]}
    one = run["candidates"][0]
    found = {"verdict": one["verdict"]["kind"], "words": one["verdict"]["words"][:400], "stages_s": one["stages_s"]}
    found["notes"] = [finding["claim"] for finding in [*run["findings"], *one["findings"]]][:12]
    found["faults"] = sorted({fault["what"] for fault in one["faults"]})
    return found


def agrees(entry: Entry, result: Entry) -> bool:
    """Whether both say right, or both wrong."""
    return (entry["published"] == "passed") == (result["verdict"] == "passed")


def cause(result: Entry) -> str:
    """What is the same of two refusals: the words without numbers, names and places."""
    words = re.sub(r"`[^`]*`|'[^']*'|\"[^\"]*\"", "_", result["words"])
    return re.sub(r"\d+(\.\d+)?", "N", words)[:90]


def summary(entries: list[Entry], results: dict[str, Entry]) -> list[str]:
    """Shares, times and causes, a line each."""
    pairs = [(entry, results[entry["id"]]) for entry in entries if entry["id"] in results]
    definite = [pair for pair in pairs if pair[1]["verdict"] not in NOT_DEFINITE]
    told = [pair for pair in definite if pair[0]["published"]]
    right = [pair for pair in told if agrees(*pair)]
    seconds = sorted(result["wall_s"] for _, result in pairs)
    if not pairs:
        return ["nothing was judged"]
    lines = [
        f"{len(pairs)} of {len(entries)} judged; definite {len(definite)} ({len(definite) / len(pairs):.1%}); "
        f"of {len(told)} with a published verdict {len(right)} agree ({len(right) / max(1, len(told)):.1%})",
        f"seconds: median {statistics.median(seconds):.1f}, 90 % within {seconds[int(0.9 * (len(seconds) - 1))]:.1f}, "
        f"most {seconds[-1]:.1f}",
    ]
    open_ones = [result for _, result in pairs if result["verdict"] in NOT_DEFINITE]
    causes = collections.Counter(f"{result['verdict']}: {cause(result)}" for result in open_ones)
    lines += [f"{count:4} {words}" for words, count in causes.most_common()]
    apart = [pair for pair in told if not agrees(*pair)]
    lines += [f"     apart: {entry['id']}: published {entry['published']}, here {result['verdict']}: "
              f"{result['words'][:100]} {entry.get('why', '')}" for entry, result in apart]  # fmt: skip
    return lines


def _say(entry: Entry, result: Entry) -> None:
    mark = "?" if result["verdict"] in NOT_DEFINITE else "=" if agrees(entry, result) else "#"
    told = f"{mark} {result['wall_s']:6.1f} s  {entry['id']}: published {entry['published'] or '-'}, here "
    print(f"{told}{result['verdict']}: {result['words'][:110]!r}", flush=True)


if __name__ == "__main__":
    main()
