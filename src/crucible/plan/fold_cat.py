"""Chains behind `cat` are taken of each part: what makes the parts goes on with the chain, in one kernel.

A rotary embedding, x c + cat(-b, a) s, is cat(a c0 - b s0, b c1 + a s1) then, which reads and writes x once
(`within.py`). The same of pairs that lie side by side: what is stacked and seen in one dim. Only of parts of one size,
over which one kernel goes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from crucible.algebra.program import contiguous
from crucible.graph import Operation, Ref
from crucible.plan import layouts
from crucible.plan.parts import SLICES, joined, sliced
from crucible.plan.rewriting import Maker, Rewriting, broadcast
from crucible.plan.rules import is_fusable, is_view
from crucible.plan.steps import Part
from crucible.plan.taken import KINDS
from crucible.plan.vocabulary import BROADCAST

MOST_PARTS = 4
"""Of which each is a tensor that the kernel writes, and of each operand one that it reads."""
_DTYPES = frozenset({"float32", "float16", "bfloat16", "float64", "bool"})
_RESHAPES = frozenset({"view", "reshape", "flatten", "_unsafe_view"})


def over_parts(work: Rewriting, operation: Operation) -> tuple[str, str] | None:
    """A function of elements of what `cat` makes for it alone, and of tensors that are broadcast over it."""
    if not _is_chain(work, operation) or not operation.output.tensor.is_floating or _is_seen_laid(work, operation):
        return None
    first = next((each for name in operation.inputs if (each := _alike(work, operation, name))), None)
    if first is None:
        return None
    taking = _Taking(work, operation, first)
    if not all(map(taking.can, operation.inputs)):
        return None
    parts = [taking.of(operation, place) for place in range(len(first.names))]
    make, whole = Maker(work, operation.output.tensor.dtype), operation.output.tensor
    if first.step == 1:
        return make.cat(parts, first.dim), "a chain behind cat, taken of its parts"
    strides = list(first.part(0).of(whole).strides)
    strides.insert(first.dim + 1, whole.strides[first.dim])
    stacked = make.stack(parts, first.dim + 1, strides)
    return make.reshape(stacked, whole.shape), "a chain behind stack, taken of its parts"


def _is_seen_laid(work: Rewriting, operation: Operation) -> bool:
    """Whether the caller sees that what an operation makes lies in another order than what PyTorch joins would."""
    tensor = operation.output.tensor
    return tensor.strides != contiguous(tensor.shape) and work.graph.is_seen(operation.output.name)


def _is_chain(work: Rewriting, operation: Operation) -> bool:
    if operation.kind not in BROADCAST or operation.draws:
        return False
    tensors = [operation.output.tensor, *(work.values[name].tensor for name in operation.inputs)]
    return {each.dtype for each in tensors} <= _DTYPES


def flattened(work: Rewriting, operation: Operation) -> tuple[str, str] | None:
    """`cat` of what another `cat` makes for it alone, along the same dim: of the parts of both, if these are alike."""
    if operation.kind != "cat":
        return None
    names, dim = _side_by_side(operation)
    inner = {name: made for name in names if (made := work.alone(name)) is not None and made.kind == "cat"}
    inside = {name: found for name, made in inner.items() if (found := _side_by_side(made))[1] == dim}
    parts = [part for name in names for part in (inside[name][0] if name in inside else [name])]
    types = {(work.shape(part), work.values[part].tensor.dtype) for part in parts}
    if not inside or len(types) > 1 or len(parts) > MOST_PARTS:
        return None
    return Maker(work, operation.output.tensor.dtype).cat(parts, dim), ""


def _side_by_side(cat: Operation) -> tuple[list[str], int]:
    """What `cat` joins, in its order, and along which dim."""
    found = joined(cat)
    return [name for name, _ in found], found[0][1].dim


@dataclass(frozen=True)
class _Joined:
    """Tensors of one shape, side by side or in turns."""

    names: tuple[str, ...]
    dim: int
    size: int
    """Of each, along that."""
    step: int = 1
    """From one's place to its next."""

    def part(self, place: int) -> Part:
        return Part(self.dim, place * (self.size if self.step == 1 else 1), self.size, step=self.step)


def _alike(work: Rewriting, operation: Operation, name: str) -> _Joined | None:
    """What is joined to a value of an operation's shape that it alone reads; None where that is something else."""
    made = work.graph.producers.get(name)
    if made is None or work.shape(name) != operation.output.tensor.shape:
        return None
    found = None
    if made.kind == "cat" and work.alone(name) is not None:
        names, dim = _side_by_side(made)
        found = _Joined(tuple(names), dim, work.shape(names[0])[dim])
    elif made.kind in _RESHAPES and work.alone(name) is not None:
        found = _in_turns(work, made)
    if found is None or not 1 < len(found.names) <= MOST_PARTS or not found.size:
        return None
    types = {(work.shape(each), work.values[each].tensor.dtype) for each in found.names}
    return found if types == {(work.shape(found.names[0]), work.values[name].tensor.dtype)} else None


