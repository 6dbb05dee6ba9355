"""How long a GPU would take for what the emulator counted: the roofline model, kernel by kernel.

A launch takes as long as the slowest of three takes at the datasheet's rates: device memory (each sector that it
touches, once), load and store instructions (passes through L1 and shared memory, one a clock and multiprocessor),
matrix instructions; and 2 microseconds to be launched. Launches follow each other. PyTorch's operators read each
operand and write each result once. What is not counted: arithmetic outside of matrix instructions, latencies, too few
blocks to fill the GPU. So it is a least time; candidates whose counts differ can be told apart by it, others cannot.

The emulator runs small sizes. At the full size a kernel is taken to touch as much more memory as the reference moves
more, and to read again from caches, and multiply, as much more as the reference multiplies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from crucible.contract import Contract
from crucible.emulator.trace import Launch, Trace
from crucible.gpus import Gpu
from crucible.judge.verdict.modelled import Modelled, NotModelled, Part

SECTOR_BYTES = 32
LAUNCH_MS = 2e-3
"""Of a kernel behind another: 2 to 3 microseconds on an H200 (benchmarks/notes.md, Launches)."""
MOST_PARTS = 16


@dataclass(frozen=True)
class Growth:
    """How many times as much the reference does at its full size as at the size judged."""

    bytes_moved: float
    flops: float
    """Of matrix products; of all else where it has none."""


@dataclass(frozen=True)
class OperatorUse:
    """An operator of PyTorch's that ran beside the candidate's kernels."""

    name: str
    count: int
    bytes_moved: int
    matrix_flops: int


@dataclass(frozen=True)
class _Load:
    """What one kernel or operator asks for in all its launches, at the size that is modelled."""

    name: str
    launches: float
    bytes_moved: float
    wavefronts: float
    half_flops: float = 0.0
    tf32_flops: float = 0.0
    float64_flops: float = 0.0
    byte_flops: float = 0.0
    own: bool = True
    """Whether it is the candidate's."""

    @property
    def flops(self) -> float:
        return self.half_flops + self.tf32_flops + self.float64_flops + self.byte_flops


def model(
    trace: Trace,
    operators: Sequence[OperatorUse],
    growth: Growth | None,
    gpu: Gpu,
    contract: Contract,
    covers: str,
    most: int,
) -> Modelled | NotModelled:
    """The least time of a call; `most` launches are kept of a trace, so one that has as many may have had more."""
    if len(trace.launches) >= most:
        return NotModelled(f"it launches kernels in {most} shapes or more, which are not all counted")
    if not trace.launches and not operators:
        return NotModelled("nothing of what it ran was counted")
    if not all(_is_counted(launch) for launch in trace.launches):
        return NotModelled("a kernel ended early, so not all that it does was counted")
    by = growth or Growth(1.0, 1.0)
    loads = [_kernel(launch, by) for launch in trace.launches]
    loads += [_operator(one, by, contract) for one in operators]
    parts = _by_name(_part(load, gpu) for load in loads)
    return Modelled(
        sum(part.time_ms for part in parts),
        covers,
        gpu.name,
        "full size" if growth else "the size judged",
        sum(load.bytes_moved for load in loads),
        sum(load.flops for load in loads),
        sum(load.launches for load in loads),
        tuple(sorted(parts, key=lambda part: -part.time_ms)[:MOST_PARTS]),
    )


def _is_counted(launch: Launch) -> bool:
    return launch.count > 0 and launch.followed > 0 and prod(launch.grid) > 0


def _kernel(launch: Launch, growth: Growth) -> _Load:
    """All launches of one shape; what was dropped of an access counts as what was kept."""
    seen = 1 + launch.dropped / max(1, launch.accesses)
    sectors, wavefronts = (count * seen / launch.share for count in (launch.sectors, launch.l1_wavefronts))
    touched = launch.touched_sectors * launch.of_launches
    once = min(1.0, touched / sectors) if sectors else 0.0
    flops = launch.of_launches * growth.flops
    return _Load(
        launch.kernel,
        launch.count,
        touched * SECTOR_BYTES * growth.bytes_moved,
        wavefronts * (once * growth.bytes_moved + (1 - once) * growth.flops),
        launch.half_flops * flops,
        launch.tf32_flops * flops,
        launch.float64_flops * flops,
        launch.byte_flops * flops,
    )


def _operator(use: OperatorUse, growth: Growth, contract: Contract) -> _Load:
    """PyTorch multiplies in the contract's precision; three products of TF32 are as good as one of float32."""
    flops = use.matrix_flops * growth.flops
    halves, times = contract.operand_bits <= 7, 1 if contract.operand_bits <= 10 else 3
    moved = use.bytes_moved * growth.bytes_moved
    products = (flops, 0.0) if halves else (0.0, flops * times)
    return _Load(use.name, use.count, moved, 0.0, *products, own=False)


def _part(load: _Load, gpu: Gpu) -> Part:
    products = (
        load.half_flops / gpu.bf16_tflops
        + load.tf32_flops / gpu.tf32_tflops
        + load.float64_flops / (gpu.fp64_tensor_tflops or gpu.fp64_tflops)
        + load.byte_flops / (gpu.fp8_tflops or 2 * gpu.bf16_tflops)
    )
    needs = {
        "memory": load.bytes_moved / gpu.bandwidth_gb_s * 1e-6,
        "load and store instructions": load.wavefronts / (gpu.sms * gpu.clock_mhz) * 1e-3,
        "matrix products": products * 1e-9,
    }
    limit = max(needs, key=lambda name: needs[name])
    launching = load.launches * LAUNCH_MS
    limited_by = limit if needs[limit] > launching else "launching"
    return Part(load.name, load.launches, needs[limit] + launching, limited_by, load.own)


def _by_name(parts: Iterable[Part]) -> list[Part]:
    """One part a name, the candidate's apart from PyTorch's; what takes the longest says what limits it."""
    found: dict[tuple[str, bool], Part] = {}
    for part in parts:
        known = found.get((part.name, part.own))
        if known is None:
            found[part.name, part.own] = part
            continue
        limit = max(known, part, key=lambda one: one.time_ms).limited_by
        both = (known.launches + part.launches, known.time_ms + part.time_ms, limit, part.own)
        found[part.name, part.own] = Part(part.name, *both)
    return list(found.values())
