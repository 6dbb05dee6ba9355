"""Lowered programs as one extension for the emulator, and what their kernels compute beside what they should."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from crucible import emulator
from crucible.algebra.evaluate import Array, evaluate_program
from crucible.algebra.program import Program
from crucible.print.written import Kernel, Lowered
from crucible.target.cuda import CUDA_TYPES

DECLARED = "void run(int64_t which, std::vector<torch::Tensor> tensors);"
TORCH_TYPES = {name: getattr(torch, name) for name in CUDA_TYPES}
ROUNDING = {"float64": 1e-13, "float32": 4e-6, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""Of results, as part of what they are beside and of the largest of them: some units for float32, one for halves."""


@dataclass(frozen=True)
class Step:
    """A program without sums and its kernels."""

    program: Program
    lowered: Lowered

    @property
    def names(self) -> list[str]:
        program = self.program
        return [each.name for each in (*program.operands, *program.results, *self.lowered.buffers)]

    @property
    def dtypes(self) -> dict[str, str]:
        program = self.program
        return {each.name: each.dtype for each in (*program.operands, *program.results, *self.lowered.buffers)}


def source(steps: Mapping[str, Step]) -> str:
    """Every kernel under a name of its step, and a function that launches those of one step."""
    preamble = dict.fromkeys(
        part for step in steps.values() for kernel in step.lowered.kernels for part in kernel.preamble
    )
    first = sorted(preamble, key=lambda part: not part.startswith("#include"))
    kernels = [_renamed(place, k) for place, step in enumerate(steps.values()) for k in step.lowered.kernels]
    cases = [
        "\n".join([f"case {place}:", *(_launch(place, kernel, step) for kernel in step.lowered.kernels), "break;"])
        for place, step in enumerate(steps.values())
    ]
    body = "\n".join(["switch (which) {", *cases, "}"])
    return "\n".join([*first, *kernels, f"void run(int64_t which, std::vector<torch::Tensor> tensors) {{\n{body}\n}}"])


def _renamed(place: int, kernel: Kernel) -> str:
    return re.sub(rf"\b{kernel.name}(?=(_block)?\b)", f"{kernel.name}_{place}", kernel.text)


def _launch(place: int, kernel: Kernel, step: Step) -> str:
    given = [
        f"reinterpret_cast<{'const ' if name in kernel.reads else ''}{CUDA_TYPES[step.dtypes[name]]}*>"
        f"(tensors[{step.names.index(name)}].data_ptr())"
        for name in (*kernel.reads, *kernel.writes)
    ]
    grid = f"dim3({', '.join(map(str, kernel.grid))})"
    sizes = f"{grid}, {kernel.threads}, {kernel.shared_bytes}"
    return f"{kernel.name}_{place}<<<{sizes}>>>({', '.join(given)});" if all(kernel.grid) else ""


Runner = Callable[[str, Mapping[str, torch.Tensor]], dict[str, torch.Tensor]]


def built(name: str, steps: Mapping[str, Step]) -> Runner:
    """Runs a step on flat storages of its operands; gives flat storages of its results."""
    extension = emulator.load_inline(name, DECLARED, source(steps), ["run"])
    places = {step: place for place, step in enumerate(steps)}

    def run(which: str, storages: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        step = steps[which]
        made = {each.name: torch.empty(size(step.program, each.strides), dtype=TORCH_TYPES[each.dtype])
                for each in step.program.results}  # fmt: skip
        made |= {each.name: torch.empty(each.elements, dtype=TORCH_TYPES[each.dtype]) for each in step.lowered.buffers}
        extension.run(places[which], [{**storages, **made}[name] for name in step.names])
        return {each.name: made[each.name] for each in step.program.results}

    return run


def size(program: Program, strides: tuple[int, ...]) -> int:
    """Of the flat storage of a tensor."""
    shape = program.shape[: len(strides)]
    return 0 if 0 in shape else 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))


def random_storages(program: Program, seed: int) -> dict[str, torch.Tensor]:
    """Contents for the operands."""
    generator = torch.Generator().manual_seed(seed)
    return {
        each.name: torch.randn(each.start + size(program, each.strides), generator=generator).to(
            TORCH_TYPES[each.dtype]
        )
        for each in program.operands
    }


def expected(program: Program, storages: Mapping[str, torch.Tensor]) -> dict[str, Array]:
    """The results in float64."""
    return evaluate_program(program, {name: each.double().numpy() for name, each in storages.items()})


def assert_close(found: torch.Tensor, wanted: Array, about: str) -> None:
    """NaN and infinity where they are wanted, else within ROUNDING; where no element lies, nothing is looked at."""
    tolerance = ROUNDING[str(found.dtype).removeprefix("torch.")]
    finite = np.abs(wanted[np.isfinite(wanted)])
    largest = float(finite.max()) if finite.size else 0.0
    np.testing.assert_allclose(found.double().numpy(), wanted, rtol=tolerance, atol=tolerance * largest, err_msg=about)
