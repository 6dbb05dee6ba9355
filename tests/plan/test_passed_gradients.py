"""Gradients that are another tensor, element by element, are that tensor: no kernel writes them again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from interpret import check
from torch import nn

import crucible
from crucible.plan.steps import Fused

pytestmark = pytest.mark.usefixtures("no_faults")


class Wrapped(nn.Module):
    """A function of two inputs with a scale, a bias and the weight of a convolution."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        self.bias, self.scale = nn.Parameter(torch.randn(12)), nn.Parameter(torch.rand(12) + 0.5)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.function(self, x, y)


CASES: dict[str, tuple[Callable[..., torch.Tensor], dict[str, str], int]] = {
    "a sum": (lambda m, x, y: x + y, {"x": "out", "y": "out"}, 0),
    "a sum with a bias": (lambda m, x, y: x + m.bias + y, {"x": "out", "y": "out"}, 1),
    "a difference": (lambda m, x, y: x - y, {"x": "out"}, 1),
    "a sum, scaled": (lambda m, x, y: (x + y) * m.scale, {"y": "x"}, 2),
    "a norm of a sum": (lambda m, x, y: F.layer_norm(x + y, (12,), m.scale, m.bias), {"y": "x"}, 3),
    "a function of a sum": (lambda m, x, y: torch.tanh(x + y), {"y": "x"}, 1),
    "other shapes": (lambda m, x, y: x.reshape(3, 4, 12) + y.reshape(3, 4, 12), {"x": "out", "y": "out"}, 0),
    "one tensor twice": (lambda m, x, y: x + (x + y), {"y": "out"}, 1),
    "one transposed": (lambda m, x, y: x.reshape(12, 12) + y.reshape(12, 12).T, {"x": "out"}, 1),
    "one repeated": (lambda m, x, y: x + y[:1], {"x": "out"}, 1),
}
"""Forward; whose gradient is whose, by the tensors' names, `out` being the result's; and how many backward writes."""


@pytest.mark.parametrize("name", CASES)
def test_a_gradient_that_is_another_is_passed_on(name: str) -> None:
    function, passed, made = CASES[name]
    module, given = Wrapped(function), [torch.randn(12, 12), torch.randn(12, 12)]
    (step,) = [each for each in check(module, *given, unused=True).steps if isinstance(each, Fused)]
    names = {f"grad_{operand}": held for operand, held in step.operands.items()} | {f"grad_{step.result}": "out"}
    assert {step.operands[each]: names[other] for each, other in step.passed.items()} == passed
    assert step.backward is not None and len(step.backward.results) == made


@pytest.mark.parametrize("name", ["a norm of a sum", "other shapes"])
def test_kernels_pass_them_on_however_they_lie(name: str) -> None:
    """What comes back through a sum is one element, seen everywhere."""
    module, given = Wrapped(CASES[name][0]), [torch.randn(12, 12), torch.randn(12, 12)]
    fused = crucible.fuse(module, *given, emulate=True)
    for contiguous in (True, False):
        found = [_gradients(each, given, contiguous=contiguous) for each in (fused, module)]
        for own, eager in zip(*found, strict=True):
            torch.testing.assert_close(own, eager, rtol=1e-4, atol=1e-4)


def _gradients(module: nn.Module, given: list[torch.Tensor], *, contiguous: bool) -> list[torch.Tensor]:
    leaves = [each.clone().requires_grad_() for each in given]
    out = module(*leaves)
    cotangent = torch.linspace(-1, 1, out.numel()).view(out.shape) if contiguous else torch.ones(()).expand(out.shape)
    wanted: list[Any] = [*leaves, *module.parameters()]
    return [each for each in torch.autograd.grad(out, wanted, cotangent, allow_unused=True) if each is not None]


def test_leaves_keep_tensors_of_their_own_and_gradients_of_gradients_go_through() -> None:
    """Both terms get one tensor, as in eager: who changes the gradient of one changes no other."""
    module, (x, y) = Wrapped(lambda m, x, y: x + y), (torch.randn(3, 12, requires_grad=True) for _ in range(2))
    fused = crucible.fuse(module, x, y, emulate=True)
    fused(x, y).backward(torch.ones(3, 12))
    assert x.grad is not None and y.grad is not None
    x.grad.zero_()
    assert torch.equal(y.grad, torch.ones(3, 12))
    cotangent = torch.randn(3, 12, requires_grad=True)
    (gradient,) = torch.autograd.grad(fused(x, y), x, cotangent, create_graph=True)
    (second,) = torch.autograd.grad(gradient.square().sum(), cotangent)
    torch.testing.assert_close(second, 2 * cotangent.detach())
