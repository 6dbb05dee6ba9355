"""Plan: the steps in which a module is computed, each a kernel or a call of PyTorch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from crucible.algebra.convolution.fused import Convolution
from crucible.algebra.convolution.reducing import ReducingConvolution
from crucible.algebra.crossings import Crossed, Crossings
from crucible.algebra.moments import Given, Moments
from crucible.algebra.pool import Pool
from crucible.algebra.product import Product
from crucible.algebra.program import Operand, Program
from crucible.gpus import Gpu
from crucible.graph import ITEM_BYTES, Graph, Operation, TensorType


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

    @property
    def reads(self) -> tuple[str, ...]:
        """The tensors it takes."""
        return self.operation.inputs

    @property
    def names(self) -> tuple[str, ...]:
        """Of what it makes, for others to read."""
        return self.results


@dataclass(frozen=True)
class Part:
    """Of a tensor, along one of its dims."""

    dim: int
    start: int
    size: int
    drops: bool = False
    """Whether it is one place along the dim, which it does not have then."""
    step: int = 1
    """From each of its places to the next."""

    def begin(self, whole: TensorType) -> int:
        """Where in such a tensor it begins, in elements."""
        return self.start * whole.strides[self.dim]

    def of(self, whole: TensorType) -> TensorType:
        """As it lies there."""
        shape, strides = (
            (*each[: self.dim], *([] if self.drops else [own]), *each[self.dim + 1 :])
            for each, own in ((whole.shape, self.size), (whole.strides, self.step * whole.strides[self.dim]))
        )
        return replace(whole, shape=shape, strides=strides)

    @property
    def words(self) -> str:
        """What PyTorch takes it by, of Python's and C++'s tensors alike."""
        assert self.step == 1
        return f"select({self.dim}, {self.start})" if self.drops else f"narrow({self.dim}, {self.start}, {self.size})"


@dataclass(frozen=True)
class Fused:
    """Operations that share a kernel, or a few in a row."""

    name: str
    """Of the operator."""
    covers: tuple[str, ...]
    """The operations that it stands for, by their names in the graph; none for a copy in another layout."""
    compute: Program | Pool | Convolution | ReducingConvolution | Product
    """Forward; of a program, also over a convolution, `saved` are results of it too."""
    operands: Mapping[str, str]
    """For each operand the tensor in memory that it reads."""
    result: str
    """Name of the tensor that it makes."""
    type: TensorType
    """Of the result."""
    saved: Mapping[str, TensorType]
    """Further tensors that it makes, for backward alone."""
    backward: Program | None
    """Gradients of the operands that take one; None where there are none, of pools, convolutions and products, which
    have their own, and of a copy, whose gradient is that of what it copies."""
    wanted: tuple[str, ...]
    """Operands that take a gradient."""
    notes: tuple[str, ...] = ()
    """What was found out about it, in words."""
    statistics: Program | None = None
    """What is computed before a pool: reductions, as results that its chain reads."""
    updates: Mapping[str, str] = field(default_factory=dict)
    """Further results that are copied into buffers, by the names of both."""
    passed: Mapping[str, str] = field(default_factory=dict)
    """Operands whose gradient is that of a result as it comes, or the one that is made for another operand: by its
    name. A sum of two tensors makes none."""
    further: Mapping[str, TensorType] = field(default_factory=dict)
    """Further results that other steps read, with gradients of their own: what a norm reads, which a residual stream
    goes on with."""
    again: Mapping[str, str] = field(default_factory=dict)
    """Further names of results, by which other steps read the same memory: each has a gradient of its own."""
    parts: Mapping[str, Part] = field(default_factory=dict)
    """Operands that are parts of the tensors they read, and results of its program that are parts of the one that it
    makes. Gradients of such operands are parts of one tensor, which they fill."""
    product_alone: bool = False
    """Whether a convolution that saves its product writes it alone then, and a program makes the result of it."""
    aside: Moments | Crossings | None = None
    """What a convolution writes beside its result, for the first reductions of programs that read it."""
    unwritten: bool = False
    """Whether nothing reads a convolution's result where no gradients are taken: what it writes aside is all that is
    asked for, and the result is not written then."""
    given: Given | Crossed | None = None
    """Of a program, the moments that its first sums are made of, or the crossings that are its reductions."""

    @property
    def results(self) -> dict[str, TensorType]:
        """What it makes for others to read."""
        return {self.result: self.type, **self.further}

    @property
    def joined(self) -> tuple[str, ...]:
        """The results of its program that make up `result`, where that is not one of them."""
        made = self.compute.results if isinstance(self.compute, Program) else ()
        return tuple(result.name for result in made if result.name in self.parts)

    @property
    def beside(self) -> tuple[str, ...]:
        """Further results that take no gradient: what is written aside, and new values of buffers."""
        return (*(self.aside.names if self.aside else ()), *self.updates)

    @property
    def measured(self) -> dict[str, TensorType]:
        """What it writes aside."""
        if self.aside is None:
            return {}
        assert isinstance(self.compute, Convolution)
        return self.aside.types(self.compute.made_shape)

    @property
    def readable(self) -> dict[str, TensorType]:
        """The same by all names."""
        return {**self.results, **{name: self.results[held] for name, held in self.again.items()}}

    @property
    def names(self) -> tuple[str, ...]:
        """All by which others read what it makes."""
        return tuple(self.readable)

    @property
    def upstream(self) -> dict[str, TensorType]:
        """What its backward is given: a gradient for each name."""
        return {f"grad_{name}": type_ for name, type_ in self.readable.items()}

    @property
    def is_copy(self) -> bool:
        """Whether it only lays a tensor in another way."""
        return not self.covers

    @property
    def keeps_apart(self) -> bool:
        """Whether what is kept for backward is made by kernels of their own, so that calls without gradients do not
        pay for it."""
        return isinstance(self.compute, Convolution) and (bool(self.saved) or self.unwritten)

    @property
    def reads(self) -> tuple[str, ...]:
        """The tensors it takes, each once, in the order of its operands."""
        return tuple(dict.fromkeys(self.operands[operand.name] for operand in self.all_operands))

    @property
    def all_operands(self) -> tuple[Operand, ...]:
        return tuple(operand for operand, _ in self._laid)

    @property
    def bytes_moved(self) -> int:
        """Each tensor that it takes read once, and what it makes written once; without what it keeps apart."""
        read: dict[tuple[str, Part | None], int] = {}
        for operand, space in self._laid:
            held = self.operands[operand.name], self.parts.get(operand.name)
            distinct = math.prod(size for size, stride in zip(space, operand.strides, strict=True) if stride)
            read[held] = max(distinct * ITEM_BYTES[operand.dtype], read.get(held, 0))
        made = 0 if self.unwritten else sum(type_.bytes for type_ in self.results.values())
        return sum(read.values()) + made + (0 if self.keeps_apart else self.saved_bytes)

    @property
    def saved_bytes(self) -> int:
        """What it writes for backward alone."""
        result = self.type.bytes if self.unwritten else 0
        return sum(type_.bytes for type_ in self.saved.values()) + result

    @property
    def _laid(self) -> list[tuple[Operand, tuple[int, ...]]]:
        """The operands that are tensors outside, with the space that each is laid over."""
        compute = self.compute
        if isinstance(compute, Program):
            further = self.given.operands if self.given else ()
            return [(operand, compute.shape) for operand in (*compute.operands, *further)]
        if isinstance(compute, Convolution):
            return [(each, compute.space(each)) for each in (compute.source, compute.weight, *compute.operands)]
        if isinstance(compute, ReducingConvolution):
            conv, shape = compute.conv, compute.program.shape
            given = [(each, conv.space(each)) for each in (conv.source, conv.weight)]
            return given + [(operand, shape) for operand in compute.operands]
        if isinstance(compute, Product):
            return [(compute.left, compute.left_shape), (compute.right, compute.right_shape)]
        pairs = [(operand, compute.input_shape) for operand in compute.operands]
        pairs += [(operand, compute.output_shape) for operand in compute.after_operands]
        if self.statistics is not None:
            pairs += [(operand, self.statistics.shape) for operand in self.statistics.operands]
        return [(operand, space) for operand, space in pairs if operand.name in self.operands]


Step: TypeAlias = Call | Fused


@dataclass(frozen=True)
class Plan:
    """How a graph is computed."""

    graph: Graph
    steps: tuple[Step, ...]
    """In the order of execution."""
    types: Mapping[str, TensorType]
    """Of all tensors in memory, inputs and parameters included, as the steps expect them."""
    gpu: Gpu
    """What kernels are laid out for."""
    rewrites: tuple[str, ...] = ()
    """How the graph was rewritten before, in words."""
    asked: Graph | None = None
    """The graph before that."""
