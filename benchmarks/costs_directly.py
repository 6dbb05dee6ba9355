"""What `costs.py` measures directly: kernels of `costs.cu`, copies and products that do the work of one field alone."""

from __future__ import annotations

import ctypes
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import instructions
import torch

from crucible.print.written import Kernel
from crucible.target import sm90

COMPILE = [
    "nvcc",
    "-gencode=arch=compute_90a,code=sm_90a",
    "-O3",
    "-std=c++17",
    "-shared",
    "-Xcompiler",
    "-fPIC",
    "-diag-suppress",
    "177,550",
]
WORDS = 1 << 28
"""Of 4 bytes: more than any L2 holds, many times."""
REGISTER_ROUNDS, UNROLLED = 512, 8
"""As in `costs.cu`."""
LAUNCHES, PASSES = 1000, 21


def launch(kernel: Kernel) -> str:
    """A function that launches a kernel, whatever its tensors' types."""
    given = ", ".join(f"&tensors[{k}]" for k in range(len(kernel.reads) + len(kernel.writes)))
    x, y, z = kernel.grid
    return f"""\
extern "C" int launch_{kernel.name}(void** tensors, cudaStream_t stream) {{
  const auto function = reinterpret_cast<const void*>({kernel.name});
  cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, {kernel.shared_bytes});
  void* given[] = {{{given}}};
  return cudaLaunchKernel(function, dim3({x}, {y}, {z}), dim3({kernel.threads}), given, {kernel.shared_bytes}, stream);
}}"""


def compiled(folder: Path, name: str, source: str) -> ctypes.CDLL:
    (folder / f"{name}.cu").write_text(source)
    library = folder / f"{name}.so"
    subprocess.run([*COMPILE, "-o", str(library), str(folder / f"{name}.cu")], check=True)
    return ctypes.CDLL(str(library))


def checked(error: int, name: str) -> None:
    if error:
        raise RuntimeError(f"{name}: CUDA error {error}")


def times(calls: Mapping[str, Callable[[], object]], rounds: int = 9) -> dict[str, float]:
    """Medians in ms, in turns, each from a cold L2."""
    cold = torch.empty(64 << 20, device="cuda")
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 2):
        for name, call in calls.items():
            cold.zero_()
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            call()
            end.record()
            torch.cuda.synchronize()
            if number >= 2:
                taken[name].append(begin.elapsed_time(end))
    return {name: statistics.median(each) for name, each in taken.items()}


def columns_source() -> str:
    """One `wgmma` of 256 columns after the other: `instructions.py` has it."""
    of = instructions
    way = of.Way(256, 1, shifted=False, registers=False)
    units = of.TAPS * of.STEPS * 128 + of.STEPS * 2 * (way.columns + of.PLACES[-1])
    parts = [*of.BEFORE, *sm90.wgmma(way.columns, rows="described").values()]
    kernel = Kernel(way.name, of.kernel(way), (), (), ("out", "clocks"), (of.BLOCKS, 1, 1), 128, 16 * units)
    text = ["#include <cuda_runtime.h>", "#include <cstdint>", *parts, kernel.text, launch(kernel)]
    return "\n".join(text).replace(f"launch_{way.name}", "columns")


def direct(sms: int) -> dict[str, float]:
    """By fields."""
    of = instructions
    with tempfile.TemporaryDirectory() as folder:
        library = compiled(Path(folder), "costs", (Path(__file__).parent / "costs.cu").read_text())
        columns = compiled(Path(folder), "columns", columns_source())
    clocks, out = torch.zeros(2 * sms, dtype=torch.int64, device="cuda"), torch.zeros(1 << 16, device="cuda")
    words = torch.zeros(WORDS, dtype=torch.int32, device="cuda")

    def stream() -> ctypes.c_void_p:
        return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

    def start(name: str, blocks: int, threads: int, count: int = WORDS, step: int = 1) -> None:
        given = [ctypes.c_void_p(each.data_ptr()) for each in (clocks, out, words)]
        more = (ctypes.c_longlong(count), ctypes.c_int(step), stream())
        checked(library.start(name.encode(), blocks, threads, *given, *more), name)

    def block_clocks(name: str, blocks: int, threads: int) -> float:
        start(name, blocks, threads)  # once to warm up
        start(name, blocks, threads)
        torch.cuda.synchronize()
        return float(clocks[:blocks].double().median())

    found, many = {}, REGISTER_ROUNDS * UNROLLED
    found["sm.issued"] = 1024 * many / block_clocks("fma_rate", sms, 1024)
    found["sm.shared_bytes"] = 1024 * 16 * many / block_clocks("shared_rate", sms, 1024)
    found["warps.product_clocks"] = block_clocks("mma_rate", sms, 256) / (8 * many)
    array = (ctypes.c_void_p * 2)(out.data_ptr(), clocks.data_ptr())
    for _ in range(2):
        checked(columns.columns(array, stream()), "columns")
    torch.cuda.synchronize()
    found["sm.column_clocks"] = float(clocks[:sms].double().median()) / (of.ROUNDS * of.TAPS * of.STEPS * 256)
    spun = block_clocks("clock_rate", sms, 1024)
    found["sm.ghz"] = spun / float(clocks[sms:].double().median())
    lines = torch.randperm(WORDS // 32, device="cuda") * 32  # a walk over lines of 128 bytes, each once
    words[lines] = lines.roll(-1).int()
    cold = torch.empty(WORDS // 4, device="cuda")
    start("latency", 1, 1)
    cold.zero_()  # or L2 holds the lines of the walk before
    start("latency", 1, 1)
    torch.cuda.synchronize()
    found["sm.load_clocks"] = float(clocks[0]) / REGISTER_ROUNDS
    floats = words.view(torch.float32)
    left, right = torch.randn(1024, 8192, device="cuda"), torch.randn(8192, 8192, device="cuda")
    torch.backends.cuda.matmul.allow_tf32 = False
    took = times({
        "copy": lambda: floats[: WORDS // 2].copy_(floats[WORDS // 2 :]),
        "read": lambda: start("read_words", 8 * sms, 256),
        "sparse": lambda: start("read_words", 8 * sms, 256, WORDS, 32),
        "launches": lambda: checked(library.start_nothing(LAUNCHES, stream()), "nothing"),
        "product": lambda: torch.mm(left, right),
        "cached": lambda: start("read_cached", 8 * sms, 256, 1 << 22, PASSES),
        "once": lambda: start("read_cached", 8 * sms, 256, 1 << 22, 1),
    })  # fmt: skip
    clock = found["sm.ghz"] * 1e6  # a millisecond
    copied = 4 * WORDS / (took["copy"] * clock)
    found |= {"sm.copied_bytes": copied / sms, "sm.all_bytes": copied}
    found["sm.piece_bytes"] = took["sparse"] / took["read"] * 4 * 32
    found["sm.l2_times"] = (took["read"] * (1 << 22) / WORDS) / ((took["cached"] - took["once"]) / (PASSES - 1))
    found["products.library_flops"] = 2 * 1024 * 8192 * 8192 / (took["product"] * clock)
    found["choices.launch_bytes"] = took["launches"] / LAUNCHES * clock * copied
    return found
