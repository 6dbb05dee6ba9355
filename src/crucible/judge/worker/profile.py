"""What one call takes beside time, by PyTorch's own profiler: kernels, streams, allocations, memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.profiler import profile

MOST_KERNELS = 30
"""Distinct kernels told of, the longest first."""
_NAME_LENGTH = 200
_NOT_KERNELS = ("Memcpy", "Memset", "[memory]")


def profile_call(step: Callable[[], Any], device: torch.device) -> dict[str, Any]:
    """Profiles one call of `step` (the second of two: the profiler's own first use costs a second).

    Returns `peak_bytes`, `allocations`, `kernels` as [name, count, ms], `busy_ms`, `span_ms` and
    `streams`. Raises RuntimeError
    where the profiler is not allowed.
    """
    cuda = device.type == "cuda"
    for _ in range(2):
        # What torch.profiler.profile wraps; that one looks for Inductor and a process group first, which takes 0.6 s.
        with profile(use_device="cuda" if cuda else None, use_kineto=True, profile_memory=True) as profiler:
            step()
            if cuda:
                torch.cuda.synchronize()
    if profiler.kineto_results is None:
        raise RuntimeError("the profiler recorded nothing")
    events = profiler.kineto_results.events()
    return {**_memory(events, cuda), **(_kernels(events) if cuda else _NO_KERNELS)}


_NO_KERNELS: dict[str, Any] = {"kernels": [], "busy_ms": 0.0, "span_ms": 0.0, "streams": 0}


def _memory(events: list[Any], cuda: bool) -> dict[str, Any]:
    """Allocations and the highest sum of what was held at a time."""
    kind = "CUDA" if cuda else "CPU"
    changes = sorted(
        (e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]" and str(e.device_type()).endswith(kind)
    )
    held = lowest = peak = 0
    for _, size in changes:
        held += size
        lowest = min(lowest, held)  # memory of an earlier call, given back first
        peak = max(peak, held - lowest)
    return {"peak_bytes": peak, "allocations": sum(size > 0 for _, size in changes)}


def _kernels(events: list[Any]) -> dict[str, Any]:
    on_device = [e for e in events if str(e.device_type()).endswith("CUDA") and not e.name().startswith(_NOT_KERNELS)]
    on_device = [e for e in on_device if e.duration_ns()]
    if not on_device:
        return _NO_KERNELS
    times: dict[str, list[float]] = {}
    for event in on_device:
        times.setdefault(event.name()[:_NAME_LENGTH], []).append(event.duration_ns() / 1e6)
    by_time = sorted(times.items(), key=lambda item: -sum(item[1]))
    rest = [ms for _, some in by_time[MOST_KERNELS:] for ms in some]
    longest = by_time[:MOST_KERNELS] + ([("all other kernels", rest)] if rest else [])
    spans = sorted((e.start_ns(), e.start_ns() + e.duration_ns()) for e in on_device)
    start, end = spans[0][0], max(last for _, last in spans)
    return {
        "kernels": [[name, len(ms), sum(ms)] for name, ms in longest],
        "busy_ms": _covered(spans) / 1e6,
        "span_ms": (end - start) / 1e6,
        "streams": len({e.device_resource_id() for e in on_device}),
    }


def _covered(spans: list[tuple[int, int]]) -> int:
    """What sorted intervals cover together."""
    covered, reached = 0, 0
    for start, end in spans:
        covered += max(0, end - max(start, reached))
        reached = max(reached, end)
    return covered
