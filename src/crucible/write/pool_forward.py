"""Pools forward: one kernel, in which a thread takes a window, or as many as fill its widest read."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace

from crucible.write.expression import Expr, number, parameter, substitute, tensor
from crucible.write.kernel import Lowered
from crucible.write.pool import Pool, collapsed_pool
from crucible.write.pool_loops import after_values, beginnings, count, over_window
from crucible.write.pool_text import THREADS, TYPES, Frame, framed, kernel, unrolled, used
from crucible.write.ranges import Bounds
from crucible.write.sinking import LARGEST, SMALLEST, sink

TOTAL, COUNT = tensor("the sum of the window"), parameter("the count of the window")
_EXTREMES = {LARGEST: ("largest", "-INFINITY"), SMALLEST: ("smallest", "INFINITY")}


@dataclass(frozen=True)
class Pooling:
    """How the pool's value comes about."""

    inner: Expr
    """What is read or computed of each element."""
    pooled: Expr
    """The value, of what a thread has gathered over the window."""
    gathered: tuple[tuple[Expr, str, str], ...]
    """The leaf of `pooled`, the variable's name, and what it starts from."""
    note: str


def pooling(pool: Pool, bounds: Bounds | None = None) -> Pooling:
    """Of a maximum: its extremes; of an average: its sum."""
    if pool.kind == "max":
        sunk = sink(pool, bounds)
        return Pooling(sunk.inner, sunk.pooled, tuple((end, *_EXTREMES[end]) for end in sunk.ends), sunk.note)
    note = "An average of the chain's values, which are computed for every element." if pool.before.args else ""
    return Pooling(pool.before, average(pool, TOTAL), ((TOTAL, "total", "0.0f"),), note)


def average(pool: Pool, total: Expr) -> Expr:
    """Divided as PyTorch divides; by a power of two that is a product."""
    divisor = pool.count
    if divisor is None:
        return total / COUNT
    return total * (1 / divisor) if divisor & (divisor - 1) == 0 else total / float(divisor)


