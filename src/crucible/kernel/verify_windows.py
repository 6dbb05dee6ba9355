"""What must not be done with windows whose elements come one after another."""

from __future__ import annotations

from crucible.kernel import nodes as ir
from crucible.kernel.reader import Reader
from crucible.kernel.window_nodes import SIGNS

TILES, BYTES = 4, 2
"""Of lanes that exchange bytes: tiles, and the bytes of each that a lane has."""


def take(reader: Reader, node: ir.Take) -> None:
    reader.reach(node.number)
    for each in (node.value, node.best):
        reader.element(each, is_read=True)
    for into, new in node.becomes:
        reader.element(into, is_read=True)
        if isinstance(new, ir.Element):
            reader.element(new, is_read=True)
        else:
            reader.reach(new)
        if into.of.dtype not in ((new.of.dtype,) if isinstance(new, ir.Element) else ("int32", "number")):
            reader.say(f"{into.of.name} is {into.of.dtype}, and becomes what is none")
    reader.changes(*(into for into, _ in node.becomes))
    if node.in_sums:
        _in_sums(reader, node)


def _in_sums(reader: Reader, node: ir.Take) -> None:
    """The shapes that there are functions for; that which keeps nothing asks for no first element."""
    first, *rest = node.becomes
    kept = [new for _, new in rest if isinstance(new, ir.Element)]
    numbers = [new for _, new in rest if not isinstance(new, ir.Element)]
    if first != (node.best, node.value) or [*kept, *numbers] != [new for _, new in rest] or len(kept) > 1:
        reader.say(f"{node.best.of.name}: sums select the value, perhaps one that is kept with it, and the number")
    if any(each != node.number for each in numbers) or len(numbers) > 1 or not rest:
        reader.say(f"{node.best.of.name}: sums select no other number than the element's")
    starts = {
        each: declared.start
        for declared in ir.every(reader.kernel.body)
        if isinstance(declared, ir.Declare) and isinstance(declared.what, tuple)
        for each in declared.what
    }
    begins = [(into.of.dtype, starts.get(into.of)) for into, _ in node.becomes]
    if not kept and begins != [("float32", "max"), ("number", "sum")]:
        reader.say(f"{node.best.of.name} begins with no -infinity, or its number not with 0")


def flip(reader: Reader, node: ir.Flip) -> None:
    for each in (node.value, node.signs):
        reader.element(each, is_read=True)
    reader.put(node.into, declares=False)
    of, into = node.value.of, node.into.of
    if of.dtype not in SIGNS or of.dtype != into.dtype or node.into.is_pack:
        reader.say(f"{into.name}: signs of {of.dtype} are not turned round in {into.dtype}, word by word")
    if node.signs.of.dtype != "word":
        reader.say(f"{node.signs.of.name} is {node.signs.of.dtype}, and signs are bits of a word")


def vote(reader: Reader, node: ir.Vote) -> None:
    reader.warp_together("a vote")
    reader.narrowed(node.condition)
    reader.put(node.into, declares=True)
    if node.into.of.dtype != "bool" or not node.condition:
        reader.say(f"{node.into.of.name} is {node.into.of.dtype}: a vote is a bool, of a condition")


def exchange(reader: Reader, node: ir.Exchange) -> None:
    reader.warp_together("an exchange")
    values, into = node.values.of, node.into.of
    reader.known(values)
    if values not in reader.filled:
        reader.say(f"{values.name} is read before anything is in it")
    reader.put(node.into, declares=True)
    shapes = (values.sizes, values.packed, into.sizes, into.packed)
    if shapes != ((TILES,), False, (TILES * BYTES,), True) or (values.dtype, into.dtype) != ("bytes", "uint8"):
        reader.say(f"{into.name}: of {values.sizes} {values.dtype} lanes make no {TILES * BYTES} bytes each")
