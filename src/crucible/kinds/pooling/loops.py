"""Loops over a thread's windows, and over the elements of a window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from crucible.algebra.expression import Expr
from crucible.algebra.pool import Window
from crucible.algebra.program import Operand
from crucible.kernel.index import ZERO, Compare, Condition, Either, Index, Variable
from crucible.kinds.pooling.frame import Frame
from crucible.kinds.pooling.layout import used

UNROLLED = 128
"""Elements of a window up to which loops over it are unrolled."""


@contextmanager
def over_lanes(frame: Frame) -> Iterator[None]:
    """For each of a thread's neighbouring windows."""
    if frame.layout.lanes == 1:
        yield
        return
    with frame.k.unrolled("j", frame.size("lanes", frame.layout.lanes)) as frame.lane:
        frame.member = frame.lane
        yield
    frame.lane = frame.member = ZERO


@contextmanager
def over_spread(frame: Frame) -> Iterator[None]:
    """For each of a thread's windows that are not neighbours in the input."""
    layout, k = frame.layout, frame.k
    if layout.spread is None:
        yield
        return
    dim = layout.dims[layout.spread]
    with k.unrolled("j", frame.size("together", layout.spread_by)) as frame.member:
        frame.at[dim] = k.let(dim, frame.first[dim] + frame.member, "int")
        yield
    frame.member = ZERO


def start(frame: Frame, position: int) -> Index:
    """Where a window starts along a dim, which may be before the input."""
    window, dim = frame.layout.windows[position], frame.layout.spatial[position]
    if window.adaptive:
        extent, outputs = frame.size(f"extent_{dim}", window.extent), frame.size(f"outputs_{dim}", window.outputs)
        return frame.at[dim] * extent // outputs
    first = frame.at[dim] * frame.size(f"stride_{dim}", window.stride) if window.outputs > 1 else ZERO
    return first - frame.size(f"padding_{dim}", window.padding)


def end(frame: Frame, position: int) -> Index:
    """Where an adaptive window ends."""
    window, dim = frame.layout.windows[position], frame.layout.spatial[position]
    outputs = frame.size(f"outputs_{dim}", window.outputs)
    return ((frame.at[dim] + 1) * frame.size(f"extent_{dim}", window.extent) + (outputs - 1)) // outputs


@contextmanager
def over_dim(frame: Frame, position: int) -> Iterator[None]:
    """The elements of a window along one dim: `inside` is where they are in the input, `within` where in the window."""
    window, dim, k = frame.layout.windows[position], frame.layout.spatial[position], frame.k
    if window.adaptive:
        with _from_to(frame, position, end(frame, position)):
            yield
        return
    size = frame.size(f"size_{dim}", window.size)
    with k.rounds(f"k{dim}", size, frame.pool.elements() <= UNROLLED) as frame.within[dim]:
        step = frame.within[dim] * frame.size(f"dilation_{dim}", window.dilation)
        inside = k.let(f"in_{dim}", start(frame, position) + step, "int")
        frame.inside[dim] = inside
        condition = [Compare(">=", inside, ZERO)] * window.before_start
        condition += [Compare("<", inside, frame.size(f"extent_{dim}", window.extent))] * window.over_end
        with k.when(tuple(condition), is_rest=window.size > 1):
            yield


@contextmanager
def _from_to(frame: Frame, position: int, stop: Index) -> Iterator[None]:
    """From the start of a window on."""
    dim, k, first = frame.layout.spatial[position], frame.k, start(frame, position)
    within = Variable(f"k{dim}", "int")
    with k.loop(f"in_{dim}", first, stop, type="int") as inside, k.placed(within, inside - first):
        frame.inside[dim], frame.within[dim] = inside, within
        yield


@contextmanager
def over_window(frame: Frame, exprs: Sequence[Expr]) -> Iterator[None]:
    """The elements of a thread's windows, in PyTorch's order; with the operands that `exprs` read and that move."""
    moving = [each for each in used(frame.pool.operands, *exprs) if frame.pool.moves(each)]
    begin_rows(frame)
    with ExitStack() as loops:
        for position in range(len(frame.layout.windows) - 1):
            loops.enter_context(over_dim(frame, position))
        read_rows(frame, moving)
        loops.enter_context(over_row(frame) if frame.layout.rows else over_dim(frame, len(frame.layout.windows) - 1))
        read_elements(frame, moving)
        yield


def begin_rows(frame: Frame) -> None:
    """Declares where a thread's rows begin."""
    if frame.layout.rows:
        frame.inside["w"] = frame.k.let("in_w", start(frame, len(frame.layout.windows) - 1), "int")


