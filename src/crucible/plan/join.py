"""Lazy values over one space: broadcasting, as PyTorch does it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from crucible.algebra.expression import Expr, constant, substitute, tensor
from crucible.algebra.program import Reduction
from crucible.plan.lazy import CannotJoin, Dims, Lazy, Shape, is_over_space, scalar, split, whole


def expanded(value: Lazy, shape: Sequence[int]) -> Lazy:
    """The value, its dims of size 1 repeated. Raises CannotJoin."""
    extent = replace(scalar(constant(0.0), value.dtype), space=tuple(shape), dims=whole(shape))
    return joined((value, extent))[0]


def plain(value: Lazy) -> Lazy:
    """The value over a space that is its own shape. Raises CannotJoin where a dim is made up of several."""
    common = expanded(value, value.shape)
    if any(len(group) > 1 for group in common.dims):
        raise CannotJoin
    at = [group[0] if group else None for group in common.dims]
    if not common.columns <= set(at):
        raise CannotJoin
    columns = frozenset(place for place, d in enumerate(at) if d in common.columns)
    operands = tuple(replace(o, strides=tuple(0 if d is None else o.strides[d] for d in at)) for o in common.operands)
    return replace(common, space=value.shape, dims=whole(value.shape), operands=operands, columns=columns)


def joined(values: Sequence[Lazy]) -> tuple[Lazy, ...]:
    """The values over one space and of one shape. Raises CannotJoin where one of them must be computed first: two
    different reductions or pools, one of these read in two ways, or dims that were made up in other ways."""
    rank = max(len(value.dims) for value in values)
    work = [replace(value, dims=((),) * (rank - len(value.dims)) + value.dims) for value in values]
    for j in range(rank):
        _refine(work, j)
    sizes = [_one_of({tuple(v.space[d] for d in v.dims[j]) for v in work}) for j in range(rank)]
    hidden = _one_of({tuple(v.space[d] for d in _hidden(v)) for v in work})
    starts = [sum(map(len, sizes[:j])) for j in range(rank + 1)]
    dims = tuple(tuple(range(starts[j], starts[j + 1])) for j in range(rank))
    space = (*(n for group in sizes for n in group), *hidden)
    places = [_places(value, dims, starts[-1]) for value in work]
    found = [_moved(value, space, dims, place) for value, place in zip(work, places, strict=True)]
    named = with_own_names(_in_one_context(found, work, places))
    if any(_reads_base_again(value) for value in named) or _reduces_again(named):
        raise CannotJoin
    return named


def _reduces_again(values: Sequence[Lazy]) -> bool:
    """Whether one reduction is read in two ways: the rows of a matrix and of its transpose have sums of their own."""
    known: dict[str, Reduction] = {}
    return any(known.setdefault(each.name, each) != each for value in values for each in value.reductions)


def _reads_base_again(value: Lazy) -> bool:
    """Whether what a value starts from, which is no tensor, is read in a second way (a matrix and its transpose)."""
    base = value.base.name if value.base else None
    return any(held == base != name for name, held in value.tensors.items())


def merged(values: Sequence[Lazy], expr: Expr, dtype: str) -> Lazy:
    """A value computed from joined ones."""
    operands = {operand.name: operand for value in values for operand in value.operands}
    reductions = {reduction.name: reduction for value in values for reduction in value.reductions}
    updates = {update.name: update for value in values for update in value.updates}
    return replace(
        next((value for value in values if value.base is not None), values[0]),
        operands=tuple(operands.values()),
        reductions=tuple(reductions.values()),
        updates=tuple(updates.values()),
        tensors={name: held for value in values for name, held in value.tensors.items()},
        expr=expr,
        dtype=dtype,
    )


def combined(build: Callable[..., Expr], *values: Lazy) -> Lazy:
    """A value computed from others, element by element. Raises CannotJoin."""
    common = joined(values)
    return merged(common, build(*(value.expr for value in common)), values[0].dtype)


def _refine(values: list[Lazy], j: int) -> None:
    """Cuts the parts of dim j of the shape until they have the same sizes in all values that have any."""
    place = 0
    while sizes := [v.space[v.dims[j][place]] for v in values if place < len(v.dims[j])]:
        for i, value in enumerate(values):
            if place < len(value.dims[j]) and value.space[value.dims[j][place]] != min(sizes):
                values[i] = split(value, value.dims[j][place], min(sizes))
        place += 1


def _one_of(found: set[tuple[int, ...]]) -> tuple[int, ...]:
    """The sizes on which all agree that have any."""
    some = found - {()}
    if len(some) > 1:
        raise CannotJoin
    return some.pop() if some else ()


def _hidden(value: Lazy) -> list[int]:
    """Columns that are no dims of the value any more."""
    shown = {d for group in value.dims for d in group}
    return [d for d in sorted(value.columns) if d not in shown]


def _places(value: Lazy, dims: Dims, first_hidden: int) -> dict[int, int]:
    """For each dim of the value's space that counts, the dim of the common one."""
    pairs = {d: place for own, common in zip(value.dims, dims, strict=True) for d, place in zip(own, common)}  # noqa: B905 - those of size 1 have none
    return pairs | {d: first_hidden + i for i, d in enumerate(_hidden(value))}


