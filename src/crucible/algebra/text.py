"""Formulas as people write them: infix, with no more brackets than needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from crucible.algebra.expression import Attribute, Expr, nodes

_INFIX = {
    "or": ("|", 1), "and": ("&", 2), "eq": ("==", 3), "ne": ("!=", 3), "lt": ("<", 4), "le": ("<=", 4),
    "gt": (">", 4), "ge": (">=", 4), "add": ("+", 5), "sub": ("-", 5), "mul": ("*", 6), "div": ("/", 6),
}  # fmt: skip
_UNARY = {"neg": "-", "not": "~"}
TERNARY, UNARY, ATOM = 0, 7, 8


@dataclass(frozen=True)
class Formula:
    """Text, and how tightly its outermost operator binds."""

    words: str
    binds: int = ATOM

    def within(self, binds: int) -> str:
        """In brackets where an operator that binds so would tear it apart."""
        return f"({self.words})" if self.binds < binds else self.words


def infix(kind: str, args: list[Formula], signs: Mapping[str, str] | None = None) -> Formula | None:
    """The formula of an operator; None for what is written as a call. `signs` replaces operators' signs."""
    if kind in _INFIX:
        sign, binds = _INFIX[kind]
        left, right = args
        return Formula(f"{left.within(binds)} {(signs or {}).get(kind, sign)} {right.within(binds + 1)}", binds)
    if kind in _UNARY:
        return Formula((signs or {}).get(kind, _UNARY[kind]) + args[0].within(ATOM), UNARY)
    return None


def text(expr: Expr) -> str:
    """One line that says the whole expression, the same on every run: `t0 = exp(x); t0 / (1 + t0)`."""
    uses: dict[Expr, int] = {}
    for node in nodes(expr):
        for arg in node.args:
            uses[arg] = uses.get(arg, 0) + 1
    done: dict[Expr, Formula] = {}
    lines: list[str] = []
    for node in nodes(expr):
        formula = _formula(node, [done[arg] for arg in node.args])
        if node.args and uses.get(node, 0) > 1:
            lines.append(f"t{len(lines)} = {formula.words}")
            formula = Formula(f"t{len(lines) - 1}")
        done[node] = formula
    return "; ".join([*lines, done[expr].words])


def _formula(node: Expr, args: list[Formula]) -> Formula:
    if node.kind in ("tensor", "parameter"):
        return Formula(str(node.attributes[0]))
    if node.kind == "constant":
        words = _attribute(node.attributes[0])
        return Formula(words, UNARY if words.startswith("-") else ATOM)
    operands = [*(arg.words for arg in args), *map(_attribute, node.attributes)]
    return infix(node.kind, args) or Formula(f"{node.kind}({', '.join(operands)})")


def _attribute(value: Attribute) -> str:
    return (
        value
        if isinstance(value, str)
        else repr(int(value) if value.is_integer() and abs(value) < 1e6 and str(value) != "-0.0" else value)
    )
