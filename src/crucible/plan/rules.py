"""What each operation of PyTorch is as a lazy value."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

from crucible.algebra.expression import substitute, where
from crucible.graph import Argument, Operation, Ref
from crucible.plan import convolutions, norms, pools, reductions
from crucible.plan.join import combined, joined, merged
from crucible.plan.lazy import CannotJoin, Lazy, NotCovered, reshaped
from crucible.plan.views import SHUFFLES, VIEWS
from crucible.plan.vocabulary import CONDITIONS, POINTWISE

BIASED = frozenset({"conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "linear"})
"""They take a bias for each channel, which is theirs to add last."""
Names = Callable[[str], str]


def apply(operation: Operation, lazy: Callable[[str], Lazy], names: Names, tied: Container[str] = ()) -> Lazy | None:
    """The value of an operation; None where it stays with PyTorch. `tied` are names of those whose place counts. Raises
    CannotJoin where some operand must be computed first."""
    args = {name: _given(argument, lazy) for name, argument in operation.args.items()}
    try:
        if operation.kind in POINTWISE:
            return _pointwise(operation, args)
        rule = (FIRST if operation.name in tied else RULES).get(operation.kind)
        return rule(operation, args, names) if rule else None
    except NotCovered:
        return None


def is_fusable(kind: str) -> bool:
    """Whether a rule exists; it may still refuse some arguments."""
    return kind in POINTWISE or (kind in RULES and kind not in BIASED)


def is_view(kind: str) -> bool:
    return kind in VIEWS


def turns_matrices(operation: Operation, rank: int) -> bool:
    """Whether it is a view in which the last two dims change places."""
    if operation.kind == "mT":
        return True
    dims = [operation.args.get(name) for name in ("dim0", "dim1")]
    ints = [each % rank for each in dims if isinstance(each, int)]
    return operation.kind == "transpose" and sorted(ints) == [rank - 2, rank - 1]


def noun(kind: str, convolves: bool) -> str:
    """What an operator's name says for an operation; of a convolution that PyTorch does it has the bias."""
    return "bias" if kind in BIASED and not convolves else kind.strip("_")


def channel_dim(operation: Operation) -> int:
    """Where the channels of a biased operation's output are."""
    rank = len(operation.outputs[0].tensor.shape)
    spatial = 0 if operation.kind == "linear" else int(operation.kind[-2])
    return rank - 1 - spatial


def why_called(operation: Operation, channels_last: bool = False) -> str:
    """Words for the plan."""
    if channels_last and operation.kind == "cat":
        return "not covered; channels-last, as what stands around it"
    if channels_last:
        return "a matrix product, channels-last, since cuDNN's tensor-core kernels would convert to that and back"
    if operation.kind in BIASED or operation.kind in MATRIX_PRODUCTS:
        return "a matrix product"
    if operation.draws:
        return "it draws random numbers, from the same seed those that the module would"
    if operation.kind == ATTENTION:
        return "fused there, scores are never written"
    return "a view" if operation.kind in VIEWS else "not covered"


ATTENTION = "scaled_dot_product_attention"
MATRIX_PRODUCTS = frozenset({"matmul", "mm", "bmm", "addmm", "baddbmm", "einsum", "convolution"})


def _given(argument: Argument, lazy: Callable[[str], Lazy]) -> Any:
    if isinstance(argument, Ref):
        return lazy(argument.name)
    return tuple(_given(item, lazy) for item in argument) if isinstance(argument, tuple) else argument


def _pointwise(operation: Operation, args: Mapping[str, Any]) -> Lazy | None:
    """Operands broadcast, conditions count as 0 and 1 where numbers are asked for."""
    own = {name: arg for name, arg in args.items() if isinstance(arg, Lazy)}
    if operation.kind == "prelu" and own["weight"].shape != (1,):
        rank = len(own["self"].shape)
        own["weight"] = reshaped(own["weight"], [own["weight"].shape[0] if d == 1 else 1 for d in range(rank)])
    common = joined(list(own.values()))
    logical = operation.kind in CONDITIONS | {"where", "masked_fill"}
    exprs = {}
    for name, value in zip(own, common, strict=True):
        is_condition = value.dtype == "bool"
        exprs[name] = where(value.expr, 1.0, 0.0) if is_condition and not logical else value.expr
    rest = {name: arg for name, arg in args.items() if name not in own}
    expr = POINTWISE[operation.kind](**exprs, **rest)
    return merged(common, expr, operation.outputs[0].tensor.dtype)


# reductions


def _dims(value: Lazy, given: Any) -> list[int]:
    rank = len(value.dims)
    if given is None or given == ():
        return list(range(rank))
    return [d % rank for d in (given if isinstance(given, tuple) else (given,))]


def _reduction(over: Callable[[Lazy, Sequence[int], Names], Lazy]) -> Callable[..., Lazy]:
    """Of dims of more than one element; the others are left alone."""

    def rule(operation: Operation, args: Mapping[str, Any], names: Names) -> Lazy:
        value = _as_asked(args["self"], args.get("dtype"))
        dims = _dims(value, args.get("dim"))
        made = over(value, [d for d in dims if value.shape[d] > 1], names)
        return made if args.get("keepdim") else reductions.without(made, dims, len(made.dims))

    return rule


def _along(over: Callable[[Lazy, Sequence[int], Names], Lazy]) -> Callable[..., Lazy]:
    def rule(operation: Operation, args: Mapping[str, Any], names: Names) -> Lazy:
        value = _as_asked(args["self"], args.get("dtype"))
        return over(value, _dims(value, args["dim"]), names)

    return rule


