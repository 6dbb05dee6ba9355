"""The form of what a candidate returns: structure, dtypes, shapes, devices, and whose memory it is."""

from __future__ import annotations

from typing import Any

from crucible.judge.verdict.stop import Stop
from crucible.judge.verdict.verdict import Cheated, Wrong


def check_form(description: dict[str, Any], case: dict[str, Any], reply: dict[str, Any]) -> None:
    """Of what a case gave, against the reference's description, changed inputs included. Raises Stop."""
    if "cheat" in reply:
        raise Stop(Cheated(*reply["cheat"]))
    if "not_plain" in reply:
        raise Stop(Wrong("structure", f"{reply['not_plain']}, instead of {_form(description['structure'])}"))
    expected = case["outputs"]
    same = _same_structure(description["structure"], reply["structure"])
    if not same or len(reply["outputs"]) != len(expected):
        raise Stop(
            Wrong(
                "structure",
                f"{_form(reply['structure'])} instead of {_form(description['structure'])}",
            )
        )
    for want, got in zip(expected, reply["outputs"], strict=True):
        if got["shape"] != want["shape"]:
            raise Stop(Wrong("shape", f"{want['name']} is {got['shape']}, should be {want['shape']}"))
        if got["dtype"] != want["dtype"]:
            cast = description.get("cast")
            why = f": the contract casts inputs and weights to {cast}, and it does not go by theirs" if cast else ""
            raise Stop(Wrong("dtype", f"{want['name']} is {got['dtype']}, should be {want['dtype']}{why}"))
        if got["device"] != description["device"]:
            raise Stop(
                Wrong(
                    "device",
                    f"{want['name']} is on {got['device']}, should be on {description['device']}",
                )
            )
    for output, source in reply["aliases"]:
        if [output, source] not in description["aliases"]:
            detail = f"output {output} shares memory with input {source}; the reference's does not"
            raise Stop(Cheated("aliased input", detail))
    changed = sorted(set(reply["mutated"]) - set(description["mutated"]))
    if changed:
        raise Stop(Cheated("mutated input", f"forward changed input {changed[0]}; the reference leaves it alone"))


def _same_structure(expected: Any, got: Any) -> bool:
    if expected[0] in ("tuple", "list") and got[0] in ("tuple", "list"):
        return len(expected[1]) == len(got[1]) and all(map(_same_structure, expected[1], got[1]))
    if expected[0] == got[0] == "dict":
        return [k for k, _ in expected[1]] == [k for k, _ in got[1]] and all(
            _same_structure(a, b) for (_, a), (_, b) in zip(expected[1], got[1], strict=True)
        )
    return bool(expected[0] == got[0])


def _form(structure: Any) -> str:
    """A structure in words: `tensor`, `(tensor, tensor)`, `{mask: tensor}`."""
    kind, body = structure
    if kind == "dict":
        return "{" + ", ".join(f"{key}: {_form(item)}" for key, item in body) + "}"
    if kind in ("tuple", "list"):
        return "(" + ", ".join(_form(item) for item in body[:8]) + (", ..." if len(body) > 8 else "") + ")"
    return "tensor" if kind == "tensor" else f"{body!r}"
