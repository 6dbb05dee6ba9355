"""A step as it is timed: contents it has not seen, in memory that rotates, and its last results kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from crucible.judge.boundary.bundles import numbers_to_tensors, put_together, take_apart
from crucible.judge.boundary.modules import call, gradients_of, seed_all
from crucible.judge.worker import clock
from crucible.judge.worker.outputs import finish

Outcome = tuple[Any, dict[str, torch.Tensor]]
"""What a step gives: the module's own output, and gradients by name."""
Fill = Callable[[list[torch.Tensor]], None]
"""Puts contents into contiguous tensors, one for each of the inputs."""
_SPARE_SHARE = 4
"""A device with less than this part of its memory free gets cached blocks back after every sample."""


@dataclass
class TimedStep:
    """Forward, or forward+backward, of one model, each time on other contents.

    `model` runs on tensors shaped like `like`, on `device`; `structure` puts them together.
    `cotangents` is None for a forward alone; `names` are the inputs' names, for their gradients.
    """

    model: torch.nn.Module
    structure: Any
    like: list[torch.Tensor]
    names: list[str]
    cotangents: list[torch.Tensor] | None
    device: torch.device
    storages: list[list[torch.Tensor]] = field(default_factory=list)
    """Sets of input tensors that take turns: what was kept by address, or in L2, is stale the next time."""
    kept: list[torch.Tensor] = field(default_factory=list)
    """Copies of the last sample's outputs, made the moment its clock stopped."""
    kept_gradients: dict[str, torch.Tensor] = field(default_factory=dict)
    earlier: list[torch.Tensor] = field(default_factory=list)
    """The outputs, no copies, of the sample before the last one: alive while that ran, as their owner is free to let
    them be."""
    given: list[torch.Tensor] = field(default_factory=list)
    """The inputs of the last sample, as they are after it."""
    first_call_s: float = 0.0
    """Seconds of the very first call."""

    def __post_init__(self) -> None:
        self._calls = 0
        self._outputs: list[torch.Tensor] = []
        self._sample = clock.sampler(self.device)
        self._steps = [self._step(set_) for set_ in self.storages or self._new_storages()]
        self._graph: Callable[[], Outcome] | None = None
        self._writes = False
        """It writes to its inputs, which autograd forbids where their gradients are wanted: it gets copies."""

    def sample(self, fill: Fill, replay: bool, seed: int | None = None) -> clock.Sample:
        """One call on the contents that `fill` brings, with generators under `seed` if there is one; what came of it
        stays in `kept` until the next one.

        The process is never told which of its samples is timed, nor which is compared with the oracle.
        """
        sample = self._taken(self._prepared(fill, replay), seed)
        self.first_call_s = self.first_call_s or sample.wall_ms / 1e3
        self._keep(*sample.result)
        self._give_back()
        return clock.Sample(sample.device_ms, sample.wall_ms, None)

    def hurry(self, fill: Fill, replay: bool, seed: int | None = None) -> None:
        """One more call on contents that `fill` brings, right behind the last one: no clock, and no cache is written
        over. What came of it takes the place of the last sample's."""
        step = self._prepared(fill, replay)
        _seed(seed)
        result = step()
        finish(self.device)
        self._keep(*result)

    def _prepared(self, fill: Fill, replay: bool) -> Callable[[], Outcome]:
        """The step that is next, with its contents in place."""
        index = 0 if replay else self._calls % len(self._steps)
        self._calls += 1
        self.given = [tensor.detach() for tensor in self.storages[index]]
        with torch.no_grad():
            fill(self.given)
        self.kept, self.kept_gradients = [], {}
        return self._graph if replay and self._graph else self._steps[index]

    def _taken(self, step: Callable[[], Outcome], seed: int | None) -> clock.Sample:
        try:
            _seed(seed)
            return self._sample(step)
        except RuntimeError as error:
            if self._writes or "leaf Variable that requires grad" not in str(error):
                raise
            self._writes = True
            _seed(seed)
            return self._sample(step)

    def once(self) -> Callable[[], Outcome]:
        """The step on its first storage, contents as they are."""
        return self._steps[0]

    def capture(self) -> None:
        """Captures the step as a CUDA graph over the first storage; raises what the capture raises."""
        step = self._steps[0]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):  # libraries choose algorithms and allocate workspaces in the first calls
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = step()

        def replay() -> Outcome:
            graph.replay()
            return result

        self._graph = replay

    def _new_storages(self) -> list[list[torch.Tensor]]:
        self.storages = [self._room()]
        size = sum(t.numel() * t.element_size() for t in self.like)
        if self.device.type == "cpu" or size < torch.cuda.mem_get_info()[0] // (2 * _SPARE_SHARE):
            self.storages.append(self._room())
        return self.storages

    def _step(self, storage: list[torch.Tensor]) -> Callable[[], Outcome]:
        model, cotangents = self.model, self.cotangents
        if cotangents is None:
            inputs = put_together(self.structure, storage)
            return lambda: (call(model, inputs), {})
        wanted = {n: t.requires_grad_(True) for n, t in zip(self.names, storage, strict=True) if t.is_floating_point()}
        wanted.update({n: p for n, p in model.named_parameters() if p.requires_grad})

        def forward_and_backward() -> Outcome:
            given = [t.clone() for t in storage] if self._writes else storage
            out = call(model, put_together(self.structure, given))
            parts = [leaf.tensor for leaf in take_apart(numbers_to_tensors(out), "output")[1]]
            return out, gradients_of(parts, wanted, cotangents)

        return forward_and_backward

    def _room(self) -> list[torch.Tensor]:
        """In row-major order, so that flattening them gives a view."""
        return [torch.empty(t.shape, dtype=t.dtype, device=self.device).copy_(t) for t in self.like]

    def _keep(self, out: Any, gradients: dict[str, torch.Tensor]) -> None:
        """Copies at once: a candidate may fill a buffer of its own again in the next call, or only later."""
        leaves = take_apart(numbers_to_tensors(out), "output")[1]
        self.kept = [leaf.tensor.detach().clone() for leaf in leaves]
        self.earlier, self._outputs = self._outputs, [leaf.tensor.detach() for leaf in leaves]
        self.kept_gradients = {name: gradient.detach().clone() for name, gradient in gradients.items()}

    def _give_back(self) -> None:
        """Leaves room for the others that take turns, where the device is small."""
        if self.device.type == "cuda":
            free, total = torch.cuda.mem_get_info()
            if free < total // _SPARE_SHARE:
                torch.cuda.empty_cache()


def _seed(seed: int | None) -> None:
    if seed is not None:
        seed_all(seed)