def _as_asked(value: Lazy, dtype: str | None) -> Lazy:
    if value.dtype == "bool" or dtype not in (None, "float32", value.dtype):
        raise NotCovered(f"{value.dtype} reduced as {dtype}")
    return value


def _variance(operation: Operation, args: Mapping[str, Any], names: Names) -> Lazy:
    correction = args.get("correction")
    if correction is None:
        correction = float(args.get("unbiased", True))

    def over(value: Lazy, dims: Sequence[int], new: Names) -> Lazy:
        found = reductions.variance(value, dims, new, correction)
        return combined(lambda v: v.sqrt(), found) if operation.kind == "std" else found

    return _reduction(over)(operation, args, names)


def _norm(operation: Operation, args: Mapping[str, Any], names: Names) -> Lazy:
    if args.get("ord", 2) != 2:
        raise NotCovered(f"a norm of order {args['ord']}")

    def over(value: Lazy, dims: Sequence[int], new: Names) -> Lazy:
        squares = combined(lambda x: x.square(), value)
        return combined(lambda s: s.sqrt(), reductions.total(squares, dims, new))

    return _reduction(over)(operation, args, names)


# norms with weights


def _layer_norm(operation: Operation, args: Mapping[str, Any], names: Names) -> Lazy:
    dims = norms.trailing(args["input"], args["normalized_shape"])
    value = reductions.normalised(args["input"], dims, args["eps"], names)
    return norms.scaled(value, args.get("weight"), args.get("bias"))


def _rms_norm(operation: Operation, args: Mapping[str, Any], names: Names) -> Lazy:
    eps = norms.default_eps(args["input"].dtype) if args.get("eps") is None else args["eps"]
    dims = norms.trailing(args["input"], args["normalized_shape"])
    return norms.scaled(reductions.rms_normalised(args["input"], dims, eps, names), args.get("weight"), None)


def _group_norm(operation: Operation, args: Mapping[str, Any], names: Names) -> Lazy:
    value = args["input"]
    groups = norms.grouped(value, args["num_groups"])
    normal = reductions.normalised(groups, range(2, len(groups.dims)), args["eps"], names)
    return norms.scaled_channels(reshaped(normal, value.shape), args.get("weight"), args.get("bias"))


def _instance_norm(operation: Operation, args: Mapping[str, Any], names: Names) -> Lazy:
    value = args["input"]
    if not args["use_input_stats"] or args.get("running_mean") is not None:
        raise NotCovered("instance_norm with running statistics")
    normal = reductions.normalised(value, range(2, len(value.dims)), args["eps"], names)
    return norms.scaled_channels(normal, args.get("weight"), args.get("bias"))


def _batch_norm(operation: Operation, args: Mapping[str, Any], names: Names) -> Lazy:
    return norms.with_own_statistics(args, names) if args["training"] else norms.with_statistics(args)


def _of_one_dim(over: Callable[[Lazy, Sequence[int], Names], Lazy]) -> Callable[..., Lazy]:
    """Of `max` and `min`, whose indices nobody reads, and whose place does not count."""
    reduction = _reduction(over)

    def rule(operation: Operation, args: Mapping[str, Any], names: Names) -> Lazy:
        if "dim" not in args:
            raise NotCovered("a maximum of all elements")
        found: Lazy = reduction(operation, args, names)
        return found

    return rule


def _first(turned: Callable[[Lazy], Lazy]) -> Callable[..., Lazy]:
    """The same where it counts, of what is to be turned for the largest."""

    def rule(operation: Operation, args: Mapping[str, Any], names: Names) -> Lazy:
        (dim,) = _dims(args["self"], args["dim"])
        found = turned(pools.largest(operation, turned(args["self"]), dim, names))
        return found if args.get("keepdim") else reductions.without(found, [dim], len(found.dims))

    return rule


def _detached(operation: Operation, args: Mapping[str, Any], names: Names) -> Lazy:
    """The same tensors, by names of which none takes a gradient; the same values, where a product is among them. Raises
    CannotJoin for what rows have in common: it is computed first, and what is left reads it."""
    value: Lazy = args["self"]
    if value.reductions or value.updates:
        raise CannotJoin
    if value.base is not None:
        return replace(value, expr=value.expr.detach())
    new = {o.name: replace(o, name=names(f"{o.name}_detached"), constant=True) for o in value.operands}
    expr = substitute(value.expr, {o.leaf: new[o.name].leaf for o in value.operands})
    tensors = {new[o.name].name: value.tensors[o.name] for o in value.operands}
    return replace(value, operands=tuple(new.values()), expr=expr, tensors=tensors)


RULES: dict[str, Callable[[Operation, Mapping[str, Any], Names], Lazy]] = {
    **VIEWS,
    **SHUFFLES,
    "sum": _reduction(reductions.total),
    "mean": _reduction(reductions.mean),
    "amax": _reduction(reductions.amax),
    "amin": _reduction(reductions.amin),
    "max": _of_one_dim(reductions.amax),
    "min": _of_one_dim(reductions.amin),
    "detach": _detached,
    "logsumexp": _reduction(reductions.logsumexp),
    "log_total": _reduction(reductions.log_total),
    "var": _variance,
    "std": _variance,
    "linalg_vector_norm": _norm,
    "softmax": _along(reductions.softmax),
    "log_softmax": _along(reductions.log_softmax),
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "instance_norm": _instance_norm,
    "batch_norm": _batch_norm,
    **pools.RULES,
    **convolutions.RULES,
}
"""By plain name. A rule raises NotCovered for arguments that it does not cover."""
FIRST: dict[str, Callable[[Operation, Mapping[str, Any], Names], Lazy]] = {
    "max": _first(lambda value: value),
    "min": _first(lambda value: combined(lambda x: -x, value)),
}
"""Of those whose place counts (`ties`)."""
