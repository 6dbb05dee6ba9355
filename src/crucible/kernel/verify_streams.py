"""What must not be done with stages that a bulk copy brings a part of, ahead of them, and with sums that move on."""

from __future__ import annotations

from dataclasses import replace

from crucible.kernel import nodes as ir
from crucible.kernel.index import ZERO, Binary, Compare, Index, Number, Place, Range, Variable
from crucible.kernel.reader import Reader
from crucible.kernel.verify_warpgroups import CORE_BYTES

LINE_BYTES = 128
"""That memory is read by."""


def carries(reader: Reader, node: ir.Fill) -> None:
    """A stage's barrier waits for one such copy."""
    found = [each for each in ir.every(node.body) if isinstance(each, ir.Carry)]
    if len(found) != node.pipeline.carries or not all(_is_once(each, node.body) for each in found):
        reader.say(f"a part of a stage of {node.pipeline.name} is copied {len(found)} times, or not always")


def _is_once(node: ir.Carry, body: ir.Body) -> bool:
    """It stands where all threads come once, or in a loop in whose first round alone it is done."""
    if any(each is node for each in body):
        return not node.who
    loops = [each for each in body if isinstance(each, ir.For) and any(inner is node for inner in each.body)]
    return len(loops) == 1 and loops[0].start == ZERO and node.who == (Compare("==", loops[0].variable, ZERO),)


def carry(reader: Reader, node: ir.Carry) -> None:
    of, stage, tile = node.pipeline, reader.stage, node.to.tile
    if stage is None or not isinstance(stage.node, ir.Fill) or stage.node.pipeline is not of or tile not in of.tiles:
        reader.say(f"a bulk copy goes to {tile.name} by threads that fill no stage of {of.name}")
        return
    if not stage.is_vacant:
        reader.say(f"{tile.name} is copied to before who read its stage last are done with it")
    if not counts(reader, node.thread, of.producers):
        reader.say(f"copies to {tile.name} are asked for by other threads than one of {of.producers}")
    stage.stored.add(tile)
    unit, more = CORE_BYTES // ir.ITEM_BYTES[node.source.dtype], Variable("more", "int")
    count = reader.reach(node.elements)
    wide = tile.sizes[-1] * ir.ITEM_BYTES[tile.dtype]
    if count.low <= 0 or count.low % unit or count.step % unit or wide != CORE_BYTES:
        reader.say(f"{tile.name}: {count.low} of {node.source.dtype} are no whole sixteens of a stage's bytes")
    with reader.inside(reader.narrowed(node.who), holds=node.who):
        reader.spot(node.source, unit)
        with reader.inside({more: Range(0, count.high - 1)}, holds=(Compare("<", more, node.elements),)):
            reader.spot(replace(node.source, at=node.source.at + more), 1)
        with reader.inside({more: Range(0, count.high // unit - 1)}):
            first, *rest = node.to.at
            reader.spot(replace(node.to, at=(first + more, *rest)), tile.sizes[-1])


def counts(reader: Reader, thread: Index, threads: int) -> bool:
    """Whether it counts all threads of the role from 0 on, or of the block, where they have none."""
    given = reader.definitions.get(thread, thread)
    place, role = Place("thread", reader.kernel.threads), reader.role
    if role is None:
        return given == place and reader.kernel.threads == threads
    if role.threads != threads or not isinstance(given, Binary) or given.left != place:
        return False
    first = reader.reach(place).low
    if given.sign == "%":
        return given.right == Number(threads) and first % threads == 0
    return given.sign == "-" and given.right == Number(first)


def move_on(reader: Reader, node: ir.MoveOn) -> None:
    of, size = node.sums.of, node.sums.vector
    reader.known(of)
    reader.at_rest(node.sums, is_read=False)
    if of not in reader.filled:
        reader.say(f"{of.name} moves on before anything is in it")
    if len(node.sums.at) != len(of.sizes) - 1 or not 0 < node.by <= size or of.dtype != "float32":
        reader.say(f"{of.name} {of.sizes} of {of.dtype} moves on by {node.by} of {size}")
    for index, every in zip(node.sums.at, of.sizes, strict=False):
        reader.within(index, every, of.name, 1)
    reader.changes(node.sums)


def advance(reader: Reader, node: ir.Advance, ahead: ir.Ahead | None) -> None:
    """For any round that there is: of other threads it is another one."""
    walk = node.walk
    if ahead is None or not any(walk in scope for scope in reader.there):
        reader.say(f"nobody said what is done for the next round of {walk.name}")
        return
    for each in ir.every(ahead.body):
        if not isinstance(each, ir.Let | ir.If | ir.Prefetch):
            reader.say(f"{type(each).__name__} is done ahead of a round of {walk.name}")
    if reader.nearest(walk.by).low < 1:
        reader.say(f"rounds of {walk.name} go on by {reader.nearest(walk.by).low}")
    items = Range(reader.nearest(walk.first).low, reader.reach(walk.items).high - 1)
    with reader.inside({walk.item: items}, "ahead of a round"):
        reader.body(walk.placed)
        rounds: dict[Index, Range] = {
            each.variable: Range(0, reader.reach(each.count).high - 1) for each in walk.levels
        }
        with reader.inside(rounds, holds=tuple(Compare("<", each.variable, each.count) for each in walk.levels)):
            reader.body(ahead.body)


def prefetch(reader: Reader, node: ir.Prefetch) -> None:
    count, more = reader.reach(node.elements), Variable("more", "int")
    unit = CORE_BYTES // ir.ITEM_BYTES[node.source.dtype]
    reader.spot(node.source, unit)
    if count.low <= 0 or count.low % unit or count.step % unit:
        reader.say(f"{count.low} of {node.source.tensor.name} are asked for, which are no whole sixteens of bytes")
    if node.by_line and {count.low, count.high} != {LINE_BYTES // ir.ITEM_BYTES[node.source.dtype]}:
        reader.say(f"{count.high} of {node.source.tensor.name} are asked for by line, which has {LINE_BYTES} bytes")
    with reader.inside({more: Range(0, count.high - 1)}, holds=(Compare("<", more, node.elements),)):
        reader.spot(replace(node.source, at=node.source.at + more), 1)
