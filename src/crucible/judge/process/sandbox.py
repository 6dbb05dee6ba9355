"""The sandbox that a candidate's process puts itself in before it reads a line of the candidate.

Two layers, neither of which needs privileges, and which hold root too. Landlock (Linux 5.13 and later) decides about
paths: the process and all it starts can write only below its own folder, read only the system, the Python installation
and the toolkits (`reach.py`), and neither trace nor signal a process outside. A filter of system calls (`seccomp.py`)
decides about the rest: no connection of any family, no modes, owners or times, nothing set of another process, no
namespaces, nothing that outlives it. Where the kernel has neither, the judge goes on without and says so: the expected
values are out of reach all the same, since they are never in a file with a name nor in the candidate's process.

Source of the numbers: linux/landlock.h, linux/prctl.h, linux/capability.h.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crucible.judge.process import seccomp

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_EXECUTE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 2, 1 << 3
_WRITE_FILE, _TRUNCATE, _IOCTL_DEVICE = 1 << 1, 1 << 14, 1 << 15
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
_USE = _READ_FILE | _READ_DIR | _WRITE_FILE | _TRUNCATE | _IOCTL_DEVICE
"""What is there already, without making or removing anything."""
_RIGHTS_BY_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_ALL_RIGHTS = (1 << 16) - 1
_NO_TCP, _NO_OUTSIDE_SIGNALS_OR_SOCKETS = 0b11, 0b11
_DROP_FROM_BOUNDING_SET, _CAPABILITY_VERSION_3 = 24, 0x20080522
_SET_NO_NEW_PRIVILEGES, _SET_PARENT_DEATH_SIGNAL, _SET_SUBREAPER = 38, 1, 36

_FEWEST_DESCRIPTORS = 256
"""A process with torch and one GPU has some 80 open."""

_libc = ctypes.CDLL(None, use_errno=True)


def landlock_abi() -> int:
    """Landlock's version on this kernel, 0 when it has none."""
    return max(0, int(_libc.syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)))


@dataclass(frozen=True)
class Layers:
    """What a process is, or can be, held by."""

    landlock: bool
    """Paths, signals and memory of other processes."""
    filter: bool
    """System calls."""

    @property
    def missing(self) -> str:
        """What of them is not there, in words; empty where both are."""
        lacking = [] if self.landlock else ["Landlock (Linux 5.13 and later)"]
        lacking += [] if self.filter else ["filters of system calls (CONFIG_SECCOMP_FILTER, x86-64 or aarch64)"]
        return f"this kernel has no {' and no '.join(lacking)}" if lacking else ""


def layers() -> Layers:
    """What this kernel offers."""
    return Layers(landlock_abi() > 0, seccomp.is_available())


def confine(readable: Sequence[str], writable: Sequence[str], usable: Sequence[str], within: Layers) -> None:
    """Confines this process for good, by the layers asked for. Raises OSError where one does not hold.

    Folders that are `writable` may be changed in any way; of what is `usable` (devices) only contents are read and
    written. Landlock holds for the calling thread and what it starts, so there must be no other thread yet: call this
    before torch or numpy is imported (OpenBLAS starts threads), or in a fork, which has one.
    """
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        raise OSError(f"the sandbox would miss {threads - 1} threads that are running already")
    drop_capabilities()
    _checked(_libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "give up new privileges")
    if within.landlock:
        _restrict_paths(readable, writable, usable)
    if within.filter:
        seccomp.install()


def _restrict_paths(readable: Sequence[str], writable: Sequence[str], usable: Sequence[str]) -> None:
    abi = landlock_abi()
    rights = _RIGHTS_BY_ABI.get(abi, _ALL_RIGHTS)
    fields = [rights] + ([_NO_TCP] if abi >= 4 else []) + ([_NO_OUTSIDE_SIGNALS_OR_SOCKETS] if abi >= 6 else [])
    attributes = struct.pack(f"{len(fields)}Q", *fields)
    ruleset = _checked(_libc.syscall(_CREATE_RULESET, attributes, len(attributes), 0), "create a ruleset")
    granted = [(readable, _EXECUTE | _READ_FILE | _READ_DIR), (writable, rights), (usable, _USE)]
    for paths, wanted in granted:
        for path in paths:
            _allow(ruleset, path, rights & wanted)
    _checked(_libc.syscall(_RESTRICT_SELF, ruleset, 0), "restrict itself")
    os.close(ruleset)


def drop_capabilities() -> None:
    """Gives up every capability, for good: a root user's would let it read other processes' environments.

    Without any to begin with, the calls are refused and there is nothing to lose.
    """
    for capability in range(64):
        _libc.prctl(_DROP_FROM_BOUNDING_SET, capability, 0, 0, 0)
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    _libc.capset(header, struct.pack("=6I", *[0] * 6))


def limit(file_bytes: int) -> None:
    """Caps the size of any file this process writes, turns core dumps off, and leaves it half of the descriptors.

    The system counts those that are on their way between processes for all of a user's together, and lets nobody send
    one who has a lower limit than that count: the judge could start no process while a candidate's lay in a socket.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    own, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    half = min(most, max(_FEWEST_DESCRIPTORS, own // 2))
    resource.setrlimit(resource.RLIMIT_NOFILE, (half, half))
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    if hard == resource.RLIM_INFINITY or hard > file_bytes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))


def be_the_first_to_go() -> None:
    """Where the machine runs out of memory, the system ends this process and what it starts, not its neighbours. What
    is in files without a name (`memfd_create`) is in no process's count that a limit could be held against."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")


def die_with_parent() -> None:
    """SIGKILL for this process when its parent ends, however the parent ends."""
    _checked(_libc.prctl(_SET_PARENT_DEATH_SIGNAL, 9, 0, 0, 0), "tie its life to its parent's")


def adopt_orphans() -> None:
    """Descendants whose parent dies become this process's children, so none can slip away."""
    _checked(_libc.prctl(_SET_SUBREAPER, 1, 0, 0, 0), "adopt orphans")


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # a folder that this machine does not have needs no rule
    if not Path(path).is_dir():
        rights &= _FILE_RIGHTS
    rule = struct.pack("=Qi", rights, descriptor)
    _checked(_libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0), f"allow {path}")
    os.close(descriptor)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"the sandbox could not {what}: {os.strerror(number)}")
    return int(result)
