"""Pools forward: one kernel, in which a thread takes a window, or as many as fill its widest accesses."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from crucible.write.expression import Expr, inputs, name_of, substitute, tensor
from crucible.write.kernel import Lowered
from crucible.write.pool import Pool, collapsed_pool
from crucible.write.pooling.average import COUNT, TOTAL, average, count
from crucible.write.pooling.frame import TYPES, Frame, framed, kernel, leading, noted, slow_to_fast, used
from crucible.write.pooling.items import windows
from crucible.write.pooling.lanes import chosen, computed, declared, of_element, of_lane, over_lanes, spread
from crucible.write.pooling.loops import after_values, beginnings, in_window, over_window
from crucible.write.pooling.sinking import LARGEST, SMALLEST, sink
from crucible.write.program import Result, contiguous
from crucible.write.ranges import Bounds

BEST = tensor("the value of the chosen element")
_GATHERED = {LARGEST: ("largest", "-INFINITY"), SMALLEST: ("smallest", "INFINITY"), TOTAL: ("total", "0")}


def lower_pool(pool: Pool, bounds: Bounds | None = None, save: Sequence[str] = ()) -> Lowered:
    """The kernel for a pool with its chains.

    `bounds` says where operands lie, by name (see `ranges`). `save` names what it writes besides, for the pool's
    backward: of `saved(pool)`.
    """
    slim = collapsed_pool(pool)
    results = [slim.result, *(each for each in saved(slim) if each.name in save)]
    return _lowered(slim, pool.name, title(pool), results, bounds)


def lower_saved(pool: Pool, save: Sequence[str]) -> Lowered:
    """The kernel for those of `saved(pool)` alone."""
    slim = collapsed_pool(pool)
    results = [each for each in saved(slim) if each.name in save]
    return _lowered(slim, f"{pool.name}_again", f"For the backward pass. {title(pool)}", results, None)


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

    @property
    def gathered(self) -> tuple[Expr, ...]:
        return tuple(leaf for leaf in inputs(self.pooled) if leaf in _GATHERED)


def _way(pool: Pool, choosing: bool, bounds: Bounds | None) -> _Way:
    """Of a maximum: its extremes, or its choice; of an average: its sum."""
    if pool.kind == "avg":
        note = "The chain before the average is computed for every element." if pool.before.args else ""
        return _Way(pool.before, average(pool, TOTAL), note)
    if choosing:
        return _Way(pool.before, BEST, "Which element is the largest is kept for the backward pass.")
    sunk = sink(pool, bounds)
    return _Way(sunk.inner, sunk.pooled, sunk.note)


def _lowered(pool: Pool, name: str, head: str, results: Sequence[Result], bounds: Bounds | None) -> Lowered:
    choosing = any(is_choice(each) for each in results)
    way = _way(pool, choosing, bounds)
    values = {each.name: substitute(each.expr, {pool.pooled: way.pooled}) for each in results if not is_choice(each)}
    read = [*used(pool.operands, way.inner, way.pooled), *used(pool.after_operands, *values.values())]
    frame = framed(pool, [*(each.name for each in read), *(each.name for each in results)], results[0])
    body = _Body(frame, way, results, values, choosing)
    lines = body.lines()
    text = kernel(name, frame, lines, body.preamble, {each.name: each.dtype for each in read},
                  {each.name: each.dtype for each in results}, windows(frame).blocks)  # fmt: skip
    notes = tuple(note for note in (way.note, mapping(frame)) if note)
    return Lowered((noted(text, comment(head, *notes)),), notes=notes)


def comment(*sentences: str) -> str:
    """Above a function."""
    return textwrap.fill(" ".join(sentences), 116, initial_indent="// ", subsequent_indent="// ") + "\n"


def title(pool: Pool) -> str:
    """What the kernel computes, in words."""
    size = "x".join(str(window.size) for window in pool.windows)
    kind = {"max": "The largest", "avg": "The mean"}[pool.kind]
    return f"{kind} of windows of {size}: {list(pool.input_shape)} to {list(pool.output_shape)}."


def mapping(frame: Frame) -> str:
    """How threads lie, in words."""
    if frame.spread is not None:
        dim = frame.dims[frame.spread]
        return f"A thread takes {frame.spread_by} windows along {dim}, which lie side by side in the output."
    if frame.crossing is not None:
        fastest, other = frame.dims[frame.order[-1]], frame.dims[frame.crossing[0]]
        return f"A thread takes one window; a warp takes {frame.crossing[1]} along {fastest}, the others along {other}."
    if frame.lanes == 1:
        return "A thread takes one window; neighbouring threads read neighbouring memory."
    return f"A thread takes {frame.lanes} neighbouring windows and reads their rows {frame.row_elements} at a time."


@dataclass
class _Body:
    """The body of the kernel."""

    frame: Frame
    way: _Way
    results: Sequence[Result]
    values: Mapping[str, Expr]
    choosing: bool
    preamble: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        pool = self.frame.pool
        self.names = {each.name: f"{each.name}_value" for each in (*pool.operands, *pool.after_operands)}

    def lines(self) -> list[str]:
        frame, way = self.frame, self.way
        lines = beginnings(frame, [way.inner, way.pooled])
        lines += self._chosen() if self.choosing else self._gathered()
        packs = [each for each in self.results if frame.lanes_packed(each)]
        first, each_window = self._results(packs)
        lines += over_lanes(frame, each_window)
        rows = [*first, *(f"Row<{TYPES[each.dtype]}, {frame.together}> {each.name}_row;" for each in packs)]
        lines = [*rows, *spread(frame, lines), *(self._row_stored(each) for each in packs)]
        return [*windows(frame).begin(lines), *lines]

    def _chosen(self) -> list[str]:
        lines, preamble = chosen(self.frame, (), in_window(self.frame), self.names)
        self.preamble += preamble
        return lines

    def _gathered(self) -> list[str]:
        frame, way = self.frame, self.way
        lines = [declared(frame, *_GATHERED[leaf]) for leaf in way.gathered]
        element, words, preamble = computed(frame, {"value": way.inner}, self.names)
        word = words["value"]
        self.preamble += preamble
        for leaf in way.gathered:
            own = of_element(frame, _GATHERED[leaf][0])
            if leaf is TOTAL:
                element.append(f"{own} += {word};")
                continue
            example = tensor("a").maximum(tensor("b")) if leaf is LARGEST else tensor("a").minimum(tensor("b"))
            self.preamble += frame.chain({"value": example}, {}).preamble
            element.append(f"{own} = {'max_nan' if leaf is LARGEST else 'min_nan'}({own}, {word});")
        return [*lines, *over_window(frame, [way.inner], element)]

    def _results(self, packs: Sequence[Result]) -> tuple[list[str], list[str]]:
        """What becomes of the windows' values: before the loop over a thread's windows, and in it."""
        frame, pool = self.frame, self.frame.pool
        exprs = list(self.values.values())
        words = {name_of(leaf): of_lane(frame, variable) for leaf, (variable, _) in _GATHERED.items()}
        words |= {name_of(BEST): of_lane(frame, "best"), name_of(COUNT): "count"}
        first, lines = after_values(frame, exprs, pool.after_operands)
        lines = [*(count(frame) if any(COUNT in inputs(expr) for expr in exprs) else []), *lines]
        statements, found, preamble = computed(
            frame, {f"{name}_value": expr for name, expr in self.values.items()}, {**self.names, **words}
        )
        self.preamble += preamble
        lines += statements
        for each in self.results:
            word = (
                of_lane(frame, "choice") if is_choice(each) else frame.stored(each.dtype, found[f"{each.name}_value"])
            )
            place = f"{frame.parameters[each.name]}[{frame.of_window(each.strides)}]"
            lines.append(f"{f'{each.name}_row.at[j]' if each in packs else place} = {word};")
        return first, lines

    def _row_stored(self, result: Result) -> str:
        frame = self.frame
        to = f"{frame.parameters[result.name]} + {frame.of_first(result.strides)}"
        return f"write_row<aligned>({to}, {result.name}_row);"
