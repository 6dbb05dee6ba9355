"""Convolutions of warpgroups that walk along planes mean what they say: run on the CPU, role by role, before there is
any text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import test_warpgroups
import test_warpgroups_exact
import torch
from conv_harness import TWO, Case
from kernel_mutants import changed
from test_packing_meaning import packing

from crucible.kernel import nodes as ir
from crucible.kernel.index import Number
from crucible.kernel.meaning import Stuck, run
from crucible.kernel.verify import verify
from crucible.kinds.convolution.walks.lower import build_walks, is_walked
from crucible.write.convolution.fused import PRODUCT
from crucible.write.convolution.warpgroup.walks import Walks
from crucible.write.evaluate import evaluate

NEAR = 1e-6
EVERY = {
    f"{word}{case.name}": case
    for word, cases in (
        ("", test_warpgroups.CASES), ("exact: ", test_warpgroups_exact.CASES),
    )
    for case in cases
    if isinstance(case.divided, Walks) and is_walked(case.fused, case.divided, TWO)
}  # fmt: skip


def walking(case: Case) -> ir.Kernel:
    assert isinstance(case.divided, Walks)
    (made,) = build_walks(case.fused, case.divided, TWO).kernels
    return made


def held(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Of which TF32 and half types lose nothing."""
    return torch.randint(-64, 64, shape, generator=torch.Generator().manual_seed(seed)).double() / 64


def error(case: Case, kernel: ir.Kernel) -> float:
    """In relative L2."""
    of, (result,) = case.correlation, case.fused.results
    x, weight, bias = held(of.in_shape, 1), held(case.weight_shape, 2), held((of.out_channels,), 3)
    if case.exact:  # what three products lose nothing of
        x, weight = x + x.flip(0) * 2**-13, weight + weight.flip(0) * 2**-13
    product = case.torchs(x, weight).numpy()
    shifted = bias.numpy().reshape(1, -1, *(1 for _ in of.axes)) + np.zeros_like(product)
    wanted = np.asarray(evaluate(result.expr, {PRODUCT: product, "bias": shifted}))
    order = packing(case)
    packed = run(order, {"weight": weight.numpy().ravel()})
    found = run(kernel, {"x": x.numpy().ravel(), "bias": bias.numpy(), **packed})["out"].reshape(wanted.shape)
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize("name", EVERY)
def test_kernels_mean_convolutions(name: str) -> None:
    kernel = walking(EVERY[name])
    assert verify(kernel) == ()
    assert error(EVERY[name], kernel) < NEAR


def moved(node: ir.Product) -> ir.Node:
    matrix, by = node.columns
    return replace(node, columns=(matrix, by + 1))


WRONG: dict[str, tuple[type, Callable[[Any], ir.Node], int]] = {
    "Product: a position further": (ir.Product, moved, 0),
    "Product: into sums that were there": (ir.Product, lambda node: replace(node, adds=()), 0),
    "Product: anew": (ir.Product, lambda node: replace(node, adds=None), -1),
    "Describe: another plane": (ir.Describe, lambda node: replace(node, behind=1 - node.behind), 1),
    "Copy: a row on": (
        ir.Copy, lambda node: replace(node, to=replace(node.to, at=node.to.at + 4)), 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("word", WRONG)
def test_what_is_wrong_makes_other_outputs(word: str) -> None:
    kind, change, which = WRONG[word]
    case = EVERY["bulk"]
    wrong = changed(walking(case), kind, change, which)
    try:
        assert not error(case, wrong) < NEAR
    except IndexError as beside:
        assert "out" in str(beside)


def test_windows_that_nobody_fills_are_waited_for_forever() -> None:
    case = EVERY["bulk"]
    with pytest.raises(Stuck, match="wait forever"):
        error(case, changed(walking(case), ir.Fill, lambda node: ir.Note("left out")))
    with pytest.raises(Stuck, match="wait forever"):
        error(case, changed(walking(case), ir.Slide, lambda node: replace(node, count=Number(1))))
