"""What an operation's schema says of its arguments, and its twin that writes to none."""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload

from crucible.graph import DROPOUTS

_OFF = {"train": False, "training": False, "p": 0.0, "dropout_p": 0.0, "dropout": 0.0}
"""Arguments with which an operation that may draw random numbers draws none."""
_PASSING = {"batch_norm": "training", "instance_norm": "use_input_stats"}
"""Operations that change running statistics while this argument is true, which their schemas do not say."""


def named(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by name, in the schema's order, defaults filled in."""
    result = {}
    for place, argument in enumerate(func._schema.arguments):
        given = args[place] if place < len(args) else argument.default_value
        result[argument.name] = kwargs.get(argument.name, given)
    return result


def split(func: OpOverload, given: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The call that `named` came from: positional arguments, and those that are by keyword only."""
    arguments = func._schema.arguments
    positional = [given[argument.name] for argument in arguments if not argument.kwarg_only]
    return positional, {argument.name: given[argument.name] for argument in arguments if argument.kwarg_only}


def written(func: OpOverload) -> list[str]:
    """Arguments that the operation writes to."""
    arguments = func._schema.arguments
    return [argument.name for argument in arguments if argument.alias_info and argument.alias_info.is_write]


def functional(func: OpOverload) -> OpOverload | None:
    """The overload that returns what this one writes to its first argument; None where there is none."""
    namespace, name = func._schema.name.split("::")
    packet = getattr(getattr(torch.ops, namespace), name.removesuffix("_"), None)
    first = func._schema.arguments[0].name
    if packet is None or not name.endswith("_") or written(func) != [first]:
        return None
    overloads = (getattr(packet, overload) for overload in packet.overloads())
    form = _types if name.removesuffix("_") in DROPOUTS else _form  # those call their input by another name
    return next((other for other in overloads if form(other) == form(func) and not written(other)), None)


def is_random(func: OpOverload, given: dict[str, Any]) -> bool:
    """Whether it draws random numbers with these arguments."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return False
    return not any(name in given and given[name] == value for name, value in _OFF.items())


def passing(kind: str, given: dict[str, Any]) -> tuple[str, ...]:
    """Arguments that it changes in passing: running statistics."""
    if not given.get(_PASSING.get(kind, "")):
        return ()
    return tuple(name for name in ("running_mean", "running_var") if given[name] is not None)


def output_names(func: OpOverload, count: int, name: str) -> list[str]:
    """What to call the results: by the schema where it names them, else numbered."""
    if count == 1:
        return [name]
    stated = [result.name for result in func._schema.returns]
    if len(stated) == count and all(stated):
        return [f"{name}_{word}" for word in stated]
    return [f"{name}_{place}" for place in range(count)]


def _types(func: OpOverload) -> list[str]:
    return [str(argument.type) for argument in func._schema.arguments]


def _form(func: OpOverload) -> list[tuple[str, str]]:
    return [(argument.name, str(argument.type)) for argument in func._schema.arguments]
