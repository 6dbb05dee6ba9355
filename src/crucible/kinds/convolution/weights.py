"""The gradient of a weight as kernels: one has what each block makes of it, one adds that up."""

from __future__ import annotations

from dataclasses import replace

from crucible.gpus import H200, Gpu
from crucible.kernel import nodes as ir
from crucible.kinds.convolution.finish import finish_by_warpgroups, finish_by_warps
from crucible.print.cuda import printed
from crucible.write.convolution.correlation import Correlation
from crucible.write.convolution.questions import NO_FRONTS, Fronts, WeightGradient
from crucible.write.convolution.warpgroup.weight_lower import weight_parts_for_warpgroups
from crucible.write.convolution.warpgroup.weight_walks import WeightWalks
from crucible.write.convolution.weight_division import Division
from crucible.write.convolution.weight_gradient import weight_parts
from crucible.write.convolution.weights import WeightWay
from crucible.write.convolution.windows import WHOLE, Spreads
from crucible.write.kernel import Lowered
from crucible.write.program import Operand


def lower_weight(question: WeightGradient, way: WeightWay, result: str, gpu: Gpu) -> Lowered:
    """The kernels; the gradient goes to the tensor `result`."""
    name, of, source, grad = question.name, question.of, question.source, question.grad
    if isinstance(way, WeightWalks):
        return lower_weight_for_warpgroups(name, way, source, grad, result)
    return lower_weight_gradient(
        name, of, source, grad, result, way, question.spreads, exact=question.exact, fronts=question.fronts, gpu=gpu
    )


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
    """The kernels that write the gradient of the weight, of the source's dtype, to a tensor `result` laid out like it;
    `grad` is laid over the correlation's `out_shape`. `exact`, the spreads and the chains in front, of one of both, as
    in `Convolution`."""
    made = weight_parts(name, of, source, grad, result, division, spreads, exact=exact, fronts=fronts, gpu=gpu)
    return _with(made, finish_by_warps(f"{name}_finish", of, division, made.buffers[0], result, source.dtype))


def lower_weight_for_warpgroups(name: str, walks: WeightWalks, source: Operand, grad: Operand, result: str) -> Lowered:
    """The kernels that write the gradient of the weight, of the source's dtype, to a tensor `result` laid out like it;
    source and `grad` are contiguous."""
    made = weight_parts_for_warpgroups(name, walks, source, grad, result)
    return _with(made, finish_by_warpgroups(f"{name}_finish", walks, made.buffers[0], result, source.dtype))


def _with(made: Lowered, last: ir.Kernel) -> Lowered:
    return replace(made, kernels=(*made.kernels, printed(last)))
