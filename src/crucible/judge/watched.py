"""What a candidate's forward does to parameters and buffers, beside what the reference's does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from crucible.judge.verdict.evidence import TensorError
from crucible.judge.verdict.stop import Stop
from crucible.judge.verdict.verdict import Wrong
from crucible.judge.verdict.verification import wrong_tensor

_SHOWN = 4
Compare = Callable[[list[str]], Sequence[TensorError]]


def left_as_before(case: dict[str, Any], reply: dict[str, Any], compare: Compare, *, training: bool) -> list[str]:
    """What it leaves alone and the reference updates, where nobody asks for training. Raises Stop where it changes what
    the reference leaves alone, or leaves another value than the reference does: `compare` holds these names' against
    the oracle's."""
    theirs = [name for name in case["buffers"] if name in reply["watched"]]
    spoilt = [name for name in reply["changed"] if name not in theirs]
    if spoilt:
        raise Stop(Wrong("buffers", f"forward changes {', '.join(spoilt[:_SHOWN])}, which the reference leaves alone"))
    followed = [name for name in theirs if name in reply["changed"]]
    wrong = next((error for error in (compare(followed) if followed else ()) if not error.ok), None)
    if wrong is not None:
        raise Stop(wrong_tensor(wrong, "buffers", case["label"] or "new weights"))
    left = [name for name in theirs if name not in followed]
    if left and training:
        raise Stop(Wrong("buffers", in_words(left)))
    return left


def in_words(left: Sequence[str]) -> str:
    """What it does not update."""
    return f"forward leaves {', '.join(left[:_SHOWN])} as before, which the reference updates"
