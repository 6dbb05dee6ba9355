"""What `torch.autocast` casts, found as PyTorch does it: an operation is run over fake tensors with autocast on, and
the casts that it makes of its operands are seen. No list of PyTorch's policies is kept here."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from crucible.capture.schema import split
from crucible.capture.values import leaves, mapped, storage, tensor_type
from crucible.graph import TensorType
from crucible.products import tensors_in

KINDS = ("cpu", "cuda")
"""Of devices; autocast is on or off for each."""
_NARROW = (torch.float16, torch.bfloat16)
RECURRENT = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu"})
"""Layers that a library may compute whole."""
_COPIES = frozenset({"aten::clone", "aten::_unsafe_view"})
_CAST = torch.ops.aten._to_copy.default


@dataclass(frozen=True)
class Casts:
    """What an operation's arguments become before it computes."""

    of: Mapping[int, torch.dtype]
    """By the place of an operand among all that its arguments hold."""
    result: torch.dtype | None = None
    """Its argument `dtype`, where that is what autocast gives."""

    def applied(self, given: Mapping[str, Any], cast: Callable[[Any, torch.dtype], Any]) -> dict[str, Any]:
        """Arguments by name, of which those that are to be are put through `cast`."""
        places = itertools.count()

        def changed(item: Any) -> Any:
            dtype = self.of.get(next(places))
            return item if dtype is None else cast(item, dtype)

        found = {name: mapped(value, changed) for name, value in given.items()}
        return found if self.result is None else {**found, "dtype": self.result}


def around() -> dict[str, torch.dtype]:
    """The dtype for each kind of device for which autocast is on now."""
    return {kind: torch.get_autocast_dtype(kind) for kind in KINDS if torch.is_autocast_enabled(kind)}


@contextlib.contextmanager
def autocast(on: Mapping[str, torch.dtype]) -> Iterator[None]:
    """On for these kinds of devices and off for others, whether this machine has them or not. Casts are not kept from
    one operation to the next."""
    before, cached = around(), torch.is_autocast_cache_enabled()
    _switch(on)
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        _switch(before)
        torch.set_autocast_cache_enabled(cached)


def _switch(on: Mapping[str, torch.dtype]) -> None:
    for kind in KINDS:
        torch.set_autocast_enabled(kind, kind in on)
        if kind in on:
            torch.set_autocast_dtype(kind, on[kind])


def casts(func: OpOverload, fakes: Mapping[str, Any], on: Mapping[str, torch.dtype]) -> Casts | None:
    """What makes an operation without autocast the same as with it; None where casts of its operands do not. Where
    autocast computes a part of it in float32 (cross entropy's exponentials), all of it may be. Its arguments are fake
    tensors by name, whose mode is on."""
    wanted = _seen(func, fakes, on)
    if wanted is None:
        return _by_cudnn(func, fakes)
    if _seen(func, fakes, {}) == wanted:
        return Casts({})
    operands = _operands(fakes)
    cast = {n: wanted.casts[storage(each)] for n, each in operands.items() if storage(each) in wanted.casts}
    tries = [Casts(cast)]
    dtypes = {kind.dtype for kind in wanted.results}
    if "dtype" in fakes and fakes["dtype"] is None and len(dtypes) == 1:
        named = getattr(torch, *dtypes)
        tries += [Casts({}, named), Casts(cast, named)]
    for each in tries:
        if _seen(func, each.applied(fakes, torch.Tensor.to), {}) == wanted:
            return each
    widened = Casts({n: torch.float32 for n, each in operands.items() if each.dtype in _NARROW})
    run = _seen(func, widened.applied(fakes, torch.Tensor.to), {})
    if run is not None and run.names == wanted.names and run.results == wanted.results:
        return widened
    if _is_recurrent(func) and len(dtypes) == 1:  # a library's, another for each dtype
        return Casts({n: getattr(torch, *dtypes) for n in operands})
    return None


def _operands(fakes: Mapping[str, Any]) -> dict[int, torch.Tensor]:
    """Tensors, by their places among all that the arguments hold."""
    return {n: each for n, each in enumerate(leaves(tuple(fakes.values()))) if isinstance(each, torch.Tensor)}


def _is_recurrent(func: OpOverload) -> bool:
    return func._schema.name.partition("::")[2] in RECURRENT


def _by_cudnn(func: OpOverload, fakes: Mapping[str, Any]) -> Casts | None:
    """Of a recurrent layer that cuDNN computes, whatever autocast's dtype is: PyTorch copies weights to float16 there,
    into one buffer whose address fake tensors do not have (`AutocastRNN.cpp`)."""
    operands = {n: each for n, each in _operands(fakes).items() if each.is_floating_point()}
    if torch.float64 in {each.dtype for each in operands.values()}:
        return None  # which autocast leaves as it is: PyTorch refused the call for something else
    if not _is_recurrent(func) or any(each.device.type != "cuda" for each in operands.values()):
        return None
    return Casts(dict.fromkeys(operands, torch.float16))


@dataclass
class _Run:
    """What PyTorch computes for a call: operations but casts with the dtypes of their tensors, the results' facts, and
    what of which memory was cast."""

    operations: list[tuple[str, ...]] = field(default_factory=list)
    results: list[TensorType] = field(default_factory=list)
    casts: dict[int, torch.dtype] = field(default_factory=dict, compare=False)

    @property
    def names(self) -> list[str]:
        """Of the operations."""
        return [name for name, *_ in self.operations]


class _Watch(TorchDispatchMode):
    """Notes what is computed."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.run = _Run()
        self._copied: dict[int, int] = {}
        """The memory of what was copied, by the copy's."""
        self._alive: list[Any] = []
        """So that no other tensor gets its memory."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        result = func(*args, **named)
        self._alive.append(result)
        if func is _CAST and "dtype" in named:
            self.run.casts.setdefault(self._source(args[0]), named["dtype"])
        elif func._schema.name in _COPIES:
            self._copied[storage(result)] = self._source(args[0])
        elif not _only_asks(func):
            given = tensors_in([*args, *named.values()])
            self.run.operations.append((func._schema.name, *(str(each.dtype) for each in given)))
        return result

    def _source(self, tensor: torch.Tensor) -> int:
        return self._copied.get(storage(tensor), storage(tensor))

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or PyTorch wraps the above, and the first call imports its compiler with sympy: 1.3 s


def _only_asks(func: OpOverload) -> bool:
    """Whether it computes nothing: a view, which is the same before a cast or behind it, or a tensor's device."""
    aliases = [result.alias_info for result in func._schema.returns]
    return func.namespace == "prim" or any(each is not None and not each.is_write for each in aliases)


def _seen(func: OpOverload, fakes: Mapping[str, Any], on: Mapping[str, torch.dtype]) -> _Run | None:
    """None where PyTorch refuses the call."""
    positional, by_name = split(func, dict(fakes))
    logged = logging.root.manager.disable
    logging.disable(logging.ERROR)  # at length, what is refused
    try:
        with torch.enable_grad(), autocast(on), _Watch() as watch:
            results = tensors_in(func(*positional, **by_name))
            run: _Run = watch.run
            run.results += map(tensor_type, results)
    except (RuntimeError, TypeError):
        return None
    finally:
        logging.disable(logged)
    return run
