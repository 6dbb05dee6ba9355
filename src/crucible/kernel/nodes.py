"""The nodes of a kernel: all that a block of threads does, and where things lie.

Each node is frozen, prints in `print.cuda`, has a meaning on the CPU (`meaning`), and is held against what it needs
(`verify`). What has a name asks for one; the printer gives it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, is_dataclass
from typing import Literal, TypeAlias

from crucible.kernel.index import Condition, Index, Known, Size, Variable, constant
from crucible.write.expression import Expr

# where things lie


@dataclass(frozen=True, eq=False)
class Tensor:
    """In global memory; a parameter of the kernel."""

    name: str
    dtype: str
    access: Literal["read", "write"]
    elements: int
    """From the first to the last that belongs to it: what lies beyond is somebody else's."""


@dataclass(frozen=True, eq=False)
class Pointer:
    """To the middle of a tensor, from where elements are counted."""

    name: str
    of: Tensor
    offset: Index

    @property
    def dtype(self) -> str:
        return self.of.dtype


@dataclass(frozen=True, eq=False)
class Shared:
    """An array in shared memory, of every block its own."""

    name: str
    dtype: str
    shape: tuple[Index, ...]
    note: str = ""

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(map(constant, self.shape))


@dataclass(frozen=True, eq=False)
class Fragment:
    """In registers, of every thread its own."""

    name: str
    dtype: str
    shape: tuple[Index, ...] = ()
    packed: bool = False
    """Whether the last dim is moved by one instruction."""

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(map(constant, self.shape))

    @property
    def elements(self) -> int:
        return math.prod(self.sizes)


@dataclass(frozen=True)
class Element:
    """One value of a fragment, or with one index less than it has dims a pack of it."""

    of: Fragment
    at: tuple[Index, ...] = ()

    @property
    def is_pack(self) -> bool:
        return len(self.at) < len(self.of.shape)

    @property
    def vector(self) -> int:
        """How many values."""
        return self.of.sizes[-1] if self.is_pack else 1


@dataclass(frozen=True)
class Held(Known):
    """The integer that a register holds, as an index."""

    of: Element


@dataclass(frozen=True)
class Global:
    """An element of a tensor, or the first of a pack."""

    of: Tensor | Pointer
    at: Index

    @property
    def dtype(self) -> str:
        return self.of.dtype

    @property
    def tensor(self) -> Tensor:
        return self.of.of if isinstance(self.of, Pointer) else self.of


@dataclass(frozen=True)
class InShared:
    """An element of an array in shared memory."""

    of: Shared
    at: tuple[Index, ...]

    @property
    def dtype(self) -> str:
        return self.of.dtype


Spot: TypeAlias = Global | InShared


# structure


@dataclass(frozen=True)
class Let:
    """A variable is an index from here to the end of its scope."""

    variable: Variable
    index: Index


@dataclass(frozen=True)
class Declare:
    """Registers, all of one type and shape; or arrays in shared memory, or a pointer."""

    what: tuple[Fragment, ...] | Shared | Pointer
    start: str = ""
    """What is in them: what a `sum`, `max` or `min` begins with, or the `none` of a choice; nothing known where it is
    empty."""


@dataclass(frozen=True)
class For:
    """`variable` from `start` up to before `stop`."""

    variable: Variable
    start: Index
    stop: Index
    step: Index
    body: Body
    unrolled: bool
    """All rounds stand in the code; then ends are constants."""


@dataclass(frozen=True)
class If:
    condition: Condition
    body: Body
    is_rest: bool = False
    """Whether it is the rest of a loop's round, which others skip: nvcc 13.0 makes other code of that."""


@dataclass(frozen=True)
class Scope:
    """What is named in it is known in it alone."""

    body: Body


@dataclass(frozen=True)
class Exit:
    """Threads for which `variable` is not below the limit are done."""

    variable: Variable
    limit: Index


@dataclass(frozen=True)
class Note:
    """A line for readers; an empty one where there is nothing to say."""

    text: str = ""


# moving


