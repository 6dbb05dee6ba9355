"""Writes every task of a KernelBench checkout as `crucible fuse` does and has `crucible judge --training` judge it, at
the benchmark's own sizes, its forward alone where it has no backward; one JSON file.

    python benchmarks/judge_level.py CHECKOUT LEVEL FOLDER [--gpus 0,1] [--lanes 5] [--seconds 570] [--only 5,36]
        [--contract tf32] [--scale full] [--gib 74]

Of level 0 CHECKOUT is itself a folder of tasks, `NUMBER_name.py`. Several tasks are judged on a GPU at once, since
their builds are most of the time; each waits until its tensors fit beside the others', on the GPU and on TMPDIR's disk.
So runtimes are not taken from here: `kernelbench.py` measures. FOLDER/written has the texts, FOLDER/judged what the
judge said of each, FOLDER/level.json all of it. What is judged is left as it is: a run that was cut short goes on when
it is called again. Where the card, the machine or its disk had no room left a task is judged again, alone, at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from kernelbench import number, task_files
from resuming import held
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from crucible import hardware, store

PER_BYTE = 3.1
"""Bytes that a judge holds of a GPU for each byte that forward makes. By 5 half of the GPUs' memory stayed free; by
this one of 42 tasks ran out of it (4, beside three others; H100)."""
PER_BYTE_OF_WEIGHTS = 15.0
"""For each byte of weights, which the oracle has four times at once, half of these in float64, with gradients, and the
candidate beside it: a judge of 4 GiB of them took 62 GiB at most, two at once 103 (59; 55 and 56; H200)."""
DISK_PER_BYTE, DISK_PER_BYTE_OF_WEIGHTS = 4.0, 8.0
"""Of expected values, and of what candidates are given: 2.4 to 3.7 where weights are small (4, 17, 19, 26, 87), 7.3 and
7.6 of weights (59; 55 and 56; H200)."""
OWN_GIB = 2.0
"""Contexts of the processes of one judge. Not measured."""
LAST_S = 45.0
"""Of the time that is given, which no task begins in: the quickest of level 2 took 56 s beside others."""
_NO_ROOM = ("out of memory", "are free for it", "No space left on device", "set TMPDIR")
"""What a judge says that found no memory, an oracle that asked for more than there was, and either of a full disk."""
_NO_BACKWARD = "the reference has no backward"
"""Of a task that only a forward can be judged of."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("level", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="numbers of tasks")
    parser.add_argument("--gpus", default="", help="numbers of those that tasks are shared out to")
    parser.add_argument("--lanes", type=int, default=5, help="tasks at once, of each GPU")
    parser.add_argument("--gib", type=float, default=74.0, help="of each GPU's memory")
    parser.add_argument("--seconds", type=float, default=86400.0)
    parser.add_argument("--contract", default="tf32")
    parser.add_argument("--scale", default="full")
    args = parser.parse_args()
    device = hardware.find_device()
    header = {
        "device": device.name,
        "versions": hardware.versions(),
        "code": store.code_digest()[:16],
        "contract": args.contract,
        "scale": args.scale,
        "training": True,
    }
    record = args.folder / "level.json"
    known = held(record, header, "tasks") or {}
    for place in ("written", "judged"):
        (args.folder / place).mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps({**header, "tasks": known}, indent=1) + "\n")  # now: a run may be killed
    run(args)
    known = {file.stem: json.loads(file.read_text()) for file in sorted((args.folder / "judged").glob("*.json"))}
    record.write_text(json.dumps({**header, "tasks": known}, indent=1) + "\n")
    wrong = [f"{name}: {found['words']}" for name, found in known.items() if not found["evaluation"]]
    print(f"{len(known)} judged, {len(known) - len(wrong)} True", *wrong, sep="\n", flush=True)


# a run


@dataclass(frozen=True)
class Need:
    """Of a judge, in GiB."""

    gpu: float
    disk: float


@dataclass
class Gpu:
    """One that several judges share by what their tensors take."""

    name: str
    left: float
    lanes: int


