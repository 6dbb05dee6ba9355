"""The nodes of a kernel: all that a block of threads does, and where things lie.

Each node is frozen, prints in `print.cuda`, has a meaning on the CPU (`meaning`), and is held against what it needs
(`verify`). What has a name asks for one; the printer gives it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import Literal, TypeAlias

from crucible.algebra.expression import Expr
from crucible.kernel.bulk import Collect, InTurn, Leave, Send, Stretch
from crucible.kernel.index import ONE, Compare, Condition, Index, Size, Table, Variable
from crucible.kernel.places import (
    ITEM_BYTES,
    Element,
    Fragment,
    Global,
    Held,
    InShared,
    Margins,
    Matrix,
    Pipeline,
    Pointer,
    Shared,
    Spot,
    Tensor,
    Turns,
)
from crucible.kernel.scaled_nodes import Largest, Scale, SplitScaled
from crucible.kernel.sharing import Ask, Fetch, Foresee, Meet, Share, Steps
from crucible.kernel.sliding import (
    Bring,
    Brought,
    Copy,
    Deal,
    Describe,
    Product,
    Products,
    Provide,
    Provided,
    Slide,
    Vacant,
)
from crucible.kernel.stream_nodes import Advance, Ahead, Carry, Level, MoveOn, Prefetch, Walk
from crucible.kernel.warp_nodes import HELD, AsyncCopy, LoadMatrix, LoadTiles, Math, MultiplyTiles, Own, Turn, WarpMma
from crucible.kernel.window_nodes import Exchange, Flip, Take, Vote

__all__ = [
    "HELD", "ITEM_BYTES", "Advance", "Ahead", "Ask", "AsyncCopy", "Bring", "Brought", "Carry", "Collect", "Copy",
    "Deal", "Describe", "Element", "Exchange", "Fetch", "Flip", "Foresee", "Fragment", "Global", "Held", "InShared",
    "InTurn", "Largest", "Leave", "Level", "LoadMatrix", "LoadTiles", "Margins", "Math", "Matrix", "Meet", "MoveOn",
    "MultiplyTiles", "Own", "Pipeline", "Pointer", "Prefetch", "Product", "Products", "Provide", "Provided",
    "Scale", "Send", "Share", "Shared", "Slide", "SplitScaled", "Spot", "Steps", "Stretch", "Take", "Tensor", "Turn",
    "Turns", "Vacant", "Vote", "Walk", "WarpMma",
]  # fmt: skip
"""What is defined elsewhere, for those who import nodes alone."""

# structure


@dataclass(frozen=True)
class Let:
    """A variable is an index from here to the end of its scope."""

    variable: Variable
    index: Index
    of_warp: bool = False
    """Whether the compiler is told that all lanes of a warp agree on it: nvcc 13.0 keeps what follows from it in
    uniform registers, by which products are described: half the instructions between two of them."""


@dataclass(frozen=True)
class Declare:
    """Registers, all of one type and shape; or arrays in shared memory, or a pointer; or a pipeline, whose barriers
    all threads of the block wait for here; or turns; or a table, if not all of the kernel knows it."""

    what: tuple[Fragment, ...] | Shared | Pointer | Pipeline | Turns | Table
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
    together: int = 0
    """Else so many of them, one behind the other; as many as the compiler thinks where that is 0."""
    is_hidden: bool = False
    """Whether the compiler does not know which round it is. Where what threads hold goes from one round to the next,
    nvcc 13.0 else writes all rounds out, whatever `together` says: four times 1700 instructions."""
    along: tuple[Pointer, ...] = ()
    """Pointers that begin here, so many elements times the round further on: text moves them behind each round, which
    nvcc 13.0 makes other code of than of products."""


@dataclass(frozen=True)
class If:
    condition: Condition
    body: Body
    is_rest: bool = False
    """Whether it is the rest of a loop's round, which others skip: nvcc 13.0 makes other code of that."""
    otherwise: Body = ()
    """What is done where the condition does not hold."""
    ends: bool = False
    """Of a rest: whether who skips it once is done with the loop, as no later round has it either."""


@dataclass(frozen=True)
class Scope:
    """What is named in it is known in it alone."""

    body: Body


@dataclass(frozen=True)
class Role:
    """What some warpgroups of a block do."""

    name: str
    threads: int
    registers: int
    """Of each thread."""
    body: Body
    is_beside: bool = False
    """Whether warps of the role before have it, in whose warpgroups it is."""


