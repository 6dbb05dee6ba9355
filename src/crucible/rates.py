"""How fast this device is: copy bandwidth and matrix rates, measured in about a second.

Each rate is the best of its samples: a floor asks what the device can do, not what it does on average.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict

import torch

from crucible import tf32
from crucible.hardware import find_device
from crucible.memory_errors import is_out_of_memory
from crucible.roofline import Rates

_COPY_BYTES = {"cuda": 1 << 30, "cpu": 256 << 20}
"""Many times the last cache: 60 MiB of L2 on an H200, copied at 4.25 TB/s."""
_LEAST_BYTES = 64 << 20
"""Copied on a CPU where there is less than a second: 256 MiB take 0.2 s of any limit. A GPU takes no time for all, and
would hold much of so little in its L2."""
_PATTERN_BYTES = 1 << 20
"""Random bytes that are repeated: 256 MiB of new ones take 0.2 s, and no memory looks that far for a repetition."""
_MATRIX_SIZES = {"cuda": (8192,), "cpu": (256, 512, 1024)}
"""Edge length of the product; on a CPU the best of three, since caches and cores differ so much."""
_SMALLEST = 64
_CALLS = 3
"""Of each product, the first one untimed."""


def measure(device: torch.device, limit_s: float = 1.0) -> Rates:
    """The rates of `device`, on random data, in about `limit_s` seconds after the first use of each library.

    Takes 2 GiB of a GPU's memory for the copy and 0.8 GiB for the products, less where that is not free. Where a
    precision has no units of its own (TF32 on a CPU), its rate is that of the next wider one.
    Raises torch.OutOfMemoryError, or MemoryError's kin on a CPU, when not even small tensors fit.
    """
    with _quiet(device):
        if device.type == "cuda":
            found = [_measure(device, limit_s)]
        else:
            # On two cores shared with two busy processes, two threads wait for each other: 0.3 GFLOP/s for a product
            # of 128, where one thread gives 100.
            numbers = {torch.get_num_threads(), 1}
            found = [_measure_with(threads, limit_s / len(numbers)) for threads in numbers]
    bandwidth, fp32, tf32, bf16 = (max(rates) for rates in zip(*found, strict=True))
    return Rates(bandwidth / 1e9, fp32 / 1e12, max(tf32, fp32) / 1e12, max(bf16, tf32, fp32) / 1e12, "measured here")


def main() -> None:
    """Prints the rates of the device named by the last argument (`auto`, `cuda` or `cpu`) as JSON."""
    print(json.dumps(asdict(measure(torch.device(find_device(sys.argv[-1]).kind)))))


def _measure(device: torch.device, limit_s: float) -> tuple[float, float, float, float]:
    """Bytes a second, and operations a second in fp32, TF32 and bfloat16."""
    share_s = limit_s / 4
    copied = _COPY_BYTES[device.type]
    if device.type == "cpu":
        copied = min(copied, max(_LEAST_BYTES, int(copied * limit_s)))
    bandwidth = _fitting(copied, lambda size: _copy_rate(device, size, share_s))
    fp32 = _matrix_rate(device, torch.float32, share_s)
    with tf32.allowed(True, True):
        rounded = _matrix_rate(device, torch.float32, share_s) if device.type == "cuda" else fp32
    return bandwidth, fp32, rounded, _matrix_rate(device, torch.bfloat16, share_s)


def _measure_with(threads: int, limit_s: float) -> tuple[float, float, float, float]:
    """`_measure` of the CPU with so many threads; PyTorch's number is put back."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return _measure(torch.device("cpu"), limit_s)
    finally:
        torch.set_num_threads(before)


def _copy_rate(device: torch.device, size_bytes: int, limit_s: float) -> float:
    """Bytes read and written a second."""
    pattern = torch.rand(min(size_bytes, _PATTERN_BYTES) // 4, device=device)
    source = pattern.repeat(size_bytes // _PATTERN_BYTES or 1)
    target = torch.empty_like(source)
    return 2 * size_bytes / _best_s(device, lambda: target.copy_(source), limit_s)


def _matrix_rate(device: torch.device, dtype: torch.dtype, limit_s: float) -> float:
    """Operations a second, the best over the sizes; larger ones are left out where they would take over `limit_s`.

    Some CPUs make products of bfloat16 at 1 GFLOP/s: 2.7 s for one of 1024, and a run took 27 s for its rates."""
    best = 0.0
    sizes = _MATRIX_SIZES[device.type]
    for size in sizes:
        if best and _CALLS * 2 * size**3 / best > limit_s:
            break
        best = max(best, _fitting(size, lambda n: _product_rate(device, dtype, n, limit_s / len(sizes))))
    return best


def _product_rate(device: torch.device, dtype: torch.dtype, size: int, limit_s: float) -> float:
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    return 2 * size**3 / _best_s(device, lambda: torch.mm(a, b, out=out), limit_s)


def _best_s(device: torch.device, action: Callable[[], object], limit_s: float) -> float:
    """Seconds of the fastest call after a first one; `_CALLS` at least."""
    action()
    best, count, end = float("inf"), 1, time.perf_counter() + limit_s
    while count < _CALLS or time.perf_counter() < end:
        best = min(best, _seconds(device, action))
        count += 1
    return best


def _seconds(device: torch.device, action: Callable[[], object]) -> float:
    if device.type != "cuda":
        start = time.perf_counter()
        action()
        return time.perf_counter() - start
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    before.record()
    action()
    after.record()
    after.synchronize()
    return float(before.elapsed_time(after)) / 1e3


def _fitting(size: int, rate: Callable[[int], float]) -> float:
    """`rate(size)`, or of half the size and so on while memory does not suffice."""
    while True:
        try:
            return rate(size)
        except (RuntimeError, MemoryError) as error:
            if size // 2 < _SMALLEST or not is_out_of_memory(error):
                raise
            size //= 2


@contextlib.contextmanager
def _quiet(device: torch.device) -> Iterator[None]:
    """On that device, without autograd, with TF32 off; everything is put back afterwards."""
    on_device = torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
    with torch.no_grad(), tf32.allowed(False, False), on_device:
        yield
