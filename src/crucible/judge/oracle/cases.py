"""Cases: inputs and weights of a reference, at sizes that a candidate can answer in time."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from crucible.contract import Contract
from crucible.errors import TaskError
from crucible.judge.boundary.bundles import put_together, take_apart
from crucible.judge.boundary.modules import seed_all
from crucible.judge.oracle.expected import Case
from crucible.judge.oracle.reference import Reference, blamed_on_task
from crucible.seeds import derived
from crucible.shapes import Sizes

LITTLE_FLOPS, LITTLE_BYTES = 1e8, 8 << 20
"""Of a forward at sizes that the judge chooses: 2 s of a tiled matrix product on the emulator, 0.2 s of elements (27 M
multiply-adds and 9 M elements a second: benchmarks/results/emulator_cpu.json)."""


class CaseMaker:
    """Makes cases of one reference under one contract."""

    def __init__(self, reference: Reference, contract: Contract, seed: int, asked: bool) -> None:
        """`asked`: whether the user chose the sizes."""
        self.reference = reference
        self.contract = contract
        self.seed = seed
        self.asked = asked
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
        inputs = self.reference.inputs(derived(self.seed, "inputs", number), {**self.sizes, **(sizes or {})})
        seed_all(derived(self.seed, "weights", number))
        structure, leaves = take_apart(inputs, "input")
        tensors = [self._cast(_widened(leaf.tensor) if wide else leaf.tensor) for leaf in leaves]
        state = self.reference.state()
        if weights:
            learned = set(self.reference.parameter_names())
            state = {name: _moved(name, value, name in learned) for name, value in state.items()}
        return Case(label, put_together(structure, tensors), state, backward, sizes or {}, wide)

    def inputs(self, seed: int, device: torch.device | None = None) -> Any:
        """The task's own inputs under a seed, drawn by a device if one is named."""
        with device or contextlib.nullcontext():
            structure, leaves = take_apart(self.reference.inputs(seed, self.sizes), "input")
        return put_together(structure, [self._cast(leaf.tensor) for leaf in leaves])

    def _cast(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(torch.bfloat16) if self.contract.bfloat16_tensors and tensor.is_floating_point() else tensor

    def in_order(self, tries: list[Sizes]) -> list[Sizes]:
        """The sizes that are little enough work as they come, then all from the last; as they are if asked for."""
        return tries if self.asked else [*filter(self.is_little, tries), *reversed(tries)]

    def takes(self, sizes: Sizes) -> bool:
        """Whether the reference has a forward at these sizes."""
        with contextlib.suppress(TaskError), blamed_on_task(self.reference.path, "Model.forward"):
            self.reference.evaluate(self.reference.state(), self.reference.inputs(self.seed, sizes))
            return True
        return False

    def is_little(self, sizes: Sizes) -> bool:
        """Whether an emulated candidate answers in seconds."""
        try:
            (forward, *_) = self.reference.work(self.reference.inputs(self.seed, sizes), backward=False)
        except Exception:  # noqa: BLE001 - a reference may refuse sizes, or tensors without values, in any way
            return False
        return forward.matrix_flops <= LITTLE_FLOPS and forward.bytes_moved <= LITTLE_BYTES

    def is_affordable(self, model: Case, sizes: Sizes) -> bool:
        """Whether a trial at these sizes is little work: no larger than a case that was itself little, or little by
        what the reference does."""
        wanted = {**self.sizes, **model.sizes, **sizes}
        known = sum(expected.nbytes for expected in model.outputs) + _bytes_of(model.inputs)
        if known <= LITTLE_BYTES and _bytes_of(self.reference.inputs(self.seed, wanted)) <= _bytes_of(model.inputs):
            return True  # tensors without values, which counting takes, bring half of torch along: 1.1 s
        return self.is_little(wanted)


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