@dataclass(frozen=True)
class Roles:
    """Threads part, to the end of the kernel: the first ones have the first role."""

    roles: tuple[Role, ...]
    warp: Variable
    """The number of a thread's warp, by which they do."""
    is_upwards: bool = False
    """Whether the first role stands first in the text: nvcc 13.0 makes other code of that."""


@dataclass(frozen=True)
class Exit:
    """Threads for which an index is not below the limit are done."""

    variable: Index
    limit: Index


@dataclass(frozen=True)
class Note:
    """A line for readers; an empty one where there is nothing to say."""

    text: str = ""


# pipelines


@dataclass(frozen=True)
class Fill:
    """The next stage of a pipeline, when those who read it are done with it; after the body it is theirs."""

    pipeline: Pipeline
    body: Body


@dataclass(frozen=True)
class Drain:
    """The next stage of a pipeline, when it is filled; after the body it may be filled again."""

    pipeline: Pipeline
    body: Body
    who: Condition = ()
    """Which warpgroups read it; others have no use for it."""


@dataclass(frozen=True)
class Fence:
    """What this thread stored in shared memory is there for tensor cores, and what it read there for bulk copies."""


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
    branches: bool = False
    """Whether text makes it 0 and then loads under the guard, where else it chooses: nvcc 13.0 makes other code of
    that."""


@dataclass(frozen=True)
class Store:
    """Registers to memory; a value is converted to the memory's type."""

    value: Element
    to: Spot
    plainly: bool = False
    """Whether the compiler chooses the instruction of a pack, which then folds constants into its address."""


@dataclass(frozen=True)
class Convert:
    """Registers to registers, in another type perhaps; `otherwise` where `guard` does not hold, or 0."""

    into: Element
    value: Element
    declares: bool = False
    guard: Condition = ()
    otherwise: Element | None = None
    """Of the type that the value becomes."""
    mask: Element | None = None
    """A word of which all bits are set, or none: those of the value that it has are kept. Nvcc 13.0 makes other code of
    a guard."""


@dataclass(frozen=True)
class Bits:
    """A word by its bits, as an int32 or `halves` that begin here: a value of 32 bits, or two of 16, the first in the
    lower half."""

    into: Element
    values: tuple[Element, ...]


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
    """An index as a value, which begins here where it is declared."""

    into: Element
    index: Index
    declares: bool = True


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
    """`sum`, `max` or `min`; these are NaN if any value is. Or `all`, of bools."""
    into: Element
    value: Element


@dataclass(frozen=True)
class Reduce:
    """What several threads accumulated, put together in a fixed order; all of them have it then.

    `team`: of so many neighbouring lanes, at most a warp. `block`: of the whole block, through a number a warp in
    shared memory. `warps`: the same of any number of warps, by the first thread, which alone has it then; in shared
    memory of its own. `groups`: of the threads that stand in one lane, where a block is groups of lanes. `columns`: of
    every so many lanes of a warp.
    """

    kind: str
    """`sum` or `max`."""
    into: Fragment
    over: Literal["team", "block", "warps", "groups", "columns"]
    sizes: tuple[Size, ...]
    """Threads of the team; threads of the block; how many groups, and lanes of one."""
    scratch: Shared | None = None


@dataclass(frozen=True)
class Split:
    """Of a word, or a pack of them, one of the two TF32 that it is: the nearest to it, or what is left to 2^-23."""

    into: Element
    value: Element
    part: Literal["high", "low"]
    declares: bool = False
    settles: bool = False
    """For what products read from registers: it is there from here on. Where nvcc 13.0 may compute it between products
    it does, and runs one product after the other (C7520)."""


@dataclass(frozen=True)
class SplitPairs:
    """Of two words, or two packs of as many, in bfloat16: the nearest to each, or to what TF32 leaves of each. Those of
    the first one are the lower halves."""

    into: Element
    values: tuple[Element, Element]
    part: Literal["high", "low"]
    declares: bool = False
    settles: bool = False
    """As of a `Split`."""


@dataclass(frozen=True)
class Mma:
    """Each warpgroup multiplies its 64 rows by the columns of a tile, all terms into the same sums, and waits for them.

    A thread holds what `mma.sync` has of rows: [k / 8][4], rows r and r + 8 of its warp, k and k + 4. Of columns there
    are [k / 4][column][k % 4], of sums [column / 8][2 rows][2 columns]. Of halves k counts pairs."""

    into: Fragment
    terms: tuple[tuple[Fragment, Shared], ...]
    """Rows and columns; those that are added first come first."""
    adds: Condition
    """Where the sums that were there are added to; elsewhere they begin anew."""