@dataclass
class Room:
    """What all judges have, GPUs and one disk, in GiB."""

    gpus: list[Gpu]
    disk: float

    def take(self, need: Need) -> Gpu | None:
        """The GPU of most room, if that and the disk have enough."""
        free = [gpu for gpu in self.gpus if gpu.lanes > 0 and gpu.left >= need.gpu]
        if not free or self.disk < need.disk:
            return None
        gpu = max(free, key=lambda each: (each.left, each.lanes))
        self.disk, gpu.left, gpu.lanes = self.disk - need.disk, gpu.left - need.gpu, gpu.lanes - 1
        return gpu

    def give_back(self, gpu: Gpu, need: Need) -> None:
        self.disk, gpu.left, gpu.lanes = self.disk + need.disk, gpu.left + need.gpu, gpu.lanes + 1


def run(args: argparse.Namespace) -> None:
    """All that is not judged yet, by whichever GPU has room: the smallest first, since the largest alone took most of
    a first call; then alone what found no room."""
    deadline = time.monotonic() + args.seconds
    files = [file for file in task_files(args) if not is_judged(file, args)]
    all_of_it = Need(args.gib, shutil.disk_usage(tempfile.gettempdir()).free / 2**30)
    needs = {file: need_of(file, all_of_it) for file in files}
    room = Room([Gpu(name, args.gib, args.lanes) for name in args.gpus.split(",")], all_of_it.disk)
    changed = threading.Condition()

    def one(file: Path, need: Need) -> None:
        with changed:
            gpu = changed.wait_for(lambda: room.take(need))
        try:
            if time.monotonic() < deadline - LAST_S:
                judged(file, gpu.name, args, deadline)
        finally:
            with changed:
                room.give_back(gpu, need)
                changed.notify_all()

    with ThreadPoolExecutor(len(room.gpus) * args.lanes) as pool:
        smallest_first = sorted(needs.items(), key=lambda pair: (pair[1].gpu, pair[1].disk))
        list(pool.map(one, *zip(*smallest_first, strict=True)) if needs else ())
    again = [file for file in files if outcome(file, args).exists() and not is_judged(file, args)]
    for file in again:
        one(file, all_of_it)
    left = [str(number(file)) for file in files if not is_judged(file, args)]
    print(f"left for the next call: {','.join(left) or 'none'}", flush=True)


def outcome(file: Path, args: argparse.Namespace) -> Path:
    return Path(args.folder / "judged" / f"{file.stem}.json")


def is_judged(file: Path, args: argparse.Namespace) -> bool:
    """Whether a judge has looked at it, with the room that this takes."""
    told = outcome(file, args)
    return told.exists() and not any(words in json.loads(told.read_text())["words"] for words in _NO_ROOM)


class _Made(TorchDispatchMode):
    """How many bytes operations make; a view of what there is makes none."""

    made = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        made = [] if func.is_view else result if isinstance(result, tuple | list) else [result]
        for each in made:
            self.made += each.numel() * each.element_size() if isinstance(each, torch.Tensor) else 0
        return result


def need_of(file: Path, most: Need) -> Need:
    """What a judge of a task takes of a GPU and of the disk, at most all, by tensors without elements: of its weights,
    its inputs and what its forward makes; as far as it gets: what it raises is the judge's to say."""
    spec = importlib.util.spec_from_file_location("task_without_elements", file)
    assert spec and spec.loader, file
    module = importlib.util.module_from_spec(spec)
    mode, weights = _Made(), 0
    with contextlib.suppress(Exception), FakeTensorMode():
        spec.loader.exec_module(module)
        model = module.Model(*module.get_init_inputs())
        weights = sum(each.nbytes for each in model.state_dict().values())
        with mode:
            model(*module.get_inputs())
    gpu = OWN_GIB + (PER_BYTE * mode.made + PER_BYTE_OF_WEIGHTS * weights) / 2**30
    disk = (DISK_PER_BYTE * mode.made + DISK_PER_BYTE_OF_WEIGHTS * weights) / 2**30
    return Need(min(gpu, most.gpu), min(disk, most.disk))


