"""What must not be done with windows that slide along a pipeline, and with products of what lies in shared memory."""

from __future__ import annotations

import math
from dataclasses import replace

from crucible.kernel import nodes as ir
from crucible.kernel.index import ZERO, Compare, Index, Range, Variable
from crucible.kernel.places import CORE_ROWS, WARPGROUP
from crucible.kernel.reader import Reader
from crucible.kernel.verify_warpgroups import (
    CORE_BYTES,
    MOST_COLUMNS,
    MOST_UNITS,
    at_hand,
    come_together,
    touched,
)

ROWS, UNITS = 64, 2
"""Of a product: its rows, and sixteens of bytes of K."""
HELD_WORDS = 4
"""Of rows that registers hold."""
MULTIPLIED = ("tf32", "float16", "bfloat16")


def vacant(reader: Reader, node: ir.Vacant) -> None:
    stage = reader.stage
    if stage is None or not isinstance(stage.node, ir.Fill) or stage.node.pipeline is not node.pipeline:
        reader.say(f"a stage of {node.pipeline.name} is waited for by threads that fill none")
        return
    stage.is_vacant = True


def slide(reader: Reader, node: ir.Slide) -> None:
    _teams(reader, node)
    brings = [isinstance(each, ir.Bring) for each in ir.every(node.before)]
    if sum(brings) != sum(isinstance(each, ir.Brought) for each in ir.every(node.behind)) or sum(brings) > 1:
        of = node.pipeline
        reader.say(f"a window of {of.name}: what a warp is brought is asked for before it, and waited for behind, once")
    _tasks(reader, node)
    _rounds(reader, node, {})


def _tasks(reader: Reader, node: ir.Slide) -> None:
    """Teams take as many turns for each window, so that none waits for another that is done."""
    of = node.pipeline
    slides = [each for each in ir.every(reader.kernel.body) if isinstance(each, ir.Slide) and each.pipeline is of]
    if any((each.task is None, each.tasks) != (node.task is None, node.tasks) for each in slides):
        reader.say(f"some windows of {of.name} have other tasks: a team would wait for turns that others do not take")
    if node.task is None and (node.tasks > 1 or node.begin or node.end):
        reader.say(f"a window of {of.name} has tasks, and nothing counts them")
    if node.task and of.brings:
        reader.say(f"a window of {of.name} has tasks, and warps are brought things once a window")


def deal(reader: Reader, node: ir.Deal) -> None:
    """A task is a team's as windows are that slide from team to team: the same for all of its threads."""
    _teams(reader, node)
    if not 0 < node.moved < node.pipeline.teams:
        reader.say(f"{node.moved} of {node.pipeline.teams} teams further is none of them")
    _rounds(reader, node, {node.task: Range(0, node.tasks - 1)})


def _teams(reader: Reader, node: ir.Slide | ir.Deal) -> None:
    """All come, as often as the others."""
    of = node.pipeline
    come_together(reader, of, of.consumers, "read")
    if of.is_shared != isinstance(node, ir.Deal) or of.moves:
        reader.say(f"a window of {of.name} is of {'all teams' if of.is_shared else 'one team'}")
    if of.consumers != of.teams * WARPGROUP or of.stages < of.window:
        reader.say(
            f"{of.name}: {of.teams} teams of {of.consumers} threads, windows of {of.window} of {of.stages} stages"
        )
    if reader.differs(node.count):
        reader.say(f"a window of {of.name} slides along a different number of stages for different threads")


def _rounds(reader: Reader, node: ir.Slide | ir.Deal, ranges: dict[Index, Range]) -> None:
    rounds = (Compare("<", node.variable, node.count),)
    with reader.inside({node.variable: Range(0, reader.reach(node.count).high - 1), **ranges}, holds=rounds):
        for _ in range(2):  # what a round leaves meets the next one
            if isinstance(node, ir.Deal) or node.task is None:
                _task(reader, node)
                continue
            reader.body(node.begin)
            with reader.inside({node.task: Range(0, node.tasks - 1)}):
                for _ in range(2):
                    _task(reader, node)
            reader.body(node.end)


