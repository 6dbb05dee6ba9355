"""Convolutions as lazy values, and lazy values as convolutions with a chain."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from crucible.algebra.convolution.correlation import Correlation, input_gradient
from crucible.algebra.convolution.fused import GIVEN, LEAF, Convolution
from crucible.algebra.convolution.reducing import ReducingConvolution
from crucible.algebra.convolution.windows import MOST as MOST_OF_WINDOW
from crucible.algebra.convolution.windows import Windows
from crucible.algebra.expression import Expr, inputs, name_of, nodes, substitute, tensor
from crucible.algebra.gradient import derivative
from crucible.algebra.interval import Interval
from crucible.algebra.operations import cost, lowered
from crucible.algebra.pool import Window
from crucible.algebra.program import Operand, Result, contiguous
from crucible.algebra.ranges import interval
from crucible.algebra.simplify import simplify
from crucible.gpus import Gpu
from crucible.graph import ITEM_BYTES, Operation
from crucible.plan.join import combined, plain, with_own_names
from crucible.plan.lazy import (
    CannotJoin,
    Convolving,
    Lazy,
    NotCovered,
    Windowed,
    output_dims,
    permuted,
    reshaped,
    squeezed,
    unsqueezed,
    whole,
)
from crucible.plan.reductions import Names
from crucible.plan.settle import Settled, is_shared, read
from crucible.plan.settle import laid as laid_over
from crucible.plan.steps import Fused, Plan
from crucible.plan.taken import (
    CONVOLUTIONS,
    LINEAR,
    ROUNDING,
    Rounding,
    is_estimated,
    is_normed,
    is_ours,
    library_clocks,
    taken,
)
from crucible.schedule import pays
from crucible.schedule.convolution.choice import chosen, least_clocks
from crucible.schedule.convolution.questions import WeightGradient
from crucible.schedule.convolution.tiling import Tiling
from crucible.schedule.convolution.weight_division import Division
from crucible.schedule.convolution.weights import chosen_for_weight
from crucible.schedule.cost import program as program_clocks
from crucible.schedule.machine import machine_of


def convolved_again(plan: Plan) -> frozenset[str]:
    """Of each convolution that several steps compute the last operation that all of them have behind it."""
    steps = [s for s in plan.steps if isinstance(s, Fused) and isinstance(s.compute, Convolution | ReducingConvolution)]
    convs = [s.compute.conv if isinstance(s.compute, ReducingConvolution) else s.compute for s in steps]
    exact = any(isinstance(conv, Convolution) and conv.exact for conv in convs)
    rounding, found = Rounding(not exact, ROUNDING.linear), set()
    for operation in plan.graph.operations:
        covers = [step.covers for step in steps if operation.name in step.covers]
        if len(covers) > 1 and is_ours(operation, plan.graph, rounding, plan.gpu):
            shared = frozenset(covers[0]).intersection(*covers[1:])
            found.add([each.name for each in plan.graph.operations if each.name in shared][-1])
    return frozenset(found)


def slower_with_chains(plan: Plan) -> frozenset[str]:
    """The wide convolutions that PyTorch's and a program of the chain behind it would be faster for: what is ours was
    chosen by the convolution alone, and a chain of many instructions goes on beside no products."""
    found, machine = set[str](), machine_of(plan.gpu)
    for step in (each for each in plan.steps if isinstance(each, Fused)):
        conv = step.compute
        if not isinstance(conv, Convolution):
            continue
        covered = [plan.graph.producers[name] for name in step.covers if name in plan.graph.producers]
        own = [each for each in covered if each.kind in CONVOLUTIONS]
        of, dtype = conv.correlation, conv.source.dtype
        if not own or not all(is_estimated(of, each.kind, dtype, machine, exact=conv.exact) for each in own):
            continue
        ours, saves = least_clocks(conv, plan.gpu), any(each.expr is not LEAF for each in conv.results)
        saves = saves or any(is_normed(each, plan.graph) for each in own)
        library = library_clocks(conv, plan.gpu, chained=saves)
        if ours is not None and not pays.wide_pays(machine, ours, library, exact=conv.exact):
            found |= {each.name for each in own}
    return frozenset(found)


def _convolved(operation: Operation, args: Mapping[str, Any], names: Names) -> Lazy:
    of = taken(operation.kind, args)
    (source, front), weight = _fronted(args["input"]), _in_memory(args["weight"])
    return _biased(_product(operation, of, source, weight, names, front), args.get("bias"))


def _linear(operation: Operation, args: Mapping[str, Any], names: Names) -> Lazy:
    """Channels go from the end to where those of a convolution are, and back: nothing moves in memory."""
    of, given = taken(LINEAR, args), args["input"]
    rank, rows = len(of.axes), len(given.shape) == 2
    source = permuted(unsqueezed(given, 0) if rows else given, (0, rank + 1, *range(1, rank + 1)))
    weight = reshaped(args["weight"], (*args["weight"].shape, *[1] * rank))
    made = _product(operation, of, _in_memory(source), _in_memory(weight), names)
    product = permuted(made, (0, *range(2, rank + 2), 1))
    product = squeezed(product, [0]) if rows else product
    bias = args.get("bias")
    return product if bias is None else combined(lambda x, b: x + b, product, bias)


def _fronted(value: Lazy) -> tuple[Lazy, Expr | None]:
    """A tensor in memory, and the chain of it that is convolved. Raises CannotJoin for what must be computed first: a
    chain of several tensors, one that makes something of the zeros around the tensor; and sums, which a compiler may
    contract with a product before them: what is multiplied is to be known bit by bit (`tuning`)."""
    if value.expr.kind == "tensor":
        return _in_memory(value), None
    alone = len(value.operands) == 1 and not value.reductions and value.base is None and not value.updates
    if not alone or value.operands[0].dtype != value.dtype:
        raise CannotJoin
    (operand,) = value.operands
    front = simplify(substitute(value.expr, {operand.leaf: GIVEN})).exprs[0]
    of_zero = interval(front, {name_of(GIVEN): Interval(0.0, 0.0)})
    sums = any(node.kind in ("add", "sub", "fma") for node in nodes(lowered(front)))
    if of_zero != Interval(0.0, 0.0) or sums:
        raise CannotJoin
    return _in_memory(replace(value, expr=operand.leaf)), front


def front_pays(value: Lazy, gpu: Gpu, *, exact: bool) -> bool:
    """Whether the chain in front is cheap, and warps would multiply anyway, forward and for both gradients: warpgroups
    stage planes of tensors alone, and are worth more than a pass over the source."""
    convolving = value.base
    assert isinstance(convolving, Convolving) and convolving.front is not None
    if not pays.front_pays(machine_of(gpu), cost(convolving.front)):
        return False
    of, source = convolving.correlation, convolving.source
    made = Result("made", source.dtype, contiguous(of.out_shape), LEAF)
    plain = replace(bare(convolving, "plain"), results=(made,), front=None, exact=exact)
    grad = Operand("grad", source.dtype, contiguous(of.out_shape))
    laid, turned = replace(made, strides=plain.source.strides), input_gradient(of)
    back = replace(plain, correlation=turned, source=grad, results=(laid,))
    pair = (turned, grad, plain.source) if math.prod(of.phases) > 1 else (of, plain.source, grad)
    ways = chosen(plain, gpu), chosen(back, gpu), chosen_for_weight(WeightGradient("weight", *pair, exact=exact), gpu)
    return all(type(way) in (Tiling, Division) for way in ways)


def pooling_pays(convolving: Convolving, gpu: Gpu, *, exact: bool) -> bool:
    """Whether a pool goes into the kernel; of a convolution that keeps float32, by estimates of both ways."""
    of, pool, machine = convolving.correlation, convolving.pool, machine_of(gpu)
    assert pool is not None
    if not exact or convolving.source.dtype != "float32":
        return pays.pooling_inside_pays(machine, max(of.in_channels, of.out_channels))
    windows = Windows("max", pool.sizes, LEAF)
    shapes = of.out_shape, windows.outputs(of.out_shape)
    whole, left = (Result("made", "float32", contiguous(shape), LEAF) for shape in shapes)
    plain = replace(bare(convolving, "plain"), results=(whole,), front=None, exact=True)
    apart, inside = least_clocks(plain, gpu), least_clocks(replace(plain, pool=windows, results=(left,)), gpu)
    moved = ITEM_BYTES["float32"] * sum(map(math.prod, shapes))
    if inside is None or apart is None:
        return inside is not None
    return not pays.pooling_apart_pays(machine, apart + program_clocks(machine, moved, 0), inside)


def _in_memory(value: Lazy) -> Lazy:
    """Raises CannotJoin for what must be computed first; an expanded tensor, too: its elements are several here, each
    with a gradient."""
    if value.expr.kind != "tensor" or value.reductions or value.base is not None:
        raise CannotJoin
    laid = plain(value)
    if any(is_shared(operand, laid.space) for operand in laid.operands):
        raise CannotJoin
    return laid


def _strides(value: Lazy) -> tuple[int, ...]:
    """Of a tensor in memory; those of dims of one element as if it were contiguous."""
    usual = contiguous(value.shape)
    return tuple(u if n == 1 else s for s, n, u in zip(value.operands[0].strides, value.shape, usual, strict=True))


def _product(
    operation: Operation, of: Correlation, source: Lazy, weight: Lazy, names: Names, front: Expr | None = None
) -> Lazy:
    """The value, with the operand `<name>` that stands for it."""
    if _strides(weight) != contiguous(weight.shape):
        raise NotCovered("a weight in another layout")
    name = names(f"{operation.name}_product")
    operand = Operand(name, source.dtype, contiguous(of.out_shape))
    convolving = Convolving(name, of, source, weight, front=front)
    expr = tensor(name, source.dtype)
    return Lazy(of.out_shape, whole(of.out_shape), (operand,), expr, source.dtype, {name: name}, base=convolving)


def _biased(product: Lazy, bias: Lazy | None) -> Lazy:
    if bias is None:
        return product
    laid = reshaped(bias, [n if d == 1 else 1 for d, n in enumerate(product.shape)])
    return combined(lambda x, b: x + b, product, laid)


def exact(value: Lazy) -> Lazy:
    """The value with no operand of its convolution rounded to TF32."""
    if isinstance(value.base, Convolving) and not value.base.exact:
        return replace(value, base=replace(value.base, exact=True))
    return value


def over(value: Lazy) -> Lazy | None:
    """The value over a space that is its convolution's output, or that of the pool in it, also where its dims are seen
    merged or in another order; None where it is not laid over that."""
    assert isinstance(value.base, Convolving)
    shape, at = value.base.shape, output_dims(value)
    dims = {d for group in value.dims for d in group if value.space[d] != 1}
    if at is None or dims != {d for d in at if d is not None} or value.reductions:
        return None
    operands = tuple(replace(o, strides=tuple(0 if d is None else o.strides[d] for d in at)) for o in value.operands)
    return replace(value, space=shape, dims=whole(shape), operands=operands)


def is_turned(value: Lazy) -> bool:
    """Whether the dims of a convolution's value are seen in another order than it makes them."""
    at = output_dims(value) if isinstance(value.base, Convolving) else None
    dims = [d for group in value.dims for d in group if value.space[d] != 1]
    return at is not None and dims != [d for d in at if d is not None]


