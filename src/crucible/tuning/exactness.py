"""How far what several compute for a module lies from float64: whoever rounds more than eager PyTorch is no rival.

torch.compile's max-autotune was the fastest at a scan's gradients, and 5.7 times as far from float64 as eager.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from crucible import tf32
from crucible.capture.autocast import around, autocast
from crucible.copies import duplicate
from crucible.products import tensors_in

TIMES = 4.5
"""As large as eager's an error may be, which is one of the same roundings in another order: a tenth less than the five
times that `benchmarks/kernelbench.py` calls right, as its inputs and cotangents are others. At three, max-autotune of
a BERT (4.0) was left out, and its gradients were 5 % faster than what was written."""
_HALF = frozenset({torch.float16, torch.bfloat16})
_CHUNK = 1 << 26
"""Elements that are taken to float64 at once."""
_Tensors = Sequence[torch.Tensor | None]


@dataclass(frozen=True)
class Contestant:
    """Who computes a module's outputs."""

    call: Callable[[], Any]
    takers: Sequence[torch.Tensor]
    """What takes a gradient."""

    @classmethod
    def eager(cls, module: nn.Module, inputs: Sequence[Any]) -> Contestant:
        """A copy of a module as it is."""
        return cls.of(copied := duplicate(module), lambda: copied(*inputs), inputs)

    @classmethod
    def of(cls, module: nn.Module, call: Callable[[], Any], inputs: Sequence[Any]) -> Contestant:
        """A call that works with a module."""
        given = [each for each in inputs if isinstance(each, torch.Tensor)]
        return cls(call, [each for each in (*given, *module.parameters()) if each.requires_grad])


@dataclass(frozen=True)
class Errors:
    """The largest relative L2 errors of a contestant."""

    forward: float
    """Of the outputs of a call without gradients."""
    outputs: float
    """Of those of a call with gradients."""
    gradients: float

    def of(self, *, with_gradients: bool) -> dict[str, float]:
        """By what it is that is wrong."""
        return {"outputs": self.outputs, "gradients": self.gradients} if with_gradients else {"outputs": self.forward}


class Yardstick:
    """A module's results in float64, and how far eager's are from them."""

    @classmethod
    def of(cls, module: nn.Module, inputs: Sequence[Any]) -> Yardstick | None:
        """None of a module that draws random numbers, which are others for each contestant. Calls copies, forward and
        backward, and raises what they raise."""
        before = _random_state(inputs)
        with torch.no_grad():
            least = _least(_floating(Contestant.eager(module, inputs).call()))
        return cls(module, inputs, least) if before == _random_state(inputs) else None

    def __init__(self, module: nn.Module, inputs: Sequence[Any], least: float) -> None:
        """`least` is an error that is right whatever eager's is."""
        self._cotangents: list[torch.Tensor] = []
        self._truth, self._least = self._true(module, inputs), least
        self._eager = self.errors(Contestant.eager(module, inputs))

    def _true(self, module: nn.Module, inputs: Sequence[Any]) -> tuple[_Tensors, ...]:
        """In strict float32 where memory does not allow float64, or an operation refuses it beside a float32 that the
        module makes."""
        with autocast({}), tf32.allowed(False, False):
            with contextlib.suppress(RuntimeError):  # behind it nothing holds the memory that was taken
                return self._exact(torch.float64, module, inputs)
            return self._exact(torch.float32, module, inputs)

    def _exact(self, dtype: torch.dtype, module: nn.Module, inputs: Sequence[Any]) -> tuple[_Tensors, ...]:
        exact, given = duplicate(module).to(dtype), [_to(dtype, each) for each in inputs]
        return self._results(Contestant.of(exact, lambda: exact(*given), given))

    def errors(self, contestant: Contestant) -> Errors:
        """Of one whose module was not called yet. Raises what it raises."""
        return Errors(*map(apart, self._results(contestant), self._truth))

    def excess(self, errors: Errors, own: Errors, *, with_gradients: bool) -> str:
        """What is less exact than eager allows, and than ours is, in words; nothing where nothing is."""
        eager, ours = (each.of(with_gradients=with_gradients) for each in (self._eager, own))
        for what, error in errors.of(with_gradients=with_gradients).items():
            if not error <= max(TIMES * eager[what], ours[what], self._least):
                return f"its {what} are {error:.1e} from float64 (eager's {eager[what]:.1e}, ours {ours[what]:.1e})"
        return ""

    def _results(self, contestant: Contestant) -> tuple[_Tensors, ...]:
        """Outputs without gradients, outputs with gradients, gradients."""
        with torch.no_grad():
            forward = _floating(contestant.call())
        if not contestant.takers:
            return forward, [], []
        with torch.enable_grad():
            outputs = _floating(contestant.call())
            return forward, [each.detach() for each in outputs], self._gradients(outputs, contestant.takers)

    def _gradients(self, outputs: Sequence[torch.Tensor], takers: Sequence[torch.Tensor]) -> _Tensors:
        """Of random cotangents, the same for all: of ones a norm's gradients are roundings of 0."""
        if outputs and not self._cotangents:
            generator = torch.Generator(outputs[0].device).manual_seed(0)
            drawn = (torch.randn(each.shape, generator=generator, device=each.device) for each in outputs)
            self._cotangents.extend(drawn)
        pairs = [pair for pair in zip(outputs, self._cotangents, strict=True) if pair[0].requires_grad]
        learning, given = [each for each, _ in pairs], [one.to(each.dtype) for each, one in pairs]
        return torch.autograd.grad(learning, takers, given, allow_unused=True) if pairs else [None] * len(takers)


