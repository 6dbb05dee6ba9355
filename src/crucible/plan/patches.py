"""Convolutions whose windows lie side by side, as embeddings of patches have them, as convolutions of one tap.

What a window covers becomes the channels of one place, once copied (`pixel_unshuffle`): the same products, in sums of
the same length. cuDNN's tensor-core kernels ask for channels that fill 16 bytes, which those of an image do not: 16 by
16 patches of three channels took 0.28 and 0.34 ms so, forward (H200, batch 32, 224 by 224 to 384 and 512 features,
TF32), of 1.09 ms of an MLP-Mixer, which takes 0.83 since.
"""

from __future__ import annotations

from collections.abc import Callable

from crucible.graph import ITEM_BYTES, Graph, Operation, Ref
from crucible.plan.layouts import CHANNEL_BYTES, DTYPES
from crucible.plan.rewriting import Maker, Rewriting
from crucible.schedule.machine import Machine


def with_patches_as_channels(graph: Graph, is_ours: Callable[[Operation], bool], machine: Machine) -> Graph:
    """The graph with each such convolution that is PyTorch's (`is_ours` says of which kernels of ours are) and whose
    channels cuDNN would pad, so rewritten."""
    work = Rewriting(graph, machine)
    for operation in graph.operations:
        size = None if is_ours(operation) else _patch(operation, graph)
        if size is not None:
            work.begin(operation)
            work.finish(operation, _one_tap(Maker(work, operation.output.tensor.dtype), operation, size), "")
    return work.graph


def _patch(operation: Operation, graph: Graph) -> int | None:
    """The size of its windows; None for other convolutions."""
    given, weight = operation.args.get("input"), operation.args.get("weight")
    if operation.kind != "conv2d" or not isinstance(given, Ref) or not isinstance(weight, Ref):
        return None
    tensor, kernel = graph.values[given.name].tensor, graph.values[weight.name].tensor.shape[2:]
    size, args = kernel[0], operation.args
    plain = args["groups"] == 1 and _all(args["padding"], 0) and _all(args["dilation"], 1)
    beside = size > 1 and kernel == (size, size) and _all(args["stride"], size)
    if not (plain and beside) or tensor.dtype not in DTYPES or len(tensor.shape) != 4 or not tensor.elements:
        return None
    whole = not any(n % size for n in tensor.shape[2:])
    padded = tensor.shape[1] * ITEM_BYTES[tensor.dtype] % CHANNEL_BYTES
    return size if whole and padded else None


def _all(given: object, number: int) -> bool:
    return {*given} == {number} if isinstance(given, tuple) else given == number


def _one_tap(make: Maker, operation: Operation, size: int) -> str:
    """What the convolution makes, from patches."""
    given, weight, bias = (operation.args[name] for name in ("input", "weight", "bias"))
    assert isinstance(given, Ref) and isinstance(weight, Ref)
    outputs, channels = make.shape(weight.name)[0], make.shape(given.name)[1] * size * size
    kernel = make.reshape(weight.name, (outputs, channels, 1, 1))
    options = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)}
    term = bias.name if isinstance(bias, Ref) else None
    return make.convolution("conv2d", make.patches(given.name, size), kernel, term, options)
