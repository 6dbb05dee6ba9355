"""Which convolutions and linear layers kernels of ours compute; PyTorch does the others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from crucible.gpus import Gpu
from crucible.graph import ITEM_BYTES, Graph, Operation, Ref
from crucible.plan.lazy import Convolving, Lazy, NotCovered
from crucible.plan.vocabulary import POINTWISE
from crucible.write.convolution.correlation import Correlation, convolution, input_gradient, transposed_convolution
from crucible.write.convolution.fused import DTYPES
from crucible.write.convolution.halo import UNITS
from crucible.write.convolution.tile_choice import tile
from crucible.write.convolution.weight_division import divide
from crucible.write.convolution.windows import Spread
from crucible.write.program import contiguous

MOST = 64
"""Channels up to which our kernels are known to be faster."""
LEAST_OF_GROUP = 8
"""Channels of a group, of several, from which on they are."""
MOST_FEATURES = 16
"""Of a linear layer."""
MOST_EXACT_TAPS = 64
"""Of a depthwise convolution that keeps float32."""
LINEAR = "linear"
MOST_SHARED = 227 * 1024
"""Bytes of a multiprocessor's shared memory (H200) for one block."""
MOST_DIMS = 3
"""Of space."""
LARGEST = 2**31 - 2**16
"""Elements of one item of the batch, and of the weight: inside of kernels they are counted in 32 bits."""
CONVOLUTIONS = frozenset(f"conv{word}{rank}d" for word in ("", "_transpose") for rank in range(1, MOST_DIMS + 1))
KINDS = CONVOLUTIONS | {LINEAR}
"""Of operations, by PyTorch's names."""


class Rounding(NamedTuple):
    """Whether float32 operands may be rounded to TF32."""

    convolutions: bool
    linear: bool


ROUNDING = Rounding(True, True)


def _each(given: Any, rank: int) -> list[int]:
    several = given if isinstance(given, tuple) else (given,)
    return list(several * rank if len(several) == 1 else several)


def _correlation(kind: str, args: Mapping[str, Any]) -> Correlation:
    source, weight = args["input"], args["weight"]
    if kind == LINEAR:
        return _of_features(source.shape, weight.shape)
    rank = int(kind[-2])
    if len(source.shape) != rank + 2:
        raise NotCovered(f"{len(source.shape)} dims")
    stride, dilation = (_each(args[name], rank) for name in ("stride", "dilation"))
    padding = _padding(args["padding"], weight.shape[2:], dilation)
    if "transpose" in kind:
        more = _each(args["output_padding"], rank)
        return transposed_convolution(source.shape, weight.shape, stride, padding, more, dilation, args["groups"])
    return convolution(source.shape, weight.shape, stride, padding, dilation, args["groups"])


