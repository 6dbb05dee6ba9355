"""Names for each use of a tensor that several steps read.

Autograd adds up what comes back from each of them, in a pass for each but the first. Under a name of its own for each
reader what comes back is told apart, and the step that made the tensor adds it up as it reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, MutableMapping, Sequence
from dataclasses import replace

from crucible.algebra.program import Program
from crucible.graph import TensorType
from crucible.plan import layouts
from crucible.plan.backward import with_backward
from crucible.plan.steps import Call, Fused, Step

MOST_USES = 4
"""That are told apart; what comes back from further ones autograd adds up."""


def told_apart(
    steps: Sequence[Step],
    types: MutableMapping[str, TensorType],
    differentiable: Container[str],
    is_seen: Callable[[str], bool],
    new_name: Callable[[str], str],
) -> tuple[Step, ...]:
    """The steps, of which each reads results of programs under a name of its own, but for the first; `types` gets those
    names as well. What the module's caller sees has one name: written to in place, it would be written to for those who
    kept it by another, and autograd would not know."""
    found = list(steps)
    for place, step in enumerate(found):
        if not _adds_up(step):
            continue
        assert isinstance(step, Fused)
        again: dict[str, str] = {}
        for name in step.results:
            if is_seen(name):
                continue
            users = [n for n, each in enumerate(found) if _differentiates(each, name, differentiable)]
            for user in users[1:MOST_USES]:
                other = new_name(name)
                again[other], types[other] = name, types[name]
                found[user] = _renamed(found[user], name, other)
        if again:
            found[place] = with_backward(replace(step, again=again), types)
    return tuple(found)


def _adds_up(step: Step) -> bool:
    """Whether its backward is a program, which may read several gradients, each whole."""
    if not isinstance(step, Fused) or step.is_copy or step.joined:
        return False
    return isinstance(step.compute, Program) and bool(step.wanted)


def _differentiates(step: Step, name: str, differentiable: Container[str]) -> bool:
    """Whether a step reads a tensor, whose gradient it has a part of."""
    if isinstance(step, Call):
        return name in step.reads and any(result in differentiable for result in step.results)
    return name in {step.operands[each] for each in step.wanted}


def _renamed(step: Step, name: str, other: str) -> Step:
    """The same, reading a tensor under another name."""
    if isinstance(step, Call):
        return replace(step, operation=layouts.renamed(step.operation, {name: other}))
    return replace(step, operands={each: other if held == name else held for each, held in step.operands.items()})
