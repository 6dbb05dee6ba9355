"""Writes the tasks of a KernelBench checkout, holds what is written against float64 and strict float32, and times it
beside eager PyTorch, torch.compile and max-autotune.

    python benchmarks/kernelbench.py CHECKOUT LEVEL FOLDER [--column tf32|default|bf16] [--only 5,36,40]
        [--seconds 570] [--processes 28] [--warming 7] [--gpus 0,1] [--baselines eager,compile,max-autotune]
        [--race-seconds 1] [--race] [--build-only]
    python benchmarks/kernelbench.py CHECKOUT LEVEL FOLDER --report      record.json, table.md and plot.svg alone

Of level 0 CHECKOUT is itself a folder of tasks, `NUMBER_name.py`: so `benchmarks/networks.py` has it. Tasks that
declare SMALL can be taken at --scale small; --mode eval has them written and measured so. With --race they are written
as `crucible fuse --race` writes them: what torch.compile did faster, when both were built, it computes.

Columns of precision: `tf32`, which is allowed to all; `default`, PyTorch's flags as they come (convolutions may round
to TF32, matrix products may not) against what is written for the contract `fp32`, whose own calls of PyTorch round
nothing; `bf16`, modules and inputs of that type.

Tasks are written side by side, in the order in which --only names them, then built, the shortest text first, with
torch.compile's caches filled. What is built is measured while others are, in a process of its own that has its GPU
alone, whoever else works with it being stopped: everybody takes turns, by the judge's race and clock, from a cold L2.
Of the cores a few for each GPU are kept for that, and builds give way. FOLDER/COLUMN holds a JSON for each task. What
is there is left as it is: a run that was cut short, by itself when the seconds are over, goes on when it is called
again; remove a task's file to have it measured anew. Everybody draws the same weights and inputs.
Without a GPU kernels run on the emulator: a dry run, whose times mean nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import json
import math
import os
import queue
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gpu_turns
import torch
from kernelbench_report import COVERS, REWRITTEN, report
from torch import nn

from crucible import fusing, hardware, store, tf32
from crucible.capture import trace
from crucible.copies import duplicate
from crucible.emission.file import emit
from crucible.emission.handing import Beside
from crucible.errors import MisuseError
from crucible.gpus import H200, closest_gpu
from crucible.judge.boundary.modules import call, construct, generators_moved, seed_all
from crucible.judge.oracle.draws import KeepingDraws, TakingDraws
from crucible.judge.oracle.kinks import MOST, near_kinks, reach_of
from crucible.judge.oracle.noise import RoundedOperands
from crucible.judge.oracle.reference import Reference
from crucible.judge.timing.race import CPU_PACE, GPU_PACE, Race, measured
from crucible.judge.worker.clock import sampler
from crucible.plan.planner import fuse
from crucible.task import Task
from crucible.tuning.bench import Runner
from crucible.tuning.bench import race as turns_on_gpu
from crucible.tuning.exactness import apart
from crucible.tuning.rival import beside_compile, rivals_of

BASELINES = ("eager", "compile", "max-autotune")
COMPILED = BASELINES[1:]
LAST_S = 20.0
"""Of the time that is given, which no task begins in."""
TASK_S = 1800.0
"""The most that one task may take to be built, or to be measured, waits for a turn included: max-autotune of a network
is 250 to more than 600 s."""
AHEAD = 5
"""Processes of tasks to be measured, of each GPU: one has it, the others draw their inputs and trace meanwhile. With 3,
and 4 that warm, half of 32 cores had nothing to do: 97 tasks in 565 s on two GPUs."""
KEPT_CORES = 4
"""Of the machine, for each GPU's measuring. 28 builds on 32 cores starved it: 6 networks of 33 were measured in 340 s,
and eager took the longer the busier its host was."""
GIVES_WAY = ("nice", "-n", "15")
"""In front of the command of what is not measured."""
SEED = 7
"""Of what is drawn in a forward."""
WARMING = 7
"""Processes that fill torch.compile's caches at once, of each GPU, unless others are asked for: each has a task's
tensors there. Eight networks and what is measured took 25 GB of it."""


@dataclass(frozen=True)
class Column:
    """Who may round what."""

    dtype: torch.dtype
    baselines: tuple[bool, bool]
    """Whether convolutions and matrix products of the baselines may round their operands to TF32."""
    written: tuple[bool, bool]
    """The same of the written module and of the operations that it leaves to PyTorch."""
    least: float
    """A relative L2 error that is right whatever others' are; more is, up to five times eager's, or twice that of
    strict float32 whose products round their operands to `bits`."""
    bits: int | None = None
    """Of a mantissa. What is allowed to round need not: cuDNN chose exact kernels for 11 of level 2's 100 tasks,
    and a CPU has no others. Of a small ResNet's gradients roundings are 0.116, behind ReLUs that turn over."""


