"""Parts of tensors that kernels read and write where they lie within the whole.

PyTorch joins tensors by a copy of each, and puts the gradients of slices together by another: what a kernel has just
written is read and written once more. A kernel that makes all parts of a tensor writes them there, and one that reads
all of them writes one gradient: a rotary embedding moves 34 MB where negating, joining and a chain move 101.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from crucible.algebra.expression import Expr, substitute
from crucible.algebra.program import Operand, Program, Result
from crucible.graph import ITEM_BYTES, Ref, TensorType
from crucible.plan import layouts
from crucible.plan.along import MOST_TENSORS, Named
from crucible.plan.backward import with_backward
from crucible.plan.parts import joined, sliced
from crucible.plan.steps import Call, Fused, Part, Step

ALIGNED_BYTES = 16
"""At multiples of which kernels take tensors to begin."""


# joined


def written_within(
    steps: Sequence[Step],
    types: Mapping[str, TensorType],
    kept: Container[str],
    differentiable: Container[str],
    named: Named,
    new_name: Callable[[str], str],
) -> tuple[Step, ...]:
    """The steps, where kernels whose results PyTorch would join are one that writes them within the whole; what other
    steps make of it is copied there along. `kept` are values that the module's caller gets, or buffers."""
    found = list(steps)
    place = 0
    while place < len(found):
        makers = _makers(found, place, types, kept)
        step = _Joining(found[place], types, differentiable, new_name).step(found, makers) if makers else None
        if step is None:
            place += 1
            continue
        gone = {*makers.values()}
        again = _laid_anew(found, step, types, kept)
        if again is not None:
            step, gone = _lying(step, found[again], types), {*gone, again}
        name = named(step.covers, found)
        step = replace(step, name=name, compute=replace(step.compute, name=f"{name}_kernel"))
        found[place] = with_backward(step, types) if step.wanted else step
        found = [each for n, each in enumerate(found) if n not in gone]
        place += 1 - len(set(makers.values()))
    return tuple(found)


def _laid_anew(
    steps: Sequence[Step], joining: Fused, types: Mapping[str, TensorType], kept: Container[str]
) -> int | None:
    """Where a joined tensor is copied into another layout, if nobody else reads it and its parts may be written so."""
    readers = [n for n, step in enumerate(steps) if joining.result in step.reads]
    if len(readers) != 1 or joining.result in kept:
        return None
    step = steps[readers[0]]
    if not isinstance(step, Fused) or not step.is_copy:
        return None
    return readers[0] if all(_begins_well(part, types[step.result]) for part in joining.parts.values()) else None


def _lying(step: Fused, copy: Step, types: Mapping[str, TensorType]) -> Fused:
    """A step that joins parts in the layout of a copy of what it makes."""
    assert isinstance(step.compute, Program) and isinstance(copy, Fused)
    whole = types[copy.result]
    results = tuple(
        replace(r, strides=layouts.relaid(r.strides, step.parts[r.name].of(step.type), step.parts[r.name].of(whole)))
        if r.name in step.parts
        else r
        for r in step.compute.results
    )
    return replace(step, compute=replace(step.compute, results=results), result=copy.result, type=whole)


def _makers(steps: Sequence[Step], place: int, types: Mapping[str, TensorType], kept: Container[str]) -> dict[str, int]:
    """The parts of what `cat` makes that kernels make for it alone, and where these stand: one that reduces rows, or
    several that go element by element in the same way; none where they cannot be written within the whole."""
    call = steps[place]
    parts = joined(call.operation) if isinstance(call, Call) else []
    if not parts or not _fit(parts, types, types[call.names[0]]):
        return {}
    names = [name for name, _ in parts]
    found: dict[str, int] = {}
    for name in names:
        made = next((n for n, step in enumerate(steps[:place]) if name in step.results), None)
        if made is not None and _makes_for(steps, made, place, names, kept):
            first = found or {name: made}
            if all(_lie_alike(steps, types, (name, made), each) for each in first.items()):
                found[name] = made
    return found


def _makes_for(steps: Sequence[Step], made: int, place: int, names: Collection[str], kept: Container[str]) -> bool:
    """Whether a step is a kernel whose results, of an element each, one step alone reads, to join them."""
    step = steps[made]
    if not isinstance(step, Fused) or not isinstance(step.compute, Program) or step.again or step.joined:
        return False
    if any(step.compute.is_per_row(result) for result in step.compute.results if result.name in step.results):
        return False
    readers = {n for n, each in enumerate(steps) for name in step.results if name in each.reads}
    return readers == {place} and all(name in names and name not in kept for name in step.results)


