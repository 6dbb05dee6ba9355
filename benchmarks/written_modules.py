"""Writes the fused module of each file in tests/modules and of the three tasks, checks it, and times it against
eager and torch.compile, forward and forward+backward; one JSON file.

    python benchmarks/written_modules.py FILE [--only WORD,WORD] [--scale full] [--minutes 9] [--processes 12]
        [--contract fp32] [--dtype bfloat16]
    python benchmarks/written_modules.py FILE --markdown      the table of a file that was written before

Extensions are built and torch.compile's caches filled first, side by side; then everybody takes turns in one process,
by the judge's own race, clock and intervals. A module counts only after its outputs and gradients were held against
float64. What FILE holds already is left as it is, so that a run cut short goes on. Without a GPU kernels run on the
emulator: a dry run, whose times mean nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import multiprocessing
import random
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from resuming import held

from crucible import fusing, hardware, tf32
from crucible.copies import duplicate
from crucible.errors import MisuseError
from crucible.judge.oracle.noise import RoundedOperands
from crucible.judge.oracle.reference import Reference
from crucible.judge.timing.race import CPU_PACE, GPU_PACE, Race, measured
from crucible.judge.worker.clock import sampler
from crucible.task import Task
from crucible.tuning.bench import Runner
from crucible.work import count

ROOT = Path(__file__).parents[1]
COVERS = ("forward", "forward+backward")
ONE_THREAD = "forward+backward in one thread"
"""Of the three tasks besides: autograd computes in the thread that calls it, for everybody
(`torch.autograd.set_multithreading_enabled(False)`). By itself it wakes a thread of its own for each GPU."""
PACE = GPU_PACE.within(1.5)
"""Forty modules' races in a tenth of an hour; ratios are known to about 1 %."""
TOLERANCE = {torch.float32: 2e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Of the largest value, beside four times the error that eager has with operands rounded as TF32's are: cuDNN takes
TF32 for some products and not for others, the written module for all."""
FLOAT32 = 2e-5
"""The same for a float32 module that nobody rounds more than float32 does."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--scale", default="full")
    parser.add_argument("--contract", choices=("tf32", "fp32"), default="tf32")
    parser.add_argument("--dtype", choices=("float32", "float16", "bfloat16"), default="float32")
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()
    if args.markdown:
        print(markdown(json.loads(args.file.read_text())))
    else:
        record(args)


def record(args: argparse.Namespace) -> None:
    """Builds, checks, times and writes, after each module."""
    deadline = time.monotonic() + args.minutes * 60
    device = hardware.find_device()
    setting = Setting(args.scale, args.contract, args.dtype)
    record = {"device": device.name, "driver": device.driver, "versions": hardware.versions(), **asdict(setting)}
    known = held(args.file, record, "modules") or {}
    words = args.only.split(",")
    asked = [file for file in module_files() if any(word in name_of(file) for word in words)]
    files = [file for file in asked if name_of(file) not in known]
    for file, failed in built(files, setting, args).items():
        if time.monotonic() > deadline:
            break
        known[name_of(file)] = {"refused": failed} if failed else one(file, setting)
        print(name_of(file), summary(known[name_of(file)]), flush=True)
        args.file.write_text(json.dumps({**record, "modules": known}, indent=1) + "\n")


def built(files: list[Path], setting: Setting, args: argparse.Namespace) -> dict[Path, str]:
    """Builds side by side, before anything is timed: words for each that is ready after half of the time, empty unless
    it was refused. What is not ready is left to the next call."""
    start = time.monotonic()
    pool = ProcessPoolExecutor(args.processes, multiprocessing.get_context("spawn"))
    jobs = {pool.submit(build, file, setting): file for file in files}
    ready: dict[Path, str] = {}
    try:
        for job in as_completed(jobs, None if math.isinf(args.minutes) else args.minutes * 30):
            ready[jobs[job]] = job.result()
            print(f"{time.monotonic() - start:.0f} s: {name_of(jobs[job])} is built", flush=True)
    except TimeoutError:
        print(f"not built: {', '.join(name_of(file) for file in files if file not in ready)}", flush=True)
        for process in pool._processes.values():  # there is no public way before Python 3.14
            process.kill()
    pool.shutdown(wait=False, cancel_futures=True)
    return {file: ready[file] for file in files if file in ready}


def module_files() -> list[Path]:
    return [*sorted((ROOT / "tasks").glob("*/reference.py")), *sorted((ROOT / "tests/modules").glob("*.py"))]


def name_of(file: Path) -> str:
    return file.parent.name if file.name == "reference.py" else file.stem


