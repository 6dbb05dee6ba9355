"""The reference's text, cut down to what a written module needs of it: the class that builds its parameters."""

from __future__ import annotations

import ast
import symtable

from crucible.syntax import tree_of

CLASS = "Model"


def definitions(source: str) -> str:
    """Imports, the class `Model` and the module-level names that it uses, in their order and as they were written.

    Raises SyntaxError where the text is not Python.
    """
    tree, lines = tree_of(source), source.splitlines()
    named = {name: node for node in tree.body for name in _bound(node)}
    wanted = {id(node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)}
    pending, seen = [CLASS], set[str]()
    while pending:
        name = pending.pop()
        if name in seen or name not in named:
            continue
        seen.add(name)
        wanted.add(id(named[name]))
        pending += _globals(named[name], lines)
    kept = [node for node in tree.body if id(node) in wanted and not _is_future(node)]
    return "\n".join(_spaced(kept, lines)).strip() + "\n"


def _bound(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]


def _globals(node: ast.stmt, lines: list[str]) -> list[str]:
    """Names of the module that a statement reads; parameters of functions of the same name are not they."""
    text = "\n".join(lines[_first_line(node) - 1 : node.end_lineno])
    pending, found = [symtable.symtable(text, "reference", "exec")], []
    while pending:
        table = pending.pop()
        inner = table.get_type() != "module"
        found += [s.get_name() for s in table.get_symbols() if s.is_referenced() and (s.is_global() or not inner)]
        pending += table.get_children()
    return found


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _spaced(nodes: list[ast.stmt], lines: list[str]) -> list[str]:
    text: list[str] = []
    for node in nodes:
        block = isinstance(node, ast.ClassDef | ast.FunctionDef)
        first = _first_line(node)
        text += ["", ""] if block else []
        text += lines[first - 1 : node.end_lineno]
        text += ["", ""] if block else []
    return text
