"""The filter of system calls that a candidate's process lives under, beside Landlock.

Landlock decides about paths. It says nothing of modes, owners, times, extended attributes, of datagrams, of System V
memory, or of another process's limits; this does. What is refused fails with EPERM, attributes with EOPNOTSUPP.
`clone3` and whatever is newer than this file do not exist (ENOSYS: the C library then takes `clone`). Modes, owners and
times seem to be set and are not, since honest tools set those of their own files and stop where they cannot
(`shutil.copy2` in Inductor's cache, the linker, tar); only "now", as the time of a named file, is refused: `Path.touch`
asks for it to learn whether there is a file, and makes one when it fails.

It is one classic BPF program, assembled here. Sources: linux/seccomp.h, linux/filter.h, linux/sched.h, linux/fs.h.
"""

from __future__ import annotations

import ctypes
import errno
import socket
import struct
from collections.abc import Iterable

from crucible.judge.process import syscalls

_LOAD, _JUMP_EQUAL, _JUMP_GREATER, _JUMP_BITS, _AND, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x54, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
"""Offsets in struct seccomp_data."""
_SET_MODE_FILTER, _ACTION_AVAILABLE = 1, 2
_ALL_THREADS, _NO_SLOWER_SPECULATION = 1 << 0, 1 << 2
"""Without the second, kernels before 5.16 turn speculative store bypass off for a filtered process: a tax on all that
it does, which keeps it from reading its own memory."""

