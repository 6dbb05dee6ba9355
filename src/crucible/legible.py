"""legible: text that others had a part in, as people may be shown it.

What a candidate prints, raises or is named may hold anything: a sequence that moves a terminal's cursor or sets its
title, half of a surrogate pair that no encoding takes, marks that turn the direction of what follows. Records keep it
as it came (their JSON is ASCII); whatever is shown goes through here, and only here.
"""

from __future__ import annotations

import io
import re
import sys

_UNSEEN = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u061c\ud800-\udfff\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069"
    r"\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""Control characters but for line ends and tabs, halves of surrogate pairs, and what turns the direction of text or
cannot be seen."""
_ENDS_A_LINE = re.compile(r"\r\n|[\r\n\t]")


def lines(text: str) -> str:
    """With every character that cannot be seen, or that turns what follows around, as its code in brackets."""
    return _UNSEEN.sub(lambda found: f"[U+{ord(found[0]):04X}]", text)


def line(text: str) -> str:
    """The same in one line: what others wrote begins none of ours."""
    return lines(_ENDS_A_LINE.sub(" ", text))


def any_encoding() -> None:
    """What the encoding of standard output or error lacks is written by its code: `PYTHONIOENCODING=ascii` has no ±."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def counted(count: float, noun: str, plural: str = "") -> str:
    """`1 kernel`, `2 kernels`, `0 launches` (whose plural is regular too); `plural` where it is neither."""
    more = plural or noun + ("es" if noun.endswith(("ch", "sh", "s", "x")) else "s")
    return f"{f'{count:g}' if isinstance(count, float) else count} {noun if count == 1 else more}"


def are(count: float) -> str:
    """What follows that count of something."""
    return "is" if count == 1 else "are"
