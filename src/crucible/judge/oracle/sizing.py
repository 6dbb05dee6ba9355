"""Which of several sizes a reference is judged at: what they cost, and what can no longer be seen at them.

Nothing is computed: the reference runs on tensors without values.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from crucible.judge.boundary.bundles import numbers_to_tensors, put_together, take_apart
from crucible.judge.boundary.modules import call, construct, seed_all
from crucible.judge.oracle.reference import execute
from crucible.products import tensors_in
from crucible.roofline import Work
from crucible.shapes import Sizes, is_batch, own_numbers
from crucible.work import count

LITTLE_FLOPS, LITTLE_BYTES = 1e8, 8 << 20
"""Of a forward at sizes that the judge chooses: 2 s of a tiled matrix product on the emulator, 0.2 s of elements (27 M
multiply-adds and 9 M elements a second: benchmarks/results/emulator_cpu.json)."""
FLOPS_A_S, BYTES_A_S = 7e10, 2e9
"""Of PyTorch's products in float64 (77 on two cores of a Xeon), and of what it reads and writes (6 once; an oracle and
a comparison go over it more than once)."""
MORE = 24.0
"""Times that much work is taken on where less of it hides mistakes: within a run's limit, if kernels do all of it."""
ENOUGH = 4.0
"""Times little work: beyond, weights are made smaller too."""
MOST_OPERATIONS = 2000
"""Of a forward that is held against the task's own sizes: more are the steps of a sequence, 0.2 ms each."""
FEW_STEPS = 32
"""Of a sequence, that are enough to tell what is carried on from what is forgotten: of another first cell state of an
LSTM of six layers 0.26 is left in its output after 2 steps, 5e-4 after 16, 1e-6 after 32."""
LONGEST_LOOK = 3000
"""Operations after which a look at a forward ends: an LSTM of six layers over 512 steps took 60 s of a processor."""
FEW_OPERATIONS = 60
"""Of a forward that is looked at for what its sums are of: whole networks took up to 29 s."""
Shapes = list[tuple[str, tuple[tuple[int, ...], ...]]]
"""What each operation of a forward returns."""


@dataclass(frozen=True)
class Rated:
    """Sizes, with what a forward does there."""

    sizes: Sizes
    cost: float
    """In units of little work; infinite where it is not known."""
    collapsed: str = ""
    """What has one element there and several at the task's own sizes (a mean over it is a sum), or few steps of many,
    in words."""

    @property
    def is_little(self) -> bool:
        return self.cost <= 1.0


