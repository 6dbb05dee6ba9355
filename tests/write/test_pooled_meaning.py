"""Convolutions by warpgroups with a pool over their phases mean what they say: run on the CPU, role by role, before
there is any text."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import test_warpgroup_pools
from conv_harness import TWO, Tensors, transposed
from kernel_mutants import changed
from pooled_harness import BEFORE, WANTED, PooledCase, operands, wanted

from crucible.algebra.convolution.fused import Convolution
from crucible.kernel import nodes as ir
from crucible.kernel.index import ONE, Number
from crucible.kernel.meaning import Stuck, run
from crucible.kernel.meaning_windows import exchanged, flipped
from crucible.kernel.verify import verify
from crucible.kernel.window_nodes import SIGNS
from crucible.kinds.convolution.backward import kept
from crucible.kinds.convolution.pooled.frame import PooledFrame
from crucible.kinds.convolution.pooled.lower import build_pooled
from crucible.schedule.convolution.halo import UNITS
from crucible.schedule.convolution.warpgroup.pooled import PooledWalks, best_pooled_walks, work_of
from crucible.schedule.machine import machine_of
from support import NIGHTLY, some

NEAR = 1e-6
WAYS = 12
"""Ways to divide a convolution that are drawn from, most promising first."""
EVERY = {case.case.name: case for case in test_warpgroup_pools.CASES}
OTHERWISE = ("rows", "whole", "stride_of_three", "halves")
"""Those that tests below change are tried as they are, too."""


def keeping(case: PooledCase) -> Convolution:
    """With what is kept for backward."""
    conv = case.fused
    return replace(conv, results=(*conv.results, *kept(conv, WANTED, "upstream")))


@cache
def pooling(case: PooledCase, *, keeps: bool = True) -> ir.Kernel:
    conv = keeping(case) if keeps else case.fused
    assert case.division is not None
    division = case.division(conv)
    assert isinstance(division, PooledWalks)
    (made,) = build_pooled(conv, division, TWO).kernels
    return made


def decided(known: Tensors) -> None:
    """No factor is 0, so that each channel has a direction."""
    known["scale"][known["scale"] == 0] = -0.5


def error(case: PooledCase, kernel: ir.Kernel, change: Callable[[Tensors], None] = lambda known: None) -> float:
    """The largest, of all that is written; of the products and numbers of windows too."""
    known = operands(case)
    change(known)
    found = run(kernel, {name: each.double().numpy().ravel() for name, each in known.items()})
    right = wanted(replace(case, gradients=False), known)
    pairs = [(made, right[name].double().numpy().ravel()) for name, made in found.items()]
    errors = [np.abs(made - each).max() for made, each in pairs]
    return float(max(errors)) if np.isfinite(errors).all() else np.inf


@pytest.mark.parametrize("name", some(list(EVERY), 6, lambda name: name in OTHERWISE))
@pytest.mark.parametrize("change", [lambda known: None, decided], ids=["drawn", "decided"])
def test_kernels_mean_convolutions(name: str, change: Callable[[Tensors], None]) -> None:
    kernel = pooling(EVERY[name])
    assert verify(kernel) == ()
    assert error(EVERY[name], kernel, change) < NEAR


@pytest.mark.parametrize("name", ["mean", "stride_of_three", "two_tiles"])
def test_they_do_where_nothing_is_kept(name: str) -> None:
    """A mean, values that are compared, and the ends of a window."""
    kernel = pooling(EVERY[name], keeps=False)
    assert verify(kernel) == ()
    assert error(EVERY[name], kernel) < NEAR


# what lanes do with words


@pytest.mark.parametrize("seed", range(4))
def test_lanes_that_exchange_have_whole_tiles(seed: int) -> None:
    """Of each four, the one of a tile's number has what all four had of it, in their order."""
    given = np.random.default_rng(seed).integers(0, 256, (4, 64, 2))  # tile, thread, byte
    found = exchanged((given[..., 0] + 256 * given[..., 1])[:, None].astype(float))
    for thread in range(64):
        first = thread // 4 * 4
        assert found[:, 0, thread].tolist() == given[thread % 4, first : first + 4].ravel().tolist()


@pytest.mark.parametrize("dtype", ["tf32", "halves"])
def test_signs_turned_round_are_those_of_minus_one_times(dtype: str) -> None:
    """Of a word, or both halves of it; turned round twice they are what they were."""
    numbers = np.random.default_rng(0).standard_normal((64, 2)).astype("float16")
    words = numbers.view(np.int32).ravel().astype(float) if dtype == "halves" else numbers[:, 0].astype(float)
    minus = (-numbers).view(np.int32).ravel().astype(float) if dtype == "halves" else -words
    all_, none = np.full(64, SIGNS[dtype], float), np.zeros(64)
    assert (flipped(words, all_, dtype) == minus).all() and (flipped(words, none, dtype) == words).all()
    assert (flipped(minus, all_, dtype) == words).all() and np.isnan(flipped(words, all_ - 1, dtype)).all()


# any shape, any legal division


