"""Judges public candidates, without a GPU or on one, and writes each verdict beside the published one.

    python benchmarks/public_candidates.py MANIFEST FOLDER [--device emulator] [--jobs N] [--gpus N] [--file RESULTS]
        [--only WORD,...] [--sample N] [--again KIND,...] [--limit 240] [--seconds S] [--option=--shrink-limit=0 ...]
    python benchmarks/public_candidates.py MANIFEST FOLDER --extract TEXTS

MANIFEST (JSON) is a list of candidates: `id`, `task` and `candidate` (each `repository`, `commit`, `path`, and `part`
where one file holds many: the keys down to a text, separated by `/`, of JSON or of the line of that number, where each
holds an object), `model`, `published` (`passed`, `wrong`, `does-not-build`, `raises` or "" where nobody says) and,
where somebody has looked at a disagreement, `why` and who is `right`: `ours`, `theirs` or `open`. FOLDER holds a clone
of each repository as OWNER/NAME, or what `--extract` made of such clones: the manifest's texts alone, to be carried to
another machine. Nothing is fetched, and nothing of a clone is run but in the judge's own sandbox.

RESULTS (JSON; without it the manifest's own name with `.results`) is written after each candidate, and what it holds
already is not judged again; `--again` names kinds of verdicts that are (`all` for every one). `--jobs` are judged at
once, each on processors of its own and, with `--gpus`, on one of so many GPUs; `--seconds` after its start none is
begun. With `NVIDIA_TF32_OVERRIDE=0` in the environment, which each then says, a GPU's libraries compute in float32 as
the emulator does: PyTorch's default lets convolutions and recurrent layers round to TF32, and the public rule then
refuses what is exact. Beside its verdict each has `wall_s`, `processors` that it could have, and, looked at twice a
second, `processor_s` and `peak_mib`, the most that its processes held together. The last lines are the shares of
definite verdicts, of those that agree, and of those that are right (that agree, or where `right` is `ours`, of all but
the `open` ones), the times, and the causes by number; with `--beside OTHER`, RESULTS of another device, those that
differ.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import functools
import hashlib
import json
import os
import queue
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

SOURCE = Path(__file__).resolve().parents[1] / "src"
sys.path.insert(0, str(SOURCE))

from crucible.judge.process.supervisor import descendants  # noqa: E402

NOT_DEFINITE = ("not-judged", "timed-out", "out-of-memory", "judge-failed")
"""Verdicts that say nothing of the candidate: `judge-failed` stands for no verdict at all."""
LOOK_S = 0.5
GRACE_S = 20.0
"""For a judge that was told to end; then it is killed, and all that it started."""
Entry = dict[str, Any]


class Slot(NamedTuple):
    """What one of several judges at once has for itself."""

    cores: frozenset[int]
    gpus: str
    """By `CUDA_VISIBLE_DEVICES`."""


def main() -> None:
    asked = _arguments()
    entries: list[Entry] = json.loads(asked.manifest.read_text())
    if asked.extract:
        print(f"{extract(entries, asked.folder, asked.extract)} texts in {asked.extract}")
        return
    file = asked.file or asked.manifest.with_suffix(".results.json")
    results: dict[str, Entry] = json.loads(file.read_text()) if file.exists() else {}
    again = set(asked.again.split(",")) - {""}
    wanted = [
        entry
        for entry in _chosen(entries, asked.only, asked.sample)
        if entry["id"] not in results or {results[entry["id"]]["verdict"], "all"} & again
    ]
    for entry, result in _by_turns(wanted, asked):
        results[entry["id"]] = result
        _say(entry, result)
        written = file.with_name(file.name + ".part")
        written.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
        written.replace(file)
    print("\n".join(summary(entries, results)))
    if asked.beside:
        print("\n".join(compared(results, json.loads(asked.beside.read_text()))))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manifest", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--file", type=Path)
    parser.add_argument("--extract", type=Path, help="judge none; write the manifest's texts into this folder")
    parser.add_argument("--beside", type=Path, help="RESULTS of another device, to be compared with")
    parser.add_argument("--device", default="emulator", choices=["emulator", "cuda"])
    parser.add_argument("--jobs", type=int, default=1, help="candidates judged at once")
    parser.add_argument("--gpus", type=int, default=1, help="with --device cuda: dealt out among the jobs")
    parser.add_argument("--only", default="", help="words, one of which an id holds")
    parser.add_argument("--sample", type=int, default=0, help="the first so many, in an order that ids alone decide")
    parser.add_argument("--again", default="", help="kinds of verdicts to judge again")
    parser.add_argument("--limit", type=float, default=240, help="seconds for one candidate, all together")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which none is begun")
    parser.add_argument("--option", action="append", default=[], help="handed to `crucible judge`")
    return parser.parse_args()


def _by_turns(entries: list[Entry], asked: argparse.Namespace) -> Iterator[tuple[Entry, Entry]]:
    """Each with its result, as they come: `--jobs` at once, and none begun when the time is up."""
    ends, slots = time.monotonic() + asked.seconds, queue.SimpleQueue[Slot]()
    for slot in _slots(asked.jobs, asked.device, asked.gpus):
        slots.put(slot)

    def one(entry: Entry) -> Entry | None:
        if time.monotonic() > ends:
            return None
        slot = slots.get()
        os.sched_setaffinity(0, slot.cores)  # of this thread, and so of what it starts
        try:
            return judged(entry, asked.folder, asked.device, slot, asked.limit, asked.option)
        finally:
            slots.put(slot)

    if asked.device == "emulator":  # built once, not by all jobs at once, which would time out waiting for it
        build = f"import sys; sys.path.insert(0, {str(SOURCE)!r}); from crucible.emulator import toolchain as t; "
        subprocess.run([sys.executable, "-c", build + "t.prepare(whole=True)"], check=True)
    with ThreadPoolExecutor(asked.jobs) as pool:
        begun = {pool.submit(one, entry): entry for entry in entries}
        for done in as_completed(begun):
            result = done.result()
            if result is not None:
                yield begun[done], result


def _slots(jobs: int, device: str, gpus: int) -> list[Slot]:
    """Processors dealt out among the jobs, in neighbouring groups; where jobs are more, some share one."""
    cores = sorted(os.sched_getaffinity(0))
    each = max(1, len(cores) // jobs)
    seen = [str(i % gpus) if device == "cuda" else "" for i in range(jobs)]
    return [Slot(frozenset(cores[(i * each + j) % len(cores)] for j in range(each)), seen[i]) for i in range(jobs)]


def _chosen(entries: list[Entry], only: str, sample: int) -> list[Entry]:
    """In an order of their own, so that a sample is of all authors."""
    words = [word for word in only.split(",") if word]
    named = [entry for entry in entries if not words or any(word in entry["id"] for word in words)]
    mixed = sorted(named, key=lambda entry: hashlib.sha256(entry["id"].encode()).hexdigest())
    return mixed[:sample] if sample else mixed


def text_of(where: Entry, folder: Path) -> str:
    """What a manifest's place holds. Raises CalledProcessError where the clone has no such file or commit."""
    extracted = folder / _name_of(where)
    if extracted.exists():
        return extracted.read_text()
    text = _shown(folder / where["repository"], f"{where['commit']}:{where['path']}")
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


