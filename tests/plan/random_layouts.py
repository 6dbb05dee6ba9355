"""Random graphs of views, permutes, chunks, slices, calls of PyTorch and kernels, with several results that may share
memory; as many as asked for, by hand. Of plans whose products are kernels, the gradients are the emulator's:

    PYTHONPATH=src:tests/plan python tests/plan/random_layouts.py 300          of today; or with a seed behind it
"""

from __future__ import annotations

import copy
import datetime
import random
import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
from interpret import run
from torch import nn

import crucible
from crucible import tf32
from crucible.algebra.program import Program
from crucible.capture import trace
from crucible.emission.file import emit
from crucible.plan.planner import fuse
from crucible.plan.steps import Call, Plan
from crucible.trial import check_runs

NEAR = 1e-9
ROUNDED = 5e-5
"""Of a tensor's largest value; kernels of float32 may be off by so much, and by some times what PyTorch is."""
NOISE = 30
CANCELS = 1e-5
"""Of the largest value of all."""
Step = Callable[[torch.Tensor], torch.Tensor]
MOST = 4096
"""Elements of a value."""


class Net(nn.Module):
    """Steps drawn by a seed, the same in each call."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        chance = random.Random(seed)
        self.shape = tuple(chance.choice((2, 3, 4, 6)) for _ in range(chance.choice((2, 3, 3, 4))))
        self.steps = chance.randint(5, 12)
        self.weights = nn.ParameterDict(
            {
                str(n): nn.Parameter(torch.randn(n, n, generator=torch.Generator().manual_seed(n)) / n)
                for n in (2, 3, 4, 6)
            }
        )

    def input(self) -> torch.Tensor:
        return torch.randn(self.shape, generator=torch.Generator().manual_seed(self.seed))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        chance = random.Random(self.seed + 1)
        values = [x]
        for _ in range(self.steps):
            value = values[-1 - min(chance.choice((0, 0, 0, 1, 2)), len(values) - 1)]
            values.append(self._step(chance, value, values))
        others = [chance.choice(values[1:]) for _ in range(chance.choice((0, 1, 2)))]
        return (values[-1], *others)

    def _step(self, chance: random.Random, x: torch.Tensor, values: list[torch.Tensor]) -> torch.Tensor:
        kind = chance.choice(("view", "view", "call", "kernel", "kernel", "join"))
        if kind == "view":
            return _seen(chance, x)
        if kind == "call":
            return self._called(chance, x, values)
        if kind == "join":
            like = [each for each in values if each.shape == x.shape]
            other = chance.choice(like)
            return chance.choice((torch.add, torch.mul, torch.sub))(x, other)
        return _computed(chance, x)

    def _called(self, chance: random.Random, x: torch.Tensor, values: list[torch.Tensor]) -> torch.Tensor:
        dim = chance.randrange(x.dim())
        like = [each for each in values if each.shape == x.shape]
        if str(x.shape[-1]) in self.weights and chance.random() < 0.4:
            return F.linear(x, self.weights[str(x.shape[-1])])
        if 2 * x.numel() <= MOST and chance.random() < 0.3:
            return torch.cat([x, chance.choice(like)], dim)
        return (
            chance.choice(
                (lambda: x.cumsum(dim), lambda: x.roll(1, dim), lambda: x.flip(dim), lambda: x @ x.transpose(-1, -2))
            )()
            if x.dim() > 1
            else x.cumsum(0)
        )


def _seen(chance: random.Random, x: torch.Tensor) -> torch.Tensor:
    dim = chance.randrange(x.dim())
    size = x.shape[dim]
    ways: list[Callable[[], torch.Tensor]] = [
        lambda: x.transpose(dim, chance.randrange(x.dim())),
        lambda: x.permute(chance.sample(range(x.dim()), x.dim())),
        lambda: x.narrow(dim, size // 3, size - size // 3),
        lambda: x.unsqueeze(dim),
        lambda: x.contiguous(),
        lambda: chance.choice(x.chunk(2, dim)),
    ]
    if x.dim() > 1:
        ways += [lambda: x.flatten(0, 1), lambda: x.select(dim, size - 1), lambda: chance.choice(x.unbind(dim))]
        ways += [lambda: x.contiguous().view(x.shape[1], x.shape[0], *x.shape[2:])]
        ways += [lambda: chance.choice(x.split(max(1, size // 2), dim))]
    if 2 * x.numel() <= MOST:
        ways.append(lambda: x.unsqueeze(dim).expand(*x.shape[:dim], 2, *x.shape[dim:]))
    if size % 2 == 0:
        ways.append(lambda: x.reshape(*x.shape[:dim], 2, size // 2, *x.shape[dim + 1 :]))
        ways.append(lambda: x[(slice(None),) * dim + (slice(None, None, 2),)])
    return chance.choice(ways)()


def _computed(chance: random.Random, x: torch.Tensor) -> torch.Tensor:
    dim = chance.randrange(x.dim())
    return chance.choice(
        (
            lambda: torch.tanh(x),
            lambda: x.sigmoid() * 2,
            lambda: F.gelu(x),
            lambda: x.clone().mul_(0.5).add_(1),
            lambda: F.softmax(x, dim),
            lambda: F.layer_norm(x, x.shape[-1:]),
            lambda: x - x.mean(dim, keepdim=True),
            lambda: x * x.sum(dim, keepdim=True),
        )
    )()


def faults(seed: int) -> str:
    """What is wrong with one graph's plan and file: values, gradients, strides, or that it raises; empty if nothing."""
    net, words = Net(seed), []
    x = net.input()
    plan = fuse(trace(net, [x], drops=True))
    made = check_runs(emit(plan, "net"), net, [x])
    eager = net(x)
    for place, (ours, theirs) in enumerate(zip(made, eager, strict=True)):
        real = [d for d, n in enumerate(theirs.shape) if n > 1]
        if [ours.stride(d) for d in real] != [theirs.stride(d) for d in real]:
            words.append(f"output {place} has strides {ours.stride()}, eager {theirs.stride()}")
    sides = [_results(net, plan, ours=ours) for ours in (True, False)]
    flows = all(isinstance(step, Call) or isinstance(step.compute, Program) for step in plan.steps)
    for place, (one, other) in enumerate(zip(*sides, strict=True)):
        error = float((one - other).abs().max())
        if (flows or place < len(eager)) and not error <= NEAR * max(1.0, float(other.abs().max())):
            words.append(f"result {place}: off by {error:.2g}")
    return "; ".join(words if flows else [*words, *_by_kernels(net)])


