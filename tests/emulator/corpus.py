"""The corpus of small kernels below `kernels/`: read, compiled many at a time, run.

A translation unit costs 1.4 s before its first kernel, so a batch of them shares one: each in a namespace of its own.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from crucible import emulator

KERNELS = Path(__file__).parent / "kernels"
_INPUTS = re.compile(r"^// inputs: (.*)$", re.MULTILINE)
_TOLERANCE = {torch.float16: 2e-2, torch.bfloat16: 2e-2}
_SUMS_OF_SHORT_PRODUCTS = 5e-3
"""For TF32, whose operands have ten bits."""


@dataclass(frozen=True)
class Kernel:
    """One file of the corpus."""

    path: Path

    @property
    def name(self) -> str:
        return re.sub(r"\W", "_", self.path.stem)

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @property
    def kind(self) -> str:
        """The planted fault; empty for right kernels."""
        found = re.search(r"^// kind: (\S+)", self.text, re.MULTILINE)
        return found[1] if found else ""

    @property
    def lines(self) -> set[int]:
        """Where the fault stands."""
        return {i for i, line in enumerate(self.text.split("\n"), 1) if "// FAULT" in line}

    @property
    def input_sets(self) -> int:
        """How many sets of inputs the file names."""
        return len(_INPUTS.findall(self.text))

    def inputs(self, which: int = 0) -> list[Any]:
        """Tensors and numbers, the same each time; integers from 0 to 9."""
        line = _INPUTS.findall(self.text)[which]
        generator = torch.Generator().manual_seed(0)
        return [_value(item, generator) for item in re.findall(r"\w+\[[^\]]*\]|[^\s,]+", line)]

    def reference(self) -> Callable[..., Any]:
        """The same in PyTorch, for kernels in the style of the field."""
        module: dict[str, Any] = {}
        exec(self.path.with_suffix(".py").read_text(), module)
        function: Callable[..., Any] = module["reference"]
        return function


def _value(item: str, generator: torch.Generator) -> Any:
    shaped = re.fullmatch(r"(\w+)\[([\d, ]*)\]", item)
    if not shaped:
        return float(item) if re.search(r"[.e]", item) else int(item)
    dtype = getattr(torch, shaped[1])
    shape = [int(size) for size in shaped[2].split(",") if size.strip()]
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.randint(0, 10 if dtype != torch.bool else 2, shape, generator=generator).to(dtype)


def source(kernels: Sequence[Kernel]) -> str:
    """The text of one extension with a function for each kernel, named as the kernel is."""
    parts, bindings, includes = [], [], {}
    for kernel in kernels:
        body = re.sub(r"^\s*#\s*include.*$", "", kernel.text, flags=re.MULTILINE)
        includes.update(dict.fromkeys(re.findall(r"^\s*#\s*include.*$", kernel.text, flags=re.MULTILINE)))
        macros = set(re.findall(r"^\s*#\s*define\s+(\w+)", body, flags=re.MULTILINE))
        undone = "\n".join(f"#undef {macro}" for macro in sorted(macros))
        parts.append(f'namespace in_{kernel.name} {{\n#line 1 "{kernel.path.name}"\n{body}\n}}\n{undone}')
        bindings.append(f'm.def("{kernel.name}", &in_{kernel.name}::run);')
    return "\n".join([*includes, *parts, "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {", *bindings, "}"])


def build(kernels: Sequence[Kernel], name: str, *, repaired: bool = False) -> types.ModuleType:
    """One emulated extension of several kernels."""
    flags = ["-DREPAIRED"] if repaired else None
    return emulator.load_inline(name, "", source(kernels), extra_cuda_cflags=flags)


@dataclass(frozen=True)
class Outcome:
    """What came of one kernel."""

    result: Any
    error: str
    faults: tuple[emulator.Fault, ...]


def run(extension: types.ModuleType, kernel: Kernel, which: int = 0) -> Outcome:
    """Calls a kernel on a set of its inputs; the faults are this call's alone."""
    emulator.forget()
    result, error = None, ""
    try:
        result = getattr(extension, kernel.name)(*kernel.inputs(which))
    except RuntimeError as raised:
        error = str(raised)
    # Kernels of the other files in this extension have not run either.
    about_files = ("never-ran", "never-reached")
    faults = tuple(f for f in emulator.faults() if f.kind not in about_files or _defines(kernel, f.kernel))
    return Outcome(result, error, faults)


def _defines(kernel: Kernel, name: str) -> bool:
    return re.search(rf"__global__[^;{{}}]*\b{name}\s*\(", kernel.text) is not None


def tensors(result: Any) -> list[torch.Tensor]:
    """What a kernel returned, as a list."""
    return list(result) if isinstance(result, tuple | list) else [result]


def tolerance(kernel: Kernel) -> float:
    """How far, relative and absolute, sums in another order may be from the reference's."""
    dtypes = {value.dtype for value in kernel.inputs() if isinstance(value, torch.Tensor)}
    short = [_SUMS_OF_SHORT_PRODUCTS] if "tf32" in kernel.name else []
    return max([_TOLERANCE.get(dtype, 1e-4) for dtype in dtypes] + short)
