"""What PyTorch's operators read, write and multiply beside a candidate's own kernels, for a model of their time."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from crucible.products import matrix_flops, tensors_in
from crucible.tracing import heard

_FREE = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted", "detach", "lift")
MOST = 64
"""Operators by name that are told."""


class Operators(TorchDispatchMode):
    """Counts operators that touch memory: each operand is read once, each result written once."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, list[int]] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # as in noise.RoundedOperands

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = heard(func, args, kwargs)
        name = func.overloadpacket.__name__
        given, made = list(tensors_in([args, kwargs])), list(tensors_in(out))
        if name not in _FREE and not _is_view(func, given, made):
            flops = matrix_flops(func, name, _named(func, args, kwargs), out)
            self._add(name, sum(_bytes(t) for t in given) + sum(_bytes(t) for t in made), flops)
        return out

    def uses(self) -> list[tuple[str, int, int, int]]:
        """Name, count, bytes and operations of products, of each."""
        return [(name, *counts) for name, counts in list(self._seen.items())[:MOST]]  # type: ignore[misc]

    def _add(self, name: str, moved: int, flops: int) -> None:
        counts = self._seen.setdefault(name, [0, 0, 0])
        for i, more in enumerate((1, moved, flops)):
            counts[i] += more


def _bytes(tensor: torch.Tensor) -> int:
    """Of its elements; an expanded tensor takes no more than its storage."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())


def _is_view(func: Any, given: list[torch.Tensor], made: list[torch.Tensor]) -> bool:
    if func._schema.is_mutable or not made:
        return False
    storages = {tensor.untyped_storage().data_ptr() for tensor in given}
    return all(tensor.untyped_storage().data_ptr() in storages for tensor in made)


def _named(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """Arguments by their names in the schema, defaults included."""
    schema = func._schema.arguments
    placed = {argument.name: value for argument, value in zip(schema, args, strict=False)}
    return {a.name: placed.get(a.name, kwargs.get(a.name, a.default_value)) for a in schema}
