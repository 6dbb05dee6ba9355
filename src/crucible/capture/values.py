"""Which value each node of torch.export stands for, and which values share memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import fx

from crucible.capture.names import Names
from crucible.graph import TensorType, Value

Role: TypeAlias = Literal["input", "parameter", "buffer", "attribute", "constant", "intermediate"]


@dataclass(frozen=True)
class Number:
    """A tensor of no dims that forward wrote down (`torch.tensor(2.0)`): a number wherever it may be one."""

    value: bool | int | float
    tensor: torch.Tensor
    fake: torch.Tensor


def tensor_type(tensor: torch.Tensor) -> TensorType:
    """Its facts; all sizes must be known."""
    return TensorType(tuple(tensor.shape), tuple(tensor.stride()), str(tensor.dtype).removeprefix("torch."))


class Environment:
    """Values by name and by node."""

    def __init__(self) -> None:
        self.fakes: dict[str, torch.Tensor] = {}
        self.roles: dict[str, Role] = {}
        self._names = Names()
        self._bound: dict[fx.Node, Any] = {}
        self._newest: dict[str, str] = {}
        """After a write in place: the value that stands where another stood."""

    def add(self, wanted: str, fake: torch.Tensor, role: Role) -> Value:
        """A new value under the name wanted or one like it."""
        name = self._names.give(wanted)
        self.fakes[name], self.roles[name] = fake, role
        return Value(name, tensor_type(fake))

    def bind(self, node: fx.Node, meaning: Any) -> None:
        """What the node stands for: a name, a Number, None, or a tuple of these."""
        self._bound[node] = meaning

    def of(self, node: fx.Node) -> Any:
        """What the node stands for now."""
        return self._current(self._bound[node])

    def replace(self, old: str, new: str) -> None:
        """From now on, whoever means `old` means `new`."""
        self._newest[old] = new

    def sharing(self, name: str) -> list[str]:
        """The other values that lie in the same memory."""
        memory = storage(self.fakes[name])
        return [other for other, fake in self.fakes.items() if other != name and storage(fake) == memory]

    def same(self, fake: torch.Tensor, names: Iterable[str]) -> str | None:
        """That of the values which has the same elements in the same places."""
        place = _place(fake)
        return next((name for name in names if _place(self.fakes[name]) == place), None)

    def nodes_of(self, name: str) -> list[fx.Node]:
        """The nodes that mean this value, or a tuple with it."""
        return [node for node in self._bound if name in leaves(self.of(node))]

    def _current(self, bound: Any) -> Any:
        if isinstance(bound, tuple):
            return tuple(self._current(item) for item in bound)
        while isinstance(bound, str) and bound in self._newest:
            bound = self._newest[bound]
        return bound


def leaves(nested: Any) -> Iterator[Any]:
    """What is in nested tuples and lists."""
    if isinstance(nested, tuple | list):
        for item in nested:
            yield from leaves(item)
    else:
        yield nested


def mapped(nested: Any, change: Callable[[Any], Any]) -> Any:
    """The same nesting with each item changed."""
    if isinstance(nested, tuple | list):
        return type(nested)(mapped(item, change) for item in nested)
    return change(nested)


def _place(tensor: torch.Tensor) -> tuple[int, int, TensorType]:
    return storage(tensor), int(tensor.storage_offset()), tensor_type(tensor)


def storage(tensor: torch.Tensor) -> int:
    """Which memory it lies in."""
    return int(tensor.untyped_storage()._cdata)
