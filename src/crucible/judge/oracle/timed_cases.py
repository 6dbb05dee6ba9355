"""Timed cases: what candidates are given only while they are timed, drawn anew for each call, and the answers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Any

import torch

from crucible.errors import TaskError
from crucible.judge.boundary.bundles import put_together, take_apart
from crucible.judge.boundary.recipe import NoRecipe, Recipe, recorded
from crucible.judge.boundary.slot import sealed
from crucible.judge.oracle.cases import CaseMaker
from crucible.judge.oracle.compare import Expected
from crucible.judge.oracle.expected import Answers, Case
from crucible.seeds import draws_of

LARGE_BYTES = 128 << 20
"""Of outputs (and gradients) in one timed case."""
INSIDE_BYTES = {"cuda": 4 << 20, "cpu": 64 << 20}
"""Inputs above it are drawn in the candidate's process, by a recipe and the seed of that call: through the slot a
gigabyte takes half a second a call. On a GPU 64 MiB took 30 to 36 ms, 2 to 3 more in one honest process than in
another, and a step of 0.26 ms between two such pauses 0.43; drawn inside, all beside the step takes 2 ms (H100)."""
LATE_S = 1.0
"""An answer that takes longer is not given to contents that were chosen afterwards: every candidate would wait."""


class TimedCases:
    """The contents of timed calls: a few of them answered beforehand, the others when the judge asks."""

    def __init__(self, make: CaseMaker, answers: Answers, secrets: list[list[int]], device: torch.device) -> None:
        """`secrets` are seeds, of forward and, in training, of forward+backward."""
        self._make = make
        self._answers = answers
        self._secrets = secrets
        self._device = device
        self._compared: Sequence[int] = (0, 0)
        """Bytes, of forward and of forward+backward."""
        self.recipe: Recipe | None = None
        """Where there is one, no contents are drawn here for others."""
        self._answer_s = float("inf")
        """The least that an answer took: the first ones load libraries."""
        self.weights: list[int] = [0]
        """Cases whose weights they have."""
        self.numbered: list[tuple[int, int, Case]] = []
        """Seed, the case that has the weights, and the case itself."""
        self.late: list[Case] = []
        """The one that was answered last, on demand."""

    @property
    def cases(self) -> list[Case]:
        return [case for _, _, case in self.numbered]

    @property
    def answers_late(self) -> bool:
        """Whether contents chosen afterwards are worth an answer."""
        return bool(self.numbered) and self._answer_s <= LATE_S

    def open(self, like: Any, compared: Sequence[int]) -> None:
        """Finds out whether the device can draw contents like these, and by a recipe. `compared`: bytes of a forward,
        and of one with its backward."""
        self._compared = compared
        tensors = _tensors(like)
        if self._device.type != "cpu" and not self._device_draws(like):
            self._device = torch.device("cpu")
        large = sum(tensor.nbytes for tensor in tensors) > INSIDE_BYTES[self._device.type]
        self.recipe = self._recipe() if large else None

    def planned(self, backward: bool) -> list[tuple[int, int]]:
        """Seed and weights of each that is answered beforehand: two of what is large, since each costs the judge as
        much as a case."""
        seeds = self._secrets[backward] if backward < len(self._secrets) else []
        seeds = seeds[:2] if self._compared[backward] > LARGE_BYTES else seeds
        return [(seed, self.weights[i % len(self.weights)]) for i, seed in enumerate(seeds)]

    def inputs(self, seed: int) -> Any:
        """On the CPU, wherever they are drawn."""
        structure, leaves = take_apart(self._inputs(seed), "input")
        return put_together(structure, [leaf.tensor.cpu() for leaf in leaves])

    def _inputs(self, seed: int) -> Any:
        return self._make.inputs(seed, self._device if self._device.type != "cpu" else None)

    def _recipe(self) -> Recipe | None:
        """None where it does not draw what `get_inputs` does, to the bit, under two seeds."""
        with contextlib.suppress(NoRecipe, TaskError, RuntimeError, TypeError):
            recipe = recorded(lambda: _tensors(self._inputs(1)))
            for seed in (1, 2):
                pairs = zip(recipe.drawn(seed, self._device), _tensors(self._inputs(seed)), strict=True)
                if not all(torch.equal(one, other) for one, other in pairs):
                    return None
            return recipe
        return None

    def add(self, cases: Sequence[Case]) -> None:
        """Answers what is planned, on the verified cases' weights. Raises TaskError where the reference has none."""
        for backward in (False, True):
            for seed, weights in self.planned(backward):
                case = self._case(cases, seed, weights, draws_of(seed), backward=backward)
                self.numbered.append((seed, weights, case))

    def draw(self, seed: int) -> int:
        """Contents under a seed, in a file of their own: its descriptor, which the caller closes. Raises TaskError."""
        return sealed(_tensors(self._inputs(seed)))

    def answer_late(self, cases: Sequence[Case], seed: int, weights: int, draws: int | None) -> None:
        """The answer to contents that were any call's, and have become ones that are compared."""
        self.late = [self._case(cases, seed, weights, draws, backward=False)]

    def _case(self, cases: Sequence[Case], seed: int, weights: int, draws: int | None, *, backward: bool) -> Case:
        inputs = self.inputs(seed)
        start = time.monotonic()
        silent = cases[0].silent if backward else []
        case = Case("the timed contents", inputs, cases[weights].state, backward, silent=silent)
        case.cotangents = self._answers.cotangents(case) if backward else []
        case.draws = draws
        self._answers.answer(case)
        self._answers.borrow_noise(case, [cases[weights]] if weights else cases[:2])
        case.cotangents = []
        self._answer_s = min(self._answer_s, time.monotonic() - start)
        return case

    def _device_draws(self, like: Any) -> bool:
        """Whether it gives what the CPU gives, values aside; it takes a hundredth of the time."""
        with contextlib.suppress(TaskError, RuntimeError):
            drawn, wanted = _tensors(self._inputs(0)), _tensors(like)
            return [(t.dtype, t.shape) for t in drawn] == [(t.dtype, t.shape) for t in wanted]
        return False


def unchanged(inputs: Any, names: list[str]) -> list[Expected]:
    """The inputs of those numbers as what a candidate's must still be, bit for bit but for the sign of zero."""
    tensors = _tensors(inputs)
    least = torch.finfo(torch.float64).tiny
    return [
        Expected(
            f"input[{name}]", tensor.detach().cpu().flatten(), tensor.dtype, tuple(tensor.shape), 1.0, least, least
        )
        for name in names
        for tensor in [tensors[int(name)]]
    ]


def _tensors(inputs: Any) -> list[torch.Tensor]:
    return [leaf.tensor for leaf in take_apart(inputs, "input")[1]]
