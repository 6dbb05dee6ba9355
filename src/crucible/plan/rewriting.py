"""A graph that is being rewritten: operations go in the stead of others, and what nobody reads any more goes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from crucible.algebra.interval import Interval
from crucible.algebra.program import contiguous
from crucible.graph import Argument, Graph, Mutation, Operation, Ref, TensorType, Value, unused
from crucible.plan.layouts import renamed
from crucible.plan.parts import sliced
from crucible.schedule.machine import Machine

VIEWS = frozenset({"reshape", "permute", "slice", "expand", "unsqueeze", "select"})
"""Of the operations that are put in, those that move no data."""

OVERLOADS = {"conv_transpose2d": "input", "conv_transpose3d": "input"}


@dataclass(frozen=True)
class Folded:
    """A graph and what was rewritten in it."""

    graph: Graph
    notes: tuple[str, ...]
    apart: frozenset[str] = frozenset()
    """Operations whose values several others read, which are to be computed once."""

    @classmethod
    def of(cls, work: Rewriting) -> Folded:
        """As far as it is."""
        return cls(work.graph, tuple(work.notes), frozenset(work.apart & work.graph.producers.keys()))


class Rewriting:
    """Operations in the order of execution, and those that are made now, which go in front of one of them."""

    def __init__(self, graph: Graph, machine: Machine) -> None:
        self.graph, self.machine = graph, machine
        self.values = dict(graph.values)
        self.mutations = list(graph.mutations)
        self.notes: list[str] = []
        """What was rewritten, in words."""
        self.replaced: set[str] = set()
        """Operations that are to go although they change buffers: something else does that now."""
        self.apart: set[str] = set()
        """Operations whose values are to be computed once, into memory: several others read them."""
        self.intervals: dict[str, Interval] = {}
        """Where the outputs of the first operations lie, of so many as `enclosed` says; of those behind a change it is
        forgotten."""
        self.enclosed = 0
        self.unchanged = 0
        """How many operations stand in front of the last change."""
        self._made: list[Operation] = []
        self.where = ""
        """The line of the operation that is rewritten."""

    # asked

    def shape(self, name: str) -> tuple[int, ...]:
        return self.values[name].tensor.shape

    def producer(self, name: str) -> Operation | None:
        made = next((each for each in self._made if each.output.name == name), None)
        return made or self.graph.producers.get(name)

    def alone(self, name: str) -> Operation | None:
        """What makes a value that one operation reads and nobody else."""
        read = sum(each.inputs.count(name) for each in self.graph.readers(name))
        return None if self.is_kept(name) or read != 1 else self.graph.producers.get(name)

    def is_kept(self, name: str) -> bool:
        """Whether the module's caller gets a value, or a buffer does."""
        return name in self.graph.outputs or any(name == mutation.value for mutation in self.mutations)

    # made

    def put(
        self,
        kind: str,
        target: str,
        args: Mapping[str, Argument],
        shape: Sequence[int],
        dtype: str,
        *,
        depth: int = 0,
        strides: Sequence[int] | None = None,
    ) -> str:
        """A new operation in front of the one that is rewritten; `depth` is how many products each element of a matrix
        product adds up, `strides` are those of what is not contiguous. Returns the name of what it makes."""
        name = unused(kind, self.values)
        value = Value(name, TensorType(tuple(shape), contiguous(shape) if strides is None else tuple(strides), dtype))
        read = list(_names(tuple(args.values())))
        moved = 0 if kind in VIEWS else sum(self.values[each].tensor.bytes for each in read) + value.tensor.bytes
        self.values[name] = value
        flops = value.tensor.elements * (2 * depth or 1)
        self._made.append(Operation(name, kind, target, args, (value,), self.where, flops, moved))
        return name

    def update(self, buffer: str, value: str) -> None:
        """A buffer holds another value after the call."""
        self.mutations.append(Mutation(buffer, value))

    # done

    def begin(self, operation: Operation) -> None:
        """What is made from now on goes in front of an operation, and stands for its line."""
        self._made, self.where = [], operation.where

    def finish(self, operation: Operation, found: str, note: str) -> None:
        """Its output is `found` from now on, which is of its shape; an empty note says nothing."""
        output = operation.outputs[0].name
        if self.shape(found) != self.shape(output):
            raise AssertionError(f"{operation.where}: {self.shape(found)} is not {self.shape(output)}")
        if self._made and self._made[-1].output.name == found:
            self.finish_each(operation, [found], note)
        elif output not in self.graph.outputs and all(output != mutation.value for mutation in self.mutations):
            self.exchange({operation.name: self.made}, note, {output: found})  # the mean over one element, say
        else:
            args: dict[str, Argument] = {"self": Ref(found), "size": self.shape(output)}
            seen = Operation(output, "view", "aten.view.default", args, (self.values[output],), operation.where, 0, 0)
            self.exchange({operation.name: (*self.made, seen)}, note)

    def finish_each(self, operation: Operation, found: Sequence[str], note: str) -> None:
        """Its outputs are those of them from now on, each of what was made."""
        self.exchange({operation.name: self.standing_for(operation, found)}, note)

    def standing_for(self, operation: Operation, found: Sequence[str]) -> list[Operation]:
        """What was made, of which `found` are the operation's outputs."""
        names = {new: output.name for new, output in zip(found, operation.outputs, strict=False)}
        made = []
        for each in self._made:
            each, output = renamed(each, names), names.get(each.output.name)
            made.append(each if output is None else replace(each, name=output, outputs=(self.values[output],)))
        for new in names:
            del self.values[new]
        return made

    def finish_parts(self, operations: Sequence[Operation | None], found: str, dim: int, note: str) -> None:
        """Their outputs are the places of `found` along a dim from now on, of which None has nobody's; what was made
        goes in front of the first."""
        tensor = self.values[found].tensor
        shape, strides = (each[:dim] + each[dim + 1 :] for each in (tensor.shape, tensor.strides))
        parts = []
        for each in operations:
            name = unused(f"{found}_rest", self.values) if each is None else each.output.name
            parts.append(Value(name, TensorType(shape, strides, tensor.dtype)))
            self.values[name] = parts[-1]
        first = next(each for each in operations if each is not None)
        args: dict[str, Argument] = {"self": Ref(found), "dim": dim}
        unbound = Operation(parts[0].name, "unbind", "aten.unbind.int", args, tuple(parts), first.where, 0, 0)
        gone = {each.name: (*self._made, unbound) if each is first else () for each in operations if each is not None}
        self.exchange(gone, note)
        self._see_anew({each.name for each in parts})

    def _see_anew(self, changed: set[str]) -> None:
        """Slices of values that lie otherwise now are seen as they lie there."""
        operations = []
        for each in self.graph.operations:
            source = each.inputs[0] if each.inputs else ""
            if source in changed and (found := sliced(each, self.shape(source))):
                whole = self.values[source].tensor
                outputs = tuple(Value(name, part.of(whole)) for name, part in found)
                self.values.update({output.name: output for output in outputs})
                changed |= {output.name for output in outputs}
                each = replace(each, outputs=outputs)
            operations.append(each)
        self._change(replace(self.graph, operations=tuple(operations)))

    def exchange(
        self, operations: Mapping[str, Sequence[Operation]], note: str, names: Mapping[str, str] | None = None
    ) -> None:
        """Each operation of those names by others, which give its values, or are read by other `names`; an empty note
        says nothing."""
        exchanged = [new for each in self.graph.operations for new in operations.get(each.name, (each,))]
        self._rebuild([renamed(each, names or {}) for each in exchanged])
        self._made = []
        if note and note not in self.notes:
            self.notes.append(note)

    @property
    def made(self) -> tuple[Operation, ...]:
        """What was put since `begin`."""
        return tuple(self._made)

    def abandon(self) -> None:
        """Forgets what was made for an operation that stays."""
        for each in self._made:
            self.values.pop(each.output.name, None)
        self._made = []

    def _rebuild(self, operations: Sequence[Operation]) -> None:
        wanted = {*self.graph.outputs, *(mutation.value for mutation in self.mutations)}
        kept: list[Operation] = []
        for each in reversed(operations):
            changes = (each.mutates and each.name not in self.replaced) or each.draws
            if changes or any(output.name in wanted for output in each.outputs):
                kept.append(each)
                wanted |= set(each.inputs)
        constants = tuple(each for each in self.graph.constants if each.value.name in wanted)
        self._change(
            replace(self.graph, operations=tuple(reversed(kept)), mutations=tuple(self.mutations), constants=constants)
        )
        self.values = {**self.values, **self.graph.values}

    def _change(self, graph: Graph) -> None:
        """Takes another graph; what is known of the operations in front of the change stays."""
        before, self.graph = self.graph.operations, graph
        alike = zip(before, graph.operations, strict=False)
        self.unchanged = sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], alike))
        self.enclosed = min(self.enclosed, self.unchanged)
        known = (output.name for each in before[: self.enclosed] for output in each.outputs)
        self.intervals = {name: self.intervals[name] for name in known}