@dataclass(frozen=True)
class Setting:
    """How modules are written and run, the baselines too."""

    scale: str
    contract: str
    """fp32: nobody rounds a convolution's operands to TF32."""
    dtype: str
    """What modules and inputs are turned into, unless it is float32."""

    def within(self, dtypes: set[torch.dtype]) -> float:
        """What is allowed beside what rounded operands cost eager, of the largest value."""
        if self.contract == "fp32" and dtypes <= {torch.float32}:
            return FLOAT32
        return max(TOLERANCE.get(each, 0.0) for each in dtypes)


USUAL = Setting("full", "tf32", "float32")


@dataclass(frozen=True)
class Subject:
    """A module with its inputs, where it is timed."""

    module: torch.nn.Module
    inputs: list[Any]

    def to(self, dtype: torch.dtype) -> Subject:
        """All that is floating in another type."""
        return Subject(duplicate(self.module).to(dtype), [_as(each, dtype) for each in self.inputs])


def loaded(file: Path, setting: Setting) -> Subject:
    torch.backends.cudnn.allow_tf32 = setting.contract != "fp32"
    task = Task.load(file).at(scale=setting.scale, training=True, mode="train", small_by_default=False)
    place = torch.device(hardware.find_device().kind)
    reference = Reference(task.source, str(file), task.sizes, mode="train", seed=0, device=place)
    given = [each.to(place) if isinstance(each, torch.Tensor) else each for each in reference.inputs(0)]
    subject, dtype = Subject(reference.model, given), getattr(torch, setting.dtype)
    return subject if dtype == torch.float32 else subject.to(dtype)


def fused(subject: Subject) -> torch.nn.Module:
    emulate = not torch.cuda.is_available()
    return fusing.fuse(subject.module, *subject.inputs, emulate=emulate)


def build(file: Path, setting: Setting) -> str:
    """Compiles a module's kernels and what torch.compile makes of it; words when it is refused."""
    subject = loaded(file, setting)
    try:
        fused(subject)
    except MisuseError as error:
        return str(error)
    compiled = Subject(torch.compile(subject.module), subject.inputs)
    for covers in COVERS:
        step(compiled, covers)()
    return ""


def one(file: Path, setting: Setting) -> dict[str, Any]:
    """One module, checked and timed."""
    torch.manual_seed(0)
    subject = loaded(file, setting)
    ours = Subject(fused(subject), subject.inputs)
    wrong = check(subject, ours, setting)
    if wrong:
        return {"wrong": wrong}
    compiled = Subject(torch.compile(subject.module), subject.inputs)
    everyone = {"written": ours, "eager": subject, "compile": compiled}
    found: dict[str, Any] = {}
    for covers in COVERS:
        found[covers] = race({name: step(each, covers) for name, each in everyone.items()}, covers)
    if file.name == "reference.py":
        alone = {name: in_one_thread(step(each, COVERS[1])) for name, each in everyone.items()}
        found[ONE_THREAD] = race(alone, COVERS[1])
    return found | {"bytes_moved": work(subject), "kernels_ms": {each: kernels(step(ours, each)) for each in COVERS}}


def work(subject: Subject) -> dict[str, int]:
    """Bytes that forward, and forward+backward, must move at least."""
    meta = Subject(duplicate(subject.module).to("meta"), [_to_meta(each) for each in subject.inputs])
    sources = [*(t for t in meta.inputs if isinstance(t, torch.Tensor)), *meta.module.parameters()]
    done = count(lambda: leaves(meta.module(*meta.inputs)), sources)
    return {each.covers: each.bytes_moved for each in done}


def _to_meta(given: Any) -> Any:
    return given.to("meta") if isinstance(given, torch.Tensor) else given


# right


def check(subject: Subject, ours: Subject, setting: Setting = USUAL) -> str:
    """Words for the first output or gradient that is too far from float64; empty when none is."""
    exact, found = (values(each) for each in (subject.to(torch.float64), ours))
    with tf32.allowed(False, False), contextlib.ExitStack() as stack:
        if setting.contract != "fp32":
            stack.enter_context(RoundedOperands(10))
        rounded = values(subject)
    tensors = [t for t in (*subject.inputs, *subject.module.parameters()) if isinstance(t, torch.Tensor)]
    allowed = setting.within({t.dtype for t in tensors if t.is_floating_point()})
    for name in found:
        error, theirs = (float((each[name].double() - exact[name]).abs().max()) for each in (found, rounded))
        if not error <= allowed * float(exact[name].abs().max()) + 4 * theirs:
            return f"{name}: off by {error:.3g}, eager in TF32 by {theirs:.3g}"
    return ""


