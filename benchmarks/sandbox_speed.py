"""What the sandbox costs: the same kernels in a process inside and in two outside of it, in turns.

    python benchmarks/sandbox_speed.py --json benchmarks/results/sandbox_speed_h200.json

A group is three fresh processes: one confined as a candidate's is, and two that are not; the second of those is the
control, since two processes that run the same code differ too. Each ratio is the median of a group's rounds; the
record has the median over groups with its 95 % interval. On a GPU times are CUDA events', of the driver's calls and on
a CPU the wall clock's. Exit code 1 where a kernel is slower inside by more than 1 % and the interval excludes that.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[1] / "src"
sys.path.insert(0, str(SOURCE))

from crucible import hardware  # noqa: E402
from crucible.judge.process import launcher, namespaces, reach, sandbox  # noqa: E402
from crucible.spread import interval  # noqa: E402

LOSS = 0.01
"""What it may cost at most."""
SIDES = ("outside", "control", "inside")


@dataclass
class Process:
    """One side of a group."""

    side: str
    folder: str
    device: str
    pipe: subprocess.Popen[str] = field(init=False)

    def __post_init__(self) -> None:
        command = [sys.executable, __file__, "--serve", self.side, "--folder", self.folder, "--device", self.device]
        packages = os.pathsep.join(launcher.package_folders())  # what else PYTHONPATH names is out of reach inside
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": packages}
        self.pipe = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=self.folder
        )

    def ask(self, work: str) -> Any:
        assert self.pipe.stdin is not None and self.pipe.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # then it has no answer either
            print(work, file=self.pipe.stdin, flush=True)
        line = self.pipe.stdout.readline()
        if not line:
            raise SystemExit(f"the process {self.side} the sandbox ended with {self.pipe.wait()} at {work!r}")
        return json.loads(line)

    def close(self) -> None:
        self.pipe.communicate()


def confine(folder: str) -> None:
    """As `process/confined.py` does it."""
    own = [namespaces.SHARED_MEMORY] if namespaces.enter() else []
    readable = [*reach.readable(), *reach.python(), str(SOURCE), __file__]
    sandbox.confine(readable, [folder, *own], reach.usable(), sandbox.layers())


def workloads(device: str) -> dict[str, Callable[[], float]]:
    """Milliseconds of each, by name."""
    import torch

    on = torch.device(device)
    size, many = (8192, 1 << 27) if device == "cuda" else (384, 1 << 20)
    a, b = torch.rand(size, size, device=on), torch.rand(size, size, device=on)
    x, out = torch.rand(many, device=on), torch.empty(many, device=on)
    tiny = torch.zeros(64, device=on)
    convolution = torch.nn.Conv2d(64, 64, 3).to(on)
    image = torch.rand(16 if device == "cuda" else 1, 64, 112 if device == "cuda" else 28, 112, device=on)

    def launches() -> None:
        for _ in range(500):
            tiny.add_(1)

    @torch.no_grad()
    def convolved() -> None:
        convolution(image)

    kernels: dict[str, Callable[[], Any]] = {
        "matrix product": lambda: torch.mm(a, b, out=b.new_empty(size, size)),
        "elements": lambda: torch.add(x, 1, out=out),
        "convolution": convolved,
        "500 launches": launches,
    }
    found = {name: _timed(kernel, device) for name, kernel in kernels.items()}
    return found | {"files: 2000 opened": _wall(_opened), **_of_the_driver(device)}


def _of_the_driver(device: str) -> dict[str, Callable[[], float]]:
    """What goes to the system on a GPU: memory asked of the driver, and copies."""
    if device != "cuda":
        return {}
    import torch

    host = torch.rand(1 << 24).pin_memory()
    kept = torch.empty(1 << 24, device="cuda")

    def allocate() -> None:
        torch.cuda.empty_cache()
        torch.empty(1 << 28, device="cuda")
        torch.cuda.empty_cache()

    def copy() -> None:
        kept.copy_(host)
        torch.cuda.synchronize()

    return {"driver: 1 GiB asked for and given back": _wall(allocate), "driver: 64 MiB copied": _wall(copy)}


def _opened() -> None:
    for _ in range(2000):
        os.close(os.open("/dev/null", os.O_RDONLY))


def _wall(work: Callable[[], Any]) -> Callable[[], float]:
    def timed() -> float:
        start = time.perf_counter()
        work()
        return (time.perf_counter() - start) * 1e3

    return timed


def _timed(kernel: Callable[[], Any], device: str) -> Callable[[], float]:
    if device != "cuda":
        return _wall(kernel)
    import torch

    def timed() -> float:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        start.record()
        for _ in range(5):
            kernel()
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) / 5

    return timed


def serve(side: str, folder: str, device: str) -> None:
    """A process of a group: one line of a workload's name is answered by its milliseconds."""
    if side == "inside":
        confine(folder)
    made = workloads(device)
    for line in sys.stdin:
        name = line.strip()
        if name == "names":
            print(json.dumps(list(made)), flush=True)
            continue
        print(json.dumps(min(made[name]() for _ in range(3))), flush=True)


