"""Convolutions as lazy values, and lazy values as convolutions with a chain."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from crucible.gpus import Gpu
from crucible.graph import Graph, Operation, Ref
from crucible.plan.join import combined, plain, with_own_names
from crucible.plan.lazy import CannotJoin, Convolving, Lazy, NotCovered, Windowed, output_dims, reshaped, whole
from crucible.plan.reductions import Names
from crucible.plan.settle import Settled, read
from crucible.plan.steps import Fused, Plan
from crucible.plan.vocabulary import POINTWISE
from crucible.write.convolution.correlation import Correlation, convolution, input_gradient, transposed_convolution
from crucible.write.convolution.fused import DTYPES, LEAF, Convolution
from crucible.write.convolution.halo import UNITS
from crucible.write.convolution.reducing import ReducingConvolution
from crucible.write.convolution.tile_choice import tile
from crucible.write.convolution.weight_division import divide
from crucible.write.convolution.windows import MOST as MOST_OF_WINDOW
from crucible.write.convolution.windows import Spread, Windows
from crucible.write.expression import Expr, inputs, tensor
from crucible.write.gradient import derivative
from crucible.write.pool import Window
from crucible.write.program import Operand, Result, contiguous

MOST = 64
"""Channels up to which our kernels are known to be faster."""
LARGEST = 2**31 - 2**16
"""Elements of one item of the batch, and of the weight: inside of kernels they are counted in 32 bits."""


def _each(given: Any, rank: int) -> list[int]:
    several = given if isinstance(given, tuple) else (given,)
    return list(several * rank if len(several) == 1 else several)


def _correlation(rank: int, args: Mapping[str, Any], *, is_transposed: bool) -> Correlation:
    source, weight = args["input"], args["weight"]
    if isinstance(args["padding"], str):
        raise NotCovered(f"padding={args['padding']!r}")
    stride, padding, dilation = (_each(args[name], rank) for name in ("stride", "padding", "dilation"))
    if is_transposed:
        more = _each(args["output_padding"], rank)
        return transposed_convolution(source.shape, weight.shape, stride, padding, more, dilation, args["groups"])
    return convolution(source.shape, weight.shape, stride, padding, dilation, args["groups"])


def pays(of: Correlation) -> bool:
    """Whether kernels of ours beat PyTorch's convolution with what follows it, by what was measured on the H200: with
    at most 64 channels in two dims and in three (`benchmarks/results/sweep_h200.json`, `written_tasks_h200.json`). One
    tap in two dims is a matrix product, in which PyTorch is as fast, but not with what follows: of seven such shapes
    in the sweep all are 2.5 to 7.4 times as fast as torch.compile and with gradients 1.6 to 2.5 times as eager;
    forward of three with strides eager is faster (0.67 to 0.92). Half types in three dims were not measured: they are
    taken by their likeness to those in two."""
    few = max(of.in_channels, of.out_channels) <= MOST
    return few and of.groups == 1 and len(of.axes) in (2, 3)


def _taken(rank: int, args: Mapping[str, Any], *, is_transposed: bool) -> Correlation:
    """What kernels of ours are to compute, by shapes and dtype. Raises NotCovered for what stays with PyTorch."""
    given = args["input"]
    if len(given.shape) != rank + 2 or given.dtype not in DTYPES:
        raise NotCovered(f"{len(given.shape)} dims of {given.dtype}")
    of = _correlation(rank, args, is_transposed=is_transposed)
    if max(map(_item, (of.in_shape, of.out_shape))) > LARGEST:
        raise NotCovered("a tensor too large")
    if not pays(of):
        raise NotCovered("PyTorch's convolution is faster")
    return of


def is_ours(operation: Operation, graph: Graph) -> bool:
    """Whether an operation is a convolution that kernels of ours are to compute, where their tiles fit. Of one tap in
    two dims only with a chain behind it: by itself PyTorch's takes 0.8 of the time for 64 channels
    (`convolutions_2d_h200.json`)."""
    if operation.kind not in RULES:
        return False
    args = {
        name: graph.values[given.name].tensor if isinstance(given, Ref) else given
        for name, given in operation.args.items()
    }
    try:
        of = _taken(int(operation.kind[-2]), args, is_transposed="transpose" in operation.kind)
    except NotCovered:
        return False
    is_product = len(of.axes) == 2 and math.prod(axis.kernel for axis in of.axes) == 1
    return not is_product or any(each.kind in POINTWISE for each in graph.readers(operation.output.name))


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


def _rule(rank: int, *, is_transposed: bool) -> Callable[[Operation, Mapping[str, Any], Names], Lazy]:
    def rule(operation: Operation, args: Mapping[str, Any], names: Names) -> Lazy:
        of = _taken(rank, args, is_transposed=is_transposed)
        source, weight = _in_memory(args["input"]), _in_memory(args["weight"])
        if _strides(weight) != contiguous(weight.shape):
            raise NotCovered("a weight in another layout")
        return _biased(_product(operation, of, source, weight, names), args.get("bias"))

    return rule


def _in_memory(value: Lazy) -> Lazy:
    """Raises CannotJoin for what must be computed first."""
    if value.expr.kind != "tensor" or value.reductions or value.base is not None:
        raise CannotJoin
    return plain(value)


def _strides(value: Lazy) -> tuple[int, ...]:
    """Of a tensor in memory; those of dims of one element as if it were contiguous."""
    usual = contiguous(value.shape)
    return tuple(u if n == 1 else s for s, n, u in zip(value.operands[0].strides, value.shape, usual, strict=True))


def _item(shape: tuple[int, ...]) -> int:
    return contiguous(shape)[0]


def _product(operation: Operation, of: Correlation, source: Lazy, weight: Lazy, names: Names) -> Lazy:
    """The value, with the operand `<name>` that stands for it."""
    name = names(f"{operation.name}_product")
    operand = Operand(name, source.dtype, contiguous(of.out_shape))
    convolving = Convolving(name, of, source, weight)
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
    merged; None where it is not laid over that."""
    assert isinstance(value.base, Convolving)
    shape, at = value.base.shape, output_dims(value)
    dims = [d for group in value.dims for d in group if value.space[d] != 1]
    if at is None or dims != [d for d in at if d is not None] or value.reductions:
        return None
    operands = tuple(replace(o, strides=tuple(0 if d is None else o.strides[d] for d in at)) for o in value.operands)
    return replace(value, space=shape, dims=whole(shape), operands=operands)


