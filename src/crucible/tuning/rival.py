"""What is written beside torch.compile of the same module, timed in turns on this machine's GPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from crucible.copies import duplicate
from crucible.emission.handing import MAX_AUTOTUNE, Beside, called
from crucible.errors import DeviceError, MisuseError
from crucible.memory_errors import is_out_of_memory
from crucible.products import tensors_in
from crucible.tuning.bench import Stopwatch, race
from crucible.tuning.exactness import Contestant, Yardstick

WRITTEN = "written"
Compile = Callable[[nn.Module], Callable[..., Any]]
RIVALS: Mapping[str, Mapping[str, Compile]] = {
    "compile": {"": torch.compile},
    "max-autotune": {"": torch.compile, MAX_AUTOTUNE: partial(torch.compile, mode=MAX_AUTOTUNE)},
}
"""By the race's name, what is compiled in which mode of torch.compile."""


def rivals_of(asked: bool | str) -> Mapping[str, Compile]:
    """Of `race=True`, or of a race by its name. Raises MisuseError for one that there is not."""
    name = "compile" if asked is True else str(asked)
    if name not in RIVALS:
        raise MisuseError(f"race is True or one of {', '.join(RIVALS)}, not {asked!r}")
    return RIVALS[name]


def check_can_race(asked: bool | str) -> None:
    """Raises MisuseError for a race that there is not, DeviceError where there is no GPU."""
    rivals_of(asked)
    if not torch.cuda.is_available():
        raise DeviceError(
            "a race times what is written beside torch.compile, and this machine has no NVIDIA GPU: run it where there "
            "is one, or leave --race out"
        )


def beside_compile(
    written: Callable[..., Any],
    module: nn.Module,
    inputs: Sequence[Any],
    time: Stopwatch = race,
    rivals: Mapping[str, Compile] = RIVALS["compile"],
    untimed: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Beside:
    """How `written(module, *inputs)` fares beside the fastest of the rivals, by torch.compile's modes, that is as exact
    (see `exactness`): forward and, where anything takes a gradient, with it. All work with copies of the module, whose
    buffers they may change; random numbers go on as if nothing had been called. Takes what torch.compile takes to
    compile, and seconds. What is not timed is called within `untimed`: others may work with the GPU then. Raises
    whatever the module, torch.compile or a call raises.
    """
    own = duplicate(module)
    contestants = {WRITTEN: Contestant.of(own, lambda: written(own, *inputs), inputs)}
    contestants |= {mode: _compiled(duplicate(module), inputs, compile) for mode, compile in rivals.items()}
    on_gpu = torch.cuda.is_available()
    with torch.random.fork_rng([torch.cuda.current_device()] if on_gpu else []):
        with untimed():
            inexact = _Inexact.among(contestants, module, inputs)
        forward = {name: _without_gradients(each.call) for name, each in contestants.items()}
        both = {name: _with_gradients(each) for name, each in contestants.items()}
        ratio, mode = _best(time(forward), inexact.forward)
        trained, trained_mode = _best(time(both), inexact.training) if contestants[WRITTEN].takers else (None, "")
    gpu = torch.cuda.get_device_name() if on_gpu else "this machine"
    return Beside(gpu, ratio, trained, mode, trained_mode, inexact.words)


_NO_ROOM = "the GPU's memory does not allow to hold its results against float64"


@dataclass(frozen=True)
class _Inexact:
    """Rivals that are less exact than eager PyTorch is, and what is written; by torch.compile's modes, why."""

    forward: Mapping[str, str]
    training: Mapping[str, str]

    @classmethod
    def among(cls, contestants: Mapping[str, Contestant], module: nn.Module, inputs: Sequence[Any]) -> _Inexact:
        try:
            yardstick = Yardstick.of(module, inputs)
            errors = {name: yardstick.errors(each) for name, each in contestants.items()} if yardstick else {}
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            nobody = {mode: _NO_ROOM for mode in contestants if mode != WRITTEN}
            return cls(nobody, nobody)
        if yardstick is None:
            return cls({}, {})
        own = errors.pop(WRITTEN)
        forward, training = (
            {mode: why for mode, each in errors.items() if (why := yardstick.excess(each, own, with_gradients=which))}
            for which in (False, True)
        )
        return cls(forward, training)

    @property
    def words(self) -> tuple[str, ...]:
        found = {(mode, why) for each in (self.forward, self.training) for mode, why in each.items()}
        return tuple(f"{called(mode)} was left out: {why}" for mode, why in sorted(found))


def _compiled(plain: nn.Module, inputs: Sequence[Any], compile: Compile) -> Contestant:
    compiled = compile(plain)
    return Contestant.of(plain, lambda: compiled(*inputs), inputs)


def _best(ms: Mapping[str, float], inexact: Container[str]) -> tuple[float, str]:
    """How many times as fast as the fastest mode that is exact, and which that is."""
    rivals = {mode: each for mode, each in ms.items() if mode != WRITTEN and mode not in inexact}
    if not rivals:
        return math.inf, ""
    mode = min(rivals, key=rivals.__getitem__)
    return rivals[mode] / ms[WRITTEN], mode


def _without_gradients(call: Callable[[], Any]) -> Callable[[], Any]:
    def forward() -> Any:
        with torch.no_grad():
            return call()

    return forward


def _with_gradients(contestant: Contestant) -> Callable[[], Any]:
    """All outputs' gradients are ones, which are made once."""
    ones: list[torch.Tensor] = []

    def both() -> Any:
        made = [each for each in tensors_in(contestant.call()) if each.requires_grad]
        if not ones:
            ones.extend(map(torch.ones_like, made))
        return torch.autograd.grad(made, contestant.takers, ones, allow_unused=True) if made else ()

    return both
