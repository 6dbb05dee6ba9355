"""Doors out of a candidate's process, each tried for real: what a hostile candidate would do, one function a door.

A door that lets through returns; one that is shut raises OSError, by whatever hand (the sandbox's, or a kernel that has
no such thing). Calls whose effect counts (a mode that seems to be set) look for that effect. Nothing here does harm
where a door is open: the files, sockets and processes that it is tried on are `Scene`'s, made for it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import resource
import signal
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from crucible.judge.process import syscalls

_libc = ctypes.CDLL(None, use_errno=True)
_HERE = -100  # AT_FDCWD
_MULTIPATH_TCP, _FAST_OPEN = 262, 0x20000000
_SET_FLAGS, _GET_FLAGS, _NO_DUMP = 0x40086602, 0x80086601, 0x40
SHARED = "shared memory: the machine's"
"""Open where the file is seen from outside: there may be a folder of one's own in that place."""
NAMES = "socket: names of others"
_FAMILIES = {
    "inet": (socket.AF_INET, socket.SOCK_STREAM, 0),
    "inet of datagrams": (socket.AF_INET, socket.SOCK_DGRAM, 0),
    "inet, raw": (socket.AF_INET, socket.SOCK_RAW, 1),
    "inet6": (socket.AF_INET6, socket.SOCK_STREAM, 0),
    "inet6 of datagrams": (socket.AF_INET6, socket.SOCK_DGRAM, 0),
    "multipath TCP": (socket.AF_INET, socket.SOCK_STREAM, _MULTIPATH_TCP),
    "unix": (socket.AF_UNIX, socket.SOCK_STREAM, 0),
    "unix of datagrams": (socket.AF_UNIX, socket.SOCK_DGRAM, 0),
    "netlink": (socket.AF_NETLINK, socket.SOCK_RAW, 0),
    "packet": (socket.AF_PACKET, socket.SOCK_RAW, 0),
    "alg": (socket.AF_ALG, socket.SOCK_SEQPACKET, 0),
    "vsock": (socket.AF_VSOCK, socket.SOCK_STREAM, 0),
    "key": (15, socket.SOCK_RAW, 2),
    "can": (29, socket.SOCK_RAW, 1),
    "tipc": (30, socket.SOCK_SEQPACKET, 0),
    "bluetooth": (31, socket.SOCK_SEQPACKET, 0),
    "qipcrtr": (42, socket.SOCK_DGRAM, 0),
    "xdp": (44, socket.SOCK_RAW, 0),
}


@dataclass(frozen=True)
class Scene:
    """What doors are tried on; all of it belongs to the process outside."""

    own: str
    """A folder that may be written."""
    outside: str
    """A folder that may not be looked into, with `file.txt`."""
    handed: int
    """A descriptor of `file.txt`, open for reading, as inputs are handed over."""
    victim: int
    """A process of the same user."""
    tcp_port: int
    udp_port: int
    """Of sockets that listen."""
    abstract: str
    """Of a Unix socket of packets that listens, without the zero; the same socket kind listens at `outside`/socket."""

    @property
    def file(self) -> str:
        return f"{self.outside}/file.txt"


Door = Callable[[Scene], object]


def doors() -> dict[str, Door]:
    """All of them by name; the first word is the room."""
    return {**_files(), **_sockets(), **_left_behind(), **_processes(), **_kernel(), **_namespaces()}


