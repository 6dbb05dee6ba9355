"""Gradients of weights by warpgroups mean what they say: run on the CPU, role by role, before there is any text. Inputs
are whole numbers, so that nothing is rounded and sums are exact."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import test_warpgroup_weight_windows as of_windows
import test_warpgroup_weights as of_elements
import torch
from conv_harness import TWO, Case, forward, transposed
from kernel_mutants import changed
from pooled_harness import SpreadCase, spread_out
from test_warpgroup_weight_windows import WindowCase, windows
from test_warpgroup_weights import HeldCase

from crucible.algebra.convolution.correlation import Correlation, input_gradient
from crucible.algebra.convolution.windows import Spread
from crucible.algebra.program import Operand, contiguous
from crucible.gpus import H200
from crucible.graph import ITEM_BYTES
from crucible.kernel import nodes as ir
from crucible.kernel.index import ZERO, Number
from crucible.kernel.meaning import Stuck, run
from crucible.kernel.verify import verify
from crucible.kinds.convolution.weights import build_weight_for_warpgroups
from crucible.schedule.convolution.warpgroup.weight_choice import best_weight_walks
from crucible.schedule.convolution.warpgroup.weight_walks import WeightWalks
from support import NIGHTLY, some

Grouped = HeldCase | WindowCase
Kernels = tuple[ir.Kernel, ...]
EVERY: dict[str, Grouped] = {each.name: each for each in (*of_elements.CASES, *of_windows.CASES)}
OTHERWISE = ("walked_weight", "two_stage_weight", "brought_weight", "in_parts_weight", "halves_weight",
             "both_odd_weight", "two_stage_spread")  # fmt: skip
"""Those that tests below change are tried as they are, too."""


def shapes(case: Grouped) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of the source and of the gradient, as its kernels have them."""
    if isinstance(case, SpreadCase):
        return case.windows, case.case.correlation.in_shape
    return case.correlation.in_shape, case.correlation.out_shape


def grouped(case: Grouped, walks: WeightWalks | None = None) -> Kernels:
    source, grad = (Operand(name, case.dtype, contiguous(shape)) for name, shape in
                    zip(("source", "grad"), shapes(case), strict=True))  # fmt: skip
    return build_weight_for_warpgroups(case.name, walks or case.division, source, grad, "result").kernels


def error(case: Grouped, kernels: Kernels) -> float:
    """The largest, of what differs at all."""
    drawing, held = torch.Generator().manual_seed(3), dict[str, torch.Tensor]()
    for name, shape in zip(("source", "grad"), shapes(case), strict=True):
        held[name] = torch.randint(-8, 9, shape, generator=drawing).double()
    x, upstream = (held["grad"], held["source"]) if case.is_turned else (held["source"], held["grad"])
    if isinstance(case, SpreadCase):
        held["choice"] = torch.randint(0, math.prod(case.sizes), case.windows, generator=drawing)
        upstream = spread_out(upstream, held["choice"], case.sizes, torch.Size(case.case.correlation.out_shape))
    weight = torch.zeros(case.case.weight_shape, dtype=torch.float64, requires_grad=True)
    (wanted,) = torch.autograd.grad(case.case.torchs(x, weight), weight, upstream)
    known: dict[str, Any] = {name: each.double().numpy().ravel() for name, each in held.items()}
    for kernel in kernels:
        known |= run(kernel, known)
    found = np.abs(known["result"] - wanted.numpy().ravel()).max()
    return float(np.nan_to_num(found, nan=np.inf))


@pytest.mark.parametrize("name", some(list(EVERY), 5, lambda name: name in OTHERWISE))
def test_kernels_mean_gradients_of_weights(name: str) -> None:
    kernels = grouped(EVERY[name])
    assert verify(kernels[0]) == ()
    assert error(EVERY[name], kernels) == 0


# any shape, any legal division


def drawn(seed: int) -> tuple[Grouped, WeightWalks]:
    """The same on every run."""
    draw = random.Random(seed)
    while True:
        case = _shape(draw, f"drawn_{seed}", is_of_windows=seed % 3 == 2)
        of, spread = _of(case)
        if ways := best_weight_walks(of, ITEM_BYTES[case.dtype], 10**6, TWO, spread):
            walks = draw.choice(ways)
            return case, replace(walks, walk=draw.randint(1, walks.walk), sms=draw.choice((1, 2, walks.parts + 3)))


def _of(case: Grouped) -> tuple[Correlation, Spread | None]:
    if isinstance(case, SpreadCase):
        return input_gradient(case.case.correlation), Spread(case.sizes, "choice")
    return case.correlation, None


def _shape(draw: random.Random, name: str, *, is_of_windows: bool) -> Grouped:
    rank, stride, dilation = draw.choice((1, 2, 2, 3)), draw.choice((1, 1, 2, 2, 3, 5)), draw.choice((1, 1, 2))
    dtype = draw.choice(("float32", "float32", "float16", "bfloat16"))
    if is_of_windows:
        rank, stride, dilation = draw.choice((2, 3)), draw.choice((2, 2, 3)), 1
    space = [draw.randint(3, 7 if rank == 3 else 12) for _ in range(rank - 1)] + [draw.randint(2, 12) * 2]
    shape = draw.randint(1, 3), draw.choice((16, 32) if is_of_windows else (1, 8, 13, 16, 70)), *space
    kernel = tuple(draw.randint(stride if is_of_windows else 1, stride + 2) for _ in range(rank))
    padding = draw.randint(0, min(kernel) - 1)
    is_turned = is_of_windows or (stride > 1 and draw.random() < 0.5)
    make: Callable[..., Case] = transposed if is_turned else forward
    given = {"stride": stride, "padding": padding, "dilation": dilation, "dtype": dtype}
    case = make(name, shape, draw.choice((3, 8, 20)), kernel, **given)
    return windows(case) if is_of_windows else HeldCase(case)


