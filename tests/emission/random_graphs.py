"""Random modules: steps that read any of the values before them, so that tensors have several readers."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.1),
    "gelu": F.gelu,
    "clamp": lambda x: x.clamp(-0.7, 1.1),
    "silu": F.silu,
}
BINARY: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "ratio": lambda x, y: x / (1 + y * y),
    "spread mean": lambda x, y: x * y.mean(tuple(range(2, y.dim())), keepdim=True),
}
OVER: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "softmax over space": lambda x: F.softmax(x.flatten(2), -1).view(x.shape),
    "softmax over channels": lambda x: F.softmax(x, 1),
    "layer norm": lambda x: F.layer_norm(x, x.shape[2:]),
    "batch norm": lambda x: F.batch_norm(x, None, None, training=True),
    "logsumexp": lambda x: x - 0.5 * torch.logsumexp(x, 1, keepdim=True),
}
POOLS = ("avg 2 2", "max 2 2", "avg 3 1", "max 3 1")
CONVOLUTIONS = ("conv 1", "conv 3", "conv 3 s2", "transposed 1", "transposed 2")
FAMILIES = (tuple(UNARY), tuple(BINARY), tuple(OVER), POOLS, CONVOLUTIONS, ("scale", "shift", "gate"))
LAYERS = ("linear", "linear over channels", "conv 3 two groups", "conv 3 depthwise", "transposed 2 two groups", "turn")
ALL = (*FAMILIES, LAYERS, LAYERS)
STOPS = ("detach", "gate without gradients", "part written", "mean written", "detached weight")
STOPPING = (*FAMILIES, STOPS, STOPS)
"""With values that take no gradient, and writes to parts of others."""
Step = tuple[str, int, int]
"""What it does, and which values it reads: how far back the first is, modulo how many there are; which the second is of
those that have its shape, or which parameter of those that have the shape (or a new one)."""


@dataclass(frozen=True)
class Graph:
    """Of one input; the last value and one more are its outputs."""

    shape: tuple[int, ...]
    steps: tuple[Step, ...]
    other: int
    """Which value is an output as well, counted from the last."""


class Net(nn.Module):
    """Graphs side by side, each of an input of its own, so that one extension has the kernels of all."""

    def __init__(self, graphs: Sequence[Graph]) -> None:
        super().__init__()
        self.graphs = graphs
        self.of_graphs = nn.ModuleList(nn.ParameterList() for _ in graphs)
        self.forward(*self.inputs())  # it makes the parameters

    def inputs(self) -> list[torch.Tensor]:
        chance = torch.Generator().manual_seed(1)
        return [torch.randn(graph.shape, generator=chance) for graph in self.graphs]

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = [self._run(number, x) for number, x in enumerate(inputs)]
        return tuple(value for outputs in found for value in outputs)

    def _run(self, number: int, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Both outputs of one graph."""
        graph, values, made = self.graphs[number], [x], [0]
        for kind, first, second in graph.steps:
            value = values[-1 - first % len(values)]
            like = [each for each in values if each.shape == value.shape]
            weight = lambda *shape, second=second: self._parameter(number, made, second, shape)  # noqa: E731
            values.append(_step(kind, value, like[-1 - second % len(like)], weight))
        other = values[-1 - graph.other % len(values)]
        return values[-1], other.clone() if other is x or other is values[-1] else other

    def _parameter(self, number: int, made: list[int], second: int, shape: tuple[int, ...]) -> torch.Tensor:
        """One of the graph's that has the shape, of those that steps before this one read, or the next."""
        known = self.of_graphs[number]
        fitting = [p for p in list(known)[: made[0]] if tuple(p.shape) == shape]
        if fitting and second % 3:
            return fitting[second % len(fitting)]
        made[0] += 1
        if made[0] > len(known):
            share = 1 / math.sqrt(math.prod(shape[1:])) if len(shape) > 3 else 1.0
            drawing = torch.Generator().manual_seed(made[0])
            known.append(nn.Parameter(share * torch.randn(shape, generator=drawing)))
        return known[made[0] - 1]


