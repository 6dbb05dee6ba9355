"""Convolutions of warpgroups that walk along planes mean what they say: run on the CPU, role by role, before there is
any text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import test_warpgroups
import test_warpgroups_exact
import torch
from conv_harness import TWO, Case, crossed, forward, row_sums
from kernel_mutants import changed
from test_packing_meaning import packing

from crucible.algebra.convolution.fused import LEAF, PRODUCT, Convolution
from crucible.algebra.evaluate import evaluate
from crucible.algebra.expression import tensor
from crucible.algebra.program import Operand, Result, contiguous
from crucible.kernel import nodes as ir
from crucible.kernel.index import ZERO, Number
from crucible.kernel.meaning import Stuck, run
from crucible.kernel.verify import verify
from crucible.kinds.convolution.walks.lower import build_walks
from crucible.kinds.convolution.walks.runs import InRuns
from crucible.schedule.convolution.warpgroup.walks import Walks
from support import some

NEAR = 1e-6
EVERY = {
    f"{word}{case.name}": case
    for word, cases in (("", test_warpgroups.CASES), ("exact: ", test_warpgroups_exact.EVERY))
    for case in cases
    if type(case.divided) is Walks
}  # fmt: skip
OTHERWISE = (
    "two_dims", "narrow", "bulk", "brought", "brought_in_pieces", "brought_to_the_last_row", "sums", "exact: rows",
    "exact: all_held",
)  # fmt: skip
"""Those that tests below change are tried as they are, too."""


def walking(case: Case) -> ir.Kernel:
    assert isinstance(case.divided, Walks)
    (made,) = build_walks(case.fused, case.divided, TWO).kernels
    return made


def held(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Of which TF32 and half types lose nothing."""
    return torch.randint(-64, 64, shape, generator=torch.Generator().manual_seed(seed)).double() / 64


def error(case: Case, kernel: ir.Kernel, conv: Convolution | None = None, *, apart: int = 0) -> float:
    """In relative L2, of the result that is furthest off; of the case's convolution or another one of its shape. Each
    sixteen channels of the input are 2^`apart` larger than those before, and their weights as much smaller."""
    of, conv = case.correlation, conv or case.fused
    x, weight = held(of.in_shape, 1), held(case.weight_shape, 2)
    if case.exact:  # what three products lose nothing of
        x, weight = x + x.flip(0) * 2**-13, weight + weight.flip(0) * 2**-13
    if apart:
        by = 2.0 ** (apart * torch.arange(of.in_channels).div(16, rounding_mode="floor"))
        by = by.view(1, -1, *[1] * (x.ndim - 2))
        x, weight = x * by, weight / by
    given = {each.name: held((extent(each, of.out_shape),), number) for number, each in enumerate(conv.operands, 3)}
    values = {
        each.name: torch.as_strided(given[each.name], of.out_shape, each.strides).numpy() for each in conv.operands
    }
    values[PRODUCT] = case.torchs(x, weight).numpy()
    packed = run(packing(case), {"weight": weight.numpy().ravel()})
    storages = {"x": in_memory(x, conv.source), **{name: each.numpy().ravel() for name, each in given.items()}}
    found, errors = run(kernel, storages | packed), list[float]()
    for result in conv.results:
        wanted = np.asarray(evaluate(result.expr, values))
        if result.sums:
            wanted = wanted.sum(axis=tuple(dim for dim in range(wanted.ndim) if dim != 1))
            made = found[f"{result.name}_parts"].reshape(-1, case.padded_channels).sum(0)[: of.out_channels]
        else:
            made = torch.as_strided(torch.from_numpy(found[result.name]), wanted.shape, result.strides).numpy()
        errors.append(float(np.linalg.norm(made - wanted) / np.linalg.norm(wanted)))
    for reduction in conv.reductions:
        wanted = np.asarray(evaluate(reduction.expr, values)).reshape(*of.out_shape[:2], -1).sum(2)
        made = row_sums(case, found[f"{reduction.name}_parts"])
        errors.append(float(np.linalg.norm(made - wanted) / np.linalg.norm(wanted)))
    for crossing in conv.crossings:
        wanted = np.asarray(evaluate(crossing.expr, values))
        wanted = wanted.max(1) if crossing.kind == "max" else wanted.sum(1)
        made = crossed(case, crossing, found)
        errors.append(float(np.linalg.norm(made - wanted) / np.linalg.norm(wanted)))
    return max(errors) if np.isfinite(errors).all() else np.inf


