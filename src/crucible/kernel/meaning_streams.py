"""What bulk copies to a part of a stage mean, what is done ahead of rounds, and sums that move on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crucible.kernel import nodes as ir
from crucible.kernel.meaning_pipelines import Stuck
from crucible.kernel.tensor_cores import reinterpreted
from crucible.kernel.whereabouts import Array, Places, Waits


@dataclass
class At:
    """Where each thread is in the rounds of a walk."""

    of: ir.Ahead
    item: Array
    levels: list[Array]


def carry(run: Places, node: ir.Carry) -> None:
    """What is copied is there at once: that nobody reads it before, the stage's barrier sees to."""
    who = run.condition(node.who) & (np.broadcast_to(run.index(node.thread), run.shape) == 0)
    if not who.any():
        return
    if who.sum() > 1:
        raise Stuck(f"{run.kernel.name}: {who.sum()} threads ask for what one is waited for")
    count = int(np.broadcast_to(run.index(node.elements), run.shape)[who][0])
    places = [run.places(node.source, who, more) for more in (0, count - 1)]
    (memory, (first,)), (_, (last,)) = places
    bytes_ = ir.ITEM_BYTES[node.source.dtype], ir.ITEM_BYTES[node.to.dtype]
    words = memory[int(first[0]) : int(last[0]) + 1].reshape(-1, 16 // bytes_[0])
    values = reinterpreted(list(words.T), node.source.dtype, node.to.dtype)
    (_, *ends), units = run.places(node.to, who, 0)[1], len(words)
    at = int(ends[0][0])
    tile = run.shared[node.to.tile]
    tile[0, at : at + units] = np.stack(values, axis=1)


def move_on(run: Places, node: ir.MoveOn) -> None:
    sums = run.registers[node.sums.of][run.element(node.sums)]
    moved = np.concatenate([np.zeros((node.by, *run.shape)), sums[: len(sums) - node.by]])
    sums[:] = np.where(run.active, moved, sums)


def ahead(run: Places, node: ir.Ahead) -> None:
    levels = [np.zeros(run.shape, int) for _ in node.walk.levels]
    run.walked[node.walk] = At(node, np.broadcast_to(run.index(node.walk.first), run.shape), levels)


def advance(run: Places, node: ir.Advance) -> Waits:
    """The innermost loop first."""
    known, walk, before = run.walked[node.walk], node.walk, run.active
    yield from _placed(run, known)
    on = before
    for number, level in reversed(list(enumerate(walk.levels))):
        run.variables[level.variable] = known.levels[number] + on
        over = on & (run.variables[level.variable] >= run.index(level.count))
        over |= on & run.holds(level.ends) if level.ends else False
        known.levels[number] = run.variables[level.variable] = np.where(over, 0, run.variables[level.variable])
        on = over
    known.item = np.where(on, known.item + run.index(walk.by), known.item)
    run.active = before & (known.item < run.index(walk.items))
    if run.active.any():
        yield from _placed(run, known)
        yield from run.body(known.of.body)
    run.active = before


def _placed(run: Places, known: At) -> Waits:
    walk = known.of.walk
    run.variables[walk.item] = known.item
    run.variables |= {level.variable: at for level, at in zip(walk.levels, known.levels, strict=True)}
    yield from run.body(walk.placed)
