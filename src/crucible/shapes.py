"""At which sizes a task is judged, beside its own: cut down in batch and space, and once ragged.

A kernel that is right at one shape may be wrong at the next: sizes that its block divides hide what its guards get
wrong. Of 54 loosened guards in public kernels, power-of-two shapes showed 34 and odd ones 13 more.

Nothing here executes the reference: names and numbers are read from its text.
"""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from crucible.errors import TaskError
from crucible.syntax import tree_of

Sizes = dict[str, Any]
_BATCH = ("batch", "bs", "n_batch", "num_samples")
_ROUND_BATCH, _RAGGED_BATCH = 2, 3
_ROUND = {1: (4096, 1024, 256, 64, 32, 16, 4, 2), 2: (64, 32, 16, 128, 256), 3: (64, 32, 16, 8, 4, 128)}
"""What each free size is brought below, by how many sizes of space are free: several blocks and several iterations
of a tile loop first, less where that is too much work; more at last, for networks that halve it five times."""
_MOST_GROWN = 100
_MOST_THREADS, _BESIDE = 1024, 64
"""Of a block, and what sizes are below beside one that is above."""
_ROUND_CHANNELS, _RAGGED_CHANNELS = 16, 7
"""Channels that no weight has: few, and as they are where a module wants a number of its own."""
_RAGGED: dict[int, tuple[tuple[int, ...], ...]] = {
    1: ((2053,), (1031,), (517,), (259,), (131,), (67,), (33,), (13,), (5,), (3,)),
    2: ((67, 37), (45, 23), (37, 19), (19, 11), (11, 7)),
    3: ((37, 45, 67), (19, 23, 37), (11, 13, 17), (7, 9, 19), (6, 7, 11), (5, 7, 9)),
}
"""Odd, different from one another, and above a usual block or tile where the work allows."""
_ROUND_WEIGHTS = (512, 256, 128)
"""What sizes of weights are brought below, where no batch is small enough: of 8192 x 8192 weights one row is 67 M
multiply-adds."""
_FEW_GROUPS = 32
_TOGETHER = (1024, 519, 67, 16)
"""What two sizes are that have to be the same: several blocks, and odd."""


def free_sizes(source: str) -> Sizes:
    """Module-level integers that `get_inputs` reads and nothing else does: batch and space, in a task of the usual
    form. Another value changes inputs only, never weights."""
    readers = _all_readers(source)
    return {n: value for n, value in _numbers(tree_of(source)).items() if readers.get(n) == {"get_inputs"}}


def weight_sizes(source: str) -> Sizes:
    """Module-level integers above `_ROUND_WEIGHTS`, and lists of integers with one, that reach the constructor through
    `get_init_inputs`, by themselves or in what the module makes of them, and that nothing else of the reference reads
    but `get_inputs`."""
    return {name: n for name, n in _of_weights(source).items() if _largest(n) > _ROUND_WEIGHTS[0]}


def groups(source: str) -> Sizes:
    """The integers above `_FEW_GROUPS` that reach the constructor as `weight_sizes` do, and are none of them: what
    divides a size of weights may be among them, such as the groups of a norm."""
    found = _of_weights(source)
    return {n: v for n, v in found.items() if isinstance(v, int) and _FEW_GROUPS < v <= _ROUND_WEIGHTS[0]}


def _of_weights(source: str) -> Sizes:
    tree = tree_of(source)
    wanted: set[str] = set()
    inside: set[str] = set()
    for owner, names in _readers(source, tree):
        wanted |= names if owner == "get_init_inputs" else set()
        inside |= names if owner not in ("", "get_inputs", "get_init_inputs") else set()
    for node in reversed(tree.body):
        if not _is_named(node) and _bound_by(node) & wanted:
            wanted |= _loaded_by(node)
    all_ = {**_numbers(tree), **_lists(tree)}
    return {name: n for name, n in all_.items() if name in wanted - inside}


def own_numbers(source: str) -> Sizes:
    """All module-level positive integers of a reference, by name."""
    return _numbers(tree_of(source))


def cut_down(free: Sizes) -> tuple[Sizes, ...]:
    """Smaller sizes to try, each halved until it is below a limit, so that what divided them still does; empty where
    nothing is free."""
    batch, channels, space = _divided(free)
    several, few = dict.fromkeys(batch, _ROUND_BATCH), _all_halved(channels, _ROUND_CHANNELS)
    tries = [
        {**several, **others, **_all_halved(space, limit)}
        for limit in (_ROUND.get(len(space), _ROUND[3]) if space else _ROUND[1][:1])
        for others in (few, channels)
    ]
    return _different([_no_larger(sizes, free) for sizes in tries], {}) if free else ()


