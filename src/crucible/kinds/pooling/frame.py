"""Where a thread of a pool's kernel stands, and what it finds there."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from crucible.algebra.expression import Expr
from crucible.algebra.program import Operand, Result
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ZERO, Index, Number, Size, Variable
from crucible.kinds.built import Built
from crucible.kinds.pooling.layout import Layout, access_width, extent, used
from crucible.kinds.values import computed

LONGEST = 113
"""Characters of a comment's line."""
Access = Literal["read", "write"]
Tensor = Operand | Result


@dataclass(frozen=True)
class Row:
    """Neighbours in memory that a thread reads or writes as a whole, in packs as large as their alignment allows."""

    fragment: ir.Fragment
    packs: int
    vector: int

    @classmethod
    def of(cls, tensor: Tensor, elements: int) -> Row:
        vector = access_width(elements, tensor.dtype)
        packs = elements // vector
        shape = (Number(packs), Number(vector)) if packs > 1 else (Number(vector),)
        return cls(ir.Fragment(f"{tensor.name}_row", tensor.dtype, shape, packed=True), packs, vector)

    def element(self, place: Index) -> ir.Element:
        at = (place // self.vector, place % self.vector) if self.packs > 1 else (place,)
        return ir.Element(self.fragment, at)

    def load(self, k: Builder, source: ir.Global) -> None:
        """It begins here."""
        if self.packs == 1:
            k.add(ir.Load(ir.Element(self.fragment), source, declares=True))
            return
        k.add(ir.Declare((self.fragment,)))
        with k.unrolled("p", Number(self.packs)) as p:
            k.add(ir.Load(ir.Element(self.fragment, (p,)), ir.Global(source.of, source.at + p * self.vector)))

    def store(self, k: Builder, to: ir.Global) -> None:
        with k.unrolled("p", Number(self.packs)) as p:
            pack = ir.Element(self.fragment, (p,) if self.packs > 1 else ())
            k.add(ir.Store(pack, ir.Global(to.of, to.at + p * self.vector), plainly=True))


class Frame:
    """A pool in a layout: sizes, tensors, coordinates and registers while its kernel is built by `k`."""

    def __init__(self, layout: Layout) -> None:
        self.layout, self.pool, self.k = layout, layout.pool, Builder()
        self.precision = self.pool.precision
        self._sizes: dict[str, Size] = {}
        self.tensors: dict[str, ir.Tensor] = {}
        self._layouts: dict[tuple[int, ...], str] = {}
        """By whose name strides go."""
        self.base: dict[str, Index] = {}
        """Where, in a tensor laid over the input, the elements of a thread's batch and channel begin."""
        self.at: dict[str, Index] = {dim: Variable(dim, "int") for dim in layout.dims}
        """The output coordinates of a thread's first window along each dim."""
        self.first = dict(self.at)
        """Those of its first of all."""
        if layout.spread is not None:
            dim = layout.dims[layout.spread]
            self.first[dim] = Variable(f"first_{dim}", "int")
        self.inside: dict[str, Index] = {dim: Variable(f"in_{dim}", "int") for dim in layout.spatial}
        """The input coordinates of an element."""
        self.within: dict[str, Index] = {}
        """Its place in its window, along each spatial dim."""
        self.start: Index = ZERO
        """The first item of its block, in its row."""
        self.lane: Index = ZERO
        """Which of a thread's neighbouring windows it is about."""
        self.member: Index = ZERO
        """Which of all of its windows."""
        self.place: Index = ZERO
        """Which element of its row."""
        self.rows: dict[str, Row] = {}
        """Of operands, those that were read last."""
        self.leaves: dict[str, ir.Fragment] = {}
        """What tensors and parameters of expressions are."""

    def kernel(self, name: str, blocks: int, threads: int, notes: Sequence[str], title: str = "") -> Built:
        """What was built, with all of that above it; nothing where there is nothing to launch."""
        if not blocks:
            return Built(())
        head = textwrap.wrap(" ".join([title, *notes]).strip(), LONGEST)
        tensors = sorted(self.tensors.values(), key=lambda each: each.access)
        sizes = sorted(self._sizes.values(), key=lambda each: each.name)
        kernel = ir.Kernel(
            name, tuple(tensors), tuple(sizes), blocks, threads, self.layout.index, self.k.body, tuple(head)
        )
        return Built((kernel,), (), tuple(notes))

    def size(self, name: str, value: int, counts: bool = True) -> Size:
        return self._sizes.setdefault(name, Size(name, value, counts=counts))

    def take(self, tensors: Iterable[Tensor], access: Access, shape: Sequence[int]) -> None:
        """Parameters of the kernel, laid over a space."""
        for each in tensors:
            self.tensors[each.name] = ir.Tensor(each.name, each.dtype, access, extent(each.strides, shape))

    # places

    def _offset(self, tensor: Tensor, at: Mapping[str, Index], shape: Sequence[int]) -> Index:
        """The sum of some coordinates times strides; `shape` is that of all."""
        found: Index = ZERO
        name = self._layouts.setdefault(tensor.strides, tensor.name)
        for dim, stride, size in zip(self.layout.dims, tensor.strides, shape, strict=True):
            if stride and size > 1 and dim in at:
                found = found + at[dim] * self.size(f"{name}_stride_{dim}", stride, counts=False)
        return found

    def _of_outer(self, tensor: Tensor) -> Index:
        outer = {dim: self.at[dim] for dim in self.layout.dims[: self.layout.rank]}
        return self._offset(tensor, outer, self.pool.input_shape)

    def of_batch(self, tensor: Tensor) -> ir.Global:
        """What all of a batch and channel share."""
        return ir.Global(self.tensors[tensor.name], self._of_outer(tensor))

    def of_window(self, tensor: Tensor) -> ir.Global:
        """A window's value in a tensor laid over the output."""
        at = {**self.at, "w": self.at["w"] + self.lane}
        return self._of_output(tensor, at)

    def of_first(self, tensor: Tensor) -> ir.Global:
        """That of a thread's first window."""
        return self._of_output(tensor, self.first)

    def _of_output(self, tensor: Tensor, at: Mapping[str, Index]) -> ir.Global:
        return ir.Global(self.tensors[tensor.name], self._offset(tensor, at, self.pool.output_shape))

    def of_element(self, tensor: Tensor) -> ir.Global:
        """An element's value in a tensor laid over the input; `begin` declares the first part of its place."""
        inner = self._offset(tensor, self.inside, self.pool.input_shape)
        return ir.Global(self.tensors[tensor.name], self.base[tensor.name] + inner)

    def begin(self, tensors: Iterable[Tensor]) -> None:
        """Declares where the elements of a thread's batch and channel begin."""
        for each in tensors:
            place = self._of_outer(each)
            self.base[each.name] = self.k.let(f"{each.name}_at", place) if place != ZERO else ZERO

    # registers

    def own(self, name: str, dtype: str = "") -> ir.Fragment:
        """A register for each of a thread's neighbouring windows."""
        lanes = self.layout.lanes
        return ir.Fragment(name, dtype or self.precision, (self.size("lanes", lanes),) if lanes > 1 else ())

    def register(self, fragment: ir.Fragment) -> ir.Element:
        """Of the window that it is about."""
        return ir.Element(fragment, (self.lane,) if fragment.shape else ())

    def computed(self, exprs: Mapping[str, Expr]) -> dict[str, ir.Element]:
        return computed(self.k, exprs, lambda name: self.register(self.leaves[name]), self.precision)

    # reading

    def row_of(self, operand: Operand) -> Row | None:
        """A thread's elements of an operand along the last dim, where they lie side by side."""
        row = Row.of(operand, self.layout.row_elements)
        return row if self.layout.row_packed(operand) and row.vector > 1 else None

    def read(self, operand: Operand, source: ir.Global | ir.Element) -> None:
        """A value that expressions read, from memory or from a row."""
        self.leaves[operand.name] = ir.Fragment(f"{operand.name}_value", self.precision)
        into = ir.Element(self.leaves[operand.name])
        if isinstance(source, ir.Element):
            self.k.add(ir.Convert(into, source, declares=True))
        else:
            self.k.add(ir.Load(into, source, declares=True))

    def beginnings(self, exprs: Sequence[Expr]) -> None:
        """Declares where the tensors of the chain before begin, and reads what all elements of a window share."""
        for operand in used(self.pool.operands, *exprs):
            if self.pool.moves(operand):
                self.begin([operand])
            else:
                self.read(operand, self.of_batch(operand))

    def rows_of_windows(self, operands: Iterable[Operand]) -> dict[str, Row]:
        """Reads those tensors over the output that lie beside all windows of a thread."""
        rows = {each.name: Row.of(each, self.layout.together) for each in operands if self.layout.lanes_packed(each)}
        for each in (each for each in operands if each.name in rows):
            rows[each.name].load(self.k, self.of_first(each))
        return rows

    def window_values(self, operands: Iterable[Operand], rows: Mapping[str, Row]) -> None:
        """Reads what a window's value is put together with."""
        for each in operands:
            row = rows.get(each.name)
            self.read(each, row.element(self.member) if row else self.of_window(each))
