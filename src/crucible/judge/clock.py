"""The clock inside a candidate's process: samples of one step, cold cache, in milliseconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

MIN_SAMPLES, MAX_SAMPLES = 5, 100
WARMUP = 3
FLUSH_BYTES = 256 << 20
"""Written before each GPU sample: over four times the H200's 60 MB of L2."""

# Bound here, before any candidate is imported.
_cpu_time = time.process_time
_wall_time = time.monotonic


def sample(
    step: Callable[[], Any], refresh: Callable[[int], None], device: torch.device, limit_s: float
) -> tuple[list[float], Any]:
    """Times `step` until MAX_SAMPLES, or until `limit_s` has passed and there are MIN_SAMPLES.

    `refresh(i)` puts new contents in place before each sample, outside of its time; `refresh(0)` before the last.
    Returns the samples in milliseconds and what the last step gave.
    """
    for i in range(WARMUP):
        refresh(-1 - i)
        step()
    once = _cuda_sampler(device) if device.type == "cuda" else _cpu_sample
    deadline = _wall_time() + limit_s
    samples: list[float] = []
    last = False
    while not last:
        late = len(samples) + 1 >= MAX_SAMPLES or _wall_time() >= deadline
        last = late and len(samples) + 1 >= MIN_SAMPLES
        refresh(0 if last else len(samples) + 1)
        time_ms, result = once(step)
        samples.append(time_ms)
    return samples, result


def _cpu_sample(step: Callable[[], Any]) -> tuple[float, Any]:
    start = _cpu_time()
    result = step()
    return (_cpu_time() - start) * 1e3, result


def _cuda_sampler(device: torch.device) -> Callable[[Callable[[], Any]], tuple[float, Any]]:
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=device)
    synchronize, event = torch.cuda.synchronize, torch.cuda.Event

    def once(step: Callable[[], Any]) -> tuple[float, Any]:
        flush.fill_(1)
        start, end = event(enable_timing=True), event(enable_timing=True)
        synchronize()
        start.record()
        result = step()
        end.record()
        synchronize()
        return float(start.elapsed_time(end)), result

    return once
