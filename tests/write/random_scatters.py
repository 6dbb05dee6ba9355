"""Convolutions of few output channels at random shapes, each divided in one of the most promising ways of `scatter`."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from conv_harness import TWO, Case, backward, forward, transposed

from crucible.schedule.convolution.tiling import Tiling
from crucible.schedule.convolution.warpgroup.scatter import best_scatters

WAYS = 12
"""Ways to divide a convolution that are drawn from, most promising first."""


def drawn(count: int, seed: int = 0, *, exact: bool = False) -> list[Case]:
    """The same cases on every run: forward, transposed and gradients of an input, of two and three dims."""
    draw, found = random.Random(seed), list[Case]()
    while len(found) < count:
        case = replace(_case(draw, f"drawn_{seed}_{len(found)}"), exact=exact)
        ways = best_scatters(case.correlation, WAYS, TWO, exact=exact)
        if ways:
            found.append(replace(case, tiling=_given(draw.choice(ways))))
    return found


def _given(way: Tiling) -> Callable[[Tiling], Tiling]:
    return lambda _: way


def _case(draw: random.Random, name: str) -> Case:
    rank = draw.choice((2, 3, 3))
    few, many = draw.randint(1, 12), draw.choice((1, 3, 4, 8, 8, 13, 16, 24, 40, 72))
    kernel = [draw.choice((1, 2, 3, 3)) if rank == 3 else draw.choice((1, 2, 3, 5)) for _ in range(rank)]
    dilation = draw.choice((1, 1, 1, 2))
    reach = [dilation * (k - 1) + 1 for k in kernel]
    padding = draw.randint(0, min(reach) - 1)
    space = [max(1, r - 2 * padding) + draw.randint(0, 9 if rank == 2 else 5) for r in reach]
    if draw.random() < 0.3:
        space[-1] += draw.choice((50, 56, 60, 90))
    batch, how = draw.randint(1, 3), draw.choice(("forward", "transposed", "gradient"))
    rest: dict[str, object] = {
        "padding": padding,
        "dilation": dilation,
        "chain": draw.choice(("none", "biased", "shifted")),
    }
    if how == "gradient":
        return backward(forward(name, (batch, few, *space), many, kernel, padding=padding, dilation=dilation))
    return (forward if how == "forward" else transposed)(name, (batch, many, *space), few, kernel, **rest)  # type: ignore[arg-type]
