"""Copies, matrices and products of warps, for compute capability 8.0 and above."""

from __future__ import annotations

from crucible.kernel import nodes as ir
from crucible.kernel.index import Binary
from crucible.kernel.memory import memory
from crucible.print import sliding
from crucible.print.words import TYPES, Words


def turns(words: Words, of: ir.Turns) -> list[str]:
    """Tiles by pointers, one for each."""
    names = words.names
    asked = memory(words.kernel)
    found, place = list[str](), sliding.begin(words, asked.begins[of]) if asked.has_barriers else ""
    if not place:
        place = names.give(of, of.name)
        found = [f"extern __shared__ uint4 {place}[];"]
    base = f"reinterpret_cast<unsigned*>({place})"
    for tiles in (of.tiles, of.coming):
        for tile, offset in zip(tiles, of.offsets, strict=False):
            name = names.give(tile, tile.name)
            place = f"{names.of(tiles[0])} + {offset // 4}" if offset else base
            note = f"  // {tile.note}" if tile.note else ""
            found.append(f"{TYPES[tile.dtype]}* {name} = {place};{note}")
        base = f"{names.of(of.tiles[0])} + {of.offsets[-1] // 4}"
    return found


def over(words: Words, of: ir.Shared) -> list[str]:
    """An array in the place of another."""
    type_, at = TYPES[of.dtype], of.over[1] // ir.ITEM_BYTES[of.base.dtype] if of.over else 0
    begin = f"{words.names.of(of.base)} + {at}" if at else words.names.of(of.base)
    note = f"  // {of.note}" if of.note else ""
    return [f"{type_}* {words.names.give(of, of.name)} = reinterpret_cast<{type_}*>({begin});{note}"]


def async_copy(words: Words, node: ir.AsyncCopy) -> list[str]:
    """From anywhere, where there is nothing to be read."""
    if node.words > 1:
        return [f"cp_async_unit(&{words.units(node.to)}, &{words.units(node.source, 'const ')});"]
    of = node.source.of
    elsewhere = words.names.of(of.of if isinstance(of, ir.Pointer) else of)
    test, place = words.condition(node.guard) or "true", _from(words, node.source)
    place = f"{test} ? {place} : {elsewhere}" if node.guard else place
    return [f"cp_async(&{words.spot(node.to)}, {place}, {test});"]


def _from(words: Words, source: ir.Global) -> str:
    """Behind a pointer a place of several parts is one number: added one by one to 64 bits, a linear layer of 16
    features takes 54 registers for 74, and 11 % longer (nvcc 13.0)."""
    is_sum = isinstance(source.at, Binary) and source.at.sign in "+-"
    if isinstance(source.of, ir.Pointer) and is_sum:
        return f"{words.names.of(source.of)} + ({words.index(source.at)})"
    return words.address(source)


def turn(words: Words, node: ir.Turn) -> list[str]:
    of, names, lines = node.of, words.names, list[str]()
    if of.coming:
        exchanged = len(of.tiles) if of.each_turns else 1
        lines.append("{  // what was coming is there")
        names.enter()
        for tile, coming in zip(of.tiles[:exchanged], of.coming, strict=False):
            one, other, before = names.of(tile), names.of(coming), names.give((node, tile), "before")
            lines += [f"    unsigned* const {before} = {one};", f"    {one} = {other}, {other} = {before};"]
        names.leave()
        lines.append("}")
        for tiles in (of.tiles, of.coming):
            for tile, offset in zip(tiles[exchanged:], of.offsets[exchanged:], strict=False):
                lines.append(f"{names.of(tile)} = {names.of(tiles[0])} + {offset // 4};")
    return [*lines, "cp_async_wait();"]


def load_matrix(words: Words, node: ir.LoadMatrix) -> list[str]:
    call = f"ldmatrix_x{node.into.vector}{'_trans' * node.turned}"
    return [f"{words.element(node.into)} = {call}({words.address(node.source)});"]


def mma(words: Words, node: ir.WarpMma) -> list[str]:
    given = ", ".join(words.element(each) for each in (node.into, node.rows, node.columns))
    return [f"mma_{node.math}({given});"]


def load_tiles(words: Words, node: ir.LoadTiles) -> list[str]:
    into, places = words.element(node.into), words.element(node.places)
    return [f"load_tiles({into}, {words.address(node.source)}, {places});"]


def multiply_tiles(words: Words, node: ir.MultiplyTiles) -> list[str]:
    into, columns = words.element(node.into), words.element(node.columns)
    return [f"multiply_tiles_{node.math}({into}, {words.address(node.rows)}, {columns});"]