def _names(argument: Argument) -> Iterator[str]:
    if isinstance(argument, Ref):
        yield argument.name
    elif isinstance(argument, tuple):
        for item in argument:
            yield from _names(item)


class Maker:
    """Operations by the names that mathematics has for them. Values are names of tensors."""

    def __init__(self, work: Rewriting, dtype: str) -> None:
        self.work, self.dtype = work, dtype

    @property
    def machine(self) -> Machine:
        """By whose costs it is decided what pays."""
        return self.work.machine

    def shape(self, name: str) -> tuple[int, ...]:
        return self.work.shape(name)

    def _put(
        self,
        kind: str,
        target: str,
        args: Mapping[str, Argument],
        shape: Sequence[int],
        depth: int = 0,
        strides: Sequence[int] | None = None,
    ) -> str:
        return self.work.put(kind, f"aten.{target}", args, shape, self.dtype, depth=depth, strides=strides)

    def binary(self, kind: str, a: str, b: str | float) -> str:
        """`add`, `sub`, `mul` or `div`, operands broadcast."""
        other: Argument = Ref(b) if isinstance(b, str) else b
        shape = broadcast(self.shape(a), self.shape(b) if isinstance(b, str) else ())
        alpha: dict[str, Argument] = {"alpha": 1} if kind in ("add", "sub") else {}
        return self._put(kind, f"{kind}.Tensor", {"self": Ref(a), "other": other, **alpha}, shape)

    def unary(self, kind: str, a: str) -> str:
        return self._put(kind, f"{kind}.default", {"self": Ref(a)}, self.shape(a))

    def bounded(self, kind: str, a: str, bound: float) -> str:
        """No less than a number, its `min`, or no more, its `max`."""
        return self._put(f"clamp_{kind}", f"clamp_{kind}.default", {"self": Ref(a), kind: bound}, self.shape(a))

    def mean(self, a: str, dims: Sequence[int]) -> str:
        """Over dims, which stay as dims of one element."""
        return self._reduced("mean", "mean.dim", a, dims)

    def total(self, a: str, dims: Sequence[int]) -> str:
        """A sum, likewise."""
        return self._reduced("sum", "sum.dim_IntList", a, dims)

    def apart(self, a: str) -> str:
        """The value, which is to be computed once, into memory."""
        self.work.apart.add(a)
        return a

    def _reduced(self, kind: str, target: str, a: str, dims: Sequence[int]) -> str:
        if all(self.shape(a)[d] == 1 for d in dims):
            return a
        shape = [1 if d in dims else n for d, n in enumerate(self.shape(a))]
        args: dict[str, Argument] = {"self": Ref(a), "dim": tuple(dims), "keepdim": True, "dtype": None}
        return self._put(kind, target, args, shape)

    def pool(self, a: str, sizes: Sequence[int], strides: Sequence[int]) -> str:
        """The average of windows over the last dims."""
        rank, shape = len(sizes), self.shape(a)
        inner = [(n - size) // stride + 1 for n, size, stride in zip(shape[-rank:], sizes, strides, strict=True)]
        args: dict[str, Argument] = {
            "self": Ref(a), "kernel_size": tuple(sizes), "stride": tuple(strides), "padding": (0,) * rank,
            "ceil_mode": False, "count_include_pad": True, **({} if rank == 1 else {"divisor_override": None}),
        }  # fmt: skip
        return self._put(f"avg_pool{rank}d", f"avg_pool{rank}d.default", args, (*shape[:-rank], *inner))

    def reshape(self, a: str, shape: Sequence[int], strides: Sequence[int] | None = None) -> str:
        if tuple(shape) == self.shape(a):
            return a
        if math.prod(shape) != math.prod(self.shape(a)):  # a rewrite that is wrong, whose value would be wrong, too
            raise AssertionError(f"{self.work.where}: {self.shape(a)} has other elements than {tuple(shape)}")
        args: dict[str, Argument] = {"self": Ref(a), "shape": tuple(shape)}
        return self._put("reshape", "reshape.default", args, shape, strides=strides)

    def permute(self, a: str, dims: Sequence[int], strides: Sequence[int] | None = None) -> str:
        shape = [self.shape(a)[d] for d in dims]
        args: dict[str, Argument] = {"self": Ref(a), "dims": tuple(dims)}
        return self._put("permute", "permute.default", args, shape, strides=strides)

    def patches(self, a: str, size: int) -> str:
        """Squares of two dims of space as channels of one place."""
        batch, channels, height, width = self.shape(a)
        shape = (batch, channels * size * size, height // size, width // size)
        args: dict[str, Argument] = {"self": Ref(a), "downscale_factor": size}
        return self._put("pixel_unshuffle", "pixel_unshuffle.default", args, shape)

    def slice(self, a: str, dim: int, start: int, end: int, step: int = 1, strides: Sequence[int] | None = None) -> str:
        shape = [len(range(start, end, step)) if d == dim else n for d, n in enumerate(self.shape(a))]
        args: dict[str, Argument] = {"self": Ref(a), "dim": dim, "start": start, "end": end, "step": step}
        return self._put("slice", "slice.Tensor", args, shape, strides=strides)

    def cat(self, parts: Sequence[str], dim: int) -> str:
        size = sum(self.shape(each)[dim] for each in parts)
        shape = [size if d == dim else n for d, n in enumerate(self.shape(parts[0]))]
        return self._put("cat", "cat.default", {"tensors": tuple(map(Ref, parts)), "dim": dim}, shape)

    def stack(self, parts: Sequence[str], dim: int, strides: Sequence[int] | None = None) -> str:
        shape = list(self.shape(parts[0]))
        shape.insert(dim, len(parts))
        args: dict[str, Argument] = {"tensors": tuple(map(Ref, parts)), "dim": dim}
        return self._put("stack", "stack.default", args, shape, strides=strides)

    def flip(self, a: str, dims: Sequence[int]) -> str:
        return self._put("flip", "flip.default", {"self": Ref(a), "dims": tuple(dims)}, self.shape(a))

    def padded(self, a: str, before: Sequence[int], after: Sequence[int]) -> str:
        """With zeros around the last dims; less than none cuts off."""
        if not any((*before, *after)):
            return a
        rank = len(before)
        inner = [n + b + e for n, b, e in zip(self.shape(a)[-rank:], before, after, strict=True)]
        around = tuple(n for pair in zip(reversed(before), reversed(after), strict=True) for n in pair)
        args: dict[str, Argument] = {"self": Ref(a), "pad": around, "value": 0.0}
        return self._put("constant_pad_nd", "constant_pad_nd.default", args, (*self.shape(a)[:-rank], *inner))

    def matmul(self, a: str, b: str) -> str:
        shape = (*broadcast(self.shape(a)[:-2], self.shape(b)[:-2]), self.shape(a)[-2], self.shape(b)[-1])
        return self._put("matmul", "matmul.default", {"self": Ref(a), "other": Ref(b)}, shape, self.shape(a)[-1])

    def attention(
        self, query: str, key: str, value: str, mask: str | None, scale: float, strides: Sequence[int]
    ) -> str:
        """softmax(q k' scale + mask) v, all in batch, heads, places and features; the mask is broadcast. `strides` are
        the result's."""
        args: dict[str, Argument] = {"query": Ref(query), "key": Ref(key), "value": Ref(value)}
        args |= {"attn_mask": mask and Ref(mask), "dropout_p": 0.0, "is_causal": False}
        args |= {"scale": scale, "enable_gqa": False}
        kind, shape = "scaled_dot_product_attention", (*self.shape(query)[:-1], self.shape(value)[-1])
        return self._put(kind, f"{kind}.default", args, shape, 2 * self.shape(key)[-2], strides)

    def chosen(self, condition: str, where: float, elsewhere: float) -> str:
        """One number where a condition holds, another where it does not."""
        args: dict[str, Argument] = {"condition": Ref(condition), "self": where, "other": elsewhere}
        return self.work.put("where", "aten.where.Scalar", args, self.shape(condition), "float32")

    def chosen_of(self, condition: str, a: str, elsewhere: float) -> str:
        """Elements where a condition holds, a number where it does not."""
        args: dict[str, Argument] = {"condition": Ref(condition), "self": Ref(a), "other": elsewhere}
        return self._put("where", "where.ScalarOther", args, broadcast(self.shape(condition), self.shape(a)))

    def compared(self, kind: str, a: str, b: str | float) -> str:
        """`eq`, `ne`, `lt`, `le`, `gt` or `ge`, operands broadcast: a condition."""
        args: dict[str, Argument] = {"self": Ref(a), "other": Ref(b) if isinstance(b, str) else b}
        shape = broadcast(self.shape(a), self.shape(b) if isinstance(b, str) else ())
        return self.work.put(kind, f"aten.{kind}.{'Tensor' if isinstance(b, str) else 'Scalar'}", args, shape, "bool")

    def both(self, a: str, b: str) -> str:
        """Whether both conditions hold."""
        args: dict[str, Argument] = {"self": Ref(a), "other": Ref(b)}
        shape = broadcast(self.shape(a), self.shape(b))
        return self.work.put("logical_and", "aten.logical_and.default", args, shape, "bool")

    def numbers(self, count: int) -> str:
        """0, 1, 2 and so on."""
        args: dict[str, Argument] = {"end": count, "dtype": self.dtype, "layout": None, "device": None}
        return self._put("arange", "arange.default", {**args, "pin_memory": False}, (count,))

    def log_total(self, a: str) -> str:
        """The logarithm of what softmax divides the last dim by, which is gone."""
        args: dict[str, Argument] = {"self": Ref(a), "dim": (len(self.shape(a)) - 1,), "keepdim": False}
        return self._put("log_total", "logsumexp.default", args, self.shape(a)[:-1])

    def rows_total(self, a: str) -> str:
        """A sum over the last dim, which is gone."""
        args: dict[str, Argument] = {"self": Ref(a), "dim": (len(self.shape(a)) - 1,), "keepdim": False, "dtype": None}
        return self._put("sum", "sum.dim_IntList", args, self.shape(a)[:-1])

    def rows_norm(self, a: str) -> str:
        """The Euclidean norm over the last dim, which is gone."""
        args: dict[str, Argument] = {"self": Ref(a), "ord": 2, "dim": (len(self.shape(a)) - 1,), "keepdim": False}
        return self._put(
            "linalg_vector_norm", "linalg_vector_norm.default", {**args, "dtype": None}, self.shape(a)[:-1]
        )

    def whole(self, a: str, kind: str = "sum") -> str:
        """The sum of all elements, or the mean, of no dims."""
        return self._put(kind, f"{kind}.default", {"self": Ref(a), "dtype": None}, ())

    def cast(self, a: str) -> str:
        """In the dtype that is computed in."""
        if self.work.values[a].tensor.dtype == self.dtype:
            return a
        args: dict[str, Argument] = {"self": Ref(a), "dtype": self.dtype, "non_blocking": False, "copy": False}
        return self._put("to", "to.dtype", {**args, "memory_format": None}, self.shape(a))

    def linear(self, a: str, weight: str, bias: str | None) -> str:
        args: dict[str, Argument] = {"input": Ref(a), "weight": Ref(weight), "bias": bias and Ref(bias)}
        outputs, features = self.shape(weight)
        return self._put("linear", "linear.default", args, (*self.shape(a)[:-1], outputs), features)

    def convolution(self, kind: str, a: str, weight: str, bias: str | None, options: Mapping[str, Any]) -> str:
        """`conv<rank>d` or `conv_transpose<rank>d`, with `stride`, `padding` and `dilation` for each dim of space, and
        `output_padding` where it is transposed; of one group."""
        turned, axes = "transpose" in kind, range(len(self.shape(a)) - 2)
        sizes = [_extent(self.shape(a)[d + 2], self.shape(weight)[d + 2], options, d, turned=turned) for d in axes]
        names = ("stride", "padding", *(("output_padding",) if turned else ("dilation",)))
        args: dict[str, Argument] = {"input": Ref(a), "weight": Ref(weight), "bias": bias and Ref(bias)}
        args |= {name: tuple(options[name]) for name in names} | {"groups": 1}
        args |= {"dilation": tuple(options["dilation"])} if turned else {}
        depth = math.prod(self.shape(weight)) // self.shape(weight)[1 if turned else 0]
        shape = (self.shape(a)[0], self.shape(weight)[1 if turned else 0], *sizes)
        return self._put(kind, f"{kind}.{OVERLOADS.get(kind, 'default')}", args, shape, depth)

    def detach(self, a: str) -> str:
        return self._put("detach", "detach.default", {"self": Ref(a)}, self.shape(a))

    def nothing(self, a: str) -> str:
        """0, of which each element of a tensor has a gradient, of 0."""
        return self.whole(self.slice(self.reshape(a, (math.prod(self.shape(a)),)), 0, 0, 0))

    def expand(self, a: str, shape: Sequence[int]) -> str:
        args: dict[str, Argument] = {"self": Ref(a), "size": tuple(shape), "implicit": False}
        return self._put("expand", "expand.default", args, shape)


def _extent(n: int, kernel: int, options: Mapping[str, Any], dim: int, *, turned: bool) -> int:
    """Of a convolution's output along a dim of space."""
    stride, padding, reach = options["stride"][dim], options["padding"][dim], options["dilation"][dim] * (kernel - 1)
    if turned:
        return (n - 1) * stride - 2 * padding + reach + 1 + int(options["output_padding"][dim])  # type: ignore[no-any-return]
    return (n + 2 * padding - reach - 1) // stride + 1  # type: ignore[no-any-return]


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape of what is computed from tensors of these, element by element."""
    rank = max(map(len, shapes))
    filled = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return tuple(next((n for n in sizes if n != 1), 1) for sizes in zip(*filled, strict=True))
