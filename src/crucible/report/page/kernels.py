"""The kernels of one call, with their share of its time."""

from __future__ import annotations

from dataclasses import dataclass

from crucible.judge.verdict.evidence import Costs, NotMeasured
from crucible.judge.verdict.kernel_names import short

HUES = 6
"""Colours in the style sheet; later kernels are grey."""


@dataclass(frozen=True)
class Part:
    """A kernel, or the time in which none ran."""

    name: str
    """Short: without namespaces, template arguments and parameters."""
    full: str
    """As the profiler has it; empty for the time in which none ran."""
    count: int
    time_ms: float
    share: float
    start: float
    """Percent of the bar before it."""
    width: float
    """Percent of the bar."""
    hue: str
    """The style's class."""


@dataclass(frozen=True)
class Timeline:
    """One call, in the order of time taken; the profiler keeps no order of launches."""

    parts: tuple[Part, ...]
    busy_ms: float
    span_ms: float
    streams: int


def timeline(costs: Costs | NotMeasured) -> Timeline | None:
    """None where no kernels were seen."""
    if not isinstance(costs, Costs) or not costs.kernels:
        return None
    kernels = sorted(costs.kernels, key=lambda kernel: -kernel.time_ms)
    idle = max(0.0, costs.span_ms - costs.busy_ms)
    rows = [(short(kernel.name), kernel.name, kernel.count, kernel.time_ms) for kernel in kernels]
    rows += [("no kernel", "", 0, idle)] if idle > 0 else []
    total = sum(time for *_, time in rows) or 1.0
    parts, start = [], 0.0
    for i, (name, full, count, time) in enumerate(rows):
        width = 100 * time / total
        hue = f"k{i}" if full and i < HUES else "rest" if full else "idle"
        parts.append(Part(name, full, count, time, time / total, round(start, 3), round(width, 3), hue))
        start += width
    return Timeline(tuple(parts), costs.busy_ms, costs.span_ms, costs.streams)