def _lie_alike(
    steps: Sequence[Step], types: Mapping[str, TensorType], one: tuple[str, int], other: tuple[str, int]
) -> bool:
    """Whether two results are made over one space in the same order, by one kernel or by ones that reduce nothing."""
    (a, first), (b, second) = (_result(steps[place], name) for name, place in (one, other))
    if one[1] != other[1] and (first.reductions or second.reductions):
        return False
    same = first.shape == second.shape and first.precision == second.precision
    return same and a.strides == b.strides and types[one[0]].strides == types[other[0]].strides


def _result(step: Step, name: str) -> tuple[Result, Program]:
    assert isinstance(step, Fused) and isinstance(step.compute, Program)
    return next(each for each in step.compute.results if each.name == name), step.compute


def _fit(parts: Sequence[tuple[str, Part]], types: Mapping[str, TensorType], whole: TensorType) -> bool:
    """Whether tensors are such parts of a whole, and begin where kernels may write them."""
    alike = all(
        types[name].dtype == whole.dtype and types[name].shape == part.of(whole).shape and _begins_well(part, whole)
        for name, part in parts
    )
    return alike and layouts.dense(whole) == whole and whole.elements > 0


def _begins_well(part: Part, whole: TensorType) -> bool:
    """Whether kernels may read and write it from there: of elements that do not lie side by side each by itself."""
    own = part.of(whole)
    apart = all(n < 2 or stride != 1 for n, stride in zip(own.shape, own.strides, strict=True))
    return apart or part.begin(whole) * ITEM_BYTES[whole.dtype] % ALIGNED_BYTES == 0


@dataclass
class _Joining:
    """A step that makes what `cat` would."""

    call: Step
    types: Mapping[str, TensorType]
    differentiable: Container[str]
    new_name: Callable[[str], str]
    operands: dict[Operand, str] = field(default_factory=dict)
    """And the tensors that they read."""
    wanted: list[str] = field(default_factory=list)
    values: dict[str, Expr] = field(default_factory=dict)
    """Of each part."""

    def step(self, steps: Sequence[Step], makers: Mapping[str, int]) -> Fused | None:
        """None where a kernel would have too many tensors, or copies of some, or would reduce rows in an order for the
        sake of what it copies."""
        assert isinstance(self.call, Call)
        cat, made = self.call.operation, self.call.results[0]
        names = [name for name, _ in joined(cat)]
        for place in dict.fromkeys(makers.values()):
            self._take(steps[place])
        first = next(iter(makers))
        result, program = _result(steps[makers[first]], first)
        for name in dict.fromkeys(names):
            if name not in makers:
                if not _lies_as_known(steps, name, self.types[name]):
                    return None
                self._copy(name, result, self.types[first])
        whole = self.types[made]
        parts = {self.new_name(f"{made}_part"): part for _, part in joined(cat)}
        results = tuple(
            replace(result, name=part, expr=self.values[name], strides=self._laid(result, first, parts[part], whole))
            for part, name in zip(parts, names, strict=True)
        )
        if len(self.operands) + len(results) > MOST_TENSORS:
            return None
        if program.reductions and not _lie_in_one_order([*self.operands, *results], program.shape):
            return None
        taken = [step for place in dict.fromkeys(makers.values()) if isinstance(step := steps[place], Fused)]
        covers = (*dict.fromkeys(each for step in taken for each in step.covers), cat.name)
        updates = {name: buffer for step in taken for name, buffer in step.updates.items()}
        further = tuple(each for each in program.results if each.name in updates)
        compute = replace(program, operands=tuple(self.operands), results=(*results, *further))
        held = {operand.name: name for operand, name in self.operands.items()}
        return Fused("", covers, compute, held, made, whole, {}, None, tuple(self.wanted), updates=updates, parts=parts)

    def _laid(self, result: Result, name: str, part: Part, whole: TensorType) -> tuple[int, ...]:
        return layouts.relaid(result.strides, self.types[name], part.of(whole))

    def _take(self, step: Step) -> None:
        """What a kernel makes, of operands that have names of their own."""
        assert isinstance(step, Fused) and isinstance(step.compute, Program)
        known = {each.name: (each, held) for each, held in self.operands.items()}
        new: dict[Expr, Expr] = {}
        for each in step.compute.operands:
            operand, held = each, step.operands[each.name]
            if known.get(each.name, (each, held)) != (each, held):
                operand = replace(each, name=self.new_name(each.name))
                new[each.leaf] = operand.leaf
            self.operands[operand] = held
            if each.name in step.wanted and operand.name not in self.wanted:
                self.wanted.append(operand.name)
        self.values |= {r.name: substitute(r.expr, new) for r in step.compute.results if r.name in step.results}

    def _copy(self, name: str, like: Result, type_: TensorType) -> None:
        """A part as another step made it."""
        own = self.types[name]
        operand = Operand(self.new_name(f"{name}_joined"), own.dtype, layouts.relaid(like.strides, type_, own))
        self.operands[operand], self.values[name] = name, operand.leaf
        if name in self.differentiable:
            self.wanted.append(operand.name)


