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


def sample(step: Callable[[], Any], device: torch.device, limit_s: float) -> list[float]:
    """Times `step` until MAX_SAMPLES, or until `limit_s` has passed and there are MIN_SAMPLES."""
    for _ in range(WARMUP):
        step()
    once = _cuda_sampler(device) if device.type == "cuda" else _cpu_sample
    deadline = _wall_time() + limit_s
    samples: list[float] = []
    while len(samples) < MIN_SAMPLES or (len(samples) < MAX_SAMPLES and _wall_time() < deadline):
        samples.append(once(step))
    return samples


def _cpu_sample(step: Callable[[], Any]) -> float:
    start = _cpu_time()
    step()
    return (_cpu_time() - start) * 1e3


def _cuda_sampler(device: torch.device) -> Callable[[Callable[[], Any]], float]:
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=device)
    synchronize, event = torch.cuda.synchronize, torch.cuda.Event

    def once(step: Callable[[], Any]) -> float:
        flush.fill_(1)
        start, end = event(enable_timing=True), event(enable_timing=True)
        synchronize()
        start.record()
        step()
        end.record()
        synchronize()
        return float(start.elapsed_time(end))

    return once
