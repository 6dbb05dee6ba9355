"""Measures a GPU's record of costs (`src/crucible/schedule/machine.py`), and prints it beside the one in force.

    python benchmarks/costs.py [--file FILE] [--ways 1]        a Hopper GPU and nvcc
    python benchmarks/costs.py --dry [--plant streams.round_clocks=2]     anywhere: no kernel runs

A field is measured in one of three ways. **directly**: a kernel of `costs.cu`, a copy or a product that takes nothing
else. **fitted**: kernels of all kinds are timed (cold L2, in turns, medians), and a field is what brings the model
nearest to them, all others as directly measured or as in force; the range is where the error (mean of |log(estimate /
time)|) is within 0.005 of the least. **races**: where one way of a plan beats another, which takes whole layers:
`sweep.py` and others as the field says. A field that no timed kernel depends on is "not seen", and keeps its value.

Dry, the model's own times stand for the GPU's: each field must be found where it stands, or where `--plant` moved it.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from costs_directly import checked, compiled, direct, launch, times
from torch import nn

from crucible import hardware
from crucible.algebra.product import Product
from crucible.algebra.program import Operand
from crucible.capture import trace
from crucible.emission.extension import device
from crucible.gpus import H200, Gpu, closest_gpu
from crucible.kinds.convolution import ways
from crucible.kinds.product.lower import lower_product
from crucible.plan.planner import fuse
from crucible.plan.steps import Plan
from crucible.print.written import Kernel, Lowered
from crucible.schedule import cost
from crucible.schedule.convolution.questions import Multiplying, Question, Way
from crucible.schedule.convolution.warpgroup.phases import PhaseWalks, issued_by
from crucible.schedule.convolution.warpgroup.pooled import PooledWalks, work_of
from crucible.schedule.machine import Machine, machine_of
from crucible.schedule.product import divided
from crucible.tuning.expected import operands, results
from crucible.tuning.search import questions

COARSE, FINE = [2 ** (k / 4) for k in range(-8, 9)], [2 ** (k / 32) for k in range(-8, 9)]
NEAR, SEEN = 0.005, 0.01
"""Of the error: by how much the range's ends are worse than the best; that a field must change it by at all."""


class Sample(NamedTuple):
    """Kernels, their time by the model as a GPU's record has it, and by the clock."""

    name: str
    estimate: Callable[[Machine], float]
    ms: float


class Subject(NamedTuple):
    """What is timed."""

    name: str
    lowered: Lowered
    sizes: Mapping[str, tuple[int, str]]
    """Elements and dtype of its tensors."""
    estimate: Callable[[Machine], float]


class Found(NamedTuple):
    value: float
    low: float
    high: float
    how: str


# records


def parts(machine: Machine) -> Iterator[tuple[str, str, float]]:
    for part in fields(machine):
        held = getattr(machine, part.name)
        if is_dataclass(held):
            yield from ((part.name, field.name, getattr(held, field.name)) for field in fields(held))


def value_of(machine: Machine, path: str) -> float:
    part, field = path.split(".")
    return float(getattr(getattr(machine, part), field))


def changed(machine: Machine, path: str, value: float) -> Machine:
    part, field = path.split(".")
    return replace(machine, **{part: replace(getattr(machine, part), **{field: value})})


# what is timed


def modules() -> dict[str, tuple[nn.Module, torch.Tensor]]:
    """Each kind of division serves some of these, forward or in a gradient."""
    wide = nn.Sequential(nn.Conv3d(8, 64, 3), nn.LeakyReLU(0.2))
    transposed = nn.Sequential(nn.ConvTranspose3d(32, 64, 3, stride=2, padding=1, output_padding=1), nn.GELU())
    pooled = nn.Sequential(nn.ConvTranspose3d(32, 32, 3, stride=2, padding=1, output_padding=1), nn.MaxPool3d(2))
    strided = nn.Sequential(nn.Conv2d(64, 64, 3, stride=2, padding=1), nn.SiLU())
    dear = nn.Sequential(nn.Conv2d(32, 64, 3, padding=1), nn.CELU())
    return {
        "conv3d": (wide, torch.zeros(32, 8, 16, 64, 64)),
        "conv_transpose3d": (transposed, torch.zeros(8, 32, 16, 32, 32)),
        "conv_transpose3d_pool": (pooled, torch.zeros(16, 32, 16, 32, 32)),
        "conv2d_strided": (strided, torch.zeros(64, 64, 56, 56)),
        "conv2d_celu": (dear, torch.zeros(64, 32, 94, 94)),
    }


