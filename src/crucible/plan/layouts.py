"""Which convolutions run channels-last, and what the layouts of tensors have to do with it.

cuDNN's tensor-core kernels take and give (batch, height, width, channels). Given tensors laid the other way it converts
them before and after each product, forward and twice backward: 2-d convolutions of the size of tests/modules take
0.25 ms so, 0.12 ms else (H200; TF32; torch.compile, which lays them channels-last in inference, against eager).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from crucible.algebra.program import contiguous
from crucible.graph import ITEM_BYTES, Argument, Graph, Operation, Ref, TensorType
from crucible.schedule import pays
from crucible.schedule.machine import Machine

CONVOLUTIONS = frozenset({"conv2d", "conv_transpose2d"})
DTYPES = frozenset({"float32", "float16", "bfloat16"})
"""For which there are tensor cores; float32 as TF32."""
CHANNEL_BYTES = 16
"""What the channels of one place must be a multiple of: the kernels read them so, and cuDNN would pad others."""
Fits = Callable[[Operation], bool]


def depthwise_between_kernels(graph: Graph, joins_kernels: Fits, machine: Machine) -> frozenset[str]:
    """The names of the depthwise convolutions in two dims that PyTorch computes, channels-last, since kernels of ours
    (`joins_kernels`) write what they read and read what they write."""
    return frozenset(each.name for each in graph.operations if _stands_between(each, graph, joins_kernels, machine))


def _stands_between(operation: Operation, graph: Graph, joins_kernels: Fits, machine: Machine) -> bool:
    if operation.kind != "conv2d" or operation.output.tensor.dtype != "float32":
        return False
    given, made = graph.values[_input(operation)].tensor, operation.output.tensor
    weight = operation.args["weight"]
    if not isinstance(weight, Ref) or len(given.shape) != 4 or not given.elements:
        return False
    taps, channels = math.prod(graph.values[weight.name].tensor.shape[2:]), given.shape[1]
    depthwise = operation.args["groups"] == channels == made.shape[1] > 1 and taps > 1
    if not depthwise or channels * ITEM_BYTES[given.dtype] % CHANNEL_BYTES:
        return False
    producer, readers = graph.producers.get(_input(operation)), graph.readers(operation.output.name)
    between = producer is not None and joins_kernels(producer) and readers and all(map(joins_kernels, readers))
    is_seen = operation.output.name in graph.outputs
    return bool(between) and not is_seen and pays.channels_last_depthwise_pays(machine, taps)


def run_channels_last(graph: Graph, joins_kernels: Fits, is_ours: Fits, between: frozenset[str]) -> frozenset[str]:
    """The names of what PyTorch computes channels-last: depthwise convolutions `between` kernels; convolutions whose
    output is only read by kernels of ours (`joins_kernels`), which write what follows in any order, and by others that
    run so; and `cat` of channels between such. Not convolutions of one tap that read what a convolution of ours
    (`is_ours`) writes: a copy would cost more than they gain (64 channels to 64 at 94x94, batch 64, H200: 0.077 ms so,
    0.090 else, 0.09 for the copy)."""

    def follows_ours(name: str) -> bool:
        producer = graph.producers.get(name)
        if producer is None or is_ours(producer):
            return producer is not None
        large = [each for each in producer.inputs if elements(each) >= elements(name)]  # no factor of channels
        return joins_kernels(producer) and any(map(follows_ours, large))

    def elements(name: str) -> int:
        return graph.values[name].tensor.elements

    def converts(operation: Operation) -> bool:
        """Whether cuDNN would convert for it, and nobody else."""
        if is_ours(operation) or (_has_one_tap(operation, graph) and follows_ours(_input(operation))):
            return False
        return _suits_tensor_cores(operation, graph)

    def joins(operation: Operation) -> bool:
        """Whether it puts channels side by side that a convolution makes or reads so."""
        if not _concatenates_channels(operation):
            return False
        before = [graph.producers[name] for name in operation.inputs if name in graph.producers]
        behind = graph.readers(operation.output.name)
        return any(map(converts, before)) or any(each.name in found for each in behind)

    found = {*between}
    for operation in reversed(graph.operations):
        if converts(operation) or joins(operation):
            name = operation.output.name
            readers = graph.readers(name)
            fits = all(reader.name in found or joins_kernels(reader) for reader in readers)
            if fits and readers and name not in graph.outputs:
                found.add(operation.name)
    return frozenset(found)


def _concatenates_channels(operation: Operation) -> bool:
    made = operation.outputs[0].tensor
    return operation.kind == "cat" and len(made.shape) == 4 and operation.args.get("dim", 0) in (1, -3)


def _suits_tensor_cores(operation: Operation, graph: Graph) -> bool:
    if operation.kind not in CONVOLUTIONS or operation.args.get("groups", 1) != 1:
        return False
    given, made = graph.values[_input(operation)].tensor, operation.output.tensor
    if given.dtype not in DTYPES or len(given.shape) != 4 or not given.elements:
        return False
    one_place = all(tensor.shape[2:] == (1, 1) for tensor in (given, made))
    whole = all(tensor.shape[1] * ITEM_BYTES[tensor.dtype] % CHANNEL_BYTES == 0 for tensor in (given, made))
    return whole and not one_place


def _has_one_tap(operation: Operation, graph: Graph) -> bool:
    if operation.kind not in CONVOLUTIONS:
        return False
    weight = operation.args["weight"]
    return isinstance(weight, Ref) and graph.values[weight.name].tensor.shape[2:] == (1, 1)


def _input(operation: Operation) -> str:
    given = operation.args["input"]
    assert isinstance(given, Ref)
    return given.name


def channels_last(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a tensor (batch, channels, height, width) whose channels are neighbours."""
    batch, height, width, channels = contiguous([shape[0], *shape[2:], shape[1]])
    return batch, channels, height, width


