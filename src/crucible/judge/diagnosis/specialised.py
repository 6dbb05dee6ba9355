"""Whether a candidate's text holds the task's own sizes, so that failing at others says little about it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any

from crucible.syntax import tree_of

COMMON = {1 << power for power in range(11)}
"""Also blocks, tiles and counts of anything; as a size they count only under the size's own name."""
LEAST = 48
_NUMBER = re.compile(r"(?<![\w.])(\d+)[uUlL]*(?![\w.])")
_NAMED = re.compile(r"\b(\w+)\s*(?:=|\()?\s*(\d+)\b")
_OF_INPUT = re.compile(r"^(?:input|in|i)_?(?=[a-z])|_in(?:put)?$")
_SAID = re.compile(r"//.*|/\*.*?\*/|/\*.*|^\s*\*\s.*")
"""Comments of a kernel, as far as a line shows them."""
_NOTED = re.compile(r"(^|\s)#.*")
_LETTERS = {"depth": "d", "height": "h", "width": "w"}


def hard_coded(source: str, sizes: Mapping[str, Any]) -> str:
    """Words for the first of the task's own sizes that stands in a candidate's kernels or modules as a number;
    empty when none does. What the candidate copied of the reference (`batch_size = 16`, `get_inputs`) is no sign."""
    return next((f"line {line} holds {sizes[name]}, the task's own {name}" for line, name in held(source, sizes)), "")


def held(source: str, sizes: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """Lines with the names of sizes that stand there as numbers, be it by chance."""
    for line, text in _own_lines(source):
        yield from ((line, name) for name, size in sizes.items() if _holds(text, name, size))


def _holds(text: str, name: str, size: int) -> bool:
    if size < LEAST or size in COMMON:
        return any(int(n) == size and _same_size(found, name) for found, n in _NAMED.findall(text))
    return any(int(number) == size for number in _NUMBER.findall(text))


def _same_size(found: str, name: str) -> bool:
    """Kernels call a task's `height` H, IH, H_IN or in_height as well."""
    found, name = found.lower(), name.lower()
    return found == name or _letter(found) == _letter(name) in _LETTERS.values()


def _letter(name: str) -> str:
    bare = _OF_INPUT.sub("", name)
    return _LETTERS.get(bare, bare)


def _own_lines(source: str) -> Iterator[tuple[int, str]]:
    """Lines of strings (CUDA sources) and of classes and functions, those of the task's form and comments left out."""
    try:
        tree = tree_of(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    lines, inside, told = source.splitlines(), set[int](), set[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.end_lineno != node.lineno:
            inside |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            told |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name in ("get_inputs", "get_init_inputs"):
            continue
        strings = (n for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str))
        if isinstance(node, ast.Assign) and not any(strings):
            continue
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1):
            if number not in told:
                yield number, (_SAID if number in inside else _NOTED).sub("", lines[number - 1])
