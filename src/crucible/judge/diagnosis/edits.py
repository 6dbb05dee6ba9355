"""Edits: what a reference's operations can be mistaken for, whatever they are. `mistakes.py` has those of single ones.

The words of an edit complete "the reference with ...".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from crucible.judge.oracle.noise import round_mantissa
from crucible.judge.oracle.recorded import Call, Change, Recording, Run, Slot, Step, slots_in

LIKELY, POSSIBLE, SELDOM = 0, 1, 2
"""Ranks: mistakes that kernels are known for, others, and what is tried last."""
Around = Callable[[Call, Run], Any]
"""What is computed in place of `run(call)`."""


@dataclass(frozen=True)
class Edit:
    """A change to one step of the reference or a few."""

    words: str
    changes: Mapping[int, Change]
    """By the number of the step."""
    rank: int = LIKELY
    rounds: bool = False
    """Whether it only rounds: then what lies between two numbers may go either way in a candidate."""
    alone: bool = False
    """Whether it cannot be combined with another edit of the same step."""

    def goes_with(self, other: Edit) -> bool:
        """Whether both make sense together."""
        apart = self.changes.keys().isdisjoint(other.changes)
        return apart or not (self.alone or other.alone)


def around(index: int, words: str, change: Around, rank: int = LIKELY, **more: bool) -> Edit:
    """An edit of one step."""
    return Edit(words, {index: _wrapping(change)}, rank, **more)


def called(name: str, call: Call, changed: Call) -> str:
    """`gelu(approximate='tanh') in place of 'none'`."""
    new = ", ".join(f"{argument}={plain(value)}" for argument, value in changed.items())
    old = ", ".join(plain(call[argument]) for argument in changed)
    return f"{name}({new}) in place of {old}"


def through(change: Callable[[torch.Tensor], torch.Tensor], *arguments: str) -> Around:
    """The same with operands that are changed before."""
    return lambda call, run: run({**call, **{name: change(call[name]) for name in arguments}})


def result_through(change: Callable[[torch.Tensor], torch.Tensor]) -> Around:
    """The same with its floating results changed afterwards."""
    return lambda call, run: _each(run(call), change)


def with_arguments(index: int, step: Step, changed: Call, rank: int = LIKELY) -> Edit:
    """Other values for arguments of one step."""
    words = called(step.name, step.args, changed)
    return around(index, words, lambda call, run: run({**call, **changed}), rank)


def general_edits(recording: Recording) -> Iterator[Edit]:
    """What can be done to any operation: leave it out, stop after it, exchange it with the next one, round its
    result, take a parameter for one of another dimension."""
    for index, step in enumerate(recording.steps):
        if not step.moves_only:
            yield from _left_out(recording, index, step)
            yield from _rounded(recording, index, step)
            yield from _broadcast(recording, index, step)
        yield from _moved(recording, index, step)
    yield from _stopped(recording)
    yield from _exchanged(recording)
    yield from _all_rounded(recording)


def first_result(recording: Recording, step: Step) -> Any:
    """What a step gives in the reference."""
    return recording.values[step.results[0]]


def operands(recording: Recording, step: Step) -> dict[str, torch.Tensor]:
    """The tensors that a step is given in the reference, by argument."""
    given = {name: value for name, value in step.args.items() if isinstance(value, Slot)}
    return {name: recording.values[slot.index] for name, slot in given.items()}


def _wrapping(change: Around) -> Change:
    def wrapped(step: Step) -> Step:
        run = step.run
        return replace(step, run=lambda call: change(call, run))

    return wrapped


def _left_out(recording: Recording, index: int, step: Step) -> Iterator[Edit]:
    result = first_result(recording, step)
    given = operands(recording, step)
    kept = [name for name, value in given.items() if value.shape == result.shape and value.dtype == result.dtype]
    for name in kept:
        others = [other for other in given if other != name]
        words = f"{operand(recording, step, others[0])} left out of {step.name}" if len(others) == 1 else ""
        words = words or f"{step.name} left out"
        yield around(index, words, _taking(name), alone=True)


def _taking(argument: str) -> Around:
    return lambda call, run: call[argument]


def operand(recording: Recording, step: Step, argument: str) -> str:
    """What an operand is called: a parameter by its name, a result by its operation."""
    slot = step.args[argument]
    makers = [maker.name for maker in recording.steps if slot.index in maker.results]
    return recording.source_of(slot) or (f"the result of {makers[0]}" if makers else "a constant")


def _stopped(recording: Recording) -> Iterator[Edit]:
    """Two operations or more left out at the end."""
    if len(recording.outputs) != 1:
        return
    last = next(i for i, step in enumerate(recording.steps) if recording.outputs[0] in step.results)
    wanted = recording.values[recording.outputs[0]]
    for step in recording.steps[: max(0, last - 1)]:
        result = first_result(recording, step)
        if step.moves_only or result.shape != wanted.shape or result.dtype != wanted.dtype:
            continue
        slot = Slot(step.results[0])
        yield Edit(f"all that follows {step.name} left out", {last: _giving(slot)}, LIKELY, alone=True)


def _giving(slot: Slot) -> Change:
    """A step that gives what stands in a slot."""
    return lambda step: replace(step, args={"self": slot}, run=lambda call: call["self"])


def _exchanged(recording: Recording) -> Iterator[Edit]:
    """Neighbours in the other order."""
    readers: dict[int, list[int]] = {}
    for index, step in enumerate(recording.steps):
        for slot in step.reads:
            readers.setdefault(slot, []).append(index)
    for first, step in enumerate(recording.steps):
        result = step.results[0]
        if readers.get(result, []) and len(readers[result]) == 1 and result not in recording.outputs:
            second = readers[result][0]
            mine, theirs = _carried(recording, step, None), _carried(recording, recording.steps[second], result)
            if mine and theirs:
                yield _exchange(recording, (first, mine), (second, theirs))


def _carried(recording: Recording, step: Step, through: int | None) -> str:
    """The argument that a step changes element by element, or group by group, and gives back; "" for none."""
    result = first_result(recording, step)
    for name, value in step.args.items():
        if not isinstance(value, Slot) or step.moves_only or through not in (None, value.index):
            continue
        if recording.values[value.index].shape == result.shape:
            return name
    return ""


def _exchange(recording: Recording, first: tuple[int, str], second: tuple[int, str]) -> Edit:
    (i, mine), (j, theirs) = first, second
    one, other = recording.steps[i], recording.steps[j]
    into = {**other.args, theirs: one.args[mine]}
    back = {**one.args, mine: Slot(one.results[0])}
    changes: dict[int, Change] = {
        i: lambda step: replace(other, args=into, results=one.results),
        j: lambda step: replace(one, args=back, results=other.results),
    }
    return Edit(f"{one.name} and {other.name} exchanged", changes, POSSIBLE, alone=True)


def _rounded(recording: Recording, index: int, step: Step) -> Iterator[Edit]:
    result = first_result(recording, step)
    if not isinstance(result, torch.Tensor) or not result.is_floating_point() or not step.reads:
        return
    for words, cast in _CASTS.items():
        words = f"the result of {step.name} rounded to {words}"
        yield around(index, words, result_through(cast), POSSIBLE, rounds=True)


def _all_rounded(recording: Recording) -> Iterator[Edit]:
    for words, cast in _CASTS.items():
        yield Edit(
            f"every result rounded to {words}",
            {i: _wrapping(result_through(cast)) for i, step in enumerate(recording.steps) if not step.moves_only},
            POSSIBLE,
            rounds=True,
        )


def first(result: Any) -> Any:
    """The first tensor that an operation gives."""
    return result[0] if isinstance(result, tuple | list) else result


def _each(result: Any, cast: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(result, tuple | list):
        return [_each(item, cast) for item in result]
    return cast(result) if isinstance(result, torch.Tensor) and result.is_floating_point() else result


def _through(dtype: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda value: value.to(dtype).to(value.dtype)


_CASTS = {"float16": _through(torch.float16), "bfloat16": _through(torch.bfloat16)}
ROUNDINGS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "TF32": lambda value: round_mantissa(value, 10),
    "TF32 by truncation": lambda value: _truncated(value),
    **_CASTS,
}
"""What operands of matrix products get rounded to."""


def _truncated(value: torch.Tensor) -> torch.Tensor:
    bits = value.to(torch.float32).view(torch.int32) & -(1 << 13)
    return torch.where(torch.isfinite(value), bits.view(torch.float32).to(value.dtype), value)


# --- parameters along another dimension


def _broadcast(recording: Recording, index: int, step: Step) -> Iterator[Edit]:
    result = first_result(recording, step)
    for name, value in operands(recording, step).items():
        wide = [d for d, size in enumerate(value.shape) if size > 1]
        if len(wide) != 1 or value.shape == result.shape or result.dim() < max(2, value.dim()):
            continue
        if step.op._schema.name.split("::")[1] not in _BINARY:
            continue
        own = wide[0] + result.dim() - value.dim()
        what = operand(recording, step, name)
        for words, spread in _spreads(result.shape, own):
            yield around(index, f"{what} {words}", through(spread, name), POSSIBLE)


_BINARY = ("add", "sub", "mul", "div")
Spread = Callable[[torch.Tensor], torch.Tensor]


def _spreads(shape: torch.Size, own: int) -> Iterator[tuple[str, Spread]]:
    for dim in range(len(shape)):
        if dim != own and shape[dim] > 1:
            yield f"along dimension {dim} in place of {own}", partial(_along, shape=shape, dim=dim)
    yield "read at the element's own place in memory", partial(_modulo, shape=shape)
    yield "read at its first element only", lambda value: value.flatten()[0]


def _along(value: torch.Tensor, shape: torch.Size, dim: int) -> torch.Tensor:
    """A vector along a dimension of `shape`, from the start again where it is too short."""
    flat = value.flatten()
    places = torch.arange(shape[dim], device=value.device) % flat.numel()
    return flat[places].view([-1 if d == dim else 1 for d in range(len(shape))])


def _modulo(value: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    flat = value.flatten()
    return flat[torch.arange(shape.numel(), device=value.device) % flat.numel()].view(shape)


# --- dimensions that are moved, or not


def _moved(recording: Recording, index: int, step: Step) -> Iterator[Edit]:
    if step.op._schema.name.split("::")[1] not in ("t", "transpose", "permute"):
        return
    result, (given,) = first_result(recording, step), operands(recording, step).values()
    name = recording.source_of(next(slots_in(step.args.values()))) or "its operand"
    read = "x".join(map(str, result.shape))
    yield around(
        index,
        f"{name} ({'x'.join(map(str, given.shape))}) read as if it lay {read} in memory",
        lambda call, run: call["self"].reshape(result.shape),
        LIKELY,
    )


def plain(value: Any) -> str:
    same = isinstance(value, list) and len(set(value)) == 1
    return repr(value[0]) if same else repr(value)
