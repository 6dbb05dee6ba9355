"""Loops over the elements of a window, as text."""

from __future__ import annotations

from collections.abc import Sequence

from crucible.write.expression import Expr
from crucible.write.pool import Window
from crucible.write.pooling.frame import TYPES, Frame, block, unrolled, used
from crucible.write.program import Operand

UNROLLED = 128
"""Elements of a window up to which loops over it are unrolled."""


def start(window: Window, dim: str) -> str:
    """Where a window starts, which may be before the input."""
    if window.adaptive:
        return f"{dim} * {window.extent} / {window.outputs}"
    first = dim if window.stride == 1 else f"{dim} * {window.stride}"
    first = "0" if window.outputs == 1 else first
    return f"{first} - {window.padding}" if window.padding else first


def end(window: Window, dim: str) -> str:
    """Where an adaptive window ends."""
    return f"(({dim} + 1) * {window.extent} + {window.outputs - 1}) / {window.outputs}"


def place(window: Window, dim: str, within: str) -> str:
    """The input position of an element of a window."""
    first = start(window, dim)
    step = within if window.dilation == 1 else f"{within} * {window.dilation}"
    return step if first == "0" else first if window.size == 1 else f"{first} + {step}"


def over_dim(frame: Frame, position: int, inner: Sequence[str]) -> list[str]:
    """A loop over one dim of a window, in which `in_<dim>` is the input position and `k<dim>` that in the window."""
    window, dim = frame.windows[position], frame.spatial[position]
    if window.adaptive:
        head = f"for (int in_{dim} = {start(window, dim)}; in_{dim} < {end(window, dim)}; ++in_{dim})"
        return block(head, [f"const int k{dim} = in_{dim} - {start(window, dim)};", *inner])
    lines = [f"const int in_{dim} = {place(window, dim, f'k{dim}')};"]
    conditions = [f"in_{dim} < 0"] * window.before_start + [f"in_{dim} >= {window.extent}"] * window.over_end
    if conditions:
        lines.append(f"if ({' || '.join(conditions)}) continue;")
    head = f"for (int k{dim} = 0; k{dim} < {window.size}; ++k{dim})"
    unroll = ["#pragma unroll"] if frame.pool.elements() <= UNROLLED else []
    return [*unroll, *block(head, [*lines, *inner])]


def over_window(frame: Frame, exprs: Sequence[Expr], element: Sequence[str]) -> list[str]:
    """Loops over the elements of a thread's windows, in PyTorch's order. The operands that `exprs` read and that move
    are there as `<name>_value`."""
    moving = [each for each in used(frame.pool.operands, *exprs) if frame.pool.moves(each)]
    lines = over_row(frame, moving, element)
    for position in reversed(range(len(frame.windows) - 1)):
        lines = over_dim(frame, position, lines)
    return [*row_start(frame), *lines]


def row_start(frame: Frame) -> list[str]:
    """Declares where a thread's rows begin."""
    return [f"const int in_w = {start(frame.windows[-1], 'w')};"] if frame.rows else []


def over_row(frame: Frame, moving: Sequence[Operand], element: Sequence[str]) -> list[str]:
    """The innermost loop."""
    inner = [*(value(frame, each) for each in moving), *element]
    if not frame.rows:
        return over_dim(frame, len(frame.windows) - 1, inner)
    lines = [row(frame, each) for each in moving if frame.row_packed(each)]
    return [*lines, *unrolled("k", frame.row_elements, inner)]


def over_cell(frame: Frame, inner: Sequence[str], around: tuple[Sequence[str], Sequence[str]] = ((), ())) -> list[str]:
    """Loops over the elements nearest to a thread's windows: every element is in one cell. `around` comes before and
    after a row."""
    last = len(frame.windows) - 1
    lines = unrolled("k", frame.row_elements, inner) if frame.rows else _over_cell_dim(frame, last, inner)
    lines = [*around[0], *lines, *around[1]]
    for position in reversed(range(last)):
        lines = _over_cell_dim(frame, position, lines)
    return lines


def _over_cell_dim(frame: Frame, position: int, inner: Sequence[str]) -> list[str]:
    window, dim = frame.windows[position], frame.spatial[position]
    if window.tiles:
        return over_dim(frame, position, inner)
    first = start(window, dim)
    ends = str(window.extent)
    if window.outputs > 1:
        ends = f"{dim} == {window.outputs - 1} ? {window.extent} : {first} + {window.stride}"
    head = f"for (int in_{dim} = {first}; in_{dim} < end_{dim}; ++in_{dim})"
    return [
        f"const int end_{dim} = {ends};",
        *block(head, [f"const int k{dim} = in_{dim} - {_bracketed(first)};", *inner]),
    ]


