"""Cases: inputs and weights of a reference, at sizes that a candidate can answer in time."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import torch

from crucible.contract import Contract
from crucible.judge.boundary.bundles import put_together, take_apart
from crucible.judge.boundary.modules import seed_all
from crucible.judge.oracle.expected import Case
from crucible.judge.oracle.reference import Reference
from crucible.judge.oracle.sizing import LITTLE_BYTES, Rated, Survey
from crucible.seeds import derived
from crucible.shapes import Sizes


class CaseMaker:
    """Makes cases of one reference under one contract."""

    def __init__(self, reference: Reference, contract: Contract, seed: int, survey: Survey) -> None:
        self.reference = reference
        self.contract = contract
        self.seed = seed
        self.survey = survey
        self.sizes: Sizes = {}
        """In place of the task's own."""

    def case(
        self,
        label: str,
        number: int,
        *,
        weights: bool = False,
        wide: bool = False,
        backward: bool = False,
        sizes: Sizes | None = None,
    ) -> Case:
        """Fresh inputs by that number, `wide` of normal values; `weights` other than the reference's own; at `sizes`
        beside the maker's."""
        inputs = self.reference.inputs(self._seed_of(number), {**self.sizes, **(sizes or {})})
        seed_all(derived(self.seed, "weights", number))
        structure, leaves = take_apart(inputs, "input")
        tensors = [self._cast(_widened(leaf.tensor) if wide else leaf.tensor) for leaf in leaves]
        state = self.reference.state()
        if weights:
            learned = set(self.reference.parameter_names())
            state = {name: _moved(name, value, name in learned) for name, value in state.items()}
            state = {name: state[first] for name, _, first in self.reference.weights()}  # a candidate may untie them
        return Case(label, put_together(structure, tensors), state, backward, sizes or {}, wide, new_weights=weights)

    def _seed_of(self, number: int) -> int:
        """Of the inputs by that number; under the benchmark's rule as the benchmark draws it."""
        if self.contract.seed is None:
            return derived(self.seed, "inputs", number)
        drawn = torch.Generator().manual_seed(self.contract.seed)
        return [int(torch.randint(0, 2**32 - 1, (1,), generator=drawn)) for _ in range(number + 1)][-1]

    def inputs(self, seed: int, device: torch.device | None = None) -> Any:
        """The task's own inputs under a seed, drawn by a device if one is named."""
        with device or contextlib.nullcontext():
            structure, leaves = take_apart(self.reference.inputs(seed, self.sizes), "input")
        return put_together(structure, [self._cast(leaf.tensor) for leaf in leaves])

    def _cast(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(torch.bfloat16) if self.contract.bfloat16_tensors and tensor.is_floating_point() else tensor

    def rate(self, sizes: Sizes) -> Rated:
        """These sizes beside the maker's."""
        return replace(self.survey.rate({**self.sizes, **sizes}), sizes=sizes)

    def is_affordable(self, model: Case, sizes: Sizes, at_most: float) -> bool:
        """Whether a trial at these sizes is at most so many times little work: no larger than a case that was itself
        little, or by what the reference does."""
        wanted = {**self.sizes, **model.sizes, **sizes}
        if at_most > 1:
            return self.survey.rate(wanted).cost <= at_most
        known = sum(expected.nbytes for expected in model.outputs) + _bytes_of(model.inputs)
        if known <= LITTLE_BYTES and _bytes_of(self.reference.inputs(self.seed, wanted)) <= _bytes_of(model.inputs):
            return True  # tensors without values, which counting takes, bring half of torch along: 1.1 s
        return self.survey.rate(wanted).is_little


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    """Normal values, three times as wide, in place of the task's own floats."""
    return (torch.randn(tensor.shape) * 3).to(tensor.dtype) if tensor.is_floating_point() else tensor


def _moved(name: str, value: torch.Tensor, learned: bool) -> torch.Tensor:
    """A weight that is neither its initial value nor far from it; constants (a scale of ones) come alive, and so
    do the statistics of a batch norm. Other buffers (a mask, say) are constants of the task."""
    if not value.is_floating_point() or not (learned or name.endswith(("running_mean", "running_var"))):
        return value
    if name.endswith("running_var"):
        scaled: torch.Tensor = value * (torch.randn(value.shape) * 0.3).exp().to(value.dtype)
        return scaled
    spread = 0.3 * float(value.float().pow(2).mean()) ** 0.5 + 0.05
    moved: torch.Tensor = value + (torch.randn(value.shape) * spread).to(value.dtype)
    return moved


def _bytes_of(inputs: Any) -> int:
    return sum(leaf.tensor.nbytes for leaf in take_apart(inputs, "input")[1])