def _task(reader: Reader, node: ir.Slide | ir.Deal) -> None:
    reader.body(node.before)
    with at_hand(reader, node):
        reader.body(node.products)
    reader.body(node.behind)


def provide(reader: Reader, node: ir.Provide) -> None:
    of = node.pipeline
    come_together(reader, of, of.consumers, "provide for")
    if not of.provides or reader.has_provided:
        reader.say(f"{of.name} has barriers for what is provided {'once' if of.provides else 'never'}")
    for each in node.tiles:
        if each not in reader.filled or each not in reader.written or each in reader.pipelines:
            reader.say(f"{each.name} is provided, and nobody stored it")
    reader.providing, reader.has_provided = node.tiles, True


def provided(reader: Reader, node: ir.Provided) -> None:
    of = node.pipeline
    come_together(reader, of, of.consumers, "wait for what is provided for")
    if not reader.providing:
        reader.say(f"threads wait for what nobody provides for {of.name}")
    reader.fenced |= set(reader.providing)
    reader.written -= set(reader.providing)
    reader.providing = ()


def bring(reader: Reader, node: ir.Bring) -> None:
    reader.known(node.pipeline)
    reader.warp_together("a copy to a warp")
    if not node.pipeline.brings:
        reader.say(f"{node.pipeline.name} has no barriers for what warps are brought")
    known, count, number = reader.narrowed(node.who), reader.reach(node.count), Variable("number", "int")
    with reader.inside(known, holds=node.who):
        for to, source in node.copies:
            unit = CORE_BYTES // ir.ITEM_BYTES[to.dtype]
            if count.low % unit or count.step % unit or to.dtype != source.dtype or not to.tile.per_warp:
                reader.say(f"{to.tile.name}: {count.low} of {source.dtype} are no whole sixteens of its warp's bytes")
            reader.spot(to, unit)
            reader.spot(source, unit)
            with reader.inside({number: Range(0, count.high - 1)}, holds=(Compare("<", number, node.count),)):
                reader.spot(replace(to, at=(*to.at[:-1], to.at[-1] + number)), 1)
                reader.spot(replace(source, at=source.at + number), 1)
    for tile in dict.fromkeys(to.tile for to, _ in node.copies):
        if tile in reader.coming or tile in reader.touched:
            missing = reader.touched.get(tile, "Brought")
            reader.say(f"{tile.name} is copied to while it is in use: a {missing} is missing")
        reader.coming.add(tile)


def brought(reader: Reader, node: ir.Brought) -> None:
    reader.known(node.pipeline)
    reader.warp_together("a barrier of a warp")
    if not reader.coming:
        reader.say(f"a warp waits for what {node.pipeline.name} does not bring")
    reader.filled |= reader.coming
    reader.coming.clear()


def touched_beside(reader: Reader, tile: ir.Shared) -> None:
    """By threads, which bulk copies do not know of."""
    if tile in reader.coming:
        reader.say(f"{tile.name} is touched while copies to it are on their way: a Brought is missing")
    if tile.per_warp:
        reader.touched[tile] = "Fence"


def describe(reader: Reader, node: ir.Describe) -> None:
    of, stage = node.matrix.of, reader.stage
    reader.known(of)
    reader.declare(node.matrix)
    if of in reader.pipelines:
        touched(reader, of, is_stored=False)
        behind = node.behind if isinstance(node.behind, int) else reader.nearest(node.behind).high
        if stage and behind >= stage.node.pipeline.window:
            reader.say(f"{of.name} of a stage {behind} behind the oldest, and a window has fewer")
    elif of not in reader.fenced:
        reader.say(f"{of.name} is handed to tensor cores, which may not see it yet")
    reader.described[node.matrix] = reader.reach(node.at)


