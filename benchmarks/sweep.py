"""Convolution -> bias -> relu at many shapes, and linear layers: written modules against torch.compile and eager; one
JSON file.

    python benchmarks/sweep.py FILE [--only WORD] [--minutes 9] [--processes 12] [--rivals eager,compile]
    python benchmarks/sweep.py FILE --markdown      the report of a file that was written before

72 shapes: each of nine channel counts with each kernel size, 2-d and 3-d, the strides dealt so that each meets each
channel count and kernel size; sizes are odd. Behind them further ones: in one dim, of groups, depthwise, linear.
Everybody may use TF32. Modules are built and torch.compile's caches filled side by side, for half of the time at most;
then one at a time is held against float64, outputs and gradients, and raced. What FILE holds already is left as it is:
a run cut short goes on, and behind a module that never came back. The report also says where the plan keeps PyTorch's.
Without a GPU kernels run on the emulator: use --scale small; times then mean nothing. `benchmarks/convolutions.py
--sweep` times the kernels alone, also where the plan keeps PyTorch's.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import math
import multiprocessing
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from resuming import held
from torch import nn
from written_modules import COVERS, Subject, check, fused, kernels, race, step

from crucible import hardware, store
from crucible.capture import trace
from crucible.errors import MisuseError
from crucible.gpus import H200, closest_gpu
from crucible.plan.planner import fuse as plan
from crucible.plan.steps import Call

CHANNELS = (1, 3, 8, 16, 24, 32, 64, 128, 256)
KERNELS = (1, 3, 5, 7)
STRIDES = (1, 2, 3)
SIZES = {
    "full": {0: (16, (3477,)), 1: (16, (3477,)), 2: (16, (57, 61)), 3: (4, (15, 29, 31))},
    "small": {0: (2, (19,)), 1: (2, (19,)), 2: (2, (7, 9)), 3: (2, (3, 5, 9))},
}
"""Of the batch, and of the input along each spatial dim; of linear layers (rank 0) the dims before the features."""
SMALL_CHANNELS = 16
"""At most, of a dry run."""
LAYERS = ("conv", "linear")
RIVALS = ("eager", "compile")
HANG_S = 120
"""Of a module on a GPU, check and both races: they take ten seconds."""


@dataclass(frozen=True)
class Shape:
    """A convolution with as many channels out as in, padded so that outputs lie around every input."""

    rank: int
    """Of space; 0 is a linear layer."""
    channels: int
    kernel: int = 1
    stride: int = 1
    groups: int = 1

    @property
    def name(self) -> str:
        if not self.rank:
            return f"linear, {self.channels} features"
        words = "depthwise" if self.groups == self.channels else f"{self.groups} groups"
        more = f", {words}" if self.groups > 1 else ""
        return f"{self.rank}d, {self.channels} channels, k{self.kernel}, s{self.stride}{more}"

    def at(self, scale: str) -> Shape:
        """Fewer channels for a dry run."""
        if scale == "full" or self.channels <= SMALL_CHANNELS:
            return self
        groups = SMALL_CHANNELS if self.groups == self.channels else min(self.groups, 4)
        return replace(self, channels=SMALL_CHANNELS, groups=groups)

    def layer(self) -> nn.Module:
        """With parameters of its own."""
        if not self.rank:
            return nn.Linear(self.channels, self.channels)
        make = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[self.rank]
        padding = self.kernel // 2
        return make(self.channels, self.channels, self.kernel, self.stride, padding, groups=self.groups)


SHAPES = [
    Shape(rank, channels, kernel, STRIDES[(i + j) % len(STRIDES)])
    for rank in (2, 3)
    for i, channels in enumerate(CHANNELS)
    for j, kernel in enumerate(KERNELS)
]
FURTHER = [
    *(Shape(1, *each) for each in ((3, 7, 2), (16, 3, 1), (16, 7, 2), (64, 1, 1), (64, 3, 1), (64, 5, 2), (128, 3, 1))),
    *(
        Shape(2, *each)
        for each in ((32, 3, 1, 4), (64, 3, 1, 16), (64, 3, 1, 2), (64, 3, 2, 8), (256, 3, 1, 32), (256, 3, 2, 4))
    ),
    *(Shape(3, *each) for each in ((64, 3, 1, 8), (64, 3, 2, 2))),
    Shape(1, 64, 5, groups=64),
    *(Shape(2, *each) for each in ((16, 7, 1, 16), (32, 3, 1, 32), (64, 5, 2, 64), (96, 7, 1, 96), (256, 3, 1, 256))),
    *(Shape(3, *each) for each in ((32, 3, 1, 32), (64, 5, 1, 64))),
    *(Shape(0, features) for features in (8, 16, 32, 64, 128)),
]
"""In one dim, of groups, depthwise, linear."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--scale", choices=tuple(SIZES), default="full")
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--rivals", default=",".join(RIVALS))
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()
    if args.markdown:
        print(markdown(json.loads(args.file.read_text())))
    else:
        record(args)


