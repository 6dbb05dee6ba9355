"""check: whether a record that came from a file is what its class says, all the way down."""

from __future__ import annotations

import collections.abc
import dataclasses
import math
import types
import typing
from typing import Any


def check(record: Any) -> None:
    """Raises TypeError that names the first field, of a dataclass or of one in it, that is not of its type."""
    for name, hint in _hints(type(record)).items():
        value = getattr(record, name)
        if not _is(value, hint):
            raise TypeError(f"{type(record).__name__}.{name} is {str(value)[:80]!r}")


_KNOWN: dict[type, dict[str, Any]] = {}


def _hints(kind: type) -> dict[str, Any]:
    if kind not in _KNOWN:
        hints = typing.get_type_hints(kind)
        _KNOWN[kind] = {field.name: hints[field.name] for field in dataclasses.fields(kind)}
    return _KNOWN[kind]


def _is(value: Any, hint: Any) -> bool:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin in (types.UnionType, typing.Union):
        return any(_is(value, one) for one in inner)
    if origin is tuple:
        return isinstance(value, tuple) and _are(value, inner)
    if origin in (dict, collections.abc.Mapping):
        return isinstance(value, collections.abc.Mapping) and all(
            _is(key, inner[0]) and _is(item, inner[1]) for key, item in value.items()
        )
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(float(value))
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63
    if not isinstance(value, hint):
        return False
    if dataclasses.is_dataclass(value):
        check(value)
    return True


def _are(values: tuple[Any, ...], inner: tuple[Any, ...]) -> bool:
    if len(inner) == 2 and inner[1] is Ellipsis:
        return all(_is(value, inner[0]) for value in values)
    return len(values) == len(inner) and all(map(_is, values, inner))