def group(device: str, rounds: int, order: int) -> dict[str, dict[str, list[float]]]:
    """Milliseconds of each workload on each side, a round each."""
    with tempfile.TemporaryDirectory() as folder:
        processes = [Process(side, folder, device) for side in SIDES]
        names = processes[0].ask("names")
        found: dict[str, dict[str, list[float]]] = {name: {side: [] for side in SIDES} for name in names}
        for turn in range(rounds + 1):
            for name in names:
                for i in range(len(processes)):
                    process = processes[(i + turn + order) % len(processes)]
                    taken = process.ask(name)
                    if turn:  # the first warms up
                        found[name][process.side].append(taken)
        for process in processes:
            process.close()
    return found


def record(groups: list[dict[str, dict[str, list[float]]]]) -> dict[str, Any]:
    """Medians, and ratios over outside with their intervals."""

    def ratios(name: str, side: str) -> list[float]:
        return [
            statistics.median(i / o for i, o in zip(one[name][side], one[name]["outside"], strict=True))
            for one in groups
        ]

    return {
        name: {
            "outside_ms": statistics.median(t for one in groups for t in one[name]["outside"]),
            "inside_ms": statistics.median(t for one in groups for t in one[name]["inside"]),
            "inside_over_outside": asdict(interval(ratios(name, "inside"))),
            "control_over_outside": asdict(interval(ratios(name, "control"))),
        }
        for name in groups[0]
    }


def slower(found: dict[str, Any]) -> list[str]:
    """Kernels that lose more than they may: by the whole interval, beyond what the control does."""
    kernels = {name: row for name, row in found.items() if ":" not in name}
    return [
        name
        for name, row in kernels.items()
        if row["inside_over_outside"]["low"] > (1 + LOSS) * max(1.0, row["control_over_outside"]["value"])
    ]


def measured(
    device: str, groups: int, rounds: int, write: Callable[[dict[str, Any]], None] = lambda record: None
) -> dict[str, Any]:
    """The whole record; `write` gets what is known after each group."""
    made = []
    for order in range(groups):
        made.append(group(device, rounds, order))
        write(_told(device, made, rounds))
    return _told(device, made, rounds)


def _told(device: str, made: list[dict[str, dict[str, list[float]]]], rounds: int) -> dict[str, Any]:
    return {
        "device": hardware.find_device(device).name,
        "versions": hardware.versions(),
        "held_by": asdict(sandbox.layers()),
        "groups": len(made),
        "rounds": rounds,
        "workloads": record(made),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where the record goes")
    parser.add_argument("--groups", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--serve", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    device = hardware.find_device(asked.device).kind
    if asked.serve:
        serve(asked.serve, asked.folder, device)
        return 0
    start = time.monotonic()

    def write(found: dict[str, Any]) -> None:
        print(
            f"{time.monotonic() - start:6.1f} s  group {found['groups']} of {asked.groups}", file=sys.stderr, flush=True
        )
        if asked.json:
            asked.json.write_text(json.dumps(found, indent=1) + "\n")

    found = measured(device, asked.groups, asked.rounds, write)
    for name, row in found["workloads"].items():
        inside, control = row["inside_over_outside"], row["control_over_outside"]
        print(
            f"{name:40} {row['outside_ms']:9.4f} ms outside, inside / outside {inside['value']:.4f} "
            f"[{inside['low']:.4f}, {inside['high']:.4f}], control {control['value']:.4f}"
        )
    lost = slower(found["workloads"])
    for name in lost:
        print(f"slower inside by more than {LOSS:.0%}: {name}")
    return 1 if lost else 0


if __name__ == "__main__":
    raise SystemExit(main())
