"""One kernel: a program in a geometry, as text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from crucible.write.cuda import emit
from crucible.write.expression import Expr, name_of, parameter, substitute, tensor
from crucible.write.families.geometry import Geometry
from crucible.write.families.layout import ITEM_BYTES, Access, Offsets, Tensor, access
from crucible.write.families.passes import Pass, fresh, hoisted, kept, loaded, noun, passes
from crucible.write.families.source import (
    CUDA_TYPES,
    HELPERS,
    INCLUDES,
    START,
    STEPS,
    block,
    combining,
    converted,
    indented,
    unrolled,
)
from crucible.write.kernel import Kernel
from crucible.write.program import Operand, Program, Reduction, Result
from crucible.write.tidy import is_of_rows

WORDS = frozenset(
    "row column i elements chunk thread lane group tile k j begin end team groups lanes vector packs threads rows columns chunks "
    "block_rows chunk_columns step aligned load store Pack are_aligned max_nan min_nan".split()
) | {f"{kind}_over_{scope}" for kind in STEPS for scope in ("team", "block", "groups")}
"""What kernels themselves call things."""
CALLED = frozenset("exp expm1 log log1p sin cos erf tanh sqrt rsqrt pow fabs fma".split())
"""Functions that a tensor of that name would hide."""


def kernel(program: Program, geometry: Geometry, name: str, about: str) -> Kernel:
    """The kernel that computes a program. Where a row has several blocks, `<reduction>_parts` takes what each of
    them found instead of row results: [row][chunk] along columns, [chunk][row] along rows."""
    return _Body(program, geometry, name, about).kernel()


@dataclass
class _Body:
    program: Program
    geometry: Geometry
    name: str
    about: str
    taken: set[str] = field(default_factory=set)
    said: list[str] = field(default_factory=list)
    """Lines at the kernel's outer level: what they name is in use everywhere below."""
    preamble: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        program = self.program
        self.along_rows = self.geometry.along == "rows"
        self.column, self.columns = ("column", "columns") if program.reductions else ("i", "elements")
        self.split = self.geometry.chunks > 1 and bool(program.reductions)
        self.parts = {r.name: f"{r.name}_parts" for r in program.reductions} if self.split else {}
        names = [each.name for each in (*program.operands, *program.reductions, *program.results)]
        self.taken |= {*WORDS, *names, *self.parts.values()}
        self.words = {name: fresh(f"{name}_", self.taken) if name in WORDS | CALLED else name for name in names}
        self.words |= {part: part for part in self.parts.values()}
        self.of_rows = [each for each in program.operands if is_of_rows(each, program.rows)]
        shared = {each.name for each in self.of_rows} | {r.name for r in program.reductions}
        self.shared = frozenset(shared)
        self.values = {each.name: fresh(f"{self.words[each.name]}_value", self.taken) for each in program.operands}
        self.leaves = {**self.values, **{r.name: self.words[r.name] for r in program.reductions}}
        if self.along_rows:
            self.leaves |= {name: f"{self.leaves[name]}[j]" for name in shared}
        self.offsets = Offsets(program)
        self.type = CUDA_TYPES[program.precision]
        self.base: dict[str, str] = {}
        self.row_values: dict[Expr, Expr] = {}

    def kernel(self) -> Kernel:
        lines = [*self._head(), *self._bases(), *self._row_values(), *self._passes(), *self._ends()]
        text = "\n".join(lines)
        geometry, program = self.geometry, self.program
        reads = tuple(each.name for each in program.operands)
        writes = tuple(each.name for each in program.results if not (self.split and program.is_per_row(each)))
        writes += tuple(self.parts.values())
        return Kernel(
            self.name,
            self._function(lines, self._constants(text), reads, writes),
            self._preamble(text),
            reads,
            writes,
            (geometry.blocks(program.row_count), 1, 1),
            geometry.threads,
        )

    # the frame

    def _function(self, lines: list[str], constants: list[str], reads: Sequence[str], writes: Sequence[str]) -> str:
        dtypes = {each.name: each.dtype for each in (*self.program.operands, *self.program.results)}
        types = {name: CUDA_TYPES[dtypes.get(name, self.program.precision)] for name in (*reads, *writes)}
        given = [f"const {types[name]}* __restrict__ {self.words[name]}" for name in reads]
        given += [f"{types[name]}* __restrict__ {self.words[name]}" for name in writes]
        body = [*constants, *lines]
        comment = [f"// {line}" for line in self.about.split("\n")]
        bounds = f"__global__ void __launch_bounds__({self.geometry.threads})"
        packed = [name for name in (*reads, *writes) if name in self.packed]
        if not packed:
            return "\n".join([*comment, *_signature(f"{bounds} {self.name}", given), *indented(body), "}"])
        inner = fresh(f"{self.name}_block", self.taken)
        passed = ", ".join(self.words[name] for name in (*reads, *writes))
        bytes_ = max(self.geometry.vector * ITEM_BYTES[dtypes[name]] for name in packed)
        entry = [
            f"if (are_aligned<{bytes_}>({', '.join(self.words[name] for name in packed)})) {{",
            f"    {inner}<true>({passed});",
            "} else {  // a tensor that begins in the middle of another",
            f"    {inner}<false>({passed});",
            "}",
        ]
        return "\n".join(
            [
                *comment,
                "template <bool aligned>",
                *_signature(f"__device__ __forceinline__ void {inner}", given),
                *indented(body),
                "}",
                "",
                *_signature(f"{bounds} {self.name}", given),
                *indented(entry),
                "}",
            ]
        )

    @property
    def packed(self) -> set[str]:
        """The tensors that are read or written a pack at a time."""
        tensors: list[Tensor] = [*self.program.operands, *self.program.results]
        return {each.name for each in tensors if self._access(each) == "pack" and self._is_wide(each)}

    def _is_wide(self, tensor: Tensor) -> bool:
        """Whether it is read or written for each element."""
        if isinstance(tensor, Result):
            return not self.program.is_per_row(tensor)
        return not is_of_rows(tensor, self.program.rows)

    def _constants(self, text: str) -> list[str]:
        """Those that the text reads."""
        program, geometry = self.program, self.geometry
        sizes = {
            "rows": program.row_count,
            self.columns: program.column_count,
            "threads": geometry.threads,
            "team": geometry.team,
            "groups": geometry.team,
            "lanes": geometry.lanes,
            "vector": geometry.vector,
            "packs": geometry.packs,
            "block_rows": geometry.block_rows,
            "chunks": geometry.chunks,
            "chunk_columns": geometry.chunk,
            "step": geometry.tile,
        }
        said = {
            "packs": "of a thread",
            "vector": "neighbours that a thread takes at once",
            "team": "threads that share a row",
            "groups": "threads that share a row",
            "lanes": "threads side by side",
            "block_rows": "of a block",
            "chunks": "blocks that share a row",
            "chunk_columns": "of a block",
            "step": "columns that a block takes at once" if geometry.looped else "of a block",
        }
        words = set(re.findall(r"\w+", text))
        lines = []
        for name, value in [*sizes.items(), *sorted(self.offsets.constants.items())]:
            if name in words:
                type_ = "int" if name in ("vector", "packs", "team", "threads", "groups", "lanes") else "unsigned"
                type_ = "size_t" if value >= 2**31 else type_
                comment = f"  // {said[name]}" if name in said else ""
                lines.append(f"constexpr {type_} {name} = {value};{comment}")
        return lines

    def _preamble(self, text: str) -> tuple[str, ...]:
        words = set(re.findall(r"\w+", text))
        helpers = dict(HELPERS) if self.packed else {"Pack": HELPERS["Pack"]}
        kinds = [kind for kind in STEPS if any(r.kind == kind for r in self.program.reductions)]
        for kind in kinds:
            each = combining(kind)
            if f"{kind}_over_block" in words:
                words.add(f"{kind}_over_team")
            helpers |= each
        if self.packed:
            words.add("are_aligned")
        if "max" in kinds:
            self.preamble |= dict.fromkeys(
                emit({"x": tensor("a").maximum(tensor("b"))}, precision=self.program.precision).preamble
            )
        dtypes = [each.dtype for each in (*self.program.operands, *self.program.results)]
        includes = [INCLUDES[dtype] for dtype in INCLUDES if dtype in dtypes]
        own = [*includes, *self.preamble]
        first = [part for part in own if part.startswith("#include")]
        rest = [part for part in own if not part.startswith("#include")]
        return tuple(dict.fromkeys([*first, *rest, *(helpers[word] for word in helpers if word in words)]))

    # where a thread stands

    def _head(self) -> list[str]:
        geometry, index = self.geometry, self.geometry.index
        own = "blockIdx.x" if index == "unsigned" else f"static_cast<{index}>(blockIdx.x)"
        lines = []
        place = own
        if geometry.chunks > 1 and self.program.row_count > geometry.block_rows:
            place = f"{own} / chunks"
            lines.append(f"const {index} chunk = {own} % chunks;")
        elif geometry.chunks > 1:
            place = ""
            lines.append(f"const {index} chunk = {own};")
        lines += self._threads(place)
        if geometry.looped and geometry.chunks > 1:
            lines.append(f"const {index} begin = chunk * chunk_columns;")
            lines.append(
                f"const {index} end = begin + chunk_columns < {self.columns} ? begin + chunk_columns : {self.columns};"
            )
        return lines

    def _threads(self, place: str) -> list[str]:
        geometry, index = self.geometry, self.geometry.index
        rows = self.program.row_count
        if self.along_rows:
            base = f"({place} * lanes + threadIdx.x % lanes)" if place else "threadIdx.x % lanes"
            lines = [f"const {index} row = {base}{' * vector' if geometry.vector > 1 else ''};"]
            if geometry.team > 1:
                lines.append("const unsigned group = threadIdx.x / lanes;")
            return [*lines, *(["if (row >= rows) return;"] if rows % geometry.block_rows else [])]
        if geometry.team == geometry.threads:
            return [f"const {index} row = {place};"] if rows > 1 else []
        lines = ["const unsigned thread = threadIdx.x % team;"] if geometry.team > 1 else []
        own = "threadIdx.x / team" if geometry.team > 1 else "threadIdx.x"
        lines.append(f"const {index} row = {f'{place} * block_rows + ' if place else ''}{own};")
        if rows % geometry.block_rows and geometry.team >= 32:
            lines.append("if (row >= rows) return;")
        return lines

    @property
    def _some_rows_missing(self) -> bool:
        """Whether lanes of a warp may stand beyond the last row; they must take part in shuffles."""
        geometry = self.geometry
        return not self.along_rows and geometry.team < 32 and self.program.row_count % geometry.block_rows != 0

    def _bases(self) -> list[str]:
        """A pointer to the row, for each tensor that is read or written for each element."""
        lines = []
        tensors: list[Tensor] = [*self.program.operands, *self.program.results]
        for each in filter(self._is_wide, tensors):
            word = self.words[each.name]
            self.base[each.name] = word
            offset = self.offsets.of(word, each, "row", 0, self.program.rows)
            if offset != "0" and not (self.along_rows and self._access(each) == "each"):
                self.base[each.name] = fresh(f"{word}_row", self.taken)
                const = "const " if isinstance(each, Operand) else ""
                lines.append(f"{const}{CUDA_TYPES[each.dtype]}* {self.base[each.name]} = {word} + {offset};")
        return lines

    # what a row shares

    def _row_values(self) -> list[str]:
        lines = []
        for each in self.of_rows:
            value, word = self.values[each.name], self.words[each.name]
            index = "row + j" if self.along_rows and self.geometry.vector > 1 else "row"
            offset = self.offsets.of(word, each, index, 0, self.program.rows)
            words = converted(f"{word}[{offset}]", each.dtype, self.program.precision)
            if self._some_rows_missing:
                words = f"row < rows ? {words} : {START['sum'][self.program.precision]}"
            if self.along_rows:
                lines += [f"{self.type} {value}[vector];", *unrolled("j", "vector", [f"{value}[j] = {words};"])]
            else:
                lines.append(f"const {self.type} {value} = {words};")
        self.said += lines
        return lines

    def _of_rows(self, exprs: Mapping[str, Expr]) -> list[str]:
        """Values for each row, under their names."""
        if not exprs:
            return []
        if not self.along_rows:
            lines = self._emit(exprs, self.leaves)
            self.said += lines
            self.leaves |= {name: name for name in exprs}
            return lines
        inner = {fresh(f"{name}_value", self.taken): (name, expr) for name, expr in exprs.items()}
        lines = self._emit({value: expr for value, (_, expr) in inner.items()}, self.leaves)
        stored = [f"{name}[j] = {value};" for value, (name, _) in inner.items()]
        self.leaves |= {name: f"{name}[j]" for name in exprs}
        arrays = ", ".join(f"{name}[vector]" for name in exprs)
        lines = [f"{self.type} {arrays};", *unrolled("j", "vector", [*lines, *stored])]
        self.said += lines
        return lines

    def _emit(self, exprs: Mapping[str, Expr], names: Mapping[str, str]) -> list[str]:
        emitted = emit(exprs, names, reserved=[*self.said, *self.taken], precision=self.program.precision)
        self.preamble |= dict.fromkeys(emitted.preamble)
        return list(emitted.statements)

    def _named(
        self, exprs: Mapping[str, Expr], suffix: str, names: Mapping[str, str]
    ) -> tuple[list[str], dict[str, str]]:
        """Statements for the values, and what each is called: `<name>_<suffix>`, or what it is read as."""
        words = {name: names[name_of(expr)] for name, expr in exprs.items() if expr.kind in ("tensor", "parameter")}
        rest = {name: expr for name, expr in exprs.items() if name not in words}
        called: dict[Expr, str] = {}
        for name, expr in rest.items():
            called.setdefault(expr, fresh(f"{self.words.get(name, name)}_{suffix}", self.taken))
        lines = self._emit({word: expr for expr, word in called.items()}, names) if rest else []
        return lines, {**words, **{name: called[expr] for name, expr in rest.items()}}

    # passes

    def _passes(self) -> list[str]:
        steps = passes(self.program)
        between = [] if self.geometry.looped else kept(self.program)
        lines: list[str] = []
        held: dict[Expr, str] = {}
        for number, step in enumerate(steps):
            wanted = between[number] if number < len(between) else ()
            keep = {node: held.get(node) or fresh(f"kept_{noun(node)}", self.taken) for node in wanted}
            lines += ["", f"// pass {number + 1}"] if len(steps) > 1 else [""]
            lines += self._pass(step, held, keep)
            held = keep
        return lines

    def _pass(self, step: Pass, held: dict[Expr, str], keep: dict[Expr, str]) -> list[str]:
        new = {node: name for node, name in keep.items() if node not in held}
        known = {**self.row_values, **{node: tensor(name) for node, name in held.items()}}
        roots = tuple(substitute(expr, known) for expr in (*step.roots, *new))
        rest, shared = hoisted(roots, self.shared, self.taken)
        lines = self._of_rows(shared)
        self.row_values |= {node: parameter(name) for name, node in shared.items()}
        self.shared |= frozenset(shared)
        names = [*(each.name for each in (*step.reductions, *step.results)), *new.values()]
        lines += [f"{self.type} {name}{self._sized};" for name in new.values()]
        lines += [self._start(reduction) for reduction in step.reductions]
        self.said += lines
        self.leaves |= {name: f"{name}{self._held}" for name in keep.values()}
        lines += self._tiles(step, dict(zip(names, rest, strict=True)))
        for reduction in step.reductions:
            lines += self._combined(reduction)
        return lines

    def _start(self, reduction: Reduction) -> str:
        start = START[reduction.kind][self.program.precision]
        word = self.words[reduction.name]
        if self.along_rows:
            return f"{self.type} {word}[vector] = {{{', '.join([start] * self.geometry.vector)}}};"
        return f"{self.type} {word} = {start};"

    def _combined(self, reduction: Reduction) -> list[str]:
        """Over all threads that share a row."""
        geometry, word, kind = self.geometry, self.words[reduction.name], reduction.kind
        parts = fresh(f"{word}_shared", self.taken)
        if geometry.team == 1:
            return []
        if self.along_rows:
            shared = f"__shared__ {self.type} {parts}[groups][vector][lanes];"
            return [shared, f"{kind}_over_groups<groups>({word}, {parts});"]
        if geometry.team <= 32:
            return [f"{word} = {kind}_over_team<team>({word});"]
        shared = f"__shared__ {self.type} {parts}[threads / 32];"
        return [shared, f"{word} = {kind}_over_block<threads>({word}, {parts});"]

    @property
    def _sized(self) -> str:
        packs, vector = self.geometry.packs > 1, self.geometry.vector > 1
        return ("[packs]" if packs else "") + ("[vector]" if vector else "")

    @property
    def _held(self) -> str:
        packs, vector = self.geometry.packs > 1, self.geometry.vector > 1
        return ("[k]" if packs else "") + ("[j]" if vector else "")

    def _tiles(self, step: Pass, exprs: dict[str, Expr]) -> list[str]:
        """The loads of a tile, then its arithmetic and stores."""
        geometry = self.geometry
        operands = [self.program.operand(name) for name in loaded(self.program, tuple(exprs.values()))]
        direct = geometry.packs == 1 and not self._in_pack
        words = {each.name: fresh(f"{self.words[each.name]}_read", self.taken) for each in operands if not direct}
        declared = [self._declared(each, words[each.name]) for each in operands if not direct]
        loads = [line for each in operands for line in self._loaded(each, words.get(each.name))]
        body = self._arithmetic(operands, words, exprs, step)
        if geometry.packs == 1:
            lines = self._guarded([*declared, *loads, *body])
        else:
            lines = [*declared, *(unrolled("k", "packs", self._guarded(loads)) if loads else [])]
            lines += unrolled("k", "packs", self._guarded(body))
        if geometry.looped:
            start, stop = ("begin", "end") if geometry.chunks > 1 else ("0", self.columns)
            return block(f"for ({geometry.index} tile = {start}; tile < {stop}; tile += step)", lines)
        return ["{", *indented(lines), "}"] if len(passes(self.program)) > 1 else lines

    @property
    def _in_pack(self) -> bool:
        """Whether arithmetic stands in a loop over the elements of a pack."""
        return self.geometry.vector > 1 or self.along_rows

    def _guarded(self, lines: list[str]) -> list[str]:
        """With the column that the lines read, and only where there is one."""
        guard = self._guard()
        inner = block(f"if ({guard})", lines) if guard else lines
        needed = re.search(rf"\b{self.column}\b", "\n".join(inner))
        return [*([f"const {self.geometry.index} {self.column} = {self._column()};"] if needed else []), *inner]

    def _column(self) -> str:
        """Of the first element of a pack."""
        geometry = self.geometry
        own = "threadIdx.x" if geometry.team == geometry.threads else "thread"
        count = "threads" if geometry.team == geometry.threads else "team"
        if self.along_rows:
            own, count = "group", "groups"
        own = own if geometry.team > 1 else ""
        place = f"k * {count} + {own}" if geometry.packs > 1 and own else "k" if geometry.packs > 1 else own
        if not self.along_rows and geometry.vector > 1:
            place = f"({place}) * vector" if " " in place else f"{place} * vector" if place else ""
        start = "tile" if geometry.looped else "chunk * step" if geometry.chunks > 1 else ""
        return " + ".join(part for part in (start, place) if part) or "0"

    def _guard(self) -> str:
        geometry = self.geometry
        conditions = ["row < rows"] if self._some_rows_missing else []
        size = geometry.chunk if geometry.looped else geometry.tile
        exact = self.program.column_count % size == 0 if geometry.chunks > 1 else True
        exact = exact and (geometry.chunk if geometry.chunks > 1 else self.program.column_count) % geometry.tile == 0
        if not exact:
            end = "end" if geometry.looped and geometry.chunks > 1 else self.columns
            conditions.append(f"{self.column} < {end}")
        return " && ".join(conditions)

    # elements

    def _access(self, tensor: Tensor) -> Access:
        rows = self.program.rows
        strides = tensor.strides + (0,) * (len(self.program.shape) - len(tensor.strides))
        own, others = (strides[:rows], strides[rows:]) if self.along_rows else (strides[rows:], strides[:rows])
        sizes = self.program.shape[:rows] if self.along_rows else self.program.shape[rows:]
        return access(sizes, own, others, self.geometry.vector) if self.geometry.vector > 1 else "same"

    def _place(self, tensor: Tensor, each: bool) -> str:
        """The element's address, from the tensor's row on, for the j-th of the pack where `each`."""
        rows, dims = self.program.rows, len(self.program.shape)
        word = self.words[tensor.name]
        if self.along_rows:
            column = self.offsets.of(word, tensor, self.column, rows, dims)
            row = self.offsets.of(word, tensor, "row + j", 0, rows) if each else "0"
            return " + ".join(part for part in (row, column) if part != "0") or "0"
        return self.offsets.of(word, tensor, f"{self.column} + j" if each else self.column, rows, dims)

    def _declared(self, operand: Operand, buffer: str) -> str:
        type_, packs = CUDA_TYPES[operand.dtype], "[packs]" if self.geometry.packs > 1 else ""
        if self._access(operand) == "same":
            return f"{type_} {buffer}{packs};"
        return f"Pack<{type_}, vector> {buffer}{packs};"

    def _loaded(self, operand: Operand, buffer: str | None) -> list[str]:
        """Into the buffer, or into the value itself."""
        k, base = "[k]" if self.geometry.packs > 1 else "", self.base[operand.name]
        place = self._place(operand, self._access(operand) == "each")
        if buffer is None:
            value = converted(f"{base}[{place}]", operand.dtype, self.program.precision)
            return [f"const {self.type} {self.values[operand.name]} = {value};"]
        match self._access(operand):
            case "same":
                return [f"{buffer}{k} = {base}[{place}];"]
            case "pack":
                return [f"{buffer}{k} = load<aligned, vector>({_plus(base, place)});"]
            case "each":
                return unrolled("j", "vector", [f"{buffer}{k}.at[j] = {base}[{place}];"])

    def _arithmetic(
        self, operands: list[Operand], buffers: dict[str, str], exprs: dict[str, Expr], step: Pass
    ) -> list[str]:
        precision, k = self.program.precision, "[k]" if self.geometry.packs > 1 else ""
        lines = []
        for each in operands:
            if each.name in buffers:
                at = "" if self._access(each) == "same" else ".at[j]"
                value = converted(f"{buffers[each.name]}{k}{at}", each.dtype, precision)
                lines.append(f"const {self.type} {self.values[each.name]} = {value};")
        own, words = self._named(exprs, "value", self.leaves)
        lines += own
        lines += [STEPS[r.kind].format(self.leaves[r.name], words[r.name]) for r in step.reductions]
        kept_ = list(exprs)[len(step.reductions) + len(step.results) :]
        lines += [f"{name}{self._held} = {words[name]};" for name in kept_]
        declared, stores = [], []
        for result in step.results:
            before, inside, after = self._stored(result, converted(words[result.name], precision, result.dtype))
            declared += before
            lines += inside
            stores += after
        return [*declared, *(unrolled("j", "vector", lines) if self._in_pack else lines), *stores]

    def _stored(self, result: Result, value: str) -> tuple[list[str], list[str], list[str]]:
        """Lines before, in and after the loop over a pack."""
        base, found = self.base[result.name], self._access(result)
        place = self._place(result, found != "pack" and self.geometry.vector > 1)
        if found != "pack":
            return [], [f"{base}[{place}] = {value};"], []
        pack = fresh(f"{self.words[result.name]}_pack", self.taken)
        declared = [f"Pack<{CUDA_TYPES[result.dtype]}, vector> {pack};"]
        return declared, [f"{pack}.at[j] = {value};"], [f"store<aligned>({_plus(base, place)}, {pack});"]

    # the ends of rows

    def _ends(self) -> list[str]:
        """Row results, or what this block found of them."""
        geometry, program = self.geometry, self.program
        if self.split:
            body = [self._part(reduction) for reduction in program.reductions]
        else:
            results = [result for result in program.results if program.is_per_row(result)]
            if not results:
                return []
            known = {r.name: substitute(r.expr, self.row_values) for r in results}
            body, words = self._named(known, "value", self.leaves)
            body += [self._row_store(result, words[result.name]) for result in results]
        if self.along_rows:
            body = unrolled("j", "vector", body)
        own = "group" if self.along_rows else "threadIdx.x" if geometry.team == geometry.threads else "thread"
        conditions = [f"{own} == 0"] if geometry.team > 1 else []
        conditions += ["row < rows"] if self._some_rows_missing else []
        return ["", *(block(f"if ({' && '.join(conditions)})", body) if conditions else body)]

    def _row_store(self, result: Result, value: str) -> str:
        index = "row + j" if self.along_rows and self.geometry.vector > 1 else "row"
        word = self.words[result.name]
        offset = self.offsets.of(word, result, index, 0, self.program.rows)
        return f"{word}[{offset}] = {converted(value, self.program.precision, result.dtype)};"

    def _part(self, reduction: Reduction) -> str:
        if self.along_rows:
            row = "row + j" if self.geometry.vector > 1 else "row"
            place = f"chunk * rows + {row}"
        else:
            place = "row * chunks + chunk" if self.program.row_count > 1 else "chunk"
        return f"{self.parts[reduction.name]}[{place}] = {self.leaves[reduction.name]};"


def _plus(base: str, offset: str) -> str:
    return base if offset == "0" else f"{base} + {offset}"


def _signature(head: str, given: list[str]) -> list[str]:
    line = f"{head}({', '.join(given)}) {{"
    return (
        [line] if len(line) <= 120 else [f"{head}(", *(f"    {each}," for each in given[:-1]), f"    {given[-1]}) {{"]
    )
