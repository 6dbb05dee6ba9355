"""Limits: what a candidate, and the judge on its behalf, may take."""

from __future__ import annotations

from dataclasses import dataclass

from crucible import hardware
from crucible.errors import MisuseError


@dataclass(frozen=True)
class Limits:
    """What a candidate may take."""

    build_s: float = 300.0
    """Import and construction, builds included."""
    run_s: float = 60.0
    """One forward, one backward, or one hand-over of results."""
    oracle_s: float = 900.0
    """The reference's answers, all cases."""
    race_s: float = 0.0
    """Rounds of one timed race, of which the fewest are taken all the same, and the measurement of the device's own
    rates; 0 stands for what the device needs."""
    shrink_s: float = 20.0
    """The search for the smallest failing shape of a candidate that fails; 0: none. A few dozen runs at small sizes:
    under a second on a CPU, 5 to 15 s for a tiled matrix product on the emulator."""
    stress_s: float = 20.0
    """What a candidate that passes does beyond the task's own inputs, and the reference's answers to that; 0: none."""
    memory_bytes: int = 0
    """Resident memory of the candidate's process tree; 0 stands for three quarters of what is
    free: of the machine's, and of the control group's that this process is in."""
    processes: int = 256
    """Processes alive at a time (a parallel build needs dozens)."""
    file_bytes: int = 4 << 30
    """Size of any one file it writes."""

    def __post_init__(self) -> None:
        """Raises MisuseError for what is no limit: a NaN, a negative number, an endless time."""
        for name, (least, most, unit) in RANGES.items():
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not least <= value <= most:  # a NaN is never within
                raise MisuseError(f"{name} {value!r}: give a number of {unit} from {least:g} to {most:g}")

    @property
    def memory(self) -> int:
        """Bytes; what is free changes, so whoever holds a process to it asks once."""
        return self.memory_bytes or hardware.available_bytes() * 3 // 4


LONGEST_S = 1e7
"""Four months: beyond it, the system's own timers end."""
_TIME, _OPTIONAL = (0.01, LONGEST_S, "seconds"), (0, LONGEST_S, "seconds")
RANGES: dict[str, tuple[float, float, str]] = {
    "build_s": _TIME,
    "run_s": _TIME,
    "oracle_s": _TIME,
    "race_s": _OPTIONAL,
    "shrink_s": _OPTIONAL,
    "stress_s": _OPTIONAL,
    "memory_bytes": (0, 1 << 50, "bytes"),
    "processes": (1, 1 << 22, "processes"),
    "file_bytes": (1, 1 << 50, "bytes"),
}
