"""The reference as the operations that it ran: written down once, then run again with some of them changed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from types import FrameType
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

Call = dict[str, Any]
"""An operation's arguments by the names of its schema, those left out with their defaults."""
Run = Callable[[Call], Any]
Values = list[Any]
"""The tensor in each slot; None where an operation gave none."""
_PREFIXES = ("native_", "cudnn_", "miopen_")
_SUFFIXES = ("_with_indices", "_legit")


@dataclass(frozen=True)
class Slot:
    """Where a tensor stands: a source's, a constant's or a result's."""

    index: int


@dataclass(frozen=True)
class Step:
    """One operation of the reference."""

    op: OpOverload
    args: Call
    """With slots in place of tensors."""
    results: tuple[int, ...]
    """The slots of what it gives."""
    line: int
    """Of the reference's file; 0 where none of its lines is behind it."""
    run: Run = field(repr=False)
    """What it does with its arguments."""

    @property
    def name(self) -> str:
        """As PyTorch's users know it: `gelu`, `softmax`, `conv_transpose`, `batch_norm`."""
        name = self.op._schema.name.split("::")[1].strip("_")
        for prefix in _PREFIXES:
            name = name.removeprefix(prefix)
        for suffix in _SUFFIXES:
            name = name.removesuffix(suffix)
        if name == "convolution":
            return "conv_transpose" if self.args["transposed"] else "conv"
        return {"t": "transpose", "mm": "matmul", "bmm": "matmul", "addmm": "linear"}.get(name, name.strip("_"))

    @property
    def reads(self) -> frozenset[int]:
        return frozenset(slot.index for slot in slots_in(self.args.values()))

    @property
    def moves_only(self) -> bool:
        """Whether it gives a view of what it is given."""
        return any(result.alias_info is not None for result in self.op._schema.returns)


Change = Callable[[Step], Step]


class Unfit(Exception):
    """A change that the rest of the reference cannot take."""


@dataclass(frozen=True)
class Recording:
    """A run of the reference that can be repeated."""

    steps: list[Step]
    """In order; only those on which an output depends."""
    names: dict[int, str]
    """Of the slots that hold inputs, parameters and buffers."""
    outputs: tuple[int, ...]
    values: Values
    """What each slot holds in the reference itself."""

    def replay(self, changes: Mapping[int, Sequence[Change]], known: Values, anew: frozenset[int]) -> Values:
        """The slots' values with changes to the steps of these numbers. `known` are the values without the changes to
        the steps `anew`: only these and what depends on them is computed.

        Each result must have the form of the reference's and no changed integers may be read, since PyTorch's inner
        operations check little of what they are given: an index out of range would cost a GPU's context. Raises
        Unfit, and what PyTorch raises.
        """
        values = list(known)
        fresh: set[int] = set()
        for index, step in enumerate(self.steps):
            if index not in anew and fresh.isdisjoint(step.reads):
                continue
            for change in changes.get(index, ()):
                step = change(step)
            for slot in fresh & step.reads:
                if not (values[slot].is_floating_point() or values[slot].dtype == torch.bool):
                    raise Unfit(f"changed integers into {step.name}")
            given = tensors_in(step.run(resolved(step.args, values)))
            for slot, value in zip_longest(step.results, given[: len(step.results)]):
                if value is not None and not _alike(value, self.values[slot]):
                    raise Unfit(f"another form of result of {step.name}")
                values[slot] = value
            fresh.update(step.results)
        return values

    def source_of(self, slot: Slot) -> str:
        """The name of the input or parameter that a tensor is, or is a view of; "" where it was computed."""
        at: int | None = slot.index
        makers = {result: step for step in self.steps for result in step.results}
        while at is not None and at not in self.names:
            step = makers.get(at)
            viewed = list(slots_in(step.args.values())) if step is not None and step.moves_only else []
            at = viewed[0].index if viewed else None
        return "" if at is None else self.names[at]


def record(forward: Callable[[], list[torch.Tensor]], sources: Mapping[str, torch.Tensor], path: str) -> Recording:
    """Runs `forward()`, which gives the outputs, and writes its operations down. `sources` are its inputs, parameters
    and buffers by name, `path` the file whose lines are meant."""
    recorder = _Recorder(path)
    names = {recorder.slot_of(tensor).index: name for name, tensor in sources.items()}
    with torch.no_grad(), recorder:
        outputs = tuple(recorder.slot_of(tensor).index for tensor in forward())
    steps = _needed(recorder.steps, outputs)
    values: Values = [recorder.given.get(slot) for slot in range(recorder.slots)]
    # Run once more, since operations in place have changed what they read by now.
    return Recording(steps, names, outputs, _run(steps, values))