class Survey:
    """What a reference does at one size and another."""

    def __init__(self, source: str, path: str, sizes: Sizes, *, mode: str, seed: int) -> None:
        """`sizes` are those that count as its own."""
        self._source, self._path, self._sizes = source, path, dict(sizes)
        self._mode, self._seed = mode, seed
        self.little = 1.0
        """The share of what is usually little work that is little here."""

    def rate(self, sizes: Sizes) -> Rated:
        """At these sizes in place of its own."""
        seen = _Shapes(LONGEST_LOOK)
        try:
            model, inputs = self._for_a_look(sizes)
            (work,) = count(lambda: _outputs(model, inputs, seen), [*_leaves(inputs), *model.state_dict().values()])
        except Exception:  # noqa: BLE001 - it may refuse sizes in any way
            return Rated(sizes, math.inf)
        hidden = self._collapsed(seen.seen) or self._few_steps(sizes, len(seen.seen))
        return Rated(sizes, _cost(work) / self.little, hidden)

    def with_long_sums(self, tries: list[Sizes]) -> list[Sizes]:
        """Before each of these the same with what only lengthens sums as it is of its own. A rule that allows the same
        whatever was summed, as the public one does, may refuse 4096 terms by rounding alone, and take 64."""
        own = {**own_numbers(self._source), **self._sizes}
        found: list[Sizes] = []
        for sizes in tries if tries and self._operations(tries[0], FEW_OPERATIONS) else ():
            summed = {name: own[name] for name in sizes if name in own and self._only_sums(sizes, name, own[name])}
            found += [{**sizes, **summed}, sizes] if summed else [sizes]
        return found or tries

    def _only_sums(self, sizes: Sizes, name: str, size: Any) -> bool:
        """Whether inputs are larger with this size in place of that one, and what comes of them is not."""
        if sizes[name] == size:
            return False
        try:
            (given, made), (larger, same) = self._ends(sizes), self._ends({**sizes, name: size})
        except Exception:  # noqa: BLE001 - it may refuse sizes in any way
            return False
        return given != larger and made == same

    def _ends(self, sizes: Sizes) -> tuple[list[torch.Size], list[torch.Size]]:
        """Shapes of what goes in and of what comes out."""
        model, inputs = self._for_a_look(sizes)
        outputs = _outputs(model, inputs, _Shapes(FEW_OPERATIONS))
        return [leaf.shape for leaf in _leaves(inputs)], [output.shape for output in outputs]

    def work(self) -> Work:
        """Of a forward at its own sizes. Raises what a reference raises that wants values, and LongLook."""
        model, inputs = self._without_values({})
        return count(
            lambda: _outputs(model, inputs, _Shapes(LONGEST_LOOK)), [*_leaves(inputs), *model.state_dict().values()]
        )[0]

    def seconds(self) -> float:
        """What a forward at its own sizes takes PyTorch on a CPU, about; infinite where nobody knows."""
        try:
            work = self.work()
        except Exception:  # noqa: BLE001 - a reference may want values, and refuse to be without in any way
            return math.inf
        return work.matrix_flops / FLOPS_A_S + work.bytes_moved / BYTES_A_S

    def _collapsed(self, cut: Shapes) -> str:
        """What has one element there and several of its own. Only what has one is looked for."""
        if len(cut) > MOST_OPERATIONS or not any(1 in shape for _, made in cut for shape in made):
            return ""
        return collapsed(self._own, cut)

    def _few_steps(self, sizes: Sizes, operations: int) -> str:
        """Which size counts the steps of a sequence, and is cut below a few: with each step more, so many operations
        more run. What runs for each item of a batch carries nothing on."""
        own = {**own_numbers(self._source), **self._sizes}
        few = {n: v for n, v in sizes.items() if isinstance(v, int) and v < min(FEW_STEPS, own[n]) and not is_batch(n)}
        for name, size in few.items() if len(self._own) != operations else ():
            one, two = (self._operations({**sizes, name: size + more}) - operations for more in (1, 2))
            if two == 2 * one > 0:
                return f"{name} counts steps, {size} there and {own[name]} at the task's own sizes"
        return ""

    def _operations(self, sizes: Sizes, most: int = LONGEST_LOOK) -> int:
        """How many a forward is of; 0 where it refuses these sizes, or is longer than a look at it."""
        seen = _Shapes(most)
        try:
            _outputs(*self._for_a_look(sizes), seen)
        except Exception:  # noqa: BLE001 - as above
            return 0
        return len(seen.seen)

    def _for_a_look(self, sizes: Sizes) -> tuple[torch.nn.Module, Any]:
        """Without values, made by way of them where a reference wants them: not at its own sizes, which may be too
        large for that."""
        try:
            return self._without_values(sizes)
        except Exception:  # a reference may want values, and refuse to be without in any way
            if not sizes:
                raise
        return self._emptied(sizes)

    @functools.cached_property
    def _own(self) -> Shapes:
        seen = _Shapes(MOST_OPERATIONS)
        try:
            model, inputs = self._without_values({})
            _outputs(model, inputs, seen)
        except Exception:  # noqa: BLE001 - as above; its own size may be too much to make for a look
            return []
        return seen.seen

    def _without_values(self, sizes: Sizes) -> tuple[torch.nn.Module, Any]:
        with torch.device("meta"):
            model, inputs = self._made(sizes)
        return model.to("meta"), _emptied(inputs)

    def _emptied(self, sizes: Sizes) -> tuple[torch.nn.Module, Any]:
        """The same by way of values."""
        model, inputs = self._made(sizes)
        return model.to("meta"), _emptied(inputs)

    def _made(self, sizes: Sizes) -> tuple[torch.nn.Module, Any]:
        names = execute(self._source, self._path, {**self._sizes, **sizes})
        seed_all(self._seed)
        model: torch.nn.Module = construct(names["Model"], names["get_init_inputs"]())
        return model.train(self._mode == "train"), names["get_inputs"]()