@functools.lru_cache(4)
def _shown(clone: Path, at: str) -> str:
    return subprocess.run(["git", "-C", clone, "show", at], check=True, capture_output=True, text=True).stdout


def _name_of(where: Entry) -> str:
    place = "\0".join([where["repository"], where["commit"], where["path"], where.get("part") or ""])
    return hashlib.sha256(place.encode()).hexdigest()[:20] + ".py"


def extract(entries: list[Entry], folder: Path, to: Path) -> int:
    """Writes the texts of all places of a manifest where `text_of` finds them, each once; returns how many."""
    to.mkdir(parents=True, exist_ok=True)
    places = {_name_of(where): where for entry in entries for where in (entry["task"], entry["candidate"])}
    for name, where in places.items():
        (to / name).write_text(text_of(where, folder))
    return len(places)


def judged(entry: Entry, folder: Path, device: str, slot: Slot, limit_s: float, options: list[str]) -> Entry:
    """Its verdict by a process of its own, as `crucible judge` gives it to anybody."""
    with tempfile.TemporaryDirectory(prefix="public-") as made:
        task, candidate, record = (Path(made) / name for name in ("task.py", "candidate.py", "run.json"))
        task.write_text(text_of(entry["task"], folder))
        candidate.write_text(text_of(entry["candidate"], folder))
        command = [sys.executable, "-m", "crucible", "judge", task, candidate, "--device", device, "--fresh"]
        command += ["--contract", "kernelbench", "--baselines", "none", "--json", record, *options]
        said, found = _run([str(part) for part in command], Path(made), limit_s, slot)
        if "NVIDIA_TF32_OVERRIDE" in os.environ:
            found["tf32_override"] = os.environ["NVIDIA_TF32_OVERRIDE"]
        return found | (_read(json.loads(record.read_text())) if record.exists() else _no_verdict(said))