def _files() -> dict[str, Door]:
    return {
        "file: read": lambda s: Path(s.file).read_bytes(),
        "file: list": lambda s: os.listdir(s.outside),
        "file: write": lambda s: Path(s.file).open("r+b").close(),
        "file: truncate": lambda s: os.truncate(s.file, 1),
        "file: create": lambda s: Path(s.outside, "new.txt").touch(),
        "file: move out": _moved_out,
        "file: hard link": lambda s: os.link(s.file, f"{s.own}/hard"),
        "file: through a link": _through_a_link,
        "file: handed, written": lambda s: os.open(f"/proc/self/fd/{s.handed}", os.O_RDWR),
        "file: handed, written in memory": lambda s: mmap.mmap(s.handed, 0, prot=mmap.PROT_WRITE | mmap.PROT_READ),
        "file: handed, truncated": lambda s: os.ftruncate(s.handed, 1),
        "file: mode": lambda s: _mode(s, lambda: os.chmod(s.file, 0)),
        "file: mode, handed": lambda s: _mode(s, lambda: os.fchmod(s.handed, 0)),
        "file: mode, by a later call": lambda s: _mode(s, lambda: _call("fchmodat2", _HERE, s.file.encode(), 0, 0)),
        "file: owner": lambda s: _changes(s, lambda of: (of.st_uid, of.st_gid), lambda: os.chown(s.file, 1, 1)),
        "file: owner, handed": lambda s: _changes(s, lambda of: of.st_uid, lambda: os.fchown(s.handed, 2, 2)),
        "file: times": lambda s: _changes(s, lambda of: of.st_mtime, lambda: os.utime(s.file, (1, 1))),
        "file: attributes": lambda s: os.setxattr(s.file, "user.crucible", b"x"),
        "file: attributes, handed": lambda s: os.setxattr(s.handed, "user.crucible", b"y"),
        "file: flags, handed": _flags,
        "file: lease, handed": lambda s: fcntl.fcntl(s.handed, fcntl.F_SETLEASE, fcntl.F_RDLCK),
        "file: passwords": lambda s: Path("/etc/shadow").read_bytes(),
        "file: keys": lambda s: os.listdir("/etc/ssl/private"),
        "file: /run": lambda s: os.listdir("/run"),
        "file: by handle": lambda s: _call(
            "name_to_handle_at", s.handed, b"", struct.pack("Ii128x", 128, 0), ctypes.byref(ctypes.c_int()), 0x1000
        ),
        "device: kernel log": lambda s: os.open("/dev/kmsg", os.O_RDONLY),
        "device: terminal": lambda s: os.open("/dev/tty0", os.O_RDWR),
        "device: new file": lambda s: _removed(Path("/dev/crucible-door")),
        "device: loop": lambda s: os.open("/dev/loop-control", os.O_RDWR),
        "device: sysctl": lambda s: os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY),
        SHARED: lambda s: Path(f"/dev/shm/{s.abstract}").touch(),
    }


