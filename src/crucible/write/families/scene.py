"""What is known while a kernel is being written: its program, its geometry, and what everything is called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from crucible.write.cuda import emit
from crucible.write.expression import Expr, name_of
from crucible.write.families.geometry import Geometry
from crucible.write.families.layout import Access, Offsets, Tensor, access, wide
from crucible.write.families.passes import fresh
from crucible.write.families.source import CUDA_TYPES, STEPS
from crucible.write.program import Operand, Program, Result
from crucible.write.tidy import is_of_rows

WORDS = frozenset({
    "row", "column", "i", "j", "k", "elements", "rows", "columns", "chunk", "chunks", "chunk_columns", "thread",
    "threads", "team", "group", "groups", "lanes", "tile", "step", "begin", "end", "vector", "packs", "block_rows",
    "row_blocks", "first_row", "t", "brought",
    "aligned", "load", "store", "Pack", "are_aligned", "max_nan", "min_nan", "exp2_approx", "reciprocal_approx",
    *(f"{kind}_over_{scope}" for kind in STEPS for scope in ("team", "block", "groups")),
})  # fmt: skip
"""What kernels themselves call things."""
CALLED = frozenset({"exp", "expm1", "log", "log1p", "sin", "cos", "erf", "tanh", "sqrt", "rsqrt", "pow", "fabs", "fma"})
"""Functions that a tensor of that name would hide."""


@dataclass
class Scene:
    """Names taken and lines said so far."""

    program: Program
    geometry: Geometry
    taken: set[str] = field(default_factory=set)
    """Words that are in use."""
    said: list[str] = field(default_factory=list)
    """Lines at the kernel's outer level: what they name is in use everywhere below."""
    preamble: dict[str, None] = field(default_factory=dict)
    """What arithmetic needs before the kernel."""
    base: dict[str, str] = field(default_factory=dict)
    """Pointers from which elements are counted: to the tensor, or to its row."""
    tiles: dict[str, str] = field(default_factory=dict)
    """Arrays in shared memory, of tensors that are turned round there."""
    row_values: dict[Expr, Expr] = field(default_factory=dict)
    """Values that a row shares and that were computed, and what reads them."""

    def __post_init__(self) -> None:
        program = self.program
        self.along_rows = self.geometry.along == "rows"
        whole = not program.reductions and not program.rows
        self.column, self.columns = ("i", "elements") if whole else ("column", "columns")
        self.split = self.geometry.chunks > 1 and bool(program.reductions)
        self.parts = {r.name: f"{r.name}_parts" for r in program.reductions} if self.split else {}
        operands = [each.name for each in program.operands]
        names = [*operands, *(r.name for r in program.reductions), *(r.name for r in program.results)]
        self.taken |= {*WORDS, *names, *self.parts.values()}
        self.words = {name: fresh(f"{name}_", self.taken) if name in WORDS | CALLED else name for name in names}
        self.words |= {part: part for part in self.parts.values()}
        self.of_rows = [each for each in program.operands if is_of_rows(each, program.rows)]
        self.shared = frozenset(each.name for each in self.of_rows) | {r.name for r in program.reductions}
        self.values = {name: fresh(f"{self.words[name]}_value", self.taken) for name in operands}
        self.leaves = {**self.values, **{r.name: self.words[r.name] for r in program.reductions}}
        if self.along_rows:
            self.leaves |= {name: f"{self.leaves[name]}[j]" for name in self.shared}
        self.offsets = Offsets(program)
        self.type = CUDA_TYPES[program.precision]

    @property
    def tensors(self) -> list[Tensor]:
        return [*self.program.operands, *self.program.results]

    @property
    def in_pack(self) -> bool:
        """Whether arithmetic stands in a loop over the elements of a pack."""
        return self.geometry.vector > 1 or self.along_rows

    @property
    def k(self) -> str:
        """The index of a pack, where a thread has several."""
        return "[k]" if self.geometry.packs > 1 else ""

    @property
    def row_index(self) -> str:
        """The row that the j-th element of a pack belongs to."""
        return "row + j" if self.along_rows and self.geometry.vector > 1 else "row"

    def is_wide(self, tensor: Tensor) -> bool:
        """Whether it is read or written for each element."""
        if isinstance(tensor, Result):
            return not self.program.is_per_row(tensor)
        return not is_of_rows(tensor, self.program.rows)

    @property
    def packed(self) -> set[str]:
        """The tensors that are read or written a pack at a time."""
        return {each.name for each in self.tensors if self.is_wide(each) and self.access(each) == "pack"}

    def access(self, tensor: Tensor) -> Access:
        """How neighbours are read; single elements count as `same`."""
        if self.geometry.vector == 1:
            return "same"
        rows, shape = self.program.rows, self.program.shape
        own, others = tensor.strides[rows:], tensor.strides[:rows]
        if self.along_rows:
            return access(shape[:rows], others, own, self.geometry.vector)
        return access(shape[rows:], own, others, self.geometry.vector)

    def is_turned(self, tensor: Tensor) -> bool:
        """Whether it passes through shared memory."""
        return self.geometry.turned and tensor in wide(self.program) and self.access(tensor) == "each"

    def tile_of(self, tensor: Tensor) -> str:
        """The array there."""
        if tensor.name not in self.tiles:
            self.tiles[tensor.name] = fresh(f"{self.words[tensor.name]}_tile", self.taken)
        return self.tiles[tensor.name]

    def place(self, tensor: Tensor, each: bool) -> str:
        """An element's offset from the tensor's base; where `each`, that of the j-th of the pack."""
        rows, dims = self.program.rows, len(self.program.shape)
        word = self.words[tensor.name]
        if self.along_rows:
            column = self.offsets.of(word, tensor, self.column, rows, dims)
            row = self.offsets.of(word, tensor, "row + j", 0, rows) if each else "0"
            return " + ".join(part for part in (row, column) if part != "0") or "0"
        return self.offsets.of(word, tensor, f"{self.column} + j" if each else self.column, rows, dims)

    def row_place(self, tensor: Tensor) -> str:
        """The offset of a row's element, or of its first element."""
        index = "row" if self.is_wide(tensor) else self.row_index
        return self.offsets.of(self.words[tensor.name], tensor, index, 0, self.program.rows)

    def bases(self) -> list[str]:
        """A pointer to the row, for each tensor that is read or written for each element."""
        lines = []
        for each in filter(self.is_wide, self.tensors):
            self.base[each.name] = word = self.words[each.name]
            offset = self.row_place(each)
            if offset != "0" and not (self.along_rows and self.access(each) == "each"):
                self.base[each.name] = fresh(f"{word}_row", self.taken)
                const = "const " if isinstance(each, Operand) else ""
                lines.append(f"{const}{CUDA_TYPES[each.dtype]}* {self.base[each.name]} = {word} + {offset};")
        return lines

    def emit(self, exprs: Mapping[str, Expr]) -> list[str]:
        """Statements for values under these names."""
        reserved = [*self.said, *self.taken]
        emitted = emit(exprs, self.leaves, reserved=reserved, precision=self.program.precision)
        self.preamble |= dict.fromkeys(emitted.preamble)
        return list(emitted.statements)

    def named(self, exprs: Mapping[str, Expr]) -> tuple[list[str], dict[str, str]]:
        """Statements for values, and what each is called: `<name>_value`, or as which it is read."""
        leaves = {name: expr for name, expr in exprs.items() if expr.kind in ("tensor", "parameter")}
        called: dict[Expr, str] = {}
        for name, expr in exprs.items():
            if name not in leaves and expr not in called:
                called[expr] = fresh(f"{self.words.get(name, name)}_value", self.taken)
        lines = self.emit({word: expr for expr, word in called.items()}) if called else []
        return lines, {
            name: self.leaves[name_of(expr)] if name in leaves else called[expr] for name, expr in exprs.items()
        }