@dataclass(frozen=True)
class Promote:
    """Sums of tensor cores, which cut bits off as they add, into sums in float32: after `every` rounds, and the last
    one."""

    into: Fragment
    value: Fragment
    round: Index
    every: int
    is_last: Condition

    @property
    def adds(self) -> Condition:
        """When a product adds to sums that nobody took yet."""
        return (Compare(">=", self.round % self.every, ONE),)


@dataclass(frozen=True)
class Sync:
    """All threads of the block, of a role, of a warpgroup or of a warp come here before one goes on."""

    note: str = ""
    of: Literal["block", "role", "team", "warp"] = "block"


Node: TypeAlias = (
    Let | Declare | For | If | Scope | Roles | Exit | Note
    | Fill | Drain | Fence | Load | Store | Convert | Bits
    | Chain | Value | Choose | Accumulate | Reduce | Split | SplitPairs | Mma | Promote
    | Vacant | Slide | Deal | Provide | Provided | Bring | Brought | Copy | Describe | Products | Product
    | Share | Foresee | Ask | Fetch | Meet
    | Send | Stretch | Leave | InTurn | Collect
    | Carry | MoveOn | Ahead | Advance | Prefetch
    | AsyncCopy | Turn | Own | LoadMatrix | WarpMma | LoadTiles | MultiplyTiles
    | Take | Flip | Vote | Exchange
    | Largest | Scale | SplitScaled
    | Sync
)  # fmt: skip
Body: TypeAlias = tuple[Node, ...]


@dataclass(frozen=True)
class Kernel:
    """A `__global__` function. Tensors begin at whole packs of 16 bytes: host functions copy those that do not."""

    name: str
    tensors: tuple[Tensor, ...]
    """Its parameters: those that are read, then those that are written."""
    sizes: tuple[Size | Table, ...]
    """In the order in which text declares those that it reads."""
    blocks: int
    threads: int
    index: Literal["unsigned", "size_t", "int", "long long"]
    """The type of indices."""
    body: Body
    notes: tuple[str, ...] = ()
    """What is computed, and how the work is spread: its head."""
    is_light: bool = False
    """Whether it needs a few registers and no shared memory, so that it takes nothing from a kernel beside it."""
    together: int = 0
    """Blocks that share a multiprocessor, which have so many registers; the compiler chooses where it is 0."""
    is_told_threads: bool = False
    """Whether the text tells the compiler that there are no more threads, of which it takes 1024 as possible else: what
    then holds of all of them is not asked, so that loads behind it go out together."""

    @property
    def reads(self) -> tuple[Tensor, ...]:
        return tuple(each for each in self.tensors if each.access == "read")

    @property
    def writes(self) -> tuple[Tensor, ...]:
        return tuple(each for each in self.tensors if each.access == "write")


PARTS: dict[type, tuple[str, ...]] = {
    If: ("body", "otherwise"),
    Slide: ("begin", "before", "products", "behind", "end"),
    Deal: ("before", "products", "behind"),
    InTurn: ("before", "body", "behind"),
    **dict.fromkeys((For, Scope, Fill, Drain, Send, Own, Products, Share, Foresee, Ahead), ("body",)),
}
"""The bodies of nodes that have some, in the order in which they are done."""


def inside(node: Node) -> Body:
    """The nodes within a node."""
    if isinstance(node, Roles):
        return tuple(each for role in node.roles for each in role.body)
    return tuple(each for part in PARTS.get(type(node), ()) for each in getattr(node, part))


def every(body: Body) -> list[Node]:
    """All nodes, outer ones first."""
    found: list[Node] = []
    for node in body:
        found.append(node)
        found += every(inside(node)) if type(node) in PARTS or type(node) is Roles else ()
    return found


def mentions(given: object, variable: object) -> bool:
    """Whether a node, an index or a body of nodes reads a variable, or what has a name, anywhere."""
    if given is variable:
        return True
    if isinstance(given, tuple):
        return any(mentions(each, variable) for each in given)
    if isinstance(given, Expr) or not is_dataclass(given):
        return False
    return any(mentions(getattr(given, each.name), variable) for each in fields(given))


def needed(lets: tuple[Let, ...], given: object) -> tuple[Let, ...]:
    """Those that something reads, or that one of those does."""
    found: tuple[Let, ...] = ()
    for each in reversed(lets):
        found = (each, *found) if mentions((given, found), each.variable) else found
    return found
