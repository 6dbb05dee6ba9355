"""Plan: the steps in which a module is computed, each a kernel or a call of PyTorch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from crucible.graph import ITEM_BYTES, Graph, Operation, TensorType
from crucible.write.pool import Pool
from crucible.write.program import Operand, Program


@dataclass(frozen=True)
class Call:
    """An operation left to PyTorch."""

    operation: Operation
    """With its arguments as they are given: a bias may have been taken out."""
    results: tuple[str, ...]
    """Names of the tensors it makes."""
    why: str
    """Why it is not fused; empty for what moves no data."""

    @property
    def bytes_moved(self) -> int:
        return self.operation.bytes_moved


@dataclass(frozen=True)
class Fused:
    """Operations that share a kernel, or a few in a row."""

    name: str
    """Of the operator."""
    covers: tuple[str, ...]
    """The operations that it stands for, by their names in the graph."""
    compute: Program | Pool
    """Forward; of a program, `saved` are results of it too."""
    operands: Mapping[str, str]
    """For each operand the tensor in memory that it reads."""
    result: str
    """Name of the tensor that it makes."""
    type: TensorType
    """Of the result."""
    saved: Mapping[str, TensorType]
    """Further tensors that it makes, for backward alone."""
    backward: Program | None
    """Gradients of the operands that take one; None where there are none, and of a pool, which has its own."""
    wanted: tuple[str, ...]
    """Operands that take a gradient."""
    notes: tuple[str, ...] = ()
    """What was found out about it, in words."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The tensors it takes, each once, in the order of its operands."""
        return tuple(dict.fromkeys(self.operands[operand.name] for operand in self.all_operands))

    @property
    def all_operands(self) -> tuple[Operand, ...]:
        if isinstance(self.compute, Program):
            return self.compute.operands
        return (*self.compute.operands, *self.compute.after_operands)

    @property
    def bytes_moved(self) -> int:
        """Each tensor that it takes read once, and what it makes written once."""
        first = {self.operands[operand.name]: operand for operand in reversed(self.all_operands)}
        made = self.type.bytes + sum(type_.bytes for type_ in self.saved.values())
        return sum(map(self._bytes, first.values())) + made

    def _bytes(self, operand: Operand) -> int:
        space = self._space(operand)
        distinct = math.prod(size for size, stride in zip(space, operand.strides, strict=True) if stride)
        return distinct * ITEM_BYTES[operand.dtype]

    def _space(self, operand: Operand) -> tuple[int, ...]:
        if isinstance(self.compute, Program):
            return self.compute.shape
        return self.compute.input_shape if operand in self.compute.operands else self.compute.output_shape


Step: TypeAlias = Call | Fused


@dataclass(frozen=True)
class Plan:
    """How a graph is computed."""

    graph: Graph
    steps: tuple[Step, ...]
    """In the order of execution."""
    types: Mapping[str, TensorType]
    """Of all tensors in memory, inputs and parameters included, as the steps expect them."""
