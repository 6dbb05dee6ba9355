"""The kernels of one call, with their share of its time."""

from __future__ import annotations

import re
from dataclasses import dataclass

from crucible.judge.verdict.evidence import Costs, NotMeasured

HUES = 6
"""Colours in the style sheet; later kernels are grey."""
_WORDS = re.compile(r"[A-Za-z_~]\w*")
_LONGEST = 60
_GENERAL = re.compile(r"elementwise_kernel|reduce_kernel")
_INNER = re.compile(r"\w*(?:[Ff]unctor|[Kk]ernel|launch_clamp)\w*")
_WRAPPERS = re.compile(r"gpu_kernel_impl|elementwise_kernel|reduce_kernel|^[ABU]+naryFunctor|BinaryFunctor")


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


def short(name: str) -> str:
    """`softmax_kernel` of `void ns::(anonymous namespace)::softmax_kernel<float, 4>(float*, int)`.

    PyTorch's elementwise kernels are told apart by what they compute: `elementwise_kernel: direct_copy_kernel_cuda`.
    """
    outer = _without_brackets(name.replace("(anonymous namespace)::", ""))
    words = _WORDS.findall(outer)
    last = words[-1] if words else name
    inner = [word for word in _INNER.findall(name) if not _WRAPPERS.search(word)] if _GENERAL.search(last) else []
    text = f"{last}: {inner[0]}" if inner else last
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _without_brackets(text: str) -> str:
    """What is outside of <> and (), up to the parameters."""
    depth, kept = 0, []
    for mark in text:
        if mark == "(" and depth == 0:
            break
        depth += (mark == "<") - (mark == ">")
        if depth <= 0 and mark != ">":
            kept.append(mark)
    return "".join(kept)