def in_memory(x: torch.Tensor, source: Operand) -> np.ndarray[Any, Any]:
    """As the source's strides say."""
    found = torch.zeros(extent(source, x.shape), dtype=x.dtype)
    torch.as_strided(found, x.shape, source.strides).copy_(x)
    return found.numpy()


def extent(laid: Operand | Result, shape: Sequence[int]) -> int:
    return 1 + sum((n - 1) * stride for n, stride in zip(shape, laid.strides, strict=True))


@pytest.mark.parametrize("name", some(list(EVERY), 4, lambda name: name in OTHERWISE))
def test_kernels_mean_convolutions(name: str) -> None:
    kernel = walking(EVERY[name])
    assert verify(kernel) == ()
    assert error(EVERY[name], kernel) < NEAR


def test_positions_past_a_planes_last_are_not_staged() -> None:
    """Ten for each thread that stages, of which eight are on their way at once: the last six of sixteen are none."""
    divided = test_warpgroups.walks(box=(4, 32), stagers=1, slots=2)
    case = forward("ten", (1, 16, 33, 41), 16, (8, 3), dilation=4, dtype="bfloat16", tiling=divided)
    kernel = walking(case)
    assert verify(kernel) == ()
    assert error(case, kernel) < NEAR


@pytest.mark.parametrize("name", ["two_dims", "narrow", "bulk", "exact: rows", "summed_in_rows"])
def test_rows_may_lie_anyhow(name: str) -> None:
    """A result with channels last beside a contiguous one and a sum, of what is one number an image's channel, a row,
    or a column."""
    case = EVERY[name]
    batch, channels, *space = case.correlation.out_shape
    *inner, _ = contiguous((*space, channels))
    last = (channels * math.prod(space), 1, *inner)
    of_rows = (0, 0, *(1 if dim == len(space) - 2 else 0 for dim in range(len(space))))
    of_columns = (0, 0, *(0 for _ in space[1:]), 1)
    strides = {"bias": (channels, 1, *(0 for _ in space)), "lines": of_rows, "columns": of_columns, "other": last}
    expr = ((LEAF + tensor("bias")) * tensor("lines") + tensor("columns")) * tensor("other")
    results = (
        Result("out", "float32", contiguous((batch, channels, *space)), expr),
        Result("turned", "float32", last, expr + LEAF),
        Result("total", "float32", (0, 1, *(0 for _ in space)), expr, sums=True),
    )
    operands = tuple(Operand(each, "float32", laid) for each, laid in strides.items())
    conv = replace(case.fused, operands=operands, results=results)
    assert isinstance(case.divided, Walks)
    (made,) = build_walks(conv, case.divided, TWO).kernels
    assert verify(made) == ()
    assert error(case, made, conv) < NEAR


# sums over an image's space, beside a result

BESIDE = {case.name: case for case in test_warpgroups.BESIDE}


@pytest.mark.parametrize("name", BESIDE)
def test_what_is_added_up_beside_a_result_is_of_each_image(name: str) -> None:
    kernel = walking(BESIDE[name])
    assert verify(kernel) == ()
    assert error(BESIDE[name], kernel) < NEAR


@pytest.mark.parametrize("name", BESIDE)
def test_sums_are_added_up_without_a_result_too(name: str) -> None:
    case = BESIDE[name]
    alone = replace(case.fused, results=())
    (kernel,) = build_walks(alone, case.divided, TWO).kernels
    assert verify(kernel) == ()
    assert error(case, kernel, alone) < NEAR


@pytest.mark.parametrize("name", ["beside_planes", "beside_rows"])
@pytest.mark.parametrize("word", ["another image", "not all"])
def test_parts_of_items_are_where_they_are_read(name: str, word: str) -> None:
    """All of them: one that nobody writes holds anything."""
    case = BESIDE[name]
    wrong = changed(walking(case), ir.Store, lambda node: misplaced(case, node, word), -1)
    assert not error(case, wrong) < NEAR


