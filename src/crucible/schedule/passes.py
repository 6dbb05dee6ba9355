"""What is computed in which pass over the columns, and what threads keep in registers between passes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from crucible.algebra.expression import Expr, inputs, name_of, nodes, parameter, substitute
from crucible.algebra.operations import NOUNS
from crucible.algebra.program import Program, Reduction, Result, elements, phases, reads
from crucible.algebra.tidy import is_of_rows

FEW = 8
"""Elements of the space for each of an operand, from which on reading it again costs next to nothing."""


@dataclass(frozen=True)
class Pass:
    """One pass over the columns."""

    reductions: tuple[Reduction, ...]
    """Taken in this pass."""
    results: tuple[Result, ...]
    """Of elements, stored in this pass."""

    @property
    def roots(self) -> tuple[Expr, ...]:
        return (*(r.expr for r in self.reductions), *(r.expr for r in self.results))


def passes(program: Program) -> tuple[Pass, ...]:
    """In order. Row results belong to none."""
    due = phases(program)
    results = [result for result in program.results if not program.is_per_row(result)]
    names = [*(r.name for r in program.reductions), *(r.name for r in results)]
    last = max((due[name] for name in names), default=-1)
    return tuple(
        Pass(
            tuple(r for r in program.reductions if due[r.name] == number),
            tuple(r for r in results if due[r.name] == number),
        )
        for number in range(last + 1)
    )


def loaded(program: Program, roots: tuple[Expr, ...]) -> list[str]:
    """The operands with a value for each element, or for each column, that expressions read."""
    read = frozenset[str]().union(*map(reads, roots))
    return [each.name for each in program.operands if each.name in read and not is_of_rows(each, program.rows)]


def heavy(program: Program) -> list[str]:
    """The operands that make up the traffic. Those that many elements share come out of the caches."""
    count = math.prod(program.shape)
    return [
        each.name
        for each in program.operands
        if not is_of_rows(each, program.rows) and elements(each, program.shape) * FEW >= count
    ]


def kept(program: Program) -> list[tuple[Expr, ...]]:
    """For each pass but the last the values that later ones read and that this one, or one before it, can compute.

    Either the last values that do not depend on later reductions, so that nothing is computed twice, or, where that
    takes two more registers, the operands themselves.
    """
    work = _Due(program)
    steps = passes(program)
    found = []
    for number in range(len(steps) - 1):
        later = tuple(root for step in steps[number + 1 :] for root in step.roots)
        ends = work.ends(later, number)
        operands = tuple(leaf for leaf in inputs(*later) if leaf in work.whole)
        found.append(ends if len(ends) <= len(operands) + 1 else operands)
    return found


class _Due:
    """For each value the pass in which it can be computed, and whether it differs from element to element."""

    def __init__(self, program: Program) -> None:
        self.due = {r.leaf: 1 + d for r in program.reductions for d in [phases(program)[r.name]]}
        self.whole = {program.operand(name).leaf for name in heavy(program)}
        self.seen: dict[Expr, int] = {}

    def ends(self, roots: tuple[Expr, ...], number: int) -> tuple[Expr, ...]:
        """The values due by pass `number` from which the rest of the roots is computed; those that only depend on what
        many elements share are left to be read again."""
        for node in nodes(*roots):
            self.seen[node] = self.due.get(node, max((self.seen[arg] for arg in node.args), default=0))
        late = [node for node in nodes(*roots) if self.seen[node] > number]
        found = dict.fromkeys(arg for node in late for arg in node.args if self.seen[arg] <= number)
        return tuple(node for node in found if self.whole & set(inputs(node)))


def hoisted(
    roots: tuple[Expr, ...], of_rows: frozenset[str], taken: set[str]
) -> tuple[tuple[Expr, ...], dict[str, Expr]]:
    """What only depends on the row, taken out: the roots with new parameters `row_<noun>`, and what these are.

    `of_rows` names what rows share; `taken` are words that are in use, to which the new ones are added.
    """
    shared = {node: bool(node.args) and {name_of(leaf) for leaf in inputs(node)} <= of_rows for node in nodes(*roots)}
    used = {arg for node, is_shared in shared.items() if not is_shared for arg in node.args} | set(roots)
    found = {}
    for node, is_shared in shared.items():
        if is_shared and node in used and inputs(node):
            name = fresh(f"row_{noun(node)}", taken)
            found[node] = parameter(name)
    rest = tuple(substitute(root, found) for root in roots)
    return rest, {name_of(leaf): node for node, leaf in found.items()}


def noun(node: Expr) -> str:
    """What a value is called."""
    return name_of(node) if node.kind in ("tensor", "parameter") else NOUNS.get(node.kind, node.kind)


def fresh(wanted: str, taken: set[str]) -> str:
    """The name, or the next free one, taken from now on."""
    name, count = wanted, 1
    while name in taken:
        count += 1
        name = f"{wanted}_{count}"
    taken.add(name)
    return name