def _in_turns(work: Rewriting, reshape: Operation) -> _Joined | None:
    """What is stacked, where a view makes one of the new dim and the one in front of it."""
    stack = work.alone(reshape.inputs[0])
    if stack is None or stack.kind != "stack":
        return None
    found = joined(stack)
    shape, dim = stack.output.tensor.shape, found[0][1].dim
    merged = (*shape[: dim - 1], shape[dim - 1] * shape[dim], *shape[dim + 1 :]) if dim else ()
    names = tuple(name for name, _ in found)
    return _Joined(names, dim - 1, shape[dim - 1], len(names)) if reshape.output.tensor.shape == merged else None


@dataclass
class _Taking:
    """Parts of tensors that are broadcast over what is joined."""

    work: Rewriting
    operation: Operation
    """In front of which they are taken."""
    joined: _Joined
    known: dict[tuple[str, int], str] = field(default_factory=dict)

    def can(self, name: str) -> bool:
        """Whether parts of a tensor are there without more being written: it is small, or in memory, or a chain of
        such, or joined itself."""
        chain, shapes = self._chain(name), (self.work.shape(name), self.work.shape(self.operation.output.name))
        if broadcast(*shapes) != shapes[1]:
            return False
        if self._dim(name) is None or self._is_joined(name) or self._lies_in_memory(name):
            return True
        return chain is not None and all(map(self.can, chain.inputs))

    def of(self, operation: Operation, place: int) -> str:
        """What an operation makes of a part of each of its tensors."""
        args = {
            word: Ref(self.part(argument.name, place)) if isinstance(argument, Ref) else argument
            for word, argument in operation.args.items()
        }
        tensor = layouts.packed(self._part(operation.output.name, place).of(operation.output.tensor))
        return self.work.put(operation.kind, operation.target, args, tensor.shape, tensor.dtype, strides=tensor.strides)

    def part(self, name: str, place: int) -> str:
        """A tensor's part that goes with one of those that are joined; all of it where it is the same for them."""
        if (name, place) not in self.known:
            self.known[name, place] = self._taken(name, place)
        return self.known[name, place]

    def _taken(self, name: str, place: int) -> str:
        if self._dim(name) is None:
            return name
        other, chain = _alike(self.work, self.operation, name), self._chain(name)
        if other is not None and self._is_joined(name):
            return other.names[place]
        if chain is not None and not self._lies_in_memory(name):
            return self.of(chain, place)
        return self._sliced(name, self._part(name, place))

    def _dim(self, name: str) -> int | None:
        """The dim of a tensor along which its parts lie."""
        shape, whole = self.work.shape(name), self.work.shape(self.operation.output.name)
        dim = self.joined.dim - len(whole) + len(shape)
        return dim if dim >= 0 and shape[dim] != 1 else None

    def _part(self, name: str, place: int) -> Part:
        dim = self._dim(name)
        assert dim is not None
        return replace(self.joined.part(place), dim=dim)

    def _is_joined(self, name: str) -> bool:
        """Whether a tensor is joined of parts that go with these."""
        other = _alike(self.work, self.operation, name)
        return other is not None and (other.dim, other.size, other.step) == (
            self.joined.dim,
            self.joined.size,
            self.joined.step,
        )

    def _chain(self, name: str) -> Operation | None:
        """What makes a tensor element by element, for one operation alone."""
        made = self.work.graph.producers.get(name)
        return self.work.alone(name) if made is not None and _is_chain(self.work, made) else None

    def _lies_in_memory(self, name: str) -> bool:
        """Whether a tensor is in memory, or costs little to put there: something reads it that is no kernel, or makes
        it."""
        if math.prod(self.work.shape(name)) < math.prod(self.work.shape(self.operation.output.name)):
            return True
        made = self.work.graph.producers.get(name)
        if made is None or any(each.kind in SLICES for each in self.work.graph.readers(name)):
            return True
        if is_view(made.kind):
            return self._lies_in_memory(made.inputs[0])
        return not is_fusable(made.kind) and made.kind not in KINDS

    def _sliced(self, name: str, part: Part) -> str:
        """As the graph has it already, or anew."""
        for each in self.work.graph.readers(name):
            found = [output for output, of in sliced(each, self.work.shape(name)) if of == part]
            if found and self._is_before(each):
                return found[0]
        tensor = self.work.values[name].tensor
        end = part.start + (part.size - 1) * part.step + 1
        make = Maker(self.work, tensor.dtype)
        return make.slice(name, part.dim, part.start, end, part.step, part.of(tensor).strides)

    def _is_before(self, other: Operation) -> bool:
        operations = self.work.graph.operations
        return operations.index(other) < operations.index(self.operation)
