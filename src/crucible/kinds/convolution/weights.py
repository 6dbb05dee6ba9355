"""The gradient of a weight as kernels: one has what each block makes of it, one adds that up."""

from __future__ import annotations

from crucible.algebra.convolution.correlation import Correlation
from crucible.algebra.convolution.windows import WHOLE, Spreads
from crucible.algebra.program import Operand
from crucible.gpus import H200, Gpu
from crucible.kinds.built import Built
from crucible.kinds.convolution.finish import finish_by_warpgroups, finish_by_warps
from crucible.kinds.convolution.weight_gradient import partial_of, weight_parts
from crucible.kinds.convolution.weight_groups.lower import partial_of_groups, weight_parts_of_groups
from crucible.print.written import Lowered
from crucible.schedule.convolution.questions import NO_FRONTS, Fronts, WeightGradient
from crucible.schedule.convolution.warpgroup.weight_walks import WeightWalks
from crucible.schedule.convolution.weight_division import Division
from crucible.schedule.convolution.weights import WeightWay


def lower_weight(question: WeightGradient, way: WeightWay, result: str, gpu: Gpu) -> Lowered:
    """The kernels; the gradient goes to the tensor `result`."""
    if isinstance(way, WeightWalks):
        return lower_weight_for_warpgroups(question.name, way, question.source, question.grad, result)
    return build_weight_gradient(question, way, result, gpu).lowered()


def build_weight_gradient(question: WeightGradient, division: Division, result: str, gpu: Gpu) -> Built:
    """The kernels that write the gradient of the weight, of the source's dtype, to a tensor `result` laid out like it;
    `question.grad` is laid over the correlation's `out_shape`."""
    partial, name = partial_of(division, result, gpu), f"{question.name}_finish"
    made = weight_parts(question, division, partial)
    last = finish_by_warps(name, question.of, division, partial, result, question.source.dtype)
    return Built((made, last), (partial,))


def lower_weight_gradient(
    name: str,
    of: Correlation,
    source: Operand,
    grad: Operand,
    result: str,
    division: Division,
    spreads: Spreads = WHOLE,
    *,
    exact: bool = False,
    fronts: Fronts = NO_FRONTS,
    gpu: Gpu = H200,
) -> Lowered:
    """The same by its parts; `exact`, the spreads and the chains in front, of one of both, as in `Convolution`."""
    question = WeightGradient(name, of, source, grad, spreads, exact, fronts)
    return build_weight_gradient(question, division, result, gpu).lowered()


def build_weight_for_warpgroups(name: str, walks: WeightWalks, source: Operand, grad: Operand, result: str) -> Built:
    """The kernels that write the gradient of the weight, of the source's dtype, to a tensor `result` laid out like it;
    source and `grad` are contiguous."""
    partial = partial_of_groups(walks, result)
    made = weight_parts_of_groups(name, walks, source, grad, partial)
    last = finish_by_warpgroups(f"{name}_finish", walks, partial, result, source.dtype)
    return Built((made, last), (partial,))


def lower_weight_for_warpgroups(name: str, walks: WeightWalks, source: Operand, grad: Operand, result: str) -> Lowered:
    """The same as text."""
    return build_weight_for_warpgroups(name, walks, source, grad, result).lowered()