def subjects(gpu: Gpu, count: int) -> Iterator[Subject]:
    """So many divisions of each kind, of every question that the modules ask; products of matrices."""
    for name, plan in plans(gpu):
        for question in questions(plan):
            for number, way in enumerate(ways.ways(question, gpu, count)):
                yield convolved(f"{name} {question.name} {number}", question, way, gpu)
    yield from products(gpu)


def plans(gpu: Gpu) -> Iterator[tuple[str, Plan]]:
    """Of each module in TF32, and of one that keeps float32."""
    for name, (module, x) in modules().items():
        yield name, fuse(trace(module, [x.requires_grad_()]), gpu=gpu)
    module, x = modules()["conv2d_strided"]
    yield "conv2d_strided exact", fuse(trace(module, [x.requires_grad_()]), tf32=False, gpu=gpu)


def products(gpu: Gpu) -> Iterator[Subject]:
    """Those with lower words in bfloat16, and shorter ones."""
    for rows, depth, columns in ((1024, 4096, 4096), (2048, 1024, 1024), (960, 960, 960)):
        x, w = Operand("x", "float32", (0, depth, 1)), Operand("w", "float32", (0, depth, 1))
        product = Product("forward", 1, rows, columns, depth, x, w, "y", (rows * columns, columns))
        yield from (multiplied(each, gpu) for each in (product, product.gradient("x", "g"), product.gradient("w", "g")))


def convolved(name: str, question: Question, way: Way, gpu: Gpu) -> Subject:
    lowered = ways.lowered(question, way, gpu, "timed")
    types = {**operands(question), **results(question, lowered)}
    sizes = {name: (type_.elements, type_.dtype) for name, type_ in types.items()}

    def estimate(machine: Machine) -> float:
        return cost.milliseconds(machine, ways.clocks(question, with_costs(question, way, machine)), gpu.sms)

    return Subject(f"{name} {type(way).__name__}", lowered, sizes | made(lowered), estimate)


def with_costs(question: Question, way: Way, machine: Machine) -> Way:
    """The same division by other costs, those of its chain included; blocks stay dealt as the kernel was written."""
    if isinstance(way, PhaseWalks) and isinstance(question, Multiplying):
        found = replace(way, machine=machine, issued=issued_by(question.conv, machine))
        found.__dict__["dealt"] = way.dealt
        return found
    if isinstance(way, PooledWalks) and isinstance(question, Multiplying) and question.conv.pool:
        (_, element), _ = work_of(question.conv, question.conv.pool, machine)
        return replace(way, machine=machine, element=element)
    return replace(way, machine=machine)


def multiplied(product: Product, gpu: Gpu) -> Subject:
    division, lowered = divided(product, gpu), lower_product(product, gpu)
    flat = {product.left.name: product.left_shape, product.right.name: product.right_shape}
    sizes = {name: (math.prod(shape), "float32") for name, shape in flat.items()}
    sizes[product.result] = (product.batch * product.rows * product.columns, "float32")

    def estimate(machine: Machine) -> float:
        return cost.milliseconds(machine, replace(division, machine=machine).clocks, 1)  # of all multiprocessors

    return Subject(f"product {product.rows} x {product.depth} x {product.columns}", lowered, sizes | made(lowered),
                   estimate)  # fmt: skip


def made(lowered: Lowered) -> dict[str, tuple[int, str]]:
    return {each.name: (each.elements, each.dtype) for each in lowered.buffers}


# kernels on the GPU


def call_of(subject: Subject, library: ctypes.CDLL) -> Callable[[], None]:
    """Its kernels but those that order weights, which no estimate counts and which run once, here."""
    kernels = subject.lowered.kernels
    names = {name for kernel in kernels for name in (*kernel.reads, *kernel.writes)}
    tensors = {name: drawn(*subject.sizes[name]) for name in names}

    def run(some: Sequence[Kernel]) -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        for kernel in some:
            given = [tensors[name].data_ptr() for name in (*kernel.reads, *kernel.writes)]
            array = (ctypes.c_void_p * len(given))(*given)
            checked(getattr(library, f"launch_{kernel.name}")(array, stream), kernel.name)

    packs = [kernel for kernel in kernels if kernel.name.endswith("_pack")]
    run(packs)
    rest = [kernel for kernel in kernels if kernel not in packs]
    return lambda: run(rest)


