"""Times products of float32 matrices by kernels of ours beside cuBLAS: forward and both gradients of linear layers.

    python benchmarks/products.py FILE

Needs a Hopper GPU and nvcc. FILE (JSON) gets for each shape and direction the milliseconds of our kernels and of
PyTorch's product in float32 and in TF32 (medians of 20, cold L2, in turns), TFLOP/s of the product as asked for, the
errors of each against float64 (relative L2; largest by the rms), and what was estimated.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from crucible.algebra.product import Product
from crucible.algebra.program import Operand
from crucible.emission.extension import device
from crucible.gpus import H200
from crucible.kinds.product.lower import lower_product
from crucible.print.written import Kernel
from crucible.schedule.product import divided, is_faster

SHAPES = [
    (1024, 8192, 8192), (16384, 1024, 1024), (2048, 4096, 4096), (128, 16384, 16384), (1024, 8192, 512),
    (256, 1024, 1024), (64, 4096, 4096), (1000, 2052, 1028),
]  # fmt: skip
"""(rows, depth, columns), most of them of KernelBench level 2's linear layers."""
ROUNDS = 20


def products(shape: tuple[int, int, int]) -> dict[str, Product]:
    """Forward and both gradients of a linear layer."""
    rows, depth, columns = shape
    x, w = Operand("x", "float32", (0, depth, 1)), Operand("w", "float32", (0, depth, 1))
    forward = Product("forward", 1, rows, columns, depth, x, w, "y", (rows * columns, columns))
    return {
        "forward": forward,
        "gradient of the input": forward.gradient("x", "g"),
        "gradient of the weight": forward.gradient("w", "g"),
    }


def built(folder: Path, number: int, product: Product) -> Callable[[dict[str, torch.Tensor]], Callable[[], None]]:
    """A function that takes tensors by name and gives the call."""
    lowered = lower_product(product, H200)
    source, library = folder / f"{number}.cu", folder / f"{number}.so"
    source.write_text(device(lowered.kernels, [_launch(kernel) for kernel in lowered.kernels]))
    target = "-gencode=arch=compute_90a,code=sm_90a"
    command = ["nvcc", target, "-O3", "-std=c++17", "-shared", "-Xcompiler", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    loaded = ctypes.CDLL(str(library))

    def of(tensors: dict[str, torch.Tensor]) -> Callable[[], None]:
        held = {**tensors, **{b.name: torch.empty(b.elements, device="cuda") for b in lowered.buffers}}
        names = [(kernel, [*kernel.reads, *kernel.writes]) for kernel in lowered.kernels]

        def call() -> None:
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            for kernel, given in names:
                error = getattr(loaded, f"launch_{kernel.name}")(
                    *(ctypes.c_void_p(held[name].data_ptr()) for name in given), stream
                )
                if error:
                    raise RuntimeError(f"{kernel.name}: CUDA error {error}")

        return call

    return of


def _launch(kernel: Kernel) -> str:
    given = [f"const float* {name}" for name in kernel.reads] + [f"float* {name}" for name in kernel.writes]
    names = ", ".join([*kernel.reads, *kernel.writes])
    allow = f"cudaFuncSetAttribute({kernel.name}, cudaFuncAttributeMaxDynamicSharedMemorySize, {kernel.shared_bytes});"
    start = f"{kernel.name}<<<{kernel.grid[0]}, {kernel.threads}, {kernel.shared_bytes}, stream>>>({names});"
    head = f'extern "C" int launch_{kernel.name}({", ".join(given)}, cudaStream_t stream)'
    return f"{head} {{\n  {allow}\n  {start}\n  return cudaGetLastError();\n}}"


def times(calls: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Medians in ms, all in turns, from a cold L2."""
    cold = torch.empty(64 << 20, device="cuda")
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for round_ in range(ROUNDS + 3):
        for name, call in calls.items():
            cold.zero_()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            call()
            end.record()
            torch.cuda.synchronize()
            if round_ >= 3:
                taken[name].append(start.elapsed_time(end))
    return {name: statistics.median(found) for name, found in taken.items()}


def library(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor, tf32: bool) -> Callable[[], None]:
    """PyTorch's product."""

    def call() -> None:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.mm(left, right, out=out)

    return call


def measured(shape: tuple[int, int, int], direction: str, product: Product, ours: Any) -> dict[str, Any]:
    """One product by all."""
    rows, depth, columns = shape
    tensors = {
        "x": torch.randn(rows, depth, device="cuda"),
        "w": torch.randn(columns, depth, device="cuda"),
        "g": torch.randn(rows, columns, device="cuda"),
    }
    x, w, g = tensors.values()
    left, right = {
        "forward": (x, w.t()), "gradient of the input": (g, w), "gradient of the weight": (g.t(), x),
    }[direction]  # fmt: skip
    results = {name: left.new_full((left.shape[0], right.shape[1]), float("nan")) for name in ("ours", "fp32", "tf32")}
    calls = {"ours": ours({**tensors, product.result: results["ours"]})}
    calls |= {name: library(left, right, results[name], name == "tf32") for name in ("fp32", "tf32")}
    taken = times(calls)
    right_one = left.double() @ right.double()
    rms = right_one.pow(2).mean().sqrt()
    rows_of = {}
    for name, result in results.items():
        difference = result.double() - right_one
        rows_of[name] = {
            "ms": taken[name],
            "tflops": product.flops / taken[name] / 1e9,
            "relative_l2": float(difference.norm() / right_one.norm()),
            "largest_over_rms": float(difference.abs().max() / rms),
        }
    division = divided(product, H200)
    return {
        "shape": shape, "direction": direction, "parts": division.parts, "estimated_clocks": division.clocks,
        "taken": is_faster(product, H200), "results": rows_of,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    file = parser.parse_args().file
    torch.manual_seed(0)
    work = [(shape, direction, product) for shape in SHAPES for direction, product in products(shape).items()]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(16) as pool:
        made = list(pool.map(lambda item: built(Path(folder), item[0], item[1][2]), enumerate(work)))
        rows = [measured(*item, ours) for item, ours in zip(work, made, strict=True)]
    record = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "products": rows}
    file.write_text(json.dumps(record, indent=1))
    for row in rows:
        found = row["results"]
        print(f"{row['shape']!s:22} {row['direction']:23} parts {row['parts']:2} taken {row['taken']!s:5} "
              f"ours {found['ours']['ms']:.3f} fp32 {found['fp32']['ms']:.3f} tf32 {found['tf32']['ms']:.3f} "
              f"x{found['fp32']['ms'] / found['ours']['ms']:.2f} {found['ours']['tflops']:5.1f} TFLOP/s "
              f"err {found['ours']['relative_l2']:.2g}/{found['fp32']['relative_l2']:.2g}")  # fmt: skip


if __name__ == "__main__":
    main()