def lower_pool(pool: Pool, bounds: Bounds | None = None) -> Lowered:
    """The kernel for a pool with its chains.

    `bounds` says where operands lie, by name (see `ranges`). Tensors that are read 16 bytes at a time must begin at
    multiples of 16 bytes, as PyTorch's own do.
    """
    slim = collapsed_pool(pool)
    way = pooling(slim, bounds)
    after = substitute(slim.after, {slim.pooled: way.pooled})
    read = [*used(slim.operands, way.inner, way.pooled), *used(slim.after_operands, after)]
    read = read or list(slim.operands[:1])
    frame = framed(slim, [*(each.name for each in read), slim.result.name])
    body, preamble = _body(frame, way, after)
    text = kernel(pool.name, frame, body, preamble, {each.name: each.dtype for each in read},
                  {slim.result.name: slim.result.dtype}, -(-frame.items() // THREADS))  # fmt: skip
    notes = tuple(note for note in (way.note, mapping(frame)) if note)
    return Lowered((replace(text, text=comment(title(pool), *notes) + text.text),), notes=notes)


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
    if frame.lanes == 1:
        return "A thread takes one window; neighbouring threads read neighbouring memory."
    return f"A thread takes {frame.lanes} neighbouring windows and reads their rows {frame.row_elements} at a time."


def _body(frame: Frame, way: Pooling, after: Expr) -> tuple[list[str], list[str]]:
    pool = frame.pool
    names = {each.name: f"{each.name}_value" for each in (*pool.operands, *pool.after_operands)}
    element, preamble = _gather(frame, way, names)
    lines = place_in_grid(frame)
    lines += beginnings(frame, [way.inner, way.pooled])
    lines += [declared(frame, variable, start_) for _, variable, start_ in way.gathered]
    lines += over_window(frame, [way.inner], element)
    last, more = _result(frame, way, after, names)
    return [*lines, *last], [*preamble, *more]


def place_in_grid(frame: Frame) -> list[str]:
    """Each thread its item."""
    items = frame.items()
    lines = [f"const unsigned item = blockIdx.x * {THREADS} + threadIdx.x;"]
    if frame.wide:
        lines = [f"const long long item = blockIdx.x * {THREADS}LL + threadIdx.x;"]
    if items % THREADS:
        lines.append(f"if (item >= {items}) return;")
    return [*lines, *frame.coordinates("item", frame.order)]


def declared(frame: Frame, variable: str, start: str, type_: str = "") -> str:
    """A variable, one for each of a thread's windows."""
    type_ = type_ or frame.real
    if frame.lanes == 1:
        return f"{type_} {variable} = {start};"
    return f"{type_} {variable}[{frame.lanes}] = {{{', '.join([start] * frame.lanes)}}};"


def of_element(frame: Frame, variable: str) -> str:
    """The variable of the window that element k of a row is in."""
    size = frame.windows[-1].size
    return variable if frame.lanes == 1 else f"{variable}[k / {size}]" if size > 1 else f"{variable}[k]"


def of_lane(frame: Frame, variable: str) -> str:
    return variable if frame.lanes == 1 else f"{variable}[j]"


def over_lanes(frame: Frame, inner: Sequence[str]) -> list[str]:
    """For each of a thread's windows."""
    return list(inner) if frame.lanes == 1 else unrolled("j", frame.lanes, inner)


def computed(frame: Frame, name: str, expr: Expr, names: dict[str, str]) -> tuple[list[str], str, list[str]]:
    """Statements, the name of their value, and what they call."""
    emitted = frame.chain({name: expr}, names)
    if expr.args or number(expr) is not None:
        return list(emitted.statements), name, list(emitted.preamble)
    return [], names.get(str(expr.attributes[0]), str(expr.attributes[0])), []


def _gather(frame: Frame, way: Pooling, names: dict[str, str]) -> tuple[list[str], list[str]]:
    lines, word, preamble = computed(frame, "value", way.inner, names)
    for leaf, variable, _ in way.gathered:
        own = of_element(frame, variable)
        if leaf is TOTAL:
            lines.append(f"{own} += {word};")
        else:
            larger = leaf is LARGEST
            lines.append(f"{own} = {'max_nan' if larger else 'min_nan'}({own}, {word});")
            example = tensor("a").maximum(tensor("b")) if larger else tensor("a").minimum(tensor("b"))
            preamble += frame.chain({"value": example}, {}).preamble
    return lines, preamble


def _result(frame: Frame, way: Pooling, after: Expr, names: dict[str, str]) -> tuple[list[str], list[str]]:
    pool, result = frame.pool, frame.pool.result
    words = dict(names) | {str(leaf.attributes[0]): of_lane(frame, variable) for leaf, variable, _ in way.gathered}
    words[str(COUNT.attributes[0])] = "count"
    lines = count(frame) if pool.kind == "avg" and pool.count is None else []
    lines += after_values(frame, [after], pool.after_operands)
    statements, word, preamble = computed(frame, "result", after, words)
    word = frame.stored(result.dtype, word)
    packed = frame.packed(result.strides, pool.output_shape, frame.lanes, result.dtype)
    target = f"{frame.parameters[result.name]}[{frame.of_window(result.strides)}]"
    store = f"{'result_row.at[j]' if packed else target} = {word};"
    lines = over_lanes(frame, [*lines, *statements, store])
    if packed:
        pack = f"Pack<{TYPES[result.dtype]}, {frame.lanes}>"
        at = frame.offset(frame.dims, result.strides, pool.output_shape)
        to = f"{frame.parameters[result.name]} + {at}"
        lines = [f"{pack} result_row;", *lines, f"*reinterpret_cast<{pack}*>({to}) = result_row;"]
    return lines, preamble