def _sockets() -> dict[str, Door]:
    found: dict[str, Door] = {f"socket: {name}": _socket(*kind) for name, kind in _FAMILIES.items()}
    return found | {
        "socket: TCP": lambda s: socket.create_connection(("127.0.0.1", s.tcp_port), 5).close(),
        "socket: TCP fast open": _fast_open,
        "socket: UDP": lambda s: _new(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", s.udp_port)),
        "socket: listen": lambda s: socket.create_server(("127.0.0.1", 0)).close(),
        "socket: unix by name": lambda s: _packets().connect(f"\0{s.abstract}"),
        "socket: unix by path": lambda s: _packets().connect(f"{s.outside}/socket"),
        "socket: unix log": lambda s: _new(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"", f"{s.outside}/log"),
        "socket: accept": _accept,
        NAMES: _same_names,
    }


def _left_behind() -> dict[str, Door]:
    return {
        "ipc: System V memory": lambda s: _call("shmctl", _call("shmget", 0, 4096, 0o1600), 0, None),
        "ipc: System V semaphore": lambda s: _call("semctl", _call("semget", 0, 1, 0o1600), 0, 0),
        "ipc: System V message": lambda s: _call("msgctl", _call("msgget", 0, 0o1600), 0, None),
        "ipc: message queue": _message_queue,
        "ipc: key": lambda s: _call("add_key", b"user", b"crucible-door", b"x", 1, -1),
        "ipc: keyring": lambda s: _call("keyctl", 0, -3, 0, 0, 0),
    }


def _processes() -> dict[str, Door]:
    return {
        "process: signal": lambda s: os.kill(s.victim, 0),
        "process: signal to all": lambda s: os.kill(-1, 0),
        "process: signal by descriptor": lambda s: signal.pidfd_send_signal(os.pidfd_open(s.victim), 0),
        "process: trace": _trace,
        "process: memory": lambda s: open(f"/proc/{s.victim}/mem", "rb").close(),
        "process: memory by call": lambda s: _call("process_vm_readv", s.victim, None, 0, None, 0, 0),
        "process: environment": lambda s: Path(f"/proc/{s.victim}/environ").read_bytes(),
        "process: command line": lambda s: Path(f"/proc/{s.victim}/cmdline").read_bytes(),
        "process: state": lambda s: Path(f"/proc/{s.victim}/stat").read_bytes(),
        "process: files": lambda s: os.listdir(f"/proc/{s.victim}/fd"),
        "process: all of them": lambda s: os.listdir("/proc"),
        "process: descriptor": lambda s: os.close(_call("pidfd_getfd", os.pidfd_open(s.victim), 0, 0)),
        "process: compare": lambda s: _call("kcmp", s.victim, s.victim, 2, 0, 0),
        "process: limits": lambda s: resource.prlimit(s.victim, resource.RLIMIT_CORE),
        "process: processors": lambda s: os.sched_setaffinity(s.victim, os.sched_getaffinity(0)),
        "process: priority": lambda s: os.setpriority(os.PRIO_PROCESS, s.victim, 1),
        "process: scheduler": lambda s: os.sched_setscheduler(s.victim, os.SCHED_BATCH, os.sched_param(0)),
        "process: disk priority": lambda s: _call("ioprio_set", 1, s.victim, (2 << 13) | 7),
        "process: first to go": lambda s: Path(f"/proc/{s.victim}/oom_score_adj").write_text("1000"),
        "process: advice": lambda s: _call("process_madvise", os.pidfd_open(s.victim), None, 0, 20, 0),
    }


def _kernel() -> dict[str, Door]:
    return {
        "kernel: bpf": lambda s: os.close(_call("bpf", 0, struct.pack("IIII112x", 2, 4, 4, 1), 128)),
        "kernel: perf events": lambda s: os.close(
            _call("perf_event_open", struct.pack("IIQ", 1, 112, 0) + bytes(96), 0, -1, -1, 0)
        ),
        "kernel: io_uring": lambda s: os.close(_call("io_uring_setup", 1, ctypes.create_string_buffer(120))),
        "kernel: page faults": lambda s: os.close(_call("userfaultfd", 1)),
        "kernel: fanotify": lambda s: os.close(_call("fanotify_init", 0x200, 0)),
        "kernel: personality": lambda s: _call("personality", 0x0040000),
        "kernel: 32-bit calls": _in_32_bits,
        "kernel: x32 calls": _in_x32,
        "kernel: calls of its future": lambda s: _anything_but_absent(syscalls.NEWEST + 1),
    }


def _namespaces() -> dict[str, Door]:
    def unshared(flag: int) -> Door:
        return lambda s: _in_a_fork(lambda: _call("unshare", flag))

    kinds = {"mounts": 0x20000, "users": 0x10000000, "network": 0x40000000, "time": 0x80}
    found: dict[str, Door] = {f"namespace: {name}": unshared(flag) for name, flag in kinds.items()}
    return found | {
        "namespace: a new process": _cloned,
        "namespace: a new process, by a later call": lambda s: _anything_but_absent(435, None, 0),
        "namespace: another's": lambda s: _in_a_fork(lambda: _call("setns", os.open("/proc/self/ns/uts", 0), 0)),
        "namespace: mount": lambda s: _in_a_fork(lambda: _mounted_for_a_moment(s.own.encode())),
        "namespace: new file system": lambda s: os.close(_call("fsopen", b"tmpfs", 0)),
        "namespace: mount, by a later call": lambda s: os.close(_call("open_tree", _HERE, b"/", 0)),
        "namespace: root": lambda s: _in_a_fork(lambda: _call("chroot", b"/")),
    }


def _mounted_for_a_moment(place: bytes) -> None:
    _call("mount", b"none", place, b"tmpfs", 0, None)
    with contextlib.suppress(OSError):  # that it was mounted is what counts
        _call("umount2", place, 0)


def _call(name: str, *arguments: object) -> int:
    of = syscalls.architecture()
    number = None if of is None else syscalls.number(name, of)
    if number is None:
        raise OSError(errno.ENOSYS, name)
    return _numbered(number, *arguments)


def _numbered(number: int, *arguments: object) -> int:
    given = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result = int(_libc.syscall(ctypes.c_long(number), *given))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _anything_but_absent(number: int, *arguments: object) -> None:
    """Any answer of the call's own is one too many."""
    try:
        _numbered(number, *arguments)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM):
            raise


def _changes(scene: Scene, what: Callable[[os.stat_result], object], change: Callable[[], object]) -> None:
    before = what(os.stat(scene.file))
    change()
    if what(os.stat(scene.file)) == before:
        raise PermissionError(errno.EPERM, "it seemed to work, and nothing changed")