def products(reader: Reader, node: ir.Products) -> None:
    reader.team_together("a product")
    columns = 2 * node.into.sizes[-1]
    if columns % CORE_ROWS or columns > MOST_COLUMNS or node.into.dtype != "float32":
        reader.say(f"{node.into.name}: {columns} columns of {node.into.dtype} are none that tensor cores make")
    if node.settles and node.into not in reader.filled:
        reader.say(f"{node.into.name} settles before anything is in it")
    for each in ir.every(node.body):
        if not isinstance(each, ir.For | ir.Describe | ir.Product):
            reader.say(f"{type(each).__name__} stands among products, whose sums are on their way")
        if isinstance(each, ir.Product) and each.into.of is not node.into:
            reader.say(f"{each.into.of.name} is waited for where {node.into.name} is")
    reader.begun.clear()
    reader.multiplied.clear()
    reader.body(node.body)
    if len(reader.begun) < math.prod(node.into.sizes[:-1]):
        reader.say(f"{node.into.name}: nobody makes some of its sums")
    reader.filled.add(node.into)
    if node.waits == "later":
        reader.flying[node.into] = [*reader.flying.get(node.into, ()), *reader.multiplied]
    else:
        reader.flying.pop(node.into, None)


def product(reader: Reader, node: ir.Product) -> None:
    into = node.into
    reader.known(into.of)
    for condition in (node.adds or (), node.or_where):
        reader.narrowed(condition)
    if node.adds == () and into not in reader.begun and into.of not in reader.filled:
        reader.say(f"{into.of.name} is read before anything is in it")
    if len(into.at) != len(into.of.sizes) - 1:
        reader.say(f"{into.of.name} has {into.of.sizes}: a product goes to all sums of a thread, or to some of several")
    reader.begun.add(into)
    if isinstance(node.rows, ir.Element):
        _held(reader, node.rows, "tf32" if node.columns[0].of.dtype == "tf32" else "halves")
    else:
        _described(reader, *node.rows, ROWS)
    if node.made > into.vector:
        reader.say(f"{into.of.name}: a product makes {node.made} of {into.vector} sums")
    _described(reader, *node.columns, 2 * node.made)


def _held(reader: Reader, rows: ir.Element, held: str) -> None:
    reader.element(replace(rows, at=(*rows.at, ZERO)), is_read=True)
    reader.multiplied.append((rows.of, reader.reach(rows.at[0]) if rows.at else Range(0, 0)))
    if rows.of.dtype != held or rows.of.sizes[len(rows.at) :] != (HELD_WORDS,):
        reader.say(f"{rows.of.name}: {rows.of.sizes} of {rows.of.dtype} are no four words of {held} each")


def _described(reader: Reader, matrix: ir.Matrix, moved: int, rows: int) -> None:
    reader.known(matrix)
    if matrix not in reader.described:
        return
    of, begin = matrix.of, reader.described[matrix].plus(Range(moved, moved))
    if of.dtype not in MULTIPLIED or of.sizes[-1] * ir.ITEM_BYTES[of.dtype] != CORE_BYTES:
        reader.say(f"{of.name} of {of.dtype} {of.sizes} has no units of {CORE_BYTES} bytes that tensor cores multiply")
    wide = (rows // CORE_ROWS - 1) * matrix.eight + CORE_ROWS
    if not CORE_ROWS <= matrix.eight < MOST_UNITS or not wide <= matrix.pitch < MOST_UNITS:
        reader.say(f"{matrix.name}: {rows} rows, eights {matrix.eight} and units of K {matrix.pitch} apart")
    end, units = begin.high + (UNITS - 1) * matrix.pitch + wide, math.prod(of.sizes[:-1])
    if begin.low < 0 or end > units:
        reader.say(f"{of.name} is multiplied from unit {begin.low} up to {end}, and has {units}")
