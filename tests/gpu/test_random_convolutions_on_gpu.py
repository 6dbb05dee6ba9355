"""Convolution kernels of random shapes, parameters and divisions on the GPU, forward and backward, beside PyTorch in
float64: what `tests/write/test_random_convolutions.py` does on the emulator, of more cases."""

from __future__ import annotations

import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "write"))

from conv_harness import Built, build, is_right
from random_convolutions import Layer, directions, drawn

COUNT, BATCH = 216, 9
"""Layers, of which each has three kernels, and those of an extension: a batch takes nvcc about a minute."""


def load(name: str, declared: str, text: str, functions: list[str]) -> Any:
    from torch.utils.cpp_extension import load_inline

    header = "#include <torch/extension.h>\n#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"
    return load_inline(name, header + declared, header + text, functions=functions, extra_cuda_cflags=["-O3"])


def built(layers: list[Layer], first: int) -> Built:
    return build(directions(layers, first), load, "cuda")


def compiled(layers: list[Layer], first: int) -> str:
    """In a process of its own; words where it does not build."""
    try:
        built(layers, first)
    except (RuntimeError, OSError) as error:
        return str(error)[-2000:]
    return ""


def test_two_hundred_layers_are_right() -> None:
    layers = drawn(COUNT)
    assert len(layers) >= 200
    batches = [(layers[at : at + BATCH], at) for at in range(0, len(layers), BATCH)]
    processes = min(len(batches), os.cpu_count() or 1)
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        failures = list(pool.map(compiled, *zip(*batches, strict=True)))
    assert not any(failures), next(filter(None, failures))
    wrong = []
    for batch in batches:
        extension = built(*batch)
        wrong += [words for case in directions(*batch) if (words := is_right(extension, case))]
    assert not wrong, f"{len(wrong)} of {3 * len(layers)}: {wrong[:3]}"