def _moved(value: Lazy, space: Shape, dims: Dims, places: Mapping[int, int]) -> Lazy:
    operands = tuple(replace(o, strides=_along(o.strides, len(space), places)) for o in value.operands)
    columns = frozenset(places[d] for d in value.columns)
    return replace(value, space=space, dims=dims, operands=operands, columns=columns)


def _along(strides: Shape, rank: int, places: Mapping[int, int]) -> Shape:
    moved = [0] * rank
    for dim, place in places.items():
        moved[place] = strides[dim]
    return tuple(moved)


def _in_one_context(found: Sequence[Lazy], before: Sequence[Lazy], places: Sequence[Mapping[int, int]]) -> list[Lazy]:
    """All with the columns of those that have any, and one pool or convolution at most; of a pool nothing is reduced,
    of a convolution's output its space."""
    columns = {value.columns for value in found if value.reductions}
    pools = {id(value.base) for value in found if value.base is not None}
    if len(columns) > 1 or len(pools) > 1:
        raise CannotJoin
    common = columns.pop() if columns else frozenset[int]()
    if common and not all(is_over_space(value, common) for value in found if value.base is not None):
        raise CannotJoin
    covered = {p for old, pairs in zip(before, places, strict=True) for d, p in pairs.items() if old.is_seen(d)}
    per_row = bool(common) and not common & covered
    if not per_row and not common <= covered:
        raise CannotJoin
    return [replace(value, columns=common, per_row=per_row) for value in found]


def with_own_names(values: Sequence[Lazy], reserved: Iterable[str] = ()) -> tuple[Lazy, ...]:
    """A tensor that is read in two ways (a matrix and its transpose) gets a second name, and one whose name is
    `reserved` for another reader of it another."""
    taken: dict[str, tuple[str, Shape, int]] = dict.fromkeys(reserved, ("", (), 0))
    return tuple(_renamed(value, taken) for value in values)


def _renamed(value: Lazy, taken: dict[str, tuple[str, Shape, int]]) -> Lazy:
    """All at once: what one operand is called now may be what another was."""
    names = dict[str, str]()
    for operand in value.operands:
        held = value.tensors[operand.name]
        name, number = operand.name, 0
        own = (held, operand.strides, operand.start)
        while taken.setdefault(name, own) != own:
            number += 1
            name = f"{held}_again" if number == 1 else f"{held}_again_{number}"
        names[operand.name] = name
    return value if all(old == new for old, new in names.items()) else _with_names(value, names)


def _with_names(value: Lazy, names: Mapping[str, str]) -> Lazy:
    new = {operand.leaf: tensor(names[operand.name], operand.dtype) for operand in value.operands}
    return replace(
        value,
        operands=tuple(replace(o, name=names[o.name]) for o in value.operands),
        tensors={names.get(name, name): held for name, held in value.tensors.items()},
        reductions=tuple(replace(r, expr=substitute(r.expr, new)) for r in value.reductions),
        updates=tuple(
            replace(u, buffer=names.get(u.buffer, u.buffer), expr=substitute(u.expr, new)) for u in value.updates
        ),
        expr=substitute(value.expr, new),
    )
