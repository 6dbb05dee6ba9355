"""From a graph to a plan: operations wait as lazy values until something needs their tensors."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from crucible.graph import Graph, Operation, Ref, TensorType
from crucible.plan import pools, rules
from crucible.plan.join import combined
from crucible.plan.lazy import CannotJoin, Lazy, leaf, reshaped
from crucible.plan.settle import Settled, layout_like, settled
from crucible.plan.steps import Call, Fused, Plan, Step
from crucible.write.adjoint import adjoint, saving
from crucible.write.pool import Pool
from crucible.write.pooling.backward import useful
from crucible.write.pooling.forward import saved as keepable
from crucible.write.program import Program, Result, contiguous
from crucible.write.tidy import without_idle_maxima

FLOATS = ("float32", "float16", "bfloat16", "float64")
"""What kernels read and write."""
LONGEST_NAME = 60
"""Of an operator, in characters."""


def fuse(graph: Graph) -> Plan:
    """Chooses what shares a kernel. An operation that nothing here covers stays a call of PyTorch."""
    work = _Planner(graph)
    for operation in graph.operations:
        work.add(operation)
    for name in (*graph.outputs, *(mutation.value for mutation in graph.mutations)):
        work.in_memory(name)
    return Plan(graph, tuple(work.steps), work.types)


class _Planner:
    """Steps so far, and what is still waiting."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.steps: list[Step] = []
        outside = [*graph.inputs, *(p.value for p in graph.parameters), *(c.value for c in graph.constants)]
        self.types: dict[str, TensorType] = {value.name: _dense(value.tensor) for value in outside}
        self.waiting: dict[str, Lazy] = {}
        self.covers: dict[str, tuple[str, ...]] = {}
        self.differentiable = {value.name for value in graph.inputs if value.tensor.is_floating}
        self.differentiable |= {p.value.name for p in graph.parameters if p.trainable}
        self.taken = set(graph.values)

    # what the rules ask for

    def lazy(self, name: str) -> Lazy:
        """A value as it waits, or as it lies in memory."""
        if name not in self.waiting:
            type_ = self.types[name]
            self.waiting[name] = leaf(name, type_.shape, type_.strides, type_.dtype)
        return self.waiting[name]

    def new_name(self, wanted: str) -> str:
        """A name that nothing has: for a reduction, or a pool's value."""
        name, number = wanted, 1
        while name in self.taken:
            number += 1
            name = f"{wanted}_{number}"
        self.taken.add(name)
        return name

    # operations

    def add(self, operation: Operation) -> None:
        """Takes an operation in: as a lazy value where a rule covers it, else as a call."""
        if self._is_for_kernels(operation):
            for attempt in (operation.inputs, ()):
                try:
                    found = rules.apply(operation, self.lazy, self.new_name)
                except CannotJoin:
                    for name in attempt:  # what does not join is computed first, then they are plain tensors
                        self.in_memory(name)
                    continue
                if found is not None:
                    self._wait(operation, found)
                    return
                break
        self._call(operation)

    def _is_for_kernels(self, operation: Operation) -> bool:
        values = [self.graph.values[name].tensor for name in operation.inputs]
        rest = [each.name for each in operation.outputs[1:]]  # the indices of a maximum
        unread = not any(name in self.graph.outputs or self.graph.readers(name) for name in rest)
        makes = unread and operation.outputs[0].tensor.dtype in (*FLOATS, "bool")
        dtypes = {v.dtype for v in (*values, operation.outputs[0].tensor)} - {"bool"}
        alike = dtypes <= set(FLOATS) and ("float64" not in dtypes or len(dtypes) == 1)  # one precision a kernel
        return makes and alike and not operation.mutates and all(v.elements for v in values)

    def _wait(self, operation: Operation, value: Lazy) -> None:
        name, type_ = operation.outputs[0].name, operation.outputs[0].tensor
        if value.shape != type_.shape:
            raise AssertionError(f"{operation.where}: {value.shape} is not {type_.shape}")
        self.waiting[name] = replace(value, dtype=type_.dtype)
        before = (each for read in operation.inputs for each in self.covers.get(read, ()))
        self.covers[name] = (*dict.fromkeys(before), operation.name)

    def _call(self, operation: Operation) -> None:
        call, bias = self._without_bias(operation)
        for name in call.inputs:
            self.in_memory(name)
        if any(name in self.differentiable for name in call.inputs) and call.kind != "detach":
            self.differentiable |= {output.name for output in call.outputs if output.tensor.is_floating}
        self.types |= {output.name: _dense(output.tensor) for output in call.outputs}
        self.steps.append(Call(call, tuple(output.name for output in call.outputs), rules.why_called(operation)))
        if bias is not None:
            self._wait(operation, self._biased(operation, call.output.name, bias))

    def _biased(self, operation: Operation, product: str, bias: str) -> Lazy:
        shape = operation.output.tensor.shape
        channels = rules.channel_dim(operation)
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
        name = operation.output.name
        readers = self.graph.readers(name)
        fits = all(rules.is_fusable(reader.kind) and self._is_for_kernels(reader) for reader in readers)
        return bool(readers) and fits and name not in self.graph.outputs

    # tensors

    def in_memory(self, name: str) -> None:
        """Computes a value, if it waits."""
        value = self.waiting.get(name)
        if name in self.types or value is None:
            return
        producer = self.graph.producers[name]
        if value.dtype not in FLOATS or _is_view(value):
            self._recall(producer)
            return
        if value.pooling is not None and not pools.fits(value):
            value = self._without_pool(name, value)
        self._settle(name, value)

    def _recall(self, operation: Operation) -> None:
        """Leaves to PyTorch what was to join a kernel: views of tensors in memory, conditions."""
        for name in operation.inputs:
            self.in_memory(name)
        del self.waiting[operation.outputs[0].name]
        self._call(operation)

    def _without_pool(self, name: str, value: Lazy) -> Lazy:
        """Computes the pool, where what follows goes over its value in another way."""
        assert value.pooling is not None
        pooled = value.pooling.name
        self.covers[pooled] = self.covers[name]
        self.waiting[pooled] = pools.alone(value)
        self._settle(pooled, self.waiting[pooled])
        return replace(value, pooling=None)

    def _settle(self, name: str, value: Lazy) -> None:
        strides = layout_like(value)
        made = pools.settled(value, name) if value.pooling is not None else settled(value, name, strides)
        self.types[name] = TensorType(made.shape, made.strides, value.dtype)
        self.steps.append(self._fused(name, made))
        del self.waiting[name]
        self.covers[name] = ()  # what follows starts from memory

    def _fused(self, name: str, made: Settled) -> Fused:
        wanted = tuple(o for o, held in made.tensors.items() if held in self.differentiable)
        covers, type_ = self.covers[name], self.types[name]
        operator = self._operator(covers)
        compute = replace(made.compute, name=f"{operator}_kernel")
        if not wanted:
            return Fused(operator, covers, compute, made.tensors, name, type_, {}, None, ())
        self.differentiable.add(name)
        if isinstance(compute, Pool):
            kept = useful(compute, wanted, f"grad_{name}")
            saved = {r.name: _flat(compute, r) for r in keepable(compute) if r.name in kept}
            return Fused(operator, covers, compute, made.tensors, name, type_, saved, None, wanted)
        compute, notes = without_idle_maxima(compute)
        compute, backward = _with_backward(compute, wanted)
        saved = {r.name: _flat(compute, r) for r in compute.results[1:]}
        backward = replace(backward, name=f"{operator}_backward")
        return Fused(operator, covers, compute, made.tensors, name, type_, saved, backward, wanted, notes)

    def _operator(self, covers: Sequence[str]) -> str:
        kinds = [self.graph.producers[name].kind for name in covers if name in self.graph.producers]
        words = "_".join(dict.fromkeys(rules.noun(kind) for kind in kinds if not rules.is_view(kind)))
        wanted = re.sub(r"_+", "_", words)[:LONGEST_NAME].strip("_") or "copy"
        taken = [step.name for step in self.steps if isinstance(step, Fused)]
        return next(name for n in count(1) if (name := wanted if n == 1 else f"{wanted}_{n}") not in taken)


