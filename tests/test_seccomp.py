"""The filter, run as the kernel runs it, on both architectures: what it answers to every call that it knows."""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Iterable
from pathlib import Path

import pytest

from crucible.judge.process import seccomp, syscalls
from crucible.judge.process.seccomp import ABSENT, NEW_NAMESPACES, OF_ITSELF_ALONE, PRETENDED, REFUSED, UNSUPPORTED
from crucible.judge.process.syscalls import AARCH64, NEWEST, NUMBERS, X86_64

BOTH = pytest.mark.parametrize("of", [X86_64, AARCH64], ids=["x86-64", "aarch64"])
HEADERS = {
    X86_64: ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", r"#define __NR_(\w+) (\d+)"),
    AARCH64: ("/usr/include/asm-generic/unistd.h", r"#define __NR(?:3264)?_(\w+) (\d+)"),
}
ALLOWED = "allowed"
NOW = 0


def answer(of: int, number: int, *arguments: int, architecture: int = 0) -> str | int:
    """`ALLOWED`, or the error a call ends with (0: none, and nothing is done)."""
    given = [*arguments, *[0] * (6 - len(arguments))]
    data = {0: number, 4: architecture or of}
    for i, value in enumerate(given):
        data |= {16 + 8 * i: value & 0xFFFFFFFF, 20 + 8 * i: value >> 32 & 0xFFFFFFFF}
    program, at, accumulator = seccomp.program(of), 0, 0
    while True:
        code, true, false, constant = program[at]
        at += 1
        if code == 0x20:
            accumulator = data[constant]
        elif code == 0x54:
            accumulator &= constant
        elif code == 0x06:
            return ALLOWED if constant == 0x7FFF0000 else constant ^ 0x00050000
        else:
            held = {0x15: accumulator == constant, 0x25: accumulator > constant, 0x45: bool(accumulator & constant)}
            at += true if held[code] else false


def asked(of: int, name: str, *arguments: int) -> str | int | None:
    number = syscalls.number(name, of)
    return None if number is None else answer(of, number, *arguments)


def answers(of: int, names: Iterable[str]) -> set[str | int]:
    return {got for name in names if (got := asked(of, name)) is not None}


@BOTH
def test_the_numbers_are_those_of_the_headers(of: int) -> None:
    path, pattern = HEADERS[of]
    if not Path(path).exists():
        pytest.skip(f"{path} is not here")
    stated = {name: int(number) for name, number in re.findall(pattern, Path(path).read_text())}
    named = {name: syscalls.number(name, of) for name in NUMBERS}
    differing = {name: (stated[name], own) for name, own in named.items() if name in stated and stated[name] != own}
    invented = {name for name, own in named.items() if own is not None and own < 420 and name not in stated}
    assert differing == {}
    assert invented <= ({"name_to_handle_at", "open_by_handle_at", "clock_settime"} if of == AARCH64 else set())
    assert len(set(named) & set(stated)) > 90


@BOTH
def test_what_is_refused_pretended_and_absent(of: int) -> None:
    assert answers(of, REFUSED.split()) == {errno.EPERM}
    assert answers(of, UNSUPPORTED.split()) == {errno.EOPNOTSUPP}
    assert answers(of, PRETENDED.split()) == {0}
    assert answers(of, ABSENT.split()) == {errno.ENOSYS}


@BOTH
def test_all_else_that_the_kernel_has_is_allowed(of: int) -> None:
    known = {syscalls.number(name, of) for name in NUMBERS}
    assert {answer(of, number) for number in range(NEWEST + 1) if number not in known} == {ALLOWED}


@BOTH
def test_what_is_newer_than_the_table_does_not_exist(of: int) -> None:
    assert {answer(of, number) for number in (NEWEST + 1, NEWEST + 500, 0x40000000 | 1, 0xFFFFFFFF)} == {errno.ENOSYS}


@BOTH
def test_calls_by_another_architectures_numbers_are_refused(of: int) -> None:
    other = AARCH64 if of == X86_64 else X86_64
    for architecture in (0x40000003, 0x40000028, other):  # i386, ARM
        assert answer(of, 1, architecture=architecture) == errno.EPERM