def _mode(scene: Scene, change: Callable[[], object]) -> None:
    """The file has its mode back afterwards, so that what is tried next finds it as it was."""
    mode = os.stat(scene.file).st_mode
    try:
        _changes(scene, lambda of: of.st_mode, change)
    finally:
        with contextlib.suppress(OSError):
            os.chmod(scene.file, mode & 0o7777)


def _flags(scene: Scene) -> None:
    given = bytearray(4)
    fcntl.ioctl(scene.handed, _GET_FLAGS, given)
    fcntl.ioctl(scene.handed, _SET_FLAGS, struct.pack("I", struct.unpack("I", given)[0] ^ _NO_DUMP))


def _moved_out(scene: Scene) -> None:
    Path(scene.own, "out").write_text("out")
    os.rename(f"{scene.own}/out", f"{scene.outside}/out")


def _message_queue(scene: Scene) -> None:
    os.close(_call("mq_open", scene.abstract.encode(), os.O_CREAT | os.O_RDWR, 0o600, None))
    _call("mq_unlink", scene.abstract.encode())


def _through_a_link(scene: Scene) -> bytes:
    os.symlink(scene.file, f"{scene.own}/soft")
    return Path(scene.own, "soft").read_bytes()


def _removed(file: Path) -> None:
    file.touch()
    file.unlink()


def _socket(family: int, kind: int, protocol: int) -> Door:
    return lambda scene: socket.socket(family, kind, protocol).close()


def _new(family: int, kind: int) -> socket.socket:
    made = socket.socket(family, kind)
    made.settimeout(5)
    return made


def _packets() -> socket.socket:
    """Of the one kind that may be made: CUDA does."""
    return _new(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def _same_names(scene: Scene) -> None:
    """Whether a name that is taken outside is taken here: then others' could be."""
    with _packets() as made:
        try:
            made.bind(f"\0{scene.abstract}")
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return
            raise
    raise PermissionError(errno.EPERM, "names are its own")


def _fast_open(scene: Scene) -> None:
    with _new(socket.AF_INET, socket.SOCK_STREAM) as made, contextlib.suppress(BlockingIOError):  # it is on its way
        made.sendto(b"x", _FAST_OPEN, ("127.0.0.1", scene.tcp_port))


def _accept(scene: Scene) -> None:
    with _packets() as listening:
        listening.bind(f"\0{scene.abstract}-inside")
        listening.listen()
        listening.setblocking(False)
        with contextlib.suppress(BlockingIOError):  # nobody came: it could have
            listening.accept()


def _trace(scene: Scene) -> None:
    _call("ptrace", 0x4206, scene.victim, 0, 0)  # PTRACE_SEIZE stops nobody
    _call("ptrace", 0x4207, scene.victim, 0, 0)
    os.waitpid(scene.victim, 0)
    _call("ptrace", 17, scene.victim, 0, 0)


def _in_a_fork(action: Callable[[], object]) -> None:
    """What cannot be undone; the error crosses as its number."""
    pid = os.fork()
    if pid == 0:
        code = 255
        try:
            action()
            code = 0
        except OSError as error:
            code = error.errno or 255
        finally:
            os._exit(code)
    _raise_of(os.waitpid(pid, 0)[1])


def _raise_of(status: int) -> None:
    code = os.waitstatus_to_exitcode(status)
    if code:
        raise OSError(code, os.strerror(code) if code > 0 else signal.Signals(-code).name)


def _cloned(scene: Scene) -> None:
    pid = _call("clone", 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def _in_32_bits(scene: Scene) -> None:
    """`getpid` by the old interrupt, which takes 32-bit numbers also from a 64-bit process."""
    if syscalls.architecture() != syscalls.X86_64:
        raise OSError(errno.ENOSYS, "not this architecture's")
    code = bytes.fromhex("b814000000 cd80 c3")  # mov eax, 20; int 0x80; ret

    def call() -> None:
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(code)
        address = ctypes.addressof(ctypes.c_char.from_buffer(page))
        answer = ctypes.CFUNCTYPE(ctypes.c_int)(address)()
        if answer < 0:
            raise OSError(-answer, os.strerror(-answer))

    _in_a_fork(call)  # without 32-bit support in the kernel it is a fault


def _in_x32(scene: Scene) -> None:
    if syscalls.architecture() != syscalls.X86_64:
        raise OSError(errno.ENOSYS, "not this architecture's")
    _anything_but_absent(0x40000000 | 39)
