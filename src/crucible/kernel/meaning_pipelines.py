"""What pipelines mean, and products of what lies in them: the part of `meaning` where threads wait for each other."""

from __future__ import annotations

import numpy as np

from crucible.gpus import WARP
from crucible.kernel import nodes as ir
from crucible.kernel.index import Index
from crucible.kernel.places import CORE_ROWS, WARPGROUP
from crucible.kernel.tensor_cores import Ring, halves_multiplied, multiplied, reinterpreted, spread
from crucible.kernel.whereabouts import Array, Places, Waits

ROWS, UNITS, UNIT = 64, 2, 16
"""Rows of a product, its sixteens of bytes of K, and these."""
HALVES = {"float16": "fp16", "bfloat16": "bf16"}
"""What words of two are multiplied by."""


class Stuck(RuntimeError):
    """Threads wait for others that never come."""


def begin(run: Places, of: ir.Pipeline) -> None:
    ring = run.rings[of] = Ring(of)
    if of.margins:
        given, tile = of.margins, of.tiles[0]
        rows = np.arange(of.bytes // UNIT // given.pitch)
        run.variables[given.row] = rows
        run.variables[given.kind] = np.broadcast_to(run.index(given.kind_of), rows.shape)
        first, end = (np.broadcast_to(run.index(each), rows.shape)[:, None] for each in (given.first, given.end))
        at = np.arange(given.pitch)
        ring.untouched[tile] |= ((at < first) | (at >= end)).reshape(of.stages, *tile.sizes[:-1], 1)


def fill(run: Places, node: ir.Fill) -> Waits:
    of, ring, before = node.pipeline, run.rings[node.pipeline], run.active
    if not comes(run, of.producers * of.fillers):
        return
    run.active = in_turn(before, of.producers, ring.filled % of.fillers)
    if not any(isinstance(each, ir.Vacant) for each in ir.every(node.body)):
        yield from vacant(run, of)
    yield from run.body(node.body)
    ring.fill()
    run.active = before


def vacant(run: Places, of: ir.Pipeline) -> Waits:
    ring = run.rings[of]
    while not ring.may_be_filled:
        yield
    run.shared |= ring.stage(ring.filled)


def drain(run: Places, node: ir.Drain) -> Waits:
    ring, before = run.rings[node.pipeline], run.active
    if comes(run, node.pipeline.consumers):
        while not ring.may_be_drained:
            yield
        run.shared |= ring.stage(ring.drained)
        run.active = run.condition(node.who)
        yield from run.body(node.body)
        run.active = before
        ring.leave()


def slide(run: Places, node: ir.Slide) -> Waits:
    of, ring, before = node.pipeline, run.rings[node.pipeline], run.active
    if not comes(run, of.consumers):
        return
    count = int(np.max(run.index(node.count)))
    for number in range(count):
        run.variables[node.variable] = np.broadcast_to(number, run.shape)
        run.active = in_turn(before, of.consumers // of.teams, ring.turn % of.teams)
        yield from run.body(node.begin)
        for task in range(node.tasks):
            if node.task:
                run.variables[node.task] = np.broadcast_to(task, run.shape)
            yield from run.body(node.before)
            yield from window(run, of)
            yield from run.body(node.products)
            for _ in range((1 if number + 1 < count else of.window) if task + 1 == node.tasks else 0):
                ring.leave()
            yield from run.body(node.behind)
        yield from run.body(node.end)
        ring.turn += 1
    run.active = before


def deal(run: Places, node: ir.Deal) -> Waits:
    """Stages are left behind all tasks of their window: that nobody reads them before, the verifier sees."""
    of, ring, before = node.pipeline, run.rings[node.pipeline], run.active
    if not comes(run, of.consumers):
        return
    teams = (np.cumsum(before, axis=1) - 1) // (of.consumers // of.teams)
    count = int(np.max(run.index(node.count)))
    for number in range(count):
        run.variables[node.variable] = np.broadcast_to(number, run.shape)
        first = (teams + ring.turn * node.moved) % of.teams
        for begun in range(0, node.tasks, of.teams):
            run.variables[node.task] = first + begun
            run.active = before & (first + begun < node.tasks)
            yield from run.body(node.before)
            yield from window(run, of)
            yield from run.body(node.products)
            yield from run.body(node.behind)
        for _ in range(1 if number + 1 < count else of.window):
            ring.leave()
        ring.turn += 1
    run.active = before


def window(run: Places, of: ir.Pipeline) -> Waits:
    """Waited for."""
    ring = run.rings[of]
    while ring.filled < ring.drained + of.window:
        yield
    run.window = [ring.stage(ring.drained + each) for each in range(of.window)]


def comes(run: Places, threads: int) -> bool:
    """Whether anybody comes to a barrier; fewer than it waits for never leave it."""
    here = int(run.active.sum())
    if here not in (0, threads):
        raise Stuck(f"{run.kernel.name}: {here} threads come to a barrier of {threads}")
    return here > 0


def in_turn(active: Array, threads: int, turn: int) -> Array:
    """Of those that are here one group of so many."""
    return np.asarray(active & ((np.cumsum(active, axis=1) - 1) // threads == turn))


# products


def describe(run: Places, node: ir.Describe) -> None:
    of = node.matrix.of
    behind = node.behind if isinstance(node.behind, int) else _alike(run, node.behind)
    held = run.window[behind][of] if any(of in stage for stage in run.window) else run.shared[of]
    units = held[0].reshape(-1, of.sizes[-1])
    run.matrices[node.matrix] = units, _alike(run, node.at)


def _alike(run: Places, index: Index) -> int:
    """What is the same for all threads that are here."""
    found = np.broadcast_to(run.index(index), run.shape)[run.active]
    if (found != found[0]).any():
        raise ValueError(f"{run.kernel.name}: threads describe a matrix at {found.min()} to {found.max()}")
    return int(found[0])


def product(run: Places, node: ir.Product) -> None:
    sums, at = run.registers[node.into.of], run.element(node.into)
    before = sums[at][: node.made]
    right = _read(run, *node.columns, 2 * len(before))
    if isinstance(node.rows, ir.Element):
        held = run.registers[node.rows.of][run.element(node.rows)]
        if node.rows.of.dtype == "halves":
            made = halves_multiplied(held, right, HALVES[node.columns[0].of.dtype])
        else:
            made = multiplied(held[None], right)
    else:
        left = _read(run, *node.rows, ROWS)
        made = spread(left @ right.T, run.kernel.threads // WARPGROUP)
    if node.adds is not None:
        made = made + np.where(added(run, node), before, 0)
    sums[at][: node.made] = np.where(run.active, made, before)


def added(run: Places, node: ir.Product | ir.Collect) -> Array:
    """Where sums that were there are added to."""
    also = run.holds(node.or_where) if node.or_where else np.zeros(run.shape, bool)
    return np.asarray(run.holds(node.adds or ()) | also)


def _read(run: Places, matrix: ir.Matrix, moved: int, rows: int) -> Array:
    """[row][k]."""
    units, begin = run.matrices[matrix]
    begins = [begin + moved + unit * matrix.pitch for unit in range(UNITS)]
    row = np.arange(rows)
    of_unit = row // CORE_ROWS * matrix.eight + row % CORE_ROWS
    return np.concatenate([units[each + of_unit] for each in begins], axis=1)


# copies


def bring(run: Places, node: ir.Bring) -> None:
    """What comes is there when it is waited for."""
    who, lanes = run.condition(node.who), run.index(node.lanes)
    warps = np.any(run.active.reshape(len(run.blocks), -1, WARP), axis=-1).repeat(WARP, axis=-1)
    come = who.reshape(len(run.blocks), -1, WARP).sum(axis=-1).repeat(WARP, axis=-1)
    if (warps & (come != lanes)).any():
        raise Stuck(f"{run.kernel.name}: a warp waits for other copies than it is brought")
    count = np.broadcast_to(run.index(node.count), run.shape)
    for more in range(int(count.max())):
        own = who & (more < count)
        for to, source in node.copies:
            read, at = run.places(source, own, more)
            run.coming.append((*run.places(to, own, more), read[at]))


def brought(run: Places) -> None:
    for memory, at, value in run.coming:
        memory[at] = value
    run.coming.clear()


def copy(run: Places, node: ir.Copy) -> None:
    values = []
    for more in range(16 // ir.ITEM_BYTES[node.source.dtype]):
        memory, at = run.places(node.source, run.active, more)
        values.append(memory[at])
    for more, value in enumerate(reinterpreted(values, node.source.dtype, node.to.dtype)):
        memory, at = run.places(node.to, run.active, more)
        memory[at] = value
