"""What windows mean that all teams share step by step, what is done ahead of a step, and planes that are brought."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crucible.gpus import WARP
from crucible.kernel import nodes as ir
from crucible.kernel.meaning_pipelines import Stuck, comes, window
from crucible.kernel.places import WARPGROUP
from crucible.kernel.whereabouts import Array, Places, Waits


@dataclass
class Next:
    """Where each thread is in the steps of something that is foreseen."""

    of: ir.Foresee
    item: Array
    window: Array
    task: Array


def share(run: Places, node: ir.Share) -> Waits:
    """A team does all its tasks of a window, then the next team: that their stages stay meanwhile, barriers see to."""
    of, ring, before = node.pipeline, run.rings[node.pipeline], run.active
    if not comes(run, of.consumers):
        return
    teams = (np.cumsum(before, axis=1) - 1) // WARPGROUP
    count, tasks = (int(np.max(run.index(each))) for each in (node.count, node.tasks))
    for number in range(count):
        run.variables[node.variable] = np.broadcast_to(number, run.shape)
        yield from window(run, of)
        run.shared |= run.window[0]  # what threads read themselves, of a window of one stage
        for team in range(of.teams):
            first = (team - ring.turn) % of.teams
            for task in range(first, tasks, of.teams) if node.task else (0,):
                if node.task:
                    run.variables[node.task] = np.broadcast_to(task, run.shape)
                run.active = before & (teams == team)
                yield from run.body(node.body)
        run.active = before
        for _ in range(of.moves if number + 1 < count else of.window):
            ring.leave()
        ring.turn += tasks
    run.active = before


def foresee(run: Places, node: ir.Foresee) -> Waits:
    steps = node.steps
    first, team = (np.broadcast_to(run.index(each), run.shape).copy() for each in (steps.first, steps.team))
    known = run.ahead[steps] = Next(node, first, np.zeros(run.shape, int), team)
    _move_on(run, known)
    while node.is_all and _who(run, known).any():
        yield from ask(run, ir.Ask(steps))


def ask(run: Places, node: ir.Ask) -> Waits:
    known, steps, before = run.ahead[node.steps], node.steps, run.active
    run.active = who = _who(run, known)
    if who.any():
        yield from _placed(run, known)
        yield from run.body(known.of.body)
        if steps.task:
            known.task = np.where(who, known.task + steps.teams, known.task)
        else:
            known.window = np.where(who, known.window + 1, known.window)
        _move_on(run, known)
    run.active = before


def _who(run: Places, known: Next) -> Array:
    """For whom there is another step."""
    return run.active & run.holds(known.of.who) & (known.item < run.index(known.of.steps.items))


def _placed(run: Places, known: Next) -> Waits:
    steps = known.of.steps
    run.variables |= {steps.item: known.item, steps.window: known.window}
    run.variables |= {steps.task: known.task} if steps.task else {}
    yield from run.body(steps.placed)


def _move_on(run: Places, known: Next) -> None:
    """To a step that there is."""
    steps = known.of.steps
    while True:
        for _ in _placed(run, known):
            raise Stuck("variables of an item are waited for")
        left = known.item < run.index(steps.items)
        beyond = left & (known.task >= run.index(steps.tasks)) if steps.task else np.zeros(run.shape, bool)
        known.task = np.where(beyond, known.task - run.index(steps.tasks), known.task)
        known.window = np.where(beyond, known.window + 1, known.window)
        last = left & (known.window >= run.index(steps.windows))
        known.item = np.where(last, known.item + run.index(steps.by), known.item)
        known.window = np.where(last, 0, known.window)
        if not (beyond | last).any():
            return


def fetch(run: Places, node: ir.Fetch) -> Waits:
    """What copies bring is there at once: that nobody reads it before, its barrier sees to."""
    ring, before = run.rings[node.pipeline], run.active
    if not comes(run, WARP):
        return
    while not ring.may_be_filled:
        yield
    run.shared |= ring.stage(ring.filled)
    count = int(np.max(run.index(node.count)))
    for number in range(0, count, WARP):
        run.variables[node.number] = run.index(node.lane) + number
        run.active = before & run.holds(node.guard) & (run.variables[node.number] < count)
        many = np.broadcast_to(run.index(node.elements), run.shape)
        for more in range(int(many[run.active].max(initial=0))):
            who = run.active & (more < many)
            read, at = run.places(node.source, who, more)
            memory, to = run.places(node.to, who, more)
            memory[to] = read[at]
    run.active = before
    ring.fill()


def meet(run: Places, node: ir.Meet) -> None:
    ring = run.rings[node.pipeline]
    if comes(run, node.pipeline.consumers) and ring.filled != ring.drained:
        raise Stuck(f"{node.pipeline.name}: stages are filled that nobody reads")
    run.touched.clear()
    if node.done:
        run.stays = run.stays & ~(run.active & run.holds(node.done))
        run.active = run.active & run.stays
