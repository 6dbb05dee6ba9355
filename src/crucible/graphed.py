"""A function over a module whose kernels are one CUDA graph: a call copies its inputs and starts that.

Small kernels take less time than it takes to launch them one by one. What is recorded works at fixed places in memory:
inputs are copied into those of the first call, results are overwritten by the next call, and parameters and buffers
are looked at before each: where one of them lies elsewhere, a graph is recorded anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

Forward = Callable[..., Any]
_WARM_CALLS = 3
"""Before a graph is recorded: what libraries do at their first calls is not to be in it."""

_MOST_RECORDED = 8
"""Graphs that are kept: a module, and copies of it, with and without gradients."""


class Graphed:
    """`forward(module, *inputs)`, recorded at the first call of each kind: with or without gradients, and of what."""

    def __init__(self, forward: Forward) -> None:
        self._forward = forward
        self._recorded: dict[tuple[Any, ...], Forward] = {}

    def __call__(self, module: nn.Module, *inputs: Any) -> Any:
        places = tuple(each.data_ptr() for each in (*module.parameters(), *module.buffers()))
        tensors = [each for each in inputs if isinstance(each, torch.Tensor)]
        trains = torch.is_grad_enabled() and any(each.requires_grad for each in (*tensors, *module.parameters()))
        key = (places, trains, *(trains and each.requires_grad for each in tensors))
        if key not in self._recorded:
            while len(self._recorded) >= _MOST_RECORDED:
                del self._recorded[next(iter(self._recorded))]
            record = _with_gradients if trains else _without_gradients
            with _unchanged(module):
                self._recorded[key] = record(_Alone(module, self._forward, inputs), tensors)
        return self._recorded[key](*tensors)

    def __deepcopy__(self, memo: dict[int, Any]) -> Graphed:
        """A copy of who holds it records its own: graphs cannot be copied."""
        return Graphed(self._forward)


class _Alone(nn.Module):
    """A module, called with the tensors among its inputs alone, of which only tensors are returned: None and numbers
    are what they were when it was recorded."""

    def __init__(self, module: nn.Module, forward: Forward, inputs: Sequence[Any]) -> None:
        super().__init__()
        self.module = module
        self._call, self._inputs = forward, [None if isinstance(each, torch.Tensor) else each for each in inputs]
        self._are_tensors = [isinstance(each, torch.Tensor) for each in inputs]

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rest = iter(tensors)
        given = (
            next(rest) if is_tensor else each for each, is_tensor in zip(self._inputs, self._are_tensors, strict=True)
        )
        leaves, self._form = pytree.tree_flatten(self._call(self.module, *given))
        self._rest = [None if isinstance(each, torch.Tensor) else each for each in leaves]
        self._are_made = [isinstance(each, torch.Tensor) for each in leaves]
        return tuple(each for each in leaves if isinstance(each, torch.Tensor))

    def whole(self, made: Iterable[torch.Tensor]) -> Any:
        """What the module returns, of what a call returned."""
        tensors = iter(made)
        leaves = (next(tensors) if is_made else each for each, is_made in zip(self._rest, self._are_made, strict=True))
        return pytree.tree_unflatten(list(leaves), self._form)


def _with_gradients(alone: _Alone, tensors: Sequence[torch.Tensor]) -> Forward:
    """Forward and backward, a graph each."""
    alone.train(alone.module.training)
    given = tuple(each.detach().clone().requires_grad_(each.requires_grad) for each in tensors)
    made: Forward = torch.cuda.make_graphed_callables(alone, given, allow_unused_input=True)
    return lambda *now: alone.whole(made(*now))


def _without_gradients(alone: _Alone, tensors: Sequence[torch.Tensor]) -> Forward:
    given = [each.detach().clone() for each in tensors]
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.no_grad():
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_CALLS):
                alone(*given)
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(graph):
            made = alone(*given)

    def replay(*now: torch.Tensor) -> Any:
        for own, each in zip(given, now, strict=True):
            own.copy_(each)
        graph.replay()
        return alone.whole(each.detach() for each in made)

    return replay


@contextmanager
def _unchanged(module: nn.Module) -> Iterator[None]:
    """Buffers are afterwards as before: recording calls the module several times."""
    before = [each.clone() for each in module.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for own, each in zip(module.buffers(), before, strict=True):
                own.copy_(each)
