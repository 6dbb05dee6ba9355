"""Nodes are found, and what is done with each goes by its type."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, get_args

import pytest

from crucible.kernel import nodes as ir
from crucible.kernel.dispatch import by_type
from crucible.kernel.index import ONE, ZERO, Variable


class Reading:
    def __init__(self, word: str) -> None:
        self.word = word

    @by_type
    def of(self, node: object) -> str:
        raise TypeError(f"{type(node).__name__} is not read")

    @of.register
    def _(self, node: bool) -> str:
        return f"{self.word} bool"

    @of.register(str | int)
    def _(self, node: Any) -> str:
        return f"{self.word} {node}"


def test_a_method_goes_by_the_type_of_what_it_is_asked_of() -> None:
    one, other = Reading("one"), Reading("other")
    read = one.of
    assert [read(True), other.of(True), read(3), read("x")] == ["one bool", "other bool", "one 3", "one x"]
    with pytest.raises(TypeError, match="float is not read"):
        read(1.5)


def test_all_bodies_of_a_node_are_looked_through() -> None:
    """Of every type of node, whatever it calls them."""
    kinds = [each for each in get_args(ir.Node) if each is not ir.Roles]
    bodies = {each: {part.name for part in fields(each) if part.type in ("Body", "tuple[Any, ...]")} for each in kinds}
    assert {each: parts for each, parts in bodies.items() if parts} == {
        each: set(parts) for each, parts in ir.PARTS.items()
    }


def test_outer_nodes_come_first_and_all_of_them() -> None:
    note, other, last = (ir.Note(word) for word in ("a", "b", "c"))
    branch = ir.If((), (note,), otherwise=(other,))
    loop = ir.For(Variable("i"), ZERO, ONE, ONE, (branch, last), unrolled=False)
    role = ir.Role("role", 128, 24, (loop,))
    roles = ir.Roles((role, replace(role, body=(last,))), Variable("warp"))
    assert ir.every((roles, other)) == [roles, loop, branch, note, other, last, last, other]