def _run(command: list[str], folder: Path, limit_s: float, slot: Slot) -> tuple[str, Entry]:
    """What the judge said on its way, and what it took; it ends in order when its time is up."""
    threads = {"OMP_NUM_THREADS": str(len(slot.cores)), "MAX_JOBS": str(len(slot.cores))}
    places = os.pathsep.join([str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | threads | {"CUDA_VISIBLE_DEVICES": slot.gpus, "PYTHONPATH": places}
    start, peak_bytes, looks, late, used_s = time.monotonic(), 0, 0, False, dict[int, float]()
    with (folder / "said").open("w+") as said:
        process = subprocess.Popen(
            command, stdout=said, stderr=said, cwd=folder, start_new_session=True, env=environment
        )
        while process.poll() is None:
            time.sleep(0.1)
            waited = time.monotonic() - start
            if waited > looks * LOOK_S:
                held, used = _seen(process.pid)
                looks, peak_bytes, used_s = looks + 1, max(peak_bytes, held), used_s | used
            if waited > limit_s and not late:
                late = True
                process.send_signal(signal.SIGTERM)
            if waited > limit_s + GRACE_S:
                _kill(process.pid)
        said.seek(0)
        words = f"took over {limit_s:g} s" if late else said.read()
    took = {"wall_s": round(time.monotonic() - start, 1), "processor_s": round(sum(used_s.values()), 1)}
    return words, took | {"processors": len(slot.cores), "peak_mib": peak_bytes >> 20}


def _seen(root: int) -> tuple[int, dict[int, float]]:
    """Bytes that a process and all below it hold, and each one's seconds of processor time. What they may share
    (libraries) is counted once, by who has most of it."""
    own, shared, used_s = 0, 0, {}
    for pid in (root, *descendants(root)):
        with contextlib.suppress(OSError, IndexError, ValueError):
            pages = [int(word) for word in Path(f"/proc/{pid}/statm").read_text().split()[1:3]]
            own, shared = own + pages[0] - pages[1], max(shared, pages[1])
            ticks = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[11:13]
            used_s[pid] = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
    return (own + shared) * os.sysconf("SC_PAGE_SIZE"), used_s


def _kill(root: int) -> None:
    for pid in (*descendants(root), root):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _no_verdict(words: str) -> Entry:
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    return {"verdict": "judge-failed", "words": " | ".join(lines[-3:])[-400:]}


def _read(run: Entry) -> Entry:
    if not run["candidates"]:
        return {"verdict": "judge-failed", "words": str(run.get("trouble"))[-400:]}
    one = run["candidates"][0]
    found = {"verdict": one["verdict"]["kind"], "words": one["verdict"]["words"][:400], "stages_s": one["stages_s"]}
    found["notes"] = [finding["claim"] for finding in [*run["findings"], *one["findings"]]][:12]
    found["device"] = run["device"]["name"]
    found["faults"] = sorted({fault["what"] for fault in one["faults"]})
    return found


def agrees(entry: Entry, result: Entry) -> bool:
    """Whether both say right, or both wrong."""
    return (entry["published"] == "passed") == (result["verdict"] == "passed")


def rightness(pairs: list[tuple[Entry, Entry]]) -> str:
    """Of definite verdicts beside published ones: how many are right, by agreement or by who was looked at and found
    right, and how many nobody could tell. What nobody has looked at is open."""
    found = collections.Counter("ours" if agrees(*pair) else pair[0].get("right", "open") for pair in pairs)
    decided = found["ours"] + found["theirs"]
    return f"right {found['ours']} of {decided} ({found['ours'] / max(1, decided):.1%}), open {found['open']}"


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
        f"of {len(told)} with a published verdict {len(right)} agree ({len(right) / max(1, len(told)):.1%}); "
        f"{rightness(told)}",
        f"seconds: median {statistics.median(seconds):.1f}, 90 % within {seconds[int(0.9 * (len(seconds) - 1))]:.1f}, "
        f"most {seconds[-1]:.1f}",
    ]
    open_ones = [result for _, result in pairs if result["verdict"] in NOT_DEFINITE]
    causes = collections.Counter(f"{result['verdict']}: {cause(result)}" for result in open_ones)
    lines += [f"{count:4} {words}" for words, count in causes.most_common()]
    apart = [pair for pair in told if not agrees(*pair)]
    lines += [f"     apart: {entry['id']}: published {entry['published']}, here {result['verdict']}: "
              f"{result['words'][:100]} [{entry.get('right', 'open')}] {entry.get('why', '')}"
              for entry, result in apart]  # fmt: skip
    return lines


def compared(results: dict[str, Entry], others: dict[str, Entry]) -> list[str]:
    """Of those that both have: how many are definite in both, and which of these pass in one alone."""
    both = sorted(results.keys() & others.keys())
    told = [name for name in both if not {results[name]["verdict"], others[name]["verdict"]} & set(NOT_DEFINITE)]
    apart = [name for name in told if len({each[name]["verdict"] == "passed" for each in (results, others)}) == 2]
    same = len(told) - len(apart)
    lines = [f"of {len(both)} in both {len(told)} definite in both; {same} the same ({same / max(1, len(told)):.1%})"]
    for name in apart:
        here, there = (f"{each[name]['verdict']} ({each[name]['words'][:90]})" for each in (results, others))
        lines.append(f"     apart: {name}: here {here}, there {there}")
    return lines


def _say(entry: Entry, result: Entry) -> None:
    mark = "?" if result["verdict"] in NOT_DEFINITE else "=" if agrees(entry, result) else "#"
    told = f"{mark} {result['wall_s']:6.1f} s  {entry['id']}: published {entry['published'] or '-'}, here "
    print(f"{told}{result['verdict']}: {result['words'][:110]!r}", flush=True)


if __name__ == "__main__":
    main()
