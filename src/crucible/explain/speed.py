"""Findings about what takes the time. Only of candidates that passed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from math import prod

from crucible.emulator.trace import Line, Trace
from crucible.explain.source import python_line
from crucible.explain.words import listed, size_of
from crucible.gpus import find_gpu
from crucible.judge.verdict.evidence import Costs, Finding, Kernel, Measured
from crucible.judge.verdict.verdict import Verdict
from crucible.legible import counted
from crucible.roofline import Floor
from crucible.run import Run, tied

_LAYOUT = re.compile(
    r"nchwToNhwc|nhwcToNchw|convertTensor|transpose_readWrite|direct_copy_kernel|CatArray|copy_device_to_device"
    r"|Memcpy DtoD",
    re.IGNORECASE,
)
"""Kernels of PyTorch and cuDNN that only bring data into another order or place."""
_FILL = re.compile(r"FillFunctor|fill_kernel|Memset", re.IGNORECASE)
NEAR_FLOOR = 0.8
"""Share of the floor from which on nothing is asked."""
LARGE_GAP = 0.1
"""Of the time, in which no kernel runs."""
LARGE_COPY = 0.05
"""Of the time, in kernels that only move data."""
LOW_OCCUPANCY = 0.5
WASTED = 2.0
"""Times the sectors or wavefronts that would do."""
LARGE_PART = 0.1
"""Of all accesses, for a line to count."""
WORTH_SPLITTING = 1 << 20
"""Bytes that a launch asks for: less is done before more blocks would help."""
CONTENDED = 1024
"""Atomic operations on one address in a launch."""


def distance_from_floor(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """How far it is from the least time, and what the time beyond it goes into."""
    timing, floor = verdict.timing, _floor(verdict, run)
    if not verdict.evaluation or not isinstance(timing, Measured) or floor is None or not floor.time_ms:
        return
    times = timing.median_ms / floor.time_ms
    if 1 / times >= NEAR_FLOOR:
        return
    beyond = timing.median_ms - floor.time_ms
    parts = _split(verdict, timing)
    rates = _rates(floor, timing)
    words = "; ".join(f"{name} {ms:.3g} ms" for name, ms in parts)
    yield Finding(
        f"it takes {times:.3g} times the least time, which {floor.limited_by} set{'s' if _single(floor) else ''}",
        f"{timing.median_ms:.4g} ms; floor {floor.words}{rates}" + (f"; its time: {words}" if words else ""),
        f"{beyond:.3g} ms are left to gain" + (f", most of it in {parts[0][0]}" if parts else ""),
    )


def behind_the_best(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """What the best candidate does differently, in numbers."""
    if not verdict.evaluation or run.best in (None, verdict.candidate) or not isinstance(verdict.timing, Measured):
        return
    best = run.verdict(run.best or "")
    if tied(best, verdict) or not isinstance(best.timing, Measured):
        return
    times = verdict.timing.median_ms / best.timing.median_ms
    mine, its = verdict.costs, best.costs
    differences = _differences(mine, its) if isinstance(mine, Costs) and isinstance(its, Costs) else []
    yield Finding(
        f"it takes {times:.3g} times as long as the best, {best.candidate}"
        + (f": {differences[0]}" if differences else ""),
        f"{verdict.timing.median_ms:.4g} ms against {best.timing.median_ms:.4g} ms"
        + (f"; {'; '.join(differences)}" if differences else ""),
        f"do as {best.candidate} does: {verdict.timing.median_ms - best.timing.median_ms:.3g} ms",
    )


def launch_gaps(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """Time in which no kernel runs, or that a CUDA graph saves."""
    costs, timing = verdict.costs, verdict.timing
    if not verdict.evaluation or not isinstance(costs, Costs) or not isinstance(timing, Measured) or not costs.kernels:
        return
    replay = next(
        (
            t
            for t in verdict.further
            if isinstance(t, Measured) and (t.how, t.covers) == ("graph replay", timing.covers)
        ),
        None,
    )
    saved = timing.median_ms - replay.median_ms if replay else costs.span_ms - costs.busy_ms
    if timing.median_ms and saved / timing.median_ms >= LARGE_GAP:
        how = (
            f"a graph replay takes {replay.median_ms:.4g} ms" if replay else f"kernels run {costs.busy_ms:.4g} ms of it"
        )
        yield Finding(
            f"{saved / timing.median_ms:.0%} of its time goes into launches, not into kernels",
            f"{counted(costs.launches, 'launch')} in {timing.median_ms:.4g} ms; {how}",
            f"launch fewer kernels, or capture them in a CUDA graph: {saved:.3g} ms",
        )


def layout_copies(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """Kernels that only bring data into another order."""
    costs = verdict.costs
    if not verdict.evaluation or not isinstance(costs, Costs) or not costs.busy_ms:
        return
    copies = [kernel for kernel in costs.kernels if _LAYOUT.search(kernel.name)]
    spent = sum(kernel.time_ms for kernel in copies)
    if spent / costs.busy_ms >= LARGE_COPY:
        yield Finding(
            f"{spent / costs.busy_ms:.0%} of its time goes into copies that change the layout",
            "; ".join(_of_kernel(kernel, costs) for kernel in copies[:3]),
            f"keep one layout (channels_last) through the chain, leave out .contiguous(): {spent:.3g} ms",
            kernel=copies[0].name,
        )


def dominant_kernel(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """The kernel with most of the time, where there are several."""
    costs = verdict.costs
    if not verdict.evaluation or not isinstance(costs, Costs) or len(costs.kernels) < 2 or not costs.busy_ms:
        return
    top = max(costs.kernels, key=lambda kernel: kernel.time_ms)
    if top.time_ms / costs.busy_ms >= 0.5:
        yield Finding(
            f"one kernel of {len(costs.kernels)} takes {top.time_ms / costs.busy_ms:.0%} of the kernels' time",
            "; ".join(_of_kernel(kernel, costs) for kernel in costs.kernels[:3]),
            f"look there first: {top.time_ms:.3g} of {costs.busy_ms:.3g} ms",
            kernel=top.name,
        )


def spills(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """Registers that go to memory and back."""
    for one in verdict.resources:
        if verdict.evaluation and one.spills:
            amount = one.spill_load_bytes + one.spill_store_bytes
            yield Finding(
                f"`{one.kernel}` spills registers",
                one.words,
                f"keep fewer values alive, or allow more registers by smaller blocks: {amount} bytes a thread",
                kernel=one.kernel,
            )


def low_occupancy(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """Kernels of which few warps fit on a multiprocessor."""
    remedies = {
        "registers": "keep fewer values alive, or set __launch_bounds__",
        "shared memory": "make the tile smaller",
        "threads": "take blocks whose size divides the multiprocessor's threads",
        "blocks": "take larger blocks",
    }
    for one in verdict.resources:
        if verdict.evaluation and one.occupancy < LOW_OCCUPANCY:
            yield Finding(
                f"`{one.kernel}` fills {one.occupancy:.0%} of a multiprocessor's warps, limited by {one.limited_by}",
                one.words,
                f"{remedies.get(one.limited_by, 'look at its launch')}; occupancy is {one.occupancy:.0%}",
                "possible",
                kernel=one.kernel,
            )


def scattered_accesses(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """Lines whose warps touch many more sectors of memory than their bytes fill."""
    for line, part in _costly(verdict, "global"):
        if line.ideal_sectors and line.sectors >= WASTED * line.ideal_sectors and line.operation != "atomic":
            yield Finding(
                f"`{line.kernel}` {line.operation}s {line.sectors / line.ideal_sectors:.3g} times the memory that it "
                "needs: lanes of a warp are not side by side",
                f"{_place(verdict, run, line)}: {counted(line.sectors, 'sector')} of 32 bytes where "
                f"{line.ideal_sectors} would do, {counted(line.requests, 'request')}, {part:.0%} of all its accesses' "
                "cost",
                "let consecutive threads take consecutive elements, or go through shared memory: "
                f"{line.sectors} sectors to {line.ideal_sectors}",
                "likely",
                python_line(run.sources.get(verdict.candidate, ""), line.file, line.line),
                line.kernel,
            )


def bank_conflicts(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """Lines whose lanes want different words of one bank."""
    for line, part in _costly(verdict, "shared"):
        if line.ideal_wavefronts and line.wavefronts >= WASTED * line.ideal_wavefronts:
            yield Finding(
                f"`{line.kernel}` has {line.worst_ways}-way bank conflicts",
                f"{_place(verdict, run, line)}: {counted(line.wavefronts, 'wavefront')} where "
                f"{line.ideal_wavefronts} would do, {part:.0%} of all its accesses' cost",
                "pad the rows by one element, or swizzle the index: "
                f"{line.wavefronts} wavefronts to {line.ideal_wavefronts}",
                "likely",
                python_line(run.sources.get(verdict.candidate, ""), line.file, line.line),
                line.kernel,
            )


def contended_atomics(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """Lines whose atomic operations meet at few addresses."""
    trace = verdict.accesses
    for line in trace.lines if isinstance(trace, Trace) and verdict.evaluation else ():
        if line.operation == "atomic" and line.space == "global" and line.worst_on_address >= CONTENDED:
            yield Finding(
                f"`{line.kernel}` has {line.worst_on_address} atomic operations on one address",
                f"{_place(verdict, run, line)}: {line.atomics} in the blocks that were followed, up to "
                f"{line.worst_in_warp} of a warp at one address",
                "reduce within the warp and the block first, then one atomic operation a block: "
                f"{line.worst_on_address} on one address",
                "likely",
                python_line(run.sources.get(verdict.candidate, ""), line.file, line.line),
                line.kernel,
            )


def small_grids(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """Launches with fewer blocks than the GPU has multiprocessors, at the task's own size."""
    trace, gpu = verdict.accesses, find_gpu(run.gpu or run.device.name)
    if not verdict.evaluation or not isinstance(trace, Trace) or gpu is None or run.task.scale != "full":
        return
    for launch in trace.launches:
        blocks = prod(launch.grid)
        asked = sum(line.bytes for line in trace.lines if line.kernel == launch.kernel) / launch.share
        if blocks < gpu.sms and asked / launch.count >= WORTH_SPLITTING:
            yield Finding(
                f"`{launch.kernel}` is launched with fewer blocks than the GPU has multiprocessors",
                f"{counted(blocks, 'block')} of {counted(prod(launch.block), 'thread')}; {gpu.name} has {gpu.sms} "
                "multiprocessors",
                f"split the work over more blocks: {blocks} of {gpu.sms} multiprocessors work",
                "likely",
                kernel=launch.kernel,
            )


