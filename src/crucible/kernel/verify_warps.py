"""What warps must not do that multiply each for itself: copies that go on beside them, matrices, products."""

from __future__ import annotations

from dataclasses import replace

from crucible.kernel import nodes as ir
from crucible.kernel.index import ZERO
from crucible.kernel.memory import memory
from crucible.kernel.reader import Reader
from crucible.kernel.verify_warpgroups import CORE_BYTES, MOST_STAGES_BYTES

ROW = 4
"""Words of a matrix's row."""
UNIT = 4
"""Words of sixteen bytes."""


def turns(reader: Reader, made: ir.Turns, static: int) -> None:
    reader.together(f"the beginning of {made.name}")
    asked = memory(reader.kernel)
    if asked.bytes + static > MOST_STAGES_BYTES:
        reader.say(f"shared memory: {asked.bytes + static} bytes, and a block may ask for {MOST_STAGES_BYTES}")
    others = [each for each in asked.begins if each is not made and not isinstance(each, ir.Shared)]
    if others:  # they are printed from where that begins
        reader.say(f"{made.name} lies where {', '.join(each.name for each in others)} does: of such there is one")
    for each, at in zip(made.tiles, made.offsets[1:], strict=True):
        if at % CORE_BYTES:
            reader.say(f"{each.name} ends {at} bytes into {made.name}, within {CORE_BYTES}")
    if made.coming and [each.sizes for each in made.coming] != [each.sizes for each in made.tiles]:
        reader.say(f"what is coming of {made.name} is not as large as what is at hand")
    for each in (*made.tiles, *made.coming):
        reader.declare(each)
    reader.copies.into |= set(made.into)


def async_copy(reader: Reader, node: ir.AsyncCopy) -> None:
    tile = node.to.tile
    reader.spot(node.to, node.words)
    reader.spot(node.source, node.words, node.guard)
    if node.words not in (1, UNIT) or (node.words == UNIT and node.guard):
        reader.say(
            f"{tile.name} is copied to by {node.words} words, and copies are of one, or of {UNIT} without a guard"
        )
    if tile not in reader.copies.into:
        reader.say(f"{tile.name} is copied to, and copies go elsewhere")
    if ir.ITEM_BYTES[tile.dtype] != 4 or ir.ITEM_BYTES[node.source.dtype] != 4:
        reader.say(f"{tile.name} is copied to from {node.source.dtype}, and copies are of whole words as they are")
    reader.not_while(tile, reader.read, "written while others may still be reading it")
    reader.taken(tile)
    reader.filled.add(tile)
    reader.copies.asked.add(tile)
    if tile.dtype == "tf32" and node.source.dtype != "int32":  # of those the bits are chosen
        reader.copies.unrounded.add(tile)


def turn(reader: Reader, node: ir.Turn) -> None:
    """What was said of tiles that are coming is true of those at hand, and the other way round."""
    copies, of = reader.copies, node.of
    for each in (*of.tiles, *of.coming):
        reader.known(each)
    reader.written |= copies.asked
    copies.asked.clear()
    sets: list[set[ir.Shared]] = [reader.read, reader.written, copies.unrounded]
    swapped = dict(zip((*of.tiles, *of.coming), (*of.coming, *of.tiles), strict=True)) if of.coming else {}
    for known in sets:
        new = {swapped.get(tile, tile) for tile in known}
        known.clear()
        known |= new
    filled = {tile for tile, other in swapped.items() if other in reader.filled}
    reader.filled -= {each for each in reader.filled if isinstance(each, ir.Shared) and each.base in swapped}
    reader.filled |= filled


def own(reader: Reader, node: ir.Own) -> None:
    for each in node.tiles:
        touched(reader, each)
        if each not in reader.written:
            reader.say(f"{each.name} is nobody's own: everybody may touch it already, or nobody copied to it")
    before, reader.copies.own = reader.copies.own, set(node.tiles)
    with reader.inside({}):
        reader.body(node.body)
    reader.copies.own = before


def touched(reader: Reader, tile: ir.Shared) -> None:
    """What was copied has come."""
    if tile.base in reader.copies.asked:
        reader.say(f"{tile.name} is touched while copies to it may be on their way: a Turn is missing")


def rounded(reader: Reader, tile: ir.Shared) -> None:
    if tile in reader.copies.unrounded:
        reader.say(f"{tile.name} is read for tensor cores, which cut off what nobody rounded to tf32")


# matrices


def load_matrix(reader: Reader, node: ir.LoadMatrix) -> None:
    reader.warp_together("a load of matrices")
    reader.spot(node.source, ROW)
    rounded(reader, node.source.tile)
    reader.put(node.into, declares=False)
    tile, many = node.source.tile, node.into.vector
    if tile.dtype != node.into.of.dtype or many not in (2, 4):
        reader.say(f"{node.into.of.name}: {many} matrices of {tile.dtype} are no {node.into.of.dtype}")
    if node.turned and tile.dtype != "halves":
        reader.say(f"{tile.name} is turned, and {tile.dtype} cannot be: matrices are of halves")


def mma(reader: Reader, node: ir.WarpMma) -> None:
    reader.warp_together("a product")
    for each in (replace(node.into, at=(*node.into.at, ZERO)), node.rows, node.columns):
        reader.element(each, is_read=True)
    reader.changes(node.into)
    held = ir.HELD[node.math]
    types = [(each.of.dtype, each.vector) for each in (node.into, node.rows, node.columns)]
    if types != [("float32", 4), (held, 4), (held, 2)]:
        reader.say(f"{node.into.of.name}: a product by {node.math} is not of {types}")
