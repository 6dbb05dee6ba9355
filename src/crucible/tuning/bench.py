"""Where divisions are built, verified and timed: a GPU, or in tests the emulator."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import torch

from crucible import hardware
from crucible.emission.extension import inline
from crucible.emission.host import Host
from crucible.errors import TuningError
from crucible.gpus import Gpu
from crucible.judge.surface import GPU_PACE, Race, Sampler, Turn, sampler
from crucible.kinds.convolution import ways
from crucible.schedule.convolution.questions import Question, Way
from crucible.tuning.expected import Subject, operands, results, subject

Run: TypeAlias = Callable[..., Sequence[torch.Tensor]]
Calls: TypeAlias = Mapping[str, Callable[[], Any]]
Stopwatch: TypeAlias = Callable[[Calls], Mapping[str, float]]
"""Median milliseconds of each call."""
PACE = GPU_PACE.within(1.5)
HANG_S = 30.0
"""For one launch: a wrong parity of a barrier never ends, all else takes milliseconds."""


@dataclass(frozen=True)
class Bench:
    """How extensions are loaded, and who times."""

    device: torch.device
    load: Callable[..., Any]
    """Like `torch.utils.cpp_extension.load_inline`."""
    time: Stopwatch
    faults: Callable[[], Sequence[object]] = lambda: ()
    """What an emulator found so far."""
    builds: int = 1
    """Extensions that are built side by side."""

    def built(self, gpu: Gpu, asked: Mapping[str, tuple[Question, Sequence[Way]]]) -> dict[str, list[Run]]:
        """A function for each way of each question, by the questions' keys; in `builds` extensions."""
        hosts = {
            key: [host(question, way, gpu, f"tuned_{number}_{i}") for i, way in enumerate(found)]
            for number, (key, (question, found)) in enumerate(asked.items())
        }
        keys = [[*hosts][at :: self.builds] for at in range(self.builds)]
        groups = [[each for key in some for each in hosts[key]] for some in keys if some]
        with ThreadPoolExecutor(self.builds) as pool:
            functions = {name: run for found in pool.map(self._loaded, groups) for name, run in found.items()}
        return {key: [functions[each.name] for each in of_key] for key, of_key in hosts.items()}

    def _loaded(self, hosts: Sequence[Host]) -> dict[str, Run]:
        """One extension's functions by name."""
        module = self.load(**inline("tuning", hosts))
        return {host.name: getattr(module, host.name) for host in hosts}

    def measured(self, question: Question, found: Sequence[Way], functions: Sequence[Run],
                 gpu: Gpu) -> list[float]:  # fmt: skip
        """Milliseconds of each way, after all were found right. Raises TuningError for one that is not, by name."""
        work = subject(question, self.device)
        calls = {}
        for way, function in zip(found, functions, strict=True):
            named = host(question, way, gpu, "named")
            call = partial(function, *(work.given[name] for name in named.takes))
            self._verify(work, way, call, named)
            calls[ways.described(way)] = call
        took = self.time(calls)
        return [took[name] for name in calls]

    def _verify(self, work: Subject, way: Way, call: Callable[[], Sequence[torch.Tensor]], function: Host) -> None:
        named = f"{work.question.name}, divided as {ways.described(way)}"
        made = call()
        self._finish(named)
        said = work.complaint(way, dict(zip(function.makes, made, strict=True)))
        said = said or "; ".join(map(str, self.faults()))
        if said:
            raise TuningError(
                f"{named}: {said}. Nothing was chosen and nothing written: please report this, and leave --tune out"
            )

    def _finish(self, named: str) -> None:
        """Raises TuningError where a kernel does not end; what comes after waits for it forever."""
        if self.device.type != "cuda":
            return
        done = torch.cuda.Event()
        done.record()
        deadline = time.monotonic() + HANG_S
        while not done.query():
            if time.monotonic() > deadline:
                raise TuningError(f"{named}: did not end within {HANG_S:.0f} s; this process cannot use the GPU again")
            time.sleep(1e-3)


def gpu_bench() -> Bench:
    """This machine's GPU, by crucible's own clock: cold L2, turns."""
    from torch.utils.cpp_extension import load_inline

    return Bench(torch.device("cuda"), load_inline, race, builds=max(1, min(8, hardware.cores() - 1)))


def host(question: Question, way: Way, gpu: Gpu, name: str) -> Host:
    """A function over flat tensors: those of the question in the order of their names; what it makes, sums by parts."""
    lowered = ways.lowered(question, way, gpu, name)
    makes = results(question, lowered)
    inside = {each.name for each in lowered.buffers}
    buffers = tuple(each for each in lowered.buffers if each.name not in makes)
    read = {name for kernel in lowered.kernels for name in kernel.reads} - inside
    takes = {name: type_ for name, type_ in operands(question).items() if name in read}
    return Host(f"run_{name}", takes, makes, {}, {}, (replace(lowered, buffers=buffers),))


# timing


@dataclass(frozen=True)
class Runner:
    """A contestant of this process."""

    name: str
    call: Callable[[], Any]
    sample: Sampler
    checks: int = 0
    weights: int = 0

    def turn(self, samples: int, checked: int, weights: int = -1) -> Turn:
        self.call()
        taken = list(self._samples(samples))
        device, wall = tuple(s for s, _ in taken), tuple(w for _, w in taken)
        return Turn(device, wall, wall)

    def _samples(self, number: int) -> Iterator[tuple[float, float]]:
        for _ in range(number):
            found = self.sample(self.call)
            yield found.device_ms, found.wall_ms


def race(calls: Calls) -> dict[str, float]:
    """All in turns, each sample from a cold L2; medians in milliseconds."""
    take = sampler(torch.device("cuda"))
    runners = Race([Runner(name, call, take) for name, call in calls.items()], PACE, random.Random(0))
    runners.run()
    return {
        name: statistics.median(s for turn in turns for s in turn.device_ms) for name, turns in runners.turns.items()
    }
