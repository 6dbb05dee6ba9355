"""Slots: what a worker of this machine has for itself: a GPU, or a share of the cores."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from crucible import hardware
from crucible.errors import DeviceError, MisuseError

CORES_A_SLOT = 2
"""Of a worker on the CPU: a candidate and the reference's answers take turns, builds use what there is."""

ON_GPU = frozenset({"auto", "cuda"})
ON_CPU = frozenset({"auto", "cpu", "emulator"})
"""Devices that submissions may ask for, by what can take them."""
WITHOUT_GPU: Mapping[str, str] = {"CUDA_VISIBLE_DEVICES": ""}


@dataclass(frozen=True)
class Slot:
    """One worker's."""

    name: str
    """`gpu0`, `cpu3`."""
    kinds: frozenset[str]
    """Devices of submissions that it may take: of `auto`, `cuda`, `cpu`, `emulator`."""
    device: str = ""
    """By its name, as far as that is known before anything has started."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Beside what this process has."""
    cores: frozenset[int] = frozenset()
    """That its processes keep to; empty: all that this process may use."""


def find_slots(workers: int | None = None, device: str = "auto") -> list[Slot]:
    """A slot for each GPU that this process sees, or, without one or for `cpu` and `emulator`, one for every two cores;
    the cores are dealt out among them. `workers` is how many at most, on CPUs how many exactly. Raises MisuseError."""
    if workers is not None and not 1 <= workers <= 1024:
        raise MisuseError(f"--workers {workers}: give a number from 1 to 1024")
    gpus = hardware.visible_gpus() if device in ("auto", "cuda") else ()
    if device == "cuda" and not gpus:
        raise DeviceError("no NVIDIA GPU on this machine (nvidia-smi finds none): use --device cpu")
    if gpus:
        chosen = gpus[:workers]
        shares = shared_cores(len(chosen))
        return [
            Slot(f"gpu{gpu.index}", ON_GPU, gpu.name, {"CUDA_VISIBLE_DEVICES": gpu.uuid}, share)
            for gpu, share in zip(chosen, shares, strict=True)
        ]
    count = workers or max(1, hardware.cores() // CORES_A_SLOT)
    name = hardware.find_device("cpu").name
    return [Slot(f"cpu{i}", ON_CPU, name, WITHOUT_GPU, share) for i, share in enumerate(shared_cores(count))]


def shared_cores(count: int) -> list[frozenset[int]]:
    """This process's cores dealt out in neighbouring groups; where there are fewer than two for each, nobody's own."""
    cores = sorted(os.sched_getaffinity(0))
    each = len(cores) // count
    if each < CORES_A_SLOT or count == 1:
        return [frozenset()] * count
    return [frozenset(cores[i * each : (i + 1) * each]) for i in range(count)]
