"""Convolutions by warps mean what they say: run on the CPU, all threads at once, before there is any text."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pooled_harness
import pytest
import test_convolution
import test_pooled_convolution
import torch
from conv_harness import FRONTS, ONE, TWO, Case, backward, forward
from kernel_mutants import changed
from pooled_harness import PooledCase
from random_convolutions import Layer
from test_walk_meaning import extent, held
from test_weight_gradient_meaning import elements_of

from crucible.algebra.convolution.fused import LEAF, PRODUCT, Convolution
from crucible.algebra.convolution.windows import Spread
from crucible.algebra.evaluate import evaluate
from crucible.algebra.expression import Expr
from crucible.algebra.program import Operand, Reduction, contiguous
from crucible.kernel import nodes as ir
from crucible.kernel.index import ONE as FIRST
from crucible.kernel.index import Compare, Number
from crucible.kernel.meaning import OutOfBounds, Raced, run
from crucible.kernel.verify import verify
from crucible.kinds.convolution.backward import kept
from crucible.kinds.convolution.packing import pack
from crucible.kinds.convolution.warps.lower import build_warps
from crucible.schedule.convolution.halo import UNITS
from crucible.schedule.convolution.tile_choice import best
from crucible.schedule.convolution.tiling import Tiling
from support import some

Arrays = dict[str, np.ndarray[Any, Any]]
NEAR = 1e-6
"""In relative L2; of numbers of which neither TF32 nor half types lose anything."""
EVERY = {case.name: case for case in test_convolution.CASES if type(case) is Case and type(case.divided) is Tiling}


def made_of(conv: Convolution, tiling: Tiling, known: Mapping[str, Any], kernel: ir.Kernel | None = None) -> Arrays:
    """What its kernels write, of tensors in float64; one that multiplies perhaps in place of its own."""
    built = build_warps(conv, tiling, TWO)
    storages = {name: np.asarray(each, np.float64).ravel() for name, each in known.items()}
    packed = run(pack(conv, tiling, built.buffers[0]), {conv.weight.name: storages[conv.weight.name]})
    return run(kernel or built.kernels[0], storages | packed)


def multiplying(case: Case) -> ir.Kernel:
    return build_warps(case.fused, case.divided, TWO).kernels[0]


def drawn(case: Case, conv: Convolution) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """What it reads, and what its chains read for each output."""
    of = case.correlation
    x, weight = held(of.in_shape, 1), held(case.weight_shape, 2)
    if case.exact:  # what three products lose nothing of
        x, weight = x + x.flip(0) * 2**-13, weight + weight.flip(0) * 2**-13
    given = {each.name: held((extent(each, of.out_shape),), number) for number, each in enumerate(conv.operands, 3)}
    values = {
        each.name: torch.as_strided(given[each.name], of.out_shape, each.strides).numpy() for each in conv.operands
    }
    values[PRODUCT] = case.torchs(FRONTS[case.front][1](x), weight).numpy()
    return {"x": x, "weight": weight, **given}, values


def error(case: Case, kernel: ir.Kernel | None = None, tiling: Tiling | None = None) -> float:
    """Of the result that is furthest off."""
    conv, tiling = case.fused, tiling or case.divided
    known, values = drawn(case, conv)
    found, errors = made_of(conv, tiling, known, kernel), list[float]()
    for result in conv.results:
        wanted = np.asarray(evaluate(result.expr, values))
        if result.sums:
            wanted = wanted.sum(axis=tuple(dim for dim in range(wanted.ndim) if dim != 1))
            made = found[f"{result.name}_parts"].reshape(-1, tiling.channel_tiles * tiling.channels * tiling.of.groups)
            made = of_channels(made.sum(0), case, tiling)
        else:
            made = torch.as_strided(torch.from_numpy(found[result.name]), wanted.shape, result.strides).numpy()
        errors.append(float(np.linalg.norm(made - wanted) / np.linalg.norm(wanted)))
    return max(errors) if np.isfinite(errors).all() else np.inf


def of_channels(made: Any, case: Case, tiling: Tiling) -> Any:
    """[.., channel] of what is written for whole tiles of each group."""
    count = case.correlation.out_channels
    apart = made.reshape(*made.shape[:-1], tiling.of.groups, tiling.channel_tiles * tiling.channels)
    return apart[..., :count].reshape(*made.shape[:-1], -1)


@pytest.mark.parametrize("name", some(list(EVERY), 3, lambda name: "step" in name or "staged" in name))
def test_kernels_mean_convolutions(name: str) -> None:
    assert verify(multiplying(EVERY[name])) == ()
    assert error(EVERY[name]) < NEAR


# any shape, any legal division


def layer(draw: random.Random) -> Layer:
    rank, groups, is_transposed = draw.choice((1, 2, 2, 3)), draw.choice((1, 1, 1, 2, 3)), draw.random() < 0.4
    kernel = tuple(draw.randint(1, {1: 6, 2: 4, 3: 3}[rank]) for _ in range(rank))
    stride, dilation, padding = draw.randint(1, 3), draw.choice((1, 1, 2)), draw.randint(0, min(kernel) - 1)
    least = [max(1, dilation * (k - 1) + 1 - 2 * padding) for k in kernel]
    space = [n + draw.randint(1, {1: 40, 2: 11, 3: 5}[rank]) for n in least]
    shape = (draw.randint(1, 3), groups * draw.choice((1, 3, 8, 13, 20)), *space)
    dtype = draw.choice(("float32", "float32", "float16", "bfloat16"))
    rest = draw.choice(("none", "biased", "summed")), dtype == "float32" and draw.random() < 0.4, draw.randint(0, 7)
    return Layer(
        is_transposed, shape, groups * draw.choice((1, 5, 16, 21)), kernel, stride, padding, dilation, 0, groups, dtype,
        *rest, draw.choice(("none", "none", "bent", "clamped")),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_any_division_of_any_shape_means_its_convolution(seed: int) -> None:
    case = layer(random.Random(seed)).case(f"drawn_{seed}")
    for each in (case, backward(replace(case, chain="none", front="none"))):
        if each.correlation.out_channels and best(each.correlation, UNITS[each.dtype], 1, ONE):
            assert verify(multiplying(each)) == ()
            assert error(each) < NEAR


# pools


POOLED = {case.name: case for case in test_pooled_convolution.CASES if isinstance(case, PooledCase)}


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("name", some(list(POOLED), 2))
def test_kernels_mean_pools_of_products(name: str, keeps: bool) -> None:
    case = replace(POOLED[name], gradients=False)
    conv, known = case.fused, pooled_harness.operands(case)
    further = kept(conv, pooled_harness.WANTED, "upstream") if keeps else ()
    conv = replace(conv, results=(*conv.results, *further))
    tiling = case._tiling(conv)
    if type(tiling) is not Tiling:
        pytest.skip("by warpgroups")
    assert verify(build_warps(conv, tiling, TWO).kernels[0]) == ()
    found, right = made_of(conv, tiling, {n: t.double() for n, t in known.items()}), pooled_harness.wanted(case, known)
    for result in conv.results:
        wanted = right[result.name].double().numpy().ravel()
        np.testing.assert_allclose(found[result.name], wanted, rtol=0, atol=1e-9)


# gradients of windows


@pytest.mark.parametrize("chosen", [False, True])
@pytest.mark.parametrize("sizes", [(2, 2), (3, 2), (1, 4)])
def test_gradients_of_windows_are_spread(sizes: tuple[int, ...], chosen: bool) -> None:
    """In one go, and held beside the products before, of all channels or some steps at a time."""
    case = forward("windows", (2, 40, 11, 13), 20, (3, 3), padding=1)
    of, spread = case.correlation, Spread(sizes, "choices" if chosen else "")
    shape = (*of.in_shape[:2], *(n // size for n, size in zip(of.in_shape[2:], sizes, strict=True)))
    conv = replace(case.fused, source=Operand("x", "float32", contiguous(shape)), spread=spread)
    value = held(shape, 1)
    choices = torch.randint(sizes[0] * sizes[1], shape, generator=torch.Generator().manual_seed(5)) if chosen else None
    known = {"x": value, "weight": held(case.weight_shape, 2)} | ({} if choices is None else {"choices": choices})
    wanted = case.torchs(elements_of(value, choices, sizes, of.in_shape), known["weight"]).numpy().ravel()
    for tiling in best(of, 4, 6, ONE, (), sizes):
        assert verify(build_warps(conv, tiling, TWO).kernels[0]) == ()
        np.testing.assert_allclose(made_of(conv, tiling, known)["out"], wanted, rtol=0, atol=1e-9)


# reductions over space


REDUCED = ("ahead", "grouped", "doubled", "folded", "three_dims", "strided_grad", "merged", "bfloats")
LARGEST = Reduction("largest", "max", LEAF)
POWERS = Reduction("powers", "sum", (LEAF - LARGEST.leaf).exp())


def parts(case: Case, *reductions: Reduction, result: Expr | None = None) -> tuple[list[Any], Any]:
    """What items of each image have, [image, item, channel], and the product."""
    known, values = drawn(replace(case, chain="none"), replace(case, chain="none").fused)
    results = tuple(replace(each, expr=result) for each in case.fused.results) if result is not None else ()
    conv = replace(case.fused, operands=(), results=results, reductions=reductions)
    tiling = case.divided
    assert verify(build_warps(conv, tiling, TWO).kernels[0]) == ()
    found = made_of(conv, tiling, known)
    width = tiling.of.groups * tiling.channel_tiles * tiling.channels
    made = [found[f"{each.name}_parts"].reshape(tiling.of.batch, -1, width) for each in reductions]
    return [of_channels(each, case, tiling) for each in made], values[PRODUCT]


@pytest.mark.parametrize("has_result", [False, True])
@pytest.mark.parametrize("name", REDUCED)
def test_reductions_over_space_have_a_part_of_each_item(name: str, has_result: bool) -> None:
    """In registers, or through the tile where something else is made of the products as well."""
    case = replace(EVERY[name], chain="none", front="none")
    total = Reduction("total", "sum", LEAF * 2)
    (largest, sums), product = parts(case, LARGEST, total, result=LEAF if has_result else None)
    flat = product.reshape(*product.shape[:2], -1)
    np.testing.assert_allclose(largest.max(1), flat.max(2), rtol=0, atol=1e-9)
    np.testing.assert_allclose(sums.sum(1), 2 * flat.sum(2), rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", ["ahead", "grouped", "doubled"])
def test_sums_relative_to_a_maximum_are_those_of_their_item(name: str) -> None:
    case = replace(EVERY[name], chain="none", front="none")
    (largest, powers), product = parts(case, LARGEST, POWERS)
    flat = product.reshape(*product.shape[:2], -1)
    whole = largest.max(1, keepdims=True)
    found = (powers * np.exp(largest - whole)).sum(1)
    np.testing.assert_allclose(found, np.exp(flat - flat.max(2, keepdims=True)).sum(2), rtol=1e-9)


# what is wrong


def never(node: ir.AsyncCopy) -> ir.Node:
    return replace(node, guard=(Compare("<", FIRST, FIRST),))


def a_matrix_on(node: Any) -> ir.Node:
    return replace(node, rows=replace(node.rows, at=(Number(0),)))


def a_tap_on(node: ir.LoadTiles) -> ir.Node:
    return replace(node, source=replace(node.source, at=(Number(0),)))


def of_eight_lanes(node: ir.Reduce) -> ir.Node:
    return replace(node, sizes=(replace(node.sizes[0], value=node.sizes[0].value // 2),))


WRONG: dict[str, tuple[str, Any, Callable[[Any], ir.Node], int]] = {
    "AsyncCopy: nothing, where there is something": ("ahead", ir.AsyncCopy, never, 0),
    "AsyncCopy: one word of a unit": ("staged", ir.AsyncCopy, lambda node: replace(node, words=1), 0),
    "Turn: what comes is never at hand": ("exact", ir.Turn, lambda node: ir.Note("left out"), 0),
    "LoadTiles: of another tap": ("ahead", ir.LoadTiles, a_tap_on, 2),
    "MultiplyTiles: of another tap": ("ahead", ir.MultiplyTiles, a_matrix_on, 1),
    "MultiplyTiles: one product for three": (
        "exact", ir.MultiplyTiles, lambda node: replace(node, math="tf32"), -1,
    ),
    "Reduce: of half the lanes": ("folded_sums", ir.Reduce, of_eight_lanes, 0),
}  # fmt: skip


@pytest.mark.parametrize("word", WRONG)
def test_what_is_wrong_makes_other_results(word: str) -> None:
    name, kind, change, which = WRONG[word]
    assert not error(EVERY[name], changed(multiplying(EVERY[name]), kind, change, which)) < 1e-5


def test_a_sum_that_two_threads_add_to_is_seen() -> None:
    """Where each lane of a row adds to its sum in shared memory, and not one of them."""
    made = multiplying(EVERY["sums"])

    def by_all(node: ir.If) -> ir.Node:
        is_sum = any(isinstance(each, ir.Accumulate) for each in node.body) and len(node.body) == 3
        return ir.Scope(node.body) if is_sum else node

    with pytest.raises(Raced, match="one's alone"):
        error(EVERY["sums"], changed(made, ir.If, by_all, -1))


def test_copies_beside_the_tensor_are_seen() -> None:
    def elsewhere(node: ir.AsyncCopy) -> ir.Node:
        return replace(node, source=replace(node.source, at=node.source.at + 100_000), guard=())

    with pytest.raises(OutOfBounds, match="is at"):
        error(EVERY["ahead"], changed(multiplying(EVERY["ahead"]), ir.AsyncCopy, elsewhere, 0))
