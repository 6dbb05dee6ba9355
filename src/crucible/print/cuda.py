"""Kernels of the IR as CUDA C++."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import singledispatchmethod
from typing import Literal

from crucible.graph import ITEM_BYTES
from crucible.kernel import nodes as ir
from crucible.kernel.index import (
    Binary,
    Condition,
    Either,
    Index,
    Larger,
    Number,
    Place,
    Size,
    Smaller,
    Variable,
    value_of,
)
from crucible.kernel.verify import check
from crucible.print.functions import preamble
from crucible.print.names import Names
from crucible.target.cuda import CUDA_TYPES, START, STEPS, block, converted, indented
from crucible.write import kernel as launch
from crucible.write.cuda import emit

LONGEST, MOST = 120, 105
"""Characters of a line; of one of a body, which stands further right."""
_MOVES = (ir.Let, ir.Load, ir.Store, ir.Convert, ir.Value)
_LEVEL = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2}
_OPPOSITE: dict[str, Literal["<", ">=", "==", "!="]] = {"<": ">=", ">=": "<", "==": "!="}
_INT_LIMIT = 2**31


def printed(kernel: ir.Kernel) -> launch.Kernel:
    """Text and launch. Raises KernelError for a kernel that does what it must not."""
    check(kernel)
    marked = _Printer(kernel, Names())
    printer = _Printer(kernel, Names(marked.names.words(marked.text())))
    text = printer.text()
    dtypes = [each.dtype for each in kernel.tensors]
    before = preamble(text, dtypes, _precision(kernel), tuple(printer.called))
    reads, writes = (tuple(each.name for each in group) for group in (kernel.reads, kernel.writes))
    return launch.Kernel(kernel.name, text, before, reads, writes, (kernel.blocks, 1, 1), kernel.threads)


def _precision(kernel: ir.Kernel) -> str:
    chains = [node for node in ir.every(kernel.body) if isinstance(node, ir.Chain | ir.Accumulate)]
    doubles = [each for each in chains if "float64" in (getattr(each, "precision", ""), _type_of(each))]
    return "float64" if doubles else "float32"


def _type_of(node: ir.Chain | ir.Accumulate) -> str:
    return node.into.of.dtype if isinstance(node, ir.Accumulate) else ""


class _Printer:
    """One kernel, with names given by `names`."""

    def __init__(self, kernel: ir.Kernel, names: Names) -> None:
        self.kernel, self.names = kernel, names
        self.called: dict[str, None] = {}
        """What arithmetic needs before the kernel."""
        self.used: set[Size] = set()
        for tensor in kernel.tensors:
            names.give(tensor, tensor.name)
        for size in kernel.sizes:
            names.give(size, size.name)

    # the function

    def text(self) -> str:
        """The whole function. Where packs are moved, two instances of one, since a pointer into the middle of a tensor
        may not be aligned to a pack."""
        kernel = self.kernel
        lines = self._body(kernel.body)
        lines = [*self._constants(), *lines]
        notes = [f"// {note}" for note in kernel.notes]
        parameters = [f"{self._pointer(each)} __restrict__ {self.names.of(each)}" for each in kernel.tensors]
        entry = _signature(f"__global__ void __launch_bounds__({kernel.threads}) {kernel.name}", parameters)
        packed = self._packed()
        if not packed:
            return "\n".join([*notes, *entry, *indented(lines), "}"])
        inner = f"{kernel.name}_block"
        given = ", ".join(self.names.of(each) for each in kernel.tensors)
        bytes_ = max(vector * ITEM_BYTES[each.dtype] for each, vector in packed.items())
        choice = [
            f"if (are_aligned<{bytes_}>({', '.join(self.names.of(each) for each in packed)})) {{",
            f"    {inner}<true>({given});",
            "} else {  // a tensor that begins in the middle of another",
            f"    {inner}<false>({given});",
            "}",
        ]
        first = ["template <bool aligned>", *_signature(f"__device__ __forceinline__ void {inner}", parameters)]
        return "\n".join([*notes, *first, *indented(lines), "}", "", *entry, *indented(choice), "}"])

    def _packed(self) -> dict[ir.Tensor, int]:
        """The tensors that are moved a pack at a time, in the order of parameters, and how much at once."""
        found: dict[ir.Tensor, int] = {}
        for node in ir.every(self.kernel.body):
            value = node.into if isinstance(node, ir.Load) else node.value if isinstance(node, ir.Store) else None
            spot = node.source if isinstance(node, ir.Load) else node.to if isinstance(node, ir.Store) else None
            if value is not None and value.is_pack and isinstance(spot, ir.Global):
                found[spot.tensor] = max(value.vector, found.get(spot.tensor, 0))
        return {each: found[each] for each in self.kernel.tensors if each in found}

    def _pointer(self, tensor: ir.Tensor) -> str:
        return f"{'const ' * (tensor.access == 'read')}{CUDA_TYPES[tensor.dtype]}*"

    def _constants(self) -> list[str]:
        """The sizes that the text reads, by name."""
        lines = []
        for size in (each for each in self.kernel.sizes if each in self.used):
            unsigned = "unsigned" if size.value < _INT_LIMIT else "size_t"
            own = self.kernel.index if self.kernel.index in ("int", "long long") else unsigned
            type_ = "int" if size.counts else own
            note = f"  // {size.note}" if size.note else ""
            lines.append(f"constexpr {type_} {self.names.of(size)} = {size.value};{note}")
        return lines

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
            case Place(of="thread"):
                return "threadIdx.x"
            case Place():
                return "static_cast<size_t>(blockIdx.x)" if self.kernel.index == "size_t" else "blockIdx.x"
            case ir.Held(of=element):
                return self.element(element)
            case Smaller(left=left, right=right) | Larger(left=left, right=right) if self.kernel.index == "int":
                call = "min" if isinstance(index, Smaller) else "max"
                words, own = f"{call}({self.index(left)}, {self.index(right)})", 3
            case Smaller(left=left, right=right) | Larger(left=left, right=right):
                one, other = self.index(left, 1), self.index(right, 1)
                words, own = f"{one} {'<' if isinstance(index, Smaller) else '>'} {other} ? {one} : {other}", 0
            case Either(condition=condition, one=left, other=right):
                words, own = f"{self.condition(condition)} ? {self.index(left, 1)} : {self.index(right, 1)}", 0
            case Binary(sign=sign, left=left, right=right):
                own = _LEVEL[sign]
                added = sign == "+" and isinstance(right, Binary) and right.sign == "+"
                words = f"{self.index(left, own)} {sign} {self.index(right, own if added else own + 1)}"
            case _:
                raise TypeError(f"{index} is no index")
        return f"({words})" if own < level else words

    def condition(self, condition: Condition, sign: str = " && ") -> str:
        return sign.join(f"{self.index(each.left, 1)} {each.sign} {self.index(each.right, 1)}" for each in condition)

    def _set(self, variable: Variable) -> str:
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
        at = [spot.at] if isinstance(spot, ir.Global) else spot.at
        return f"{self.names.of(spot.of)}{''.join(f'[{self.index(each)}]' for each in at)}"

    def address(self, spot: ir.Global) -> str:
        base = self.names.of(spot.of)
        return base if value_of(spot.at) == 0 else f"{base} + {self.index(spot.at)}"

    def _declared(self, fragment: ir.Fragment) -> tuple[str, str]:
        """Type and name of a fragment that begins here."""
        type_, shape = CUDA_TYPES[fragment.dtype], [self.index(each) for each in fragment.shape]
        if fragment.packed:
            type_ = f"Pack<{type_}, {shape.pop()}>"
        return type_, f"{self.names.give(fragment, fragment.name)}{''.join(f'[{each}]' for each in shape)}"

    def _into(self, element: ir.Element, declares: bool) -> str:
        if not declares:
            return self.element(element)
        type_, name = self._declared(element.of)
        return f"const {type_} {name}"

    # nodes

    def _body(self, body: Sequence[ir.Node]) -> list[str]:
        found: list[str] = []
        breaks = self.kernel.index in ("int", "long long")  # what goes by unsigned is on record as it is
        for node in body:
            lines = self.lines(node)
            found += (
                [part for line in lines for part in _broken(line)] if breaks and isinstance(node, _MOVES) else lines
            )
        return found

    def _inside(self, head: str, body: Sequence[ir.Node]) -> list[str]:
        """In braces, with names of its own."""
        lines = self._body(body)
        self.names.leave()
        return [*block(head, lines)] if head else ["{", *indented(lines), "}"]

    @singledispatchmethod
    def lines(self, node: object) -> list[str]:
        raise TypeError(f"{type(node).__name__} has no text in CUDA C++")

    @lines.register
    def _(self, node: ir.Let) -> list[str]:
        words = self.index(node.index)
        return [f"const {self._set(node.variable)} = {words};"]

    @lines.register
    def _(self, node: ir.Declare) -> list[str]:
        what = node.what
        if isinstance(what, ir.Shared):
            shape = "".join(f"[{self.index(each)}]" for each in what.shape)
            note = f"  // {what.note}" if what.note else ""
            return [f"__shared__ {CUDA_TYPES[what.dtype]} {self.names.give(what, what.name)}{shape};{note}"]
        if isinstance(what, ir.Pointer):
            address = self.address(ir.Global(what.of, what.offset))
            return [f"{self._pointer(what.of)} {self.names.give(what, what.name)} = {address};"]
        found = [self._declared(each) for each in what]
        start = f" = {self._start(what[0], node.start)}" if node.start else ""
        return [f"{found[0][0]} {', '.join(name for _, name in found)}{start};"]

    @staticmethod
    def _start(fragment: ir.Fragment, kind: str) -> str:
        value = START[kind][fragment.dtype]
        return f"{{{', '.join([value] * fragment.elements)}}}" if fragment.shape else value

    @lines.register
    def _(self, node: ir.For) -> list[str]:
        start, stop, step = self.index(node.start), self.index(node.stop, 1), self.index(node.step)
        self.names.enter()
        set_ = self._set(node.variable)
        name = self.names.of(node.variable)
        on = f"++{name}" if value_of(node.step) == 1 else f"{name} += {step}"
        lines = self._inside(f"for ({set_} = {start}; {name} < {stop}; {on})", node.body)
        return ["#pragma unroll", *lines] if node.unrolled else lines

    @lines.register
    def _(self, node: ir.If) -> list[str]:
        if node.is_rest:
            fails = tuple(replace(each, sign=_OPPOSITE[each.sign]) for each in node.condition)
            return [f"if ({self.condition(fails, ' || ')}) continue;", *self._body(node.body)]
        head = f"if ({self.condition(node.condition)})"
        self.names.enter()
        return self._inside(head, node.body)

    @lines.register
    def _(self, node: ir.Scope) -> list[str]:
        self.names.enter()
        return self._inside("", node.body)

    @lines.register
    def _(self, node: ir.Exit) -> list[str]:
        return [f"if ({self.index(node.variable)} >= {self.index(node.limit)}) return;"]

    @lines.register
    def _(self, node: ir.Note) -> list[str]:
        return [f"// {node.text}" if node.text else ""]

    @lines.register
    def _(self, node: ir.Load) -> list[str]:
        if node.into.is_pack:
            assert isinstance(node.source, ir.Global)
            words = f"load<aligned, {self.index(node.into.of.shape[-1])}>({self.address(node.source)})"
        else:
            words = converted(self.spot(node.source), node.source.dtype, node.into.of.dtype)
        return [f"{self._into(node.into, node.declares)} = {self._guarded(words, node.guard, node.into.of.dtype)};"]

    def _guarded(self, words: str, guard: Condition, dtype: str) -> str:
        """0 where it does not hold."""
        zero = START["sum"].get(dtype) or f"{CUDA_TYPES[dtype]}()"
        return f"{self.condition(guard)} ? {words} : {zero}" if guard else words

    @lines.register
    def _(self, node: ir.Store) -> list[str]:
        if node.value.is_pack:
            assert isinstance(node.to, ir.Global)
            call = "store_plainly" if node.plainly else "store"
            return [f"{call}<aligned>({self.address(node.to)}, {self.element(node.value)});"]
        value = converted(self.element(node.value), node.value.of.dtype, node.to.dtype)
        return [f"{self.spot(node.to)} = {value};"]

    @lines.register
    def _(self, node: ir.Convert) -> list[str]:
        dtype = node.into.of.dtype
        value = self._guarded(converted(self.element(node.value), node.value.of.dtype, dtype), node.guard, dtype)
        return [f"{self._into(node.into, node.declares)} = {value};"]

    @lines.register
    def _(self, node: ir.Chain) -> list[str]:
        inputs = {name: self.element(element) for name, element in node.inputs}
        seen = self.names.seen
        results = {self.names.give(each.of, each.of.name): expr for each, expr in node.results}
        emitted = emit(results, inputs, reserved=seen, precision=node.precision)
        self.called |= dict.fromkeys(emitted.preamble)
        self.names.take(name for name in emitted.names if name not in results)
        return list(emitted.statements)

    @lines.register
    def _(self, node: ir.Value) -> list[str]:
        return [f"{self._into(node.into, True)} = {self.index(node.index)};"]

    @lines.register
    def _(self, node: ir.Choose) -> list[str]:
        """Selects, not branches: nvcc 13.0 makes one branch of `||` for each element."""
        value, taken = self.element(node.value), self.names.give(node, "taken")
        best, choice = self.element(node.best), self.element(node.choice)
        news = {best: value, choice: self.index(node.number)}
        news |= {self.element(into): self.element(new) for into, new in node.along}
        first = f"const bool {taken} = ({choice} < 0) | ({value} > {best}) | isnan({value});"
        return [first, *(f"{into} = {taken} ? {new} : {into};" for into, new in news.items())]

    @lines.register
    def _(self, node: ir.Accumulate) -> list[str]:
        return [STEPS[node.kind].format(self.element(node.into), self.element(node.value))]

    @lines.register
    def _(self, node: ir.Reduce) -> list[str]:
        name, sizes = self.names.of(node.into), ", ".join(self.index(each) for each in node.sizes)
        scratch = f", {self.names.of(node.scratch)}" if node.scratch else ""
        call = f"{node.kind}_over_{node.over}<{sizes}>({name}{scratch});"
        return [call if node.over == "groups" else f"{name} = {call}"]

    @lines.register
    def _(self, node: ir.Sync) -> list[str]:
        return [f"__syncthreads();{f'  // {node.note}' if node.note else ''}"]


def _broken(line: str) -> list[str]:
    """In two, or more, at a sum or an alternative, where it is too long for its place in a body."""
    if len(line) <= MOST:
        return [line]
    cut = max(line.rfind(sign, 0, MOST) for sign in (" + ", " ? ", " : ", " = "))
    return [line[: cut + 2], *(f"    {part}" for part in _broken(line[cut + 3 :]))] if cut > 0 else [line]


def _signature(head: str, parameters: Iterable[str]) -> list[str]:
    *before, last = parameters
    line = f"{head}({', '.join((*before, last))}) {{"
    if len(line) <= LONGEST:
        return [line]
    return [f"{head}(", *(f"    {each}," for each in before), f"    {last}) {{"]