def values(subject: Subject) -> dict[str, torch.Tensor]:
    """Outputs and gradients by name."""
    given = [_leaf(each) for each in subject.inputs]
    outputs = leaves(subject.module(*given))
    place = outputs[0].device
    generator = torch.Generator(place).manual_seed(1)
    cotangents = [torch.randn(o.shape, generator=generator, device=place).to(o.dtype) for o in outputs]
    wanted = {f"input {i}": t for i, t in enumerate(given) if getattr(t, "requires_grad", False)}
    wanted |= {name: p for name, p in subject.module.named_parameters() if p.requires_grad}
    gradients = torch.autograd.grad(outputs, list(wanted.values()), cotangents)
    found = {f"output {i}": each.detach() for i, each in enumerate(outputs)}
    return found | dict(zip(wanted, gradients, strict=True))


def leaves(outputs: Any) -> list[torch.Tensor]:
    if isinstance(outputs, torch.Tensor):
        return [outputs]
    return [leaf for item in (outputs.values() if isinstance(outputs, dict) else outputs) for leaf in leaves(item)]


def _as(given: Any, dtype: torch.dtype) -> Any:
    floating = isinstance(given, torch.Tensor) and given.is_floating_point()
    return given.to(dtype) if floating else given


def _leaf(given: Any) -> Any:
    floating = isinstance(given, torch.Tensor) and given.is_floating_point()
    return given.detach().clone().requires_grad_() if floating else given


# fast


def step(subject: Subject, covers: str) -> Callable[[], Any]:
    """One call of what is timed."""
    if covers == "forward":

        def forward() -> Any:
            with torch.no_grad():
                return subject.module(*subject.inputs)

        return forward
    given = [_leaf(each) for each in subject.inputs]
    wanted = [t for t in given if getattr(t, "requires_grad", False)]
    wanted += [p for p in subject.module.parameters() if p.requires_grad]
    cotangents = [torch.randn_like(each) for each in leaves(subject.module(*given))]

    def both() -> Any:
        return torch.autograd.grad(leaves(subject.module(*given)), wanted, cotangents)

    return both


def in_one_thread(call: Callable[[], Any]) -> Callable[[], Any]:
    """The same without autograd's own threads."""

    def called() -> Any:
        with torch.autograd.set_multithreading_enabled(False):
            return call()

    return called


def race(steps: dict[str, Callable[[], Any]], covers: str) -> dict[str, Any]:
    """Median milliseconds of each, and the written module's speed-ups with their intervals."""
    kind = hardware.find_device().kind
    take = sampler(torch.device(kind))
    pace = PACE if kind == "cuda" else replace(CPU_PACE, rounds=(2, 2))
    runners = Race([Runner(name, call, take) for name, call in steps.items()], pace, random.Random(0))
    runners.run()
    record, findings = measured("written", runners.turns, device=kind, covers=covers, how="as called")
    medians = {
        name: sorted(s for t in turns for s in t.device_ms)[sum(len(t.device_ms) for t in turns) // 2]
        for name, turns in runners.turns.items()
    }
    speedups = {s.baseline: {"ratio": s.ratio, "interval": s.interval} for s in record.speedups}
    return {"median_ms": medians, "over": speedups, "doubts": [f"{f.claim}: {f.evidence}" for f in findings]}


def kernels(call: Callable[[], Any]) -> dict[str, float]:
    """Milliseconds of each kernel of one call, the L2 cache as the kernel before left it: where the time goes, not how
    much. Nothing without a GPU."""
    if not torch.cuda.is_available():
        return {}
    call()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    return {each.key: round(each.device_time_total / 1e3, 5) for each in profile.key_averages()}


# told


def summary(found: dict[str, Any]) -> str:
    if "refused" in found or "wrong" in found:
        return json.dumps(found)
    ratios = (f"{found[covers]['over']['compile']['ratio']:.3f}" for covers in COVERS)
    return f"over compile: {', '.join(ratios)}"


def markdown(record: dict[str, Any]) -> str:
    """A table: milliseconds, and the speed-up over torch.compile with its interval."""
    lines = ["| module | forward (ms) | over compile | forward+backward (ms) | over compile |", "|---|---|---|---|---|"]
    ratios: dict[str, list[float]] = {covers: [] for covers in COVERS}
    for name, found in sorted(record["modules"].items()):
        if "refused" in found or "wrong" in found:
            lines.append(f"| {name} | {found.get('refused') or found['wrong']} | | | |")
            continue
        cells = []
        for covers in COVERS:
            over = found[covers]["over"]["compile"]
            ratios[covers].append(over["ratio"])
            low, high = over["interval"]
            cells += [f"{found[covers]['median_ms']['written']:.3g}", f"{over['ratio']:.3g} [{low:.3g}, {high:.3g}]"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    means = [math.exp(sum(map(math.log, each)) / len(each)) if each else math.nan for each in ratios.values()]
    lines.append(f"| geometric mean | | {means[0]:.3g} | | {means[1]:.3g} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