def drawn(seed: int) -> tuple[PooledCase, ir.Kernel]:
    """The same on every run."""
    draw = random.Random(seed)
    while True:
        rank, stride = draw.choice((1, 2, 2, 3)), draw.choice((2, 2, 2, 3))
        size = draw.randint(stride, stride + (1 if rank == 3 else 2))
        space = [draw.randint(2, {1: 60, 2: 14, 3: 6}[rank]) for _ in range(rank)]
        shape, made = (draw.randint(1, 3), draw.choice((1, 8, 13, 20)), *space), draw.choice((5, 32, 40, 64, 70))
        rest = {"padding": draw.randint(0, size - 1), "output_padding": draw.randint(0, stride - 1)}
        dtype, kind = draw.choice(("float32", "float32", "float16")), draw.choice(("max", "max", "avg"))
        chain = draw.choice([*BEFORE] if kind == "max" else ["none", "scaled"])
        of = transposed(f"drawn_{seed}", shape, made, (size,) * rank, stride=stride, dtype=dtype, **rest)
        if min(of.correlation.out_shape[2:]) < stride:
            continue
        case = PooledCase(of, kind, (stride,) * rank, chain, gradients=False)
        conv = keeping(case) if draw.random() < 0.7 else case.fused
        assert conv.pool is not None
        asked = work_of(conv, conv.pool, machine_of(TWO))
        if ways := best_pooled_walks(of.correlation, UNITS[dtype], conv.pool.sizes, WAYS, TWO, *asked):
            (kernel,) = build_pooled(conv, draw.choice(ways), TWO).kernels
            return case, kernel


@pytest.mark.parametrize("seed", range(24 if NIGHTLY else 8))
def test_any_division_of_any_shape_means_its_convolution(seed: int) -> None:
    case, kernel = drawn(seed)
    assert verify(kernel) == ()
    assert error(case, kernel, decided if seed % 2 else lambda known: None) < NEAR


# what is wrong


def moved(node: ir.Product) -> ir.Node:
    matrix, at = node.columns
    return replace(node, columns=(matrix, at + 1))


def of_other_numbers(node: ir.Take) -> ir.Node:
    last = node.becomes[-1]
    return replace(node, becomes=(*node.becomes[:-1], (last[0], node.number + 1)))


def never_first(node: ir.Take) -> ir.Node:
    return replace(node, number=node.number + 1, becomes=node.becomes[:1])


def as_it_is(node: ir.Flip) -> ir.Node:
    return ir.Convert(node.into, node.value)


def of_two_tiles(node: ir.Exchange) -> ir.Node:
    return ir.Declare((node.into.of,), "sum")


WRONG: dict[str, tuple[str, type, Callable[[Any], ir.Node], int]] = {
    "Product: a position further": ("rows", ir.Product, moved, 0),
    "Product: into sums that were there": ("stride_of_three", ir.Product, lambda node: replace(node, adds=()), 0),
    "Describe: another plane": ("rows", ir.Describe, lambda node: replace(node, behind=1 - node.behind), -1),
    "Slide: a pass less": ("rows", ir.Slide, lambda node: replace(node, tasks=node.tasks - 1), 0),
    "Take: another number": ("rows", ir.Take, of_other_numbers, 0),
    "Take: no first one": ("stride_of_three", ir.Take, never_first, 0),
    "Take: the first ones": ("rows", ir.Take, lambda node: replace(node, value=node.best), 0),
    "Flip: left out": ("rows", ir.Flip, as_it_is, -1),
    "Vote: always": ("rows", ir.Vote, lambda node: ir.Value(node.into, ONE), 0),
    "Exchange: left out": ("whole", ir.Exchange, of_two_tiles, 0),
    "Store: to the next tap": (
        "rows", ir.Store, lambda node: replace(node, to=replace(node.to, at=(node.to.at[0] + 1, *node.to.at[1:])))
        if isinstance(node.to, ir.InShared) and node.to.of.name == "of_tap" else node, -1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("word", WRONG)
def test_what_is_wrong_makes_other_outputs(word: str) -> None:
    name, kind, change, which = WRONG[word]
    wrong = changed(pooling(EVERY[name]), kind, change, which)
    assert not max(error(EVERY[name], wrong), error(EVERY[name], wrong, decided)) < NEAR


def test_places_that_nobody_stores_are_zero_from_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    made = PooledFrame._ring
    monkeypatch.setattr(PooledFrame, "_ring", lambda self: replace(made(self), margins=None))
    assert error(EVERY["stride_of_three"], pooling.__wrapped__(EVERY["stride_of_three"])) == np.inf


def test_weights_that_are_none_are_zero_from_the_beginning() -> None:
    """All of what two phases share and one has no tap for."""
    of_zeros = changed(pooling(EVERY["rows"]), ir.Declare, in_ones, -1)
    assert not error(EVERY["rows"], of_zeros) < NEAR


def in_ones(node: ir.Declare) -> ir.Node:
    is_none = isinstance(node.what, tuple) and node.what[0].name == "none"
    return replace(node, start="") if is_none else node


def test_windows_that_nobody_fills_are_waited_for_forever() -> None:
    case = EVERY["rows"]
    with pytest.raises(Stuck, match="wait forever"):
        error(case, changed(pooling(case), ir.Fill, lambda node: ir.Note("left out")))
    with pytest.raises(Stuck, match="wait forever"):
        error(case, changed(pooling(case), ir.Slide, lambda node: replace(node, count=node.count + Number(1))))