@BOTH
def test_a_socket_is_one_of_packets_between_processes_and_nothing_else(of: int) -> None:
    flags = socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    assert asked(of, "socket", socket.AF_UNIX, socket.SOCK_SEQPACKET | flags) == ALLOWED
    assert asked(of, "socketpair", socket.AF_UNIX, socket.SOCK_STREAM) == ALLOWED
    for family in range(50):
        for kind in range(1, 11):
            if (family, kind) != (socket.AF_UNIX, socket.SOCK_SEQPACKET):
                assert asked(of, "socket", family, kind | flags) == errno.EPERM
        assert family == socket.AF_UNIX or asked(of, "socketpair", family, 1) == errno.EPERM
    assert {asked(of, "bind"), asked(of, "listen")} == {ALLOWED}


@BOTH
def test_a_new_process_or_thread_stays_in_its_namespaces(of: int) -> None:
    thread = 0x3D0F00
    assert asked(of, "clone", thread) == asked(of, "clone", 17) == asked(of, "unshare", 0x400) == ALLOWED
    for bit in range(32):
        if 1 << bit & NEW_NAMESPACES:
            assert asked(of, "clone", thread | 1 << bit) == asked(of, "unshare", 1 << bit) == errno.EPERM
    assert asked(of, "unshare", 0x80) == errno.EPERM  # time; of `clone` these bits are a signal


@BOTH
def test_what_a_process_sets_it_sets_of_itself(of: int) -> None:
    for name in OF_ITSELF_ALONE.split():
        assert (asked(of, name, 0), asked(of, name, 4711)) == (ALLOWED, errno.EPERM)
    assert (asked(of, "setpriority", 0, 0), asked(of, "setpriority", 0, 4711)) == (ALLOWED, errno.EPERM)
    assert asked(of, "setpriority", 2, 0) == errno.EPERM  # of all of its user's
    assert (asked(of, "kill", 4711, 9), asked(of, "kill", -1, 9)) == (ALLOWED, errno.EPERM)
    assert (asked(of, "personality", 0xFFFFFFFF), asked(of, "personality", 0x40000)) == (ALLOWED, errno.EPERM)


@BOTH
def test_times_seem_to_be_set_but_not_to_now_by_name(of: int) -> None:
    """`Path.touch` learns by that whether there is a file; a pointer may have zeros in either half."""
    for pointer in (0x7FFF00000000, 0x1000):
        assert asked(of, "utimensat", -100, 1 << 40, pointer) == 0
    assert asked(of, "utimensat", -100, 1 << 40, NOW) == errno.EPERM
    assert asked(of, "utimensat", 3, 0, NOW) == 0  # of a descriptor
    if of == X86_64:
        assert {asked(of, name, 1 << 40, 0x1000) for name in ("utime", "utimes")} == {0}
        assert {asked(of, name, 1 << 40, NOW) for name in ("utime", "utimes")} == {errno.EPERM}


@BOTH
def test_ioctls_of_drivers_pass_and_those_of_files_do_not(of: int) -> None:
    nvidia, unified_memory, terminal = 0xC020462A, 0x30000001, 0x5401
    assert {asked(of, "ioctl", 3, request) for request in (nvidia, unified_memory, terminal, 25, 0x5421)} == {ALLOWED}
    flags, xfs_flags, verity, version, clone, typed = 0x40086602, 0x401C5820, 0x40806685, 0x40087602, 0x40049409, 0x5412
    refused = {asked(of, "ioctl", 3, request) for request in (flags, xfs_flags, verity, version, clone, typed)}
    assert refused == {errno.ENOTTY}


@BOTH
def test_no_lease_makes_others_wait_for_a_file(of: int) -> None:
    duplicate, flags, lock, lease, notify = 0, 4, 6, 1024, 1026
    assert {asked(of, "fcntl", 3, command) for command in (duplicate, flags, lock, 1030, 1031)} == {ALLOWED}
    assert {asked(of, "fcntl", 3, command) for command in (lease, notify)} == {errno.EPERM}


@BOTH
def test_the_program_is_one_that_the_kernel_takes(of: int) -> None:
    program = seccomp.program(of)
    assert len(program) <= 4096
    assert program[-1] == (0x06, 0, 0, 0x7FFF0000)
    for at, (code, true, false, _) in enumerate(program):
        assert code & 7 != 5 or at + 1 + max(true, false) < len(program)
        assert max(true, false) < 256
