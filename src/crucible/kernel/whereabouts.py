"""Where threads are, as `meaning` runs them: indices, conditions and places in memory as arrays [blocks, threads]."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from crucible.gpus import WARP
from crucible.kernel import nodes as ir
from crucible.kernel.index import (
    Binary,
    Condition,
    Either,
    Grid,
    Holds,
    Index,
    Larger,
    Listed,
    Number,
    Part,
    Place,
    Size,
    Smaller,
    Variable,
)
from crucible.kernel.places import WARPGROUP
from crucible.kernel.tensor_cores import Ring

Array: TypeAlias = npt.NDArray[Any]
SIGNS_OF: dict[str, Callable[[Array, Array], Array]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.floor_divide, "%": np.remainder, "^": np.bitwise_xor,
}  # fmt: skip
COMPARED: dict[str, Callable[[Array, Array], Array]] = {
    "<": np.less,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
    "in": lambda one, limit: (one >= 0) & (one < limit),
}

HANDED = 64
"""More than there are warpgroups of a block."""
Waits: TypeAlias = Iterator[None]
"""A step each time that a thread waits."""


class OutOfBounds(IndexError):
    """A thread reads or writes what is not there."""


class Raced(RuntimeError):
    """Two threads touch a number that is one thread's alone, and no barrier is between them."""


