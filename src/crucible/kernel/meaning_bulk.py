"""What bulk copies to stages mean, turns of warpgroups, and barriers of some of a block."""

from __future__ import annotations

import numpy as np

from crucible.kernel import nodes as ir
from crucible.kernel.meaning_pipelines import added, comes, in_turn
from crucible.kernel.places import WARPGROUP
from crucible.kernel.whereabouts import HANDED, Places, Waits

UNIT = 16
"""Bytes."""


def stretch(run: Places, node: ir.Stretch) -> None:
    """With its neighbours in the same sixteens of bytes, which lie in the tensor as well."""
    words = UNIT // ir.ITEM_BYTES[node.source.dtype]
    before = np.broadcast_to(run.index(node.source.place) % words, run.shape)
    count = before + run.index(node.count)
    whole = -(-count // words) * words
    for more in range(int(whole[run.active].max(initial=0))):
        who = run.active & (more < whole)
        read, at = run.places(node.source, who, more - before)
        memory, to = run.places(node.to, who, more)
        memory[to] = read[at]


def sync(run: Places, node: ir.Sync) -> None:
    """What threads that come touched is not theirs alone any more. Of a warp nothing is said: who of its lanes touched
    what is as it was."""
    if node.of == "block":
        run.touched.clear()
        run.of_teams.clear()
    elif node.of != "warp":
        here = np.append(run.active.any(axis=0), [False])  # -1 is nobody
        for who in run.touched.values():
            who[here[who]] = -1
        if node.of == "role":
            run.of_teams.clear()


def turns(run: Places, node: ir.InTurn) -> Waits:
    """One warpgroup after the other; then what they do beside each other."""
    ring, before, teams = run.rings[node.pipeline], run.active, node.pipeline.relays
    if not comes(run, teams * WARPGROUP):
        return
    run.variables[node.turn] = np.broadcast_to(ring.turn, run.shape)
    first = int(np.argmax(before.any(axis=0))) // WARPGROUP
    for team in range(teams):
        run.active = in_turn(before, WARPGROUP, team)
        handed = HANDED + first + (team - 1) % teams
        for touched in run.of_teams.values():
            touched[touched == handed] = -1
        yield from run.body(node.before)
        run.active = run.condition(node.who)
        yield from run.body(node.body)
        for touched in run.of_teams.values():
            touched[touched == first + team] = HANDED + first + team
    run.active = before & run.holds(node.who)
    yield from run.body(node.behind)
    run.active = before
    ring.turn += 1


def collect(run: Places, node: ir.Collect) -> None:
    into, at, value = run.registers[node.into.of], run.element(node.into), run.registers[node.value]
    if node.factor:
        value = value * run.registers[node.factor.of][run.element(node.factor)]
    before = into[at][: len(value)]
    made = value if node.adds is None else value + np.where(added(run, node), before, 0)
    before[:] = np.where(run.active, made, before)
