"""Which convolutions and linear layers kernels of ours compute; PyTorch does the others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from typing import Any, NamedTuple

from crucible.algebra.convolution.correlation import Correlation, convolution, input_gradient, transposed_convolution
from crucible.algebra.convolution.fused import DTYPES, LEAF, Convolution
from crucible.algebra.convolution.windows import Spread
from crucible.algebra.program import Operand, Result, contiguous
from crucible.gpus import H200, Gpu
from crucible.graph import ITEM_BYTES, Graph, Operation, Ref
from crucible.plan.lazy import Convolving, Lazy, NotCovered
from crucible.plan.vocabulary import POINTWISE
from crucible.schedule import cost, pays
from crucible.schedule.convolution.choice import least_clocks
from crucible.schedule.convolution.halo import UNITS
from crucible.schedule.convolution.questions import WeightGradient
from crucible.schedule.convolution.tile_choice import tile
from crucible.schedule.convolution.weight_division import divide
from crucible.schedule.convolution.weights import chosen_for_weight, weight_clocks
from crucible.schedule.machine import Machine, machine_of

LINEAR = "linear"
MOST_DIMS = 3
"""Of space."""
LARGEST = 2**31 - 2**16
"""Elements of one item of the batch, and of the weight: inside of kernels they are counted in 32 bits."""
CONVOLUTIONS = frozenset(f"conv{word}{rank}d" for word in ("", "_transpose") for rank in range(1, MOST_DIMS + 1))
KINDS = CONVOLUTIONS | {LINEAR}
"""Of operations, by PyTorch's names."""
NORMS_OVER_SPACE = frozenset({"instance_norm", "group_norm"})


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


def _are_faster(of: Correlation, kind: str, machine: Machine) -> bool:
    """Whether kernels of ours beat PyTorch's, with what follows."""
    channels = of.in_channels, of.out_channels
    if kind == LINEAR:
        return pays.linear_pays(machine, max(channels))
    return pays.convolution_pays(machine, max(channels), min(channels) if of.groups > 1 else None)


def is_wide(of: Correlation, dtype: str, machine: Machine) -> bool:
    """Whether it is a convolution of float32 of more channels than those of which ours are always the faster, and may
    be. Not a transposed one with strides in two dims: task 93 of level 2 was 1.39 times as fast as torch.compile
    forward and 1.32 with gradients; PyTorch's is 1.03 and 1.78 (`kernelbench_level2_tf32_h200.json`)."""
    channels, taps = max(of.in_channels, of.out_channels), math.prod(axis.kernel for axis in of.axes)
    is_phased = len(of.axes) < MOST_DIMS and math.prod(of.phases) > 1
    return dtype == "float32" and of.groups == 1 and not is_phased and pays.is_wide(machine, channels, taps)


def is_estimated(of: Correlation, kind: str, dtype: str, machine: Machine, *, exact: bool) -> bool:
    """Whether estimates of ours and of PyTorch's decide: of wide ones, but where float32 is kept of no transposed one
    with strides or in three dims: of those PyTorch makes 8 to 15 TFLOP/s (level 2, H100), and all are ours."""
    return is_wide(of, dtype, machine) and not (exact and _is_slow_exactly(of, kind))


def _beats_library(of: Correlation, gpu: Gpu, *, chained: bool, exact: bool) -> bool:
    """Whether ours takes less than cuDNN's, and what a chain behind that moves where there is one; where float32 is
    kept also with both gradients."""
    conv = _alone(of, exact=exact)
    library, machine = library_clocks(conv, gpu, chained=chained), machine_of(gpu)
    ours = least_clocks(conv, gpu)
    if ours is None or not pays.wide_pays(machine, ours, library, exact=exact):
        return False
    if not exact:
        return True
    back = _gradients_clocks(of, gpu)
    both = library + 2 * gpu.sms * cost.library_gradient(machine, _flops(of))
    return back is not None and pays.wide_pays(machine, ours + back, both, exact=True)


def _gradients_clocks(of: Correlation, gpu: Gpu) -> float | None:
    """Of ours, of input and weight, where float32 is kept; None where there is no division."""
    source = least_clocks(_alone(input_gradient(of), exact=True), gpu)
    read, grad = (Operand(name, "float32", contiguous(n)) for name, n in (("x", of.in_shape), ("grad", of.out_shape)))
    question = WeightGradient("weight", of, read, grad, exact=True)
    way = chosen_for_weight(question, gpu)
    return None if source is None or way is None else source + weight_clocks(question, way)


def _alone(of: Correlation, *, exact: bool) -> Convolution:
    """A convolution of float32 without a chain."""
    made = Result("made", "float32", contiguous(of.out_shape), LEAF)
    source = Operand("source", "float32", contiguous(of.in_shape))
    weight = (of.out_channels, of.in_channels, *(axis.kernel for axis in of.axes))
    given = Operand("weight", "float32", contiguous(weight))
    return Convolution("wide", of, source, given, weight, (), (made,), exact)


def saves_a_pass(operation: Operation, graph: Graph) -> bool:
    """Whether a kernel of ours saves one over what it makes, beside PyTorch's: that of the chain behind it; or that of
    a norm over space, which reads channels-last products twice and rows of ours once: task 17 of level 2 takes 1.42 and
    5.08 ms for 2.12 and 7.65 so, forward and with gradients (H200)."""
    return _is_read_by(operation, graph, POINTWISE.keys() | NORMS_OVER_SPACE)


