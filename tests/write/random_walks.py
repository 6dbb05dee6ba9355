"""Convolutions of random shapes in float32 that is kept, each divided in one of the most promising ways of `walks`."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from conv_harness import TWO, Case, forward, transposed

from crucible.schedule.convolution.tiling import Tiling
from crucible.schedule.convolution.warpgroup.walk_choice import chain_of
from crucible.schedule.convolution.warpgroup.walks import best_walks

WAYS = 12
"""Ways to divide a convolution that are drawn from, most promising first."""


def drawn(count: int, seed: int = 0) -> list[Case]:
    """The same cases on every run, with the lower words of any number of taps in registers."""
    draw, found = random.Random(seed), list[Case]()
    while len(found) < count:
        case = _case(draw, f"drawn_{seed}_{len(found)}")
        ways = best_walks(case.correlation, 4, WAYS, TWO, chain_of(case.fused), exact=True)
        if ways:
            way = draw.choice(ways)
            held = draw.randint(way.lower_held, len(way.of.products)) if way.steps == 1 else 0
            found.append(replace(case, tiling=_given(replace(way, lower_held=held))))
    return found


def _given(way: Tiling) -> Callable[[Tiling], Tiling]:
    return lambda _: way


def _case(draw: random.Random, name: str) -> Case:
    rank = draw.choice((1, 2, 3, 3))
    kernel = [draw.randint(1, {1: 7, 2: 3, 3: 3}[rank]) for _ in range(rank)]
    dilation = draw.choice((1, 1, 2))
    reach = [dilation * (k - 1) + 1 for k in kernel]
    padding = draw.randint(0, min(reach) - 1)
    space = [max(1, r - 2 * padding) + draw.randint(0, {1: 60, 2: 14, 3: 6}[rank]) for r in reach]
    shape = (draw.randint(1, 3), draw.choice((1, 3, 8, 8, 13, 20)), *space)
    rest = {"padding": padding, "dilation": dilation, "exact": True}
    made, chain = draw.choice((5, 16, 40, 64, 70)), draw.choice(("none", "shifted", "biased", "summed"))
    return draw.choice((forward, transposed))(name, shape, made, kernel, chain=chain, **rest)  # type: ignore[operator]