def _padding(given: Any, kernel: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """Of each dim, on both sides. Raises NotCovered where those are to differ."""
    if given == "valid":
        return [0] * len(kernel)
    if given != "same":
        return _each(given, len(kernel))
    both = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    if any(n % 2 for n in both):
        raise NotCovered(f"padding='same' of a kernel of {kernel}")
    return [n // 2 for n in both]


def _of_features(shape: Sequence[int], weight: Sequence[int]) -> Correlation:
    """A linear layer as a convolution of one tap: features are its channels, the dims before them space; the first of
    several is the batch."""
    batch, *space, features = shape if len(shape) > 2 else (1, *shape)
    if not 1 <= len(space) <= MOST_DIMS:
        raise NotCovered(f"{len(shape)} dims")
    ones = [1] * len(space)
    return convolution((batch, features, *space), (*weight, *ones), ones, [0] * len(space), ones, 1)


def pays(of: Correlation) -> bool:
    """Whether kernels of ours beat PyTorch's convolution with what follows it, by what was measured on the H200
    (`benchmarks/results/sweep_h200.json`, `written_tasks_h200.json`): with at most 64 channels, of a group where there
    are several, if those have 8 at least, small ones taken together (`correlation.together`). Depthwise convolutions
    are so 1.1 to 2.4 times as fast as eager and with gradients 1.2 to 3.0; each group by itself they were 0.3 to 0.7.
    One tap in two dims is a matrix product, in which PyTorch is as fast, but not with what follows: of seven such
    shapes in the sweep all are 2.5 to 7.4 times as fast as torch.compile and with gradients 1.6 to 2.5 times as eager;
    forward of three with strides eager is faster (0.67 to 0.92). In bfloat16 seven depthwise ones and small
    groups are 1.5 to 3.8 times as fast as eager and with gradients 1.2 to 3.3. Not measured, and taken by likeness:
    half types in one dim, transposed convolutions in one dim and in groups."""
    apart = of.groups == 1 or min(of.in_channels, of.out_channels) >= LEAST_OF_GROUP
    return apart and max(of.in_channels, of.out_channels) <= MOST


def pays_exactly(of: Correlation) -> bool:
    """Whether they do where float32 is kept, by three products for one: not a depthwise convolution of many taps, of
    which PyTorch's own kernel makes one product where tensor cores make 48. With 125 taps ours take 1.64 times as long
    forward and 1.1 with gradients; with 25 to 49 they were 0.79 to 0.92 and 0.94 to 1.49 times as fast, with 27 0.90
    and 1.22, with 5 and 9 1.08 to 1.75 and 1.13 to 1.37; in groups of two to eight channels 2.0 to 8.1 and 1.3 to 9.9
    times (H200, beside PyTorch's convolution with the chain behind it: `depthwise_exact_h200.json`)."""
    group = of.apart
    is_depthwise = of.merged > 1 and group.in_channels == 1
    return not is_depthwise or math.prod(axis.kernel for axis in of.axes) <= MOST_EXACT_TAPS


def pays_for_linear(of: Correlation) -> bool:
    """The same of a linear layer: 1.5 and 2.5 times eager's speed with 16 and 8 features, 0.4 with 32 and 64, whose
    outputs leave word by word (with gradients 1.7 to 2.2 times; same record)."""
    return max(of.in_channels, of.out_channels) <= MOST_FEATURES


def taken(kind: str, args: Mapping[str, Any]) -> Correlation:
    """What kernels of ours are to compute, by shapes and dtype. Raises NotCovered for what stays with PyTorch."""
    if args["input"].dtype not in DTYPES:
        raise NotCovered(args["input"].dtype)
    of = _correlation(kind, args)
    if max(map(_item, (of.in_shape, of.out_shape))) > LARGEST:
        raise NotCovered("a tensor too large")
    if not (pays_for_linear if kind == LINEAR else pays)(of):
        raise NotCovered("PyTorch's is faster")
    return of


def is_ours(operation: Operation, graph: Graph, rounding: Rounding = ROUNDING) -> bool:
    """Whether an operation is a convolution or linear layer that kernels of ours are to compute, where their tiles fit.
    Of float32 linear layers only rounded ones: others were not measured. Of one tap in two dims only with a chain
    behind it: by itself PyTorch's takes 0.8 of the time for 64 channels (`convolutions_2d_h200.json`). A linear layer
    only where nothing but a chain is, up to the next layer: what reduces features reads them from memory."""
    if operation.kind not in KINDS:
        return False
    args = {
        name: graph.values[given.name].tensor if isinstance(given, Ref) else given
        for name, given in operation.args.items()
    }
    try:
        of = taken(operation.kind, args)
    except NotCovered:
        return False
    readers = graph.readers(operation.output.name)
    rounds = rounding.linear if operation.kind == LINEAR else rounding.convolutions
    exact = operation.output.tensor.dtype == "float32" and not rounds
    if exact and (operation.kind == LINEAR or not pays_exactly(of)):
        return False
    if not exact and _weighs_too_much(of, operation.output.tensor.dtype):
        return False
    if operation.kind == LINEAR and not _is_chain(operation, graph):
        return False
    is_product = operation.kind == LINEAR or (len(of.axes) == 2 and math.prod(axis.kernel for axis in of.axes) == 1)
    return not is_product or any(each.kind in POINTWISE for each in readers)


def _weighs_too_much(of: Correlation, dtype: str) -> bool:
    """Whether the weight of a transposed convolution with strides, in two dims, is more than shared memory: 64 channels
    of 4x4 with stride 2 took 5.36 ms where torch.compile's took 2.69, of 3x3 1.28 for 2.50 (H200)."""
    weight = math.prod(axis.kernel for axis in of.axes) * of.in_channels * of.out_channels * ITEM_BYTES[dtype]
    return len(of.axes) == 2 and math.prod(of.phases) > 1 and weight > MOST_SHARED


def _is_chain(operation: Operation, graph: Graph) -> bool:
    """Whether pointwise operations alone follow, up to outputs and other layers."""
    pending = [operation]
    while pending:
        for reader in graph.readers(pending.pop().output.name):
            if reader.kind in POINTWISE:
                pending.append(reader)
            elif reader.kind not in KINDS:
                return False
    return True


def is_feasible(value: Lazy, gpu: Gpu) -> bool:
    """Whether kernels can be written for a GPU: of what is no convolution always, of one if there are tiles of it and
    of its gradients that fit in shared memory."""
    if not isinstance(value.base, Convolving):
        return True
    of, unit, pool = value.base.correlation, UNITS[value.base.source.dtype], value.base.pool
    turned, sizes = input_gradient(of), pool.sizes if pool else ()
    spread = Spread(sizes) if pool else None
    weight = (of, (None, spread)) if math.prod(of.phases) == 1 else (turned, (spread, None))
    ways = tile(of, unit, gpu, sizes), tile(turned, unit, gpu, (), sizes), divide(weight[0], unit, gpu, weight[1])
    return all(ways)


def _item(shape: tuple[int, ...]) -> int:
    return contiguous(shape)[0]