def settled(value: Lazy, name: str, strides: Sequence[int]) -> Settled:
    """The convolution with its chain that writes the value to a tensor `name`: laid as `strides` say, or contiguous
    where its dims are seen merged."""
    convolving = value.base
    assert isinstance(convolving, Convolving)
    chains, shape = _chains(convolving, value), convolving.shape
    if value.shape != shape:
        strides = contiguous(value.shape)
    laid = tuple(strides) if value.shape == shape else contiguous(shape)
    (expr, operands), *before = (_read(convolving, each) for each in chains)
    of = convolving.pool
    pool = Windows(of.kind, of.sizes, before[0][0]) if of else None
    read = dict.fromkeys((*operands, *(operand for _, more in before for operand in more)))
    held = {operand: tensor for each in chains for operand, tensor in each.tensors.items()}
    tensors = {**convolving.tensors, **{operand.name: held[operand.name] for operand in read}}
    result = Result(name, value.dtype, laid, expr)
    made = replace(bare(convolving, name), operands=tuple(read), results=(result,), pool=pool)
    return Settled(made, tensors, value.shape, tuple(strides))


def bare(convolving: Convolving, name: str) -> Convolution:
    """The convolution without chains."""
    (source,), (given,) = convolving.source.operands, convolving.weight.operands
    weight = Operand(given.name, given.dtype, contiguous(convolving.weight.shape))
    of, exact = convolving.correlation, convolving.exact
    return Convolution(name, of, source, weight, convolving.weight.shape, (), (), exact)


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
    f"conv{word}{rank}d": _rule(rank, is_transposed=bool(word)) for word in ("", "_transpose") for rank in (1, 2, 3)
}
