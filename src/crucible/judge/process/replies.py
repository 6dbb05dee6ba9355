"""What a candidate's process may answer: the form of each reply, checked before anything is read from it.

The process is hostile: a reply that does not have its form was not written by the judge's own code.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

from crucible.emulator.faults import Fault
from crucible.emulator.trace import Trace

_DEEPEST = 50
"""Nesting that no honest output reaches."""
MOST_TRACED = 40
"""Lines, and launches, of a trace that is kept."""
MOST_FAULTS = 50
MOST_ITEMS = 100_000
"""In one list or object of a reply: as many as no module has weights or outputs."""
MOST_KERNELS = 64
"""In a profile; the judge's own code tells of 31."""
LONGEST_TEXT = 64 << 10
"""Characters: an exception's message is cut to 20,000."""
MOST_INTEGER, MOST_NUMBER = 1 << 62, 1e12
"""Sizes and counts; milliseconds and seconds (1e12 ms are 32 years). What is larger is no measurement, and breaks
arithmetic."""
_RAISED = {
    "raised": str,
    "message": str,
    "line": int,
    "build_failure": bool,
    "compiled_only": bool,
    "out_of_memory": bool,
    "forked": bool,
}
_TENSOR = {"name": str, "dtype": str, "shape": [int], "device": str}
_FORMS: dict[str, dict[str, Any]] = {
    "import": {"flags": {str: str}},
    "construct": {},
    "run": {
        "outputs": [_TENSOR],
        "aliases": [[int]],
        "mutated": [int],
        "overwritten": [int],
        "swallowed": [str],
        "operations": [str],
        "weights": {
            "only_in_reference": [str],
            "only_in_candidate": [str],
            "held": [str],
            "paired": [str],
            "ways": int,
        },
        "watched": [str],
        "changed": [str],
    },
    "backward": {
        "gradients": {str: {"dtype": str, "shape": [int]}},
        "not_comparable": [str],
        "computed": [str],
        "mutated": [int],
    },
    "step": {"gradients": {str: {"dtype": str, "shape": [int]}}, "outputs": [[int]], "dtypes": [str]},
    "send": {},
    "set_up": {},
    "sample": {"device_ms": float, "wall_ms": float},
    "capture_graph": {},
    "profile": {
        "first_call_s": float,
        "peak_bytes": int,
        "allocations": int,
        "kernels": [(str, int, float)],
        "busy_ms": float,
        "span_ms": float,
        "streams": int,
        "operators": [(str, int, float)],
        "operators_ms": float,
        "call_ms": float,
    },
    "trace": {"operators": [(str, int, int, int)]},
    "influence": {"reached": [int], "read_by": [str]},
    "audit": {
        "replaced": [str],
        "hunts": [str],
        "flags": {str: str},
        "builds": [{"name": str, "seconds": float, "error": str}],
        "never_ran": [dict],
        "never_reached": [dict],
        "launched": [str],
        "resources": [(str, int, int, int, int, int, int, int)],
    },
}


def faults_of(reply: dict[str, Any]) -> list[Fault]:
    """The emulator's faults; what has another form is left out."""
    given = reply.get("faults", [])
    faults = []
    for one in given[:MOST_FAULTS] if isinstance(given, list) else []:
        with contextlib.suppress(ValueError):
            faults.append(Fault.from_json(one))
    return faults


def is_reply(verb: str, reply: dict[str, Any]) -> bool:
    """Whether `reply` answers `verb`: with its result, with an exception, or (for `run`) with what is amiss."""
    try:
        return _answers(verb, reply)
    except RecursionError:
        return False


def _answers(verb: str, reply: dict[str, Any]) -> bool:
    if "raised" in reply:
        return _conforms(reply, _RAISED)
    if reply.get("done") != verb or not isinstance(reply.get("forked", False), bool):
        return False
    if verb == "run" and "cheat" in reply:
        return _conforms(reply["cheat"], [str]) and len(reply["cheat"]) == 2
    if verb == "run" and "not_plain" in reply:
        return isinstance(reply["not_plain"], str)
    if not _conforms(reply, _FORMS.get(verb, {})):
        return False
    if verb == "trace":
        return _is_trace(reply.get("trace")) and all(min(one[1:]) >= 0 for one in reply["operators"])
    if verb == "profile":
        return len(reply["kernels"]) <= MOST_KERNELS
    if verb != "run":
        return True
    whole_pairs = all(len(pair) == 2 for pair in reply["aliases"])
    return whole_pairs and _is_structure(reply.get("structure"), len(reply["outputs"]), _DEEPEST)


def _is_trace(value: Any) -> bool:
    try:
        trace = Trace.from_json(value)
    except ValueError:
        return False
    return len(trace.lines) <= MOST_TRACED and len(trace.launches) <= MOST_TRACED


def _conforms(value: Any, form: Any) -> bool:
    if isinstance(value, list | dict) and len(value) > MOST_ITEMS:
        return False
    if isinstance(form, tuple):
        return isinstance(value, list) and len(value) == len(form) and all(map(_conforms, value, form))
    if isinstance(form, list):
        return isinstance(value, list) and all(_conforms(item, form[0]) for item in value)
    if isinstance(form, dict) and str in form:
        keys = isinstance(value, dict) and all(len(name) <= LONGEST_TEXT for name in value)
        return keys and all(_conforms(item, form[str]) for item in value.values())
    if isinstance(form, dict):
        return isinstance(value, dict) and all(k in value and _conforms(value[k], f) for k, f in form.items())
    if form is float:  # a comparison, unlike math.isfinite, takes an integer of any size
        return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MOST_NUMBER
    if type(value) is not form:
        return False
    if form is int:
        return bool(-MOST_INTEGER <= value <= MOST_INTEGER)
    return form is not str or len(value) <= LONGEST_TEXT


def _is_structure(value: Any, tensors: int, depth: int) -> bool:
    """Whether `value` is what `tree.take_apart` makes, over so many tensors and no deeper than `depth`."""
    if depth == 0 or not (isinstance(value, list) and len(value) == 2):
        return False
    kind, body = value
    if kind == "tensor":
        return type(body) is int and 0 <= body < tensors
    if kind in ("tuple", "list"):
        return isinstance(body, list) and all(_is_structure(item, tensors, depth - 1) for item in body)
    if kind == "dict":
        return isinstance(body, list) and all(
            isinstance(item, list)
            and len(item) == 2
            and isinstance(item[0], str)
            and _is_structure(item[1], tensors, depth - 1)
            for item in body
        )
    return kind in ("plain", "dtype") and len(json.dumps(body)) <= LONGEST_TEXT
