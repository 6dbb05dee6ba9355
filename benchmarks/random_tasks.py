"""Tasks drawn at random by the grammar of KernelBench's level 2: one product (a convolution in two or three dims, a
transposed one, a linear layer) and two to six operations behind it, at odd sizes.

    python benchmarks/random_tasks.py FOLDER [--count 200] [--seed 20261124] [--scale full|small]

FOLDER/level2 is a checkout for `benchmarks/kernelbench.py`, which holds each against float64 and times it. The same
seed gives the same tasks; `small` is of the same products, at sizes for the emulator.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PRODUCTS = {"Conv2d": 21, "Conv3d": 12, "ConvTranspose2d": 11, "ConvTranspose3d": 19, "Linear": 37}
"""How many of the level's hundred begin with each."""
MOST_ELEMENTS = 1 << 27
"""Of the product's result: half a gigabyte."""
MOST_FLOPS = 6e11
LEAST_SPACE = 4
"""That is pooled."""
ACTIVATIONS = {
    "ReLU": "torch.relu(x)",
    "LeakyReLU": "F.leaky_relu(x, 0.2)",
    "GELU": "F.gelu(x)",
    "Swish": "torch.sigmoid(x) * x",
    "Mish": "F.mish(x)",
    "Tanh": "torch.tanh(x)",
    "Sigmoid": "torch.sigmoid(x)",
    "HardSwish": "F.hardswish(x)",
    "Hardtanh": "F.hardtanh(x, -1.5, 0.7)",
    "Softplus": "F.softplus(x)",
    "ELU": "F.elu(x)",
}
SCALARS = {
    "Scale": "x * {n}",
    "Divide": "x / {n}",
    "Subtract": "x - {n}",
    "Add": "x + {n}",
    "Clamp": "torch.clamp(x, -{n}, {n})",
    "Min": "torch.min(x, torch.tensor({n}, device=x.device))",
    "Max": "torch.max(x, torch.tensor(-{n}, device=x.device))",
}
OVER_CHANNELS = {
    "Softmax": "torch.softmax(x, dim=1)",
    "LogSumExp": "torch.logsumexp(x, dim=1, keepdim=True)",
    "ChannelMax": "torch.max(x, dim=1, keepdim=True)[0]",
    "ChannelMin": "torch.min(x, dim=1, keepdim=True).values",
    "ChannelMean": "x.mean(dim=1, keepdim=True)",
    "ChannelSum": "torch.sum(x, dim=1, keepdim=True)",
}


@dataclass
class Draft:
    """A task as far as it is drawn."""

    chance: random.Random
    given: list[int]
    """The input's shape."""
    shape: list[int]
    """Of what there is so far: batch, channels, space."""
    names: list[str]
    built: list[str]
    """Lines of __init__."""
    done: list[str] = field(default_factory=list)
    """Lines of forward."""
    pools: int = 0

    @property
    def space(self) -> list[int]:
        return self.shape[2:]

    @property
    def rank(self) -> int:
        return len(self.shape) - 2

    def add(self, name: str, line: str, built: str = "") -> None:
        self.names.append(name)
        self.done.append(f"x = {line}")
        self.built += [built] if built else []

    def own(self, word: str) -> str:
        """A name of its own for a submodule or parameter."""
        return f"{word}_{len(self.built)}"


def activation(draft: Draft) -> bool:
    name = draft.chance.choice([*ACTIVATIONS])
    draft.add(name, ACTIVATIONS[name])
    return True


def scalar(draft: Draft) -> bool:
    name = draft.chance.choice([*SCALARS])
    draft.add(name, SCALARS[name].format(n=draft.chance.choice((0.1, 0.5, 1.5, 2.0, 3.0))))
    return True


