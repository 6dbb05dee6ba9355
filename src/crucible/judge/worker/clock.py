"""The clock inside a candidate's process: one sample of one step, from a cold cache, by two clocks at once."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

FLUSH_CACHES = 4
"""The flush writes this many times the L2's size: hashed sets and kept-back lines survive a single pass."""
CPU_CACHE_BYTES = 32 << 20
"""Where the system does not name its last cache; also the most that is written over on a CPU (6 ms a sample)."""
_PERSISTING_L2_LIMIT = 6  # cudaLimitPersistingL2CacheSize, driver_types.h

# Bound here, before any candidate is imported.
_cpu_time = time.process_time
_wall_time = time.perf_counter


@dataclass(frozen=True)
class Sample:
    """One call of a step, in milliseconds."""

    device_ms: float
    """By CUDA events around it on the current stream; processor time of the process on a CPU."""
    wall_ms: float
    """Until the whole device was idle again, every stream of it; on a GPU the flush before it is in."""
    result: Any


Sampler = Callable[[Callable[[], Any]], Sample]


def sampler(device: torch.device) -> Sampler:
    """What takes a sample on this device, each with caches written over first."""
    return _cuda_sampler(device) if device.type == "cuda" else _cpu_sampler()


def _cpu_sampler() -> Sampler:
    flush = _flush()

    def once(step: Callable[[], Any]) -> Sample:
        flush.fill_(1)
        wall, cpu = _wall_time(), _cpu_time()
        result = step()
        cpu_ms = (_cpu_time() - cpu) * 1e3
        return Sample(cpu_ms, (_wall_time() - wall) * 1e3, result)

    return once


@functools.cache
def _flush() -> torch.Tensor:
    """What is written to, once for all steps of a process: in pages of 2 MiB, as 8,192 small ones take 18 ms to get, a
    tenth of what a tiny candidate costs."""
    room = mmap.mmap(-1, _last_cache_bytes(), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without them
        room.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(room, dtype=torch.uint8)


def _cuda_sampler(device: torch.device) -> Sampler:
    cache_bytes = torch.cuda.get_device_properties(device).L2_cache_size
    flush = torch.empty(FLUSH_CACHES * cache_bytes, dtype=torch.uint8, device=device)
    synchronize, event = torch.cuda.synchronize, torch.cuda.Event
    forget_persisting = _persisting_reset()

    def once(step: Callable[[], Any]) -> Sample:
        forget_persisting()
        start, end = event(enable_timing=True), event(enable_timing=True)
        synchronize()
        wall = _wall_time()
        flush.fill_(1)  # in front of the first event, so that launching hides behind it as it does in a busy stream
        start.record()
        result = step()
        end.record()
        synchronize()
        wall_ms = (_wall_time() - wall) * 1e3
        return Sample(float(start.elapsed_time(end)), wall_ms, result)

    return once


def _persisting_reset() -> Callable[[], None]:
    """Sends lines that a candidate pinned in L2 back to the ordinary, and takes the carve-out away (6 µs, H200)."""
    libraries = cuda_runtimes()

    def reset() -> None:
        for library in libraries:
            library.cudaDeviceSetLimit(_PERSISTING_L2_LIMIT, ctypes.c_size_t(0))
            library.cudaCtxResetPersistingL2Cache()

    return reset


def cuda_runtimes() -> list[ctypes.CDLL]:
    """The CUDA runtimes that this process has loaded."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = {line.split()[-1] for line in maps if "libcudart" in line}
    return [ctypes.CDLL(path) for path in sorted(paths)]


def _last_cache_bytes() -> int:
    """Size of the processor's last cache, as Linux names it."""
    sizes = []
    for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = file.read_text(encoding="ascii").strip()
        if text.endswith("K") and text[:-1].isdigit():
            sizes.append(int(text[:-1]) << 10)
    return min(max(sizes, default=CPU_CACHE_BYTES), CPU_CACHE_BYTES)