def cut_together(source: str, free: Sizes) -> tuple[Sizes, ...]:
    """Smaller sizes to try where inputs have one size in two places, a number and the one element of a tuple
    (`batch_size = 32768; input_shape = (32768,)`), which may have to be the same."""
    tree = tree_of(source)
    only, numbers = {name for name, who in _all_readers(source).items() if who == {"get_inputs"}}, _numbers(tree)
    tries: list[Sizes] = []
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=other)], value=ast.Tuple(elts=[one])) if other in only:
                same = [name for name, size in free.items() if size == _number(one, numbers)]
                tries += [{name: n, other: (n,)} for name in same for n in _TOGETHER if n < free[name]]
    return tuple(tries)


def cut_weights(weights: Sizes, free: Sizes, groups: Sizes) -> tuple[Sizes, ...]:
    """Smaller sizes of weights to try where `cut_down(free)` is too much work whatever it is: each halved until it is
    below a limit, groups as many times as what is cut most (512 groups of 8192 channels are 32 of 512, and not of one
    channel each), with all that inputs are cut to; empty where no weight is large."""
    less = [_all_halved(weights, limit) for limit in _ROUND_WEIGHTS]
    less = [{**cut, **_fewer(groups, weights, cut)} for cut in less] + (less if groups else [])
    others = [dict(sizes) for sizes in cut_down({n: value for n, value in free.items() if n not in weights})] or [{}]
    return tuple({**sizes, **cut} for cut in less for sizes in others) if weights else ()


def ragged(free: Sizes, other_than: Sizes) -> tuple[Sizes, ...]:
    """Odd sizes to try in this order; none is larger than the task's own, none the same as `other_than`."""
    batch, channels, space = _divided(free)
    several = dict.fromkeys(batch, _RAGGED_BATCH)
    few = {name: _RAGGED_CHANNELS for name, value in channels.items() if value > _ROUND_CHANNELS}
    tries: list[Sizes] = []
    for targets in _RAGGED.get(len(space), _RAGGED[3]) if space else ((),):
        named = {name: targets[i % len(targets)] for i, name in enumerate(space)}
        tries += [{**several, **few, **named}, {**several, **named}]
    tries += [{**_halves(space), **several}, several]
    return _different([_odd_below(sizes, free) for sizes in tries if sizes], other_than)


def long(free: Sizes) -> tuple[Sizes, ...]:
    """One shape for each size of several in space that is above a block's threads: halved, it stays above them. A
    kernel with a thread for each of its elements is right where it is cut down to a block, and wrong at its own."""
    batch, channels, space = _divided(free)
    beyond = [name for name, value in space.items() if value > _MOST_THREADS] if len(space) > 1 else []
    few = {**dict.fromkeys(batch, 1), **_all_halved(channels, _ROUND_CHANNELS), **_all_halved(space, _BESIDE)}
    return tuple({**few, name: _halved(space[name], 2 * _MOST_THREADS)} for name in beyond)


def not_grown(tries: tuple[Sizes, ...], cut: Sizes) -> tuple[Sizes, ...]:
    """Those tries that grow no size much that somebody has cut down: a batch not at all, others to `_MOST_GROWN`, which
    is several blocks of threads."""
    few = [{n: min(v, cut[n]) if n in cut and is_batch(n) else v for n, v in sizes.items()} for sizes in tries]
    return tuple(s for s in few if all(v <= max(cut[n], _MOST_GROWN) for n, v in s.items() if n in cut))


def is_batch(name: str) -> bool:
    """Whether a size of that name counts items of a batch."""
    return name.lower().startswith(_BATCH) or name == "B"


