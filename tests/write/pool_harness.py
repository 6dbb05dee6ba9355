"""Pools beside PyTorch's, and their kernels on the emulator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from crucible import emulator
from crucible.algebra.evaluate import Array, evaluate_program
from crucible.algebra.expression import Expr, parameter, tensor
from crucible.algebra.pool import POOLED, Pool, Window
from crucible.algebra.pool import adaptive as own_size
from crucible.algebra.program import Operand, Program, Result, contiguous
from crucible.kinds.pooling.forward import saved
from crucible.kinds.pooling.layout import extent
from crucible.kinds.steps import Steps
from crucible.print.written import Kernel, Lowered
from crucible.target.cuda import CUDA_TYPES

Tensors = dict[str, torch.Tensor]
POOLED_LEAF = tensor(POOLED)
DTYPES = {"float32": torch.float32, "float64": torch.float64, "float16": torch.float16, "bfloat16": torch.bfloat16,
          "int32": torch.int32, "uint8": torch.uint8}  # fmt: skip


Leaf = Callable[[str], Expr]


@dataclass(frozen=True)
class Chain:
    """A chain in both languages, and what it reads beside x or the pool's value: names, and whether they are laid
    over the whole space (`dense`), its channels, all but the batch (`position`), or are `one` number."""

    ours: Callable[[Expr, Leaf, Leaf], Expr]
    """From its input and from what makes tensors and parameters."""
    torchs: Callable[[torch.Tensor, Tensors], torch.Tensor]
    shapes: tuple[tuple[str, str], ...] = ()


NONE = Chain(lambda x, t, p: x, lambda x, t: x)
CHAINS = {
    "none": NONE,
    "leaky": Chain(
        lambda x, t, p: (x.leaky_relu(0.2) * p("multiplier")).leaky_relu(0.2),
        lambda x, t: F.leaky_relu(F.leaky_relu(x, 0.2) * t["multiplier"], 0.2),
        (("multiplier", "channel"),),
    ),
    "relu": Chain(
        lambda x, t, p: (x + p("bias")).relu(), lambda x, t: F.relu(x + t["bias"]), (("bias", "channel"),)
    ),
    "falling": Chain(lambda x, t, p: (1 - 2 * x).tanh(), lambda x, t: torch.tanh(1 - 2 * x)),
    "gelu": Chain(
        lambda x, t, p: x.gelu() * p("scale"), lambda x, t: F.gelu(x) * t["scale"], (("scale", "one"),)
    ),
    "residual": Chain(
        lambda x, t, p: (x + t("other") * p("place")).relu() * p("factor"),
        lambda x, t: F.relu(x + t["other"] * t["place"]) * t["factor"],
        (("other", "dense"), ("place", "position"), ("factor", "channel")),
    ),
    "square": Chain(lambda x, t, p: x.square() + x, lambda x, t: x.square() + x),
    "scaled": Chain(
        lambda x, t, p: x * p("gain") + t("skip"),
        lambda x, t: x * t["gain"] + t["skip"],
        (("gain", "channel"), ("skip", "dense")),
    ),
    "silu": Chain(
        lambda x, t, p: (x * p("shape")).silu(), lambda x, t: F.silu(x * t["shape"]), (("shape", "position"),)
    ),
    "gated": Chain(
        lambda x, t, p: x * p("gate") * p("slope"), lambda x, t: x * t["gate"] * t["slope"],
        (("gate", "one"), ("slope", "channel")),
    ),
    "names": Chain(
        lambda x, t, p: x * p("w") + t("choice"), lambda x, t: x * t["w"] + t["choice"],
        (("w", "channel"), ("choice", "dense")),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A pool and the same in PyTorch."""

    pool: Pool
    shapes: dict[str, tuple[int, ...]]
    module: Callable[[Tensors], torch.Tensor]


def case(
    name: str,
    kind: str,
    shape: tuple[int, ...],
    size: Sequence[int],
    stride: Sequence[int] | None = None,
    padding: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
    ceil_mode: bool = False,
    before: str = "none",
    after: str = "none",
    input_last: bool = False,
    output_last: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
    adaptive: Sequence[int] | None = None,
    dtype: str = "float32",
) -> Case:
    """shape is [N, C, *spatial]; `*_last` say whether a tensor's channels are its innermost dim."""
    rank = len(size)
    stride, padding, dilation = stride or size, padding or [0] * rank, dilation or [1] * rank

    def pooled(x: torch.Tensor) -> torch.Tensor:
        if adaptive:
            return getattr(F, f"adaptive_{kind}_pool{rank}d")(x, adaptive)
        if kind == "max":
            return getattr(F, f"max_pool{rank}d")(x, size, stride, padding, dilation, ceil_mode)
        extra = [] if rank == 1 else [divisor]
        return getattr(F, f"avg_pool{rank}d")(x, size, stride, padding, ceil_mode, count_include_pad, *extra)

    out = tuple(pooled(torch.empty(shape, device="meta")).shape)
    windows = tuple(
        own_size(shape[2 + i], out[2 + i]) if adaptive else Window(s, t, shape[2 + i], out[2 + i], p, d)
        for i, (s, t, p, d) in enumerate(zip(size, stride, padding, dilation, strict=True))
    )  # fmt: skip
    first, last = CHAINS[before], CHAINS[after]
    leaves = (lambda name: tensor(name, dtype)), (lambda name: parameter(name, dtype))
    operands = (Operand("x", dtype, laid(shape, shape, input_last)), *operands_of(first, shape, input_last, dtype))
    after_operands = tuple(operands_of(last, out, output_last, dtype))
    result = Result("out", dtype, laid(out, out, output_last), last.ours(POOLED_LEAF, *leaves))
    shapes = {"x": shape} | {n: broadcast(k, shape) for n, k in first.shapes}
    shapes |= {n: broadcast(k, out) for n, k in last.shapes}
    before_ = first.ours(tensor("x", dtype), *leaves)
    precision = "float64" if dtype == "float64" else "float32"
    pool = Pool(name, kind, shape[:2], windows, operands, before_, after_operands, result, count_include_pad, divisor,
                precision)  # fmt: skip
    return Case(pool, shapes, lambda t: last.torchs(pooled(first.torchs(t["x"], t)), t))


