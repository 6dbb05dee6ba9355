"""What of the machine a candidate's process can reach: folders of the system and of Python, devices, /proc."""

from __future__ import annotations

import functools
import os
import stat
import sys
from pathlib import Path

from crucible import hardware
from crucible.judge.process.launcher import SOURCE, package_folders

_SYSTEM = ("/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin", "/opt", "/sys", "/run/opengl-driver")
_DEVICES = ("null", "zero", "full", "random", "urandom", "nvidia*", "dxg")
"""`nvidia*`: CUDA opens nvidiactl, each nvidia0, nvidia-uvm and nvidia-uvm-tools for writing, and what stands in the
folder nvidia-caps. `dxg` is the GPU of Windows' Linux."""


def readable() -> list[str]:
    """The system's programs and libraries, what every user may read of /etc, and what /proc says of the machine.

    Of no other process, not even its command line: that of a judge may hold a seed. The folders of /run and /var hold
    containers' secrets and nothing that a compiler or CUDA was seen to need.
    """
    return [*_SYSTEM, *_public("/etc"), *_of_the_machine()]


def python() -> list[str]:
    """What a worker must read to be Python with torch: installations, not the judge's own checkout."""
    folders = {sys.prefix, sys.base_prefix, sys.exec_prefix, str(SOURCE / "crucible")}
    folders |= set(package_folders())
    folders |= {str(Path(tool).resolve().parents[1]) for tool in [hardware.nvcc()] if tool}
    folders |= {path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if path}
    return sorted(folders)


def usable() -> list[str]:
    """Devices, and its own entry in /proc: CUDA names its threads there, and ends with error 304 where it cannot."""
    found = sorted(str(path) for pattern in _DEVICES for path in Path("/dev").glob(pattern))
    return [*found, "/proc/self"]


def _of_the_machine() -> list[str]:
    return [f"/proc/{name}" for name in sorted(os.listdir("/proc")) if not name.isdigit() and "self" not in name]


@functools.cache
def _public(folder: str) -> tuple[str, ...]:
    """The largest parts of a folder in which everything is readable for everybody; root without capabilities could
    read the rest as its owner (passwords, private keys)."""
    return tuple(_parts(folder)[1])


def _parts(folder: str) -> tuple[bool, list[str]]:
    """Whether all of a folder is, and then that folder, else the parts of it that are."""
    whole, found = True, list[str]()
    try:
        entries = [(entry, entry.stat(follow_symlinks=False).st_mode) for entry in os.scandir(folder)]
    except OSError:
        return False, []
    for entry, mode in entries:
        if stat.S_ISDIR(mode):
            of_all, parts = _parts(entry.path) if mode & stat.S_IROTH and mode & stat.S_IXOTH else (False, [])
        else:
            of_all = stat.S_ISLNK(mode) or bool(mode & stat.S_IROTH)
            parts = [entry.path] if of_all and not stat.S_ISLNK(mode) else []
        whole, found = whole and of_all, found + parts
    return (True, [folder]) if whole else (False, found)
