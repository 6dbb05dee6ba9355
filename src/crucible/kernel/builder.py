"""The builder: statements in the order in which they are made, loops and conditions as `with` blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from crucible.kernel import nodes as ir
from crucible.kernel.index import ONE, ZERO, Compare, Condition, Holds, Index, Number, Variable, value_of


class Builder:
    """A body that grows."""

    def __init__(self, *, keeps_loops: bool = False) -> None:
        self._bodies: list[list[ir.Node]] = [[]]
        self._keeps_loops = keeps_loops
        """Whether a loop of one round is written as one: nvcc 13.0 may make other code without it."""

    @property
    def body(self) -> ir.Body:
        """What was made so far."""
        return tuple(self._bodies[-1])

    def add(self, *nodes: ir.Node) -> None:
        self._bodies[-1].extend(nodes)

    def let(self, name: str, index: Index, type: Literal["index", "unsigned", "int"] = "index") -> Variable:
        variable = Variable(name, type)
        self.add(ir.Let(variable, index))
        return variable

    def test(self, name: str, condition: Condition) -> Condition:
        """A condition that the text names."""
        if not condition:
            return ()
        variable = Variable(name, "bool")
        self.add(ir.Let(variable, Holds(condition)))
        return (Compare("!=", variable, ZERO),)

    def named(self, name: str, index: Index) -> Index:
        """An int that the text names, where it is more than a number."""
        return index if isinstance(index, Number) else self.let(name, index, "int")

    @contextmanager
    def placed(self, variable: Variable, index: Index) -> Iterator[None]:
        """A body that may read the variable: it is set where it does."""
        with self._inside() as body:
            yield
        self.add(*([ir.Let(variable, index)] if ir.mentions(tuple(body), variable) else []), *body)

    @contextmanager
    def unrolled(self, name: str, count: Index, start: Index = ZERO) -> Iterator[Index]:
        """Rounds that all stand in the code; of a single one no loop."""
        with self.rounds(name, count, unrolled=True, start=start) as index:
            yield index

    @contextmanager
    def rounds(self, name: str, count: Index, unrolled: bool, start: Index = ZERO) -> Iterator[Index]:
        """So many, or those of them from `start` on, counted by an int; of a single one perhaps no loop."""
        if value_of(count - start) == 1 and not self._keeps_loops:
            yield start
            return
        variable = Variable(name, "int")
        with self._inside() as body:
            yield variable
        self.add(ir.For(variable, start, count, ONE, tuple(body), unrolled))

    @contextmanager
    def several(self, name: str, count: Index) -> Iterator[Index]:
        """The same, and of a single round no loop, whatever others keep."""
        if value_of(count) == 1:
            yield ZERO
            return
        with self.unrolled(name, count) as index:
            yield index

    @contextmanager
    def loop(
        self, name: str, start: Index, stop: Index, step: Index = ONE, type: Literal["index", "int"] = "index",
        together: int = 0,
    ) -> Iterator[Variable]:  # fmt: skip
        variable = Variable(name, type)
        with self._inside() as body:
            yield variable
        self.add(ir.For(variable, start, stop, step, tuple(body), unrolled=False, together=together))

    @contextmanager
    def when(self, condition: Condition, is_rest: bool = False, ends: bool = False) -> Iterator[None]:
        """A body under a condition, perhaps the rest of a loop's round, or of all its rounds; as it is where that
        always holds."""
        if not condition:
            yield
            return
        with self._inside() as body:
            yield
        self.add(ir.If(condition, tuple(body), is_rest, ends=ends))

    def one_of(self, index: Index, ways: Sequence[ir.Body]) -> None:
        """The way of that number; of the last all the rest."""
        found = ways[-1]
        for number, way in reversed(list(enumerate(ways[:-1]))):
            found = (ir.If((Compare("==", index, Number(number)),), way, otherwise=found),)
        self.add(*found)

    @contextmanager
    def scope(self) -> Iterator[None]:
        with self._inside() as body:
            yield
        self.add(ir.Scope(tuple(body)))

    @contextmanager
    def own(self, *tiles: ir.Shared) -> Iterator[None]:
        """What a thread copied itself."""
        with self._inside() as body:
            yield
        self.add(ir.Own(tiles, tuple(body)))

    @contextmanager
    def fill(self, pipeline: ir.Pipeline) -> Iterator[None]:
        """A stage, which tensor cores may read."""
        with self._inside() as body:
            yield
        self.add(ir.Fill(pipeline, (*body, *(() if pipeline.in_bulk else (ir.Fence(),)))))

    @contextmanager
    def send(self, pipeline: ir.Pipeline) -> Iterator[None]:
        """Bulk copies to a stage that they fill."""
        with self._inside() as body:
            yield
        self.add(ir.Send(pipeline, tuple(body)))

    @contextmanager
    def products(
        self, into: ir.Fragment, waits: Literal["each", "all", "later"] = "each", *, settles: bool = False
    ) -> Iterator[None]:  # fmt: skip
        with self._inside() as body:
            yield
        self.add(ir.Products(into, tuple(body), waits, settles))

    @contextmanager
    def apart(self, into: list[ir.Node]) -> Iterator[None]:
        """A body that a node has beside others."""
        with self._inside() as body:
            yield
        into.extend(body)

    @contextmanager
    def drain(self, pipeline: ir.Pipeline, who: Condition = ()) -> Iterator[None]:
        with self._inside() as body:
            yield
        self.add(ir.Drain(pipeline, tuple(body), who))

    @contextmanager
    def role(
        self, name: str, threads: int, registers: int, roles: list[ir.Role], *, is_beside: bool = False
    ) -> Iterator[None]:
        """One more of `roles`."""
        with self._inside() as body:
            yield
        roles.append(ir.Role(name, threads, registers, tuple(body), is_beside))

    @contextmanager
    def _inside(self) -> Iterator[list[ir.Node]]:
        self._bodies.append([])
        yield self._bodies[-1]
        self._bodies.pop()
