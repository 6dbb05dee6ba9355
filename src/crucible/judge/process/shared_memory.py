"""A /dev/shm of its own for a candidate's process: named shared memory and semaphores that nobody else sees, and
that are gone with it.

It takes a mount namespace, which root has outside of containers and other users where the system lets them make user
namespaces. Elsewhere there is none, and /dev/shm stays closed.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

FOLDER = "/dev/shm"
_NEW_MOUNTS, _NEW_USERS = 0x20000, 0x10000000
_PRIVATE, _RECURSIVE = 1 << 18, 1 << 14
_NO_SETUID_DEVICES_OR_PROGRAMS = 2 | 4 | 8
_libc = ctypes.CDLL(None, use_errno=True)


def make_private() -> bool:
    """Puts an empty /dev/shm in the place of the machine's for this process and what it starts; False where that is
    not allowed, and then nothing has changed.

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
    return _libc.unshare(_NEW_MOUNTS) == 0 and _mounted()


def _as_user() -> bool:
    user, group = os.geteuid(), os.getegid()
    if _libc.unshare(_NEW_USERS | _NEW_MOUNTS):
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
    return bool(_libc.mount(b"tmpfs", FOLDER.encode(), b"tmpfs", _NO_SETUID_DEVICES_OR_PROGRAMS, options) == 0)