COLUMNS = {
    "tf32": Column(torch.float32, (True, True), (True, True), 2e-3, bits=10),
    "default": Column(torch.float32, (True, False), (False, False), 2e-5),
    "bf16": Column(torch.bfloat16, (True, True), (True, True), 3e-2),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("level", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--column", choices=COLUMNS, default="tf32")
    parser.add_argument("--only", default="", help="numbers of tasks")
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--processes", type=int, help="that write and build at once, else of each core to spare")
    parser.add_argument("--warming", type=int, default=WARMING, help="that fill torch.compile's caches, of each GPU")
    parser.add_argument("--gpus", default="", help="numbers of those that tasks are shared out to")
    parser.add_argument("--baselines", default=",".join(BASELINES))
    parser.add_argument("--race-seconds", type=float, default=1.0)
    parser.add_argument("--scale", choices=("full", "small"), default="full")
    parser.add_argument("--mode", choices=("train", "eval"), default="train")
    parser.add_argument("--race", action="store_true")
    parser.add_argument("--build-only", action="store_true")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--one", choices=("write", "build", "measure"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        {"write": write, "build": build, "measure": measure}[args.one](task_files(args)[0], args)
        return
    if not args.report:
        run(args)
    print(report(args.folder, args.level))


def task_files(args: argparse.Namespace) -> list[Path]:
    """The level's tasks in the order of their numbers, or as they are asked for. Ends the process where there are
    none."""
    places = [args.checkout / "KernelBench" / f"level{args.level}", args.checkout / f"level{args.level}"]
    places = places if args.level else [args.checkout]
    found = {number(file): file for place in places for file in place.glob("*.py") if number(file) is not None}
    asked = [int(each) for each in args.only.split(",") if each]
    chosen = [found[key] for key in asked or sorted(found) if key in found]
    if not chosen or len(chosen) < len(asked):
        raise SystemExit(f"no such tasks in {' or '.join(map(str, places))}: {args.only or 'any'}")
    return chosen


def number(file: Path) -> int | None:
    """As KernelBench puts it in front of a task's name."""
    word = file.stem.split("_")[0]
    return int(word) if word.isdigit() else None


# a run


def run(args: argparse.Namespace) -> None:
    """Builds side by side and measures what is built, one task after the other on each GPU, as long as there is
    time."""
    place = args.folder / args.column
    place.mkdir(parents=True, exist_ok=True)
    check_header(place / "header.json", args)
    deadline = time.monotonic() + args.seconds
    files = [file for file in task_files(args) if not (place / f"{file.stem}.json").exists()]
    gpus = args.gpus.split(",")
    free: queue.Queue[str] = queue.Queue()
    for gpu in gpus * AHEAD:
        free.put(gpu)

    def written_here(turn: int, file: Path) -> None:
        begun("write", file, args, deadline, gpus[turn % len(gpus)])
        text = place / "written" / file.name
        waiting.put((text.stat().st_size if text.exists() else math.inf, turn, file))

    def built_here(_: Path) -> None:
        _, turn, file = waiting.get()
        begun("build", file, args, deadline, gpus[turn % len(gpus)])
        if not args.build_only and built(place, file):
            measuring.submit(measured_here, file)

    def measured_here(file: Path) -> None:
        gpu = free.get()
        begun("measure", file, args, deadline, gpu)
        free.put(gpu)

    waiting: queue.PriorityQueue[tuple[float, int, Path]] = queue.PriorityQueue()
    kept = KEPT_CORES * len(gpus) if torch.cuda.is_available() else 0
    spare = max(1, len(os.sched_getaffinity(0)) - kept)
    with (
        ThreadPoolExecutor(len(gpus) * AHEAD) as measuring,
        ThreadPoolExecutor(args.processes or spare) as building,
    ):
        written = building.map(written_here, range(len(files)), files)
        list(building.map(built_here, files))  # each takes the cheapest of what is written by then
        list(written)
    left = [str(number(file)) for file in files if not (place / f"{file.stem}.json").exists()]
    print(f"{len(files) - len(left)} measured; left for the next call: {','.join(left) or 'none'}", flush=True)


def check_header(file: Path, args: argparse.Namespace) -> None:
    """One folder is of one device, one PyTorch and one set of baselines. Ends the process where it is of others."""
    device = hardware.find_device()
    header = {
        "device": device.name,
        "driver": device.driver,
        "versions": hardware.versions(),
        "baselines": args.baselines.split(","),
        "race_seconds": args.race_seconds,
        **({"scale": args.scale} if args.scale != "full" else {}),
        **({"mode": args.mode} if args.mode != "train" else {}),
        **({"race": True} if args.race else {}),
    }
    held = json.loads(file.read_text()) if file.exists() else header
    if held != header:
        raise SystemExit(f"{file.parent} holds a record of {held}, this is {header}: name another folder")
    file.write_text(json.dumps(header, indent=1) + "\n")


def begun(what: str, file: Path, args: argparse.Namespace, deadline: float, gpu: str) -> None:
    """One task in a process of its own, whose crash is that task's; nothing where its time would not suffice."""
    place = args.folder / args.column
    left = deadline - time.monotonic()
    is_done = built(place, file) or (place / f"{file.stem}.json").exists()
    if left < LAST_S or (what != "measure" and is_done):
        return
    own = ["--column", args.column, "--only", str(number(file)), "--baselines", args.baselines]
    own += ["--race-seconds", str(args.race_seconds), "--scale", args.scale, "--mode", args.mode, "--one", what]
    own += ["--warming", str(args.warming), *["--race"] * args.race]
    first = GIVES_WAY if what != "measure" and torch.cuda.is_available() else ()
    command = [*first, sys.executable, __file__, str(args.checkout), str(args.level), str(args.folder), *own]
    start = time.monotonic()
    environment = {"TORCHINDUCTOR_COMPILE_THREADS": "1", **os.environ}  # else each has a pool of its own
    environment |= {"CUDA_VISIBLE_DEVICES": gpu} if gpu else {}
    whole = False
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=min(TASK_S, left), env=environment, check=False
        )
        whole = not done.returncode
        failed = "" if whole else f"{what}: {(done.stderr or done.stdout).strip()[-800:]}"
    except subprocess.TimeoutExpired:
        failed = f"{what}: more than {TASK_S:.0f} s" if left > TASK_S else ""  # else the next call goes on
    if not whole and what == "measure":
        gpu_turns.resume(gpu or os.environ.get("CUDA_VISIBLE_DEVICES", ""))
    if failed:
        keep(place, file, {"failed": failed})
    ended = failed[-200:] or ("done" if whole else "cut short")
    print(f"{time.monotonic() - start:.0f} s: {file.stem} {what} {ended}", flush=True)


def built(place: Path, file: Path) -> bool:
    """Whether this machine has what is written for a task as binaries."""
    text = place / "written" / file.name
    return text.exists() and mark(text).exists()


def mark(text: Path) -> Path:
    """What says so, of this text by this writer."""
    words = text.read_text() + store.code_digest()
    return gpu_turns.PLACE / f"{text.stem}.{hashlib.sha256(words.encode()).hexdigest()[:16]}.built"


def keep(place: Path, file: Path, found: dict[str, Any]) -> None:
    """Under another name first: what is there is whole."""
    part = place / f".{file.stem}.part"
    part.write_text(json.dumps({"name": file.stem, **found}, indent=1) + "\n")
    part.rename(place / f"{file.stem}.json")


# one task


@dataclass
class Subject:
    """A module that is timed, under its own flags."""

    module: nn.Module
    rounding: tuple[bool, bool]
    inputs: list[Any]
    """Those that are floating take a gradient, where gradients are taken."""
    buffers: dict[str, torch.Tensor]
    """As they were before any call."""
    bits: int | None = None
    """Of mantissas, to which products round their operands; None: what PyTorch's flags say."""
    taken: list[torch.Tensor] | None = None
    """What it takes in the place of what it would draw at random."""

    def restore(self) -> None:
        """Buffers and the generator as they were: each contestant computes the same."""
        for name, buffer in self.module.named_buffers():
            buffer.data.copy_(self.buffers[name.removeprefix("_orig_mod.")])
        seed_all(SEED)

    def forward(self) -> Any:
        with tf32.allowed(*self.rounding), self._rounded(), self._taking(), torch.no_grad():
            return call(self.module, self.inputs)

    def both(self, cotangents: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
        """Gradients of what takes one."""
        with tf32.allowed(*self.rounding), self._rounded(), self._taking():
            outputs = tensors(call(self.module, self.inputs))
            pairs = [(o, c) for o, c in zip(outputs, cotangents, strict=True) if o.requires_grad]
            ends, given = [o for o, _ in pairs], [c for _, c in pairs]
            wanted = self.wanted
            return list(torch.autograd.grad(ends, wanted, given, allow_unused=True)) if pairs else [None] * len(wanted)

    def _rounded(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext() if self.bits is None else RoundedOperands(self.bits)

    def _taking(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext() if self.taken is None else TakingDraws(self.taken)

    @property
    def wanted(self) -> list[torch.Tensor]:
        inputs = [each for each in self.inputs if isinstance(each, torch.Tensor) and each.requires_grad]
        return inputs + [each for each in self.module.parameters() if each.requires_grad]


def tensors(outputs: Any) -> list[torch.Tensor]:
    """The floating ones, in their order."""
    if isinstance(outputs, torch.Tensor):
        return [outputs] if outputs.is_floating_point() else []
    return [each for item in (outputs if isinstance(outputs, tuple | list) else ()) for each in tensors(item)]


def loaded(file: Path, args: argparse.Namespace) -> tuple[Task, Reference, list[Any]]:
    """A task's module and inputs on the CPU, under one seed."""
    column, device = COLUMNS[args.column], "cpu"
    task = Task.load(file).at(scale=args.scale, training=True, mode=args.mode, small_by_default=False)
    reference = Reference(task.source, str(file), task.sizes, mode=task.mode, seed=0, device=torch.device(device))
    inputs = [_cast(each, column.dtype, device) for each in reference.inputs(0)]
    reference.model.to(device, column.dtype)
    return task, reference, inputs


def _cast(given: Any, dtype: torch.dtype, device: str) -> Any:
    if not isinstance(given, torch.Tensor):
        return given
    floating = given.is_floating_point()
    return given.detach().to(device, dtype if floating else given.dtype).requires_grad_(floating)


def write(file: Path, args: argparse.Namespace) -> None:
    """Writes a task's file; refusals are recorded."""
    place, column = args.folder / args.column, COLUMNS[args.column]
    task, reference, inputs = loaded(file, args)
    try:
        text = written_text(task, reference.model, inputs, column)
    except MisuseError as error:
        keep(place, file, {"refused": str(error)})
        return
    path = place / "written" / file.name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def build(file: Path, args: argparse.Namespace) -> None:
    """Compiles a task's kernels, and fills torch.compile's caches."""
    place, column = args.folder / args.column, COLUMNS[args.column]
    path = place / "written" / file.name
    imported(path)
    if hardware.find_device().kind == "cuda":
        with gpu_turns.seat("warming", args.warming):
            _, reference, inputs = loaded(file, args)
            with gpu_turns.beside_others():
                module, given = reference.model.to("cuda"), [_cast(each, column.dtype, "cuda") for each in inputs]
                for name in filter(COMPILED.__contains__, args.baselines.split(",")):
                    warm(Subject(compiled(name, duplicate(module)), column.baselines, given, {}))
    mark(path).parent.mkdir(parents=True, exist_ok=True)
    mark(path).write_text("")


def hand_over(file: Path, path: Path, args: argparse.Namespace) -> Path:
    """Writes the file anew, as measured beside torch.compile, and keeps what was found. Returns where."""
    column = COLUMNS[args.column]
    task, reference, inputs = loaded(file, args)
    with tf32.allowed(*column.baselines):
        given = [_cast(each, column.dtype, "cuda") for each in inputs]
        module = duplicate(reference.model).to("cuda")
        rivals = rivals_of("max-autotune" if "max-autotune" in args.baselines.split(",") else "compile")
        forward, took = imported(path).ModelNew.forward, list[Mapping[str, float]]()

        def timed(calls: Mapping[str, Callable[[], Any]]) -> Mapping[str, float]:
            took.append(_raced(calls))
            return took[-1]

        beside = beside_compile(forward, module, given, timed, rivals, untimed=gpu_turns.beside_others)
    raced = path.parent.with_name("raced") / path.name
    raced.parent.mkdir(exist_ok=True)
    raced.write_text(written_text(task, reference.model, inputs, column, beside))
    ratios = {"forward": beside.forward, "forward+backward": beside.training}
    found = {
        **{covers: None if ratio == math.inf else ratio for covers, ratio in ratios.items()},
        "words": beside.words,
        "median_ms": took,
    }
    beside_of(raced).write_text(json.dumps(found) + "\n")
    return raced


def _raced(calls: Mapping[str, Callable[[], Any]]) -> Mapping[str, float]:
    """Compiled beside others, timed alone."""
    with gpu_turns.beside_others():
        for call in calls.values():
            call()
        torch.cuda.empty_cache()
    with gpu_turns.alone():
        return turns_on_gpu(calls)


def beside_of(path: Path) -> Path:
    return path.with_suffix(".beside")


def warm(subject: Subject) -> None:
    """Fills torch.compile's caches, or builds from them. Whatever fails here fails again where it is measured, and is
    said then."""
    with contextlib.suppress(Exception):
        subject.both([torch.ones_like(each) for each in tensors(subject.forward())])


def written_text(task: Task, module: nn.Module, inputs: list[Any], column: Column, beside: Beside | None = None) -> str:
    """As `crucible fuse` writes it, for the column's dtype. Raises CaptureError."""
    gpu = closest_gpu(torch.cuda.get_device_name()) if torch.cuda.is_available() else H200
    convolutions, linear = column.written
    planned = fuse(trace(module, inputs, drops=True), tf32=convolutions, tf32_linear=linear, gpu=gpu)
    loader = fusing._LOADERS[not torch.cuda.is_available()]
    return emit(planned, task.name, task.source, loader, beside=beside)


def imported(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def compiled(name: str, module: nn.Module) -> nn.Module:
    mode = {"compile": None, "max-autotune": "max-autotune-no-cudagraphs"}[name]
    return torch.compile(module, mode=mode)  # type: ignore[return-value]


def measure(file: Path, args: argparse.Namespace) -> None:
    """Everybody held against float64 and strict float32, then timed."""
    place, column = args.folder / args.column, COLUMNS[args.column]
    text = place / "written" / file.name
    start = time.monotonic()
    with gpu_turns.seat("measured", AHEAD):
        if args.race and hardware.find_device().kind == "cuda":
            text = hand_over(file, text, args)
        _, reference, inputs = loaded(file, args)
        new = construct(imported(text).ModelNew, reference.init_inputs).to(column.dtype).train(args.mode == "train")
        new.load_state_dict(reference.model.state_dict())
        with gpu_turns.beside_others():
            everyone, buffers = contestants(reference.model, new, inputs, column, args)
        waiting = time.monotonic()
        with gpu_turns.alone():
            begin = time.monotonic()
            found = measured_alone(reference.model, everyone, buffers, column, args)
    seconds = {"shared": waiting - start, "waited": begin - waiting, "alone": time.monotonic() - begin}
    words, beside = text.read_text(), beside_of(text)
    found |= {"beside": json.loads(beside.read_text())} if beside.exists() else {}
    keep(place, file, {"written_sha256": hashlib.sha256(words.encode()).hexdigest(),
                       "rewritten": REWRITTEN in words, "seconds": seconds, **found})  # fmt: skip


def contestants(
    module: nn.Module, new: nn.Module, inputs: list[Any], column: Column, args: argparse.Namespace
) -> tuple[dict[str, Subject], dict[str, torch.Tensor]]:
    """Everybody on the device, what is quick to build built; and buffers as they were before."""
    kind = hardware.find_device().kind
    inputs = [_cast(each, column.dtype, kind) for each in inputs]
    module, new = module.to(kind), new.to(kind)
    buffers = {name: each.clone() for name, each in module.named_buffers()}
    everyone = {"written": Subject(new, column.written, inputs, buffers)}
    for name in filter(None, args.baselines.split(",")):
        rival = module if name == "eager" else compiled(name, module)
        everyone[name] = Subject(rival, column.baselines, inputs, buffers)
    for name in ("written", *COMPILED):
        if kind == "cuda" and name in everyone:
            warm(everyone[name])
            torch.cuda.empty_cache()
    return everyone, buffers


def measured_alone(
    module: nn.Module,
    everyone: dict[str, Subject],
    buffers: dict[str, torch.Tensor],
    column: Column,
    args: argparse.Namespace,
) -> dict[str, Any]:
    """Of a process that has the GPU."""
    found = Truth(module, column, everyone["written"].inputs, buffers).errors(everyone)
    for covers in COVERS:
        if covers == "forward" or "no_backward" not in found:
            found[covers] = race(everyone, covers, args.race_seconds, found["shapes"])
    return found


class Truth:
    """What is right: the module in float64, where memory and time allow, and in strict float32. What it draws at random
    is what eager PyTorch draws; where that cannot be taken, strict float32 alone, which draws the same by itself."""

    def __init__(self, module: nn.Module, column: Column, inputs: list[Any], buffers: dict[str, torch.Tensor]) -> None:
        self.column = column
        self.eager = Subject(module, column.baselines, inputs, buffers)
        self.draws = draws(self.eager)
        self.drawn = drawn_by(self.eager) if self.draws else None
        self.strict = self._exact(torch.float32)

    def _exact(self, dtype: torch.dtype) -> Subject:
        own = self.eager
        device = next((each.device.type for each in own.inputs if isinstance(each, torch.Tensor)), "cpu")
        given = [_cast(each, dtype, device) for each in own.inputs]
        buffers = {name: _cast(each, dtype, device) for name, each in own.buffers.items()}
        return Subject(duplicate(own.module).to(dtype), (False, False), given, buffers, taken=self.drawn)

    def errors(self, everyone: dict[str, Subject]) -> dict[str, Any]:
        """Relative L2 errors of outputs and gradients, and whether the written module's are small enough."""
        values, cotangents, why = self._values(self.strict, None)
        found: dict[str, Any] = {"shapes": [list(each.shape) for each in values["outputs"]]}
        if why:
            found["no_backward"] = why
        contestants = {**everyone, "eager": self.eager}
        if self.column.bits is not None:
            contestants["rounded"] = replace(self.strict, bits=self.column.bits)
        found |= self._compared(contestants, values, cotangents)
        if not found["right"] and "gradients" in values and "float64" in found["against"]:
            near = self._near_kinks()
            kept = [torch.where(mask, 0, each) for mask, each in zip(near, cotangents, strict=True)]
            values, _, _ = self._values(self.strict, kept)
            found |= {**self._compared(contestants, values, kept), "near_kinks": sum(int(each.sum()) for each in near)}
        return found

    def _compared(self, contestants: dict[str, Subject], values: dict[str, Any], cotangents: Any) -> dict[str, Any]:
        """The same, with strict float32's values for the cotangents."""
        truths, found = {"float32": values}, dict[str, Any]()
        if not self.draws or self.drawn is not None:
            with contextlib.suppress(torch.OutOfMemoryError, RuntimeError):
                truths["float64"], _, _ = self._values(self._exact(torch.float64), cotangents)
        try:
            each = {name: self._of(one, cotangents, truths) for name, one in contestants.items()}
        except torch.OutOfMemoryError:
            truths.pop("float64", None)  # the room that it takes is asked for
            torch.cuda.empty_cache()
            each = {name: self._of(one, cotangents, truths) for name, one in contestants.items()}
        found |= {"against": [*truths], **each}
        found["noise"] = noise(truths)
        found["right"] = is_right(found, self.column.least)
        return found

    def _near_kinks(self) -> list[torch.Tensor]:
        """Where nothing is to be pulled back, as gradients jump within reach of roundings, by the judge's way to find
        that; nowhere in an output where that is more than a few."""
        subject = self._exact(torch.float64)
        given = [each for each in subject.inputs if isinstance(each, torch.Tensor) and each.is_floating_point()]
        moved = [*(each.data for each in subject.module.parameters()), *given]
        whole = [each.detach().clone() for each in moved]

        def outputs(by: float, direction: int) -> list[torch.Tensor]:
            generator = torch.Generator(whole[0].device).manual_seed(direction)
            subject.restore()
            with torch.no_grad():
                for each, value in zip(moved, whole, strict=True):
                    shift = torch.rand(value.shape, generator=generator, dtype=value.dtype, device=value.device) * 2 - 1
                    each.copy_(value * (1 + by * shift))
            return tensors(subject.forward())

        found = near_kinks(outputs, reach_of(self.column.bits or 23))
        return [mask & (mask.sum() <= MOST * mask.numel()) for mask in found]

    def _of(self, subject: Subject, cotangents: Any, truths: dict[str, Any]) -> dict[str, Any]:
        strict = truths["float32"]["outputs"]
        try:
            values, _, why = self._values(subject, cotangents)
        except torch.OutOfMemoryError:
            if "float64" in truths:
                raise
            return {"failed": "out of memory"}
        except Exception as error:  # noqa: BLE001 - a contestant that fails is a result
            return {"failed": f"{type(error).__name__}: {str(error)[-500:]}"}
        found: dict[str, Any] = {}
        for word, truth in truths.items():
            for part in ("outputs", "gradients"):
                if part in truth and part in values:
                    found[f"{word}_{part}_error"] = apart(values[part], truth[part])
        found["gradients_missing"] = missing(values, truths["float32"])
        found |= {"no_backward": why} if why else {}
        for tolerance in (1e-4, 1e-2):  # the benchmark's own rule, of float32 and of half types
            pairs = zip(values["outputs"], strict, strict=True)
            close = all(torch.allclose(a.float(), b.float(), rtol=tolerance, atol=tolerance) for a, b in pairs)
            found[f"allclose_{tolerance:g}"] = close
        return found

    def _values(self, subject: Subject, cotangents: Any) -> tuple[dict[str, Any], Any, str]:
        """Outputs and gradients, the cotangents that these are of, and why there are no gradients."""
        subject.restore()
        values: dict[str, Any] = {"outputs": tensors(subject.forward())}
        if cotangents is None:
            cotangents = drawn([each.shape for each in values["outputs"]], values["outputs"][0].device)
        subject.restore()
        try:
            given = [c.to(o.dtype) for c, o in zip(cotangents, values["outputs"], strict=True)]
            values["gradients"], why = subject.both(given), ""
        except torch.OutOfMemoryError:
            why = "out of memory"
        torch.cuda.empty_cache()
        return values, cotangents, why


def draws(subject: Subject) -> bool:
    """Whether its forward draws random numbers."""
    subject.restore()
    subject.forward()
    return generators_moved(SEED)


def drawn_by(subject: Subject) -> list[torch.Tensor] | None:
    """What its forward draws; None where that is not to be had."""
    subject.restore()
    with KeepingDraws() as recording:
        subject.forward()
    return recording.kept if recording.knows_all else None


def noise(truths: dict[str, Any]) -> list[str]:
    """Which of outputs and gradients are 0 but for roundings: strict float32 and float64 have nothing in common, by the
    norm of either, which may be 0."""
    if "float64" not in truths:
        return []
    parts = [part for part in ("outputs", "gradients") if all(part in truth for truth in truths.values())]
    pairs = {part: (truths["float32"][part], truths["float64"][part]) for part in parts}
    return [part for part, (one, other) in pairs.items() if max(apart(one, other), apart(other, one)) > 0.1]


def missing(values: dict[str, Any], truth: dict[str, Any]) -> int:
    """Leaves that take a gradient, if one of nothing but roundings, and have none here: an error cannot tell, since a
    gradient that is 0 is no less where it lacks."""
    wanted = truth.get("gradients", [])
    found = values.get("gradients", [None] * len(wanted))  # none at all where memory was short
    return sum(other is not None and one is None for one, other in zip(found, wanted, strict=True))


def is_right(found: dict[str, Any], least: float) -> bool:
    """Whether the written module has every gradient, and its errors are at most five times eager's, twice rounded
    operands', or as small as `least`; of what is noise, by the benchmark's own rule. Strict float32 is itself as far
    from the truth as eager is from float64."""
    own = found["written"]
    if "failed" in own or own["gradients_missing"]:
        return False
    errors = {key: own[key] for key in own if key.endswith("_error") and key.split("_")[1] not in found["noise"]}
    small = all(error <= max(allowed(found, key), least) for key, error in errors.items())
    return small and ("outputs" not in found["noise"] or bool(own["allclose_0.0001"]))


def allowed(found: dict[str, Any], error: str) -> float:
    """By those whose roundings are others."""
    times = ((5.0, found["eager"]), (2.0, found.get("rounded", {})))
    keys = (error, error.replace("float32", "float64"))
    return max(factor * each.get(key, 0.0) for factor, each in times for key in keys)


def drawn(shapes: Sequence[Sequence[int]], device: Any) -> list[torch.Tensor]:
    generator = torch.Generator(device).manual_seed(1)
    return [torch.randn(tuple(shape), generator=generator, device=device) for shape in shapes]


def race(everyone: dict[str, Subject], covers: str, seconds: float, shapes: Any) -> dict[str, Any]:
    """Median milliseconds of each, and the written module's speed-ups with their intervals. A baseline that fails is
    left out, and said; raises what the written module does."""
    kind = hardware.find_device().kind
    take, runners, failed = sampler(torch.device(kind)), [], {}
    for name, subject in everyone.items():
        step = steps(subject, covers, shapes, kind)
        try:
            step()
        except Exception as error:
            if name == "written":
                raise
            failed[name] = f"{type(error).__name__}: {str(error)[-300:]}"
            continue
        runners.append(Runner(name, step, take))
    pace = replace(GPU_PACE, samples=(2, 20)).within(seconds) if kind == "cuda" else replace(CPU_PACE, rounds=(2, 2))
    turns = Race(runners, pace, random.Random(0))
    turns.run()
    record, findings = measured("written", turns.turns, device=kind, covers=covers, how="as called")
    medians = {name: statistics.median(s for t in each for s in t.device_ms) for name, each in turns.turns.items()}
    speedups = {s.baseline: {"ratio": s.ratio, "interval": s.interval} for s in record.speedups}
    doubts = [f"{f.claim}: {f.evidence}" for f in findings]
    return {"median_ms": medians, "over": speedups, "doubts": doubts, "failed": failed}


def steps(subject: Subject, covers: str, shapes: Any, kind: str) -> Callable[[], Any]:
    subject.restore()
    if covers == "forward":
        return subject.forward
    dtype = next((each.dtype for each in subject.wanted), torch.float32)
    cotangents = [each.to(dtype) for each in drawn(shapes, kind)]
    return lambda: subject.both(cotangents)


if __name__ == "__main__":
    main()
