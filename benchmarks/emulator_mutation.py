"""The emulator put to the test: right kernels with a barrier removed or a guard loosened, and how many it catches.

python benchmarks/emulator_mutation.py [--processes 2] [--only KERNEL ...]   # 10 minutes of processor time
python benchmarks/emulator_mutation.py --check                                # the record against kernels and table

Kernels whose record is of the same text are not run again. Fails when a mutant that was not caught is missing in
tests/emulator/kernels/mutants_not_caught.txt, when an entry there names one that was caught or does not exist, and when
fewer than 90 % of those that can matter were caught.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import multiprocessing
import multiprocessing.connection
import platform
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results/emulator_mutation.json"
WANTED = 0.9
"""Share caught of the mutants that can matter."""
sys.path.insert(0, str(ROOT / "tests/emulator"))

import corpus  # noqa: E402
import mutants  # noqa: E402

from crucible.emulator import session, toolchain  # noqa: E402


def run_kernel(kernel: corpus.Kernel) -> dict[str, Any]:
    """Builds and runs all mutants of one kernel in this process; what caught each."""
    session.start().thread_limit(1.0)
    every = [mutants.unchanged(kernel), *mutants.mutants(kernel)]
    built = corpus.build(every, f"mutants_of_{kernel.name}")
    caught = {mutant.what: mutants.caught_by(built, mutant) for mutant in every}
    unchanged = caught.pop("")
    if unchanged:
        raise RuntimeError(f"{kernel.path.name} itself is at fault ({unchanged}): mend it before its mutants count")
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = round(sum(each.ru_utime + each.ru_stime for each in used), 1)
    return {"digest": digest(kernel), "processor_s": seconds, "caught_by": caught}


def digest(kernel: corpus.Kernel) -> str:
    """Of the texts of a kernel, of its mutants and of its reference."""
    texts = [mutant.text for mutant in mutants.mutants(kernel)] + [kernel.path.with_suffix(".py").read_text()]
    return hashlib.sha256("\0".join([kernel.text, *texts]).encode()).hexdigest()[:16]


def problems(record: dict[str, Any]) -> list[str]:
    """What is wrong with a record and the table of those not caught, a line each."""
    found = []
    table = mutants.not_caught()
    kernels = {kernel.path.stem: kernel for kernel in mutants.kernels()}
    found += [f"{name}: recorded, but no kernel" for name in sorted(record["kernels"].keys() - kernels.keys())]
    for name, kernel in kernels.items():
        if record["kernels"].get(name, {}).get("digest") != digest(kernel):
            found.append(f"{name}: its record is missing or of another text; run benchmarks/emulator_mutation.py")
    recorded = {(name, what): by for name, of in record["kernels"].items() for what, by in of["caught_by"].items()}
    found += [f"{' | '.join(key)} | no such mutant" for key in table if key not in recorded]
    found += [f"{' | '.join(key)} | is caught by {recorded[key]}" for key in table if recorded.get(key)]
    unexplained = [key for key, by in recorded.items() if not by and key not in table]
    found += [f"{' | '.join(key)} | not caught and not in the table" for key in unexplained]
    share = summary(record)["share caught of those that can matter"]
    return found + ([f"only {share:.1%} are caught"] if share < WANTED else [])


def summary(record: dict[str, Any]) -> dict[str, Any]:
    """Counts over all kernels; equivalent mutants, by the table, cannot matter."""
    outcomes = [by for of in record["kernels"].values() for by in of["caught_by"].values()]
    equivalent = sum(reason.startswith("equivalent: ") for reason in mutants.not_caught().values())
    caught = sum(bool(by) for by in outcomes)
    return {
        "kernels": len(record["kernels"]),
        "mutants": len(outcomes),
        "caught": caught,
        "caught in forward order": sum(", forward, " in by for by in outcomes),
        "caught at the first inputs": sum(by.endswith("forward, inputs 1") for by in outcomes),
        "equivalent": equivalent,
        "missed": len(outcomes) - caught - equivalent,
        "share caught of those that can matter": round(caught / max(1, len(outcomes) - equivalent), 4),
        "processor_s": round(sum(of["processor_s"] for of in record["kernels"].values()), 1),
    }


def _in_processes(wanted: list[corpus.Kernel], processes: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """A process for each kernel: what a mutant breaks in the runtime ends with it. Forked: torch takes 3 s to load."""
    session.start()
    fork = multiprocessing.get_context("fork")
    waiting, running = list(reversed(wanted)), {}
    while waiting or running:
        while waiting and len(running) < processes:
            kernel = waiting.pop()
            receiver, sender = fork.Pipe(duplex=False)
            process = fork.Process(target=_send, args=(sender, kernel))
            process.start()
            sender.close()
            running[receiver] = (process, kernel)
        for receiver in multiprocessing.connection.wait(list(running)):
            process, kernel = running.pop(receiver)
            try:
                yield kernel.path.stem, receiver.recv()
            except EOFError:
                raise RuntimeError(f"{kernel.path.stem}: its process died; what it said stands above") from None
            process.join()


def _send(sender: Any, kernel: corpus.Kernel) -> None:
    sender.send(run_kernel(kernel))


def _record(names: list[str], processes: int) -> dict[str, Any]:
    """Runs what has no record yet, and keeps each as it comes."""
    kernels = {kernel.path.stem: kernel for kernel in mutants.kernels()}
    old = json.loads(RESULTS.read_text())["kernels"] if RESULTS.exists() else {}
    kept = {name: of for name, of in old.items() if name in kernels and of["digest"] == digest(kernels[name])}
    wanted = [kernel for name, kernel in kernels.items() if name in names or (not names and name not in kept)]
    for name, of in _in_processes(wanted, processes):
        kept[name] = of
        _write(kept)
        print(f"{name}: {sum(map(bool, of['caught_by'].values()))} of {len(of['caught_by'])} caught", flush=True)
    return _write(kept)


def _write(kernels: dict[str, Any]) -> dict[str, Any]:
    compiler = toolchain.find_compiler()
    said = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    record: dict[str, Any] = {"kernels": dict(sorted(kernels.items()))}
    about = {"date": datetime.date.today().isoformat(), "compiler": said}
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    record = {**about, **versions, "summary": summary(record), **record}
    RESULTS.write_text(json.dumps(record, indent=1) + "\n")
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[], metavar="KERNEL", help="these, whether recorded or not")
    parser.add_argument("--check", action="store_true", help="runs nothing")
    asked = parser.parse_args()
    record = json.loads(RESULTS.read_text()) if asked.check else _record(asked.only, asked.processes)
    print(json.dumps(summary(record), indent=1))
    found = problems(record)
    sys.exit("\n".join(found) if found else 0)


if __name__ == "__main__":
    main()
