"""What must not be done with windows that all teams share step by step, ahead of a step, and with planes that are
brought."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from crucible.gpus import WARP
from crucible.kernel import nodes as ir
from crucible.kernel.index import ONE, Compare, Condition, Index, Place, Range, Variable, opposite, value_of
from crucible.kernel.places import WARPGROUP
from crucible.kernel.reader import WARPS, Reader
from crucible.kernel.verify_warpgroups import CORE_BYTES, at_hand, come_together

ROUNDS = 2
"""Of a loop: what one leaves meets the next."""


def share(reader: Reader, node: ir.Share) -> None:
    of = node.pipeline
    come_together(reader, of, of.consumers, "read")
    if of.consumers != of.teams * WARPGROUP or not of.is_shared:
        reader.say(f"a window of {of.name} is of {of.consumers} threads, and all {of.teams} teams share it")
    if not 0 < of.moves <= of.window <= of.stages:
        reader.say(f"{of.name}: windows of {of.window} of {of.stages} stages move on by {of.moves}")
    _alike(reader, of.name, (node.count, node.tasks))
    with _up_to(reader, node.variable, node.count), at_hand(reader, node), _up_to(reader, node.task, node.tasks):
        for _ in range(ROUNDS):
            reader.body(node.body)


def _up_to(reader: Reader, number: Variable | None, count: Index) -> AbstractContextManager[None]:
    """Where a window, or a team's task, has a number; it is the same for all of the team's threads."""
    if number is None:
        return reader.inside({})
    return reader.inside({number: Range(0, reader.reach(count).high - 1)}, holds=(Compare("<", number, count),))


def _alike(reader: Reader, name: str, counts: Sequence[Index]) -> None:
    if any(map(reader.differs, counts)):
        reader.say(f"a window of {name} is one of a different number for different threads")


def foresee(reader: Reader, node: ir.Foresee) -> None:
    steps = node.steps
    reader.declare(steps)
    reader.foreseen[steps] = node
    if value_of(steps.by) is not None and reader.reach(steps.by).low < 1:
        reader.say(f"steps of {steps.name} go on by {reader.reach(steps.by).low}")
    if steps.task is None and (steps.teams > 1 or steps.tasks is not ONE):
        reader.say(f"steps of {steps.name} have no tasks, and are of {steps.teams} teams")
    if steps.task and not 0 <= reader.reach(steps.team).low <= reader.reach(steps.team).high < steps.teams:
        reader.say(f"a task of {steps.name} is one of {steps.teams} teams', and there is a team beyond them")
    if node.is_all:
        _do(reader, node)


def ask(reader: Reader, node: ir.Ask) -> None:
    reader.known(node.steps)
    if node.steps not in reader.foreseen:
        reader.say(f"nobody foresaw what is done for the next step of {node.steps.name}")
        return
    _do(reader, reader.foreseen[node.steps])


def _do(reader: Reader, node: ir.Foresee) -> None:
    """For any step that there is: of other threads it is another one."""
    steps, first = node.steps, reader.nearest(node.steps.first)
    _whole_warps(reader, node.who)
    known, apart = reader.narrowed(node.who), f"for the next step, which differs between {WARPS}"
    items: dict[Index, Range] = {steps.item: Range(first.low, reader.reach(steps.items).high - 1)}
    before = reader.fetches
    reader.fetches = _one_warp(reader, known)
    with reader.inside(known, holds=node.who), reader.inside(items, apart=apart):
        reader.body(steps.placed)
        with _up_to(reader, steps.window, steps.windows), _up_to(reader, steps.task, steps.tasks):
            reader.body(node.body)
    reader.fetches = before


def _whole_warps(reader: Reader, who: Condition) -> None:
    """Threads up to a whole number of warps, by their number."""
    for each in who:
        thread = {Place("thread", reader.kernel.threads): 1}
        by = {atom: times for atom, times in reader.here.linear(each.left).items() if atom != ONE}
        end = (value_of(each.right) or 0) - reader.here.linear(each.left).get(ONE, 0)
        if each.sign != "<" or by != thread or end % WARP:
            reader.say("what is foreseen is done by parts of warps")


def _one_warp(reader: Reader, known: dict[Index, Range]) -> bool:
    """Whether no more threads come than are in one."""
    threads = reader.role.threads if reader.role else reader.kernel.threads
    return min([threads, *(each.high - each.low + 1 for each in known.values())]) == WARP


def fetch(reader: Reader, node: ir.Fetch) -> None:
    of, (tile,) = node.pipeline, node.pipeline.tiles
    reader.known(of)
    if not reader.fetches or of.producers != 1:
        reader.say(f"copies to {of.name} are asked for by more than a warp, and {of.producers} threads fill it")
    if (reader.reach(node.lane).low, reader.reach(node.lane).high) != (0, WARP - 1):
        reader.say(f"copies to {of.name} are asked for by lanes {reader.reach(node.lane)}")
    _alike_in_warps(reader, node)
    count, more = reader.reach(node.elements), Variable("more", "int")
    unit = CORE_BYTES // ir.ITEM_BYTES[tile.dtype]
    if node.to.tile is not tile or node.source.dtype != tile.dtype or count.low % unit or count.step % unit:
        reader.say(f"{tile.name}: {count.low} of {node.source.dtype} are no whole sixteens of a stage's bytes")
    reader.declare(tile)
    known = reader.narrowed(node.guard)
    with _up_to(reader, node.number, node.count), reader.inside(known, holds=node.guard):
        for spot in (node.to, node.source):
            reader.spot(spot, unit)
        with _up_to(reader, more, node.elements):
            reader.spot(replace(node.to, at=(*node.to.at[:-1], node.to.at[-1] + more)), 1)
            reader.spot(replace(node.source, at=node.source.at + more), 1)


def _alike_in_warps(reader: Reader, node: ir.Fetch) -> None:
    """A lane says for all of them how many bytes come."""
    sides = [side for each in node.guard for side in (each.left, each.right)]
    if any(reader.differs(each, in_warps=True) for each in (node.count, node.elements, *sides)):
        reader.say(f"copies to {node.pipeline.name} are other ones for other lanes")


def meet(reader: Reader, node: ir.Meet) -> None:
    of = node.pipeline
    come_together(reader, of, of.consumers, "meet behind")
    if not of.ends:
        reader.say(f"{of.name} has no barrier for those who are done with it")
    if not any(node is each for each in (reader.role.body if reader.role else ())):
        reader.say(f"those who are done with {of.name} meet where some of them may not come, or come again")
    for sets in (reader.written, reader.read):
        sets -= {each for each in sets if each.over and each.over[0] is of}
    reader.done += [each.left for each in node.done]
    reader.here = reader.here.within(reader.narrowed(opposite(node.done)))


def over(reader: Reader, tile: ir.Shared, of: ir.Pipeline) -> None:
    """An array in the place of stages: whoever reads them met behind the last one, and reads no more."""
    reader.known(of)
    body = reader.role.body if reader.role else ()
    declared = [isinstance(each, ir.Declare) and each.what is tile for each in body]
    behind = declared.index(True) if any(declared) else 0
    met = any(isinstance(each, ir.Meet) and each.pipeline is of for each in body[:behind])
    if not met or any(isinstance(each, ir.Share | ir.Fill) for each in ir.every(body[behind:])):
        reader.say(f"{tile.name} takes the place of stages of {of.name} that may still be read")
    if not tile.at_launch or tile.per_warp or tile.over != (of, 0):
        reader.say(f"{tile.name}: {tile.bytes} bytes are not in the place of {of.name} from its first stage on")