def operands_of(chain: Chain, space: tuple[int, ...], last: bool, dtype: str) -> list[Operand]:
    return [
        Operand(name, dtype, laid(broadcast(kind, space), space, last), shared=kind != "dense")
        for name, kind in chain.shapes
    ]


def broadcast(kind: str, space: tuple[int, ...]) -> tuple[int, ...]:
    ones = (1,) * (len(space) - 2)
    return {"dense": space, "channel": (1, space[1], *ones), "position": (1, *space[1:]), "one": (1, 1, *ones)}[kind]


def laid(shape: tuple[int, ...], space: tuple[int, ...], last: bool) -> tuple[int, ...]:
    """Strides over a space, 0 where the tensor broadcasts."""
    order = [0, *range(2, len(shape)), 1] if last else list(range(len(shape)))
    dense = contiguous([shape[dim] for dim in order])
    return tuple(
        dense[order.index(dim)] if shape[dim] == space[dim] and space[dim] > 1 else 0 for dim in range(len(shape))
    )


def storage(value: torch.Tensor, strides: Sequence[int], dtype: str) -> torch.Tensor:
    """A tensor's flat memory, laid by strides."""
    flat = torch.zeros(extent(strides, value.shape) if value.numel() else 0, dtype=DTYPES[dtype])
    flat.as_strided(value.shape, strides).copy_(value.detach())
    return flat


# kernels


def source(kernels: Iterable[Kernel], types: dict[str, dict[str, str]]) -> str:
    """One function that runs the kernel of a number; `types` are the dtypes of each one's tensors."""
    kernels = list(kernels)
    preamble = dict.fromkeys(part for each in kernels for part in each.preamble)
    cases = []
    for number, each in enumerate(kernels):
        known = types[each.name]
        pointers = [f"(const {CUDA_TYPES[known[name]]}*)t[{i}].data_ptr()" for i, name in enumerate(each.reads)]
        pointers += [
            f"({CUDA_TYPES[known[name]]}*)t[{i + len(each.reads)}].data_ptr()" for i, name in enumerate(each.writes)
        ]
        launch = f"{each.name}<<<dim3{each.grid}, {each.threads}, {each.shared_bytes}>>>({', '.join(pointers)})"
        cases.append(
            f"        case {number}: {launch}; break;" if 0 not in each.grid else f"        case {number}: break;"
        )
    switch = "\n".join(cases)
    run = f"void run(int64_t number, std::vector<torch::Tensor> t) {{\n    switch (number) {{\n{switch}\n    }}\n}}\n"
    return "\n\n".join([*preamble, *(each.text for each in kernels), run])


DECLARED = "void run(int64_t number, std::vector<torch::Tensor> t);"


@dataclass(frozen=True)
class Built:
    """Kernels that run by name."""

    run: Callable[[int, list[torch.Tensor]], None]
    numbers: dict[str, int]

    def __call__(self, lowered: Lowered, known: dict[str, torch.Tensor]) -> None:
        for kernel in lowered.kernels:
            self.run(self.numbers[kernel.name], [known[name] for name in (*kernel.reads, *kernel.writes)])


def build(name: str, kernels: Sequence[Kernel], types: dict[str, dict[str, str]]) -> Built:
    assert len({kernel.name for kernel in kernels}) == len(kernels)
    extension = emulator.load_inline(name, DECLARED, source(kernels, types), ["run"])
    return Built(extension.run, {kernel.name: i for i, kernel in enumerate(kernels)})


def dtypes(pool: Pool, steps: Steps) -> dict[str, str]:
    """Of all tensors that the kernels of a pool take."""
    known = {each.name: each.dtype for each in (*pool.operands, *pool.after_operands, pool.result)}
    known |= {f"grad_{name}": dtype for name, dtype in known.items()}
    known |= {each.name: each.dtype for each in saved(pool)}
    return known | {each.name: each.dtype for each in steps.buffers}


def run_steps(built: Built, steps: Steps, known: Tensors, targets: dict[str, int], types: dict[str, str]) -> Tensors:
    """The results of steps; programs are evaluated in float64."""
    known = dict(known)
    for buffer in steps.buffers:
        known[buffer.name] = torch.full((buffer.elements,), 7, dtype=DTYPES[buffer.dtype])
    for name in steps.results:
        known[name] = torch.full((targets[name],), 7, dtype=DTYPES[types[name]])
    for step in steps.steps:
        if isinstance(step, Lowered):
            built(step, known)
        else:
            arrays = {each.name: known[each.name].double().numpy() for each in step.operands}
            found = evaluated(step, arrays)
            assert found.keys() <= known.keys(), "a step writes a tensor that no buffer is"
            known |= {name: torch.from_numpy(value).to(DTYPES[types[name]]) for name, value in found.items()}
    return {name: known[name] for name in steps.results}


def evaluated(program: Program, arrays: dict[str, Array]) -> dict[str, Array]:
    """Sums of nothing are 0."""
    if 0 not in program.shape:
        return evaluate_program(program, arrays)
    shape = program.shape
    return {each.name: np.zeros(extent(each.strides, shape[: len(each.strides)])) for each in program.results}
