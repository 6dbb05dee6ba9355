"""Reductions, softmaxes and norms as lazy values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from crucible.algebra.expression import inputs, substitute
from crucible.algebra.program import Reduction
from crucible.plan.join import combined
from crucible.plan.lazy import CannotJoin, Lazy, is_over_space

LONG_ROW, LONG_ACROSS = 1 << 15, 1 << 12
"""Elements of a row beyond which passes read them anew: 32 of each of 1024 threads (`kinds.program.geometry`)."""
_LARGEST = {"float32": 3.4028234663852886e38, "float64": 1.7976931348623157e308}
"""Finite numbers of what is computed in."""
Names = Callable[[str], str]
"""Gives a name that no value has, from the one that is wanted."""


def reduced(
    value: Lazy,
    dims: Iterable[int],
    kind: str,
    name: str,
    *,
    still: Iterable[str] = (),
    constant: bool = False,
) -> Lazy:
    """A sum or maximum over dims, which stay as dims of size 1. Raises CannotJoin where the value was reduced over
    others before, or starts from a pool, or from a convolution and they are others than all of its space."""
    columns = frozenset(d for dim in dims for d in value.dims[dim])
    if value.per_row or (value.reductions and value.columns != columns) or not columns:
        raise CannotJoin
    if value.base is not None and not is_over_space(value, columns):
        raise CannotJoin
    reduction = Reduction(name, kind, value.expr, frozenset(still), constant)
    return replace(value, columns=columns, reductions=(*value.reductions, reduction), expr=reduction.leaf, per_row=True)


def without(value: Lazy, dims: Sequence[int], rank: int) -> Lazy:
    """Without reduced dims."""
    gone = {dim % rank for dim in dims}
    return replace(value, dims=tuple(group for d, group in enumerate(value.dims) if d not in gone))


def count(value: Lazy, dims: Iterable[int]) -> int:
    """How many elements are reduced to one."""
    return math.prod(value.shape[dim] for dim in dims)


def total(value: Lazy, dims: Sequence[int], names: Names) -> Lazy:
    return reduced(value, dims, "sum", names("total"))


def mean(value: Lazy, dims: Sequence[int], names: Names) -> Lazy:
    share = 1 / count(value, dims)
    return combined(lambda x: x * share, reduced(value, dims, "sum", names("total")))


def amax(value: Lazy, dims: Sequence[int], names: Names) -> Lazy:
    return reduced(value, dims, "max", names("largest"))


def amin(value: Lazy, dims: Sequence[int], names: Names) -> Lazy:
    negative = combined(lambda x: -x, value)
    return combined(lambda x: -x, reduced(negative, dims, "max", names("least")))


def _shifted(value: Lazy, dims: Sequence[int], names: Names, most: float | None = None) -> tuple[Lazy, Lazy, Lazy]:
    """The largest of each row, of a magnitude of `most`, the exponentials of what is below it, and their sum."""
    largest = reduced(value, dims, "max", names("largest"), constant=True)
    if most is not None:
        largest = combined(lambda m: m.clamp(-most, most), largest)
    exponentials = combined(lambda x, m: (x - m).exp(), value, largest)
    return largest, exponentials, reduced(exponentials, dims, "sum", names("total"))


def softmax(value: Lazy, dims: Sequence[int], names: Names) -> Lazy:
    _, exponentials, sum_ = _shifted(value, dims, names)
    return combined(lambda e, s: e * (1.0 / s), exponentials, sum_)


def log_softmax(value: Lazy, dims: Sequence[int], names: Names) -> Lazy:
    largest, _, sum_ = _shifted(value, dims, names)
    return combined(lambda x, m, s: x - m - s.log(), value, largest, sum_)


def log_total(value: Lazy, dims: Sequence[int], names: Names) -> Lazy:
    """The logarithm of what softmax divides by: NaN where the largest is infinite, as `log_softmax` has it."""
    largest, _, sum_ = _shifted(value, dims, names)
    return combined(lambda m, s: m + s.log(), largest, sum_)


def logsumexp(value: Lazy, dims: Sequence[int], names: Names) -> Lazy:
    """The same, and infinite where the largest is: what is taken out of the exponentials is finite."""
    most = _LARGEST["float64" if value.dtype == "float64" else "float32"]
    largest, _, sum_ = _shifted(value, dims, names, most)
    return combined(lambda m, s: m + s.log(), largest, sum_)


def centered(value: Lazy, dims: Sequence[int], names: Names) -> tuple[Lazy, Lazy]:
    """The value less its mean, and the sum of squares of that, which is least for this mean: where that alone moves, it
    does not."""
    average = mean(value, dims, names)
    less = combined(lambda x, m: x - m, value, average)
    squares = combined(lambda x: x.square(), less)
    return less, reduced(squares, dims, "sum", names("squares"), still=[average.reductions[-1].name])


def typical(value: Lazy, dims: Sequence[int], names: Names) -> Lazy:
    """An element over dims, in the stead of all of them, and without a gradient: of the first, the middle and the last
    the one between the others, so that none of the three is taken for the rest if it lies far off. Raises CannotJoin
    where the value has reductions, which another element cannot be read of."""
    if value.reductions or value.base is not None:
        raise CannotJoin
    over = {d for dim in dims for d in value.dims[dim]}
    sizes = {d: value.space[d] for d in over}
    first = _element(value, dict.fromkeys(over, 0), "first", names)
    if all(n == 1 or not o.strides[d] for o in value.operands for d, n in sizes.items()):
        return first
    middle = _element(value, {d: n // 2 for d, n in sizes.items()}, "middle", names)
    last = _element(value, {d: n - 1 for d, n in sizes.items()}, "last", names)
    return combined(lambda a, b, c: a.minimum(b).maximum(a.maximum(b).minimum(c)), first, middle, last)


def _element(value: Lazy, places: Mapping[int, int], word: str, names: Names) -> Lazy:
    """What lies at these places of dims; of operands that have no such dims, they themselves."""
    found = {}
    for operand in value.operands:
        start = sum(place * operand.strides[d] for d, place in places.items())
        strides = tuple(0 if d in places else stride for d, stride in enumerate(operand.strides))
        moved = replace(operand, strides=strides, shared=False, bounds=None, constant=True, start=operand.start + start)
        found[operand] = replace(moved, name=names(f"{operand.name}_{word}"))
    expr = substitute(value.expr, {o.leaf: new.leaf for o, new in found.items()})
    tensors = {new.name: value.tensors[o.name] for o, new in found.items()}
    return replace(value, operands=tuple(found.values()), expr=expr, tensors=tensors)


def without_shifts(value: Lazy, dims: Sequence[int]) -> tuple[Lazy, list[Lazy]]:
    """The value without the terms that are the same all over dims, and those terms."""
    over = {d for dim in dims for d in value.dims[dim]}
    known = {o.leaf for o in value.operands if not any(o.strides[d] for d in over)}
    expr, shifts = value.expr, []
    while expr.kind == "add":
        same = [each for each in expr.args if known.issuperset(inputs(each))]
        if len(same) != 1:
            break
        shifts += same
        (expr,) = (each for each in expr.args if each not in same)
    return replace(value, expr=expr), [replace(value, expr=shift) for shift in shifts]


def moments(value: Lazy, dims: Sequence[int], names: Names) -> tuple[Lazy, Lazy, Lazy]:
    """The value less its mean, the mean and the variance (without correction), from sums that one pass takes: of
    differences to a typical element of each row, and of their squares. So a mean that is large against the deviation
    costs no digits; an element that is `t` deviations off the mean costs the variance t^2 roundings. It was the first:
    where weights and inputs are drawn from one seed, as KernelBench does, that of row 0 is 57 deviations off."""
    start, share = typical(value, dims, names), 1 / count(value, dims)
    less = combined(lambda x, s: x - s, value, start)
    off = combined(lambda t: t * share, reduced(less, dims, "sum", names("total")))
    squares = reduced(combined(lambda x: x.square(), less), dims, "sum", names("squares"))
    spread = combined(lambda s, m: (s * share - m.square()).clamp(0.0), squares, off)
    return combined(lambda x, m: x - m, less, off), combined(lambda s, m: s + m, start, off), spread


def variance(value: Lazy, dims: Sequence[int], names: Names, correction: float = 1.0) -> Lazy:
    share = 1 / max(count(value, dims) - correction, 0.0)
    return combined(lambda s: s * share, centered(value, dims, names)[1])


def normalised(value: Lazy, dims: Sequence[int], eps: float, names: Names) -> Lazy:
    """Mean 0 and variance 1 over dims; of rows that do not stay in registers by sums that one pass takes."""
    if _is_long(value, dims):
        moved, _, spread = moments(value, dims, names)
        return combined(lambda x, v: x * (v + eps).rsqrt(), moved, spread)
    less, squares = centered(value, dims, names)
    share = 1 / count(value, dims)
    return combined(lambda x, s: x * (s * share + eps).rsqrt(), less, squares)


def _is_long(value: Lazy, dims: Sequence[int]) -> bool:
    """Whether a row is read from memory pass by pass: its elements are too many for a block's registers, which hold
    fewer where neighbours in memory lie in different rows."""
    if value.base is not None or value.reductions:
        return False
    over = {d for dim in dims for d in value.dims[dim]}
    largest = max(value.operands, key=lambda o: sum(stride > 0 for stride in o.strides), default=None)
    if largest is None:
        return False
    real = [d for d, s in enumerate(largest.strides) if s and value.space[d] > 1]
    near = min(real, key=largest.strides.__getitem__, default=None)
    return count(value, dims) > (LONG_ROW if near in over else LONG_ACROSS)


def rms_normalised(value: Lazy, dims: Sequence[int], eps: float, names: Names) -> Lazy:
    """Mean square 1 over dims."""
    squares = reduced(combined(lambda x: x.square(), value), dims, "sum", names("squares"))
    share = 1 / count(value, dims)
    return combined(lambda x, s: x * (s * share + eps).rsqrt(), value, squares)