def dense(type_: TensorType) -> TensorType:
    """The layout in which kernels read it: its own where elements lie side by side, else PyTorch's usual one."""
    order = sorted((d for d, n in enumerate(type_.shape) if n > 1), key=lambda d: -type_.strides[d])
    step = 1
    for d in reversed(order):
        if type_.strides[d] != step:
            return replace(type_, strides=contiguous(type_.shape))
        step *= type_.shape[d]
    return type_


def packed(type_: TensorType) -> TensorType:
    """Laid in the same order without the gaps that a part of a tensor has."""
    if dense(type_) == type_:
        return type_
    return replace(type_, strides=without_gaps(type_.shape, type_.strides))


def without_gaps(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Strides in the same order, of elements side by side; dims without a stride stay so."""
    order = sorted((d for d, n in enumerate(shape) if n > 1 and strides[d]), key=lambda d: -strides[d])
    side_by_side = dict(zip(order, contiguous([shape[d] for d in order]), strict=True))
    return tuple(side_by_side.get(d, 0 if not stride else 1) for d, stride in enumerate(strides))


def relaid(strides: Sequence[int], one: TensorType, other: TensorType) -> tuple[int, ...]:
    """The strides of a tensor over some space, for one that lies in another way: each is some steps along one dim."""
    dims = [d for d, n in enumerate(one.shape) if n > 1 and one.strides[d]]

    def moved(stride: int) -> int:
        d = max((d for d in dims if one.strides[d] <= stride), key=lambda d: one.strides[d], default=None)
        return 0 if d is None else stride // one.strides[d] * other.strides[d]

    return tuple(map(moved, strides))


def repeats(type_: TensorType) -> bool:
    """Whether elements along some dim are all the same one in memory."""
    return any(size > 1 and not stride for size, stride in zip(type_.shape, type_.strides, strict=True))


def same(shape: Sequence[int], one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether both strides say the same of a tensor: those of dims of one element say nothing."""
    return all(size < 2 or a == b for size, a, b in zip(shape, one, other, strict=True))


def renamed(operation: Operation, names: Mapping[str, str]) -> Operation:
    """Reading other tensors; the same object where it reads none of those."""
    if names.keys().isdisjoint(operation.inputs):
        return operation

    def new(argument: Argument) -> Argument:
        if isinstance(argument, Ref):
            return Ref(names.get(argument.name, argument.name))
        return tuple(map(new, argument)) if isinstance(argument, tuple) else argument

    return replace(operation, args={name: new(argument) for name, argument in operation.args.items()})


def matrices_lie_apart(tensors: Sequence[TensorType]) -> bool:
    """Whether tensors have the same rows of matrices, in several dims, and those of any do not lie at one distance from
    each other."""
    first = tensors[0].shape[:-2]
    several = sum(size > 1 for size in first) > 1 and all(each.shape[:-2] == first for each in tensors)
    return several and not all(map(_at_one_distance, tensors))


def _at_one_distance(tensor: TensorType) -> bool:
    dims = [(size, stride) for size, stride in zip(tensor.shape[:-2], tensor.strides[:-2], strict=True) if size > 1]
    return all(outer[1] == inner[0] * inner[1] for outer, inner in pairwise(dims))
