"""syntax: text of others' as Python reads it, without running any of it."""

from __future__ import annotations

import ast
import os
import threading
from typing import Any, cast

_PARSING = threading.RLock()
"""Python 3.11 counts the depth of a syntax tree for all threads together: where two parse at once, and a finaliser lets
the other go on, they end with SystemError (depth mismatch)."""
os.register_at_fork(after_in_child=_PARSING._at_fork_reinit)  # type: ignore[attr-defined]  # as `threading` has its own
_TRIES = 5
"""Others than Crucible parse in threads of theirs, and know no lock: an honest reference was refused for that."""


def tree_of(source: str, filename: str = "<unknown>", mode: str = "exec") -> Any:
    """`ast.parse`, whatever other threads parse. Raises what that raises for the text's own sake."""
    for left in reversed(range(_TRIES)):
        try:
            with _PARSING:
                return ast.parse(source, filename, mode)
        except SystemError:
            if not left:
                raise
    raise AssertionError


def parsed(source: str) -> ast.Module | str:
    """The text's syntax tree, or in words why it has none."""
    try:
        return cast(ast.Module, tree_of(source))
    except SyntaxError as error:
        return f"syntax error, line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError, SystemError) as error:
        return f"cannot be parsed: {error}"


def bound_at_top(tree: ast.Module) -> set[str]:
    """Names that a module binds by statements at its top: classes, functions, assignments, imports."""
    return {name for node in tree.body for name in _bound(node)}


def missing_names(tree: ast.Module) -> set[str]:
    """Names that a module reads and binds nowhere; Python's own among them."""
    read: set[str] = set()
    bound: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        else:
            bound |= _bound(node)
    return read - bound


def _bound(node: ast.AST) -> set[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
        return {node.name} if node.name else set()
    if isinstance(node, ast.Assign):
        targets: list[ast.expr] = node.targets
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        targets = [node.target]
    else:
        return set()
    return {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}