def misplaced(case: Case, node: ir.Store, word: str) -> ir.Node:
    """A part of a sum in the place of one of another image, or of the first warpgroup's of two."""
    to, way = node.to, case.divided
    if not isinstance(to, ir.Global) or getattr(to.tensor, "name", "") != "off_parts":
        return node
    row = way.channel_tiles * way.channels
    if word == "not all":
        return replace(node, to=replace(to, at=to.at // (2 * row) * (2 * row) + to.at % row))
    last = (way.of.batch * way.parts_of_image - 1) * row
    return replace(node, to=replace(to, at=Number(last) - to.at // row * row + to.at % row))


def of_totals(node: ir.Store) -> ir.Node:
    """They stay as they are, where they are set back."""
    is_back = isinstance(node.value, ir.Element) and node.value.of.name == "none"
    return ir.Note("left out") if is_back else node


def test_sums_begin_anew_with_an_item(monkeypatch: pytest.MonkeyPatch) -> None:
    """In registers as in a warp's shared memory."""
    case = BESIDE["beside_rows"]
    kept = changed(walking(case), ir.Store, of_totals, -1)
    assert not error(case, kept) < NEAR
    begin, begin_item = InRuns.begin, InRuns.begin_item
    monkeypatch.setattr(InRuns, "begin", lambda self: (begin(self), begin_item(self)))
    monkeypatch.setattr(InRuns, "begin_item", lambda self: None)
    assert not error(BESIDE["beside_planes"], walking(BESIDE["beside_planes"])) < NEAR


def moved(node: ir.Product) -> ir.Node:
    matrix, by = node.columns
    return replace(node, columns=(matrix, by + 1))


def of_neighbours(node: ir.Bring) -> ir.Node:
    (to, source), *_ = node.copies
    return replace(node, copies=((to, replace(source, at=source.at + -4)),))


WRONG: dict[str, tuple[str, type, Callable[[Any], ir.Node], int]] = {
    "Product: a position further": ("bulk", ir.Product, moved, 0),
    "Product: into sums that were there": ("bulk", ir.Product, lambda node: replace(node, adds=()), 0),
    "Product: anew": ("bulk", ir.Product, lambda node: replace(node, adds=None), -1),
    "Describe: another plane": ("bulk", ir.Describe, lambda node: replace(node, behind=1 - node.behind), 1),
    "Product: of other words": (
        "exact: all_held", ir.Product, lambda node: replace(node, rows=replace(node.rows, at=(ZERO,))), 1,
    ),
    "Bring: of neighbours": ("brought", ir.Bring, of_neighbours, 0),
    "Bring: less": ("brought", ir.Bring, lambda node: replace(node, count=node.count + -4), 0),
    "Brought: left out": ("brought", ir.Brought, lambda _: ir.Note("left out"), 0),
    "Accumulate: not what is added up": ("sums", ir.Accumulate, lambda _: ir.Note("left out"), 0),
    "Reduce: of two lanes": (
        "sums", ir.Reduce, lambda node: replace(node, sizes=(replace(node.sizes[0], value=2),)), 0,
    ),
    "Copy: a row on": (
        "bulk", ir.Copy, lambda node: replace(node, to=replace(node.to, at=node.to.at + 4)), 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("word", WRONG)
def test_what_is_wrong_makes_other_outputs(word: str) -> None:
    name, kind, change, which = WRONG[word]
    case = EVERY[name]
    wrong = changed(walking(case), kind, change, which)
    try:
        assert not error(case, wrong) < NEAR
    except IndexError as beside:
        assert {"out", "other"} & set(str(beside).replace(":", " ").split())


def test_windows_that_nobody_fills_are_waited_for_forever() -> None:
    case = EVERY["bulk"]
    with pytest.raises(Stuck, match="wait forever"):
        error(case, changed(walking(case), ir.Fill, lambda node: ir.Note("left out")))
    with pytest.raises(Stuck, match="wait forever"):
        error(case, changed(walking(case), ir.Slide, lambda node: replace(node, count=Number(1))))
    case = EVERY["brought_in_pieces"]
    with pytest.raises(Stuck, match="waits for other copies"):
        error(case, changed(walking(case), ir.Bring, lambda node: replace(node, lanes=Number(16))))