def is_normed(operation: Operation, graph: Graph) -> bool:
    """Whether norms over space are all that reads it."""
    return _is_read_by(operation, graph, NORMS_OVER_SPACE)


def _is_read_by(operation: Operation, graph: Graph, kinds: Set[str]) -> bool:
    """By somebody, and by nobody else."""
    readers = graph.readers(operation.output.name)
    return bool(readers) and all(each.kind in kinds for each in readers)


def library_clocks(conv: Convolution, gpu: Gpu, *, chained: bool) -> float:
    """What PyTorch's convolution takes, and a program of the chain behind it where there is one, of all multiprocessors
    together."""
    of, machine, phased = conv.correlation, machine_of(gpu), math.prod(conv.correlation.phases) > 1
    elements = math.prod(of.out_shape)
    library = gpu.sms * cost.library_convolution(machine, _flops(of), len(of.axes), phased=phased, exact=conv.exact)
    moved = ITEM_BYTES["float32"] * elements * (1 + len(conv.loaded) + sum(not each.sums for each in conv.results))
    return library + (cost.program(machine, moved, elements * conv.chain_slots) if chained else 0)


def _flops(of: Correlation) -> int:
    return 2 * math.prod(of.out_shape) * of.in_channels * len(of.products) // math.prod(of.phases)


def _is_slow_exactly(of: Correlation, kind: str) -> bool:
    """Whether it is a transposed convolution of which PyTorch makes little where float32 is kept."""
    return "transpose" in kind and of.groups == 1 and (math.prod(of.phases) > 1 or len(of.axes) == MOST_DIMS)


def _are_faster_exactly(of: Correlation, kind: str, machine: Machine) -> bool:
    """The same where float32 is kept."""
    if kind == LINEAR:
        return False
    if _is_slow_exactly(of, kind):
        return pays.exact_transposed_pays(machine, max(of.in_channels, of.out_channels))
    if not _are_faster(of, kind, machine):
        return False
    is_depthwise = of.merged > 1 and of.apart.in_channels == 1
    return not is_depthwise or pays.depthwise_pays_exactly(machine, math.prod(axis.kernel for axis in of.axes))


def taken(kind: str, args: Mapping[str, Any]) -> Correlation:
    """What kernels of ours compute of it, by shapes and dtype. Raises NotCovered for what they cannot."""
    if args["input"].dtype not in DTYPES:
        raise NotCovered(args["input"].dtype)
    of = _correlation(kind, args)
    if max(map(_item, (of.in_shape, of.out_shape))) > LARGEST:
        raise NotCovered("a tensor too large")
    return of


def is_ours(operation: Operation, graph: Graph, rounding: Rounding = ROUNDING, gpu: Gpu = H200) -> bool:
    """Whether an operation is a convolution or linear layer that kernels of ours are to compute, where their tiles fit.
    Of float32 linear layers only rounded ones: others were not measured. Of one tap in two dims only with a chain
    behind it: by itself PyTorch's takes 0.8 of the time for 64 channels (`convolutions_2d_h200.json`). A linear layer
    only where nothing but a chain is, up to the next layer: what reduces features reads them from memory. Of more
    channels than 64 those that an estimate finds faster than cuDNN's, with the pass of a chain behind that."""
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
    readers, machine = graph.readers(operation.output.name), machine_of(gpu)
    rounds = rounding.linear if operation.kind == LINEAR else rounding.convolutions
    exact = operation.output.tensor.dtype == "float32" and not rounds
    if is_estimated(of, operation.kind, operation.output.tensor.dtype, machine, exact=exact):
        return _beats_library(of, gpu, chained=saves_a_pass(operation, graph), exact=exact)
    if not (_are_faster_exactly if exact else _are_faster)(of, operation.kind, machine):
        return False
    if not exact and _weighs_too_much(of, operation.output.tensor.dtype, machine):
        return False
    if operation.kind == LINEAR and not _is_chain(operation, graph):
        return False
    is_product = operation.kind == LINEAR or (len(of.axes) == 2 and math.prod(axis.kernel for axis in of.axes) == 1)
    return not is_product or any(each.kind in POINTWISE for each in readers)


def _weighs_too_much(of: Correlation, dtype: str, machine: Machine) -> bool:
    """Whether the weight of a transposed convolution with strides, in two dims, is more than shared memory holds."""
    weight = math.prod(axis.kernel for axis in of.axes) * of.in_channels * of.out_channels * ITEM_BYTES[dtype]
    is_strided = len(of.axes) == 2 and math.prod(of.phases) > 1
    return is_strided and not pays.strided_weight_pays(machine, weight)


def _is_chain(operation: Operation, graph: Graph) -> bool:
    """Whether pointwise operations alone follow, up to outputs and other layers."""
    pending = [operation.output.name]
    seen = set(pending)  # there are exponentially many paths through the steps of a recurrent net
    while pending:
        for reader in graph.readers(pending.pop()):
            if reader.kind in POINTWISE:
                if reader.output.name not in seen:
                    seen.add(reader.output.name)
                    pending.append(reader.output.name)
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
