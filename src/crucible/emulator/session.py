"""The runtime in this process: what it saw, and how it is told to run."""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import json
import os
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from crucible.emulator import pretended, toolchain
from crucible.emulator.faults import Fault
from crucible.emulator.kernel_texts import plain
from crucible.emulator.nvcc import Compiled
from crucible.emulator.sources import Record, Sources
from crucible.emulator.toolchain import Toolchain
from crucible.emulator.trace import Seen, from_runtime
from crucible.gpus import DEFAULT, Gpu, known_gpu

if TYPE_CHECKING:
    from crucible.emulator.triton.watch import Watch  # brings NumPy

SCHEDULES = {"forward": 0, "reverse": 1, "random": 2, "idle": 3}


@dataclass(frozen=True)
class Configuration:
    """One way in which a kernel was launched."""

    name: str
    """As the source has it at the launch."""
    address: int
    """0 where the launch leaves template arguments to be deduced."""
    threads: int
    """Of a block."""
    dynamic_shared_bytes: int
    types: tuple[str, ...]
    """Of what each argument points to, in words; empty for what is no pointer."""


@dataclass
class Emulator:
    """The runtime in this process."""

    tools: Toolchain
    native: types.ModuleType
    runtime: ctypes.CDLL
    sources: Sources = field(default_factory=Sources)
    triton: Watch | None = None
    """Triton kernels, where this process interprets them."""

    def faults(self) -> tuple[Fault, ...]:
        """All faults since the last `forget`, kernels that never ran among them."""
        found = self.sources.faults(self._records())
        of_triton = self.triton.faults() if self.triton else ()
        return (*found, *of_triton, *self.never_ran(), *self.never_reached())

    def forget(self) -> None:
        """Faults from now on only."""
        self.runtime.crucible_forget_faults()
        for loaded in self.sources.loaded.values():
            loaded.called = False
        if self.triton:
            self.triton.forget()

    def schedule(self, order: str, seed: int = 1) -> None:
        """In which order blocks, threads and lanes run: `forward`, `reverse` or `random`; `idle`: none does."""
        self.runtime.crucible_set_schedule(SCHEDULES[order], ctypes.c_uint(seed))
        if self.triton:
            self.triton.order = (order, seed)

    def thread_limit(self, seconds: float) -> None:
        """Processor time after which a single thread counts as running for ever."""
        self.runtime.crucible_set_thread_limit(ctypes.c_double(seconds))

    @contextmanager
    def trace(self) -> Iterator[Seen]:
        """Counts accesses inside; what is given has them afterwards, also when a kernel failed."""
        self.runtime.crucible_trace(1)
        seen = Seen()
        try:
            yield seen
        finally:
            self.runtime.crucible_trace(0)
            seen.trace = from_runtime(json.loads(self._text("crucible_traced")), toolchain.places)

    def pretend(self, gpu: Gpu) -> None:
        """From here on launches are held to that GPU's limits, and CUDA's property calls answer as it."""
        pretended.fill(self.runtime, gpu)

    def know(self, address: int, compiled: Compiled) -> None:
        """What nvcc made of the kernel at an address: occupancy, attributes and launches follow it."""
        self.runtime.crucible_set_compiled(
            ctypes.c_void_p(address),
            compiled.registers,
            ctypes.c_uint64(compiled.static_shared_bytes),
            ctypes.c_uint64(compiled.stack_bytes),
        )

    def configurations(self) -> list[Configuration]:
        """How kernels were launched since the process began, each way once, the first one first."""
        rows = [line.split("\t", 5) for line in self._text("crucible_configurations").splitlines()]
        rows.sort(key=lambda row: int(row[0]))
        return [
            Configuration(name, int(at), int(threads), int(shared), tuple(types.split(",")))
            for _, at, threads, shared, types, name in rows
        ]

    def launched(self) -> set[str]:
        """Names of kernels launched since the last `forget`, without template arguments."""
        of_triton = self.triton.ran if self.triton else set()
        return of_triton | {plain(name) for name in self._text("crucible_launched").splitlines()}

    def is_of_the_gpu(self, address: int) -> bool:
        """Whether an address is among the tensors, or in a gap between them."""
        return bool(self.runtime.crucible_is_allocation(ctypes.c_void_p(address)))

    def never_ran(self, launched: set[str] | None = None) -> list[Fault]:
        """Kernels of extensions that were called which are neither in `launched` nor among those launched lately."""
        launched = self.launched() | (launched or set())
        of_triton = self.triton.never_ran(launched) if self.triton else []
        return of_triton + self.sources.never_ran(launched)

    def never_reached(self, launched: set[str] | None = None) -> list[Fault]:
        """Barriers of kernels that ran, as in `never_ran`, to which no thread has come since the runtime was started.

        Nothing is said of a kernel that ended in a fault.
        """
        launched = self.launched() | (launched or set())
        ended = {plain(record["kernel"]) for record in self._records() if record["fatal"]}
        return self.sources.never_reached(launched - ended, set(self._text("crucible_reached").splitlines()))

    def _records(self) -> list[Record]:
        records: list[Record] = json.loads(self._text("crucible_faults"))
        return records

    def _text(self, function: str) -> str:
        pointer = getattr(self.runtime, function)()
        text: str = ctypes.string_at(pointer).decode(errors="replace")
        self.runtime.crucible_release_text(ctypes.c_void_p(pointer))
        return text


_current: list[Emulator] = []


def start(tools: Toolchain | None = None) -> Emulator:
    """The runtime of this process, loaded on first use; from then on CPU tensors lie where it can see them.

    It pretends to be the default GPU until told otherwise.
    """
    if not _current:
        tools = tools or toolchain.prepare()
        loader = importlib.machinery.ExtensionFileLoader("crucible_emulator", str(tools.module))
        spec = importlib.util.spec_from_loader("crucible_emulator", loader)
        assert spec is not None
        flags = sys.getdlopenflags()
        sys.setdlopenflags(flags | os.RTLD_GLOBAL)
        try:
            native = importlib.util.module_from_spec(spec)
        finally:
            sys.setdlopenflags(flags)
        runtime = ctypes.CDLL(str(tools.module))
        for text in ("faults", "launched", "reached", "traced", "configurations"):
            getattr(runtime, f"crucible_{text}").restype = ctypes.c_void_p
        native.use_arena()
        emulator = Emulator(tools, native, runtime)
        emulator.pretend(known_gpu(DEFAULT))
        emulator.thread_limit(float(os.environ.get("CRUCIBLE_EMULATOR_THREAD_S", "10")))
        _current.append(emulator)
    return _current[0]
