"""`__shared__` declarations, as references into the block's memory."""

from __future__ import annotations

import json
import re

from crucible.emulator.faults import NotCovered
from crucible.emulator.tokens import Token, closing, following, positions, preceding, put, split, words


def refer_to_shared(tokens: list[Token], in_function: list[bool]) -> None:
    """`__shared__ float a[32], b;` becomes references into the block's memory."""
    for at in list(positions(tokens, "__shared__")):
        if tokens[at].text != "__shared__":
            continue  # part of a declaration already done
        start = at
        while tokens[preceding(tokens, start)].text in ("extern", "static", "volatile"):
            start = preceding(tokens, start)
        end = at
        while end < len(tokens) and tokens[end].text != ";":
            end = closing(tokens, end) + 1 if tokens[end].text in ("(", "[", "{") else end + 1
        statement = tokens[start:end]
        kept, align = _without_specifiers(statement)
        parts = split(kept)
        if not parts:
            continue
        is_extern = any(token.text == "extern" for token in statement)
        type_, name, dims = _declarator(parts[0])
        text = _shared_text(type_, name, dims, align, is_extern, in_function[at])
        base = type_.rstrip("*& ")
        for part in parts[1:]:
            stars, name, dims = _declarator(part)
            text += "; " + _shared_text(f"{base} {stars}", name, dims, align, is_extern, in_function[at])
        put(text, statement)


def _without_specifiers(statement: list[Token]) -> tuple[list[Token], str]:
    kept: list[Token] = []
    align, skip_to = "1", -1
    for i, token in enumerate(statement):
        if i <= skip_to or token.text in ("extern", "static", "__shared__"):
            continue
        if token.text in ("__align__", "alignas", "__attribute__", "__builtin_align__"):
            opening = following(statement, i)
            skip_to = closing(statement, opening)
            inside = words(statement[opening + 1 : skip_to])
            number = re.search(r"aligned\s*\((.*)\)\s*\)$", inside)
            align = number[1] if number else inside
            continue
        kept.append(token)
    return kept, align


def _declarator(part: list[Token]) -> tuple[str, str, str]:
    """Type, name and dimensions of `float* a[3]`."""
    depth, bracket, name = 0, len(part), -1
    for i, token in enumerate(part):
        if token.text in ("[", "=") and depth == 0:
            bracket = i
            break
        depth += token.text in ("<", "(", "{")
        depth -= token.text in (">", ")", "}")
        if token.kind == "name" and depth == 0:
            name = i
    return words(part[:name]), part[name].text, words(part[bracket:])


def _shared_text(type_: str, name: str, dims: str, align: str, is_extern: bool, in_function: bool) -> str:
    if is_extern:
        inner = re.sub(r"^\[\s*\]", "", dims).strip()
        if inner:
            start = f"typedef {type_} crucible_t_{name}{inner}; auto* {name} = "
            return f"{start}::crucible::dynamic_shared<crucible_t_{name}>({json.dumps(name)})"
        if not in_function:
            return f"static const ::crucible::DynamicShared<{type_}> {name}{{}}"
        return f"{type_}* {name} = ::crucible::dynamic_shared<{type_}>({json.dumps(name)})"
    label = json.dumps(f"{name}|{type_}")
    if not in_function:
        raise NotCovered(f"__shared__ variable {name} outside a function")
    return (
        f"static const char crucible_s_{name} = 0; typedef {type_} crucible_t_{name}{dims}; "
        f"crucible_t_{name}& {name} = "
        f"::crucible::shared<crucible_t_{name}>(&crucible_s_{name}, {label}, {align})"
    )
