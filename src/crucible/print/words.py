"""Indices, conditions and places of a kernel in CUDA C++: what printers of nodes put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from crucible.algebra.program import contiguous
from crucible.kernel import nodes as ir
from crucible.kernel.index import (
    ZERO,
    Binary,
    Compare,
    Condition,
    Either,
    Grid,
    Holds,
    Index,
    Larger,
    Listed,
    Number,
    Place,
    Size,
    Smaller,
    Table,
    Variable,
    quotient,
    terms,
    value_of,
)
from crucible.kernel.memory import pipelines
from crucible.print import written
from crucible.print.names import Names
from crucible.target.cuda import CUDA_TYPES, block, indented

TYPES = {
    **CUDA_TYPES,
    "tf32": "unsigned",
    "word": "unsigned",
    "half": "unsigned",
    "halves": "unsigned",
    "number": "float",
    "bytes": "unsigned",
}
UNIT = 16
"""Bytes by which what lies in a stage is counted."""
_LEVEL = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2}


class Words:
    """One kernel, with names given by `names`."""

    def __init__(self, kernel: ir.Kernel, names: Names) -> None:
        self.kernel, self.names = kernel, names
        self.called: dict[str, None] = {}
        """What arithmetic needs before the kernel."""
        self.used: set[Size | Table] = set()
        self.tiles: dict[ir.Shared, str] = {}
        """Tiles of the stage that is at hand, by the pointer to that."""
        self.counted: set[ir.Fill] = set()
        """Those whose stages a loop around them counts."""
        self.stages: dict[ir.Tensor | ir.Shared | ir.Pointer, str] = {}
        """Tiles of stages that bulk copies fill, by where the one that is at hand begins."""
        self.bytes_sent = ""
        """Where bytes of copies are added up, while text goes over them for that."""
        self.unrolled: set[Variable] = set()
        """What counts rounds that all stand in the code."""
        for tensor in kernel.tensors:
            names.give(tensor, tensor.name)
        for size in kernel.sizes:
            names.give(size, size.name)

    @property
    def pipelines(self) -> tuple[ir.Pipeline, ...]:
        return pipelines(self.kernel)

    # bodies

    def body(self, body: Sequence[ir.Node]) -> list[str]:
        """Lines of nodes, one after the other."""
        raise NotImplementedError

    def inside(self, head: str, body: Sequence[ir.Node]) -> list[str]:
        """In braces, with names of its own."""
        lines = self.body(body)
        self.names.leave()
        return [*block(head, lines)] if head else ["{", *indented(lines), "}"]

    def counter(self, wanted: str) -> str:
        """A name for what counts rounds of a loop."""
        self.names.enter()
        name = self.names.give(object(), wanted)
        self.names.leave()
        return name

    # indices

    def index(self, index: Index, level: int = 0) -> str:
        """In parentheses where what stands around it binds as strongly."""
        match index:
            case Number(value=value):
                return str(value)
            case Size():
                self.used.add(index)
                return self.names.of(index)
            case Variable():
                return self.names.of(index)
            case Listed(table=table, at=at):
                self.used.add(table)
                if table.in_word:
                    return f"static_cast<int>({self.names.of(table)} >> {self.index(at, 2)} * 4 & 15)"
                return f"{self.names.of(table)}[{self.index(at)}]"
            case Grid():
                return "gridDim.x"
            case Place(of="thread"):
                return "threadIdx.x"
            case Place():
                return f"static_cast<size_t>({written.BLOCK})" if self.kernel.index == "size_t" else written.BLOCK
            case ir.Held(of=element):
                return self.element(element)
            case Smaller(left=left, right=right) | Larger(left=left, right=right) if self._counted(index):
                call = "min" if isinstance(index, Smaller) else "max"
                words, own = f"{call}({self.index(left)}, {self.index(right)})", 3
            case Smaller(left=left, right=right) | Larger(left=left, right=right):
                one, other = self.index(left, 1), self.index(right, 1)
                words, own = f"{one} {'<' if isinstance(index, Smaller) else '>'} {other} ? {one} : {other}", 0
            case Either(one=left, other=right, is_larger=True):
                words, own = f"max({self.index(left)}, {self.index(right)})", 3
            case Either(condition=condition, one=left, other=right) if condition == (Compare(">=", left, right),):
                return self.index(Larger(left, right), level)
            case Either(condition=condition, one=left, other=right):
                words, own = f"{self.condition(condition)} ? {self.index(left, 1)} : {self.index(right, 1)}", 0
            case Holds(condition=condition):
                words, own = self.condition(condition) or "true", 0
            case Binary(sign="^", left=left, right=right):
                words, own = f"{self.index(left, 1)} ^ {self.index(right, 1)}", 0
            case Binary(sign=sign, left=left, right=right):
                own = _LEVEL[sign]
                added = sign == "+" and isinstance(right, Binary) and right.sign == "+"
                words = f"{self.index(left, own)} {sign} {self.index(right, own if added else own + 1)}"
            case _:
                raise TypeError(f"{index} is no index")
        return f"({words})" if own < level else words

    def _counted(self, index: Index) -> bool:
        """Whether it is an int."""
        if isinstance(index, Variable):
            return "int" in (index.type, self.kernel.index if index.type == "index" else "")
        if isinstance(index, Binary | Smaller | Larger):
            return self._counted(index.left) and self._counted(index.right)
        return self.kernel.index == "int" or isinstance(index, Number)

    def condition(self, condition: Condition, sign: str = " && ") -> str:
        return sign.join(map(self._compared, condition))

    def _compared(self, each: Compare) -> str:
        if each.unless:
            return f"({self.condition(each.unless)} || {self._compared(replace(each, unless=()))})"
        left = self.index(each.left, 1)
        held = each.left
        is_flag = (isinstance(held, ir.Held) and held.of.of.dtype == "bool") or (
            isinstance(held, Variable) and held.type == "bool"
        )
        if is_flag and each.sign == "!=":
            return left
        if each.sign == "in":
            return f"static_cast<unsigned>({self.index(each.left)}) < {self.index(each.right, 1)}"
        return f"{left} {each.sign} {self.index(each.right, 1)}"

    def begun(self, variable: Variable) -> str:
        """Type and name of a variable that begins here."""
        type_ = self.kernel.index if variable.type == "index" else variable.type
        return f"{type_} {self.names.give(variable, variable.name)}"

    # places

    def element(self, element: ir.Element) -> str:
        at = [self.index(each) for each in element.at]
        if element.of.packed and not element.is_pack:
            return f"{self.names.of(element.of)}{''.join(f'[{each}]' for each in at[:-1])}.at[{at[-1]}]"
        return f"{self.names.of(element.of)}{''.join(f'[{each}]' for each in at)}"

    def spot(self, spot: ir.Spot) -> str:
        """A value in memory."""
        if isinstance(spot, ir.InShared) and spot.of in self.tiles:
            tile = spot.of
            base = f"{self.tiles[tile]} + {self.names.of(tile)}"
            place = self.index(self._word(spot), 1)
            return f"reinterpret_cast<{TYPES[tile.dtype]}*>({base})[{place}]"
        if isinstance(spot, ir.InShared) and spot.tile in self.stages:
            return f"*({self.address(spot)})"
        if isinstance(spot, ir.InShared) and spot.halved:
            return f"reinterpret_cast<unsigned short*>({self.names.of(spot.of)})[{self.index(spot.at[0])}]"
        if isinstance(spot, ir.InShared) and spot.tile.at_launch:
            return f"{self.names.of(spot.of)}[{self.index(self._flat(spot))}]"
        at = [spot.at] if isinstance(spot, ir.Global) else spot.at
        return f"{self.names.of(spot.of)}{''.join(f'[{self.index(each)}]' for each in at)}"

    def pack(self, spot: ir.Spot, dtype: str, vector: int, const: str = "") -> str:
        """A pack in memory, which is aligned."""
        is_apart = isinstance(spot, ir.InShared) and spot.tile not in self.tiles and spot.tile not in self.stages
        if isinstance(spot, ir.InShared) and not spot.tile.at_launch and is_apart:
            base, place = self.names.of(spot.of), self.index(quotient(spot.at[-1], vector))
            return f"reinterpret_cast<{const}Pack<{TYPES[dtype]}, {vector}>*>({base})[{place}]"
        of_stage = isinstance(spot, ir.InShared) and spot.of in self.tiles and not spot.tile.at_launch
        at = self._unit(spot) if of_stage and isinstance(spot, ir.InShared) else self.address(spot)
        return f"*reinterpret_cast<{const}Pack<{TYPES[dtype]}, {vector}>*>({at})"

    def units(self, spot: ir.Spot, const: str = "") -> str:
        """Sixteen bytes in memory, that are counted in such."""
        at = spot.at if isinstance(spot, ir.Global) else self._flat(spot)
        place = self.index(quotient(at, UNIT // ir.ITEM_BYTES[spot.dtype]))
        name = self.names.of(spot.of)
        is_cast = isinstance(spot.of, ir.Pointer) and spot.of.is_of_units
        return f"{name}[{place}]" if is_cast else f"reinterpret_cast<{const}uint4*>({name})[{place}]"

    @staticmethod
    def _flat(spot: ir.InShared) -> Index:
        """Counted from the first of an array."""
        index: Index = ZERO
        for at, stride in zip(spot.at, contiguous(spot.tile.sizes), strict=True):
            index = index + at * stride
        return index

    def _word(self, spot: ir.InShared) -> Index:
        """Counted from the first of a tile: what a thread has of its own, then what rounds of unrolled loops add, so
        that nvcc 13.0 computes the one once and makes the other part of instructions."""
        strides = contiguous(spot.tile.sizes)
        each = [term for at, stride in zip(spot.at, strides, strict=True) for term in terms(at, stride)]
        last = [term for term in each if any(ir.mentions(term, variable) for variable in self.unrolled)]
        own: Index = ZERO
        for term in each:
            own = own if term in last else own + term
        rounds: Index = ZERO
        for term in last:
            rounds = rounds + term
        return own + rounds

    def _unit(self, spot: ir.InShared) -> str:
        """Of a tile, in units of sixteen bytes, from the begin of the stage on: so nvcc 13.0 computes what stores to
        several tiles share once."""
        unit = UNIT // ir.ITEM_BYTES[spot.of.dtype]
        *outer, last = (at * stride for at, stride in zip(spot.at, contiguous(spot.tile.sizes), strict=True))
        place = quotient(last, unit)
        for each in reversed(outer):
            place = quotient(each, unit) + place
        return f"{self.tiles[spot.tile]} + {self.names.of(spot.tile)} + {self.index(place, 1)}"

    def pointer(self, of: ir.Tensor | ir.Shared, type_: str = "") -> str:
        """The type of one to it."""
        is_read = isinstance(of, ir.Tensor) and of.access == "read"
        return f"{'const ' * is_read}{type_ or TYPES[of.dtype]}*"

    def address(self, spot: ir.Spot) -> str:
        if isinstance(spot, ir.InShared) and isinstance(spot.of, ir.Pointer) and spot.of.is_of_units:
            return self.offset(spot.of, quotient(self._flat(spot), UNIT // ir.ITEM_BYTES[spot.dtype]), 2)
        if isinstance(spot, ir.InShared) and spot.tile.at_launch:
            return self.offset(spot.of, self._flat(spot))
        return self.offset(spot.of, spot.at if isinstance(spot, ir.Global) else spot.at[0])

    def offset(self, of: ir.Tensor | ir.Shared | ir.Pointer, at: Index, level: int = 0) -> str:
        """What lies so much behind."""
        begin = self.stages.get(of) or self.names.of(of)
        return begin if value_of(at) == 0 else f"{begin} + {self.index(at, level)}"

    def declared(self, fragment: ir.Fragment) -> tuple[str, str]:
        """Type and name of a fragment that begins here."""
        type_, shape = TYPES[fragment.dtype], [self.index(each) for each in fragment.shape]
        if fragment.packed:
            type_ = f"Pack<{type_}, {shape.pop()}>"
        return type_, f"{self.names.give(fragment, fragment.name)}{''.join(f'[{each}]' for each in shape)}"

    def into(self, element: ir.Element, declares: bool) -> str:
        if not declares:
            return self.element(element)
        type_, name = self.declared(element.of)
        return f"const {type_} {name}"