def _bracketed(words: str) -> str:
    return f"({words})" if " - " in words or " + " in words else words


def cell(window: Window) -> int:
    """Elements of the largest cell along one dim."""
    return window.size if window.tiles else max(window.stride, window.extent - (window.outputs - 1) * window.stride)


def in_cell(frame: Frame) -> str:
    """An element's number in its cell."""
    return _number([cell(window) for window in frame.windows], within_window(frame))


def in_window(frame: Frame) -> str:
    """An element's number in its window."""
    return _number([window.size for window in frame.windows], within_window(frame))


def _number(sizes: Sequence[int], words: Sequence[str]) -> str:
    text = ""
    for size, word in zip(sizes, words, strict=True):
        text = f"({text})" if " + " in text else text
        text = f"{text} * {size} + {word}" if text else word
    return text


def inside(frame: Frame) -> str:
    """Whether an element of a cell is in its window; empty if all are."""
    words = zip(frame.windows, within_window(frame), strict=True)
    return " && ".join(f"{within} < {window.size}" for window, within in words if cell(window) > window.size)


def within_window(frame: Frame) -> list[str]:
    """An element's position in its window, along each dim."""
    words = [f"k{dim}" for dim in frame.spatial]
    if frame.rows:
        size = frame.windows[-1].size
        words[-1] = "k" if frame.lanes == 1 else f"k % {size}" if size > 1 else "0"
    return words


def pack(frame: Frame, operand: Operand) -> str:
    """The type of a thread's elements of one row."""
    return f"Row<{TYPES[operand.dtype]}, {frame.row_elements}>"


def row(frame: Frame, operand: Operand) -> str:
    """Reads a thread's elements of one row."""
    at = f"{frame.parameters[operand.name]} + {in_space(frame, operand.name, operand.strides)}"
    return f"const auto {operand.name}_row = read_row<{frame.row_elements}, aligned>({at});"


def value(frame: Frame, operand: Operand) -> str:
    """Reads one element."""
    word = f"{operand.name}_row.at[k]" if frame.row_packed(operand) else element_of(frame, operand)
    return f"const {frame.real} {operand.name}_value = {frame.read(operand.dtype, word)};"


def element_of(frame: Frame, operand: Operand) -> str:
    """One element of a tensor laid over the input."""
    return f"{frame.parameters[operand.name]}[{in_space(frame, operand.name, operand.strides, 'k' * frame.rows)}]"


def in_space(frame: Frame, name: str, strides: Sequence[int], k: str = "") -> str:
    """An element's place in a tensor laid over the input; `outer_place` declares the first part."""
    words = [f"in_{dim}" for dim in frame.spatial]
    if k:
        words[-1] = f"(in_w + {k})" if strides[-1] != 1 else f"in_w + {k}"
    inner = frame.offset(words, strides[frame.rank :], frame.pool.input_shape[frame.rank :])
    return inner if frame.of_outer(strides) == "0" else f"{name}_at + {inner}"


def outer_place(frame: Frame, name: str, strides: Sequence[int]) -> list[str]:
    """Declares where the elements of a thread's batch and channel begin."""
    place_ = frame.of_outer(strides)
    return [] if place_ == "0" else [f"const {frame.index} {name}_at = {place_};"]


def beginnings(frame: Frame, exprs: Sequence[Expr]) -> list[str]:
    """Declares where the tensors of the chain before begin, and reads what all elements of a window share."""
    lines: list[str] = []
    for operand in used(frame.pool.operands, *exprs):
        if frame.pool.moves(operand):
            lines += outer_place(frame, operand.name, operand.strides)
        else:
            word = f"{frame.parameters[operand.name]}[{frame.of_outer(operand.strides)}]"
            lines.append(f"const {frame.real} {operand.name}_value = {frame.read(operand.dtype, word)};")
    return lines


def after_values(frame: Frame, exprs: Sequence[Expr], known: Sequence[Operand]) -> tuple[list[str], list[str]]:
    """Reads what a window's value is put together with: what all windows of a thread need first, and for each."""
    before, each = [], []
    for operand in used(known, *exprs):
        name, dtype = operand.name, operand.dtype
        word = f"{frame.parameters[name]}[{frame.of_window(operand.strides)}]"
        if frame.lanes_packed(operand):
            at = f"{frame.parameters[name]} + {frame.of_first(operand.strides)}"
            before.append(f"const auto {name}_row = read_row<{frame.together}, aligned>({at});")
            word = f"{name}_row.at[j]"
        each.append(f"const {frame.real} {name}_value = {frame.read(dtype, word)};")
    return before, each
