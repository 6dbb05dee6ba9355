"""Kernels of warps that make a weight's gradient mean what they say: run on the CPU before there is any text."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from conv_harness import FRONTS, TWO, WeightCase, forward, operands, transposed, upstream_of, wanted_of_weight
from kernel_mutants import changed

from crucible.algebra.convolution.windows import WHOLE, Spread, Spreads
from crucible.algebra.program import Operand, contiguous
from crucible.kernel import nodes as ir
from crucible.kernel.index import ONE, Compare
from crucible.kernel.meaning import OutOfBounds, run
from crucible.kernel.verify import verify
from crucible.kinds.built import Built
from crucible.kinds.convolution.weights import build_weight_gradient
from crucible.schedule.convolution.questions import WeightGradient
from crucible.schedule.convolution.weight_division import Division
from support import some

NEAR = 3e-7
"""Of the size of what is added up: of float32 by three products, what is left of a word is rounded once more."""
ODD = {"shape": (2, 5, 7, 11), "made": 9, "kernel": (3, 2)}
CASES = {
    each.case.name: each
    for each in (
        WeightCase(forward("line", (3, 10, 21), 7, (4,), padding=2)),
        WeightCase(forward("plane", padding=1, **ODD)),  # type: ignore[arg-type]
        WeightCase(forward("strided", (2, 20, 9, 13), 17, (3, 3), stride=2, padding=1), 1),
        WeightCase(forward("by_threes", (2, 6, 31), 8, (5,), stride=3, dilation=2)),
        WeightCase(forward("volume", (1, 9, 4, 5, 19), 5, (2, 3, 3), padding=1), 2),
        WeightCase(forward("groups", (2, 40, 6, 17), 60, (2, 3), groups=2)),
        WeightCase(forward("many_boxes", (2, 8, 11, 70), 8, (3, 2))),
        WeightCase(forward("exact", padding=1, exact=True, **ODD)),  # type: ignore[arg-type]
        WeightCase(forward("mixed", (4, 7, 22, 24), 9, (3, 2), padding=1, exact=True)),
        WeightCase(forward("behind_a_chain", padding=1, front="bent", **ODD)),  # type: ignore[arg-type]
        WeightCase(forward("exact_behind_a_chain", padding=1, front="bent", exact=True, **ODD)),  # type: ignore[arg-type]
        WeightCase(forward("halves", (2, 20, 7, 21), 19, (3, 2), padding=1, dtype="float16")),
        WeightCase(forward("bfloats", (2, 7, 45), 18, (5,), stride=2, dtype="bfloat16"), 1),
        WeightCase(forward("halves_behind_a_chain", (2, 20, 7, 21), 19, (3, 2), dtype="float16", front="bent")),
        WeightCase(transposed("turned", (2, 6, 5, 9), 7, (3, 3), stride=2, padding=1, output_padding=1)),
    )
}


def question(each: WeightCase, spreads: Spreads = WHOLE) -> WeightGradient:
    of, dtype, front = each.correlation, each.dtype, FRONTS[each.case.front][0]
    shapes = [
        (*shape[:2], *(n // size for n, size in zip(shape[2:], spread.sizes, strict=True))) if spread else shape
        for shape, spread in zip((of.in_shape, of.out_shape), spreads, strict=True)
    ]
    source, grad = (Operand(n, dtype, contiguous(s)) for n, s in zip(("source", "grad"), shapes, strict=True))
    fronts = (None, front) if each.is_turned else (front, None)
    return WeightGradient(each.name, of, source, grad, spreads, each.case.exact, fronts)


def built(each: WeightCase, division: Division | None = None) -> Built:
    return build_weight_gradient(question(each), division or each.division, "result", TWO)


def held(each: WeightCase) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    known, grad = operands(each.case), upstream_of(each.case)
    source, other = (grad, known["x"]) if each.is_turned else (known["x"], grad)
    return known | {"source": source, "grad": other}, grad


def result(kernels: tuple[ir.Kernel, ...], known: dict[str, Any]) -> np.ndarray[Any, Any]:
    for each in kernels:
        known = known | run(each, known)
    return np.asarray(known["result"])


def error(each: WeightCase, kernels: tuple[ir.Kernel, ...]) -> float:
    """Of the size of what is added up, the largest."""
    known, grad = held(each)
    wanted, size = wanted_of_weight(each.case, known, grad)
    found = result(kernels, {name: value.double().numpy().ravel() for name, value in known.items()})
    return float((np.abs(found - wanted.numpy().ravel()) / size.numpy().ravel()).max())


@pytest.mark.parametrize("name", CASES)
def test_kernels_mean_weight_gradients(name: str) -> None:
    made = built(CASES[name])
    for each in made.kernels:
        assert verify(each) == ()
    near = 1e-3 if "chain" in name and CASES[name].dtype == "float16" else NEAR
    assert error(CASES[name], made.kernels) < near


LOADED = ("plane", "strided", "groups", "many_boxes", "exact_behind_a_chain")


@pytest.mark.parametrize("name", LOADED)
def test_what_is_not_copied_ahead_is_the_same(name: str) -> None:
    division = replace(CASES[name].division, ahead=False)
    made = built(CASES[name], division)
    assert verify(made.kernels[0]) == ()
    assert not any(isinstance(node, ir.AsyncCopy) for node in ir.every(made.kernels[0].body))
    assert error(CASES[name], made.kernels) < NEAR


# windows


SPREAD = {
    f"{name}, {'gradient' if side else 'source'}, {'x'.join(map(str, sizes))}{', chosen' if chosen else ''}": (
        name, side, sizes, chosen,
    )
    for (name, sizes), side, chosen in itertools.product(
        (("plane", (2, 3)), ("strided", (2, 2)), ("groups", (3, 2)), ("halves", (2, 2)), ("bfloats", (4,)),
         ("exact", (3, 2)), ("volume", (2, 1, 3))),
        (0, 1), (False, True),
    )
}  # fmt: skip
"""Which case, of which tensor there are windows, and whether one element has a window's gradient alone."""


