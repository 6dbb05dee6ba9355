"""Elements on their way to shared memory, as tensor cores take them, and where a block's box of them lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crucible.algebra.convolution.fused import GIVEN
from crucible.algebra.expression import Expr, name_of
from crucible.algebra.simplify import simplify
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ZERO, Compare, Condition, Holds, Index, Number, Range

WORDS = 4
"""Of a unit of channels, which is sixteen bytes."""


@dataclass(frozen=True)
class Item:
    """A box of positions, and of which channels it is."""

    image: Index
    box: tuple[Index, ...]
    """Its first position along each dim."""


class Staged:
    """What becomes of elements of a dtype."""

    def __init__(self, k: Builder, dtype: str, math: str, front: Expr | None) -> None:
        self.k, self.dtype, self.kept = k, dtype, ir.HELD[math]
        self.front = None if front is None else simplify(front).exprs[0]
        """Of `GIVEN`; 0 of 0, as outside of tensors are zeros."""

    @property
    def element(self) -> str:
        """The type of one, as it is kept."""
        return "half" if self.kept == "halves" else self.kept

    @property
    def of_word(self) -> int:
        """Elements."""
        return 2 if self.kept == "halves" else 1

    @property
    def is_copied(self) -> bool:
        """Whether words are kept as they are."""
        return self.kept == "word" and self.front is None

    def word(self, into: ir.Element, read: Sequence[tuple[ir.Global, Condition]], *, declares: bool = False) -> None:
        """Of elements that are read, 0 where a condition does not hold."""
        if self.of_word == 1 and self.front is None:
            ((spot, guard),) = read
            self.k.add(ir.Load(into, spot, guard, declares))
            return
        dtype = self.element if self.front is None else self.dtype
        values = [ir.Element(ir.Fragment(name, dtype)) for name in ("value", "next_value")[: len(read)]]
        for value, (spot, guard) in zip(values, read, strict=True):
            self.k.add(ir.Load(value, spot, guard, declares=True))
        self.put(into, values if self.front is None else list(map(self.through, values)), declares=declares)

    def through(self, value: ir.Element) -> ir.Element:
        """An element behind the chain in front."""
        if self.front is None:
            return value
        given, made = (ir.Element(ir.Fragment(name, "float32")) for name in ("given", "made"))
        chain = ir.Chain(((made, self.front),), ((name_of(GIVEN), given),))
        self.k.add(ir.Convert(given, value, declares=True), chain)
        if self.dtype == "float32":
            return made
        back = ir.Element(ir.Fragment("back", self.dtype))
        self.k.add(ir.Convert(back, made, declares=True))
        return back

    def put(self, into: ir.Element, values: Sequence[ir.Element], *, declares: bool = False) -> None:
        """A word of elements, which may be as they are kept already."""
        if self.of_word == 1:
            self.k.add(ir.Convert(into, values[0], declares))
            return
        word = into if declares else ir.Element(ir.Fragment("word", self.kept))
        self.k.add(ir.Bits(word, tuple(values)))
        if not declares:
            self.k.add(ir.Convert(into, word))

    def settle(self, into: ir.Element, word: ir.Element, *, declares: bool = False) -> None:
        """Of what was copied as it is."""
        value = ir.Element(ir.Fragment("value", "float32"))
        self.k.add(ir.Convert(value, word, declares=True))
        self.put(into, [self.through(value)], declares=declares)


def flag(k: Builder, name: str, condition: Condition) -> Condition:
    """Holds where a condition did."""
    if not condition:
        return ()
    into = ir.Element(ir.Fragment(name, "bool"))
    k.add(ir.Value(into, Holds(condition)))
    return (Compare("!=", ir.Held(Range(0, 1), into), ZERO),)


def pack(name: str, dtype: str, words: int = WORDS) -> ir.Fragment:
    return ir.Fragment(name, dtype, (Number(words),), packed=True)