def _lie_in_one_order(tensors: Sequence[Operand | Result], shape: Sequence[int]) -> bool:
    """Whether all tensors of a space's size go through its dims in the same order."""
    dims = [d for d, n in enumerate(shape) if n > 1]
    full = [each.strides for each in tensors if all(each.strides[d] for d in dims)]
    return len({tuple(sorted(dims, key=lambda d: strides[d])) for strides in full}) == 1


def _lies_as_known(steps: Sequence[Step], name: str, type_: TensorType) -> bool:
    """Whether kernels read a tensor where it is: of a view that lies otherwise they would get a copy."""
    views = (step for step in steps if isinstance(step, Call) and not step.bytes_moved and name in step.results)
    made = (each.tensor for view in views for each in view.operation.outputs if each.name == name)
    return all(layouts.same(type_.shape, type_.strides, each.strides) for each in made)


# read


def read_within(steps: Sequence[Step], types: Mapping[str, TensorType], kept: Container[str]) -> tuple[Step, ...]:
    """The steps, where kernels read slices of tensors within these; gradients of slices that fill a tensor are written
    as one. Slices that nobody takes any more are gone."""
    found = list(steps)
    views = {name: view for step in steps for name, view in _views(step, types)}
    readers = Counter(name for step in steps for name in step.reads)
    alone = {name for name, count in readers.items() if count == 1 and name not in kept}
    for place, step in enumerate(found):
        if isinstance(step, Fused) and isinstance(step.compute, Program) and not step.is_copy:
            found[place] = _reading(step, views, types, alone)
    read = {name for step in found for name in step.reads}
    return tuple(
        step for step in found if not _is_idle(step, views) or any(name in read or name in kept for name in step.names)
    )


def _is_idle(step: Step, views: Container[str]) -> bool:
    return isinstance(step, Call) and all(name in views for name in step.results)


def _views(step: Step, types: Mapping[str, TensorType]) -> Iterator[tuple[str, tuple[str, Part]]]:
    """The slices that a call makes, each with its tensor and where in it that is; all of them lie there as kernels take
    them to, and begin where these may."""
    source = step.operation.args.get("self") if isinstance(step, Call) else None
    if not isinstance(step, Call) or not isinstance(source, Ref):
        return
    whole = types[source.name]
    found = sliced(step.operation, whole.shape)
    if all(_lies_within(types[name], part, whole) and _begins_well(part, whole) for name, part in found):
        yield from ((name, (source.name, part)) for name, part in found)


def _lies_within(type_: TensorType, part: Part, whole: TensorType) -> bool:
    return type_.dtype == whole.dtype and layouts.same(type_.shape, type_.strides, part.of(whole).strides)


def _reading(
    step: Fused, views: Mapping[str, tuple[str, Part]], types: Mapping[str, TensorType], alone: Container[str]
) -> Fused:
    """The step, reading slices within their tensors."""
    of: dict[str, dict[str, Part]] = {}
    for operand, held in step.operands.items():
        if held in views and operand not in step.parts:
            of.setdefault(views[held][0], {})[operand] = views[held][1]
    for source, parts in of.items():
        learns = [name for name in parts if name in step.wanted]
        only = all(step.operands[name] in alone for name in parts)
        only &= source not in {*step.operands, *step.operands.values()}
        only &= all(_begins_well(part, layouts.packed(types[source])) for part in parts.values())
        if learns and not (len(learns) == len(parts) and only and _fill([*parts.values()], types[source])):
            continue
        operands = {**step.operands, **dict.fromkeys(parts, source)}
        within = replace(step, operands=operands, parts={**step.parts, **parts})
        if step.wanted:
            within = with_backward(replace(within, saved={}, backward=None, passed={}), types)
        made = {each.name for each in within.backward.results} if within.backward else set[str]()
        if all(f"grad_{name}" in made for name in learns):
            step = within
    return step


def _fill(parts: Sequence[Part], whole: TensorType) -> bool:
    """Whether each element of a tensor is in one of them, side by side or in turns."""
    ordered = sorted(parts, key=lambda part: part.start)
    (dim, step), starts = (ordered[0].dim, ordered[0].step), [part.start for part in ordered]
    if any((part.dim, part.step) != (dim, step) for part in ordered):
        return False
    size = whole.shape[dim]
    if step > 1:
        return starts == [*range(step)] and all(part.size == len(range(part.start, size, step)) for part in ordered)
    return [0, *(part.start + part.size for part in ordered)] == [*starts, size]
