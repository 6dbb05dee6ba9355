"""What must not be done with stages that bulk copies fill, and by warpgroups that have turns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from crucible.kernel import nodes as ir
from crucible.kernel.index import Binary, Compare, Condition, Index, Larger, Place, Range, Smaller, Variable
from crucible.kernel.places import WARPGROUP
from crucible.kernel.reader import TEAMS, Reader, Stage
from crucible.kernel.verify_warpgroups import CORE_BYTES, come_together, stage_of
from crucible.kernel.verify_warpgroups import touched as of_stage

MOST_TURNS = 2**31 - 1
"""That threads count."""


def drain(reader: Reader, node: ir.Drain) -> None:
    of = node.pipeline
    if of.slides:
        reader.say(f"a stage of {of.name} is drained by all, and windows of it slide from team to team")
    leaves = [sum(isinstance(each, ir.Leave) for each in body) for body in (node.body, ir.every(node.body))]
    if (node.who or leaves[1]) and not of.in_bulk:
        reader.say(f"a stage of {of.name} is left before its end, or is some warpgroups', and no bulk copies fill it")
    stage = reader.stage
    if stage and isinstance(stage.node, ir.Fill) and stage.node.pipeline.fed_by is of:
        _drain_into(reader, node, stage)
        return
    if any(each.fed_by is of for each in reader.pipelines.values()):
        reader.say(f"a stage of {of.name} is drained where none is filled of it")
    if leaves not in ([0, 0], [1, 1]):
        reader.say(f"a stage of {of.name} is left {leaves[1]} times, or not always")
    with stage_of(reader, node, of.consumers, "drain"), _only(reader, node.who):
        reader.body(node.body)


def _drain_into(reader: Reader, node: ir.Drain, stage: Stage) -> None:
    """A stage of what feeds the one that is filled."""
    come_together(reader, node.pipeline, node.pipeline.consumers, "drain")
    with reader.inside({}):
        for each in node.pipeline.tiles:
            reader.declare(each)
        stage.fed_by = node.pipeline
        reader.body(node.body)
        stage.fed_by = None


def leave(reader: Reader, node: ir.Leave) -> None:
    stage = reader.stage
    if stage is None or not isinstance(stage.node, ir.Drain) or stage.node.pipeline is not node.pipeline:
        reader.say(f"a stage of {node.pipeline.name} is left by threads that read none")
        return
    stage.is_left = True


@contextmanager
def _only(reader: Reader, who: Condition) -> Iterator[None]:
    """Those for whom it holds: whole warpgroups."""
    apart = reader.why_apart(who)
    sides = [side for each in reader.opened(who) for side in (each.left, each.right)]
    if apart and all(_is_of_teams(reader, side) for side in sides):
        apart = f"under a condition that differs between {TEAMS}"
    with reader.inside(reader.narrowed(who), apart, who):
        yield


def _is_of_teams(reader: Reader, index: Index) -> bool:
    """Whether it is the same for all threads of a warpgroup."""
    if not reader.differs(index):
        return True
    if isinstance(index, Binary) and index.sign == "/" and isinstance(index.left, Place):
        by = reader.reach(index.right)
        return by.low == by.high and by.low % WARPGROUP == 0
    if isinstance(index, Binary | Smaller | Larger):
        return _is_of_teams(reader, index.left) and _is_of_teams(reader, index.right)
    return index in reader.definitions and _is_of_teams(reader, reader.definitions[index])


# bulk copies


def send(reader: Reader, node: ir.Send) -> None:
    stage, of = reader.stage, node.pipeline
    reader.warp_together("a bulk copy")
    if stage is None or not isinstance(stage.node, ir.Fill) or stage.node.pipeline is not of or not of.in_bulk:
        reader.say(f"bulk copies go to {of.name}, of which no stage is filled by such")
    for each in ir.every(node.body):
        if not isinstance(each, ir.Let | ir.For | ir.If | ir.Stretch):
            reader.say(f"{type(each).__name__} stands among bulk copies, and is done twice")
    reader.body(node.body)


def stretch(reader: Reader, node: ir.Stretch) -> None:
    """Whole sixteens of bytes in both, whatever lies around what is asked for."""
    tile, tensor = node.to.tile, node.source.tensor
    unit, count, number = CORE_BYTES // ir.ITEM_BYTES[tile.dtype], reader.reach(node.count), Variable("number", "int")
    if tile.dtype != tensor.dtype or tensor.elements % unit:
        reader.say(f"{tensor.elements} of {tensor.dtype} are copied as {tile.dtype}, in whole sixteens of bytes")
    with reader.inside({number: Range(0, count.high - 1)}, holds=(Compare("<", number, node.count),)):
        reader.spot(replace(node.source, at=node.source.at + number), 1)
    reader.spot(node.to, unit)
    whole = -(-(count.high + unit - 1) // unit) * unit
    with reader.inside({number: Range(0, whole - 1)}):
        reader.spot(replace(node.to, at=(*node.to.at[:-1], node.to.at[-1] + number)), 1)
    of_stage(reader, tile, is_stored=True)


# turns


def in_turn(reader: Reader, node: ir.InTurn) -> None:
    of = node.pipeline
    come_together(reader, of, of.relays * WARPGROUP, "have turns behind")
    if not _is_team(reader, node.team):
        reader.say(f"turns go by {node.team.name}, which is no number of a warpgroup")
    if reader.has_turn:
        reader.say("warpgroups have turns within one")
    with reader.inside({node.turn: Range(0, MOST_TURNS)}):
        reader.has_turn = True
        reader.body(node.before)
        with _only(reader, node.who):
            reader.body(node.body)
            reader.has_turn = False
            reader.body(node.behind)


def touched(reader: Reader, spot: ir.InShared) -> None:
    """Numbers of one thread at a time: of warpgroups that have turns, in these or beside these, or in a part of the
    array that is a warpgroup's own."""
    tile = spot.tile
    if not _is_own_part(reader, spot):
        reader.by_turns[reader.has_turn].add(tile.base)
        if tile.base in reader.by_turns[not reader.has_turn]:
            reader.say(f"{tile.name} is touched by who has the turn, and by others: a Sync is missing")