@dataclass(frozen=True)
class Load:
    """Memory to registers, a value or a pack; 0 where `guard` does not hold. A value is converted to the fragment's
    type, a pack is moved as it is."""

    into: Element
    source: Spot
    guard: Condition = ()
    declares: bool = False
    """Whether the fragment begins here, and nothing else is ever in it."""


@dataclass(frozen=True)
class Store:
    """Registers to memory; a value is converted to the memory's type."""

    value: Element
    to: Spot
    plainly: bool = False
    """Whether the compiler chooses the instruction of a pack, which then folds constants into its address."""


@dataclass(frozen=True)
class Convert:
    """Registers to registers, in another type perhaps; 0 where `guard` does not hold."""

    into: Element
    value: Element
    declares: bool = False
    guard: Condition = ()


# computing


@dataclass(frozen=True)
class Chain:
    """Expressions, computed together: what several share once."""

    results: tuple[tuple[Element, Expr], ...]
    """Single values; they begin here."""
    inputs: tuple[tuple[str, Element], ...]
    """What tensors and parameters of the expressions are, by name."""
    precision: str = "float32"


@dataclass(frozen=True)
class Value:
    """An index as a value, which begins here."""

    into: Element
    index: Index


@dataclass(frozen=True)
class Choose:
    """One more value of which one is chosen, as PyTorch does: the first of the largest, but the last NaN."""

    best: Element
    """The chosen value so far."""
    choice: Element
    """Its number; `none` where there is none yet."""
    value: Element
    number: Index
    along: tuple[tuple[Element, Element], ...] = ()
    """Registers that change with the choice, and what they become."""


@dataclass(frozen=True)
class Accumulate:
    """One more value into a reduction."""

    kind: str
    """`sum`, `max` or `min`; these are NaN if any value is."""
    into: Element
    value: Element


@dataclass(frozen=True)
class Reduce:
    """What several threads accumulated, put together in a fixed order; all of them have it then.

    `team`: of so many neighbouring lanes, at most a warp. `block`: of the whole block, through a number a warp in
    shared memory. `warps`: the same of any number of warps, by the first thread, which alone has it then; in shared
    memory of its own. `groups`: of the threads that stand in one lane, where a block is groups of lanes.
    """

    kind: str
    """`sum` or `max`."""
    into: Fragment
    over: Literal["team", "block", "warps", "groups"]
    sizes: tuple[Size, ...]
    """Threads of the team; threads of the block; how many groups, and lanes of one."""
    scratch: Shared | None = None


@dataclass(frozen=True)
class Sync:
    """All threads of the block come here before one goes on."""

    note: str = ""


Node: TypeAlias = (
    Let | Declare | For | If | Scope | Exit | Note
    | Load | Store | Convert
    | Chain | Value | Choose | Accumulate | Reduce
    | Sync
)  # fmt: skip
Body: TypeAlias = tuple[Node, ...]


@dataclass(frozen=True)
class Kernel:
    """A `__global__` function."""

    name: str
    tensors: tuple[Tensor, ...]
    """Its parameters: those that are read, then those that are written."""
    sizes: tuple[Size, ...]
    """In the order in which text declares those that it reads."""
    blocks: int
    threads: int
    index: Literal["unsigned", "size_t", "int", "long long"]
    """The type of indices."""
    body: Body
    notes: tuple[str, ...] = ()
    """What is computed, and how the work is spread: its head."""

    @property
    def reads(self) -> tuple[Tensor, ...]:
        return tuple(each for each in self.tensors if each.access == "read")

    @property
    def writes(self) -> tuple[Tensor, ...]:
        return tuple(each for each in self.tensors if each.access == "write")


def inside(node: Node) -> Body:
    """The nodes within a node."""
    return node.body if isinstance(node, For | If | Scope) else ()


def every(body: Body) -> list[Node]:
    """All nodes, outer ones first."""
    return [each for node in body for each in (node, *every(inside(node)))]


def mentions(given: object, variable: Index) -> bool:
    """Whether a node, an index or a body of nodes reads a variable anywhere."""
    if given is variable:
        return True
    if isinstance(given, tuple):
        return any(mentions(each, variable) for each in given)
    if isinstance(given, Expr) or not is_dataclass(given):
        return False
    return any(mentions(getattr(given, each.name), variable) for each in fields(given))
