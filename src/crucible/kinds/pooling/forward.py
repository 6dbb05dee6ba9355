"""Pools forward: one kernel, in which a thread takes a window, or as many as fill its widest accesses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crucible.algebra.expression import Expr, inputs, substitute, tensor
from crucible.algebra.pool import Pool, collapsed_pool
from crucible.algebra.program import Result, contiguous
from crucible.algebra.ranges import Bounds
from crucible.algebra.sinking import sink
from crucible.kernel import nodes as ir
from crucible.kinds.built import Built
from crucible.kinds.pooling.average import TOTAL, average, count
from crucible.kinds.pooling.frame import Frame, Row
from crucible.kinds.pooling.items import windows
from crucible.kinds.pooling.layout import Layout, laid_out, leading, slow_to_fast, used
from crucible.kinds.pooling.loops import in_window, over_lanes, over_spread
from crucible.kinds.pooling.values import BEST, GATHERED, choose, gather
from crucible.print.written import Lowered


def lower_pool(pool: Pool, bounds: Bounds | None = None, save: Sequence[str] = ()) -> Lowered:
    """What `build_pool` builds, as text."""
    return build_pool(pool, bounds, save).lowered()


def build_pool(pool: Pool, bounds: Bounds | None = None, save: Sequence[str] = ()) -> Built:
    """The kernel for a pool with its chains.

    `bounds` says where operands lie, by name (see `ranges`). `save` names what it writes besides, for the pool's
    backward: of `saved(pool)`.
    """
    slim = collapsed_pool(pool)
    results = [slim.result, *(each for each in saved(slim) if each.name in save)]
    return _built(slim, pool.name, title(pool), results, bounds)


def build_saved(pool: Pool, save: Sequence[str]) -> Built:
    """The kernel for those of `saved(pool)` alone."""
    slim = collapsed_pool(pool)
    results = [each for each in saved(slim) if each.name in save]
    return _built(slim, f"{pool.name}_again", f"For the backward pass. {title(pool)}", results, None)


def saved(pool: Pool) -> tuple[Result, ...]:
    """What a pool's backward may need of its forward, over outer and output dims: `<pool>_pooled`, the pool's value,
    contiguous, and of a maximum `<pool>_choice`, the chosen element's number within its window, dense in the order of
    what is read."""
    shape = pool.output_shape
    pooled = Result(f"{pool.name}_pooled", pool.precision, contiguous(shape), pool.pooled)
    if pool.kind == "avg":
        return (pooled,)
    small, order = pool.elements() <= 256, slow_to_fast(leading(pool).strides)
    dense = contiguous([shape[dim] for dim in order])
    strides = tuple(dense[order.index(dim)] for dim in range(len(shape)))
    return pooled, Result(f"{pool.name}_choice", "uint8" if small else "int32", strides, tensor("choice"))


def is_choice(result: Result) -> bool:
    return result.dtype in ("uint8", "int32")


@dataclass(frozen=True)
class _Way:
    """How the pool's value comes about."""

    inner: Expr
    """What is read or computed of each element."""
    pooled: Expr
    """The value, of what a thread has gathered over the window."""
    note: str


def _way(pool: Pool, choosing: bool, bounds: Bounds | None) -> _Way:
    """Of a maximum: its extremes, or its choice; of an average: its sum."""
    if pool.kind == "avg":
        note = "The chain before the average is computed for every element." if pool.before.args else ""
        return _Way(pool.before, average(pool, TOTAL), note)
    if choosing:
        return _Way(pool.before, BEST, "Which element is the largest is kept for the backward pass.")
    sunk = sink(pool, bounds)
    return _Way(sunk.inner, sunk.pooled, sunk.note)


def _built(pool: Pool, name: str, head: str, results: Sequence[Result], bounds: Bounds | None) -> Built:
    choosing = any(is_choice(each) for each in results)
    way, layout = _way(pool, choosing, bounds), laid_out(pool, results[0])
    values = {each.name: substitute(each.expr, {pool.pooled: way.pooled}) for each in results if not is_choice(each)}
    frame, items, after = Frame(layout), windows(layout), used(pool.after_operands, *values.values())
    frame.take(used(pool.operands, way.inner, way.pooled), "read", pool.input_shape)
    frame.take(after, "read", pool.output_shape)
    frame.take(results, "write", pool.output_shape)
    with items.begin(frame):
        read = frame.rows_of_windows(after)
        rows = {each.name: Row.of(each, layout.together) for each in results if layout.lanes_packed(each)}
        frame.k.add(*(ir.Declare((row.fragment,)) for row in rows.values()))
        with over_spread(frame):
            frame.beginnings([way.inner, way.pooled])
            if choosing:
                choice = choose(frame, (), in_window)
            else:
                gather(frame, way.inner, [leaf for leaf in inputs(way.pooled) if leaf in GATHERED])
            with over_lanes(frame):
                count(frame, values.values())
                frame.window_values(after, read)
                found = frame.computed({f"{name}_value": expr for name, expr in values.items()})
                for each in results:
                    value = frame.register(choice) if is_choice(each) else found[f"{each.name}_value"]
                    if each.name in rows:
                        frame.k.add(ir.Convert(rows[each.name].element(frame.member), value))
                    else:
                        frame.k.add(ir.Store(value, frame.of_window(each)))
        for each in (each for each in results if each.name in rows):
            rows[each.name].store(frame.k, frame.of_first(each))
    notes = tuple(note for note in (way.note, mapping(layout)) if note)
    return frame.kernel(name, items.blocks, items.threads, notes, head)


def title(pool: Pool) -> str:
    """What the kernel computes, in words."""
    size = "x".join(str(window.size) for window in pool.windows)
    kind = {"max": "The largest", "avg": "The mean"}[pool.kind]
    return f"{kind} of windows of {size}: {list(pool.input_shape)} to {list(pool.output_shape)}."


def mapping(layout: Layout) -> str:
    """How threads lie, in words."""
    if layout.spread is not None:
        dim = layout.dims[layout.spread]
        return f"A thread takes {layout.spread_by} windows along {dim}, which lie side by side in the output."
    if layout.crossing is not None:
        fastest, other = layout.dims[layout.order[-1]], layout.dims[layout.crossing[0]]
        words = f"a warp takes {layout.crossing[1]} along {fastest}, the others along {other}"
        return f"A thread takes one window; {words}."
    if layout.lanes == 1:
        return "A thread takes one window; neighbouring threads read neighbouring memory."
    return f"A thread takes {layout.lanes} neighbouring windows and reads their rows {layout.row_elements} at a time."
