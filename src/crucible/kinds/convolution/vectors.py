"""Rows of products to memory: lanes that share a row take vectors of it, load what else its chain reads, run the chain
over them, and store what leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from crucible.algebra.convolution.fused import PRODUCT, Convolution, is_of_row
from crucible.algebra.convolution.windows import CHOICE
from crucible.algebra.program import Operand, Result
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import Compare, Index, Number, Size
from crucible.kinds.convolution.scene import Scene
from crucible.kinds.convolution.sharing import Sharing
from crucible.kinds.convolution.staged import pack
from crucible.kinds.values import inputs_of
from crucible.schedule.convolution.row_parts import chains
from crucible.schedule.convolution.rows import plain

Values = Mapping[str, ir.Element]
"""What tensors hold, by name."""
Added = Mapping[str, tuple[str, ir.Element]]
"""Where a result is added up, and by which reduction."""


@dataclass(frozen=True)
class Laid:
    """A tensor, and how it lies: [N, C, *spatial]."""

    tensor: ir.Tensor
    strides: tuple[Size, ...]


Where = Callable[[Laid], Index]
"""A place in a tensor."""
Spot = Callable[[Index], tuple[Where, Sequence[Compare]]]
"""Of vector v its place in a tensor, and the tests that it is inside."""
Products = Callable[[Index], tuple[ir.Fragment, ir.Fragment | None]]
"""Of vector v its products, and perhaps which of their windows' they are."""


def laid(
    tensor: Operand | Result, shape: Sequence[int], dims: Sequence[str], *, is_told: bool = False,
    wide: Sequence[str] = ("batch",),
) -> Laid:  # fmt: skip
    """Over a shape; with its strides as they are told, or as if dims of one element were contiguous. The `wide` ones
    are of the kernel's type of indices, others ints."""
    last = sum((n - 1) * stride for n, stride in zip(shape, tensor.strides, strict=True))
    strides = (
        Size(f"{tensor.name}_{name}_stride", stride, counts=name not in wide)
        for name, stride in zip(
            ("batch", "channel", *dims), tensor.strides if is_told else plain(tensor.strides, shape), strict=True
        )
    )
    access: Literal["read", "write"] = "read" if isinstance(tensor, Operand) else "write"
    return Laid(ir.Tensor(tensor.name, tensor.dtype, access, 1 + last), tuple(strides))


def chained(k: Builder, conv: Convolution, product: ir.Element, of_row: Values, came: Values) -> Values:
    """What chains give, by result, of what a row has and of what came for a place."""
    values = {name: value(f"{name}_value") for name in came}
    for name, each in came.items():
        k.add(ir.Convert(values[name], each, declares=True))
    exprs = {name.removesuffix("_is"): expr for name, expr in chains(conv).items()}
    made, known = {name: value(f"{name}_is") for name in exprs}, {PRODUCT: product, **values, **of_row}
    results = tuple((made[name], expr) for name, expr in exprs.items())
    k.add(*([ir.Chain(results, inputs_of(exprs.values(), known.__getitem__))] if results else []))
    return made


def value(name: str) -> ir.Element:
    return ir.Element(ir.Fragment(name, "float32"))


class Vectors:
    """Those of rows, while they are made."""

    def __init__(
        self, k: Builder, scene: Scene, operands: Mapping[str, Laid], results: Mapping[str, Laid], sharing: Sharing
    ) -> None:
        self.k, self.scene, self.operands, self.results, self.sharing = k, scene, operands, results, sharing
        self.of_row = [each.name for each in scene.operands if is_of_row(each)]
        self.each = {name: laid for name, laid in operands.items() if name not in self.of_row}

    def begin(self, image: Index, channel: Index) -> None:
        """What operands hold for all outputs of an image's channel."""
        self.values = {name: value(f"{name}_value") for name in self.of_row}
        for name, each in self.values.items():
            strides, tensor = self.operands[name].strides, self.operands[name].tensor
            at = image * strides[0] + channel * strides[1]
            self.k.add(ir.Load(each, ir.Global(tensor, at), declares=True))

    def leave(self, own: Index, spot: Spot, products: Products, added: Added) -> None:
        """Of one of the lanes that share a row."""
        self.spot, self.products, self.added = spot, products, added
        step, vectors = self.sharing.together * self.sharing.lanes, self.sharing.laid.vectors
        if step >= vectors:
            self._some(own)
            return
        with self.k.loop("first", own, Number(vectors), Number(step), "int") as first:
            self._some(first)

    def _some(self, first: Index) -> None:
        """Vectors that are on their way at once: what they load, then what becomes of them."""
        k, sharing, vectors = self.k, self.sharing, self.sharing.laid.vectors
        together = Number(sharing.together)
        self.came = {name: ir.Fragment(f"{name}_each", *self._type(each)) for name, each in self.each.items()}
        k.add(*(ir.Declare((each,)) for each in self.came.values()))
        beyond = vectors % (together.value * sharing.lanes) > 0
        for make in (self._load, self._make) if self.each else (self._make,):
            with k.unrolled("j", together) as j:
                v = k.named("v", first + j * sharing.lanes)
                at, tests = self.spot(v)
                with k.when((*((Compare("<", v, Number(vectors)),) if beyond else ()), *tests)):
                    make(j, v, at)

    def _type(self, laid: Laid) -> tuple[str, tuple[Index, ...], bool]:
        """Of what is loaded: a pack of neighbours, or a number that they have in common."""
        together = Number(self.sharing.together)
        if laid.strides[-1].value == 0:
            return "float32", (together,), False
        return laid.tensor.dtype, (together, Number(self.sharing.laid.vector)), True

    def _load(self, j: Index, v: Index, at: Where) -> None:
        for name, each in self.each.items():
            self.k.add(ir.Load(ir.Element(self.came[name], (j,)), ir.Global(each.tensor, at(each))))

    def _make(self, j: Index, v: Index, at: Where) -> None:
        """A vector's products, their chain, and what leaves."""
        k, count = self.k, self.sharing.laid.vector
        products, choices = self.products(v)
        packs = {name: pack(f"{name}_pack", each.tensor.dtype, count) for name, each in self.results.items()}
        k.add(*(ir.Declare((each,)) for each in packs.values()))
        with k.several("k", Number(count)) as n:
            came = {name: ir.Element(each, (j, n) if each.packed else (j,)) for name, each in self.came.items()}
            made = chained(k, self.scene.conv, ir.Element(products, (n,)), self.values, came)
            for each in self.scene.elementwise:
                left = ir.Element(choices, (n,)) if each.expr is CHOICE and choices else made[each.name]
                k.add(ir.Convert(ir.Element(packs[each.name], (n,)), left))
            k.add(*(ir.Accumulate(kind, into, made[name]) for name, (kind, into) in self.added.items()))
        for name, laid in self.results.items():
            k.add(ir.Store(ir.Element(packs[name]), ir.Global(laid.tensor, at(laid))))
