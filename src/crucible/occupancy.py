"""How many blocks of a kernel fit on a multiprocessor at a time, and what stands in the way of more.

The rules are those of the CUDA toolkit's `cuda_occupancy.h`, for compute capabilities 8.0 to 10.0.
"""

from __future__ import annotations

from dataclasses import dataclass

from crucible.gpus import (
    MAX_REGISTERS_PER_THREAD,
    MAX_THREADS_PER_BLOCK,
    PARTITIONS,
    REGISTER_UNIT,
    SHARED_RESERVED_BYTES,
    SHARED_UNIT_BYTES,
    WARP,
    Gpu,
)


@dataclass(frozen=True)
class Occupancy:
    """What of a kernel is resident on one multiprocessor."""

    blocks: int
    """0: a GPU refuses the launch."""
    warps: int
    share: float
    """Of the warps that the multiprocessor can hold."""
    limited_by: str
    """`threads`, `blocks`, `registers` or `shared memory`; the first of them where several allow no more."""


def occupancy(gpu: Gpu, *, registers: int, shared_bytes: int, threads: int) -> Occupancy:
    """Blocks and warps a multiprocessor holds of a kernel.

    Args:
        registers: of one thread.
        shared_bytes: of one block, static and dynamic.
        threads: of one block.
    """
    warps = _units(threads, WARP)
    limits = {
        "threads": gpu.max_threads_per_sm // (warps * WARP) if threads <= MAX_THREADS_PER_BLOCK else 0,
        "blocks": gpu.max_blocks_per_sm,
        "registers": _by_registers(gpu, registers, warps),
        "shared memory": _by_shared_memory(gpu, shared_bytes),
    }
    limited_by = min(limits, key=lambda name: limits[name])
    blocks = limits[limited_by]
    return Occupancy(blocks, blocks * warps, blocks * warps * WARP / gpu.max_threads_per_sm, limited_by)


def _by_registers(gpu: Gpu, registers: int, warps: int) -> int:
    per_warp = max(1, _units(registers * WARP, REGISTER_UNIT)) * REGISTER_UNIT
    if registers > MAX_REGISTERS_PER_THREAD:
        return 0
    return gpu.registers_per_sm // PARTITIONS // per_warp * PARTITIONS // warps


def _by_shared_memory(gpu: Gpu, shared_bytes: int) -> int:
    if shared_bytes > gpu.shared_memory_per_block_bytes:
        return 0
    per_block = _units(shared_bytes + SHARED_RESERVED_BYTES, SHARED_UNIT_BYTES) * SHARED_UNIT_BYTES
    return gpu.shared_memory_per_sm_bytes // per_block


def _units(amount: int, unit: int) -> int:
    return -(-amount // unit)
