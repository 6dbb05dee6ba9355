"""Graph: what a module computes, operation by operation, each value named once.

Torch is not needed to read one; `capture.trace` makes it.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any, TypeAlias

ITEM_BYTES = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "float16": 2, "bfloat16": 2, "float32": 4,
    "float64": 8, "complex64": 8, "complex128": 16,
}  # fmt: skip


@dataclass(frozen=True)
class TensorType:
    """How a tensor lies in memory."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements, as eager PyTorch gives them."""
    dtype: str
    """PyTorch's name without the prefix: `float32`, `bfloat16`, `int64`, `bool`."""

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Of the elements; an expanded tensor may take less memory."""
        return self.elements * ITEM_BYTES[self.dtype]

    @property
    def is_floating(self) -> bool:
        return self.dtype in ("float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True)
class Value:
    """One value, assigned once."""

    name: str
    """A word of Python and of C++ that is a keyword of neither; unique in its graph."""
    tensor: TensorType


@dataclass(frozen=True)
class Ref:
    """The value of that name, as an argument."""

    name: str


Literal: TypeAlias = "bool | int | float | str | None"
Argument: TypeAlias = "Literal | Ref | tuple[Argument, ...]"


@dataclass(frozen=True)
class Operation:
    """One operation of PyTorch. It changes nothing but what `mutates` names."""

    name: str
    """Its first output's: from the module's attribute where a layer of `torch.nn` makes it (`conv`), else the kind."""
    kind: str
    """Without namespace, overload and the underscore of what was in place, aliases under one name: `leaky_relu`, `mul`
    for `multiply`."""
    target: str
    """The overload to call, which writes to no argument: `aten.leaky_relu.default`."""
    args: Mapping[str, Argument]
    """By their names in the operation's schema and in its order, defaults filled in. dtypes, devices, layouts and
    memory formats are their names: `float32`, `cuda:0`, `strided`, `channels_last`. A number may stand for a tensor of
    no dims. An operand that was left out is None."""
    outputs: tuple[Value, ...]
    """Of nested results all tensors, in their order."""
    where: str
    """The user's line: `model.py:31: x = F.leaky_relu(x, 0.2)`; empty in a module that is PyTorch's own."""
    flops: int
    """Of matrix products and convolutions, a multiply-add as two; else one for each element read or made; 0 for views
    and copies."""
    bytes_moved: int
    """Each operand read once and each result written once, as in eager PyTorch; 0 for views."""
    mutates: tuple[str, ...] = ()
    """Buffers that it changes in passing: the running statistics of batch norm in training. Such operations keep their
    order; nobody else in the graph reads these buffers."""
    draws: bool = False
    """Whether it draws random numbers. Such operations keep their order: a seed gives what it gives in eager."""

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Names of the values it reads, as often as it reads them."""
        return tuple(_names_in(tuple(self.args.values())))

    @property
    def output(self) -> Value:
        """The only one; raises ValueError where there are more."""
        (output,) = self.outputs
        return output


@dataclass(frozen=True)
class Parameter:
    """A parameter or buffer of the module."""

    value: Value
    names: tuple[str, ...]
    """Its qualified names, as in the state_dict; several where it is tied."""
    trainable: bool
    """Whether it takes a gradient."""
    is_buffer: bool


@dataclass(frozen=True)
class Constant:
    """A tensor that is neither input nor state: a plain attribute of the module, or one that forward wrote down."""

    value: Value
    attribute: str
    """The module's attribute; empty where forward made it (`torch.tensor([1.0, 2.0])`)."""
    tensor: Any = field(compare=False, repr=False)
    """The torch tensor."""

    @property
    def number(self) -> float | None:
        """The one that forward made a tensor of, where it is finite; of an attribute none, which others may change."""
        if self.attribute or self.value.tensor.elements != 1 or self.tensor.device.type == "meta":
            return None
        number = float(self.tensor.item())
        return number if math.isfinite(number) else None


@dataclass(frozen=True)
class Mutation:
    """A buffer that has another value after the call."""

    buffer: str
    """The name of its value before."""
    value: str
    """The value that it gets."""


@dataclass(frozen=True)
class Fixed:
    """What forward returns beside tensors, the same in each call: None, a number, a word."""

    value: Literal


@dataclass(frozen=True)
class Instance:
    """An object that forward returns: of a class that has a name in a module, made of its parts."""

    module: str
    name: str
    parts: dict[str, Any]
    """By their keywords, each with the places of its tensors."""
    in_one: bool = False
    """Whether it is made of a dict of them, in the stead of keywords."""


@dataclass(frozen=True)
class Graph:
    """What one call of the module computes. All shapes are those of the inputs traced with."""

    inputs: tuple[Value, ...]
    """The tensors among the arguments."""
    arguments: tuple[Ref | Literal, ...]
    """All arguments of forward by position; numbers and None as they were given, which the graph depends on."""
    parameters: tuple[Parameter, ...]
    """All of the module's, used or not."""
    constants: tuple[Constant, ...]
    operations: tuple[Operation, ...]
    """In the order of execution; each contributes to an output or a buffer."""
    outputs: tuple[str, ...]
    """Values returned, nesting flattened; one may come twice."""
    structure: Any
    """What forward returns, with each tensor's place in `outputs` in its stead: `0`, `(0, 1)`, `{"mean": 0}`; an
    Instance for an object, Fixed for what is no tensor."""
    mutations: tuple[Mutation, ...]
    training: bool
    """The module's own flag."""

    @cached_property
    def values(self) -> dict[str, Value]:
        """All values by name."""
        made = (output for operation in self.operations for output in operation.outputs)
        state = (parameter.value for parameter in self.parameters)
        constants = (constant.value for constant in self.constants)
        return {value.name: value for value in (*self.inputs, *state, *constants, *made)}

    @cached_property
    def producers(self) -> dict[str, Operation]:
        """The operation that makes each value; none for what comes from outside."""
        return {output.name: operation for operation in self.operations for output in operation.outputs}

    def readers(self, name: str) -> tuple[Operation, ...]:
        """The operations that read a value."""
        return tuple(self._read_by.get(name, ()))

    def is_seen(self, name: str) -> bool:
        """Whether who calls the module gets a value, or a view of it, which may be written to in place."""
        pending, seen = [name], {name}
        while pending:
            at = pending.pop()
            if at in self.outputs:
                return True
            views = (each for each in self.readers(at) if not each.bytes_moved)
            found = {output.name for each in views for output in each.outputs} - seen
            pending += found
            seen |= found
        return False

    @cached_property
    def _read_by(self) -> dict[str, list[Operation]]:
        found: dict[str, list[Operation]] = {}
        for operation in self.operations:
            for name in dict.fromkeys(operation.inputs):
                found.setdefault(name, []).append(operation)
        return found

    @property
    def flops(self) -> int:
        """Of all operations."""
        return sum(operation.flops for operation in self.operations)

    @property
    def bytes_moved(self) -> int:
        """By all operations, each for itself."""
        return sum(operation.bytes_moved for operation in self.operations)


def unused(wanted: str, taken: Container[str]) -> str:
    """The word wanted, or the first that nothing has: `relu`, `relu_2`, `relu_3`."""
    return next(name for n in count(1) if (name := wanted if n == 1 else f"{wanted}_{n}") not in taken)


def _names_in(argument: Argument) -> Iterator[str]:
    if isinstance(argument, Ref):
        yield argument.name
    elif isinstance(argument, tuple):
        for item in argument:
            yield from _names_in(item)


DROPOUTS = frozenset({"dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"})
"""Kinds of operations that drop elements, or whole channels, at random."""
