"""Kernels of the IR as CUDA C++."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import replace

from crucible.kernel import nodes as ir
from crucible.kernel.dispatch import by_type
from crucible.kernel.index import (
    ONE,
    OPPOSITE,
    Condition,
    Index,
    Number,
    Part,
    Table,
    Variable,
    apart,
    quotient,
    value_of,
)
from crucible.kernel.verify import check
from crucible.print import bulk, dealing, scaled, sharing, sliding, streams, warpgroups, warps, windows, written
from crucible.print.chains import emit
from crucible.print.entries import entered, whole
from crucible.print.functions import preamble
from crucible.print.names import Names
from crucible.print.words import TYPES, UNIT, Words
from crucible.target.cuda import AS_WORD, START, STEPS, converted, indented

LONGEST, MOST = 120, 105
"""Characters of a line; of one of a body, which stands further right."""
MANY = 16
"""Zeros that nobody writes out."""
_MOVES = (ir.Let, ir.Load, ir.Store, ir.Convert, ir.Bits, ir.Value, ir.AsyncCopy)
_INT_LIMIT = 2**31


def printed(kernel: ir.Kernel) -> written.Kernel:
    """Text and launch. Raises KernelError for a kernel that does what it must not."""
    check(kernel)
    marked = _Printer(kernel, Names())
    words = whole(marked.entry(), "", 0)
    printer = _Printer(kernel, Names(marked.names.words(words) | {"block_number", kernel.name}))
    entry = printer.entry()
    dtypes = [each.dtype for each in kernel.tensors]
    before = preamble(words, dtypes, _precision(kernel), tuple(printer.called))
    reads, writes = (tuple(each.name for each in group) for group in (kernel.reads, kernel.writes))
    made = entered(kernel.name, entry, before, reads, writes, kernel.blocks, kernel.threads)
    return replace(made, is_light=kernel.is_light, **warpgroups.launched(kernel))


def _precision(kernel: ir.Kernel) -> str:
    chains = [node for node in ir.every(kernel.body) if isinstance(node, ir.Chain | ir.Accumulate)]
    doubles = [each for each in chains if "float64" in (getattr(each, "precision", ""), _type_of(each))]
    return "float64" if doubles else "float32"


def _type_of(node: ir.Chain | ir.Accumulate) -> str:
    return node.into.of.dtype if isinstance(node, ir.Accumulate) else ""


class _Printer(Words):
    """One kernel, node by node."""

    # the function

    def entry(self) -> written.Entry:
        """The whole function."""
        kernel = self.kernel
        asked = warpgroups.memory(self)
        lines = self.body(kernel.body)
        told = [f"__builtin_assume(threadIdx.x < {kernel.threads});"] if kernel.is_told_threads else []
        lines = [*self._constants(), *told, *asked, *lines]
        notes = [f"// {note}" for note in kernel.notes]
        parameters = tuple((f"{self.pointer(each)} __restrict__", self.names.of(each)) for each in kernel.tensors)
        declared = [" ".join(each) for each in parameters]
        bounds = warpgroups.bounds(kernel)
        head = _signature(f"__global__ void __launch_bounds__({kernel.threads}{bounds}) {kernel.name}", declared)
        layout = ("", ", ") if len(head) == 1 else ("\n    ", ",\n    ")
        body, shared = tuple(indented(lines)), self._has_shared()
        return written.Entry(parameters, body, tuple(notes), False, shared, *layout, bounds)

    def _has_shared(self) -> bool:
        """What reduces over more than a warp has some, declared here or by what it calls."""
        for node in ir.every(self.kernel.body):
            if isinstance(node, ir.Declare) and isinstance(node.what, ir.Shared) and not node.what.at_launch:
                return True
            if isinstance(node, ir.Reduce) and node.over not in ("team", "columns"):
                return True
        return False

    def _constants(self) -> list[str]:
        """The sizes that the text reads, by name."""
        lines = []
        for size in (each for each in self.kernel.sizes if each in self.used):
            if isinstance(size, Table):
                lines += _table(self.names.of(size), size)
                continue
            unsigned = "unsigned" if size.value < _INT_LIMIT else "size_t"
            own = self.kernel.index if self.kernel.index in ("int", "long long") else unsigned
            type_ = "int" if size.counts else own
            note = f"  // {size.note}" if size.note else ""
            lines.append(f"constexpr {type_} {self.names.of(size)} = {size.value};{note}")
        return lines

    # nodes

    def body(self, body: Sequence[ir.Node]) -> list[str]:
        found: list[str] = []
        breaks = self.kernel.index in ("int", "long long")  # what goes by unsigned is on record as it is
        for before, node in zip((None, *body), body, strict=False):
            lines = self.lines(node)
            if _excludes(before, node):
                lines[0] = f"else {lines[0]}"
            found += (
                [part for line in lines for part in _broken(line)] if breaks and isinstance(node, _MOVES) else lines
            )
        return found

    @by_type
    def lines(self, node: object) -> list[str]:
        raise TypeError(f"{type(node).__name__} has no text in CUDA C++")

    @lines.register
    def _(self, node: ir.Let) -> list[str]:
        if isinstance(node.index, Part):
            begins, begun = self.names.of(node.index.begins), self.begun(node.variable)
            name = self.names.of(node.variable)
            return [f"{begun} = 0;", f"while (static_cast<int>({written.BLOCK}) >= {begins}[{name} + 1]) ++{name};"]
        words = self.index(node.index)
        words = f"__shfl_sync(0xffffffffu, {words}, 0)" if node.of_warp else words
        return [f"const {self.begun(node.variable)} = {words};"]

    @lines.register
    def _(self, node: ir.Declare) -> list[str]:
        what = node.what
        if isinstance(what, ir.Shared) and what.at_launch:
            return (warps.over if what.base is not what else warpgroups.array)(self, what)
        if isinstance(what, ir.Shared):
            shape = "".join(f"[{self.index(each)}]" for each in what.shape)
            note = f"  // {what.note}" if what.note else ""
            return [f"__shared__ {TYPES[what.dtype]} {self.names.give(what, what.name)}{shape};{note}"]
        if isinstance(what, ir.Pipeline):
            return warpgroups.pipeline(self, what)
        if isinstance(what, ir.Turns):
            return warps.turns(self, what)
        if isinstance(what, Table):
            return _table(self.names.give(what, what.name), what)
        if isinstance(what, ir.Pointer):
            type_ = self.pointer(what.whole, "uint4" * what.is_of_units)
            address = self._begin(what, type_)
            return [f"{type_} {self.names.give(what, what.name)} = {address};"]
        if node.start in ("max", "min") and what[0].elements >= MANY:
            return [line for each in what for line in windows.begun(self, each, START[node.start][each.dtype])]
        start = f" = {self._start(what[0], node.start)}" if node.start else ""
        alike = itertools.groupby(map(self.declared, what), lambda each: each[0])
        return [f"{type_} {', '.join(name for _, name in some)}{start};" for type_, some in alike]

    def _begin(self, what: ir.Pointer, type_: str) -> str:
        """Where it points to."""
        offset = self._elements(what, what.offset)
        units = quotient(offset, UNIT // ir.ITEM_BYTES[what.dtype])
        if isinstance(what.of, ir.Shared) and what.of in self.tiles:
            tile = "" if what.of.at_launch else f" + {self.names.of(what.of)}"
            address = f"{self.tiles[what.of]}{tile} + {self.index(units, 1)}"
            return address if what.is_of_units else f"reinterpret_cast<{type_}>({address})"
        if isinstance(what.of, ir.Pointer) and what.of.is_of_units:
            return self.offset(what.of, units)
        if what.is_of_units and isinstance(what.of, ir.Shared):
            return f"reinterpret_cast<{type_}>({self.names.of(what.of)}) + {self.index(units)}"
        address = self.offset(what.of, offset)
        return f"reinterpret_cast<{type_}>({address})" if what.is_of_units else address

    @staticmethod
    def _elements(pointer: ir.Pointer, count: Index) -> Index:
        """So many of what it counts."""
        return count * math.prod(pointer.whole.sizes[1:]) if isinstance(pointer.whole, ir.Shared) else count

    @staticmethod
    def _start(fragment: ir.Fragment, kind: str) -> str:
        if kind == "sum" and (fragment.elements >= MANY or (fragment.packed and len(fragment.shape) > 1)):
            return "{}"
        value = START[kind][fragment.dtype]
        return f"{{{', '.join([value] * fragment.elements)}}}" if fragment.shape else value

    @lines.register
    def _(self, node: ir.For) -> list[str]:
        start, stop, step = self.index(node.start), self.index(node.stop, 1), self.index(node.step)
        begun, moved = list[str](), list[str]()
        for each in node.along:
            first, by = apart(each.offset, node.variable)
            begun += self.lines(ir.Declare(replace(each, offset=first)))
            self.names.call(each, begun[-1].split()[1])
            units = UNIT // ir.ITEM_BYTES[each.dtype] if each.is_of_units else 1
            moved_by = quotient(self._elements(each, Number(by)), units)
            moved.append(f"{self.names.of(each)} += {self.index(moved_by)};")
        self.names.enter()
        self.unrolled |= {node.variable} if node.unrolled else set()
        set_ = self.begun(node.variable)
        name = self.names.of(node.variable)
        on = f"++{name}" if value_of(node.step) == 1 else f"{name} += {step}"
        on += sliding.counted_on(self, node.body)
        head = f"for ({set_} = {start}; {name} < {stop}; {on})"
        lines = self.inside(head, node.body)
        lines[-1:] = [*indented(moved), lines[-1]]
        if node.is_hidden:
            lines.insert(1, f'    asm volatile("" : "+r"({name}));  // so that rounds are not written out one by one')
        if not node.unrolled:
            return [*begun, *([f"#pragma unroll {node.together}"] if node.together else []), *lines]
        return ["#pragma unroll", *lines]

    @lines.register
    def _(self, node: ir.If) -> list[str]:
        if node.is_rest:
            fails = tuple(replace(each, sign=OPPOSITE[each.sign]) for each in node.condition)
            word = "break" if node.ends else "continue"
            return [f"if ({self.condition(fails, ' || ')}) {word};", *self.body(node.body)]
        head = f"if ({self.condition(node.condition)})"
        self.names.enter()
        lines = self.inside(head, node.body)
        return [*lines[:-1], *self._otherwise(node.otherwise)] if node.otherwise else lines

    def _otherwise(self, body: ir.Body) -> list[str]:
        if len(body) == 1 and isinstance(body[0], ir.If):
            first, *rest = self.body(body)
        else:
            self.names.enter()
            first, *rest = self.inside("", body)
        return [f"}} else {first}", *rest]

    @lines.register
    def _(self, node: ir.Scope) -> list[str]:
        self.names.enter()
        return self.inside("", node.body)

    @lines.register
    def _(self, node: ir.Roles) -> list[str]:
        return warpgroups.roles(self, node)

    @lines.register
    def _(self, node: ir.Fill) -> list[str]:
        return warpgroups.fill(self, node)

    @lines.register
    def _(self, node: ir.Drain) -> list[str]:
        return warpgroups.drain(self, node)

    @lines.register
    def _(self, node: ir.Vacant) -> list[str]:
        return [sliding.vacant(self, node.pipeline)]

    @lines.register
    def _(self, node: ir.Slide) -> list[str]:
        return sliding.slide(self, node)

    @lines.register
    def _(self, node: ir.Deal) -> list[str]:
        return dealing.deal(self, node)

    @lines.register
    def _(self, node: ir.Share) -> list[str]:
        return sharing.share(self, node)

    @lines.register
    def _(self, node: ir.Foresee) -> list[str]:
        return sharing.foresee(self, node)

    @lines.register
    def _(self, node: ir.Ask) -> list[str]:
        return sharing.ask(self, node)

    @lines.register
    def _(self, node: ir.Fetch) -> list[str]:
        return sharing.fetch(self, node)

    @lines.register
    def _(self, node: ir.Meet) -> list[str]:
        return sharing.meet(self, node)

    @lines.register
    def _(self, node: ir.Provide) -> list[str]:
        return sliding.provide(self, node)

    @lines.register
    def _(self, node: ir.Provided) -> list[str]:
        return [sliding.provided(self, node)]

    @lines.register
    def _(self, node: ir.Bring) -> list[str]:
        return sliding.bring(self, node)

    @lines.register
    def _(self, node: ir.Brought) -> list[str]:
        return [sliding.brought(self, node)]

    @lines.register
    def _(self, node: ir.Send) -> list[str]:
        return bulk.send(self, node)

    @lines.register
    def _(self, node: ir.Stretch) -> list[str]:
        return bulk.stretch(self, node)

    @lines.register
    def _(self, node: ir.Leave) -> list[str]:
        return bulk.leave(self, node.pipeline)

    @lines.register
    def _(self, node: ir.InTurn) -> list[str]:
        return bulk.in_turn(self, node)

    @lines.register
    def _(self, node: ir.Collect) -> list[str]:
        return bulk.collect(self, node, sliding.added(self, node))

    @lines.register
    def _(self, node: ir.Carry) -> list[str]:
        return streams.carry(self, node)

    @lines.register
    def _(self, node: ir.MoveOn) -> list[str]:
        return streams.move_on(self, node)

    @lines.register
    def _(self, node: ir.Ahead) -> list[str]:
        return streams.ahead(self, node)

    @lines.register
    def _(self, node: ir.Advance) -> list[str]:
        return streams.advance(self, node)

    @lines.register
    def _(self, node: ir.Prefetch) -> list[str]:
        return streams.prefetch(self, node)

    @lines.register
    def _(self, node: ir.Describe) -> list[str]:
        return sliding.describe(self, node)

    @lines.register
    def _(self, node: ir.Products) -> list[str]:
        return sliding.products(self, node)

    @lines.register
    def _(self, node: ir.Product) -> list[str]:
        return sliding.product(self, node)

    @lines.register
    def _(self, node: ir.Copy) -> list[str]:
        return [f"{self.units(node.to)} = {self.units(node.source, 'const ')};"]

    @lines.register
    def _(self, node: ir.Fence) -> list[str]:
        return ["fence_proxy_async();"]

    @lines.register
    def _(self, node: ir.Split) -> list[str]:
        return warpgroups.split(self, node)

    @lines.register
    def _(self, node: ir.SplitPairs) -> list[str]:
        return warpgroups.split_pairs(self, node)

    @lines.register
    def _(self, node: ir.Largest) -> list[str]:
        return scaled.largest(self, node)

    @lines.register
    def _(self, node: ir.Scale) -> list[str]:
        return scaled.scale(self, node)

    @lines.register
    def _(self, node: ir.SplitScaled) -> list[str]:
        return scaled.split(self, node)

    @lines.register
    def _(self, node: ir.Mma) -> list[str]:
        return warpgroups.mma(self, node)

    @lines.register
    def _(self, node: ir.Promote) -> list[str]:
        return warpgroups.promote(self, node)

    @lines.register
    def _(self, node: ir.Exit) -> list[str]:
        return [f"if ({self.index(node.variable)} >= {self.index(node.limit)}) return;"]

    @lines.register
    def _(self, node: ir.Note) -> list[str]:
        return [f"// {node.text}" if node.text else ""]

    @lines.register
    def _(self, node: ir.Load) -> list[str]:
        if node.into.is_pack and isinstance(node.source, ir.Global) and node.source.dtype == node.into.of.dtype:
            words = f"load<{self.index(node.into.of.shape[-1])}>({self.address(node.source)})"
        elif node.into.is_pack:
            words = self.pack(node.source, node.into.of.dtype, node.into.vector, "const ")
        else:
            words = converted(self.spot(node.source), node.source.dtype, node.into.of.dtype)
        if node.branches and node.guard:
            set_ = " ".join(self.declared(node.into.of)) if node.declares else self.element(node.into)
            return [f"{set_} = {{}};", f"if ({self.condition(node.guard)}) {self.element(node.into)} = {words};"]
        return [f"{self.into(node.into, node.declares)} = {self._guarded(words, node.guard, node.into)};"]

    def _guarded(self, words: str, guard: Condition, into: ir.Element) -> str:
        """0 where it does not hold."""
        dtype = into.of.dtype
        zero = START["sum"].get(dtype) or f"{TYPES[dtype]}()"
        zero = converted("0.0f", "float32", dtype) if dtype in ("float16", "bfloat16") else zero
        zero = f"Pack<{TYPES[dtype]}, {into.vector}>()" if into.is_pack else zero
        return f"{self.condition(guard)} ? {words} : {zero}" if guard else words

    @lines.register
    def _(self, node: ir.Store) -> list[str]:
        if node.value.is_pack and (node.plainly or isinstance(node.to, ir.InShared)):
            return [f"{self.pack(node.to, node.value.of.dtype, node.value.vector)} = {self.element(node.value)};"]
        if node.value.is_pack:
            assert isinstance(node.to, ir.Global)
            return [f"store({self.address(node.to)}, {self.element(node.value)});"]
        value, dtype = self.element(node.value), node.value.of.dtype
        is_half = isinstance(node.to, ir.InShared) and node.to.halved
        value = AS_WORD[dtype].format(value) if is_half else converted(value, dtype, node.to.dtype)
        return [f"{self.spot(node.to)} = {value};"]

    @lines.register
    def _(self, node: ir.Convert) -> list[str]:
        dtype = node.into.of.dtype
        value = converted(self.element(node.value), node.value.of.dtype, dtype)
        if node.mask:
            value = f"{value} & {self.element(node.mask)}"
        elif node.otherwise:
            value = f"{self.condition(node.guard)} ? {value} : {self.element(node.otherwise)}"
        else:
            value = self._guarded(value, node.guard, node.into)
        return [f"{self.into(node.into, node.declares)} = {value};"]

    @lines.register
    def _(self, node: ir.Bits) -> list[str]:
        words = [AS_WORD[each.of.dtype].format(self.element(each)) for each in node.values]
        word = f"{words[0]} | static_cast<unsigned>({words[1]}) << 16" if words[1:] else words[0]
        word = f"static_cast<int>({word})" if node.into.of.dtype == "int32" else word
        return [f"{self.into(node.into, True)} = {word};"]

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
        index = "true" if node.into.of.dtype == "bool" and node.index == ONE else self.index(node.index)
        return [f"{self.into(node.into, node.declares)} = {index};"]

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
        step = "{0} &= {1};" if node.kind == "all" else STEPS[node.kind]
        return [step.format(self.element(node.into), self.element(node.value))]

    @lines.register
    def _(self, node: ir.Reduce) -> list[str]:
        name, sizes = self.names.of(node.into), ", ".join(self.index(each) for each in node.sizes)
        scratch = f", {self.names.of(node.scratch)}" if node.scratch else ""
        call = f"{node.kind}_over_{node.over}<{sizes}>({name}{scratch});"
        return [call if node.over == "groups" else f"{name} = {call}"]

    @lines.register
    def _(self, node: ir.AsyncCopy) -> list[str]:
        return warps.async_copy(self, node)

    @lines.register
    def _(self, node: ir.Turn) -> list[str]:
        return warps.turn(self, node)

    @lines.register
    def _(self, node: ir.Own) -> list[str]:
        self.names.enter()
        return self.inside("", node.body)

    @lines.register
    def _(self, node: ir.LoadMatrix) -> list[str]:
        return warps.load_matrix(self, node)

    @lines.register
    def _(self, node: ir.WarpMma) -> list[str]:
        return warps.mma(self, node)

    @lines.register
    def _(self, node: ir.LoadTiles) -> list[str]:
        return warps.load_tiles(self, node)

    @lines.register
    def _(self, node: ir.MultiplyTiles) -> list[str]:
        return warps.multiply_tiles(self, node)

    @lines.register
    def _(self, node: ir.Take) -> list[str]:
        return windows.take(self, node)

    @lines.register
    def _(self, node: ir.Flip) -> list[str]:
        return [f"{self.element(node.into)} = {self.element(node.value)} ^ {self.element(node.signs)};"]

    @lines.register
    def _(self, node: ir.Vote) -> list[str]:
        return [f"{self.into(node.into, True)} = __all_sync(0xffffffffu, {self.condition(node.condition)});"]

    @lines.register
    def _(self, node: ir.Exchange) -> list[str]:
        return [f"{self.into(node.into, True)} = exchanged_bytes({self.element(node.values)});"]

    @lines.register
    def _(self, node: ir.Sync) -> list[str]:
        if node.of in ("role", "team"):
            return bulk.sync(self, node)
        call = "__syncthreads" if node.of == "block" else "__syncwarp"
        return [f"{call}();{f'  // {node.note}' if node.note else ''}"]


def _excludes(one: ir.Node | None, other: ir.Node) -> bool:
    """Whether of two conditions, one behind the other, one holds at most: that a variable is this number, or that."""
    if not isinstance(one, ir.If) or not isinstance(other, ir.If) or len(one.condition + other.condition) != 2:
        return False
    if one.otherwise or other.is_rest:  # text of these does not go on with `else`, or ends the round where it does
        return False
    (first,), (second,) = one.condition, other.condition
    alike = first.sign == second.sign == "==" and isinstance(first.left, Variable) and first.left is second.left
    return alike and _differ(first.right, second.right)


def _differ(one: Index, other: Index) -> bool:
    return isinstance(one, Number) and isinstance(other, Number) and one != other


def _broken(line: str) -> list[str]:
    """In two, or more, at a sum or an alternative, where it is too long for its place in a body."""
    if len(line) <= MOST:
        return [line]
    cut = max(line.rfind(sign, 0, MOST) for sign in (" + ", " ? ", " : ", " = "))
    return [line[: cut + 2], *(f"    {part}" for part in _broken(line[cut + 3 :]))] if cut > 0 else [line]


def _table(name: str, table: Table) -> list[str]:
    words = textwrap.wrap(", ".join(map(str, table.values)), MOST - 10)
    head, note = f"constexpr int {name}[{len(table.values)}] = {{", f"  // {table.note}" if table.note else ""
    if table.in_word:
        word = sum(value << 4 * number for number, value in enumerate(table.values))
        return [f"constexpr unsigned long long {name} = {word:#x};{note}"]
    if len(words) == 1 and len(head + words[0]) < MOST:
        return [f"{head}{words[0]}}};{note}"]
    return [head, *(f"    {line}" for line in words), f"}};{note}"]


def _signature(head: str, parameters: Iterable[str]) -> list[str]:
    *before, last = parameters
    line = f"{head}({', '.join((*before, last))}) {{"
    if len(line) <= LONGEST:
        return [line]
    return [f"{head}(", *(f"    {each}," for each in before), f"    {last}) {{"]
