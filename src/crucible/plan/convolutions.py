"""Convolutions as lazy values, and lazy values as convolutions with a chain."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from crucible.gpus import Gpu
from crucible.graph import Graph, Operation, Ref
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
from crucible.plan.vocabulary import POINTWISE
from crucible.write.convolution.correlation import Correlation, convolution, input_gradient, transposed_convolution
from crucible.write.convolution.fused import DTYPES, GIVEN, LEAF, Convolution
from crucible.write.convolution.halo import UNITS
from crucible.write.convolution.lower import chosen
from crucible.write.convolution.questions import WeightGradient
from crucible.write.convolution.reducing import ReducingConvolution
from crucible.write.convolution.tile_choice import tile
from crucible.write.convolution.tiling import Tiling
from crucible.write.convolution.weight_division import Division, divide
from crucible.write.convolution.weights import chosen_for_weight
from crucible.write.convolution.windows import MOST as MOST_OF_WINDOW
from crucible.write.convolution.windows import Spread, Windows
from crucible.write.expression import Expr, inputs, name_of, substitute, tensor
from crucible.write.gradient import derivative
from crucible.write.interval import Interval
from crucible.write.operations import cost
from crucible.write.pool import Window
from crucible.write.program import Operand, Result, contiguous
from crucible.write.ranges import interval
from crucible.write.simplify import simplify

MOST = 64
"""Channels up to which our kernels are known to be faster."""
LEAST_OF_GROUP = 8
"""Channels of a group from which on they are."""
MOST_FEATURES = 16
"""Of a linear layer."""
LINEAR = "linear"
MOST_IN_FRONT = 8
"""Instructions of a chain in front, which runs for each element that is staged, several times where boxes overlap."""
MOST_DIMS = 3
"""Of space."""
LARGEST = 2**31 - 2**16
"""Elements of one item of the batch, and of the weight: inside of kernels they are counted in 32 bits."""


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
    are several, if those have 8 at least. One tap in two dims is a matrix product, in which PyTorch is as fast, but not
    with what follows: of seven such shapes in the sweep all are 2.5 to 7.4 times as fast as torch.compile and with
    gradients 1.6 to 2.5 times as eager; forward of three with strides eager is faster (0.67 to 0.92). Depthwise
    convolutions waste tensor cores: 0.3 to 0.7 of eager's speed. Half types in one dim and in three, and in groups,
    were not measured: they are taken by their likeness to those in two."""
    apart = of.groups == 1 or min(of.in_channels, of.out_channels) >= LEAST_OF_GROUP
    return apart and max(of.in_channels, of.out_channels) <= MOST


def pays_for_linear(of: Correlation) -> bool:
    """The same of a linear layer: 1.5 and 2.5 times eager's speed with 16 and 8 features, 0.4 with 32 and 64, whose
    outputs leave word by word (with gradients 1.7 to 2.2 times; same record)."""
    return max(of.in_channels, of.out_channels) <= MOST_FEATURES


def _taken(kind: str, args: Mapping[str, Any]) -> Correlation:
    """What kernels of ours are to compute, by shapes and dtype. Raises NotCovered for what stays with PyTorch."""
    if args["input"].dtype not in DTYPES:
        raise NotCovered(args["input"].dtype)
    of = _correlation(kind, args)
    if max(map(_item, (of.in_shape, of.out_shape))) > LARGEST:
        raise NotCovered("a tensor too large")
    if not (pays_for_linear if kind == LINEAR else pays)(of):
        raise NotCovered("PyTorch's is faster")
    return of


def is_ours(operation: Operation, graph: Graph) -> bool:
    """Whether an operation is a convolution or linear layer that kernels of ours are to compute, where their tiles fit.
    Of one tap in two dims only with a chain behind it: by itself PyTorch's takes 0.8 of the time for 64 channels
    (`convolutions_2d_h200.json`). A linear layer only where nothing but a chain is, up to the next layer: what reduces
    features reads them from memory."""
    if operation.kind not in RULES:
        return False
    args = {
        name: graph.values[given.name].tensor if isinstance(given, Ref) else given
        for name, given in operation.args.items()
    }
    try:
        of = _taken(operation.kind, args)
    except NotCovered:
        return False
    readers = graph.readers(operation.output.name)
    if operation.kind == LINEAR and not _is_chain(operation, graph):
        return False
    is_product = operation.kind == LINEAR or (len(of.axes) == 2 and math.prod(axis.kernel for axis in of.axes) == 1)
    return not is_product or any(each.kind in POINTWISE for each in readers)


