"""Launches, as calls of the runtime that carry the kernel with its names, line and bounds."""

from __future__ import annotations

import json
import re

from crucible.emulator.kernel_texts import KernelText, plain
from crucible.emulator.tokens import (
    Token,
    angle_closing,
    angle_opening,
    closing,
    following,
    lines,
    positions,
    preceding,
    split,
    tokenize,
    words,
)


def call_launches(tokens: list[Token], kernels: list[KernelText], anchor: str) -> None:
    """Both ways to launch; `anchor` names a variable of the compiled file."""
    _cooperative_launches(tokens)
    _launches(tokens, kernels, anchor)


def _cooperative_launches(tokens: list[Token]) -> None:
    """`cudaLaunchKernel((void*)kernel<T>, ...)`: the cast would lose the parameters' types."""
    for name in ("cudaLaunchCooperativeKernel", "cudaLaunchKernel"):
        for at in positions(tokens, name):
            opening = following(tokens, at)
            if opening >= len(tokens) or tokens[opening].text != "(":
                continue
            first = split(tokens[opening + 1 : closing(tokens, opening)])[0]
            real = [token for token in first if token.matters]
            if real[0].text == "(" and "void" in [token.text for token in real[:4]]:
                for token in real[: [token.text for token in real].index(")") + 1]:
                    token.text = ""
            elif real[0].text in ("reinterpret_cast", "static_cast"):
                close = next(i for i, token in enumerate(real) if token.text == ">")
                for token in real[: close + 1]:
                    token.text = ""
            label = json.dumps(words(first))
            cooperative = str(name == "cudaLaunchCooperativeKernel").lower()
            tokens[at].text = "crucible_launch_kernel"
            tokens[opening].text = f"({label}, {tokens[at].line}, {cooperative}, "


def _launches(tokens: list[Token], kernels: list[KernelText], anchor: str) -> None:
    """`kernel<T><<<grid, block>>>(a, b)`."""
    for at in list(positions(tokens, "<<<")):
        start, name_end = launched_name(tokens, at)
        end = config_end(tokens, at)
        opening = following(tokens, end)
        if start < 0 or opening >= len(tokens) or tokens[opening].text != "(":
            continue
        name = tokens[start : name_end + 1]
        text = words(name)
        config = "".join(token.text for token in tokens[at + 1 : end - 2])
        known = [kernel for kernel in kernels if kernel.name == plain(text)]
        kernel = known[-1] if known else None
        address = _address(text, known)
        parameters = ",".join(kernel.parameters) if kernel else ""
        bounds = kernel.bounds if kernel and _is_number(kernel.bounds) else "0"
        record = f"{json.dumps(text)}, {json.dumps(parameters)}, {tokens[start].line}, {address}, &{anchor}, {bounds}"
        for i in range(start + 1, opening):
            tokens[i].text = "" if at < i < end - 1 else lines([tokens[i]])
        tokens[start].text = f"::crucible::Launcher{{::crucible::Config({config}), ::crucible::Kernel{{{record}}}, "
        tokens[start].text += f"[&](auto&... crucible_a) CRUCIBLE_PLAIN {{ {text}(crucible_a...); }}}}"


def launched_name(tokens: list[Token], at: int) -> tuple[int, int]:
    """First and last token of what stands before `<<<`."""
    end = i = preceding(tokens, at)
    if i < 0:
        return -1, -1
    if tokens[i].text == ">":
        i = preceding(tokens, angle_opening(tokens, i))
    while i > 0 and tokens[preceding(tokens, i)].text == "::":
        i = preceding(tokens, i)
        if tokens[preceding(tokens, i)].kind == "name" and tokens[preceding(tokens, i)].text != "return":
            i = preceding(tokens, i)
    return i, end


def config_end(tokens: list[Token], at: int) -> int:
    """Index of the last `>` of `>>>`."""
    depth, i = 0, at + 1
    while i + 2 < len(tokens):
        text = tokens[i].text
        depth += text in ("(", "[", "{")
        depth -= text in (")", "]", "}")
        if depth == 0 and text == ">" and tokens[i + 1].text == tokens[i + 2].text == ">":
            return i + 2
        i += 1
    return len(tokens)


def _is_number(text: str) -> bool:
    """Whether a launch bound can be written into the launch: names may be template parameters of the kernel."""
    return bool(re.fullmatch(r"[\d\s()*/+]+", text))


def _address(text: str, known: list[KernelText]) -> str:
    """C++ for the kernel's address, null where the launch leaves it to be deduced."""
    defined = [kernel for kernel in known if kernel.defined] or known
    if len(defined) > 1:
        return "nullptr"
    if defined and defined[0].template >= 0:
        tokens = tokenize(text)
        opening = next((i for i, token in enumerate(tokens) if token.text == "<"), -1)
        given = len(split(tokens[opening + 1 : angle_closing(tokens, opening)])) if opening >= 0 else 0
        if opening < 0 or given < defined[0].template:
            return "nullptr"
    return f"(const void*)({text})"
