"""Limits: what a candidate, and the judge on its behalf, may take."""

from __future__ import annotations

from dataclasses import dataclass

from crucible import hardware


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
    """Resident memory of the candidate's process tree; 0 stands for three quarters of the machine's."""
    processes: int = 256
    """Processes alive at a time (a parallel build needs dozens)."""
    file_bytes: int = 4 << 30
    """Size of any one file it writes."""

    @property
    def memory(self) -> int:
        return self.memory_bytes or hardware.memory_bytes() * 3 // 4
