"""What stands before a kernel: the includes and device functions that its text calls."""

from __future__ import annotations

import re
from collections.abc import Sequence

from crucible.algebra.expression import tensor
from crucible.print.chains import emit
from crucible.target import sm80, sm90, windows
from crucible.target.cuda import HELPERS, INCLUDES, STEPS, combining

_EXTREMES = {"max_nan": tensor("a").maximum(tensor("b")), "min_nan": tensor("a").minimum(tensor("b"))}
"""Functions that reductions call, and what calls them in arithmetic."""


def preamble(text: str, dtypes: Sequence[str], precision: str, called: tuple[str, ...]) -> tuple[str, ...]:
    """Includes, then device functions, each before those that call it; `called` are those of arithmetic."""
    helpers = {**HELPERS, **sm80.HELPERS, **sm90.HELPERS, **windows.HELPERS}
    for kind in STEPS:
        helpers |= combining(kind)
    wanted = _words(text) & helpers.keys()
    while (more := wanted | {word for name in wanted for word in _words(helpers[name]) & helpers.keys()}) != wanted:
        wanted = more
    functions = dict.fromkeys(called)
    read = _words("\n".join([text, *(helpers[name] for name in wanted)]))
    for name, expr in _EXTREMES.items():
        if name in read:
            functions |= dict.fromkeys(emit({"extreme": expr}, precision=precision).preamble)
    wide = {"float16": "__half2", "bfloat16": "__nv_bfloat162"}
    includes = [INCLUDES[dtype] for dtype in INCLUDES if dtype in dtypes or wide[dtype] in read]
    includes += [each for each in functions if each.startswith("#include")]
    own = [each for each in functions if not each.startswith("#include")]
    return tuple(dict.fromkeys([*includes, *own, *(helpers[name] for name in helpers if name in wanted)]))


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", re.sub(r"//.*", "", text)))
