"""Where the values of a kernel lie: in global memory, in shared memory, in registers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from crucible import graph
from crucible.gpus import WARP
from crucible.kernel.index import Index, Known, Variable, constant

ITEM_BYTES = {**graph.ITEM_BYTES, "tf32": 4, "word": 4, "half": 2, "halves": 4, "number": 4, "bytes": 4}
"""`tf32` is a float32 of which tensor cores lose nothing: ten bits behind the point; a `word` any float32, by its bits,
which nvcc 13.0 moves otherwise than floats; a `half` one of a half type by its bits, `halves` two neighbours; a
`number` an integer whose bits a float's register holds; `bytes` two neighbours in a register."""
WARPGROUP = 128
"""Threads."""
CORE_ROWS = 8
"""Of a matrix, that lie one behind the other."""


def words_of(given: str, wanted: str) -> int:
    """Elements that one of another type is made of as they lie: neighbours of a half type are a word of two."""
    return 2 if wanted == "halves" and given in ("float16", "bfloat16") else 1


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
    """To the middle of a tensor or of an array in shared memory, from where elements are counted; of an array of
    several dims what the first one counts."""

    name: str
    of: Tensor | Shared | Pointer
    offset: Index
    is_of_units: bool = False
    """Whether it is one to sixteens of bytes, that `Copy` moves: nvcc 13.0 makes other code of a cast at each."""

    @property
    def dtype(self) -> str:
        return self.of.dtype

    @property
    def whole(self) -> Tensor | Shared:
        """What it is in the middle of."""
        return self.of.whole if isinstance(self.of, Pointer) else self.of

    @property
    def begin(self) -> Index:
        """Counted from the first element of that."""
        return self.of.begin + self.offset if isinstance(self.of, Pointer) else self.offset


@dataclass(frozen=True, eq=False)
class Shared:
    """An array in shared memory, of every block its own."""

    name: str
    dtype: str
    shape: tuple[Index, ...]
    note: str = ""
    at_launch: bool = False
    """Whether it is part of what a launch asks for, and begins at whole sixteens of bytes there; else it is of the 48
    KB that a block has."""
    per_warp: bool = False
    """Whether every warp has its own, which no other one reads or writes."""
    over: tuple[Shared | Pipeline, int] | None = None
    """In the place of another array, from so many bytes on: what is stored in one of them is gone from the other. Or of
    a pipeline whose stages have all been read."""
    is_last: bool = False
    """Whether it lies behind all else that a launch asks for, barriers too."""
    by_one: bool = False
    """Whether each number is one thread's alone, from one barrier to the next: which one it is, the meaning holds."""

    @property
    def base(self) -> Shared:
        """The array whose memory it is."""
        return self.over[0] if self.over and isinstance(self.over[0], Shared) else self

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(map(constant, self.shape))

    @property
    def bytes(self) -> int:
        """Of one of them."""
        return math.prod(self.sizes) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True, eq=False)
class Matrix:
    """Described to tensor cores: units of sixteen bytes of K, each of them a row after the other."""

    name: str
    of: Shared
    pitch: int
    """Rows from a unit to the next."""
    eight: int = CORE_ROWS
    """Rows from an eight of those that are multiplied to the next: more, where others lie between."""


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
        whole = self.of.whole if isinstance(self.of, Pointer) else self.of
        assert isinstance(whole, Tensor), f"{whole.name} is no tensor"
        return whole

    @property
    def place(self) -> Index:
        """Counted from the tensor's first element."""
        return self.of.begin + self.at if isinstance(self.of, Pointer) else self.at


@dataclass(frozen=True)
class InShared:
    """An element of an array in shared memory."""

    of: Shared | Pointer
    at: tuple[Index, ...]
    halved: bool = False
    """Whether it is one of two halves of a word of `halves`, which is counted in them."""

    @property
    def dtype(self) -> str:
        return self.of.dtype

    @property
    def tile(self) -> Shared:
        whole = self.of.whole if isinstance(self.of, Pointer) else self.of
        assert isinstance(whole, Shared), f"{whole.name} is no array in shared memory"
        return whole

    @property
    def place(self) -> tuple[Index, ...]:
        """Counted from the array's first element, along each dim."""
        if not isinstance(self.of, Pointer):
            return self.at
        return (self.of.begin * (2 if self.halved else 1) + self.at[0], *self.at[1:])


Spot: TypeAlias = Global | InShared


