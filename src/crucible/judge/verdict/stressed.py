"""What a candidate does beyond its task's own inputs: records."""

from __future__ import annotations

from dataclasses import dataclass

RIGHT, WRONG, RAISES, NOT_TRIED = "right", "wrong", "raises", "not tried"


@dataclass(frozen=True)
class Stressed:
    """One rule that the reference keeps, and whether the candidate does."""

    rule: str
    """What is tested: `NaN`, `transposed input`, `another shape`, `a step of SGD`, ..."""
    how: str
    """The inputs, weights or cotangents that it is tested with, in words."""
    came: str
    """`right`; `wrong`; `raises`, which is a failure that its caller hears of; `not tried`."""
    words: str = ""
    """What is wrong, or why it was not tried."""

    @property
    def failed(self) -> bool:
        return self.came in (WRONG, RAISES)


def failures(stress: tuple[Stressed, ...]) -> tuple[Stressed, ...]:
    """Those that the candidate did not stand."""
    return tuple(one for one in stress if one.failed)
