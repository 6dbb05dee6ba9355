"""Recipes: what `get_inputs` does, as operations of PyTorch, so that inputs under any seed can be drawn without it.

Gigabytes are drawn where they are needed in a millisecond; to hand them from process to process takes a second.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from crucible.judge.boundary.bundles import HandedFile

_OF_TORCH = {torch.layout: "layout", torch.memory_format: "memory_format", torch.dtype: "dtype"}


class NoRecipe(Exception):
    """Something else than PyTorch's own operations has a part in it."""


@dataclass(frozen=True)
class Recipe:
    """Operations in their order, and which of their results are wanted."""

    steps: list[Any]
    """Of each: operator, overload, arguments, named arguments, numbers of its results."""
    wanted: list[int]

    def drawn(self, seed: int, device: torch.device) -> list[torch.Tensor]:
        """The inputs under a seed; the process's own generators are left as they were."""
        made: dict[int, torch.Tensor] = {}
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), torch.no_grad():
            torch.manual_seed(seed)
            for operator, overload, arguments, named, results in self.steps:
                function = getattr(getattr(torch.ops.aten, operator), overload)
                found = function(*_read(arguments, made, device), **_read(named, made, device))
                found = found if isinstance(found, tuple | list) else [found]
                made.update(zip(results, found, strict=True))
        return [made[number] for number in self.wanted]

    def write(self, path: Path) -> None:
        path.write_text(json.dumps([self.steps, self.wanted]))


def read_recipe(path: Path | HandedFile) -> Recipe:
    with path.open("rb") as file:
        return Recipe(*json.loads(file.read()))


def recorded(draw: Callable[[], list[torch.Tensor]]) -> Recipe:
    """What `draw()` does. Raises NoRecipe where a tensor comes from elsewhere, whatever else `draw` raises."""
    with _Recorder() as recorder, torch.no_grad():
        wanted = [recorder.number(tensor) for tensor in draw()]
    return Recipe(recorder.steps, wanted)


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Any] = []
        self._made: list[torch.Tensor] = []
        """Kept, so that no two have one identity."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # as in noise.RoundedOperands

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace != "aten":
            raise NoRecipe(f"{func} is none of PyTorch's own")
        written = self._written(list(args)), self._written(dict(kwargs))
        out = func(*args, **kwargs)
        found = out if isinstance(out, tuple | list) else [out]
        if not all(isinstance(one, torch.Tensor) for one in found):
            raise NoRecipe(f"{func} gives a number")
        results = [self._numbered(one) for one in found]
        self.steps.append([func.overloadpacket.__name__, func._overloadname, *written, results])
        return out

    def number(self, tensor: torch.Tensor) -> int:
        """Which result it is."""
        for number, made in enumerate(self._made):
            if made is tensor:
                return number
        raise NoRecipe("a tensor was made by something else than PyTorch's operations")

    def _numbered(self, tensor: torch.Tensor) -> int:
        try:
            return self.number(tensor)  # an operation in place gives its own argument
        except NoRecipe:
            self._made.append(tensor)
            return len(self._made) - 1

    def _written(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return {"result": self.number(value)}
        if isinstance(value, torch.device):
            return {"device": 0}
        if type(value) in _OF_TORCH:
            return {_OF_TORCH[type(value)]: str(value)[6:]}
        if isinstance(value, dict):
            return {"named": [[name, self._written(one)] for name, one in value.items()]}
        if isinstance(value, tuple | list):
            return [self._written(one) for one in value]
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise NoRecipe(f"an argument is a {type(value).__name__}")


def _read(value: Any, made: dict[int, torch.Tensor], device: torch.device) -> Any:
    if isinstance(value, list):
        return [_read(one, made, device) for one in value]
    if not isinstance(value, dict):
        return value
    ((kind, body),) = value.items()
    if kind == "named":
        return {name: _read(one, made, device) for name, one in body}
    if kind == "result":
        return made[body]
    return device if kind == "device" else getattr(torch, body)