def apart(found: _Tensors, truth: _Tensors) -> float:
    """The largest relative L2 error; infinite where one is missing or not a number. Of what is nearly 0 (a bias before
    a norm: its gradient is the roundings of 0) the error is taken of the largest norm, a ten-thousandth."""
    norms = [0.0 if each is None else distance(each, None) for each in truth]
    worst, least = 0.0, 1e-4 * max(norms, default=0.0)
    for one, other, norm in zip(found, truth, norms, strict=True):
        if other is None or one is None:
            missing = (one is None) != (other is None)
            worst = math.inf if missing and norm > least else worst
            continue
        error = distance(one, other) / (max(norm, least) or 1.0)
        worst = max(worst, error if error == error else math.inf)
    return worst


def distance(one: torch.Tensor, other: torch.Tensor | None) -> float:
    """The L2 norm of a tensor, or of a difference, in float64."""
    left = one.detach().reshape(-1).split(_CHUNK)
    right = [0.0] * len(left) if other is None else other.detach().reshape(-1).split(_CHUNK)
    return math.sqrt(math.fsum(float((a.double() - b).square().sum()) for a, b in zip(left, right, strict=True)))


def _floating(outputs: Any) -> list[torch.Tensor]:
    return [each for each in tensors_in(outputs) if each.is_floating_point()]


def _to(dtype: torch.dtype, given: Any) -> Any:
    if not isinstance(given, torch.Tensor) or not given.is_floating_point():
        return given
    return given.detach().to(dtype, copy=True).requires_grad_(given.requires_grad)


def _least(outputs: Sequence[torch.Tensor]) -> float:
    """A relative error that is right whatever eager's is: it rounds to TF32 as its libraries choose, and where they
    choose not to others may."""
    if {each.dtype for each in outputs} & _HALF or around():
        return 3e-2
    return 2e-3 if tf32.in_products() or tf32.in_convolutions() else 2e-5


def _random_state(inputs: Sequence[Any]) -> list[bytes]:
    on_gpu = [each.device for each in inputs if isinstance(each, torch.Tensor) and each.is_cuda]
    states = [torch.random.get_rng_state(), *(torch.cuda.get_rng_state(each) for each in on_gpu)]
    return [each.numpy().tobytes() for each in states]
