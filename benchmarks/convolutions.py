"""Convolution kernels, forward and both gradients, against PyTorch's: one JSON file.

    python benchmarks/convolutions.py FILE [--only WORD] [--ways 4] [--minutes 9] [--processes 12]
    python benchmarks/convolutions.py FILE --sweep [--ways 1]    channels, kernels and strides at odd sizes
    python benchmarks/convolutions.py FILE --markdown            the table of a file that was written before

For each layer and direction the `--ways` most promising tilings are built, and as many for warpgroups where they serve,
each held against PyTorch in float32 without TF32, and timed with a cold L2 cache beside PyTorch's own operation (TF32
allowed). What FILE holds already is left as it is; a way that never comes back ends the process, and the next call goes
on behind it. With --build nothing runs: what a later call wants is compiled. Without a GPU everything runs on the
emulator at its own pace: use --scale small.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import math
import multiprocessing
import re
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.utils.cpp_extension
from resuming import held

from crucible import emulator, hardware
from crucible.algebra.convolution.correlation import Correlation, convolution, input_gradient, transposed_convolution
from crucible.algebra.convolution.fused import LEAF, Convolution
from crucible.algebra.convolution.reducing import ReducingConvolution, product
from crucible.algebra.convolution.windows import Spread, Windows
from crucible.algebra.program import Operand, Program, Reduction, Result, contiguous
from crucible.emission.extension import inline
from crucible.emission.host import Host
from crucible.gpus import H200, closest_gpu
from crucible.graph import ITEM_BYTES, TensorType
from crucible.judge.worker.clock import sampler
from crucible.kinds.convolution.lower import lower_convolution
from crucible.kinds.convolution.reducing import lower_reducing
from crucible.kinds.convolution.weights import lower_weight_for_warpgroups, lower_weight_gradient
from crucible.kinds.program.lower import joined, lower
from crucible.print.written import Lowered
from crucible.schedule import cost
from crucible.schedule.convolution.halo import UNITS
from crucible.schedule.convolution.tile_choice import best
from crucible.schedule.convolution.tiling import Tiling
from crucible.schedule.convolution.warpgroup.divisions import best_for_warpgroups
from crucible.schedule.convolution.warpgroup.phases import PhaseWalks, best_phase_walks, walk_phases
from crucible.schedule.convolution.warpgroup.pooled import PooledWalks
from crucible.schedule.convolution.warpgroup.scatter import Scatter
from crucible.schedule.convolution.warpgroup.streams import Streams
from crucible.schedule.convolution.warpgroup.walks import Walks
from crucible.schedule.convolution.warpgroup.weight_choice import best_weight_walks
from crucible.schedule.convolution.warpgroup.weight_walks import WeightWalks
from crucible.schedule.convolution.weight_division import Division, best_divisions
from crucible.schedule.machine import machine_of

DIRECTIONS = ("forward", "input gradient", "weight gradient")
PASSES = {
    "sum over space": ((0, 0),),
    "softmax over space": ((0, 0), (1, 0)),
    "sum for the softmax's gradient": ((0, 1),),
    "softmax's gradient over space": ((0, 1), (1, 1)),
}
"""Of a reduction over space: for each pass the tensors of the output's size that it writes and, besides, reads."""
REDUCED = {"P38": tuple(PASSES)}
"""What else is measured of a layer: the first pass of P38's softmax (of the clamped product), and both; the same of its
gradient."""
ALLOWED = {"float32": 6e-4, "float16": 2e-3, "bfloat16": 2e-2}
"""Relative L2 error: TF32 rounds operands to 11 bits."""
SAMPLES = 15
HANG_S = 60
"""Of a way on a GPU: twenty launches take less than one."""
GPU = closest_gpu(torch.cuda.get_device_name()) if torch.cuda.is_available() else H200


