"""Faults: what a kernel did wrong, where, and to which memory."""

from __future__ import annotations

from dataclasses import dataclass


class NotCovered(Exception):
    """The source uses something that the emulator does not know; never a verdict on the candidate."""


@dataclass(frozen=True)
class Fault:
    """One thing that went wrong in a kernel, the first time it was seen."""

    kind: str
    """`out-of-bounds-global`, `race-shared`, `divergent-barrier`, ...: docs/emulator.md lists them."""
    kernel: str
    """As launched, template arguments included."""
    block: tuple[int, int, int]
    thread: tuple[int, int, int]
    line: int
    """Line of the candidate's CUDA source, 0 when unknown."""
    memory: str
    """`12 bytes past the end of `out` (float[2048])`; empty when no memory is concerned."""
    detail: str
    """What was done, in words."""
    other_block: tuple[int, int, int] | None = None
    """The other side of a race, or of a barrier."""
    other_thread: tuple[int, int, int] | None = None
    other_line: int = 0
    count: int = 1
    """How often it was seen."""
    fatal: bool = False
    """Whether a GPU would have stopped the kernel (or refused the launch)."""
    file: str = "cuda.cu"
    """`cuda.cu` for `cuda_sources`, or the file given to `load`."""

    @property
    def words(self) -> str:
        """One line for people."""
        where = f"{self.file}:{self.line}, kernel {self.kernel}" if self.line else f"kernel {self.kernel}"
        place = "" if self.kind in _WITHOUT_THREAD else f", block {self.block}, thread {self.thread}"
        other = ""
        if self.other_thread is not None:
            other = f"; the other side: block {self.other_block}, thread {self.other_thread}"
            other += f", line {self.other_line}" if self.other_line else ""
        what = f"{self.detail}: {self.memory}" if self.memory else self.detail
        return f"{self.kind}: {what} ({where}{place}{other})"


_WITHOUT_THREAD = ("launch-limits", "unchecked-launch", "never-ran", "never-reached")
