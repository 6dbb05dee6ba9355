"""Step: a line of progress that knows how far the run is."""

from __future__ import annotations


class Step(str):
    """One line, as any other text; of a run that judges `total` candidates `done` are through."""

    done: int
    total: int

    def __new__(cls, text: str, done: int, total: int) -> Step:
        step = super().__new__(cls, text)
        step.done, step.total = done, total
        return step


def left_s(done: int, total: int, elapsed_s: float) -> float | None:
    """Seconds that the others will take if they take as long as those that are through; None before there are any."""
    return elapsed_s / done * (total - done) if 0 < done < total else None


def in_words(seconds: float) -> str:
    """`45 s`, `3 min`, `1.5 h`: no finer than an estimate is."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