@contextmanager
def over_row(frame: Frame) -> Iterator[None]:
    """The elements of a thread's windows along the last dim."""
    size, first = frame.size("size_w", frame.layout.windows[-1].size), frame.inside["w"]
    with frame.k.unrolled("k", frame.size("row_elements", frame.layout.row_elements)) as k:
        frame.inside["w"], frame.place = first + k, k
        frame.lane, frame.within["w"] = (k // size, k % size) if frame.layout.lanes > 1 else (ZERO, k)
        yield
    frame.inside["w"], frame.lane = first, ZERO


def read_rows(frame: Frame, operands: Sequence[Operand]) -> None:
    """Of which a thread's elements of one row lie side by side."""
    for each in operands:
        if row := frame.row_of(each):
            row.load(frame.k, frame.of_element(each))
            frame.rows[each.name] = row


def read_elements(frame: Frame, operands: Sequence[Operand]) -> None:
    """An element of each, out of its row where that was read."""
    for each in operands:
        row = frame.rows.get(each.name)
        frame.read(each, row.element(frame.place) if row else frame.of_element(each))


@contextmanager
def over_windows(frame: Frame) -> Iterator[None]:
    """The windows that an element is in: `at` is where they are, `within` its place in them."""
    with ExitStack() as loops:
        for position in range(len(frame.layout.windows)):
            loops.enter_context(_over_windows_along(frame, position))
        yield


@contextmanager
def _over_windows_along(frame: Frame, position: int) -> Iterator[None]:
    window, dim, k = frame.layout.windows[position], frame.layout.spatial[position], frame.k
    outputs, inside = frame.size(f"outputs_{dim}", window.outputs), frame.inside[dim]
    if window.adaptive:
        extent, within = frame.size(f"extent_{dim}", window.extent), Variable(f"k{dim}", "int")
        first, past = inside * outputs // extent, ((inside + 1) * outputs + (extent - 1)) // extent
        with k.loop(dim, first, past, type="int") as frame.at[dim], k.placed(within, inside - start(frame, position)):
            frame.within[dim] = within
            yield
        return
    stride, size = frame.size(f"stride_{dim}", window.stride), frame.size(f"size_{dim}", window.size)
    with k.rounds(f"k{dim}", size, frame.pool.elements() <= UNROLLED) as frame.within[dim]:
        step = frame.within[dim] * frame.size(f"dilation_{dim}", window.dilation)
        past = k.let(f"past_{dim}", inside + frame.size(f"padding_{dim}", window.padding) - step, "int")
        condition: Condition = (Compare(">=", past, ZERO), Compare("<", past, outputs * stride))
        condition += (Compare("==", past % stride, ZERO),) if window.stride > 1 else ()
        with k.when(condition, is_rest=window.size > 1):
            frame.at[dim] = k.let(dim, past // stride, "int") if window.stride > 1 else past
            yield


# cells: the elements nearest to a window. Every element is in one


def cell(window: Window) -> int:
    """Elements of the largest cell along one dim."""
    return window.size if window.tiles else max(window.stride, window.extent - (window.outputs - 1) * window.stride)


@contextmanager
def over_cell_dim(frame: Frame, position: int) -> Iterator[None]:
    window, dim, k = frame.layout.windows[position], frame.layout.spatial[position], frame.k
    if window.tiles:
        with over_dim(frame, position):
            yield
        return
    stop: Index = frame.size(f"extent_{dim}", window.extent)
    if window.outputs > 1:
        inner = (Compare("<", frame.at[dim], frame.size(f"outputs_{dim}", window.outputs) - 1),)
        stop = Either(inner, start(frame, position) + frame.size(f"stride_{dim}", window.stride), stop)
    with _from_to(frame, position, k.let(f"end_{dim}", stop, "int")):
        yield


def number(frame: Frame, sizes: Sequence[int], kind: str) -> Index:
    """An element's number in its window or cell, along dims of these sizes."""
    found: Index = ZERO
    for size, dim in zip(sizes, frame.layout.spatial, strict=True):
        found = found * frame.size(f"{kind}_{dim}", size) + frame.within[dim]
    return found


def inside(frame: Frame) -> Condition:
    """Under which an element of a cell is in its window."""
    dims = zip(frame.layout.windows, frame.layout.spatial, strict=True)
    ragged = [(window, dim) for window, dim in dims if cell(window) > window.size]
    return tuple(Compare("<", frame.within[dim], frame.size(f"size_{dim}", window.size)) for window, dim in ragged)


def in_window(frame: Frame) -> Index:
    return number(frame, [window.size for window in frame.layout.windows], "size")


def in_cell(frame: Frame) -> Index:
    sizes = [cell(window) for window in frame.layout.windows]
    return number(frame, sizes, "cell" if sizes != [window.size for window in frame.layout.windows] else "size")