# one task


def judged(file: Path, gpu: str, args: argparse.Namespace, deadline: float) -> None:
    """Written and judged by the commands that a user gives; kept where both came to an end in time."""
    start = time.monotonic()
    try:
        found = told_of(file, gpu, args, deadline)
    except subprocess.TimeoutExpired:
        return
    found = {"name": file.stem, **found, "took_s": round(time.monotonic() - start, 1)}
    outcome(file, args).write_text(json.dumps(found, indent=1) + "\n")
    print(f"{found['took_s']:.0f} s: {file.stem}: {found['evaluation']}, {found['words'][:160]}", flush=True)


def told_of(file: Path, gpu: str, args: argparse.Namespace, deadline: float) -> dict[str, Any]:
    """What the judge says of what is written. Raises TimeoutExpired."""
    written = args.folder / "written" / f"{file.stem}.py"
    told = args.folder / "judged" / f".{file.stem}.told"
    wanted = ["--contract", args.contract, "--scale", args.scale]
    told.unlink(missing_ok=True)  # of a judge that was killed
    fused = ["fuse", str(file), "-o", str(written), *wanted]
    judge = ["judge", str(file), str(written), *wanted, "--baselines", "none", "--json", str(told)]
    trained = [*judge, "--training"]
    # Who is killed at the end of a call leaves expected tensors behind: after 24 of them 15 tasks of the next found a
    # full disk of 128 GiB, which is supposed to be theirs.
    with tempfile.TemporaryDirectory(prefix="level", ignore_cleanup_errors=True) as scratch:
        environment = {
            **os.environ,
            "CRUCIBLE_HOME": str(args.folder / "home"),
            "OMP_NUM_THREADS": "2",
            "TMPDIR": scratch,
        }
        environment |= {"CUDA_VISIBLE_DEVICES": gpu} if gpu else {}
        commands = [judge, trained, *([] if written.exists() else [fused])]  # the last one first
        while commands:
            command = commands.pop()
            done = subprocess.run(
                [sys.executable, "-m", "crucible", *command],
                capture_output=True,
                text=True,
                env=environment,
                timeout=max(deadline - time.monotonic(), 1.0),
                check=False,
            )
            if (command is fused and done.returncode) or (command is trained and _NO_BACKWARD not in done.stderr):
                break
    return verdict_of(told, (done.stdout + done.stderr).strip()[-1500:])


def verdict_of(told: Path, said: str) -> dict[str, Any]:
    """What is kept of a run; where there is none, what was said instead."""
    run = json.loads(told.read_text()) if told.exists() else {"candidates": []}
    told.unlink(missing_ok=True)
    if not run["candidates"]:
        return {"evaluation": False, "words": f"not judged: {said}"}
    (candidate,) = run["candidates"]
    return {
        "evaluation": candidate["evaluation"],
        "words": candidate["verdict"]["words"],
        **{check: compared(candidate.get(check) or {}) for check in ("forward", "backward")},
        "stress": {each["rule"]: each["came"] for each in candidate.get("stress", ())},
        "findings": [each["claim"] + ": " + each["evidence"] for each in candidate.get("findings", ())],
        "of_the_task": [each["claim"] + ": " + each["evidence"] for each in run["findings"]],
        "seed": run["seed"],
    }


def compared(check: dict[str, Any]) -> dict[str, Any]:
    """In how many cases how many tensors were compared, and the largest error as a share of what is allowed."""
    tensors = check.get("tensors", ())
    shares = [each["relative_l2"] / each["relative_l2_allowed"] for each in tensors if each["relative_l2_allowed"]]
    names = sorted({each["name"] for each in tensors})
    return {
        "cases": check.get("cases", []),
        "tensors": names,
        "missing": check.get("missing", []),
        "worst_share_of_allowed": max(shares, default=None),
    }


if __name__ == "__main__":
    main()