def _is_chain(operation: Operation, graph: Graph) -> bool:
    """Whether pointwise operations alone follow, up to outputs and other layers."""
    pending = [operation]
    while pending:
        for reader in graph.readers(pending.pop().output.name):
            if reader.kind in POINTWISE:
                pending.append(reader)
            elif reader.kind not in RULES:
                return False
    return True


def convolved_again(plan: Plan) -> frozenset[str]:
    """Of each convolution that several steps compute the last operation that all of them have behind it."""
    steps = [s for s in plan.steps if isinstance(s, Fused) and isinstance(s.compute, Convolution | ReducingConvolution)]
    found = set()
    for operation in plan.graph.operations:
        covers = [step.covers for step in steps if operation.name in step.covers]
        if len(covers) > 1 and is_ours(operation, plan.graph):
            shared = frozenset(covers[0]).intersection(*covers[1:])
            found.add([each.name for each in plan.graph.operations if each.name in shared][-1])
    return frozenset(found)


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


def _convolved(operation: Operation, args: Mapping[str, Any], names: Names) -> Lazy:
    of = _taken(operation.kind, args)
    (source, front), weight = _fronted(args["input"]), _in_memory(args["weight"])
    return _biased(_product(operation, of, source, weight, names, front), args.get("bias"))


def _linear(operation: Operation, args: Mapping[str, Any], names: Names) -> Lazy:
    """Channels go from the end to where those of a convolution are, and back: nothing moves in memory."""
    of, given = _taken(LINEAR, args), args["input"]
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
    chain of several tensors, one that is dear or that makes something of the zeros around the tensor."""
    if value.expr.kind == "tensor":
        return _in_memory(value), None
    alone = len(value.operands) == 1 and not value.reductions and value.base is None and not value.updates
    if not alone or value.operands[0].dtype != value.dtype:
        raise CannotJoin
    (operand,) = value.operands
    front = simplify(substitute(value.expr, {operand.leaf: GIVEN})).exprs[0]
    of_zero = interval(front, {name_of(GIVEN): Interval(0.0, 0.0)})
    if cost(front) > MOST_IN_FRONT or of_zero != Interval(0.0, 0.0):
        raise CannotJoin
    return _in_memory(replace(value, expr=operand.leaf)), front


def front_pays(value: Lazy, gpu: Gpu, *, exact: bool) -> bool:
    """Whether warps would multiply anyway, forward and for both gradients: warpgroups stage planes of tensors alone,
    and are worth more than a pass over the source."""
    convolving = value.base
    assert isinstance(convolving, Convolving)
    of, source = convolving.correlation, convolving.source
    made = Result("made", source.dtype, contiguous(of.out_shape), LEAF)
    plain = replace(bare(convolving, "plain"), results=(made,), front=None, exact=exact)
    grad = Operand("grad", source.dtype, contiguous(of.out_shape))
    laid, turned = replace(made, strides=plain.source.strides), input_gradient(of)
    back = replace(plain, correlation=turned, source=grad, results=(laid,))
    pair = (turned, grad, plain.source) if math.prod(of.phases) > 1 else (of, plain.source, grad)
    ways = chosen(plain, gpu), chosen(back, gpu), chosen_for_weight(WeightGradient("weight", *pair, exact=exact), gpu)
    return all(type(way) in (Tiling, Division) for way in ways)


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


def _item(shape: tuple[int, ...]) -> int:
    return contiguous(shape)[0]


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
    weight = Operand(given.name, given.dtype, contiguous(convolving.weight.shape))
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
    **{f"conv{word}{rank}d": _convolved for word in ("", "_transpose") for rank in range(1, MOST_DIMS + 1)},
    LINEAR: _linear,
}