def _run(steps: list[Step], values: Values) -> Values:
    for step in steps:
        for slot, value in zip(step.results, tensors_in(step.run(resolved(step.args, values))), strict=True):
            values[slot] = value
    return values


def run_op(op: OpOverload, call: Call) -> Any:
    """Calls an operation by the names of its arguments; what it would write to is copied before."""
    arguments = op._schema.arguments
    call = {a.name: _copied(call[a.name]) if _is_written(a) else call[a.name] for a in arguments}
    return op(
        *[call[a.name] for a in arguments if not a.kwarg_only],
        **{a.name: call[a.name] for a in arguments if a.kwarg_only},
    )


def resolved(value: Any, values: Values) -> Any:
    """Arguments with tensors in place of slots."""
    if isinstance(value, Slot):
        return values[value.index]
    if isinstance(value, dict):
        return {name: resolved(item, values) for name, item in value.items()}
    return [resolved(item, values) for item in value] if isinstance(value, list) else value


def slots_in(values: Any) -> Iterator[Slot]:
    for value in values:
        if isinstance(value, Slot):
            yield value
        elif isinstance(value, list):
            yield from slots_in(value)


def tensors_in(result: Any) -> list[Any]:
    """What an operation gives, in order."""
    if isinstance(result, tuple | list):
        return [tensor for item in result for tensor in tensors_in(item)]
    return [result]


class _Recorder(TorchDispatchMode):
    """Sees each operation with its arguments. Tensors are told apart by identity, so all are kept meanwhile."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path
        self.steps: list[Step] = []
        self.given: dict[int, torch.Tensor] = {}
        """What stood in a slot before any operation: sources and constants."""
        self.slots = 0
        self._slot: dict[int, int] = {}
        self._alive: list[Any] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # as in noise.RoundedOperands

    def slot_of(self, tensor: torch.Tensor) -> Slot:
        """Its slot; a tensor that no operation gave is from outside and gets one."""
        if id(tensor) not in self._slot:
            self.given[self._next(tensor)] = tensor.detach()
        return Slot(self._slot[id(tensor)])

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        call = _by_name(func, args, kwargs or {})
        taken = self._taken(call)
        for argument in func._schema.arguments:
            if _is_written(argument):
                self._keep(taken[argument.name])
        result = func(*args, **(kwargs or {}))
        results = tuple(self._next(tensor) for tensor in tensors_in(result))
        op = _out_of_place(func)
        self.steps.append(Step(op, taken, results, self._line(), lambda call: run_op(op, call)))
        return result

    def _next(self, tensor: Any) -> int:
        self._alive.append(tensor)
        self._slot[id(tensor)] = self.slots
        self.slots += 1
        return self.slots - 1

    def _keep(self, written: Any) -> None:
        """Saves what is about to be written to, if it came from outside."""
        for slot in slots_in([written]):
            if slot.index in self.given:
                self.given[slot.index] = self.given[slot.index].clone()

    def _taken(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.slot_of(value)
        if isinstance(value, dict):
            return {name: self._taken(item) for name, item in value.items()}
        return [self._taken(item) for item in value] if isinstance(value, tuple | list) else value

    def _line(self) -> int:
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename != self.path:
            frame = frame.f_back
        return 0 if frame is None else frame.f_lineno


def _needed(steps: list[Step], outputs: tuple[int, ...]) -> list[Step]:
    wanted = set(outputs)
    kept = []
    for step in reversed(steps):
        if not wanted.isdisjoint(step.results):
            wanted |= step.reads
            kept.append(step)
    return kept[::-1]


def _by_name(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
    call = {}
    for i, argument in enumerate(op._schema.arguments):
        default = argument.default_value if argument.has_default_value() else None
        call[argument.name] = args[i] if i < len(args) else kwargs.get(argument.name, default)
    return call


def _out_of_place(op: OpOverload) -> OpOverload:
    """The operation that gives what this one writes, where PyTorch has it under the usual name."""
    name = op._schema.name.split("::")[1]
    packet = getattr(torch.ops.aten, name.removesuffix("_"), None)
    if not op._schema.is_mutable or not name.endswith("_") or packet is None:
        return op
    other = getattr(packet, op._overloadname, None)
    if not isinstance(other, OpOverload):
        return op
    same = [a.name for a in other._schema.arguments] == [a.name for a in op._schema.arguments]
    return other if same else op


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _alike(made: Any, value: Any) -> bool:
    tensors = isinstance(made, torch.Tensor) and isinstance(value, torch.Tensor)
    return tensors and made.shape == value.shape and made.dtype == value.dtype


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value