class Places:
    """Some blocks of a kernel at once; where roles wait for each other, one."""

    def __init__(self, kernel: ir.Kernel, memory: dict[ir.Tensor, Array], blocks: Array) -> None:
        self.kernel, self.memory, self.blocks = kernel, memory, blocks
        self.shape = (len(blocks), kernel.threads)
        self.variables: dict[Index, Array] = {}
        self.registers: dict[ir.Fragment, Array] = {}
        self.shared: dict[ir.Shared, Array] = {}
        self.active = np.ones(self.shape, bool)
        """The threads that are where we are."""
        self.stays = np.ones(self.shape, bool)
        """The threads that are not done yet."""

        self.rings: dict[ir.Pipeline, Ring] = {}
        self.window: list[dict[Any, Array]] = []
        """Tiles of the stages that a team has before it."""
        self.coming: list[tuple[Array, Any, Array]] = []
        """What is on its way: memory, where in it, values."""
        self.matrices: dict[ir.Matrix, tuple[Array, int]] = {}
        """Units of sixteen bytes, and where one begins among them."""
        self.copied: dict[ir.Shared, Array] = {}
        """Which thread copied each word."""
        self.touched: dict[ir.Shared, Array] = {}
        """Which thread touched each number since the last barrier, of arrays where only one may."""
        self.ahead: dict[ir.Steps, Any] = {}
        """Where threads are in steps that are foreseen."""
        self.walked: dict[ir.Walk, Any] = {}
        """Where they are in rounds that others follow."""
        self.of_teams: dict[ir.Shared, Array] = {}
        """Which warpgroup did since the last barrier of several; HANDED more where its turn is over since."""
        self.over = np.zeros(self.shape, bool)
        """The threads that are done with the loop around us."""
        self.own: tuple[ir.Shared, ...] = ()
        """Tiles of which a thread touches what it copied."""

    def body(self, body: ir.Body) -> Waits:
        """Runs the nodes."""
        raise NotImplementedError

    # indices

    def index(self, index: Index) -> Array:
        match index:
            case Number(value=value) | Size(value=value):
                return np.asarray(value)
            case Grid(blocks=blocks):
                return np.asarray(blocks)
            case Variable():
                return self.variables[index]
            case Place(of="thread"):
                return np.broadcast_to(np.arange(self.kernel.threads), self.shape)
            case Place():
                return np.broadcast_to(self.blocks[:, None], self.shape)
            case Smaller(left=left, right=right):
                return np.minimum(self.index(left), self.index(right))
            case Larger(left=left, right=right):
                return np.maximum(self.index(left), self.index(right))
            case Holds(condition=condition):
                return self.holds(condition).astype(np.int64)
            case Either(condition=condition, one=one, other=other):
                return np.where(self.holds(condition), self.index(one), self.index(other))
            case Listed(table=table, at=at):
                place = self.index(at)
                if (self.active & ((place < 0) | (place >= len(table.values)))).any():
                    raise OutOfBounds(f"{table.name}: a thread asks for what it has not")
                return np.asarray(table.values).take(place, mode="clip")
            case Part():
                return np.broadcast_to(np.vectorize(index.of)(self.blocks)[:, None], self.shape)
            case ir.Held(of=element):
                held = self.registers[element.of][self.element(element)]
                return np.asarray(np.nan_to_num(held, nan=-1), np.int64)
            case Binary(sign=sign, left=left, right=right):
                return np.asarray(SIGNS_OF[sign](self.index(left), self.index(right)))
        raise TypeError(f"{index} is no index")

    def condition(self, condition: Condition) -> Array:
        return self.active & self.holds(condition)

    def holds(self, condition: Condition) -> Array:
        """For threads that are elsewhere as well."""
        found = np.ones(self.shape, bool)
        for each in condition:
            holds = COMPARED[each.sign](self.index(each.left), self.index(each.right))
            found = found & (holds | self.holds(each.unless) if each.unless else holds)
        return found

    # places

    def element(self, element: ir.Element) -> tuple[Any, ...]:
        """Of the fragment's array [dims..., blocks, threads], whose indices are the same for all threads."""
        return tuple(self._alike(each, element.of.name) for each in element.at)

    def _alike(self, index: Index, name: str) -> int:
        found = np.asarray(self.index(index))
        if found.ndim and (found != found.flat[0]).any():
            raise OutOfBounds(f"{name}: registers have no address, and threads take different ones")
        return int(found.flat[0])

    def places(self, spot: ir.Spot, who: Array, more: int | Array) -> tuple[Array, Any]:
        """Memory, and where in it threads are, for the element that lies so much behind."""
        if isinstance(spot, ir.Global):
            memory = self.memory[spot.tensor]
            at: tuple[Array, ...] = (np.broadcast_to(self.index(spot.place) + more, self.shape),)
            sizes, name = memory.shape, spot.tensor.name
        else:
            memory = self.shared[spot.tile]
            at = tuple(np.broadcast_to(self.index(each), self.shape) for each in spot.place)
            sizes, name = tuple(n * (2 if spot.halved else 1) for n in spot.tile.sizes), spot.tile.name
            at = (*at[:-1], at[-1] + more)
        for place, size in zip(at, sizes, strict=True):
            outside = who & ((place < 0) | (place >= size))
            if outside.any():
                block, thread = (int(each[0]) for each in np.nonzero(outside))
                raise OutOfBounds(f"{name}: block {block}, thread {thread} is at {place[block, thread]} of {size}")
        at = tuple(each[who] for each in at)
        if isinstance(spot, ir.Global):
            return memory, at
        blocks, threads = np.nonzero(who)
        if spot.tile in self.own and (self.copied[spot.tile][(blocks, *at)] != threads).any():
            raise OutOfBounds(f"{name}: a thread touches what another one copied")
        if spot.tile.by_one:
            self._touch(spot.tile, (blocks, *at), threads)
        return memory, (blocks, threads // WARP, *at) if spot.tile.per_warp else (blocks, *at)

    def _touch(self, tile: ir.Shared, at: tuple[Array, ...], threads: Array) -> None:
        """By one thread each."""
        who = self.touched.setdefault(tile, np.full(self.shared[tile].shape, -1))
        teams, own = self.of_teams.setdefault(tile, np.full(who.shape, -1)), threads // WARPGROUP
        if ((who[at] >= 0) & (who[at] != threads) & (who[at] // WARPGROUP == own)).any():
            raise Raced(f"{tile.name}: two threads touch what is one's alone")
        who[at] = threads
        if (who[at] != threads).any():
            raise Raced(f"{tile.name}: two threads touch what is one's alone, at once")
        if ((teams[at] >= 0) & (teams[at] % HANDED != own)).any():
            raise Raced(f"{tile.name}: two warpgroups touch what nobody handed over")
        teams[at] = own
