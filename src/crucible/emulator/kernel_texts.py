"""The `__global__` functions of a source, as its tokens show them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from crucible.emulator.tokens import Token, angle_opening, closing, following, positions, preceding, split, words


@dataclass(frozen=True)
class KernelText:
    """A `__global__` function as its source shows it."""

    name: str
    line: int
    parameters: tuple[str, ...]
    template: int
    """Template parameters without a default; -1 when it is no template."""
    bounds: str
    """First argument of `__launch_bounds__`, empty without."""
    defined: bool
    barriers: tuple[int, ...] = ()
    """Lines of its own `__syncthreads` that some thread should reach: none inside `#if` or where a template decides."""


def find_kernels(tokens: list[Token]) -> list[KernelText]:
    found = []
    for at in positions(tokens, "__global__"):
        bounds, i = "", following(tokens, at)
        opening = -1
        while i < len(tokens) and tokens[i].text not in (";", "{"):
            if tokens[i].text == "__launch_bounds__":
                end = closing(tokens, following(tokens, i))
                first = split(tokens[following(tokens, i) + 1 : end])
                bounds, i = words(first[0]) if first else "", following(tokens, end)
                continue
            if tokens[i].text in ("__attribute__", "__cluster_dims__"):
                i = following(tokens, closing(tokens, following(tokens, i)))
                continue
            if tokens[i].text == "(":
                opening = i
                break
            i = following(tokens, i)
        if opening < 0:
            continue
        end = closing(tokens, opening)
        name = tokens[preceding(tokens, opening)]
        after = following(tokens, end)
        defined = after < len(tokens) and tokens[after].text == "{"
        parameters = tuple(_parameter_name(part) for part in split(tokens[opening + 1 : end]))
        barriers = _barriers(tokens, at, after) if defined else ()
        template = _template_parameters(tokens, at)
        found.append(KernelText(name.text, name.line, parameters, template, bounds, defined, barriers))
    return found


def plain(name: str) -> str:
    """A kernel's name without namespaces and template arguments."""
    return re.split(r"\s*<", name, maxsplit=1)[0].split("::")[-1].strip("() ")


def _barriers(tokens: list[Token], at: int, brace: int) -> tuple[int, ...]:
    """Lines of the barriers in a kernel's body; none where the preprocessor or a template's number has a say."""
    body = tokens[brace : closing(tokens, brace)]
    if any(token.text == "#" for token in body) or _has_numbers(tokens, at):
        return ()
    return tuple(dict.fromkeys(token.line for token in body if re.fullmatch(r"__syncthreads\w*", token.text)))


def _has_numbers(tokens: list[Token], at: int) -> bool:
    """Whether the kernel is a template of anything but types."""
    close = preceding(tokens, at)
    if close < 0 or tokens[close].text != ">":
        return False
    opening = angle_opening(tokens, close)
    parts = split(tokens[opening + 1 : close]) if opening >= 0 else []
    return any(words(part).split(" ")[0] not in ("typename", "class") for part in parts)


def _parameter_name(part: list[Token]) -> str:
    names = []
    for token in part:
        if token.text in ("[", "="):
            break
        if token.kind == "name":
            names.append(token.text)
    return names[-1] if len(names) > 1 else "?"


def _template_parameters(tokens: list[Token], at: int) -> int:
    i = preceding(tokens, at)
    while i >= 0 and tokens[i].text in ("static", "inline", "extern", '"C"', "__forceinline__"):
        i = preceding(tokens, i)
    if i < 0 or tokens[i].text != ">":
        return -1
    opening = angle_opening(tokens, i)
    if opening < 1 or tokens[preceding(tokens, opening)].text != "template":
        return -1
    parts = split(tokens[opening + 1 : i])
    return sum(not any(token.text == "=" for token in part) for part in parts)