@pytest.mark.parametrize("seed", range(24 if NIGHTLY else 9))
def test_any_division_of_any_shape_means_its_gradient(seed: int) -> None:
    case, walks = drawn(seed)
    kernels = grouped(case, walks)
    assert verify(kernels[0]) == ()
    assert error(case, kernels) == 0


# what is wrong


def moved(node: ir.Product) -> ir.Node:
    matrix, at = node.columns
    return replace(node, columns=(matrix, at + 8))


def of_neighbours(node: ir.Load) -> ir.Node:
    return replace(node, source=replace(node.source, at=node.source.at + 4)) if node.into.of.name == "pack" else node


def not_asked(node: ir.Load) -> ir.Node:
    return replace(node, guard=()) if node.into.of.name == "pack" else node


def a_row_on(node: ir.Foresee) -> ir.Node:
    lets = [each for each in node.body if isinstance(each, ir.Let) and each.variable.name == "row"]
    further = {id(each): replace(each, index=each.index + 1) for each in lets}
    return replace(node, body=tuple(further.get(id(each), each) for each in node.body))


def left_out(node: ir.Node) -> ir.Node:
    return ir.Note("left out")


WRONG: dict[str, tuple[str, type, Callable[[Any], ir.Node], int]] = {
    "Product: a row's tap further": ("walked_weight", ir.Product, moved, 0),
    "Describe: another plane": (
        "walked_weight", ir.Describe, lambda node: replace(node, behind=1 - node.behind), -1,
    ),
    "Describe: the first tap of all": ("in_parts_weight", ir.Describe, lambda node: replace(node, behind=ZERO), 1),
    "Share: a task less": ("two_dims_weight", ir.Share, lambda node: replace(node, tasks=node.tasks - 1), 0),
    "Foresee: of another row": ("two_dims_weight", ir.Foresee, a_row_on, 0),
    "Ask: never for another step": ("walked_weight", ir.Ask, left_out, 1),
    "Fetch: a row less": (
        "brought_weight", ir.Fetch, lambda node: replace(node, elements=node.elements - 16), 0,
    ),
    "Fetch: a plane's neighbour": (
        "two_stage_weight", ir.Fetch, lambda node: replace(node, source=replace(node.source, at=node.source.at + 4)), 0,
    ),
    "Load: of neighbours": ("halves_weight", ir.Load, of_neighbours, -1),
    "Load: of what is not asked": ("both_odd_weight", ir.Load, not_asked, -1),
    "Convert: of every element": ("two_stage_spread", ir.Convert, lambda node: replace(node, guard=()), -1),
    "Accumulate: one team's sums alone": ("walked_weight", ir.Accumulate, left_out, 0),
}  # fmt: skip


@pytest.mark.parametrize("word", WRONG)
def test_what_is_wrong_makes_other_gradients(word: str) -> None:
    name, kind, change, which = WRONG[word]
    first, *rest = grouped(EVERY[name])
    try:
        assert error(EVERY[name], (changed(first, kind, change, which), *rest)) > 0
    except IndexError as beside:
        assert "is at" in str(beside)


def test_planes_that_nobody_brings_are_waited_for_forever() -> None:
    first, *rest = grouped(EVERY["two_stage_weight"])
    with pytest.raises(Stuck, match="wait forever"):
        error(EVERY["two_stage_weight"], (changed(first, ir.Fetch, left_out), *rest))


def test_planes_that_nobody_reads_are_seen() -> None:
    first, *rest = grouped(EVERY["walked_weight"])
    wrong = changed(first, ir.Share, lambda node: replace(node, count=Number(1)))
    with pytest.raises(Stuck, match=r"wait forever|nobody reads"):
        error(EVERY["walked_weight"], (wrong, *rest))


# larger than a run takes


LARGER: dict[str, Grouped] = {
    "a plane is left": HeldCase(forward("left", (1, 16, 34, 27, 31), 32, (5, 4, 1), stride=2)),
    "windows of odd rows": windows(transposed("odd", (4, 16, 18, 12, 28), 3, (2, 3, 4), stride=2)),
    "brought, of few channels": HeldCase(forward("brought", (16, 12, 16, 64, 64), 64, (3, 3, 3), padding=1)),
    "half types": HeldCase(forward("halves", (8, 70, 33, 66), 96, (3, 3), padding=1, dtype="float16")),
}
"""What the verifier must not take for wrong; rows that are moved, where a walk does not end with the planes, it did."""


@pytest.mark.parametrize("name", LARGER)
def test_nothing_is_wrong_with_any_division_of_larger_shapes(name: str) -> None:
    of, spread = _of(LARGER[name])
    ways = best_weight_walks(of, ITEM_BYTES[LARGER[name].dtype], 10**6, H200, spread)
    for walks in ways if NIGHTLY else ways[:6]:
        assert verify(grouped(LARGER[name], walks)[0]) == ()