def batch_first(names: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of free sizes: those of a batch, of channels, of space."""
    return tuple(name for part in _divided(dict(names)) for name in part)


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


def set_in(tree: ast.Module, sizes: Mapping[str, Any]) -> ast.Module:
    """The module with each of these names set anew behind every assignment that binds it, so that what the module
    makes of it (`bias_shape = (features, 1, 1)`) follows."""
    body: list[ast.stmt] = []
    for node in tree.body:
        names = [] if _is_named(node) else sorted(_bound_by(node) & set(sizes))
        body += [node, *tree_of("\n".join(f"{name} = {sizes[name]!r}" for name in names)).body]
    return ast.Module(body, tree.type_ignores)


def _numbers(tree: ast.Module) -> Sizes:
    found: Sizes = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                found.update(_assigned(target, node.value, found))
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            found.update(_assigned(node.target, node.value, found))
    return found


def _lists(tree: ast.Module) -> Sizes:
    """Literal lists of positive integers, `[16384] * 16` among them."""
    numbers = _numbers(tree)
    found: Sizes = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.BinOp(ast.List(elts=elements), ast.Mult(), times)):
                found[name] = [_number(each, numbers) for each in elements] * _number(times, numbers)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.List(elts=elements)):
                found[name] = [_number(each, numbers) for each in elements]
    return {name: sizes for name, sizes in found.items() if sizes and all(each > 0 for each in sizes)}


def _assigned(target: ast.expr, value: ast.expr, known: Sizes) -> Sizes:
    both = (ast.Tuple, ast.List)
    if isinstance(target, both) and isinstance(value, both) and len(target.elts) == len(value.elts):
        pairs = zip(target.elts, value.elts, strict=True)
        return {name: number for t, v in pairs for name, number in _assigned(t, v, known).items()}
    number = _number(value, known)
    return {target.id: number} if isinstance(target, ast.Name) and number > 0 else {}


def _number(value: ast.expr, known: Sizes) -> int:
    """The value of an integer literal, of a name that is known, or of what arithmetic makes of such; 0 for anything
    else."""
    if isinstance(value, ast.Constant):
        return value.value if type(value.value) is int else 0
    if isinstance(value, ast.Name):
        return int(known.get(value.id, 0))
    if not isinstance(value, ast.BinOp):
        return 0
    return _made_of(value.op, _number(value.left, known), _number(value.right, known))


def _made_of(op: ast.operator, left: int, right: int) -> int:
    if not left or not right:
        return 0
    match op:
        case ast.Mult():
            return left * right
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.FloorDiv():
            return left // right
        case ast.LShift() if 0 < right < 64:
            return left << right
        case ast.Pow() if 0 < right < 64 and left < 64:
            return int(left**right)
    return 0


def _is_named(node: ast.stmt) -> TypeGuard[ast.FunctionDef | ast.ClassDef]:
    return isinstance(node, ast.FunctionDef | ast.ClassDef)


def _readers(source: str, tree: ast.Module) -> Iterator[tuple[str, set[str]]]:
    """Who reads which of the module's names: functions and classes by their own name, the module itself by none."""
    for node in tree.body:
        if _is_named(node):
            arguments = node.args.defaults + node.args.kw_defaults if isinstance(node, ast.FunctionDef) else node.bases
            yield "", {name for each in (*arguments, *node.decorator_list) if each for name in _loaded_by(each)}
        else:
            yield "", _loaded_by(node)
    for table in symtable.symtable(source, "reference", "exec").get_children():
        yield table.get_name(), set(_globals_of(table))


def _all_readers(source: str) -> dict[str, set[str]]:
    """Of each name of the module's: who reads it."""
    readers: dict[str, set[str]] = {}
    for owner, names in _readers(source, tree_of(source)):
        for name in names:
            readers.setdefault(name, set()).add(owner)
    return readers


def _globals_of(table: symtable.SymbolTable) -> Iterator[str]:
    """Names of the module that a function or class refers to: its own parameters and variables are none."""
    for symbol in table.get_symbols():
        if symbol.is_global() and symbol.is_referenced():
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _globals_of(inner)


def _loaded_by(node: ast.AST) -> set[str]:
    return {item.id for item in ast.walk(node) if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Load)}


def _bound_by(node: ast.stmt) -> set[str]:
    """What a top-level statement binds."""
    return {item.id for item in ast.walk(node) if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store)}


def _divided(free: Sizes) -> tuple[Sizes, Sizes, Sizes]:
    """Batch, channels and space. Where the batch alone is free, rows are the space."""
    batch = {name: value for name, value in free.items() if is_batch(name)}
    channels = {name: value for name, value in free.items() if "channel" in name.lower() and name not in batch}
    if len(batch) == len(free):
        return {}, {}, free
    return batch, channels, {name: value for name, value in free.items() if name not in batch | channels}


def _halved(value: int, limit: int) -> int:
    while value > limit:
        value //= 2
    return value


def _all_halved(sizes: Sizes, limit: int) -> Sizes:
    halved: Sizes = {}
    for name, value in sizes.items():
        halved[name] = _halved(value, limit) if isinstance(value, int) else [_halved(each, limit) for each in value]
    return halved


def _fewer(groups: Sizes, weights: Sizes, cut: Sizes) -> Sizes:
    """Groups divided as the size is that is divided most."""
    times = max((size // cut[name] for name, size in weights.items() if isinstance(size, int)), default=1)
    return {name: size // times for name, size in groups.items() if size % times == 0 and size > times}


def _largest(size: int | list[int]) -> int:
    return size if isinstance(size, int) else max(size)


def _halves(space: Sizes) -> Sizes:
    """The larger half of each size, what a reference takes that wants even sizes."""
    return {name: max(2, _halved(value, 64) // 4 * 3) for name, value in space.items()}


def _no_larger(sizes: Sizes, than: Sizes) -> Sizes:
    return {name: min(value, than[name]) for name, value in sizes.items()}


def _odd_below(sizes: Sizes, own: Sizes) -> Sizes:
    """No size above the task's own; where a target is, the largest odd number below that."""
    return {name: value if value < own[name] else max(1, (own[name] - 2) | 1) for name, value in sizes.items()}


def _different(tries: list[Sizes], other_than: Sizes) -> tuple[Sizes, ...]:
    seen: list[Sizes] = []
    for sizes in tries:
        if sizes not in seen and sizes != {name: other_than.get(name) for name in sizes}:
            seen.append(sizes)
    return tuple(seen)