def _step(kind: str, x: torch.Tensor, like: torch.Tensor, weight: Callable[..., torch.Tensor]) -> torch.Tensor:
    rank, channels = x.dim() - 2, x.shape[1]
    if kind in UNARY:
        return UNARY[kind](x)
    if kind in BINARY:
        return BINARY[kind](x, like)
    if kind in OVER:
        return OVER[kind](x)
    if kind in ("scale", "shift", "gate"):
        shape = (channels, *(1,) * rank) if kind != "gate" else (1,)
        return x + weight(*shape) if kind == "shift" else x * weight(*shape)
    if kind in POOLS:
        how, size, stride = kind.split()
        if min(x.shape[2:]) < (4 if stride == "2" else 3):
            return x * 0.5
        return getattr(F, f"{how}_pool{rank}d")(x, int(size), int(stride), int(size) // 2 if stride == "1" else 0)
    if kind in STOPS:
        return _stopped(kind, x, like, weight)
    if kind == "turn":
        return x.transpose(1, 2)
    if kind.startswith("linear"):
        at = 1 if kind.endswith("channels") else -1
        features = x.shape[at]
        return F.linear(x.movedim(at, -1), weight(features, features), weight(features)).movedim(-1, at)
    return _convolved(kind.split(), x, weight)


def _stopped(kind: str, x: torch.Tensor, like: torch.Tensor, weight: Callable[..., torch.Tensor]) -> torch.Tensor:
    if kind == "detach":
        return x.detach()
    if kind == "gate without gradients":
        with torch.no_grad():
            gate = torch.sigmoid(like * weight(1))
        return x * gate
    if kind == "detached weight":
        return _convolved(
            ["conv", "3"], x, lambda *shape: weight(*shape).detach() if len(shape) > 1 else weight(*shape)
        )
    y = x * 1.5
    if kind == "mean written":
        y[:, 0] = like[:, -1].mean(-1, keepdim=True)
    else:
        y[..., 1:] += like[..., :-1]
    return y


def _convolved(words: list[str], x: torch.Tensor, weight: Callable[..., torch.Tensor]) -> torch.Tensor:
    rank, channels = x.dim() - 2, x.shape[1]
    groups = channels if "depthwise" in words else 2 if "groups" in words and channels % 2 == 0 else 1
    if words[0] == "transposed":
        if words[1] == "2" and max(x.shape[2:]) > 9:
            return x * 0.5
        stride = int(words[1])
        taps, more = weight(channels, channels // groups, *(3,) * rank), stride - 1
        return getattr(F, f"conv_transpose{rank}d")(x, taps, None, stride, 1, more, groups)
    size = int(words[1])
    stride = 2 if words[-1] == "s2" and min(x.shape[2:]) > 3 else 1
    bias, taps = weight(channels), weight(channels, channels // groups, *(size,) * rank)
    return getattr(F, f"conv{rank}d")(x, taps, bias, stride, size // 2, groups=groups)


def drawn(
    count: int, seed: int = 0, families: Sequence[Sequence[str]] = FAMILIES, ranks: Sequence[int] = (2, 2, 3)
) -> list[Graph]:
    """The same each time. By hypothesis half of them would be like the ones before, with a step changed."""
    chance = random.Random(seed)
    return [_drawn(chance, families, ranks) for _ in range(count)]


def _drawn(chance: random.Random, families: Sequence[Sequence[str]], ranks: Sequence[int]) -> Graph:
    rank = chance.choice(ranks)
    space = [chance.randint(4, {1: 40, 2: 12, 3: 7}[rank]) for _ in range(rank)]
    steps = [
        (chance.choice(chance.choice(families)), chance.choice((0, 0, 0, 1, 1, 2, 3, 5)), chance.randint(0, 5))
        for _ in range(chance.randint(3, 8))
    ]
    return Graph((chance.randint(1, 3), chance.choice((1, 2, 4, 8)), *space), tuple(steps), chance.randint(0, 8))