@dataclass(frozen=True)
class Layer:
    """A convolution at some size, bias left out."""

    name: str
    kind: str
    shape: tuple[int, ...]
    channels: int
    kernel: int
    stride: int = 1
    padding: int = 0
    output_padding: int = 0
    groups: int = 1
    dtype: str = "float32"
    pool: int = 0
    """Of a maximum pool behind it, inside of its kernels: the size of its windows; 0 for none."""

    @property
    def rank(self) -> int:
        return len(self.shape) - 2

    @property
    def is_transposed(self) -> bool:
        return self.kind == "conv_transpose"

    @property
    def weight_shape(self) -> tuple[int, ...]:
        first, second = (self.shape[1], self.channels) if self.is_transposed else (self.channels, self.shape[1])
        return (first, second // self.groups, *[self.kernel] * self.rank)

    @property
    def correlation(self) -> Correlation:
        each = [[n] * self.rank for n in (self.stride, self.padding, self.output_padding)]
        ones = [1] * self.rank
        if self.is_transposed:
            return transposed_convolution(self.shape, self.weight_shape, *each, ones, self.groups)
        return convolution(self.shape, self.weight_shape, each[0], each[1], ones, self.groups)

    @property
    def windows(self) -> tuple[int, ...]:
        return (self.pool,) * self.rank if self.pool else ()

    @property
    def made_shape(self) -> tuple[int, ...]:
        """Of the pool's value, if there is a pool."""
        shape = self.correlation.out_shape
        return (*shape[:2], *(n // (self.pool or 1) for n in shape[2:]))

    def call(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        function = getattr(torch.nn.functional, f"{self.kind}{self.rank}d")
        extra = (self.output_padding,) if self.is_transposed else ()
        return function(x, weight, None, self.stride, self.padding, *extra, groups=self.groups)

    def pooled(self, product: torch.Tensor) -> torch.Tensor:
        return getattr(torch.nn.functional, f"max_pool{self.rank}d")(product, self.pool) if self.pool else product


LAYERS = [
    Layer("P90", "conv", (128, 8, 16, 64, 64), 64, 3),
    Layer("P74", "conv_transpose", (16, 16, 16, 32, 32), 32, 3, 2, 1, 1),
    Layer("P74 pooled", "conv_transpose", (16, 16, 16, 32, 32), 32, 3, 2, 1, 1, pool=2),
    Layer("P38", "conv_transpose", (32, 32, 16, 32, 32), 64, 3, 2, 1, 1),
    *(
        Layer(f"2d {c} to {c}, k{k}", "conv", (32, c, 56, 56), c, k, 1, k // 2)
        for c in (16, 64, 128, 256)
        for k in (1, 3)
    ),
    Layer("2d 32 to 64, k3, 96", "conv", (64, 32, 96, 96), 64, 3),
    Layer("2d 32 to 64, k3, 96, fp16", "conv", (64, 32, 96, 96), 64, 3, dtype="float16"),
    Layer("2d 64 to 64, k1, 94", "conv", (64, 64, 94, 94), 64, 1),
    Layer("2d 3 to 64, k7 s2", "conv", (32, 3, 224, 224), 64, 7, 2, 3),
    Layer("2d 64 to 128, k3 s2", "conv", (32, 64, 56, 56), 128, 3, 2, 1),
    Layer("2d 32 to 16 transposed, k4 s2", "conv_transpose", (32, 32, 32, 32), 16, 4, 2, 1),
    Layer("3d 16 to 32, k3", "conv", (8, 16, 16, 32, 32), 32, 3, 1, 1),
    Layer("3d 32 to 64, k3, fp16", "conv", (8, 32, 16, 32, 32), 64, 3, 1, 1, dtype="float16"),
]
SWEEP = [
    Layer(f"{rank}d {c} to {c}, k{k} s{s}, odd", "conv", (n, c, *size), c, k, s, k // 2)
    for rank, size, n in ((2, (57, 61), 16), (3, (15, 29, 31), 4))
    for c in (1, 3, 8, 16, 24, 32, 64, 128, 256)
    for k in (1, 3, 5, 7)
    for s in (1, 2, 3)
]
TOGETHER = 12
"""Layers of the sweep that are built as one extension: PyTorch's headers take 15 s, a kernel a tenth of a second."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--ways", type=int, default=4)
    parser.add_argument("--scale", choices=("full", "small"), default="full")
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()
    if args.markdown:
        print(markdown(json.loads(args.file.read_text())))
    else:
        record(args)


def record(args: argparse.Namespace) -> None:
    """Builds side by side, then checks and times, and writes after each."""
    deadline = time.monotonic() + args.minutes * 60
    device = hardware.find_device()
    record = {"device": device.name, "driver": device.driver, "versions": hardware.versions(), "scale": args.scale}
    known = held(args.file, record, "layers") or {}
    layers = SWEEP if args.sweep else LAYERS
    layers = [small(layer) if args.scale == "small" else layer for layer in layers]
    wanted = [
        Work(layer, direction)
        for layer in layers
        for direction in (*DIRECTIONS, *REDUCED.get(layer.name, ()))
        if args.only in layer.name and Work(layer, direction).name not in known
    ]
    size = TOGETHER * len(DIRECTIONS) if args.sweep else math.ceil(len(wanted) / args.processes)
    jobs = [wanted[at : at + size] for at in range(0, len(wanted), max(size, 1))]
    with ProcessPoolExecutor(args.processes, multiprocessing.get_context("spawn")) as pool:
        failures = list(pool.map(built, jobs, [args.ways] * len(jobs)))
    if args.build:
        raise SystemExit("\n".join(filter(None, failures)))

    def save(name: str, found: dict[str, Any]) -> None:
        known[name] = found
        args.file.write_text(json.dumps({**record, "layers": known}, indent=1) + "\n")

    for job, failure in zip(jobs, failures, strict=True):
        module = None if failure else extension(job, args.ways)  # as it was built
        for number, work in enumerate(job):
            if time.monotonic() > deadline:
                return
            if failure:
                save(work.name, {"failed": failure})
            else:
                measure(work, number, module, args.ways, save)
            print(work.name, summary(known[work.name]), flush=True)


class Work(NamedTuple):
    """What is measured."""

    layer: Layer
    direction: str

    @property
    def name(self) -> str:
        return f"{self.layer.name}: {self.direction}"


def small(layer: Layer) -> Layer:
    sizes = (2, min(layer.shape[1], 16), *(min(n, 9) for n in layer.shape[2:]))
    return Layer(**{**layer.__dict__, "shape": sizes, "channels": min(layer.channels, 24)})


# kernels


def lowered(work: Work, number: int, ways: int) -> list[tuple[str, float, Lowered]]:
    """The most promising ways, each in words, with its estimated clocks; none where no tile fits."""
    layer, of, unit = work.layer, work.layer.correlation, UNITS[work.layer.dtype]
    if work.direction not in DIRECTIONS:
        return reduced(work, number, ways)
    if work.direction == "weight gradient":
        of = input_gradient(of) if layer.is_transposed else of
        shapes = (layer.made_shape, of.out_shape) if layer.is_transposed else (of.in_shape, layer.made_shape)
        source, grad = (
            Operand(name, layer.dtype, contiguous(shape))
            for name, shape in zip(("source", "grad"), shapes, strict=True)
        )
        spreads = (spread(layer), None) if layer.is_transposed else (None, spread(layer))
        divisions = [*best_divisions(of, unit, ways, H200, spreads)]
        walks = [] if spreads[1] else best_weight_walks(of, ITEM_BYTES[layer.dtype], ways, GPU, spreads[0])
        found = []
        for i, way in enumerate(sorted([*divisions, *walks], key=lambda each: each.total_clocks)):
            names = f"wgrad_{number}_{i}", f"out_{number}_{i}"
            if isinstance(way, WeightWalks):
                each = lower_weight_for_warpgroups(names[0], way, source, grad, names[1])
            else:
                each = lower_weight_gradient(names[0], of, source, grad, names[1], way, spreads)
            found.append((words_of_weight(way), way.total_clocks, each))
        return found
    turned = work.direction == "input gradient"
    of = input_gradient(of) if turned else of
    read, made = (layer.made_shape, layer.shape) if turned else (layer.shape, layer.made_shape)
    pool = Windows("max", layer.windows, LEAF) if layer.pool and not turned else None
    given = ((), layer.windows) if turned else (layer.windows, ())
    source = Operand("source", layer.dtype, contiguous(read))
    weight = Operand("grad", layer.dtype, contiguous(layer.weight_shape))
    result = Result("out", layer.dtype, contiguous(made), LEAF)
    conv = Convolution("conv", of, source, weight, layer.weight_shape, (), (result,), pool=pool,
                       spread=spread(layer) if turned else None)  # fmt: skip
    tilings = [*best(of, unit, ways, GPU, *given), *best_for_warpgroups(conv, ways, GPU)]
    found = []
    for i, tiling in enumerate(sorted(tilings, key=lambda each: each.total_clocks)):
        one = replace(conv, name=f"conv_{number}_{i}", results=(replace(result, name=f"out_{number}_{i}"),))
        found.append((words_of(tiling), tiling.total_clocks, lower_convolution(one, tiling, GPU)))
    return found


def words_of_weight(way: Division | WeightWalks) -> str:
    if isinstance(way, WeightWalks):
        brought = (", in bulk" if way.raw else "") + (", by two warpgroups" if way.stagers > 1 else "")
        brought += f", rows moved {way.moves.places}" if way.moves else ""
        return (
            f"wgmma: {way.chunks} x N {way.columns}, box {way.rows} x {way.width}, along {way.walk} planes,"
            f" {way.vector} words a load, {way.slots} slots{brought}, {way.parts} parts"
        )
    box = f"box {way.box}, {way.blocks} blocks{', ahead' * way.ahead}"
    return f"{way.channels} x {way.n_tiles * 8} channels, {box}"


def spread(layer: Layer) -> Spread | None:
    """How the gradient of what it makes is laid."""
    return Spread(layer.windows, "choice") if layer.pool else None


def words_of(tiling: Tiling) -> str:
    if isinstance(tiling, Walks):
        shares = f", {tiling.together} outer phases a block" if isinstance(tiling, PhaseWalks) else ""
        if isinstance(tiling, PooledWalks):
            shares = ", two phases in 64 rows" if tiling.pairs else ", one phase in 64 rows"
        return (
            f"wgmma: {tiling.groups} warpgroups, box {tiling.box}, N {tiling.columns_of_b}, along {tiling.walk} planes,"
            f" {tiling.slots} slots{shares}"
        )
    if isinstance(tiling, Scatter):
        return (
            f"wgmma: every input by {len(tiling.taps)} taps at once, N {tiling.columns}, box {tiling.box}, walks along"
            f" dim {tiling.inner}, rows of dim {tiling.outer}, {tiling.slots} slots"
        )
    if isinstance(tiling, Streams):
        once = (", planes staged once" if tiling.once else "") + (", rows asked for ahead" if tiling.fetches else "")
        return (
            f"wgmma, weights streamed: {tiling.channels} channels, box {tiling.box}, N {tiling.live * tiling.channels},"
            f" along {tiling.walk} planes, {tiling.slots} slots{once}"
        )
    return (
        f"{tiling.channels} channels, box {tiling.box}, {len(tiling.teams)} teams of"
        f" {tiling.rows} x {tiling.columns} warps, {tiling.staged} of {tiling.steps} steps, {tiling.blocks} blocks"
        f"{', ahead' * tiling.ahead}{', folded' * bool(tiling.of.folds)}"
    )


def reduced(work: Work, number: int, ways: int) -> list[tuple[str, float, Lowered]]:
    """The sum of exp(clamp(product)) over space, or the softmax that it belongs to: with each pass divided in the way
    of least estimated time, then with all in one of the best for the first, of warps and of warpgroups."""
    of, unit = work.layer.correlation, UNITS[work.layer.dtype]
    passes, item = PASSES[work.direction], 16 // unit
    own = []
    for written, loaded in passes:
        ways_of_pass = [
            *best(of, unit, 1, tensors=written + loaded),
            walk_phases(of, unit, GPU, written, item * loaded),
        ]
        own.append(quickest(ways_of_pass, (written, loaded)))
    found = [("each pass in its way", *reducing(work, f"{number}_0", own, None))]
    written, loaded = passes[0]
    first = [*best(of, unit, max(ways - 1, 1), tensors=written + loaded)]
    first += best_phase_walks(of, unit, ways, GPU, written, item * loaded)
    for i, tiling in enumerate(first, 1):
        found.append((words_of(tiling), *reducing(work, f"{number}_{i}", [tiling] * len(passes), tiling)))
    return found


def quickest(tilings: Sequence[Tiling | None], moved: tuple[int, int]) -> Tiling:
    return min(filter(None, tilings), key=lambda each: clocks(each, moved))


def clocks(tiling: Tiling, moved: tuple[int, int]) -> float:
    """Estimate for a pass that writes and reads so many tensors of the output's size."""
    if isinstance(tiling, PhaseWalks):
        return replace(tiling, tensors=moved[0], fetched=16 // tiling.unit * moved[1]).total_clocks
    return tiling.total_clocks_with(sum(moved))


def reducing(work: Work, number: str, passes: list[Tiling], given: Tiling | None) -> tuple[float, Lowered]:
    """Estimated clocks and kernels; `given` is for all passes."""
    layer, of = work.layer, work.layer.correlation
    name, out = f"conv_{number}", of.out_shape
    source, weight = (
        Operand(n, layer.dtype, contiguous(s)) for n, s in (("source", of.in_shape), ("grad", layer.weight_shape))
    )
    conv = Convolution(name, of, source, weight, layer.weight_shape, (), ())
    power, upstream = LEAF.clamp(0, 1).exp(), Operand("upstream", layer.dtype, contiguous(out))
    turned = reads_upstream(work)
    total = Reduction("total", "sum", upstream.leaf * power if turned else power)
    expr = power * (upstream.leaf - total.leaf * (1 / math.prod(out[2:]))) if turned else power * (1.0 / total.leaf)
    result = Result(f"out_{number}", layer.dtype, contiguous(out[:2]), total.leaf)
    if len(passes) > 1:
        result = Result(f"out_{number}", layer.dtype, contiguous(out), expr)
    program = Program(name, out, 2, (product(conv), *([upstream] if turned else [])), (total,), (result,))
    found = lower_reducing(ReducingConvolution(name, conv, program), tiling=given)
    steps = [lower(each) if isinstance(each, Program) else each for each in found.steps]
    estimate = sum(clocks(*each) for each in zip(passes, PASSES[work.direction], strict=True))
    return estimate, joined([Lowered((), found.buffers), *steps])


def reads_upstream(work: Work) -> bool:
    """Whether it is a reduction that reads a third tensor."""
    return any(loaded for _, loaded in PASSES.get(work.direction, ()))


def hosts(work: Work, number: int, ways: int) -> list[Host]:
    """A function for each way: of what is read with a halo, and the other tensor."""
    layer, of = work.layer, work.layer.correlation
    shapes = {"x": of.in_shape, "y": layer.made_shape, "weight": layer.weight_shape, "rows": of.out_shape[:2]}
    order = {
        **{name: ("x", "weight", "rows" if len(passes) == 1 else "y") for name, passes in PASSES.items()},
        "forward": ("x", "weight", "y"),
        "input gradient": ("y", "weight", "x"),
        "weight gradient": ("x", "y", "weight"),
    }
    first, second, made = order[work.direction]
    if work.direction == "weight gradient" and layer.is_transposed:
        first, second = second, first
    types = [TensorType(tuple(shapes[n]), contiguous(shapes[n]), layer.dtype) for n in (first, second, made)]
    given = {"source": types[0], "grad": types[1]}
    if reads_upstream(work):
        given["upstream"] = TensorType(layer.made_shape, contiguous(layer.made_shape), layer.dtype)
    if layer.pool and work.direction != "forward":
        given["choice"] = TensorType(layer.made_shape, contiguous(layer.made_shape), "uint8")
    return [
        Host(f"run_{number}_{i}", given, {f"out_{number}_{i}": types[2]}, {}, {}, (each,))
        for i, (_, _, each) in enumerate(lowered(work, number, ways))
    ]


def extension(works: list[Work], ways: int) -> Any:
    """One for several works."""
    every = [host for number, work in enumerate(works) for host in hosts(work, number, ways)]
    if not every:
        return None
    load = torch.utils.cpp_extension.load_inline if torch.cuda.is_available() else emulator.load_inline
    return load(**inline("convolution", every))


def built(works: list[Work], ways: int) -> str:
    """Words where they do not build."""
    try:
        extension(works, ways)
    except (RuntimeError, ValueError) as error:
        lines = [line for line in str(error).splitlines() if re.search(r"\b(error|fatal)\b", line)]
        return "\n".join(lines)[-1500:] or str(error)[-1500:]
    return ""


# right and fast


def measure(work: Work, number: int, module: Any, ways: int, save: Callable[[str, dict[str, Any]], None]) -> None:
    """Each way's error and milliseconds, and PyTorch's milliseconds: saved as far as it came before each way runs,
    warpgroups' last, since a wrong parity of theirs hangs."""
    device = torch.device(hardware.find_device().kind)
    theirs, given = operands(work, device)
    torch.backends.cudnn.allow_tf32 = False
    right = theirs().double()
    torch.backends.cudnn.allow_tf32 = True
    found: dict[str, Any] = {"torch_ms": median(theirs, device), "flops": work.layer.correlation.flops, "ways": []}
    if work.layer.rank == 2:
        found["torch_channels_last_ms"] = median(operands(work, device, torch.channels_last)[0], device)
    of = list(enumerate(lowered(work, number, ways)))
    for i, (words, clocks, _) in sorted(of, key=lambda each: any(k.architecture for k in each[1][2].kernels)):
        save(work.name, found | {"failed": f"did not come back from {words}"})
        if device.type == "cuda":
            faulthandler.dump_traceback_later(HANG_S, exit=True)
        call = getattr(module, f"run_{number}_{i}")
        (out,) = call(*given)
        error = float((out.double() - right).norm() / right.norm())
        found["ways"].append(
            {
                "way": words,
                "relative_l2": error,
                "right": error <= ALLOWED[work.layer.dtype],
                "estimate_ms": cost.milliseconds(machine_of(GPU), clocks, GPU.sms),
                "ms": median(lambda call=call: call(*given), device),
            }
        )
        faulthandler.cancel_dump_traceback_later()
    found["ways"].sort(key=lambda way: way["estimate_ms"])
    save(work.name, found)


def operands(
    work: Work, device: torch.device, laid: torch.memory_format = torch.contiguous_format
) -> tuple[Callable[[], torch.Tensor], tuple[torch.Tensor, ...]]:
    """PyTorch's operation, and what ours are given."""
    layer, direction = work
    torch.manual_seed(0)
    dtype = getattr(torch, layer.dtype)
    shapes = (layer.shape, layer.weight_shape, layer.made_shape)
    x, weight, y = (torch.randn(n, device=device, dtype=dtype).contiguous(memory_format=laid) for n in shapes)
    choice = torch.randint(0, math.prod(layer.windows), layer.made_shape, device=device, dtype=torch.uint8)
    theirs = torch_operation(layer, direction, x, weight, spread_out(layer, y, choice) if layer.pool else y)
    given = {"input gradient": (y, weight), "weight gradient": (x, y)}.get(direction, (x, weight))
    if direction == "weight gradient" and layer.is_transposed:
        given = (y, x)
    if reads_upstream(work):
        return theirs, (*given, y)
    return theirs, (*given, choice) if layer.pool and direction != "forward" else given


def spread_out(layer: Layer, y: torch.Tensor, choice: torch.Tensor) -> torch.Tensor:
    """Each window's gradient at its chosen element, as the pool's backward leaves it."""
    place = torch.arange(math.prod(layer.windows), device=y.device).reshape(layer.windows).repeat(y.shape[2:])
    for dim, size in enumerate(layer.windows):
        y, choice = (each.repeat_interleave(size, 2 + dim) for each in (y, choice))
    return torch.where(choice == place, y, torch.zeros((), dtype=y.dtype, device=y.device))


def torch_operation(
    layer: Layer, direction: str, x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor
) -> Callable[[], torch.Tensor]:
    if direction == "forward":
        return lambda: layer.pooled(layer.call(x, weight))
    if direction == "sum over space":
        return lambda: layer.call(x, weight).clamp(0, 1).exp().flatten(2).sum(2)
    if direction == "softmax over space":
        return lambda: torch.softmax(layer.call(x, weight).clamp(0, 1).flatten(2), 2).reshape(y.shape)
    if direction in PASSES:
        return lambda: softmax_gradient(layer.call(x, weight).clamp(0, 1).exp().flatten(2), y, direction)
    mask = [direction == "input gradient", direction == "weight gradient", False]
    each = [[n] * layer.rank for n in (layer.stride, layer.padding, 1, layer.output_padding)]
    stride, padding, dilation, more = each
    wanted = mask.index(True)
    return lambda: torch.ops.aten.convolution_backward(
        y, x, weight, None, stride, padding, dilation, layer.is_transposed, more, layer.groups, mask
    )[wanted]


def softmax_gradient(power: torch.Tensor, y: torch.Tensor, direction: str) -> torch.Tensor:
    """As the kernels compute it, scaled differently; or its first pass."""
    total = (power * y.flatten(2)).sum(2, keepdim=True)
    if len(PASSES[direction]) == 1:
        return total.squeeze(2)
    return (power * (y.flatten(2) - total / power.shape[2])).reshape(y.shape)


def median(call: Callable[[], Any], device: torch.device) -> float:
    take = sampler(device)
    for _ in range(3):
        call()
    return statistics.median(take(call).device_ms for _ in range(SAMPLES if device.type == "cuda" else 2))


# told


def summary(found: dict[str, Any]) -> str:
    if "failed" in found:
        return found["failed"]
    beside = f", channels-last {found['torch_channels_last_ms']:.3f}" if "torch_channels_last_ms" in found else ""
    lines = [f"torch {found['torch_ms']:.3f} ms{beside}" + ("" if found["ways"] else ", no tile of it fits")]
    for way in found["ways"]:
        wrong = "" if way["right"] else " WRONG"
        took = f"{way['ms']:.3f} ms (estimated {way['estimate_ms']:.3f})"
        lines.append(f"    {took}, error {way['relative_l2']:.1e}{wrong}: {way['way']}")
    return "\n".join(lines)


def markdown(record: dict[str, Any]) -> str:
    """A table: the first way, which the writer takes, and the fastest of those that were tried."""
    lines = [
        "| layer | PyTorch (ms) | ours (ms) | over PyTorch | TFLOP/s | fastest way (ms) |",
        "|---|---|---|---|---|---|",
    ]
    for name, found in record["layers"].items():
        ways = found.get("ways", [])
        if not ways:
            lines.append(f"| {name} | {found['torch_ms']:.3g} | none: PyTorch's | | | |")
        elif ways[0]["right"]:
            theirs, ours = found["torch_ms"], ways[0]["ms"]
            best = min(way["ms"] for way in ways if way["right"])
            rate = found["flops"] / ours / 1e9
            lines.append(f"| {name} | {theirs:.3g} | {ours:.3g} | {theirs / ours:.2f} | {rate:.0f} | {best:.3g} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