def _results(net: Net, plan: Plan, *, ours: bool) -> list[torch.Tensor]:
    """Outputs and gradients in float64, by the plan or by PyTorch."""
    exact = copy.deepcopy(net).double()
    x = net.input().double().requires_grad_()
    if not ours:
        return _grown(exact, x, list(exact(x)))
    graph = plan.asked or plan.graph
    weights = dict(exact.named_parameters())
    tensors = {graph.inputs[0].name: x, **{p.value.name: weights[p.names[0]] for p in graph.parameters}}
    tensors |= {c.value.name: c.tensor for c in graph.constants}
    return _grown(exact, x, run(plan, tensors))


def _by_kernels(net: Net) -> list[str]:
    """What is wrong with outputs and gradients of the written file, run on the emulator in float32."""
    with tf32.allowed(False, False):
        fused = crucible.fuse(net, net.input(), emulate=True)
    ours, theirs = (_grown(each, x := net.input().requires_grad_(), list(each(x))) for each in (fused, net))
    exact, x = copy.deepcopy(net).double(), net.input().double().requires_grad_()
    right = _grown(exact, x, list(exact(x)))
    largest, words = max(float(each.abs().max()) for each in right), []
    for place, (one, noisy, other) in enumerate(zip(ours, theirs, right, strict=True)):
        error, noise = (float((each.double() - other).abs().max()) for each in (one, noisy))
        if not error <= ROUNDED * float(other.abs().max()) + NOISE * noise + CANCELS * largest:
            words.append(f"kernels' result {place}: off by {error:.2g}")
    return words


def _grown(module: nn.Module, x: torch.Tensor, outputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The outputs, and their gradients for the input and each parameter, zeros where there are none."""
    wanted = [x, *module.parameters()]
    grown = [each for each in outputs if each.requires_grad]
    ends = [torch.cos(torch.arange(each.numel(), dtype=each.dtype)).view(each.shape) for each in grown]
    found = torch.autograd.grad(grown, wanted, ends, allow_unused=True)
    zeros = [torch.zeros_like(each) if g is None else g for g, each in zip(found, wanted, strict=True)]
    return [each.detach() for each in (*outputs, *zeros)]


def main() -> None:
    count = int(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else datetime.date.today().toordinal()
    wrong = 0
    for place in range(count):
        number = seed * 1000 + place
        try:
            found = faults(number)
        except Exception as error:  # noqa: BLE001 - one that raises is a result
            found = f"raises {type(error).__name__}: {error}"
        if found:
            wrong += 1
            print(f"{number}: {found[:300]}", flush=True)
    print(f"{count} graphs from {seed * 1000} on, {wrong} wrong")


if __name__ == "__main__":
    main()