def drawn(elements: int, dtype: str) -> torch.Tensor:
    type_ = getattr(torch, dtype)
    made = torch.randn if type_.is_floating_point else torch.zeros
    return made(elements, dtype=type_, device="cuda")


def timed(every: Sequence[Subject]) -> list[Sample]:
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(hardware.cores()) as pool:
        sources = [device(s.lowered.kernels, [launch(kernel) for kernel in s.lowered.kernels]) for s in every]
        names = [f"timed_{k}" for k in range(len(every))]
        libraries = list(pool.map(lambda each: compiled(Path(folder), *each), zip(names, sources, strict=True)))
        pairs = zip(every, libraries, strict=True)
        took = [times({s.name: call_of(s, library)})[s.name] for s, library in pairs]
    return [Sample(s.name, s.estimate, ms) for s, ms in zip(every, took, strict=True)]


# fitted


def fitted(samples: Sequence[Sample], machine: Machine, path: str) -> Found:
    """What brings the model nearest to the samples that depend on a field."""
    value = value_of(machine, path)
    ends = [changed(machine, path, value * factor) for factor in (COARSE[0], COARSE[-1])]
    own = [s for s in samples if len({s.estimate(each) for each in (machine, *ends)}) > 1]
    known: dict[float, float] = {}

    def error(factor: float) -> float:
        if factor not in known:
            given = changed(machine, path, value * factor)
            known[factor] = sum(abs(math.log(s.estimate(given) / s.ms)) for s in own) / len(own)
        return known[factor]

    def nearness(factor: float) -> tuple[float, float]:
        return round(error(factor), 6), abs(math.log(factor))  # of what fits alike, what is least moved

    if not own or max(map(error, (COARSE[0], COARSE[-1]))) - min(map(error, COARSE)) < SEEN:
        return Found(value, value, value, "not seen")
    near = min(COARSE, key=nearness)
    best = min((near * factor for factor in FINE), key=nearness)
    within = [factor for factor in known if known[factor] <= known[best] + NEAR]
    return Found(value * best, value * min(within), value * max(within), f"fitted to {len(own)} kernels")


def measured(samples: Sequence[Sample], given: Mapping[str, float], machine: Machine) -> dict[str, Found]:
    for path, value in given.items():
        machine = changed(machine, path, value)
    found = {}
    for part, field, value in parts(machine):
        path = f"{part}.{field}"
        if path in given:
            found[path] = Found(value, value, value, "directly")
        elif part == "choices":
            found[path] = Found(value, value, value, "races")
        else:
            found[path] = fitted(samples, machine, path)
    return found


def told(found: Mapping[str, Found], machine: Machine) -> str:
    lines = [f"{'':32} {'in force':>12} {'measured':>12} {'times':>7}  range"]
    for path, (value, low, high, how) in found.items():
        force = value_of(machine, path)
        lines.append(f"{path:32} {force:12.5g} {value:12.5g} {value / force:7.2f}  {low:.4g} to {high:.4g}, {how}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, help="JSON")
    parser.add_argument("--ways", type=int, default=1, help="of each kind, for each question")
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--plant", default="", help="PART.FIELD=FACTOR, dry")
    args = parser.parse_args()
    begin, here = time.perf_counter(), hardware.find_device("cpu" if args.dry else "cuda")
    gpu = H200 if args.dry else closest_gpu(here.name)
    machine = machine_of(gpu)
    every = list(subjects(gpu, args.ways))
    if args.dry:
        path, _, factor = args.plant.partition("=")
        planted = changed(machine, path, value_of(machine, path) * float(factor)) if path else machine
        samples, given = [Sample(s.name, s.estimate, s.estimate(planted)) for s in every], {}
    else:
        given, samples = direct(gpu.sms), timed(every)
    found = measured(samples, given, machine)
    print(told(found, machine))
    print(f"{len(samples)} kernels, {time.perf_counter() - begin:.0f} s", file=sys.stderr)
    if args.file:
        kernels = [{"kernel": s.name, "ms": s.ms, "estimate_ms": s.estimate(machine)} for s in samples]
        record = {"device": here.name, "driver": here.driver, "versions": hardware.versions(), "dry": args.dry,
                  "fields": {path: each._asdict() for path, each in found.items()}, "kernels": kernels}  # fmt: skip
        args.file.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
