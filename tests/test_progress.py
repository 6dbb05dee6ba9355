"""Progress: what is running, how far, how long still; lines elsewhere than on a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from crucible.cli.progress import Progress
from crucible.underway import Step, in_words, left_s


def test_lines_say_how_far_and_how_long_still() -> None:
    """Time left is reckoned from the first candidate's turn: 40 s of preparing are no candidate's."""
    now = iter([0.0, 10.0, 50.0, 50.0, 80.0, 81.0])
    text = io.StringIO()
    with Progress(Console(file=text, width=200), lambda: next(now)) as say:
        say("building a, b\nc")
        say(Step("judging a", 0, 4))
        say(Step("judging b", 1, 4))
        say("b: passed")
    assert text.getvalue().splitlines() == [
        "  10.0 s  building a, b",
        "  50.0 s  [0/4]  judging a",
        "  80.0 s  [1/4, about 90 s left]  judging b".replace("90 s", "2 min"),
        "  81.0 s  [1/4, about 2 min left]  b: passed",
    ]


@pytest.mark.parametrize("width", [30, 80])
def test_a_terminal_has_one_line_that_no_text_breaks(width: int) -> None:
    text = io.StringIO()
    console = Console(file=text, width=width, force_terminal=True, color_system=None)
    progress = Progress(console, lambda: 1.0)
    with progress as say:
        say(Step("judging \x1b[2J[red]" + "long" * 40, 1, 3))
    shown = text.getvalue()
    assert "\x1b[2J" not in shown
    lines = [line.split("\x1b")[0] for line in shown.replace("\r", "\n").splitlines()]
    assert max(map(len, lines)) <= width


def test_seconds_in_words() -> None:
    assert [in_words(s) for s in (0.2, 45, 89, 91, 3600, 7200)] == ["1 s", "45 s", "89 s", "2 min", "60 min", "2.0 h"]
    assert (left_s(0, 4, 9.0), left_s(4, 4, 9.0), left_s(1, 4, 9.0)) == (None, None, 27.0)
