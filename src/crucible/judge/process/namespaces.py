"""Namespaces of its own for a candidate's process, where the system gives them: root has them outside of containers,
other users where they may make user namespaces.

One of mounts, for a /dev/shm of its own: named shared memory and semaphores that nobody else sees, and that are gone
with it. Elsewhere /dev/shm stays closed. One of networks, for the names of Unix sockets, which CUDA takes one of:
elsewhere a candidate could take those of its neighbours, in which CUDA would not start then.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

SHARED_MEMORY = "/dev/shm"
_NEW_MOUNTS, _NEW_NETWORK, _NEW_USERS = 0x20000, 0x40000000, 0x10000000
_PRIVATE, _RECURSIVE = 1 << 18, 1 << 14
_NO_SETUID_DEVICES_OR_PROGRAMS = 2 | 4 | 8
_libc = ctypes.CDLL(None, use_errno=True)


def enter() -> bool:
    """Gives this process and what it starts an empty /dev/shm and no network; False where that is not allowed, and then
    nothing has changed.

    Call it with one thread, before capabilities are dropped.
    """
    ways = [_as_root] if os.geteuid() == 0 else [_as_user]
    return any(_works(way) and way() for way in ways)


def _works(way: Callable[[], bool]) -> bool:
    """Whether it does in a process that is over then: half of it would leave this one in a namespace without rights."""
    pid = os.fork()
    if pid == 0:
        os._exit(0 if way() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _as_root() -> bool:
    return _libc.unshare(_NEW_MOUNTS | _NEW_NETWORK) == 0 and _mounted()


def _as_user() -> bool:
    user, group = os.geteuid(), os.getegid()
    if _libc.unshare(_NEW_USERS | _NEW_MOUNTS | _NEW_NETWORK):
        return False
    try:
        for file, text in [("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")]:
            with open(f"/proc/self/{file}", "w", encoding="ascii") as opened:
                opened.write(text)
    except OSError:
        return False
    return _mounted()


def _mounted() -> bool:
    if _libc.mount(b"none", b"/", None, _PRIVATE | _RECURSIVE, None):
        return False
    options = b"mode=0700,size=1g"
    return bool(_libc.mount(b"tmpfs", SHARED_MEMORY.encode(), b"tmpfs", _NO_SETUID_DEVICES_OR_PROGRAMS, options) == 0)
