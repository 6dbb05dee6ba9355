"""Copies of modules whose functions see the copy.

For `copy.deepcopy` a function is like a number. Where a module keeps one (`m = self.mlp; self.f = lambda x: m.out(x)`,
KernelBench level 3 task 44), its copy computes with the weights of the first.
"""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Iterator
from typing import Any, TypeVar

from torch import nn

Module = TypeVar("Module", bound=nn.Module)
_CONTAINERS = (dict, list, tuple, set, frozenset)


def duplicate(module: Module, memo: dict[int, Any] | None = None) -> Module:
    """A deep copy, in which functions that the module keeps have the copies of what they have of it: by name, by
    default, or in lists of these. `memo` is `copy.deepcopy`'s. Raises what that raises."""
    memo = {} if memo is None else memo
    functions = {id(each): each for part in module.modules() for each in _functions(vars(part), set())}
    memo.update({key: _anew(each) for key, each in functions.items()})
    copied = copy.deepcopy(module, memo)
    for key, each in functions.items():
        _fill(each, memo[key], memo)
    return copied


def _functions(held: object, seen: set[int]) -> Iterator[types.FunctionType]:
    """Those that have something of their own, as deep as containers and other functions go."""
    if id(held) in seen:
        return
    seen.add(id(held))
    if isinstance(held, types.FunctionType):
        inner = _own(held)
        if inner:
            yield held
    elif isinstance(held, functools.partial):
        inner = [held.func, held.args, held.keywords]
    elif isinstance(held, _CONTAINERS):
        inner = list(held.values() if isinstance(held, dict) else held)
    else:
        return
    for each in inner:
        yield from _functions(each, seen)


def _own(function: types.FunctionType) -> list[object]:
    """What it has of the place where it was made, and by default."""
    return [*_cells(function).values(), *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]


def _cells(function: types.FunctionType) -> dict[int, object]:
    """The contents of its cells, by their numbers; of a name without a value there is none."""
    found = {}
    for number, cell in enumerate(function.__closure__ or ()):
        try:
            found[number] = cell.cell_contents
        except ValueError:
            continue
    return found


def _anew(function: types.FunctionType) -> types.FunctionType:
    cells = tuple(types.CellType() for _ in function.__closure__ or ())
    made = types.FunctionType(function.__code__, function.__globals__, function.__name__, None, cells)
    made.__qualname__, made.__dict__ = function.__qualname__, dict(function.__dict__)
    return made


def _fill(function: types.FunctionType, made: types.FunctionType, memo: dict[int, Any]) -> None:
    closure = made.__closure__ or ()
    for number, held in _cells(function).items():
        closure[number].cell_contents = _copied(held, memo)
    made.__defaults__ = function.__defaults__ and tuple(_copied(each, memo) for each in function.__defaults__)
    named = function.__kwdefaults__
    made.__kwdefaults__ = named and {name: _copied(each, memo) for name, each in named.items()}


def _copied(held: Any, memo: dict[int, Any]) -> Any:
    """The copy of what was copied with the module, and a container anew that has some of it; all else is the same for
    both."""
    if id(held) in memo:
        return memo[id(held)]
    if type(held) not in (dict, list, tuple, set, frozenset):
        return held
    items = list(held.values() if isinstance(held, dict) else held)
    copied = [_copied(each, memo) for each in items]
    if all(one is other for one, other in zip(items, copied, strict=True)):
        return held
    memo[id(held)] = type(held)(zip(held, copied, strict=True) if isinstance(held, dict) else copied)
    return memo[id(held)]