def settled(value: Lazy, name: str, strides: Sequence[int]) -> Settled:
    """The convolution with its chain that writes the value to a tensor `name`, laid as `strides` say."""
    convolving, at = value.base, output_dims(value)
    assert isinstance(convolving, Convolving) and at is not None
    seen, usual = laid_over(value, strides), contiguous(convolving.shape)
    made = tuple(u if d is None else seen[d] for d, u in zip(at, usual, strict=True))
    chains = _chains(convolving, value)
    (expr, operands), *before = (_read(convolving, each) for each in chains)
    of = convolving.pool
    pool = Windows(of.kind, of.sizes, before[0][0]) if of else None
    read = dict.fromkeys((*operands, *(operand for _, more in before for operand in more)))
    held = {operand: tensor for each in chains for operand, tensor in each.tensors.items()}
    tensors = {**convolving.tensors, **{operand.name: held[operand.name] for operand in read}}
    result = Result(name, value.dtype, made, expr)
    conv = replace(bare(convolving, name), operands=tuple(read), results=(result,), pool=pool)
    return Settled(conv, tensors, value.shape, tuple(strides))


def bare(convolving: Convolving, name: str) -> Convolution:
    """The convolution without chains."""
    (source,), (given,) = convolving.source.operands, convolving.weight.operands
    weight = Operand(given.name, given.dtype, contiguous(convolving.weight.shape), constant=given.constant)
    of, exact = convolving.correlation, convolving.exact
    return Convolution(name, of, source, weight, convolving.weight.shape, (), (), exact, front=convolving.front)


