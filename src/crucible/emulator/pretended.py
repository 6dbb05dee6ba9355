"""The GPU that the runtime pretends to be: crucible/gpus.py's figures, laid out as headers/crucible/abi.h has them."""

from __future__ import annotations

import ctypes

from crucible.gpus import MAX_THREADS_PER_BLOCK, SHARED_RESERVED_BYTES, Gpu

_SIZES = ("memory_bytes", "l2_bytes", "shared_per_block", "shared_per_sm", "shared_reserved")
_NUMBERS = (
    *("major", "minor", "sms", "threads_per_sm", "blocks_per_sm", "threads_per_block"),
    *("registers_per_sm", "clock_khz", "memory_clock_khz", "bus_bits"),
)


class _Gpu(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char * 64),
        *((name, ctypes.c_uint64) for name in _SIZES),
        *((name, ctypes.c_int) for name in _NUMBERS),
    ]


def fill(runtime: ctypes.CDLL, gpu: Gpu) -> None:
    """Makes the loaded runtime answer, and refuse, as that GPU."""
    major, minor = gpu.compute_capability
    figures = {
        "name": gpu.name.encode(),
        "memory_bytes": gpu.memory_bytes,
        "l2_bytes": gpu.l2_bytes,
        "shared_per_block": gpu.shared_memory_per_block_bytes,
        "shared_per_sm": gpu.shared_memory_per_sm_bytes,
        "shared_reserved": SHARED_RESERVED_BYTES,
        "major": major,
        "minor": minor,
        "sms": gpu.sms,
        "threads_per_sm": gpu.max_threads_per_sm,
        "blocks_per_sm": gpu.max_blocks_per_sm,
        "threads_per_block": MAX_THREADS_PER_BLOCK,
        "registers_per_sm": gpu.registers_per_sm,
        "clock_khz": gpu.clock_mhz * 1000,
        "memory_clock_khz": gpu.memory_clock_mhz * 1000,
        "bus_bits": gpu.memory_bus_bits,
    }
    place = _Gpu.in_dll(runtime, "crucible_gpu")
    for name, value in figures.items():
        setattr(place, name, value)
