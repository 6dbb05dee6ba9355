"""The emulator as a candidate's process has it: faults since the last run, what was launched, what was not."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from crucible.emulator import memories, pretend, session, streams, toolchain
from crucible.emulator.faults import Fault
from crucible.emulator.places import Places
from crucible.emulator.triton import interpreter
from crucible.gpus import Gpu
from crucible.judge.process.replies import MOST_TRACED

_OF_ALL_RUNS = ("never-ran", "never-reached")
"""Faults that no single run has."""


def start(folder: str, gpu: Gpu, triton_program_s: float) -> Emulated:
    """The emulator that was prepared in `folder`, in a process that takes its CPU for that GPU from now on; without a
    folder one that sees nothing."""
    if not folder:
        return Emulated(None)
    started = session.start(toolchain.ready(Path(folder)))
    started.pretend(gpu)
    pretend.install(gpu)
    if triton_program_s:
        started.triton = interpreter.install(started.is_of_the_gpu, triton_program_s, gpu)
    return Emulated(started)


class Emulated:
    """What a candidate's kernels do on the emulator; nothing, where they do not run there."""

    def __init__(self, emulator: session.Emulator | None) -> None:
        self.emulator = emulator
        self._launched: set[str] = set()
        """Kernels that have run before the last `begin`."""

    def written_in(self, source: str) -> None:
        """The text that lines of faults are lines of."""
        if self.emulator is not None:
            self.emulator.sources.written_in = Places(source)

    def begin(self, schedule: str = "") -> None:
        """Faults from now on only, under a schedule if one is named; what was launched stays known."""
        if self.emulator is None:
            return
        self._launched |= self.emulator.launched()
        self.emulator.forget()
        streams.forget()
        if schedule:
            self.emulator.schedule(schedule)

    def constructing(self) -> contextlib.AbstractContextManager[None]:
        """Around a constructor, whose module is not yet on the GPU."""
        return memories.apart() if self.emulator is not None else contextlib.nullcontext()

    def called_with(self, given: list[torch.Tensor]) -> contextlib.AbstractContextManager[None]:
        """One call of the candidate's, by whose caller's stream these were written just before."""
        return streams.watch(given) if self.emulator is not None else contextlib.nullcontext()

    def faults(self) -> list[Fault]:
        """Each since `begin`."""
        found = (*self.emulator.faults(), *streams.faults()) if self.emulator else ()
        return [fault for fault in found if fault.kind not in _OF_ALL_RUNS]

    def traced(self, run: Callable[[], None]) -> dict[str, Any]:
        """What a call asks of memory; there is an emulator."""
        assert self.emulator is not None
        with self.emulator.trace() as seen:
            run()
        return seen.trace.bounded(MOST_TRACED, MOST_TRACED).to_json()

    def launched(self) -> list[str]:
        """Kernels that have run, by name."""
        return sorted(self._launched | self.emulator.launched()) if self.emulator else []

    def never_ran(self) -> list[Fault]:
        """Kernels of the candidate's that nothing has launched."""
        return list(self.emulator.never_ran(self._launched)) if self.emulator else []

    def never_reached(self) -> list[Fault]:
        """Barriers of kernels that ran to which no thread has come."""
        return list(self.emulator.never_reached(self._launched)) if self.emulator else []

    @property
    def not_covered(self) -> str:
        """What the emulator does not know of Triton kernels that ran, or of what PyTorch was asked for."""
        triton = self.emulator.triton if self.emulator else None
        return (triton.not_covered if triton else "") or "".join(pretend.asked_in_vain[-1:])
