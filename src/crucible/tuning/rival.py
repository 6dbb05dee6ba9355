"""What is written beside torch.compile of the same module, timed in turns on this machine's GPU."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from crucible.emission.handing import Beside
from crucible.errors import DeviceError
from crucible.products import tensors_in
from crucible.tuning.bench import Stopwatch, race

WRITTEN, COMPILED = "written", "torch.compile"


def check_can_race() -> None:
    """Raises DeviceError where there is no GPU."""
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
    compile: Callable[[nn.Module], Callable[..., Any]] = torch.compile,
) -> Beside:
    """How `written(module, *inputs)` fares, forward and, where anything takes a gradient, with it. Both work with
    copies of the module, whose buffers they may change; random numbers go on as if nothing had been called. Takes what
    torch.compile takes to compile, and seconds. Raises whatever torch.compile or a call raises.
    """
    own, plain = copy.deepcopy(module), copy.deepcopy(module)
    compiled = compile(plain)
    contestants = {
        WRITTEN: (lambda: written(own, *inputs), _takers(own, inputs)),
        COMPILED: (lambda: compiled(*inputs), _takers(plain, inputs)),
    }
    on_gpu = torch.cuda.is_available()
    with torch.random.fork_rng([torch.cuda.current_device()] if on_gpu else []):
        forward = {name: _without_gradients(call) for name, (call, _) in contestants.items()}
        both = {name: _with_gradients(call, takers) for name, (call, takers) in contestants.items()}
        ratio = _ratio(time(forward))
        trained = _ratio(time(both)) if contestants[WRITTEN][1] else None
    return Beside(torch.cuda.get_device_name() if on_gpu else "this machine", ratio, trained)


def _ratio(ms: Mapping[str, float]) -> float:
    return ms[COMPILED] / ms[WRITTEN]


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
