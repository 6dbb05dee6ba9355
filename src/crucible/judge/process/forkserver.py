"""The fork server: it has imported torch once (2 s), and forks a supervisor for each process
that the judge starts (10 ms).

It runs nothing of a task or of a candidate and reads nothing that the judge hands on: settings and environment come as
a file that the fork opens, so no other fork finds a trace of them in its memory. Nor may anything that it imports ask
CUDA for a device: no fork could use one then.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import sys
import tempfile
from typing import Any

import setuptools.command.build_ext  # noqa: F401 - most of the time that torch.utils.cpp_extension takes (0.2 s)
import torch.fx.experimental.symbolic_shapes  # noqa: F401 - shapes alone, and gradients, ask for it and SymPy (0.3 s)

import crucible.judge.oracle.server  # noqa: F401 - in memory before forks that need it are made
from crucible.judge.process import supervisor
from crucible.judge.process.channel import Channel, ChannelClosed, ChannelTimeout
from crucible.judge.process.supervisor import FIRST
from crucible.judge.worker import serving  # noqa: F401 - in memory before forks that need it are made

REAP_S = 1.0
_ABOVE = 64
"""Descriptors wait here until the low numbers are free."""


def serve(channel: Channel) -> None:
    """Forks as asked until the judge hangs up; supervisors then find themselves orphaned and end what they keep."""
    forked: set[int] = set()
    while True:
        with contextlib.suppress(ChannelTimeout):
            request = channel.receive(REAP_S)
            if request["do"] == "start":
                forked |= _start(channel)
            elif request["pid"] in forked:  # not reaped yet, so the number is still its own
                os.kill(request["pid"], signal.SIGKILL if request["at_once"] else signal.SIGTERM)
        forked -= _reaped(forked)


def _start(channel: Channel) -> set[int]:
    """A supervisor's process, if the system lets it be; its settings, what it says of the end, what is printed, and
    all to be handed on have come with the request."""
    descriptors = channel.take_descriptors()
    server = os.getpid()
    try:
        pid = supervisor.fork(lambda: _keep(channel, descriptors, server))
    except OSError as error:  # this one is not started; those that are there go on
        channel.send({"refused": str(error)})
        return set()
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    channel.send({"pid": pid})
    return {pid}


def _keep(channel: Channel, descriptors: list[int], server: int) -> None:
    channel.close()
    written, status = _arranged(descriptors)
    settings: dict[str, Any] = json.loads(_whole(written))
    os.close(written)
    os.setsid()
    os.chdir(settings["folder"])
    os.environ.clear()
    os.environ.update(settings["environment"])
    tempfile.tempdir = None  # this server's, if it asked: TMPDIR is the process's own
    supervisor.watch({**settings, "judge": server, "status": status, "pass": _numbers(descriptors)})


def _arranged(descriptors: list[int]) -> tuple[int, int]:
    """Puts descriptors where they belong and closes all others; returns those of the settings and of the status."""
    written, status, output, *passed = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, _ABOVE) for each in descriptors]
    kept = {0, 1, 2, written, status, output, *passed}
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with contextlib.suppress(OSError):  # the listing's own
                os.close(int(name))
    os.close(0)
    os.set_inheritable(os.open(os.devnull, os.O_RDONLY), True)  # takes the lowest number that is free: 0
    for source, number in [(output, 1), (output, 2), *zip(passed, _numbers(descriptors), strict=True)]:
        os.dup2(source, number)
    for each in (output, *passed):
        os.close(each)
    return written, status


def _numbers(descriptors: list[int]) -> list[int]:
    return [FIRST + i for i in range(len(descriptors) - 3)]


def _whole(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


def _reaped(forked: set[int]) -> set[int]:
    return {pid for pid in forked if os.waitpid(pid, os.WNOHANG)[0]}


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the judge's to handle
    with contextlib.suppress(ChannelClosed):
        serve(Channel.from_descriptor(int(sys.argv[1])))
