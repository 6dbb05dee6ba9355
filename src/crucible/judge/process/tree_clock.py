"""The tree's clock: what all processes of a candidate have taken of the processors, read from outside of them."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass

from crucible.judge.process.supervisor import watched

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Spent:
    """Milliseconds since the processes began."""

    worked_ms: float
    """Of processor time, all threads, those that are over too."""
    queued_ms: float
    """In which threads could have worked and no processor was free for them."""

    def since(self, before: Spent) -> Spent:
        """Never negative: a process that has ended may take its time along."""
        worked, queued = self.worked_ms - before.worked_ms, self.queued_ms - before.queued_ms
        return Spent(max(0.0, worked), max(0.0, queued))


NOTHING = Spent(0.0, 0.0)


def spent(supervisor: int) -> Spent:
    """What everything below that process has taken: to the nanosecond of what lives, to 10 ms of children that have
    ended (0.15 ms for a process of three threads)."""
    worked = queued = 0.0
    for pid in watched(supervisor):
        with contextlib.suppress(OSError, ValueError, IndexError):
            worked += _clock_of(pid) + _of_ended_children(pid)
            queued += _queued(pid)
    return Spent(worked * 1e3, queued * 1e3)


def kept_waiting_ms() -> float:
    """Milliseconds in which this thread could have gone on and no processor was free; 0 where the kernel does not
    tell."""
    with contextlib.suppress(OSError), open("/proc/thread-self/schedstat", encoding="ascii") as file:
        return int(file.read().split()[1]) / 1e6
    return 0.0


def _clock_of(pid: int) -> float:
    """Seconds; what clock_getcpuclockid(3) gives for another process is this number (CPUCLOCK_SCHED, all threads)."""
    return time.clock_gettime((~pid << 3) | 2)


def _of_ended_children(pid: int) -> float:
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / _TICKS


def _queued(pid: int) -> float:
    """Seconds of its living threads; 0 where the kernel does not tell."""
    seconds = 0.0
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as file:
                seconds += int(file.read().split()[1]) / 1e9
    return seconds
