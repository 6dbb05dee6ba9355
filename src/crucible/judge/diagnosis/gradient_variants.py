"""Which variant of the reference wrong gradients belong to: the right forward, pulled back through another function."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from crucible.judge.boundary.modules import gradients_of
from crucible.judge.diagnosis.edits import LIKELY, Edit, around, operand, operands, through
from crucible.judge.diagnosis.variants import MOST_ELEMENTS, Search, distance
from crucible.judge.oracle.compare import Expected
from crucible.judge.oracle.expected import Answers, Case
from crucible.judge.oracle.recorded import Call, Change, Recording, Run, Step, Values, tensors_in
from crucible.judge.verdict.evidence import NoVariant, Variant


def look_up_gradients(answers: Answers, case: Case, names: list[str], heads: list[torch.Tensor]) -> Variant | NoVariant:
    """The variant of the reference whose gradients, in a case, those of `heads` are that are wrong. Raises what the
    reference raises."""
    expected = [case.gradients[name] for name in names]
    most = 4 * MOST_ELEMENTS[answers.reference.device.type]
    whole = all(e.values.numel() == head.numel() for e, head in zip(expected, heads, strict=True))
    if not whole or sum(e.values.numel() for e in [*expected, *case.outputs]) > most:
        return NoVariant("the gradients are too large to look at")
    given = [head.to(answers.reference.device) for head in heads]
    wrong = [i for i, e in enumerate(expected) if not distance([e], [given[i]])[0].ok]
    if not wrong:
        return NoVariant("no gradient is wrong")
    recording = answers.reference.recorded(case.state, case.inputs, answers.exact)
    search = GradientSearch(
        recording,
        [expected[i] for i in wrong],
        [given[i] for i in wrong],
        Path(answers.reference.path).name,
        [names[i] for i in wrong],
        answers.cotangents(case),
    )
    found = search.run()
    part = f"the gradient of {', '.join(names[i] for i in wrong)}"
    return replace(found, part=part) if isinstance(found, Variant) else found


class GradientSearch(Search):
    """Wrong gradients against those of variants. Each step gives what it gives in the reference, whatever it is
    replaced with: only its derivative is the replacement's."""

    what = "the backward of the reference"

    def __init__(
        self,
        recording: Recording,
        expected: Sequence[Expected],
        answers: Sequence[torch.Tensor],
        path: str,
        names: list[str],
        cotangents: list[torch.Tensor],
    ) -> None:
        """`names` are the inputs and parameters whose gradients are meant."""
        slots = {name: slot for slot, name in recording.names.items()}
        self.sources = [slots[name] for name in names]
        self.cotangents = cotangents
        super().__init__(recording, expected, answers, path)

    def _edits(self) -> Iterator[Edit]:
        yield from super()._edits()
        for index, step in enumerate(self.recording.steps):
            yield from _detached(self.recording, index, step)

    def _pairs(self, useful: list[Edit]) -> list[Any]:
        """None: a pair costs a whole forward and backward."""
        return []

    def _base(self) -> Values:
        return self._replay({}, [], frozenset())

    def _replay(self, changes: dict[int, list[Change]], known: Values, anew: frozenset[int]) -> Values:
        values = list(self.recording.values)
        wanted = {slot: values[slot].detach().clone().requires_grad_() for slot in self.sources}
        for slot, leaf in wanted.items():
            values[slot] = leaf
        pinned = {index: [*some, self._pinning(index)] for index, some in changes.items()}
        with torch.enable_grad():
            values = self.recording.replay(pinned, values, frozenset(range(len(self.recording.steps))))
            outputs = [values[slot] for slot in self.recording.outputs]
            found = gradients_of(outputs, {str(slot): leaf for slot, leaf in wanted.items()}, self.cotangents)
        return [found.get(str(slot), torch.zeros_like(leaf)) for slot, leaf in wanted.items()]

    def _results(self, values: Values) -> list[Any]:
        return values

    def _pinning(self, index: int) -> Change:
        right = [self.recording.values[slot] for slot in self.recording.steps[index].results]

        def change(step: Step) -> Step:
            return replace(step, run=lambda call: _pinned(step.run, call, right))

        return change


def _pinned(run: Run, call: Call, right: list[Any]) -> list[Any]:
    """The results of `run` with the values `right`, so that only derivatives differ."""
    return [_with_value(made, value) for made, value in zip(tensors_in(run(call)), right, strict=False)]


def _with_value(made: Any, value: Any) -> Any:
    if not isinstance(made, torch.Tensor) or not made.is_floating_point():
        return value
    if made.shape != value.shape:
        raise ValueError(f"a result of shape {tuple(made.shape)} in place of {tuple(value.shape)}")
    return value.detach() + (made - made.detach())


def _detached(recording: Recording, index: int, step: Step) -> Iterator[Edit]:
    """No gradient through one operand."""
    if step.moves_only:
        return
    for name, value in operands(recording, step).items():
        if value.is_floating_point():
            words = f"no gradient through {operand(recording, step, name)} into {step.name}"
            yield around(index, words, through(torch.detach, name), LIKELY)
