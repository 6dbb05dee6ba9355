"""At which sizes a task is judged, beside its own: cut down in batch and space, and once ragged.

A kernel that is right at one shape may be wrong at the next: sizes that its block divides hide what its guards get
wrong. Of 54 loosened guards in public kernels, power-of-two shapes showed 34 and odd ones 13 more.

Nothing here executes the reference: names and numbers are read from its text.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from crucible.errors import TaskError

Sizes = dict[str, Any]
_BATCH = ("batch", "bs", "n_batch", "num_samples")
_ROUND_BATCH, _RAGGED_BATCH = 2, 3
_ROUND = {1: (4096, 1024, 256, 64, 16, 4), 2: (64, 32, 16), 3: (16, 8, 4)}
"""What each free size is brought below, by how many sizes of space are free: several blocks and several iterations
of a tile loop first, less where that is too much work."""
_RAGGED: dict[int, tuple[tuple[int, ...], ...]] = {
    1: ((2053,), (1031,), (517,), (259,), (131,), (67,), (33,), (13,), (5,)),
    2: ((67, 37), (45, 23), (37, 19), (19, 11), (11, 7)),
    3: ((11, 13, 17), (7, 9, 19), (6, 7, 11), (5, 7, 9)),
}
"""Odd, different from one another, and above a usual block or tile where the work allows."""


def free_sizes(source: str) -> Sizes:
    """Module-level integers that `get_inputs` reads and nothing else does: batch and space, in a task of the usual
    form. Another value changes inputs only, never weights."""
    tree = ast.parse(source)
    numbers = _numbers(tree)
    readers: dict[str, set[str]] = {}
    for node in tree.body:
        owner = getattr(node, "name", "module")
        for name in {item.id for item in ast.walk(node) if isinstance(item, ast.Name)} - _bound_by(node):
            readers.setdefault(name, set()).add(owner)
    return {name: value for name, value in numbers.items() if readers.get(name) == {"get_inputs"}}


def own_numbers(source: str) -> Sizes:
    """All module-level positive integers of a reference, by name."""
    return _numbers(ast.parse(source))


def cut_down(free: Sizes) -> tuple[Sizes, ...]:
    """Smaller sizes to try in this order, each halved until it is below a limit, so that what divided them still
    does; empty where nothing is free."""
    batch, space = _divided(free)
    limits = _ROUND.get(len(space), _ROUND[3])
    tries = [
        {**dict.fromkeys(batch, _ROUND_BATCH), **{name: _halved(value, limit) for name, value in space.items()}}
        for limit in limits
    ]
    return _different([_no_larger(sizes, free) for sizes in tries], {}) if free else ()


def ragged(free: Sizes, other_than: Sizes) -> tuple[Sizes, ...]:
    """Odd sizes to try in this order; none is larger than the task's own, none the same as `other_than`."""
    batch, space = _divided(free)
    tries: list[Sizes] = []
    for targets in _RAGGED.get(len(space), _RAGGED[3]) if space else ((),):
        named = {name: targets[i % len(targets)] for i, name in enumerate(space)}
        tries.append({**dict.fromkeys(batch, _RAGGED_BATCH), **named})
    tries += [{**_halves(space), **dict.fromkeys(batch, _RAGGED_BATCH)}, dict.fromkeys(batch, _RAGGED_BATCH)]
    return _different([_odd_below(sizes, free) for sizes in tries if sizes], other_than)


def batch_first(names: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of free sizes, those of a batch before those of space."""
    batch, space = _divided(dict(names))
    return (*batch, *space)


def parse(text: str, source: str) -> Sizes:
    """The sizes of `--shape batch_size=2,height=33`. Raises TaskError."""
    known = own_numbers(source)
    sizes: Sizes = {}
    for part in text.split(","):
        name, _, value = (item.strip() for item in part.partition("="))
        if not value.isdecimal() or len(value) > 18 or int(value) < 1:
            raise TaskError(f"--shape {text!r}: write NAME=NUMBER,..., numbers from 1, as in batch_size=2,height=33")
        if name not in known:
            names = ", ".join(known) or "none"
            raise TaskError(f"--shape {text!r}: the reference has no module-level number {name} (it has {names})")
        sizes[name] = int(value)
    return sizes


def words(sizes: Mapping[str, Any]) -> str:
    """`batch_size = 3, height = 37`."""
    return ", ".join(f"{name} = {value}" for name, value in sizes.items())


def _numbers(tree: ast.Module) -> Sizes:
    found: Sizes = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            found.update(_assigned(node.targets[0], node.value))
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            found.update(_assigned(node.target, node.value))
    return found


def _assigned(target: ast.expr, value: ast.expr) -> Sizes:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        pairs = zip(target.elts, value.elts, strict=True)
        return {name: number for t, v in pairs for name, number in _assigned(t, v).items()}
    number = _number(value)
    return {target.id: number} if isinstance(target, ast.Name) and number else {}


def _number(value: ast.expr) -> int:
    """The value of an integer literal or of products, sums and powers of such; 0 for anything else."""
    if isinstance(value, ast.Constant):
        return value.value if type(value.value) is int and value.value > 0 else 0
    if not isinstance(value, ast.BinOp):
        return 0
    left, right = _number(value.left), _number(value.right)
    if not left or not right:
        return 0
    if isinstance(value.op, ast.Mult):
        return left * right
    if isinstance(value.op, ast.FloorDiv):
        return left // right
    return int(left**right) if isinstance(value.op, ast.Pow) and right < 64 and left < 64 else 0


def _bound_by(node: ast.stmt) -> set[str]:
    """What a top-level assignment itself binds: that is no reader."""
    return {item.id for item in ast.walk(node) if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store)}


def _divided(free: Sizes) -> tuple[Sizes, Sizes]:
    """Batch and space. Where the batch alone is free, rows are the space."""
    batch = {name: value for name, value in free.items() if name.lower().startswith(_BATCH) or name == "B"}
    if len(batch) == len(free):
        return {}, free
    return batch, {name: value for name, value in free.items() if name not in batch}


def _halved(value: int, limit: int) -> int:
    while value > limit:
        value //= 2
    return value


def _halves(space: Sizes) -> Sizes:
    """The larger half of each size, what a reference takes that wants even sizes."""
    return {name: max(2, _halved(value, 64) // 4 * 3) for name, value in space.items()}


def _no_larger(sizes: Sizes, than: Sizes) -> Sizes:
    return {name: min(value, than[name]) for name, value in sizes.items()}


def _odd_below(sizes: Sizes, own: Sizes) -> Sizes:
    """No size above the task's own; where a target is, the largest odd number below that."""
    return {name: value if value < own[name] else max(1, (own[name] - 2) | 1) for name, value in sizes.items()}


def _different(tries: list[Sizes], other_than: Sizes) -> tuple[Sizes, ...]:
    seen: list[Sizes] = [other_than]
    for sizes in tries:
        if all(sizes != {name: other.get(name) for name in sizes} for other in seen):
            seen.append(sizes)
    return tuple(seen[1:])
