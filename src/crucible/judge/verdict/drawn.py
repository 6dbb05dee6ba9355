"""A wrong answer where the reference draws random numbers: it may be right with other draws, and nobody can tell."""

from __future__ import annotations

from crucible.judge.verdict.verdict import NotJudged, Outcome, Wrong

_OF_VALUES = ("forward", "weights", "gradient", "buffers", "not reproducible")


def or_drawn(outcome: Outcome, *, draws: bool) -> Outcome:
    """That outcome, unless it is one of values and the reference `draws` some of them."""
    if not (draws and isinstance(outcome, Wrong) and outcome.what in _OF_VALUES):
        return outcome
    return NotJudged(
        "the reference draws random numbers, and from the same seed this draws others than PyTorch, or is wrong "
        f"({outcome.words}): judge it with --mode eval"
    )