FINDERS: tuple[Callable[[Verdict, Run], Iterable[Finding]], ...] = (
    behind_the_best,
    distance_from_floor,
    layout_copies,
    launch_gaps,
    dominant_kernel,
    scattered_accesses,
    bank_conflicts,
    contended_atomics,
    spills,
    small_grids,
    low_occupancy,
)
"""What explains most comes first."""


def _floor(verdict: Verdict, run: Run) -> Floor | None:
    timing = verdict.timing
    if not isinstance(timing, Measured):
        return None
    return next((floor for floor in run.ground.floors if floor.covers == timing.covers), None)


def _single(floor: Floor) -> bool:
    return not floor.limited_by.endswith("s")


def _rates(floor: Floor, timing: Measured) -> str:
    """What it reaches of bandwidth and matrix rate, counting only what cannot be avoided."""
    seconds = timing.median_ms * 1e-3
    words = [f"{size_of(floor.bytes_moved / seconds)}/s of needed bytes"] if floor.bytes_moved else []
    words += [f"{floor.matrix_flops / seconds / 1e12:.3g} TFLOP/s of matrix products"] if floor.matrix_flops else []
    return f"; it reaches {' and '.join(words)}" if words else ""


def _split(verdict: Verdict, timing: Measured) -> list[tuple[str, float]]:
    """Its time by cause, largest first: layout copies, fills, no kernel at all, then kernels by name."""
    costs = verdict.costs
    if not isinstance(costs, Costs) or not costs.kernels:
        return []
    parts: dict[str, float] = {}
    for kernel in costs.kernels:
        kind = (
            "layout copies"
            if _LAYOUT.search(kernel.name)
            else "fills"
            if _FILL.search(kernel.name)
            else kernel.name[:60]
        )
        parts[kind] = parts.get(kind, 0.0) + kernel.time_ms
    idle = max(0.0, timing.median_ms - costs.busy_ms)
    if idle > 0.02 * timing.median_ms:
        parts["gaps between kernels"] = idle
    return sorted(parts.items(), key=lambda part: -part[1])[:4]