@dataclass(frozen=True)
class Margins:
    """Of rows that lie one behind the other in all stages of a pipeline the ends, which nobody stores."""

    row: Variable
    """The number of a row."""
    kind: Variable
    """What of it says where its ends are."""
    kind_of: Index
    """Of a row."""
    pitch: int
    """Sixteens of bytes from a row to the next."""
    first: Index
    """What is stored of a row begins there, in sixteens of bytes."""
    end: Index
    """And ends before that."""


@dataclass(frozen=True, eq=False)
class Pipeline:
    """A ring of stages in shared memory: threads fill one while others read those before it."""

    name: str
    tiles: tuple[Shared, ...]
    """What lies in a stage, one behind the other, each of whole sixteens of bytes."""
    stages: int
    producers: int
    """Threads that fill a stage."""
    consumers: int
    """Threads that read it."""
    fillers: int = 1
    """Groups of so many producers, which fill stages in turn."""
    window: int = 1
    """Stages that are read at once, where a window slides along them (see `Slide`)."""
    teams: int = 1
    """Warpgroups of consumers that take windows in turn."""
    is_shared: bool = False
    """Whether each window is of all teams, who are dealt its tasks (see `Deal`); else of one of them."""
    brings: bool = False
    """Whether bulk copies bring each warp of consumers what it reads behind a window (see `Bring`)."""
    in_bulk: bool = False
    """Whether bulk copies fill stages (see `Send`): what none of them ever fills is 0."""
    relays: int = 0
    """Warpgroups of consumers that have turns behind stages (see `InTurn`)."""
    slack: int = 0
    """Of each unit of sixteen bytes of K the last rows, perhaps all: those of them that nobody stores are 0 from the
    beginning."""
    moves: int = 0
    """Stages by which windows move on that all teams share step by step (see `Share`)."""
    fed_by: Pipeline | None = None
    """Of what lies there as it was in memory, that bulk copies bring (see `Fetch`): each stage is made of one of it. It
    is declared with this pipeline."""
    ends: bool = False
    """Whether its consumers come together behind the last stage (see `Meet`)."""
    margins: Margins | None = None
    """Or other places that are."""
    provides: bool = False
    """Whether those who read it store beforehand what tensor cores multiply by (see `Provide`)."""
    carries: bool = False
    """Whether a bulk copy brings one of the arrays of each stage (see `Carry`)."""
    cleared: Shared | None = None
    """The first array of a stage, if all of it that nobody stores is 0 from the beginning."""

    @property
    def slides(self) -> bool:
        """Whether windows do (see `Slide` and `Deal`)."""
        return self.window > 1 or self.teams > 1

    @property
    def turns(self) -> int:
        """Teams that wait for each other."""
        return self.teams if self.teams > 1 and not self.is_shared else 0

    @property
    def barriers(self) -> int:
        """Each stage is full, or empty; each team has its turn, of either kind; what each warp is brought has come, or
        what all store is there; all are done. Those of what feeds it are behind them."""
        own = 2 * self.stages + self.turns + self.relays + self.brings * self.consumers // WARP
        return own + self.provides + self.ends + (self.fed_by.barriers if self.fed_by else 0)

    @property
    def offsets(self) -> tuple[int, ...]:
        """Bytes from a stage's begin to each tile, and to the next stage."""
        return _offsets(self.tiles)

    @property
    def bytes(self) -> int:
        return self.stages * self.offsets[-1] + (self.fed_by.bytes if self.fed_by else 0)


@dataclass(frozen=True, eq=False)
class Turns:
    """Shared memory that all threads of a block fill and read in turns, some of it by copies that go on beside what
    they do: tiles that are at hand, and perhaps as many that are coming for the next turn."""

    name: str
    tiles: tuple[Shared, ...]
    """What lies one behind the other, each of words, of one dim, and of whole sixteens of bytes."""
    coming: tuple[Shared, ...] = ()
    """Alike."""
    each_turns: bool = False
    """Whether each tile's pointer is exchanged, not the first alone, from which the others follow. What nvcc 13.0 makes
    of the latter holds less in registers: a 2-d convolution of 5 x 5 taps takes 70 for 80, and 6 % longer."""

    @property
    def into(self) -> tuple[Shared, ...]:
        """Where copies go."""
        return self.coming or self.tiles

    @property
    def offsets(self) -> tuple[int, ...]:
        """Bytes from the first tile to each, and to what is coming."""
        return _offsets(self.tiles)

    @property
    def bytes(self) -> int:
        return self.offsets[-1] * (2 if self.coming else 1)


def _offsets(tiles: Sequence[Shared]) -> tuple[int, ...]:
    return tuple(itertools.accumulate((each.bytes for each in tiles), initial=0))
