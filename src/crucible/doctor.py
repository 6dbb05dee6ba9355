"""doctor: what of this machine matters to a judge, found out by trying, and what to do about the rest."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

from crucible import hardware
from crucible.errors import JudgeError
from crucible.hardware import Device
from crucible.judge.process import sandbox
from crucible.judge.process.doors import NAMES
from crucible.judge.process.needs import SEMAPHORES
from crucible.judge.process.probe import OPEN, Probe, probe

_MOST_NAMED = 8
_SIGNALS = {"process: signal", "process: signal by descriptor"}
"""What Landlock refuses from its sixth version on."""


@dataclass
class Health:
    """What was found."""

    rows: dict[str, str] = field(default_factory=dict)
    """What there is, by name."""
    complaints: list[str] = field(default_factory=list)
    """What is missing, each with its remedy; nothing on a machine that has all."""


def examined(device: Device) -> Health:
    """Compilers, and a process in the sandbox that tries every door, what honest candidates need, and on a GPU CUDA."""
    health = Health()
    _compilers(device, health)
    held_by = sandbox.layers()
    if held_by.missing:
        health.complaints.append(f"{held_by.missing}: {_WITHOUT[held_by.landlock]}")
    try:
        inside = probe(held_by, gpu=device.kind == "cuda")
    except (JudgeError, OSError) as error:
        health.rows["sandbox"] = "not tried"
        health.complaints.append(f"the sandbox does not start: {error}")
        return health
    _doors(inside, held_by, health)
    _needs(inside, health)
    if device.kind == "cuda":
        _cuda(inside, health)
    return health


_WITHOUT = {
    True: "candidates can connect, and change modes of files; judge in a container without a network",
    False: "candidates can read and write what this user can; take a later kernel, boot it with "
    "lsm=landlock,..., or give a container a filter of system calls that lets landlock_* through (docs/fleet.md)",
}
"""By whether there is Landlock: what is open, and what to do."""


_ALONE = {
    "namespaces, or capabilities that it lacks": sandbox.Layers(False, False),
    "Landlock": sandbox.Layers(True, False),
    "the filter of system calls": sandbox.Layers(False, True),
}


def _compilers(device: Device, health: Health) -> None:
    if not hardware.cxx():
        health.complaints.append("a C++ compiler: extensions are not built; install g++")
    beside = Path(sys.executable).with_name("ninja")
    if not shutil.which("ninja") and not beside.exists():
        health.complaints.append("ninja: load_inline builds through it; pip install ninja")
    if device.kind == "cuda" and not hardware.nvcc():
        health.complaints.append("nvcc: CUDA C++ is not built; install the CUDA toolkit, or the extra `nvcc`")


def _doors(inside: Probe, held_by: sandbox.Layers, health: Health) -> None:
    layers = [f"Landlock version {sandbox.landlock_abi()}"] if held_by.landlock else []
    layers += ["a filter of system calls"] if held_by.filter else []
    tried = f"{len(inside.doors)} ways out tried, {len(inside.open) or 'none'} open"
    health.rows["sandbox"] = f"{' and '.join(layers) or 'none'}: {tried}"
    found = [name for name in inside.open if inside.own_namespaces or name != NAMES]
    if found and not held_by.missing:
        named = ", ".join(found[:_MOST_NAMED]) + (", ..." if len(found) > _MOST_NAMED else "")
        remedy = "Linux 6.12 or later shuts them" if set(found) <= _SIGNALS else "please report it"
        health.complaints.append(f"shut doors in the sandbox ({named} {OPEN}): {remedy}")


def _needs(inside: Probe, health: Health) -> None:
    lacking = dict(inside.lacking)
    if inside.own_namespaces:
        health.rows["namespaces"] = "of each candidate's own: shared memory, names of sockets"
    else:
        health.rows["namespaces"] = (
            "none (not given to this user here): candidates have no shared memory, so locks of Python's "
            "multiprocessing fail in them, and one could take the name of the socket that CUDA binds in another"
        )
        lacking.pop(SEMAPHORES, None)
    health.complaints += [f"{name}, in the sandbox: {why}; honest candidates fail" for name, why in lacking.items()]


def _cuda(inside: Probe, health: Health) -> None:
    health.rows["CUDA"] = f"in the sandbox: {inside.cuda or 'starts and computes'}"
    if not inside.cuda:
        return
    outside = probe(None, gpu=True).cuda
    if outside:
        health.complaints.append(f"CUDA, outside of the sandbox as well ({outside}): see whether nvidia-smi works")
        return
    nodes = [f"/dev/{name}" for name in ("nvidiactl", "nvidia0", "nvidia-uvm", "nvidia-uvm-tools")]
    absent = [node for node in nodes if not Path(node).exists()]
    remedy = f"give this container {', '.join(absent)}" if absent else "please report it, with the driver's version"
    stopped = f"CUDA in the sandbox, where it works outside ({inside.cuda}; stopped by {_stopped_by()})"
    health.complaints.append(f"{stopped}: {remedy}")


def _stopped_by() -> str:
    """Which layer keeps CUDA from starting, each tried alone."""
    here = sandbox.layers()
    for name, alone in _ALONE.items():
        tried = sandbox.Layers(alone.landlock and here.landlock, alone.filter and here.filter)
        if probe(tried, gpu=True).cuda:
            return name
    return "several layers together"