def _emptied(inputs: Any) -> Any:
    structure, leaves = take_apart(inputs, "input")
    return put_together(structure, [leaf.tensor.to("meta") for leaf in leaves])


def _leaves(inputs: Any) -> list[torch.Tensor]:
    return [leaf.tensor for leaf in take_apart(inputs, "input")[1]]


def _outputs(model: torch.nn.Module, inputs: Any, seen: _Shapes) -> list[torch.Tensor]:
    """Of a forward whose operations are heard of."""
    seen.seen.append(("the inputs", tuple(tuple(tensor.shape) for tensor in _leaves(inputs))))
    with torch.no_grad(), seen:
        out = call(model, inputs)
    return _leaves(numbers_to_tensors(out))


def _cost(work: Work) -> float:
    """Of a forward, in units of little work."""
    return max(work.matrix_flops / LITTLE_FLOPS, work.bytes_moved / LITTLE_BYTES)


def in_order(tries: list[Sizes], rate: Callable[[Sizes], Rated]) -> Iterator[Rated]:
    """What to try first: sizes that are little work, as they come; then the cheapest that hide nothing which the
    task's own show; then the rest by what they cost, the smallest where nobody knows."""
    rest: list[Rated] = []
    for sizes in tries:
        rated = rate(sizes)
        if rated.is_little and not rated.collapsed:
            yield rated
        else:
            rest.append(rated)
    rest.sort(key=_expense)
    more = [rated for rated in rest if not rated.collapsed and rated.cost <= MORE]
    yield from more
    yield from (rated for rated in rest if rated not in more)


def choices(tries: list[Sizes], smaller_weights: list[Sizes], rate: Callable[[Sizes], Rated]) -> Iterator[Rated]:
    """As `in_order`; and where all of `tries` is more than enough, those with smaller weights first, if these are what
    makes it so."""
    costly: list[Rated] = []
    for rated in in_order(tries, rate):
        if rated.cost <= ENOUGH or not smaller_weights:
            yield rated
        else:
            costly.append(rated)
    least = min((rated.cost for rated in costly), default=math.inf)
    if any(rate(sizes).cost <= least / 2 for sizes in reversed(smaller_weights)):
        yield from in_order(smaller_weights, rate)
    yield from costly


def _expense(rated: Rated) -> tuple[float, int]:
    """What is cheaper by less than a tenth is not: sizes of weights are left alone for that."""
    if rated.cost == math.inf:
        return math.inf, math.prod(size for size in rated.sizes.values() if isinstance(size, int))
    return round(8 * math.log2(max(rated.cost, 1e-6))), 0


def collapsed(own: Shapes, cut: Shapes) -> str:
    """The first dimension that has one element when it is cut and several of its own, in words; empty where none has,
    or where other operations run."""
    if [name for name, _ in own] != [name for name, _ in cut]:
        return ""
    for (name, before), (_, after) in zip(own, cut, strict=True):
        for one, other in zip(before, after, strict=False):
            for dim, (size, less) in enumerate(zip(one, other, strict=False)):
                if size > 1 and less == 1 and len(one) == len(other):
                    return f"dimension {dim} of what {name} gives has 1 element there, {size} at the task's own sizes"
    return ""


class LongLook(Exception):
    """A forward of more operations than one is ready to look at."""


class _Shapes(TorchDispatchMode):
    """Hears of each operation; of more than `most` it raises LongLook."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.seen: Shapes = []
        self._most = most

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # as in `work`: seconds on first use

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if len(self.seen) > self._most:
            raise LongLook(f"more than {self._most} operations")
        out = func(*args, **(kwargs or {}))
        self.seen.append((str(func.overloadpacket.__name__), tuple(tuple(t.shape) for t in tensors_in(out))))
        return out
