"""From a graph to a plan: operations wait as lazy values until something needs their tensors."""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace

from crucible.algebra.convolution.fused import Convolution
from crucible.algebra.convolution.reducing import ReducingConvolution
from crucible.algebra.expression import constant
from crucible.algebra.interval import Interval
from crucible.algebra.program import contiguous
from crucible.algebra.ranges import interval
from crucible.gpus import H200, Gpu
from crucible.graph import Graph, Operation, Ref, TensorType, Value, unused
from crucible.plan import (
    along,
    bases,
    convolutions,
    crossing,
    forks,
    keeping,
    layouts,
    matrix,
    measuring,
    reducing,
    rules,
    taken,
    ties,
    unread,
    uses,
    within,
)
from crucible.plan.backward import flat, with_backward
from crucible.plan.batched import with_parts_batched
from crucible.plan.before import with_buffers_as_before
from crucible.plan.fold import fold
from crucible.plan.fold_slices import with_slices_in_front
from crucible.plan.join import combined
from crucible.plan.lazy import CannotJoin, Convolving, Lazy, Pooling, leaf, reshaped, scalar
from crucible.plan.parts import with_parts_by_one_call
from crucible.plan.patches import with_patches_as_channels
from crucible.plan.reduced_along import reduced_along
from crucible.plan.rewriting import Folded
from crucible.plan.settle import Settled, layout_like, settled
from crucible.plan.steps import Call, Fused, Plan, Step
from crucible.schedule import pays
from crucible.schedule.machine import machine_of

FLOATS = ("float32", "float16", "bfloat16", "float64")
"""What kernels read and write."""
LONGEST_NAME = 60
"""Of an operator, in characters."""
MOST_OPERANDS = 32
"""Of a kernel. An operator of PyTorch takes 64 arguments, and its gradient has those of the outputs beside them; a
thread has 255 registers, of which the gradient of a chain over 301 tensors held 754. Kernels of networks have 12."""


def fuse(
    graph: Graph, *, tf32: bool = True, tf32_linear: bool | None = None, gpu: Gpu = H200, rewrite: bool = True
) -> Plan:
    """Chooses what shares a kernel, of the graph after algebraic rewrites, unless `rewrite` is False. An operation that
    nothing here covers stays a call of PyTorch. Convolutions of float32 tensors whose operands may not be rounded to
    TF32 take several products of fewer bits; products of matrices do as `tf32_linear` says (as `tf32` where None).
    Shared memory and multiprocessors are those of `gpu`. What several kernels would convolve again is computed once,
    into memory. What draws random numbers stays PyTorch's: from the same seed they are those of the module."""
    rounding = taken.Rounding(tf32, tf32 if tf32_linear is None else tf32_linear)
    machine = machine_of(gpu)
    folded = fold(graph, machine) if rewrite else Folded(graph, ())
    folded = replace(folded, graph=with_parts_by_one_call(folded.graph))
    folded = with_parts_batched(folded, machine) if rewrite else folded

    def is_ours(operation: Operation) -> bool:
        return taken.is_ours(operation, folded.graph, rounding, gpu)

    apart, called = folded.apart, frozenset[str]()
    laid = with_slices_in_front(folded.graph, is_ours) if rewrite else folded.graph
    laid = with_patches_as_channels(laid, is_ours, machine)
    while True:
        plan = _Planner(laid, rounding, gpu, apart, called).plan()
        again, slower = convolutions.convolved_again(plan) - apart, convolutions.slower_with_chains(plan)
        if not again and not slower:
            return with_buffers_as_before(replace(plan, rewrites=folded.notes, asked=graph))
        apart, called = apart | again, called | slower


