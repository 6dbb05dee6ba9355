"""Random modules of several steps, written and run on the emulator, beside PyTorch in float64, gradients included."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import pytest
import torch
from random_graphs import ALL, STOPPING, Graph, Net, drawn
from torch import nn

import crucible
from crucible import tf32
from support import NIGHTLY, some

pytestmark = pytest.mark.usefixtures("no_faults")
NOISE = 30
"""Times what PyTorch is off in the same dtype."""
GRAPHS = drawn(24, seed=5)
"""Among them norms of norms, of which one kernel lost a gradient."""
FLAT = [graph for graph in drawn(24) if len(graph.shape) == 4]
"""PyTorch has no average pools of volumes in half types on a CPU."""
FURTHER = drawn(16, families=ALL, ranks=(1, 1, 2, 2, 3))
"""With linear layers, groups, one dim and dims in another order."""

STOPPED = drawn(24, seed=3, families=STOPPING)


@dataclass(frozen=True)
class Batch:
    """Graphs of one module, and how near their results are to be: of each tensor's largest value, and of the graph's,
    as in front of a norm parameters get sums that cancel. A gradient that is left out is a large part of the whole."""

    graphs: list[Graph]
    dtype: torch.dtype = torch.float32
    tf32: bool = False
    near: float = 5e-5
    cancels: float = 1e-5


BATCHES = {
    "fp32": Batch(GRAPHS[:8]),
    "tf32": Batch(GRAPHS[8:16], tf32=True, near=2e-2),
    "more fp32": Batch(GRAPHS[16:]),
    "further fp32": Batch(FURTHER[:8]),
    "further tf32": Batch(FURTHER[8:], tf32=True, near=2e-2),
    "stopped fp32": Batch(STOPPED[:8]),
    "more stopped fp32": Batch(STOPPED[8:]),
    "bf16": Batch(FLAT[:8], torch.bfloat16, near=0.2, cancels=4e-2),
}
AT_NIGHT = {"more fp32", "more stopped fp32", "further fp32", "further tf32"}
"""Half of a batch of float32 is run always, a quarter of one of each other precision."""


def results(module: nn.Module, net: Net, of: torch.dtype, computed: torch.dtype) -> list[list[torch.Tensor | None]]:
    """Of each graph both outputs, the gradient of its input and those of its parameters: of tensors of one dtype,
    `computed` in another."""
    inputs = [x.to(of).to(computed).requires_grad_() for x in net.inputs()]
    outputs, found = module(*inputs), []
    torch.manual_seed(1)
    for number, x in enumerate(inputs):
        own = outputs[2 * number : 2 * number + 2]
        wanted = [x, *(p for name, p in module.named_parameters() if name.startswith(f"of_graphs.{number}."))]
        cotangents = [torch.randn(each.shape).to(of).to(computed) for each in own]
        pairs = [pair for pair in zip(own, cotangents, strict=True) if pair[0].requires_grad]
        gradients: list[torch.Tensor | None] = [None] * len(wanted)
        if pairs:
            learning, given = zip(*pairs, strict=True)
            gradients = [*torch.autograd.grad(learning, wanted, given, retain_graph=True, allow_unused=True)]
        found.append([*own, *gradients])
    return found


def off(found: torch.Tensor | None, right: torch.Tensor | None) -> tuple[float, float]:
    """By how much, and the largest value. No gradient is one of zeros."""
    if found is None or right is None:
        given = found if right is None else right
        return (0.0, 0.0) if given is None else (float(given.detach().abs().max()), 0.0)
    assert found.shape == right.shape
    return float((found.double() - right).detach().abs().max()), float(right.detach().abs().max())


@pytest.mark.parametrize("name", [name for name in BATCHES if NIGHTLY or name not in AT_NIGHT])
def test_written_modules_compute_what_the_module_does(name: str) -> None:
    batch = BATCHES[name]
    dtype = batch.dtype
    graphs = some(batch.graphs, 2 if name in ("fp32", "stopped fp32") else 4)
    net = Net(graphs).to(dtype)
    with tf32.allowed(batch.tf32, batch.tf32):
        fused = crucible.fuse(net, *(x.to(dtype) for x in net.inputs()), emulate=True)
    ours, theirs = results(fused, net, dtype, dtype), results(net, net, dtype, dtype)
    right = results(copy.deepcopy(net).double(), net, dtype, torch.float64)
    wrong = []
    for graph, *values in zip(graphs, ours, theirs, right, strict=True):
        ours_off, theirs_off = ([off(*each) for each in zip(each_of, values[2], strict=True)] for each_of in values[:2])
        largest = max(size for _, size in ours_off)
        for number, ((error, size), (noise, _)) in enumerate(zip(ours_off, theirs_off, strict=True)):
            if not error <= batch.near * size + NOISE * noise + batch.cancels * largest:
                wrong.append(f"{number} of {graph}: off by {error:.2g} of {size:.2g}, PyTorch by {noise:.2g}")
    assert not wrong, "\n".join(wrong)
