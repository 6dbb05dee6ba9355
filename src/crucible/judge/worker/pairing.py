"""Pairing: which weight of a candidate's stands for which of the reference's, and in which layout.

First by name (perhaps under a prefix), then by the values that both have when they are constructed under one seed,
then by shape, in order. Nothing here knows modules: weights are names, values and whether they are learned.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

MOST_WAYS = 5
"""Of pairing weights that nothing but their shape and order tells, which are tried until one is right."""

BY_NAME, BY_PREFIX, BY_VALUES = "name", "name, under a prefix", "their values under one seed"
BY_SHAPE, BY_ORDER, BY_SUM = "shape, the only one of its kind", "order and shape", "order, several in one"


@dataclass(frozen=True, eq=False)
class Weight:
    """A parameter or buffer as it was constructed."""

    name: str
    value: torch.Tensor
    learned: bool = True
    """A parameter rather than a buffer."""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape)

    @property
    def squeezed(self) -> tuple[int, ...]:
        return tuple(size for size in self.shape if size != 1)

    @property
    def last_name(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def constant(self) -> float | None:
        """The value of a tensor that has but one."""
        return None if self.tells or not self.value.numel() else float(self.value.flatten()[0])

    @property
    def tells(self) -> bool:
        """Whether its values are its own: a tensor of ones is like any other."""
        value = self.value
        return value.numel() > 1 and value.is_floating_point() and bool((value != value.flatten()[0]).any())


@dataclass(frozen=True)
class Place:
    """Where a weight of the reference lies in the candidate's."""

    own: str
    how: str
    dims: tuple[int, ...]
    """The reference's dimensions, in the order in which they lie there."""
    at: tuple[int, int, int] | None = None
    """The dimension of the candidate's tensor, start and length, where the weight is a part of it."""

    def part(self, own: torch.Tensor) -> torch.Tensor:
        """The weight's part of the candidate's tensor, a view."""
        return own if self.at is None else own.narrow(*self.at)

    def put(self, own: torch.Tensor, value: torch.Tensor) -> None:
        """Writes the reference's value into the candidate's tensor."""
        part = self.part(own)
        part.copy_(value.permute(self.dims).reshape(part.shape))

    def taken(self, own: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
        """The candidate's tensor (its gradient, say) as the reference has it, in that shape."""
        laid = self.part(own).reshape([shape[dim] for dim in self.dims])
        return laid.permute([self.dims.index(dim) for dim in range(len(self.dims))])

    @property
    def is_plain(self) -> bool:
        """The whole of a tensor, its dimensions in the reference's order."""
        return self.at is None and self.dims == tuple(range(len(self.dims)))

    def words(self, name: str) -> str:
        """`linear.weight is gemm.weight (by order and shape)`."""
        layout = "" if self.dims == tuple(range(len(self.dims))) else f", dimensions in the order {list(self.dims)}"
        part = f"[{self.at[1]}:{self.at[1] + self.at[2]}] of dimension {self.at[0]} of " if self.at else ""
        return f"{name} is {part}{self.own} (by {self.how}{layout})"


@dataclass
class Pairing:
    """Places by the reference's names, and what is left on both sides."""

    places: dict[str, Place] = field(default_factory=dict)
    lost: list[Weight] = field(default_factory=list)
    """The reference's without a counterpart."""
    left: list[Weight] = field(default_factory=list)
    """The candidate's without one."""


def pair(reference: Sequence[Weight], own: Sequence[Weight]) -> list[Pairing]:
    """Pairs as many as can be paired: in one way; where shape and order decide, in the first few that there are, and at
    last without these."""
    found = Pairing(lost=list(reference), left=list(own))
    _take(found, BY_NAME, lambda one, other: one.name == other.name and _fit(one, other))
    _take(found, BY_PREFIX, lambda one, other: _same_end(one, other) and _fit(one, other))
    _by_values(found)
    ways = _by_shape(found)
    for way in ways:
        _in_gaps(way, own)
        _by_sums(way)
    return ways


def can_hold(own: Weight, weight: Weight) -> bool:
    """Whether there is room for a weight in another; for a constant, room that holds it."""
    if weight.tells or not weight.value.numel():
        return own.value.numel() >= weight.value.numel()
    constant = weight.value.flatten()[0].to(own.value.dtype)
    return int((own.value == constant).sum()) >= weight.value.numel()


Fits = Callable[[Weight, Weight], tuple[int, ...] | bool | None]
Group = tuple[list[Weight], list[Weight]]
"""The reference's and the candidate's of one kind."""


def _take(found: Pairing, how: str, fit: Fits) -> None:
    """Pairs those of which each fits one other alone."""
    fits = {(a.name, b.name): dims for a in found.lost for b in found.left if (dims := fit(a, b)) not in (None, False)}
    of_lost, of_left = defaultdict(list), defaultdict(list)
    for a, b in fits:
        of_lost[a].append(b)
        of_left[b].append(a)
    for (a, b), dims in fits.items():
        if len(of_lost[a]) == len(of_left[b]) == 1:
            assert isinstance(dims, tuple)
            _place(found, a, Place(b, how, dims))


def _place(found: Pairing, name: str, place: Place) -> None:
    found.places[name] = place
    found.lost = [weight for weight in found.lost if weight.name != name]
    found.left = [weight for weight in found.left if weight.name != place.own]


def _same_end(one: Weight, other: Weight) -> bool:
    return one.name.endswith(f".{other.name}") or other.name.endswith(f".{one.name}")


def _fit(one: Weight, other: Weight) -> tuple[int, ...] | None:
    """The order of dimensions in which a weight is its namesake: as values show, else as shapes do."""
    as_it_is = tuple(range(len(one.shape)))
    if one.squeezed == other.squeezed:
        turned = None if one.shape == other.shape and _equal(one.value, other.value) else _turned(one, other)
        return turned or as_it_is
    if sorted(one.squeezed) != sorted(other.squeezed) or len(set(one.squeezed)) < len(one.squeezed):
        return None
    dims = [one.shape.index(size) for size in other.squeezed]
    return (*dims, *(dim for dim in as_it_is if dim not in dims))


# --- by values


def _by_values(found: Pairing) -> None:
    """Those whose values are found in one of the candidate's, which may hold several: parameters before buffers."""
    telling = [weight for weight in found.lost if weight.tells]
    holding = set()
    for own in sorted((weight for weight in found.left if weight.tells), key=lambda weight: not weight.learned):
        parts: list[tuple[int, int, int]] = []
        for weight in telling:
            place = None if weight.name in found.places else _proven(weight, own, parts)
            if place is None:
                continue
            found.places[weight.name] = place
            holding.add(own.name)
            if place.at is None:
                break
            parts.append(place.at)
    found.lost = [weight for weight in found.lost if weight.name not in found.places]
    found.left = [weight for weight in found.left if weight.name not in holding]


def _proven(weight: Weight, own: Weight, parts: list[tuple[int, int, int]]) -> Place | None:
    """Where all values of a weight are found in the candidate's tensor: all of it, or a run of one dimension beside
    the parts that are others'."""
    if own.value.numel() == weight.value.numel():
        dims = _turned(weight, own)
        return Place(own.name, BY_VALUES, dims) if dims else None
    if own.value.numel() < weight.value.numel() or own.value.dim() == 0:
        return None
    for dims in itertools.permutations(range(len(weight.shape))):
        laid = weight.value.permute(dims)
        for dim, block in _blocks(laid, own.shape):
            start = _start_of(block, own.value, dim, [at for at in parts if at[0] == dim])
            if start is not None:
                return Place(own.name, BY_VALUES, dims, (dim, start, block.shape[dim]))
    return None


def _turned(weight: Weight, own: Weight) -> tuple[int, ...] | None:
    """The order of dimensions in which a weight's values are the candidate's, read in a row."""
    flat = own.value.reshape(-1)
    for dims in itertools.permutations(range(len(weight.shape))):
        laid = weight.value.permute(dims)
        if weight.squeezed != own.squeezed and not _may_be(laid.shape, own.shape):
            continue
        first = laid[(0,) * (len(dims) - 1)] if laid.numel() else laid.reshape(-1)  # a row, before all is laid out
        if _equal(first.reshape(-1), flat[: first.numel()]) and _equal(laid.reshape(-1), flat):
            return dims
    return None


def _may_be(laid: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether one shape is the other with dimensions merged or split."""
    coarse, fine = sorted(([*itertools.accumulate(s, lambda a, b: a * b)] for s in (laid, shape)), key=len)
    return set(coarse) <= set(fine)


def _blocks(laid: torch.Tensor, shape: tuple[int, ...]) -> Iterator[tuple[int, torch.Tensor]]:
    """A weight as a run of each dimension in which a tensor of that shape can hold one."""
    if len(shape) == 1:
        yield 0, laid.reshape(-1)
    elif len(shape) == laid.dim() + 1 and shape[1:] == laid.shape:
        yield 0, laid[None]
    elif len(shape) == laid.dim():
        for dim in range(len(shape)):
            beside = [(a, b) for i, (a, b) in enumerate(zip(laid.shape, shape, strict=True)) if i != dim]
            if all(a == b for a, b in beside) and laid.shape[dim] <= shape[dim]:
                yield dim, laid


def _start_of(block: torch.Tensor, own: torch.Tensor, dim: int, taken: list[tuple[int, int, int]]) -> int | None:
    """Where in a dimension a block begins, outside of the runs that are taken."""
    rows, first = own.movedim(dim, 0), block.movedim(dim, 0)[:1].to(own.dtype)
    starts = (rows == first).reshape(rows.shape[0], -1).all(1).nonzero().flatten().tolist()
    length = block.shape[dim]
    fitting = (
        start
        for start in starts
        if start + length <= own.shape[dim] and all(start + length <= at or at + n <= start for _, at, n in taken)
    )
    return next((start for start in fitting if _equal(block, own.narrow(dim, start, length))), None)


def _equal(value: torch.Tensor, own: torch.Tensor) -> bool:
    """Equal in the candidate's dtype."""
    return value.shape == own.shape and torch.equal(value.to(own.dtype), own)


# --- by shape


def _by_shape(found: Pairing) -> list[Pairing]:
    """What nothing else tells: groups that have as many members on either side, the finest first, then the others."""
    kinds: tuple[Callable[[Weight], Hashable], ...] = (
        lambda weight: (weight.squeezed, weight.constant, weight.learned, weight.last_name),
        lambda weight: (weight.squeezed, weight.constant, weight.learned),
        lambda weight: (weight.squeezed, weight.constant),
        lambda weight: (weight.squeezed, weight.learned),
        lambda weight: weight.squeezed,
    )
    groups = [group for kind in kinds for group in _groups(found, kind, equal=True)]
    _take(found, f"{BY_SHAPE}, transposed", lambda a, b: a.squeezed != b.squeezed and _fit(a, b))
    groups += [group for kind in kinds for group in _groups(found, kind, equal=False)]
    choices = [list(itertools.islice(_assignments(*group), MOST_WAYS)) for group in groups]
    ways = [*itertools.islice(itertools.product(*choices), MOST_WAYS), *([()] if groups else [])]
    return [_assigned(found, groups, [pair for chosen in way for pair in chosen]) for way in ways]


def _assigned(found: Pairing, groups: list[Group], pairs: list[tuple[Weight, Weight]]) -> Pairing:
    """A copy with these pairs placed, and the rest of their groups left over."""
    alone = {id(lost[0]) for lost, left in groups if len(lost) == len(left) == 1}
    places = {
        a.name: Place(b.name, BY_SHAPE if id(a) in alone else BY_ORDER, tuple(range(len(a.shape)))) for a, b in pairs
    }
    taken = {id(weight) for pair in pairs for weight in pair}
    rest = [[w for group in groups for w in group[side] if id(w) not in taken] for side in (0, 1)]
    return Pairing({**found.places, **places}, [*found.lost, *rest[0]], [*found.left, *rest[1]])


def _groups(found: Pairing, kind: Callable[[Weight], Hashable], *, equal: bool) -> list[Group]:
    """Takes those of one kind that are there on both sides, in equal numbers if so asked, out of what is left."""
    groups: dict[Hashable, Group] = defaultdict(lambda: ([], []))
    for side, weights in enumerate((found.lost, found.left)):
        for weight in weights:
            groups[kind(weight)][side].append(weight)
    wanted = [(a, b) for a, b in groups.values() if a and b and (len(a) == len(b) or not equal)]
    gone = {id(weight) for group in wanted for side in group for weight in side}
    found.lost = [weight for weight in found.lost if id(weight) not in gone]
    found.left = [weight for weight in found.left if id(weight) not in gone]
    return wanted


def _assignments(lost: list[Weight], left: list[Weight]) -> Iterator[list[tuple[Weight, Weight]]]:
    """Each way of giving as many as possible a counterpart, in order first."""
    if len(lost) <= len(left):
        yield from (list(zip(lost, chosen, strict=True)) for chosen in itertools.permutations(left, len(lost)))
    else:
        yield from (list(zip(chosen, left, strict=True)) for chosen in itertools.permutations(lost, len(left)))


def _in_gaps(found: Pairing, own: Sequence[Weight]) -> None:
    """Constants that lie beside others of the reference's weights in a tensor that holds several."""
    for holder in own:
        parts = [place.at for place in found.places.values() if place.own == holder.name and place.at]
        for weight in [weight for weight in found.lost if parts]:
            place = _proven(weight, holder, parts)
            if place is not None and place.at is not None:
                parts.append(place.at)
                _place(found, weight.name, place)


def _by_sums(found: Pairing) -> None:
    """One of the candidate's that is as long as all that is left of the reference's with its other sizes (biases of
    zeros, one after another, where values tell nothing)."""
    for own in found.left:
        parts = [w for w in found.lost if w.shape and w.shape[1:] == own.shape[1:] and w.learned == own.learned]
        if len(parts) > 1 and own.shape and sum(w.shape[0] for w in parts) == own.shape[0]:
            start = 0
            for weight in parts:
                at = (0, start, weight.shape[0])
                found.places[weight.name] = Place(own.name, BY_SUM, tuple(range(len(weight.shape))), at)
                start += weight.shape[0]
            found.lost = [weight for weight in found.lost if weight not in parts]
            found.left = [other for other in found.left if other is not own]
            return