def _with_backward(program: Program, wanted: Sequence[str]) -> tuple[Program, Program]:
    """The program with the reductions as further results that its gradients read, a number a row against another
    pass; and the gradients."""
    reductions = [reduction.name for reduction in program.reductions]
    result = program.results[0].name
    backward = adjoint(program, wanted, {result: f"grad_{result}"}, saved=reductions)
    read = {operand.name for operand in backward.operands}
    return saving(program, [name for name in reductions if f"saved_{name}" in read]), backward


def _flat(compute: Program | Pool, result: Result) -> TensorType:
    """What is kept for backward lies in memory without gaps."""
    shape = compute.row_shape if isinstance(compute, Program) else compute.output_shape
    return TensorType((math.prod(shape),), (1,), result.dtype)


def _is_view(value: Lazy) -> bool:
    """Whether the value is a tensor in memory, seen in another way."""
    return value.expr.kind == "tensor" and not value.reductions and value.pooling is None


def _dense(type_: TensorType) -> TensorType:
    """The layout in which kernels read it: its own where elements lie side by side, else PyTorch's usual one."""
    order = sorted((d for d, n in enumerate(type_.shape) if n > 1), key=lambda d: -type_.strides[d])
    step = 1
    for d in reversed(order):
        if type_.strides[d] != step:
            return replace(type_, strides=contiguous(type_.shape))
        step *= type_.shape[d]
    return type_