def _chains(convolving: Convolving, value: Lazy) -> tuple[Lazy, ...]:
    """The chain behind the product and the one in front of a pool. What is convolved they read by other names: its
    gradients are several, of the convolution and of each chain."""
    chains = [value, replace(convolving.pool.before, base=convolving)] if convolving.pool else [value]
    found = [laid for laid in map(over, chains) if laid is not None]
    assert len(found) == len(chains)
    return with_own_names(found, convolving.tensors)


def _read(convolving: Convolving, value: Lazy) -> tuple[Expr, tuple[Operand, ...]]:
    return read(value, {o.leaf: LEAF for o in value.operands if o.name == convolving.name})


def pooled(value: Lazy, kind: str, windows: Sequence[Window], divisor: int | None) -> Lazy | None:
    """The value of a pool over a convolution with its chain, as a convolution that pools. None where kernels do not:
    for windows that overlap, that are padded or large, for chains that read more of a window than its products, and
    for averages of chains that bend."""
    assert isinstance(value.base, Convolving)
    of, before, sizes = value.base, over(value), tuple(window.size for window in windows)
    beside = all(window.apart and window.stride == window.size and not window.over_end for window in windows)
    if of.pool or before is None or value.shape != of.shape or len(sizes) != len(of.shape) - 2:
        return None
    if not beside or math.prod(sizes) > MOST_OF_WINDOW:
        return None
    shape = (*of.shape[:2], *(window.outputs for window in windows))
    product = next(operand for operand in before.operands if operand.name == of.name)
    if any(any(o.strides[:1] + o.strides[2:]) for o in before.operands if o is not product):
        return None
    if kind == "avg" and product.leaf in inputs(derivative(before.expr, product.leaf)):
        return None
    laid = replace(product, strides=contiguous(shape))
    operands = tuple(laid if operand is product else operand for operand in before.operands)
    chain = replace(before, space=shape, dims=whole(shape), operands=operands, base=None)
    scale = math.prod(sizes) / divisor if divisor else 1
    expr = chain.expr * scale if kind == "avg" and scale != 1 else chain.expr
    return replace(chain, expr=expr, base=replace(of, pool=Windowed(kind, sizes, chain)))


RULES: dict[str, Callable[[Operation, Mapping[str, Any], Names], Lazy]] = {
    **dict.fromkeys(sorted(CONVOLUTIONS), _convolved),
    LINEAR: _linear,
}
