"""What one call takes beside time, by PyTorch's own profiler: kernels, streams, allocations, memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.profiler import profile

MOST_KERNELS = 30
"""Distinct kernels told of, the longest first."""
_now = time.perf_counter
_NAME_LENGTH = 200
_NOT_KERNELS = ("Memcpy", "Memset", "[memory]")


def profile_call(step: Callable[[], Any], device: torch.device) -> dict[str, Any]:
    """Profiles one call of `step` (the second of two: the profiler's own first use costs a second).

    Returns `peak_bytes`, `allocations`, `kernels` as [name, count, ms], `busy_ms`, `span_ms` and
    `streams`; of a CPU `operators` like kernels, `operators_ms` and `call_ms`. Raises RuntimeError
    where the profiler is not allowed.
    """
    cuda = device.type == "cuda"
    for _ in range(2):
        # What torch.profiler.profile wraps; that one looks for Inductor and a process group first, which takes 0.6 s.
        with profile(use_device="cuda" if cuda else None, use_kineto=True, profile_memory=True) as profiler:
            start = _now()
            step()
            call_s = _now() - start
            if cuda:
                torch.cuda.synchronize()
    if profiler.kineto_results is None:
        raise RuntimeError("the profiler recorded nothing")
    events = profiler.kineto_results.events()
    ran = {**_kernels(events), **_NO_OPERATORS} if cuda else {**_NO_KERNELS, **_operators(events, call_s * 1e3)}
    return {**_memory(events, cuda), **ran}


_NO_OPERATORS: dict[str, Any] = {"operators": [], "operators_ms": 0.0, "call_ms": 0.0}
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
    spans = _spans(on_device)
    start, end = spans[0][0], max(last for _, last in spans)
    return {
        "kernels": _by_time(on_device),
        "busy_ms": _covered(spans) / 1e6,
        "span_ms": (end - start) / 1e6,
        "streams": len({e.device_resource_id() for e in on_device}),
    }


def _operators(events: list[Any], call_ms: float) -> dict[str, Any]:
    """PyTorch's operators that were asked for by others than its own operators."""
    asked: list[Any] = []
    reached: dict[int, int] = {}
    for event in sorted((e for e in events if e.name().startswith("aten::")), key=lambda e: e.start_ns()):
        thread = event.start_thread_id()
        if event.start_ns() >= reached.get(thread, 0):
            asked.append(event)
            reached[thread] = event.start_ns() + event.duration_ns()
    return {"operators": _by_time(asked), "operators_ms": _covered(_spans(asked)) / 1e6, "call_ms": call_ms}


def _by_time(events: list[Any]) -> list[list[Any]]:
    """[name, count, ms], the longest first."""
    times: dict[str, list[float]] = {}
    for event in events:
        times.setdefault(event.name()[:_NAME_LENGTH], []).append(event.duration_ns() / 1e6)
    by_time = sorted(times.items(), key=lambda item: -sum(item[1]))
    rest = [ms for _, some in by_time[MOST_KERNELS:] for ms in some]
    longest = by_time[:MOST_KERNELS] + ([("all others", rest)] if rest else [])
    return [[name, len(ms), sum(ms)] for name, ms in longest]


def _spans(events: list[Any]) -> list[tuple[int, int]]:
    return sorted((e.start_ns(), e.start_ns() + e.duration_ns()) for e in events)


def _covered(spans: list[tuple[int, int]]) -> int:
    """What sorted intervals cover together."""
    covered, reached = 0, 0
    for start, end in spans:
        covered += max(0, end - max(start, reached))
        reached = max(reached, end)
    return covered
