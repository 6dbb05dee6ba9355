"""Random modules of several steps, written and run on the emulator, beside PyTorch in float64, gradients included."""

from __future__ import annotations

import copy

import pytest
import torch
from random_graphs import Net, drawn
from torch import nn

import crucible

pytestmark = pytest.mark.usefixtures("no_faults")
COUNT, TOGETHER = 24, 8
EXACT, TF32 = 5e-5, 2e-2
"""Of the largest value, where float32 stays what it is and where convolutions round it: a gradient that is left out is
a large part of the whole."""
NOISE, CANCELS = 30, 1e-5
"""Times what PyTorch is off in float32, and of the graph's largest value: in front of a norm parameters get sums that
cancel."""
GRAPHS = drawn(COUNT, seed=5)
"""Among them norms of norms, of which one kernel lost a gradient."""


def results(module: nn.Module, net: Net, dtype: torch.dtype) -> list[list[torch.Tensor | None]]:
    """Of each graph both outputs, the gradient of its input and those of its parameters."""
    inputs = [x.to(dtype).requires_grad_() for x in net.inputs()]
    outputs, found = module(*inputs), []
    torch.manual_seed(1)
    for number, x in enumerate(inputs):
        own = outputs[2 * number : 2 * number + 2]
        wanted = [x, *(p for name, p in module.named_parameters() if name.startswith(f"of_graphs.{number}."))]
        cotangents = [torch.randn(each.shape).to(dtype) for each in own]
        gradients = torch.autograd.grad(own, wanted, cotangents, retain_graph=True, allow_unused=True)
        found.append([*own, *gradients])
    return found


def off(found: torch.Tensor | None, right: torch.Tensor | None) -> tuple[float, float]:
    """By how much, and the largest value. No gradient is one of zeros."""
    if found is None or right is None:
        given = found if right is None else right
        return (0.0, 0.0) if given is None else (float(given.detach().abs().max()), 0.0)
    assert found.shape == right.shape
    return float((found.double() - right).detach().abs().max()), float(right.detach().abs().max())


@pytest.mark.parametrize(("first", "exact"), [(0, True), (TOGETHER, False), (2 * TOGETHER, True)])
def test_written_modules_compute_what_the_module_does(first: int, exact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", not exact)
    net = Net(GRAPHS[first : first + TOGETHER])
    fused = crucible.fuse(net, *net.inputs(), emulate=True)
    ours, theirs = results(fused, net, torch.float32), results(net, net, torch.float32)
    right = results(copy.deepcopy(net).double(), net, torch.float64)
    wrong = []
    for graph, *values in zip(net.graphs, ours, theirs, right, strict=True):
        ours_off, theirs_off = ([off(*each) for each in zip(some, values[2], strict=True)] for some in values[:2])
        largest = max(size for _, size in ours_off)
        for number, ((error, size), (noise, _)) in enumerate(zip(ours_off, theirs_off, strict=True)):
            if not error <= (EXACT if exact else TF32) * size + NOISE * noise + CANCELS * largest:
                wrong.append(f"{number} of {graph}: off by {error:.2g} of {size:.2g}, PyTorch by {noise:.2g}")
    assert not wrong