def record(args: argparse.Namespace) -> None:
    """Builds side by side, then checks and times, and writes after each."""
    allow_tf32()
    deadline = time.monotonic() + args.minutes * 60
    device = hardware.find_device()
    record = {"device": device.name, "driver": device.driver, "versions": hardware.versions(), "scale": args.scale}
    known = held(args.file, record, "shapes") or {}
    rivals = tuple(name for name in args.rivals.split(",") if name)
    wanted = [shape for shape in (*SHAPES, *FURTHER) if args.only in shape.name and shape.name not in known]

    def save(shape: Shape, found: dict[str, Any]) -> None:
        known[shape.name] = found
        store.write_text(args.file, json.dumps({**record, "shapes": known}, indent=1) + "\n")

    for shape in built(wanted, args.scale, rivals, args.minutes * 30, args.processes):
        if time.monotonic() > deadline:
            break
        save(shape, {"failed": "it never came back"})
        if device.kind == "cuda":
            faulthandler.dump_traceback_later(HANG_S, exit=True)
        save(shape, one(shape, args.scale, rivals))
        faulthandler.cancel_dump_traceback_later()
        print(shape.name, summary(known[shape.name]), flush=True)


def allow_tf32() -> None:
    """In linear layers, as PyTorch does in convolutions by itself."""
    torch.backends.cuda.matmul.allow_tf32 = True


def built(
    shapes: Sequence[Shape], scale: str, rivals: Sequence[str], seconds: float, processes: int
) -> Iterator[Shape]:
    """Builds all before anything is timed; those that are ready when the time is over."""
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"))
    jobs = {pool.submit(build, shape, scale, rivals): shape for shape in shapes}
    ready = set[Shape]()
    try:
        for job in as_completed(jobs, None if math.isinf(seconds) else seconds):
            job.result()
            ready.add(jobs[job])
    except TimeoutError:
        print(f"{len(shapes) - len(ready)} shapes are not built: call again", flush=True)
        for process in pool._processes.values():  # there is no public way before Python 3.14
            process.kill()
    pool.shutdown(wait=False, cancel_futures=True)
    yield from (shape for shape in shapes if shape in ready)


def build(shape: Shape, scale: str, rivals: Sequence[str]) -> None:
    """Fills the caches that a later process loads from. What is refused is told there."""
    allow_tf32()
    subject = loaded(shape, scale)
    try:
        fused(subject)
    except (MisuseError, RuntimeError):
        return
    if "compile" in rivals:
        compiled = Subject(torch.compile(subject.module), subject.inputs)
        for covers in COVERS:
            step(compiled, covers)()


def loaded(shape: Shape, scale: str) -> Subject:
    """The module with its input, the same each time."""
    torch.manual_seed(0)
    place = hardware.find_device().kind
    batch, size = SIZES[scale][shape.rank]
    shape = shape.at(scale)
    module = nn.Sequential(shape.layer(), nn.ReLU()).to(place)
    extents = (batch, shape.channels, *size) if shape.rank else (batch, *size, shape.channels)
    return Subject(module, [torch.randn(extents, device=place, requires_grad=True)])