def _is_own_part(reader: Reader, spot: ir.InShared) -> bool:
    """Whether it lies in the part of the array that has the number of the thread's warpgroup."""
    teams = (each for each in reader.definitions if _is_team(reader, each))
    if reader.role is None or (team := next(teams, None)) is None:
        return False
    part, rest = divmod(spot.tile.sizes[0], reader.role.threads // WARPGROUP)
    own = reader.reach(spot.place[0] - team * part)
    return rest == 0 and part % CORE_BYTES == 0 and own.low >= 0 and own.high < part


def _is_team(reader: Reader, index: Index) -> bool:
    return reader.definitions.get(index) == Place("thread", reader.kernel.threads) // WARPGROUP


def sync(reader: Reader, node: ir.Sync) -> None:
    """All that must come do."""
    if node.of == "block":
        reader.together("a barrier")
    elif node.of == "role":
        reader.role_together("a barrier of a role")
    elif node.of == "team":
        reader.team_together("a barrier of a warpgroup")
    else:
        reader.warp_together("a barrier of a warp")
    if node.of in ("block", "role"):
        for each in reader.by_turns.values():
            each.clear()


# sums


def collect(reader: Reader, node: ir.Collect) -> None:
    into, sizes = node.into, node.into.of.sizes[len(node.into.at) :]
    for each in (into, ir.Element(node.value)):
        reader.known(each.of)
        reader.at_rest(each, is_read=False)
    if node.value not in reader.filled or (node.adds == () and into.of not in reader.filled):
        reader.say(f"{node.value.name} is collected in {into.of.name} before anything is in it")
    if len(sizes) != 1 or sizes < node.value.sizes or into.of.dtype != node.value.dtype:
        reader.say(f"{node.value.name} {node.value.sizes} is collected in {into.of.name} {into.of.sizes}")
    if node.factor:
        reader.element(node.factor, is_read=True)
        if node.factor.of.dtype != "float32":
            reader.say(f"{node.value.name} is collected times {node.factor.of.name}, which is {node.factor.of.dtype}")
    for index, size in zip(into.at, into.of.sizes, strict=False):
        reader.within(index, size, into.of.name, 1)
    for condition in (node.adds or (), node.or_where):
        reader.narrowed(condition)
    reader.filled.add(into.of)
    reader.changes(into)
