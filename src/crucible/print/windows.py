"""Windows whose elements come one after another, in registers."""

from __future__ import annotations

from crucible.kernel import nodes as ir
from crucible.kernel.index import Index, value_of
from crucible.print.words import Words
from crucible.target.cuda import unrolled


def begun(words: Words, of: ir.Fragment, value: str) -> list[str]:
    """Registers that begin with a value, which are too many to be written out."""
    type_, name = words.declared(of)
    lines, at = list[str](), ""
    counters = [words.counter(wanted) for wanted in "ijkl"[: len(of.sizes)]]
    at = "".join(f"[{each}]" for each in counters)
    lines = [f"{words.names.of(of)}{at} = {value};"]
    for counter, size in zip(reversed(counters), reversed(of.sizes), strict=True):
        lines = unrolled(counter, str(size), lines)
    return [f"{type_} {name};", *lines]


def take(words: Words, node: ir.Take) -> list[str]:
    value, number = words.element(node.value), words.index(node.number)
    if not node.in_sums:
        taken, best = words.names.give(node, "taken"), words.element(node.best)
        first = f"({words.index(node.number, 1)} == 0) | " if value_of(node.number) in (None, 0) else ""
        tests = f"const bool {taken} = {first}({value} > {best}) | isnan({value});"
        news = [(words.element(into), _new(words, into, new)) for into, new in node.becomes]
        return [tests, *(f"{into} = {taken} ? {new} : {into};" for into, new in news)]
    registers = ", ".join(words.element(into) for into, _ in node.becomes)
    kept = [words.element(new) for _, new in node.becomes[1:] if isinstance(new, ir.Element)]
    if not kept:
        ((_, _), (into, new)) = node.becomes
        return [f"follow_of_largest({registers}, {value}, {_new(words, into, new)});"]
    call = f"take{'_number' * (len(node.becomes) > 2)}_of_largest"
    return [f"{call}({', '.join([registers, value, *kept, number])});"]


def _new(words: Words, into: ir.Element, new: ir.Element | Index) -> str:
    if isinstance(new, ir.Element):
        return words.element(new)
    return f"__int_as_float({words.index(new)})" if into.of.dtype == "number" else words.index(new, 1)