def parameter(draft: Draft) -> bool:
    """A tensor of one number for each channel, or for all."""
    name, sign = draft.chance.choice((("BiasAdd", "+"), ("Multiply", "*"), ("BiasSubtract", "-")))
    own, channels = draft.own("parameter"), draft.chance.choice((draft.shape[1], draft.shape[1], 1))
    shape = (channels, *(1,) * draft.rank)
    draft.add(name, f"x {sign} self.{own}", f"self.{own} = nn.Parameter(torch.randn({shape}))")
    return True


def residual(draft: Draft) -> bool:
    words = {"ResidualAdd": "x + x.clone().detach()", "Double": "x + x", "Square": "x * x"}
    name = draft.chance.choice([*words])
    draft.add(name, words[name])
    return True


def norm(draft: Draft) -> bool:
    channels, several = draft.shape[1], math.prod(draft.space) > 1
    kinds = ["BatchNorm"] * (draft.shape[0] > 1) + ["GroupNorm"] * (channels % 4 == 0 and (several or channels > 4))
    kinds += ["InstanceNorm", "LayerNorm"] * (several and draft.space[-1] > 1)
    if not kinds:
        return False
    name, own, rank = draft.chance.choice(kinds), draft.own("norm"), max(draft.rank, 1)
    groups = draft.chance.choice([g for g in (1, 2, 4) if channels % g == 0 and (several or channels > g)] or [1])
    built = {
        "BatchNorm": f"nn.BatchNorm{rank}d({channels})",
        "GroupNorm": f"nn.GroupNorm({groups}, {channels})",
        "InstanceNorm": f"nn.InstanceNorm{rank}d({channels})",
        "LayerNorm": f"nn.LayerNorm({draft.shape[-1]})",
    }[name]
    draft.add(name, f"self.{own}(x)", f"self.{own} = {built}")
    return True


