"""What is written beside torch.compile of the same module, timed in turns on this machine's GPU."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from crucible.emission.handing import MAX_AUTOTUNE, Beside
from crucible.errors import DeviceError, MisuseError
from crucible.products import tensors_in
from crucible.tuning.bench import Stopwatch, race

WRITTEN = "written"
Compile = Callable[[nn.Module], Callable[..., Any]]
_Contestant = tuple[Callable[[], Any], list[torch.Tensor]]
"""A call, and what takes a gradient."""
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
) -> Beside:
    """How `written(module, *inputs)` fares beside the fastest of the rivals, by torch.compile's modes: forward and,
    where anything takes a gradient, with it. All work with copies of the module, whose buffers they may change; random
    numbers go on as if nothing had been called. Takes what torch.compile takes to compile, and seconds. Raises whatever
    torch.compile or a call raises.
    """
    own = copy.deepcopy(module)
    contestants = {WRITTEN: (lambda: written(own, *inputs), _takers(own, inputs))}
    contestants |= {mode: _compiled(copy.deepcopy(module), inputs, compile) for mode, compile in rivals.items()}
    on_gpu = torch.cuda.is_available()
    with torch.random.fork_rng([torch.cuda.current_device()] if on_gpu else []):
        forward = {name: _without_gradients(call) for name, (call, _) in contestants.items()}
        both = {name: _with_gradients(call, takers) for name, (call, takers) in contestants.items()}
        ratio, mode = _best(time(forward))
        trained, trained_mode = _best(time(both)) if contestants[WRITTEN][1] else (None, "")
    return Beside(torch.cuda.get_device_name() if on_gpu else "this machine", ratio, trained, mode, trained_mode)


def _compiled(plain: nn.Module, inputs: Sequence[Any], compile: Compile) -> _Contestant:
    compiled = compile(plain)
    return lambda: compiled(*inputs), _takers(plain, inputs)


def _best(ms: Mapping[str, float]) -> tuple[float, str]:
    """How many times as fast as the fastest mode, and which that is."""
    rivals = {mode: each for mode, each in ms.items() if mode != WRITTEN}
    mode = min(rivals, key=rivals.__getitem__)
    return rivals[mode] / ms[WRITTEN], mode


def _takers(module: nn.Module, inputs: Sequence[Any]) -> list[torch.Tensor]:
    """What takes a gradient."""
    given = [each for each in inputs if isinstance(each, torch.Tensor)]
    return [each for each in (*given, *module.parameters()) if each.requires_grad]


def _without_gradients(call: Callable[[], Any]) -> Callable[[], Any]:
    def forward() -> Any:
        with torch.no_grad():
            return call()

    return forward


def _with_gradients(call: Callable[[], Any], takers: Sequence[torch.Tensor]) -> Callable[[], Any]:
    """All outputs' gradients are ones, which are made once."""
    ones: list[torch.Tensor] = []

    def both() -> Any:
        made = [each for each in tensors_in(call()) if each.requires_grad]
        if not ones:
            ones.extend(map(torch.ones_like, made))
        return torch.autograd.grad(made, takers, ones, allow_unused=True) if made else ()

    return both