def _differences(mine: Costs, its: Costs) -> list[str]:
    """Where two candidates' costs differ, the plainest first."""
    copies = [sum(k.time_ms for k in costs.kernels if _LAYOUT.search(k.name)) for costs in (mine, its)]
    rows = [
        (
            copies[0] - copies[1] > LARGE_COPY * mine.busy_ms,
            f"{copies[0]:.3g} ms of layout copies instead of {copies[1]:.3g}",
        ),
        (
            mine.launches != its.launches and bool(mine.kernels),
            f"{counted(mine.launches, 'kernel')} instead of {its.launches}",
        ),
        (mine.busy_ms > 1.05 * its.busy_ms, f"{mine.busy_ms:.3g} ms of kernels instead of {its.busy_ms:.3g}"),
        (
            mine.peak_bytes > 1.1 * its.peak_bytes,
            f"{size_of(mine.peak_bytes)} at its peak instead of {size_of(its.peak_bytes)}",
        ),
        (mine.allocations > its.allocations, f"{counted(mine.allocations, 'allocation')} instead of {its.allocations}"),
    ]
    return [words for differs, words in rows if differs]


def _costly(verdict: Verdict, space: str) -> list[tuple[Line, float]]:
    """Lines with a fair part of all accesses' cost, with that part."""
    trace = verdict.accesses
    if not isinstance(trace, Trace) or not verdict.evaluation:
        return []
    total = sum(line.cost for line in trace.lines) or 1
    return [(ln, ln.cost / total) for ln in trace.lines if ln.space == space and ln.cost / total >= LARGE_PART]


def _place(verdict: Verdict, run: Run, line: Line) -> str:
    own = python_line(run.sources.get(verdict.candidate, ""), line.file, line.line)
    return f"line {own}" if own else listed([f"{line.file}:{line.line}"])


def _of_kernel(kernel: Kernel, costs: Costs) -> str:
    launches, share = counted(kernel.count, "launch"), kernel.time_ms / costs.busy_ms
    return f"{kernel.name[:80]}: {kernel.time_ms:.3g} ms in {launches}, {share:.0%}"