NEW_NAMESPACES = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET."""
_NEW_TIME_NAMESPACE = 0x80
_EVERYBODY = 0xFFFFFFFF
"""-1 for `kill`; for `personality`, which asks and sets nothing."""
_SOCKET_TYPE = 0xF
_FLAGS_OF_FILES = (ord("f") << 8, ord("X") << 8, ord("v") << 8, 0x94 << 8)
"""Types of ioctls that change a file which is open for reading: flags, verity and encryption, XFS's, versions, Btrfs's.
None of the drivers' ('F' is NVIDIA's) is among them."""
_LEASES = (1024, 1026)
"""F_SETLEASE: whoever opens the file then waits, up to 45 s; F_NOTIFY."""
_TYPES_INTO_A_TERMINAL = (0x5412, 0x541C)

PRETENDED = "chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat"
UNSUPPORTED = "setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat file_setattr"
"""As on a file system that has none: `cp -p` goes on to modes then, and gives up at EPERM."""
ABSENT = "clone3"
REFUSED = (
    "connect accept accept4 "
    "ptrace process_vm_readv process_vm_writev kcmp process_madvise process_mrelease pidfd_getfd ioprio_set "
    "shmget shmat shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl mq_open mq_unlink "
    "add_key request_key keyctl "
    "bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register fanotify_init fanotify_mark "
    "modify_ldt "
    "setns mount umount2 pivot_root chroot fsopen fsconfig fsmount fspick move_mount open_tree open_tree_attr "
    "mount_setattr name_to_handle_at open_by_handle_at "
    "quotactl quotactl_fd swapon swapoff reboot kexec_load kexec_file_load init_module finit_module delete_module "
    "acct settimeofday clock_settime sethostname setdomainname syslog vhangup iopl ioperm lookup_dcookie uselib "
    "_sysctl"
)
OF_ITSELF_ALONE = "prlimit64 sched_setaffinity sched_setscheduler sched_setparam sched_setattr migrate_pages move_pages"
"""Calls whose first argument is a process, 0 for the caller: what is set of another slows a baseline down, or ends the
judge by a limit (both belong to the same user)."""

_ANSWERS = ((REFUSED, errno.EPERM), (UNSUPPORTED, errno.EOPNOTSUPP), (PRETENDED, 0), (ABSENT, errno.ENOSYS))

Instruction = tuple[int, int, int, int]
"""Code, jump if true, jump if false, constant: struct sock_filter."""

_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def is_available() -> bool:
    """Whether this kernel filters system calls, on an architecture whose numbers are known."""
    of = syscalls.architecture()
    if of is None:
        return False
    action = ctypes.byref(ctypes.c_uint32(_ERRNO))
    return int(_libc.syscall(syscalls.number("seccomp", of), _ACTION_AVAILABLE, 0, action)) == 0


def install() -> None:
    """Puts this process, with all its threads and all it starts, under the filter for good. Raises OSError.

    It must have given up new privileges already (PR_SET_NO_NEW_PRIVS).
    """
    of = syscalls.architecture()
    if of is None:
        raise OSError(errno.ENOSYS, "the sandbox does not know this architecture's system calls")
    instructions = program(of)
    text = b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)
    flags = _ALL_THREADS | _NO_SLOWER_SPECULATION
    filter_ = ctypes.byref(_Program(len(instructions), text))
    if _libc.syscall(syscalls.number("seccomp", of), _SET_MODE_FILTER, flags, filter_):
        raise OSError(ctypes.get_errno(), "the sandbox could not filter its system calls")


def program(of: int) -> list[Instruction]:
    """The filter of an architecture: calls that are looked into come first, then those that are refused as they are."""
    made = [_load(_ARCHITECTURE), (_JUMP_EQUAL, 1, 0, of), _fails(errno.EPERM)]
    made += [_load(_NUMBER), (_JUMP_GREATER, 0, 1, syscalls.NEWEST), _fails(errno.ENOSYS)]  # x32's are above as well
    for name, body in _looked_into().items():
        made += _of(name, of, body)
    for names, error in _ANSWERS:
        for name in names.split():
            made += _of(name, of, [_fails(error)])
    return [*made, _ALLOWED]


_ALLOWED: Instruction = (_RETURN, 0, 0, _ALLOW)
_DONE: Instruction = (_RETURN, 0, 0, _ERRNO)


def _looked_into() -> dict[str, list[Instruction]]:
    """By name, what follows once a call is known to be that one; each ends with an answer.

    CUDA binds an abstract Unix socket of packets and listens there, for processes that import its memory, and does not
    start where it cannot. Such a socket reaches nobody without `connect`, and answers nobody without `accept`.
    """
    packets = [*_only(0, socket.AF_UNIX), *_only(1, socket.SOCK_SEQPACKET, _SOCKET_TYPE), _ALLOWED]
    found = {
        "ioctl": [*_none_of(1, _FLAGS_OF_FILES, 0xFF00), *_none_of(1, _TYPES_INTO_A_TERMINAL), _ALLOWED],
        "fcntl": [*_none_of(1, _LEASES, error=errno.EPERM), _ALLOWED],
        "socket": packets,
        "socketpair": [*_only(0, socket.AF_UNIX), _ALLOWED],
        "clone": [*_without(0, NEW_NAMESPACES), _ALLOWED],
        "unshare": [*_without(0, NEW_NAMESPACES | _NEW_TIME_NAMESPACE), _ALLOWED],
        "kill": [*_none_of(0, [_EVERYBODY], error=errno.EPERM), _ALLOWED],
        "setpriority": [*_only(0, 0), *_only(1, 0), _ALLOWED],
        "personality": [*_only(0, _EVERYBODY), _ALLOWED],
        "utime": [*_given(1), _DONE],
        "utimes": [*_given(1), _DONE],
        "futimesat": [*_given(2), _DONE],
        "utimensat": [*_given(1, _DONE), *_given(2), _DONE],
    }
    return found | {name: [*_only(0, 0), _ALLOWED] for name in OF_ITSELF_ALONE.split()}


def _of(name: str, of: int, body: list[Instruction]) -> list[Instruction]:
    number = syscalls.number(name, of)
    return [] if number is None else [(_JUMP_EQUAL, 0, len(body), number), *body]


def _only(argument: int, value: int, mask: int = 0) -> list[Instruction]:
    """Refused unless that argument, as far as the mask goes, is this value."""
    return [*_argument(argument, mask), (_JUMP_EQUAL, 1, 0, value), _fails(errno.EPERM)]


def _without(argument: int, bits: int) -> list[Instruction]:
    return [*_argument(argument), (_JUMP_BITS, 0, 1, bits), _fails(errno.EPERM)]


def _none_of(argument: int, values: Iterable[int], mask: int = 0, error: int = errno.ENOTTY) -> list[Instruction]:
    made = _argument(argument, mask)
    for value in values:
        made += [(_JUMP_EQUAL, 0, 1, value), _fails(error)]
    return made


def _given(argument: int, otherwise: Instruction | None = None) -> list[Instruction]:
    """Refused, or what `otherwise` says, where that pointer is null."""
    lower, upper = _ARGUMENTS + 8 * argument, _ARGUMENTS + 8 * argument + 4
    null = [_load(upper), (_JUMP_EQUAL, 0, 1, 0), otherwise or _fails(errno.EPERM)]
    return [_load(lower), (_JUMP_EQUAL, 0, len(null), 0), *null]


def _argument(index: int, mask: int = 0) -> list[Instruction]:
    """Its lower 32 bits, all that the kernel reads of those that are looked into (both architectures are
    little-endian)."""
    return [_load(_ARGUMENTS + 8 * index), *([(_AND, 0, 0, mask)] if mask else [])]


def _load(offset: int) -> Instruction:
    return (_LOAD, 0, 0, offset)


def _fails(error: int) -> Instruction:
    return (_RETURN, 0, 0, _ERRNO | error)
