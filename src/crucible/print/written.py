"""Kernels: CUDA C++ functions, and how they are launched. What kinds make of problems."""

from __future__ import annotations

from dataclasses import dataclass

from crucible.algebra.buffer import Buffer

BLOCK = "§"
"""In lines of an `Entry`: which block this is."""


@dataclass(frozen=True)
class Entry:
    """A kernel's function by its parts, which another kernel may do beside its own work."""

    parameters: tuple[tuple[str, str], ...]
    """Types and names."""
    body: tuple[str, ...]
    """Its lines."""
    before: tuple[str, ...] = ()
    """Lines of notes and of functions of its own."""
    asks_elsewhere: bool = False
    """Whether another function than this one asks which block it is."""
    has_shared: bool = False
    """Whether it, or what it calls, has static shared memory."""
    opening: str = "\n        "
    """Before the first parameter."""
    between: str = ", "
    """Two parameters."""
    bounds: str = ""
    """Of its launch, beside threads."""

    @property
    def asks(self) -> bool:
        """Whether it matters which block it is."""
        return self.asks_elsewhere or any(BLOCK in line for line in self.body)


@dataclass(frozen=True)
class Kernel:
    """One `__global__` function and its launch, sizes built in."""

    name: str
    """Of the function; a C++ identifier."""
    text: str
    """The whole function."""
    preamble: tuple[str, ...]
    """Includes and `__device__` functions that it calls, each whole; a file holds each text once, in this order."""
    reads: tuple[str, ...]
    """The tensors and buffers that it takes as `const T* __restrict__`, by name, in the order of its parameters."""
    writes: tuple[str, ...]
    """Those that it takes as `T* __restrict__`, after the ones it reads."""
    grid: tuple[int, int, int]
    """Blocks; within the hardware's limits (2^31 - 1, 65535, 65535), and nothing is launched where one is 0."""
    threads: int
    """Of a block, along x."""
    shared_bytes: int = 0
    """Dynamic shared memory."""
    architecture: str = ""
    """`sm_90a` where it uses what that architecture alone has; empty where any from sm_80 on will do."""
    is_light: bool = False
    """Whether it needs a few registers and no shared memory, so that it takes nothing from a kernel beside it."""
    entry: Entry | None = None
    """Its function, where another kernel may do it as well."""


@dataclass(frozen=True)
class Lowered:
    """A computation as kernels, launched in this order on one stream."""

    kernels: tuple[Kernel, ...]
    buffers: tuple[Buffer, ...] = ()
    """Written by one kernel and read by a later one; nothing outside sees them."""
    notes: tuple[str, ...] = ()
    """How the work was laid out and why, for the header of the emitted file."""