def elements_of(windows: torch.Tensor, choices: torch.Tensor | None, sizes: tuple[int, ...], shape: Any) -> Any:
    """What a pool's backward would write: each window's value to its elements, or to the chosen one."""
    whole, numbers = torch.zeros(tuple(shape), dtype=windows.dtype), itertools.product(*map(range, sizes))
    for number, at in enumerate(numbers):
        value = windows if choices is None else windows * (choices == number)
        ends = zip(at, windows.shape[2:], sizes, strict=True)
        whole[(..., *(slice(first, first + n * size, size) for first, n, size in ends))] = value
    return whole


def of_windows(word: str) -> Built:
    name, side, sizes, chosen = SPREAD[word]
    each, spread = CASES[name], Spread(sizes, "choices" if chosen else "")
    division = replace(each.division, ahead=False, spread=() if side else sizes)
    return build_weight_gradient(question(each, (None, spread) if side else (spread, None)), division, "result", TWO)


@pytest.mark.parametrize("word", some(list(SPREAD), 3))
def test_gradients_of_windows_are_spread(word: str) -> None:
    (name, side, sizes, chosen), made = SPREAD[word], of_windows(word)
    each = CASES[name]
    known, of = operands(each.case), each.correlation
    shape = of.out_shape if side else of.in_shape
    generator = torch.Generator().manual_seed(5)
    windows = (*shape[:2], *(n // size for n, size in zip(shape[2:], sizes, strict=True)))
    value = torch.randn(windows, generator=generator).to(known["x"].dtype)
    choices = torch.randint(math.prod(sizes), windows, generator=generator) if chosen else None
    whole = elements_of(value, choices, sizes, shape)
    grad = whole if side else upstream_of(each.case)
    known |= {"grad" if side else "x": whole}
    wanted, size = wanted_of_weight(each.case, known, grad)
    given = {"source": known["x"], "grad": grad} | {"grad" if side else "source": value}
    given |= {} if choices is None else {"choices": choices}
    found = result(made.kernels, {word: tensor.double().numpy().ravel() for word, tensor in given.items()})
    assert verify(made.kernels[0]) == ()
    assert (np.abs(found - wanted.numpy().ravel()) <= NEAR * size.numpy().ravel()).all()
    assert float(size.max()) > 0


# what is wrong


def elsewhere(node: ir.AsyncCopy) -> ir.Node:
    return replace(node, source=replace(node.source, at=node.source.at + 1), guard=())


def rounded_by_others(node: ir.Own) -> ir.Node:
    """Each word by the neighbour of the thread that copied it."""
    (one,) = node.body
    assert isinstance(one, ir.For)
    moved = replace(one, start=(one.start + 1) % 32) if one.start else one
    return replace(node, body=(moved,))


WRONG: dict[str, tuple[str, type, Callable[[Any], ir.Node], int]] = {
    "AsyncCopy: nothing, where there is something": (
        "many_boxes", ir.AsyncCopy, lambda node: replace(node, guard=(Compare("<", ONE, ONE),)), 0,
    ),
    "Turn: what comes is never at hand": ("exact", ir.Turn, lambda node: ir.Note("left out"), 0),
    "Own: nobody rounds": ("plane", ir.Own, lambda node: ir.Note("left out"), 0),
    "LoadMatrix: a row on": (
        "halves", ir.LoadMatrix,
        lambda node: replace(node, source=replace(node.source, at=(node.source.at[0] % 8 + 4,))), 0,
    ),
    "LoadMatrix: not turned": ("halves", ir.LoadMatrix, lambda node: replace(node, turned=False), 1),
    "WarpMma: another half type": ("halves", ir.WarpMma, lambda node: replace(node, math="bf16"), 0),
    "WarpMma: one product for three": ("exact", ir.WarpMma, lambda node: replace(node, math="tf32"), 0),
}  # fmt: skip


@pytest.mark.parametrize("word", WRONG)
def test_what_is_wrong_makes_other_gradients(word: str) -> None:
    name, kind, change, which = WRONG[word]
    first, *rest = built(CASES[name]).kernels
    assert not error(CASES[name], (changed(first, kind, change, which), *rest)) < 1e-5


def test_a_thread_that_rounds_what_another_copied_is_seen() -> None:
    first, *rest = built(CASES["plane"]).kernels
    wrong = changed(first, ir.Own, rounded_by_others, 0)
    with pytest.raises(OutOfBounds, match="touches what another one copied"):
        error(CASES["plane"], (wrong, *rest))


def test_copies_beside_the_tensor_are_seen() -> None:
    first, *rest = built(CASES["many_boxes"]).kernels
    with pytest.raises(OutOfBounds, match="is at"):
        error(CASES["many_boxes"], (changed(first, ir.AsyncCopy, elsewhere, -1), *rest))
