"""Whether a candidate's text asks who runs it: what is right under a judge alone is right under a judge."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from crucible.syntax import tree_of

_SIGNS = (
    (re.compile(r"\b(crucible|CRUCIBLE_\w+)\b"), "the judge's own name"),
    (re.compile(r"\b(seccomp|landlock)\b", re.IGNORECASE), "what its sandbox is made of"),
    (re.compile(r"(/proc/(?:self|\d+|%d|%s)/(?:status|cgroup|cmdline|stat|environ|comm))\b"), "who runs it, by /proc"),
    (re.compile(r"\b(_?getframe|getppid)\b"), "who called it"),
    (re.compile(r"\b(TRITON_INTERPRET)\b"), "whether Triton is interpreted"),
    (re.compile(r"#\s*(?:if|elif)\w*\b[^\n]*\b(__CUDACC__|__NVCC__|__GNUC__|__clang__)"), "which compiler builds it"),
    (
        re.compile(
            r"\b(GPU_IS_EMULATED)\b(?!\s*\nvariable_list at_once\(const variable_list&, const std::string&\) "
            r"\{ return \{\}; \}\s*\n#else)"
        ),
        "whether its GPU is emulated",
    ),
)
"""A name, and what whoever holds it learns. What `crucible fuse` writes leaves a function out by the last, which would
return nothing there."""
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
MOST = 3


def signs(source: str) -> list[str]:
    """Words for what a candidate's code holds of that kind, comments left out; at most three.

    A name that is put together as it runs is not seen: this tells of who does not hide, and decides nothing.
    """
    found: dict[str, str] = {}
    for line, text in _code(source):
        for pattern, what in _SIGNS:
            if match := pattern.search(text):
                found.setdefault(what, f"line {line} holds {match[1]}: {what}")
    return list(found.values())[:MOST]


def _code(source: str) -> Iterator[tuple[int, str]]:
    """Names and texts of Python's syntax tree, which has no comments, with their lines; of CUDA's, without its."""
    try:
        tree = tree_of(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    described = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in described:
            yield node.lineno, _COMMENT.sub("", node.value)
        elif isinstance(node, ast.Name | ast.Attribute):
            yield node.lineno, node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.alias):
            yield node.lineno, node.name
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, node.module or ""