class _Planner:
    """Steps so far, and what is still waiting."""

    def __init__(
        self, graph: Graph, rounding: taken.Rounding, gpu: Gpu, apart: frozenset[str], called: frozenset[str]
    ) -> None:
        self.graph = graph
        self.apart = apart
        """Operations whose values do not wait."""
        self.called = called
        """Convolutions that are PyTorch's, with what follows them."""
        self.rounding = rounding
        self.gpu, self.machine = gpu, machine_of(gpu)
        self.steps: list[Step] = []
        outside = [*graph.inputs, *(p.value for p in graph.parameters), *(c.value for c in graph.constants)]
        self.types: dict[str, TensorType] = {value.name: layouts.dense(value.tensor) for value in outside}
        alone = (each for each in graph.constants if not each.value.tensor.shape and each.value.tensor.dtype in FLOATS)
        self.numbers = {each.value.name: number for each in alone if (number := each.number) is not None}
        """Those that forward makes tensors of: kernels have them in their text, and nothing is copied to the GPU."""
        self.waiting: dict[str, Lazy] = {}
        self.covers: dict[str, tuple[str, ...]] = {}
        self.differentiable = {value.name for value in graph.inputs if value.tensor.is_floating}
        self.differentiable |= {p.value.name for p in graph.parameters if p.trainable}
        self.names = set(graph.values)
        self.tied = ties.tied(graph)
        """Maxima of which it counts where they are."""
        self.bounds: dict[str, Interval] = {}
        """Where elements of tensors in memory are known to lie."""
        self.ours: dict[str, bool] = {}
        """Of convolutions and linear layers that were asked for, whether kernels of ours are to compute them."""
        self.between = frozenset[str]()  # what joins kernels asks for it
        """Depthwise convolutions that PyTorch computes for kernels before and behind them."""
        self.between = layouts.depthwise_between_kernels(graph, self._joins_kernels, self.machine)
        self.channels_last = layouts.run_channels_last(graph, self._joins_kernels, self._convolves, self.between)
        self.relaid: set[str] = set()
        """Tensors in memory that lie otherwise than PyTorch would lay them, since a convolution runs channels-last."""
        self.copies: dict[tuple[str, tuple[int, ...]], str] = {}
        self.said: dict[str, str] = {}
        """Notes on values that wait."""
        self.updated: set[str] = set()
        """Updates of buffers that a step gives."""

    def plan(self) -> Plan:
        """The plan, once all operations are taken in."""
        for operation in self.graph.operations:
            self.add(operation)
        for name in (*self.graph.outputs, *(mutation.value for mutation in self.graph.mutations)):
            self.in_memory(name)
        self.update(self.graph.operations)
        steps = along.written_along(self.steps, self.types, self._named)
        kept = {*self.graph.outputs, *(mutation.value for mutation in self.graph.mutations)}
        steps = within.written_within(steps, self.types, kept, self.differentiable, self._named, self.new_name)
        steps = within.read_within(steps, self.types, kept)
        steps = reduced_along(steps, self.types, self._named)
        steps = uses.told_apart(steps, self.types, self.differentiable, self.graph.is_seen, self.new_name)
        steps = keeping.with_products_kept(steps, self.gpu)
        steps = unread.with_empty_sums_unread(steps, self.types, self.graph, kept)
        steps = measuring.with_moments_taken(steps, self.types, self.gpu, kept, self.new_name)
        steps = crossing.with_crossings_taken(steps, self.types, self.gpu, kept, self.new_name)
        return Plan(self.graph, steps, self.types, self.gpu)

    # what the rules ask for

    def lazy(self, name: str) -> Lazy:
        """A value as it waits, or as it lies in memory."""
        if name not in self.waiting:
            type_ = self.types[name]
            if name in self.numbers:
                return scalar(constant(self.numbers[name]), type_.dtype)
            self.waiting[name] = leaf(name, type_.shape, type_.strides, type_.dtype, self.bounds.get(name))
        return self.waiting[name]

    def new_name(self, wanted: str) -> str:
        """A name that nothing has: for a reduction, or a pool's value."""
        name = unused(wanted, self.names)
        self.names.add(name)
        return name

    # operations

    def add(self, operation: Operation) -> None:
        """Takes an operation in: as a lazy value where a rule covers it, else as a call."""
        if operation.mutates:
            self.update(each for each in self.graph.operations if {*each.mutates} & {*operation.mutates})
        if self._is_for_kernels(operation):
            self._put_apart(operation)
            for attempt in (self._widest(operation), operation.inputs, ()):
                try:
                    found = self._within(operation, rules.apply(operation, self.lazy, self.new_name, self.tied))
                    self._check_repeated(operation, found)
                except CannotJoin:
                    for name in attempt:  # what does not join is computed first, then they are plain tensors
                        self.in_memory(name)
                    continue
                if found is not None and taken.is_feasible(found, self.gpu):
                    self._wait(operation, found if self.rounding.convolutions else convolutions.exact(found))
                    if operation.name in self.apart:
                        self.in_memory(operation.outputs[0].name)
                    return
                break
        self._call(operation)

    def _widest(self, operation: Operation) -> tuple[str, ...]:
        """What is reduced of the largest space among what an operation reads: a channel's variance beside what the
        channels of a group have in common. Once it is in memory the rest may join."""
        sizes = {n: math.prod(v.space) for n in operation.inputs if (v := self.waiting.get(n)) and v.per_row}
        largest = max(sizes.values(), default=0)
        return tuple(n for n, size in sizes.items() if size == largest and n not in self.types)

    def _put_apart(self, operation: Operation) -> None:
        """Computes what a convolution reads, if something else reads it too."""
        if operation.kind not in taken.KINDS:
            return
        for name in operation.inputs:
            shared = len(self.graph.readers(name)) > 1 or name in self.graph.outputs
            if shared and name in self.waiting and self.waiting[name].expr.kind != "tensor":
                self.in_memory(name)

    def _within(self, operation: Operation, found: Lazy | None) -> Lazy | None:
        """What a rule found. Raises CannotJoin where a kernel would read too many tensors, for a chain in front of a
        convolution where it does not pay, and for a pool inside of a convolution's kernel where no tile of that fits,
        or where something else reads what is pooled: it would be convolved twice."""
        base = found.base if found else None
        if found is not None and len({*found.tensors, *(base.tensors if base else ())}) > MOST_OPERANDS:
            raise CannotJoin
        if found is None or not isinstance(base, Convolving):
            return found
        exact, begins = not self.rounding.convolutions, operation.kind in taken.KINDS
        if begins and base.front is not None and not convolutions.front_pays(found, self.gpu, exact=exact):
            raise CannotJoin
        if base.pool is None:
            return found
        if any(self.lazy(name).base is base for name in operation.inputs):  # a chain behind such a pool
            return found
        covered = {*self.covers[operation.inputs[0]]}
        readers = {each.name for name in covered for each in self.graph.readers(name)}
        alone = readers <= {*covered, operation.name} and covered.isdisjoint(self.graph.outputs)
        inside = taken.is_feasible(found, self.gpu) and convolutions.pooling_pays(base, self.gpu, exact=exact)
        if not alone or not inside:
            raise CannotJoin
        return found

    def _check_repeated(self, operation: Operation, found: Lazy | None) -> None:
        """Raises CannotJoin where rows that were reduced are repeated along further ones: each would be reduced as
        often."""
        if found is None or not found.reductions:
            return
        rows = math.prod(n for d, n in enumerate(found.space) if d not in found.columns)
        for value in (self.lazy(name) for name in operation.inputs):
            if value.per_row and not pays.repeating_pays(self.machine, math.prod(value.shape), rows):
                raise CannotJoin

    def _is_for_kernels(self, operation: Operation) -> bool:
        values = [self.graph.values[name].tensor for name in operation.inputs]
        rest = [each.name for each in operation.outputs[1:]]  # the indices of a maximum
        unread = not any(name in self.graph.outputs or self.graph.readers(name) for name in rest)
        makes = unread and operation.outputs[0].tensor.dtype in (*FLOATS, "bool")
        dtypes = {v.dtype for v in (*values, operation.outputs[0].tensor)} - {"bool"}
        alike = dtypes <= set(FLOATS) and ("float64" not in dtypes or len(dtypes) == 1)  # one precision a kernel
        kept = operation.kind in taken.KINDS and not self._convolves(operation)
        return makes and alike and not kept and not operation.draws and all(v.elements for v in values)

    def _convolves(self, operation: Operation) -> bool:
        """Whether kernels of ours do."""
        if operation.kind not in taken.KINDS or operation.name in self.between | self.called:
            return False
        if operation.name not in self.ours:
            self.ours[operation.name] = taken.is_ours(operation, self.graph, self.rounding, self.gpu)
        return self.ours[operation.name]

    def _wait(self, operation: Operation, value: Lazy) -> None:
        name, type_ = operation.outputs[0].name, operation.outputs[0].tensor
        if value.shape != type_.shape:
            raise AssertionError(f"{operation.where}: {value.shape} is not {type_.shape}")
        self.waiting[name] = replace(value, dtype=type_.dtype)
        before = (each for read in operation.inputs for each in self.covers.get(read, ()))
        self.covers[name] = (*dict.fromkeys(before), operation.name)
        costly = type_.dtype in FLOATS and forks.is_costly(self.waiting[name], self.machine)
        if costly and forks.goes_apart(self.graph, name, self._joins_kernels):
            self.in_memory(name)

    def _call(self, operation: Operation) -> None:
        if self._is_multiplied(operation):
            return
        call, bias = self._without_bias(operation)
        turned = operation.name in self.channels_last
        call = self._channels_last(call) if turned else self._as_in_eager(call, self._in_rows(call))
        if any(name in self.differentiable for name in call.inputs) and call.kind != "detach":
            self.differentiable |= {output.name for output in call.outputs if output.tensor.is_floating}
        self.types |= {output.name: self._type_of(call, output) for output in call.outputs}
        self.steps.append(
            Call(call, tuple(output.name for output in call.outputs), rules.why_called(operation, turned))
        )
        if bias is not None:
            self._wait(operation, self._biased(operation, call.output.name, bias))

    def _type_of(self, call: Operation, made: Value) -> TensorType:
        """What a call makes, as kernels take it to lie. A part of a tensor has gaps, which programs can read; what
        others read, or what may lie otherwise than in eager, is laid anew in front of kernels."""
        dense, known = layouts.dense(made.tensor), self.relaid.isdisjoint(call.inputs)
        is_part = dense != made.tensor and not call.bytes_moved and not layouts.repeats(made.tensor)
        return made.tensor if is_part and known and self._programs_read(made.name) else dense

    def _programs_read(self, name: str) -> bool:
        """Whether kernels that read a tensor, or what follows in the same kernels, are programs; no convolutions,
        products and pools."""
        pending, seen = [name], {name}
        while pending:
            for reader in self.graph.readers(pending.pop()):
                own = reader.kind in rules.MATRIX_PRODUCTS and not self.rounding.linear
                if own or self._convolves(reader) or reader.kind.endswith(("pool1d", "pool2d", "pool3d")):
                    return False
                made = reader.outputs[0].name
                if made not in seen and self._joins_kernels(reader):
                    pending.append(made)
                    seen.add(made)
        return True

    def _is_multiplied(self, operation: Operation) -> bool:
        """Takes in a product of float32 matrices that keeps float32, where a kernel of ours is the faster one."""
        factors = None if self.rounding.linear else matrix.factors(operation)
        if factors is None:
            return False
        self._as_in_eager(operation)
        found = matrix.taken(operation, self.types, self.gpu)
        if found is None:
            return False
        made, name = operation.output, operation.output.name
        if found.addend is not None:
            name = self.new_name(f"{name}_without_bias")
        operator = self._operator((operation.name,), True)
        product = replace(found.product, name=f"{operator}_kernel", result=name)
        wanted = tuple(each for each, held in found.operands.items() if held in self.differentiable)
        self.differentiable |= {name for _ in wanted[:1]}
        self.types[name] = replace(made.tensor, strides=contiguous(made.tensor.shape))
        covers = (operation.name,)
        self.steps.append(Fused(operator, covers, product, found.operands, name, self.types[name], {}, None, wanted))
        if found.addend is not None:
            self._wait(operation, self._biased(operation, name, found.addend))
        return True

    def _channels_last(self, call: Operation) -> Operation:
        """A convolution, or `cat`, over tensors in that order. A weight follows its input: PyTorch sees to that."""
        laid = call.inputs if call.kind == "cat" else call.inputs[:1]
        for name in call.inputs:
            if name not in laid:
                self.in_memory(name)
        names = {
            name: self.in_layout(name, layouts.channels_last(self.graph.values[name].tensor.shape)) for name in laid
        }
        made = call.output
        type_ = replace(made.tensor, strides=layouts.channels_last(made.tensor.shape))
        self.relaid.add(made.name)
        return replace(layouts.renamed(call, names), outputs=(replace(made, tensor=type_),))

    def _as_in_eager(self, call: Operation, laid: Mapping[str, str] | None = None) -> Operation:
        """A call over tensors that lie as PyTorch would lay them, so that what it makes does too. Of tensors of other
        than four or five dims `cat` makes a contiguous one, however they lie. What is `laid` for it stays as it is."""
        any_order = call.kind == "cat" and len(call.output.tensor.shape) not in (4, 5)
        names = dict(laid or {})
        for name in (each for each in call.inputs if each not in (laid or {})):
            if not any_order and not self._is_repeated(name) and self._is_relaid(name):
                names[name] = self.in_layout(name, self._eager_strides(name))
            else:
                self._for_pytorch(name)
        return layouts.renamed(call, names)

    def _in_rows(self, call: Operation) -> dict[str, str]:
        """For a product of matrices in several dims, tensors in which they lie one behind the other: cuBLAS takes one
        stride from matrix to matrix, and PyTorch copies heads of attention, which lie between places, at 1.7 TB/s."""
        tensors = {name: self.graph.values[name].tensor for name in call.inputs if name in self.graph.values}
        if call.kind != "matmul" or not layouts.matrices_lie_apart([*tensors.values()]):
            return {}
        apart = {name: tensor for name, tensor in tensors.items() if layouts.matrices_lie_apart([tensor])}
        found = {name: self._in_a_row(name, tensor) for name, tensor in apart.items()}
        return {name: held for name, held in found.items() if held is not None}

    def _in_a_row(self, name: str, tensor: TensorType) -> str | None:
        """The same matrices one behind the other; what is seen transposed is copied as it is, and seen so again. None
        for a part of another tensor: a copy of ours would begin with PyTorch's."""
        producer = self.graph.producers.get(name)
        turned = producer is not None and rules.turns_matrices(producer, len(tensor.shape))
        before = producer.inputs[0] if producer and turned else name
        if self._reads_parts(before):
            return None
        copied = self.in_layout(before, contiguous(self.graph.values[before].tensor.shape))
        if producer is None or not turned:
            return copied
        strides = contiguous((*tensor.shape[:-2], tensor.shape[-1], tensor.shape[-2]))
        type_ = replace(tensor, strides=(*strides[:-2], strides[-1], strides[-2]))
        seen = replace(producer.output, name=self.new_name(f"{name}_in_rows"), tensor=type_)
        call = replace(layouts.renamed(producer, {before: copied}), outputs=(seen,), name=seen.name)
        self.types[seen.name] = type_
        self.differentiable |= {seen.name} if copied in self.differentiable else set()
        self.steps.append(Call(call, (seen.name,), ""))
        return seen.name

    def _reads_parts(self, name: str) -> bool:
        """Whether a value is a part of a tensor, whose gaps kernels would not read, or is seen in such a part."""
        held = [name] if name in self.types else self.lazy(name).tensors.values()
        pairs = ((self.types[each], self.graph.values[each].tensor) for each in held if each in self.graph.values)
        return any(taken_for != lies and layouts.dense(lies) != lies for taken_for, lies in pairs)

    def _for_pytorch(self, name: str) -> None:
        """Computes a value that a call reads. A view that repeats elements stays PyTorch's: so they are written once,
        and views of it, and what is laid like it, have the strides that they have in eager."""
        if self._is_repeated(name):
            self._recall(self.graph.producers[name])
        else:
            self.in_memory(name)

    def _is_repeated(self, name: str) -> bool:
        """Whether a value that waits is a view whose elements are several times the same one."""
        if name in self.types or name not in self.waiting or name not in self.graph.producers:
            return False
        made = self.graph.producers[name].outputs[0].tensor
        return rules.is_view(self.graph.producers[name].kind) and layouts.repeats(made)

    def _biased(self, operation: Operation, product: str, bias: str) -> Lazy:
        shape = operation.output.tensor.shape
        channels = rules.channel_dim(operation) if operation.kind in rules.BIASED else len(shape) - 1
        laid = reshaped(self.lazy(bias), [n if d == channels else 1 for d, n in enumerate(shape)])
        return combined(lambda x, b: x + b, self.lazy(product), laid)

    def _without_bias(self, operation: Operation) -> tuple[Operation, str | None]:
        """A convolution or linear layer without its bias, which joins the chain that follows; PyTorch would add it in
        a pass over the output, and its gradient takes another."""
        bias = operation.args.get("bias")
        if operation.kind not in rules.BIASED or not isinstance(bias, Ref) or not self._is_followed(operation):
            return operation, None
        name = self.new_name(f"{operation.name}_without_bias")
        output = replace(operation.output, name=name)
        return replace(operation, outputs=(output,), args={**operation.args, "bias": None}), bias.name

    def _is_followed(self, operation: Operation) -> bool:
        """Whether kernels alone read what it makes. Behind a linear layer views do not count: cuBLAS adds its bias at
        no cost, where a kernel would write heads of attention once more for that."""
        pending = [operation.output.name]
        while pending:
            name = pending.pop()
            readers = self.graph.readers(name)
            if not readers or not all(map(self._joins_kernels, readers)) or name in self.graph.outputs:
                return False
            if operation.kind == taken.LINEAR:
                pending += [each.output.name for each in readers if rules.is_view(each.kind)]
        return True

    def _joins_kernels(self, operation: Operation) -> bool:
        return rules.is_fusable(operation.kind) and self._is_for_kernels(operation)

    # tensors

    def update(self, operations: Iterable[Operation]) -> None:
        """Computes what still waits to change a buffer."""
        for operation in operations:
            value = self.waiting.get(operation.outputs[0].name)
            if operation.mutates and value is not None and not {u.name for u in value.updates} <= self.updated:
                self.in_memory(operation.outputs[0].name)

    def in_memory(self, name: str, strides: Sequence[int] | None = None) -> None:
        """Computes a value, if it waits; laid like what it reads, unless other strides are given."""
        value = self.waiting.get(name)
        if name in self.types or value is None:
            return
        producer = self.graph.producers[name]
        copies = strides is None and _is_view(value) and rules.is_view(producer.kind) and producer.bytes_moved
        if copies and not self._reads_parts(name):
            strides = self._eager_strides(name)  # PyTorch would copy it: 1.7 TB/s (H200)
        if value.dtype not in FLOATS or (_is_view(value) and strides is None) or self._is_seen_with_gaps(producer):
            self._recall(producer)
            return
        if strides is None and name in self.graph.outputs and self._is_relaid(name):
            strides = self._eager_strides(name)
        if isinstance(value.base, Convolving) and value.reductions and reducing.fits(value):
            value = self._with_passes_that_pay(name, value)
        if value.base is not None and not bases.fits(value):
            if self._restarted(name, value):
                self.in_memory(name, strides)
                return
            value = self._without_base(name, value)
        self._settle(name, value, strides)

    def _is_seen_with_gaps(self, operation: Operation) -> bool:
        """Whether an output is a view, whose elements share memory or lie apart there."""
        made = operation.outputs[0]
        seen = made.name in self.graph.outputs and rules.is_view(operation.kind)
        return seen and layouts.dense(made.tensor) != made.tensor

    def in_layout(self, name: str, strides: tuple[int, ...]) -> str:
        """A tensor in memory that holds a value in this layout: the value's own, or else a copy."""
        as_it_is = name in self.graph.outputs or layouts.same(
            self.lazy(name).shape, layout_like(self.lazy(name)), strides
        )
        self.in_memory(name, None if as_it_is else strides)
        type_ = self.types[name]
        if layouts.same(type_.shape, type_.strides, strides):
            return name
        if (name, strides) not in self.copies:
            self.copies[name, strides] = self._copied(name, strides)
        return self.copies[name, strides]

    def _copied(self, name: str, strides: tuple[int, ...]) -> str:
        """Lays a tensor in another way. Its gradient is that of the copy, laid as it comes, as with `contiguous`."""
        order = "contiguous" if strides == contiguous(self.types[name].shape) else "channels_last"
        made = self.new_name(f"{name}_{order}")
        found = settled(self.lazy(name), made, strides)
        type_ = replace(self.types[name], strides=strides)
        compute = replace(found.compute, name=f"{made}_kernel")
        wanted = (name,) if name in self.differentiable else ()
        self.differentiable |= {made for _ in wanted}
        self.types[made] = type_
        self.steps.append(Fused(made, (), compute, found.tensors, made, type_, {}, None, wanted))
        return made

    def _is_relaid(self, name: str) -> bool:
        """Whether a value lies, or would lie, in another order than in eager PyTorch."""
        if name in self.types:
            return name in self.relaid
        value = self.waiting.get(name)
        if value is None:
            return False
        return self._reads_relaid(value) if _is_view(value) else self._lies_otherwise(name, self._layout(name, value))

    def _lies_otherwise(self, name: str, strides: Sequence[int]) -> bool:
        """Than in eager PyTorch: a view that it allows there may not be allowed here."""
        return name in self.graph.values and not layouts.same(
            self.graph.values[name].tensor.shape, strides, self._eager_strides(name)
        )

    def _reads_relaid(self, value: Lazy) -> bool:
        before = () if value.base is None else value.base.tensors.values()
        return not self.relaid.isdisjoint((*value.tensors.values(), *before))

    def _eager_strides(self, name: str) -> tuple[int, ...]:
        return layouts.dense(self.graph.values[name].tensor).strides

    def _recall(self, operation: Operation) -> None:
        """Leaves to PyTorch what was to join a kernel: views of tensors in memory, conditions."""
        for name in operation.inputs:
            self._for_pytorch(name)
        del self.waiting[operation.outputs[0].name]
        self._call(operation)

    def _restarted(self, name: str, value: Lazy) -> bool:
        """Where what follows goes over the value in another way, as a reshape that splits channels does: computes what
        it follows, unless that is in memory by now, and takes the operation in anew. Whether that is possible."""
        producer = self.graph.producers.get(name)
        if producer is None:
            return False
        apart = [n for n in producer.inputs if n in self.waiting and n not in self.types]
        before = [n for n in apart if self.waiting[n].base is value.base and bases.fits(self.waiting[n])]
        made = {self.graph.producers[n].name for n in producer.inputs if n in self.types and n in self.graph.producers}
        if not before and made.isdisjoint(self.covers[name]):
            return False
        for each in before:
            self.in_memory(each)
        del self.waiting[name]
        self.covers[name] = ()
        self.add(producer)
        return True

    def _with_passes_that_pay(self, name: str, value: Lazy) -> Lazy:
        """Over the product where computing it in each pass is cheaper than reading it, else over a tensor in memory."""
        time = reducing.time_of_passes(value, self.gpu)
        if time <= 1:
            self.said[name] = f"each pass over the output computes the product: estimated at {time:.2f} of the time"
            self.said[name] += " that writing it once and reading it would take"
            return value
        self.said[name] = (
            f"the product is written and read: computing it in each pass would take {time:.2f} times as long"
        )
        return self._without_base(name, value)

    def _without_base(self, name: str, value: Lazy) -> Lazy:
        """Computes the pool or convolution, where what follows goes over its value in another way."""
        assert value.base is not None
        base, covered = value.base.name, self.covers[name]
        layers = [place for place, n in enumerate(covered) if self.graph.producers[n].kind in rules.BIASED]
        self.covers[base] = covered[: layers[-1] + 1] if isinstance(value.base, Convolving) else covered
        self.waiting[base] = bases.alone(value)
        self._settle(base, self.waiting[base], None)
        return replace(value, base=None)

    def _settle(self, name: str, value: Lazy, strides: Sequence[int] | None) -> None:
        value = _without_updates(value, self.updated)
        write = bases.settled if value.base is not None else settled
        made = write(value, name, strides or self._layout(name, value))
        if value.dtype == "float32" and not value.reductions:
            known = {o.name: o.bounds for o in value.operands if o.bounds is not None}
            self.bounds[name] = interval(value.expr, known)
        self.types[name] = TensorType(made.shape, made.strides, value.dtype)
        if self._lies_otherwise(name, made.strides) or (name not in self.graph.values and self._reads_relaid(value)):
            self.relaid.add(name)
        self.updated |= made.updates.keys()
        self.steps.append(self._fused(name, made))
        del self.waiting[name]
        self.covers[name] = ()  # what follows starts from memory

    def _layout(self, name: str, value: Lazy) -> tuple[int, ...]:
        """Of a convolution whose dims are seen in another order: as in eager PyTorch, whichever it would come in."""
        if name in self.graph.values and not value.reductions and convolutions.is_turned(value):
            return self._eager_strides(name)
        return layout_like(value)

    def _fused(self, name: str, made: Settled) -> Fused:
        covers = self.covers[name]
        operator = self._operator(covers, isinstance(made.compute, Convolution | ReducingConvolution))
        compute, rows = replace(made.compute, name=f"{operator}_kernel"), made.statistics
        rows = rows and replace(rows, name=f"{operator}_statistics")
        saved = {r.name: flat(rows, r) for r in rows.results if r.name not in made.updates} if rows else {}
        said = (self.said[name],) if name in self.said else ()
        step = Fused(operator, covers, compute, made.tensors, name, self.types[name], saved, None, (), said,
                     statistics=rows, updates=made.updates)  # fmt: skip
        constants = {operand.name for operand in step.all_operands if operand.constant}
        wanted = tuple(o for o, held in made.tensors.items() if held in self.differentiable and o not in constants)
        if not wanted:
            return step
        self.differentiable.add(name)
        return with_backward(replace(step, wanted=wanted), self.types)

    def _named(self, covers: Sequence[str], steps: Sequence[Step]) -> str:
        return self._operator(covers, False, steps)

    def _operator(self, covers: Sequence[str], convolves: bool, steps: Sequence[Step] | None = None) -> str:
        kinds = [self.graph.producers[name].kind for name in covers if name in self.graph.producers]
        words = "_".join(dict.fromkeys(rules.noun(kind, convolves) for kind in kinds if not rules.is_view(kind)))
        wanted = re.sub(r"_+", "_", words)[:LONGEST_NAME].strip("_") or "copy"
        names = {step.name for step in (self.steps if steps is None else steps) if isinstance(step, Fused)}
        return unused(wanted, names)


def _without_updates(value: Lazy, done: Container[str]) -> Lazy:
    """Each update is made once, however many kernels compute the value."""
    base = value.base
    if isinstance(base, Pooling):
        base = replace(base, before=_without_updates(base.before, done))
    return replace(value, base=base, updates=tuple(u for u in value.updates if u.name not in done))


def _is_view(value: Lazy) -> bool:
    """Whether the value is a tensor in memory, seen in another way."""
    return value.expr.kind == "tensor" and not value.reductions and value.base is None