def pool(draft: Draft) -> bool:
    if draft.rank and draft.chance.random() < 0.3:
        draft.add("GlobalAvgPool", f"F.adaptive_avg_pool{draft.rank}d(x, 1)")
        draft.shape[2:] = [1] * draft.rank
        return True
    if not draft.rank or min(draft.space) < LEAST_SPACE or draft.pools > 1:
        return False
    kind = draft.chance.choice(("max", "avg"))
    size, stride, padding = draft.chance.choice(((2, 2, 0), (2, 2, 0), (3, 2, 1), (3, 1, 1)))
    draft.add(f"{kind.title()}Pool", f"F.{kind}_pool{draft.rank}d(x, {size}, {stride}, {padding})")
    draft.shape[2:] = [(n + 2 * padding - size) // stride + 1 for n in draft.space]
    draft.pools += 1
    return True


def over_channels(draft: Draft) -> bool:
    if draft.shape[1] == 1:
        return False
    name = draft.chance.choice([*OVER_CHANNELS])
    draft.add(name, OVER_CHANNELS[name])
    if name != "Softmax":
        draft.shape[1] = 1
    return True


def over_space(draft: Draft) -> bool:
    if math.prod(draft.space) == 1:
        return False
    dims = tuple(sorted(draft.chance.sample(range(2, len(draft.shape)), draft.chance.randint(1, draft.rank))))
    name, word = draft.chance.choice((("Mean", "mean"), ("Sum", "sum")))
    draft.add(name, f"x.{word}(dim={dims}, keepdim=True)")
    for d in dims:
        draft.shape[d] = 1
    return True


def dropout(draft: Draft) -> bool:
    draft.add("Dropout", "F.dropout(x, 0.2, self.training)")
    return True


STEPS: dict[Callable[[Draft], bool], int] = {
    activation: 8, scalar: 6, parameter: 3, residual: 2, norm: 4, pool: 3, over_channels: 3, over_space: 2, dropout: 1,
}  # fmt: skip
"""How often each is drawn. It says whether it fits the shape."""


def product(kind: str, chance: random.Random, scale: str) -> Draft:
    """A product with its sizes, which are drawn apart: the same kinds, kernels and strides come at any scale."""
    sizes = random.Random(chance.random())
    if kind == "Linear":
        given, made = ([sizes.choice((24, 32, 40, 52)) for _ in range(2)] if scale == "small" else
                       [sizes.choice((1024, 2048, 3000, 4096, 8192)) for _ in range(2)])  # fmt: skip
        batch = 6 if scale == "small" else sizes.choice((128, 1000, 1024, 4096, 16384))
        return _begun(chance, kind, [batch, given], [batch, made], f"{given}, {made}")
    rank, turned = int(kind[-2]), "Transpose" in kind
    kernel, stride = chance.choice((3, 3, 3, 4, 5)), chance.choice((1, 1, 2) if not turned else (1, 2, 2))
    padding = chance.choice((0, 0, 1, kernel // 2))
    more = chance.choice((0, 1)) if turned and stride > 1 else 0
    channels = (3, 4, 8) if scale == "small" else (3, 8, 16, 32, 64)
    outs = (8, 12, 16) if scale == "small" else (16, 24, 32, 64, 64, 96, 128)
    ins, out = sizes.choice(channels), sizes.choice(outs)
    while True:
        batch = 2 if scale == "small" else sizes.choice((8, 16, 32, 64, 128))
        space = [sizes.randint(*_extents(rank, scale)) for _ in range(rank)]
        made = [_length(n, kernel, stride, padding, more, turned=turned) for n in space]
        work = 2 * batch * ins * out * kernel**rank * math.prod(space if turned else made)
        if min(made) >= 1 and batch * out * math.prod(made) <= MOST_ELEMENTS and work <= MOST_FLOPS:
            break
    words = f"{ins}, {out}, {kernel}, stride={stride}, padding={padding}" + (f", output_padding={more}" if more else "")
    return _begun(chance, kind, [batch, ins, *space], [batch, out, *made], words)


def _begun(chance: random.Random, kind: str, given: list[int], made: list[int], words: str) -> Draft:
    return Draft(chance, given, made, [kind], [f"self.product = nn.{kind}({words})"], ["x = self.product(x)"])


def _extents(rank: int, scale: str) -> tuple[int, int]:
    if scale == "small":
        return (7, 12) if rank == 2 else (5, 7)
    return (40, 260) if rank == 2 else (10, 64)


def _length(n: int, kernel: int, stride: int, padding: int, more: int, *, turned: bool) -> int:
    if turned:
        return (n - 1) * stride - 2 * padding + kernel + more
    return (n + 2 * padding - kernel) // stride + 1


def text(draft: Draft) -> str:
    """The task, as KernelBench writes its own."""
    lines = ["import torch", "import torch.nn as nn", "import torch.nn.functional as F", "", ""]
    lines += ["class Model(nn.Module):", "    def __init__(self):", "        super().__init__()"]
    lines += [f"        {line}" for line in draft.built]
    lines += ["", "    def forward(self, x):", *(f"        {line}" for line in draft.done), "        return x", "", ""]
    lines += ["def get_inputs():", f"    return [torch.rand({', '.join(map(str, draft.given))})]", "", ""]
    return "\n".join([*lines, "def get_init_inputs():", "    return []", ""])


def drawn(seed: int, number: int, scale: str) -> Draft:
    """One task, which the seed and its number decide."""
    chance = random.Random(f"{seed} {number}")
    draft = product(chance.choices([*PRODUCTS], [*PRODUCTS.values()])[0], chance, scale)
    wanted = len(draft.names) + chance.randint(2, 6)
    while len(draft.names) < wanted:
        chance.choices([*STEPS], [*STEPS.values()])[0](draft)
    return draft


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=20261124)
    parser.add_argument("--scale", choices=("full", "small"), default="full")
    args = parser.parse_args(words)
    level = args.folder / "level2"
    level.mkdir(parents=True, exist_ok=True)
    for number in range(1, args.count + 1):
        draft = drawn(args.seed, number, args.scale)
        (level / f"{number}_{'_'.join(draft.names)}.py").write_text(text(draft))


if __name__ == "__main__":
    main()