def one(shape: Shape, scale: str, rivals: Sequence[str]) -> dict[str, Any]:
    """One shape, checked and timed; words where it is refused, does not build or is wrong."""
    subject = loaded(shape, scale)
    torch._dynamo.reset()
    try:
        ours = Subject(fused(subject), subject.inputs)
    except (MisuseError, RuntimeError) as error:
        return {"failed": str(error)[-1500:]}
    wrong = check(subject, ours)
    found: dict[str, Any] = {"kept": kept(subject), **({"wrong": wrong} if wrong else {})}
    if wrong:
        return found
    everyone = {"written": ours, **({"eager": subject} if "eager" in rivals else {})}
    if "compile" in rivals:
        everyone["compile"] = Subject(torch.compile(subject.module), subject.inputs)
    for covers in COVERS:
        found[covers] = race({name: step(each, covers) for name, each in everyone.items()}, covers)
    return found | {"kernels_ms": {covers: kernels(step(ours, covers)) for covers in COVERS}}


def kept(subject: Subject) -> str:
    """Why the plan leaves the convolution to PyTorch; empty where kernels of ours compute it."""
    gpu = closest_gpu(torch.cuda.get_device_name()) if torch.cuda.is_available() else H200
    planned = plan(trace(subject.module, subject.inputs), tf32=torch.backends.cudnn.allow_tf32, gpu=gpu)
    layers = (each for each in planned.steps if isinstance(each, Call) and each.operation.kind.startswith(LAYERS))
    return next((each.why or "it is not fused" for each in layers), "")


# told


def summary(found: Mapping[str, Any]) -> str:
    if "failed" in found or "wrong" in found:
        return json.dumps(found)
    ratios = (
        f"{name} {found[covers]['over'][name]['ratio']:.3f}" for covers in COVERS for name in found[covers]["over"]
    )
    return f"{'PyTorch convolves' if found['kept'] else 'ours'}: {', '.join(ratios)}"


def markdown(record: Mapping[str, Any]) -> str:
    """A table: milliseconds, and the speed-up over torch.compile with its interval; then what it comes to."""
    lines = [
        "| shape | convolution | forward (ms) | over compile | forward+backward (ms) | over compile |",
        "|---|---|---|---|---|---|",
    ]
    for name, found in record["shapes"].items():
        if "failed" in found or "wrong" in found:
            word = "failed" if "failed" in found else "WRONG"
            lines.append(f"| {name} | {word}: {found.get('failed') or found['wrong']} | | | | |")
            continue
        cells = ["PyTorch" if found["kept"] else "ours"]
        for covers in COVERS:
            over = found[covers]["over"].get("compile")
            cells.append(f"{found[covers]['median_ms']['written']:.3g}")
            cells.append(f"{over['ratio']:.3g} [{over['interval'][0]:.3g}, {over['interval'][1]:.3g}]" if over else "")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *told(record["shapes"])])


def told(shapes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What is wrong or failed, how many are faster than torch.compile by who convolves, and why PyTorch does."""
    count = {word: sum(word in found for found in shapes.values()) for word in ("wrong", "failed")}
    lines = [f"{len(shapes)} of {len(SHAPES) + len(FURTHER)} shapes; {count['wrong']} wrong, {count['failed']} failed."]
    right = [found for found in shapes.values() if "kept" in found and "wrong" not in found]
    for who, ours in (("Ours", True), ("PyTorch's", False)):
        some = [found for found in right if (not found["kept"]) == ours]
        for covers in COVERS:
            ratios = [f[covers]["over"]["compile"]["ratio"] for f in some if "compile" in f[covers]["over"]]
            if ratios:
                mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
                slower = sum(ratio < 1 for ratio in ratios)
                lines.append(
                    f"{who} convolution, {covers}: {len(ratios)} shapes, geometric mean {mean:.2f} over torch.compile,"
                    f" {slower} slower."
                )
    for why in dict.fromkeys(found["kept"] for found in right if found["kept"]):
        names = [name for name, found in shapes.items() if found.get("kept") == why]
        lines.append(f"PyTorch's is kept, as kernels of ours are not known to be faster ({why}): {'; '.join(names)}.")
    return lines


if __name__ == "__main__":
    main()
