"""Kernels beside those that multiply mean what they say: each element of a weight is put in one place, and what blocks
have of each is added up in one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import test_convolution
import test_scatters
import test_warpgroup_phases
import test_warpgroup_streams
import test_warpgroup_weights
import test_warpgroups
import test_warpgroups_exact
from conv_harness import Case, WeightCase
from kernel_mutants import changed

from crucible.kernel import nodes as ir
from crucible.kernel.index import ZERO, Listed, Number
from crucible.kernel.meaning import OutOfBounds, run
from crucible.kernel.verify import verify
from crucible.kinds.convolution.finish import finish_by_warpgroups, finish_by_warps
from crucible.kinds.convolution.packing import pack
from crucible.schedule.convolution.warpgroup.streams import Streams
from crucible.schedule.convolution.warpgroup.walks import Walks
from crucible.schedule.convolution.warpgroup.weight_walks import WeightWalks
from support import some

MOST = 30_000
"""Different numbers of a half type."""
TESTS = {
    "warps": test_convolution, "scatters": test_scatters, "phases": test_warpgroup_phases,
    "streams": test_warpgroup_streams, "walks": test_warpgroups, "exact": test_warpgroups_exact,
}  # fmt: skip
PACKED = {
    f"{word}: {case.name}": case
    for word, test in TESTS.items()
    for case in test.CASES[:30]
    if type(case) is Case and (case.dtype == "float32" or math.prod(case.weight_shape) < MOST)
}
STREAMS = {name: case for name, case in PACKED.items() if name.startswith("streams: ")}
SCALED = [name for name, case in STREAMS.items() if isinstance(case.divided, Streams) and case.divided.scaled]
"""All others would be divided for this question: 3 s of every process that collects."""
FINISHED = {
    case.name: case
    for test in (test_convolution, test_warpgroup_weights)
    for case in test.CASES
    if isinstance(case, WeightCase)
}


def packing(case: Case) -> ir.Kernel:
    return pack(case.fused, case.divided, case.lowered().buffers[0])


def finishing(case: WeightCase) -> ir.Kernel:
    way, partial = case.division, case.lowered().buffers[0]
    if isinstance(way, WeightWalks):
        return finish_by_warpgroups("finish", way, partial, "result", case.dtype)
    return finish_by_warps("finish", case.correlation, way, partial, "result", case.dtype)


def weights(count: int, dtype: str) -> np.ndarray[Any, Any]:
    """Numbers that are not 0, no two the same, of which TF32 and half types lose nothing."""
    if dtype == "float16":
        return (np.arange(count) + 1).astype(np.uint16).view(np.float16).astype(np.float64)
    words = (np.arange(count, dtype=np.uint32) + 1) << np.uint32(16 if dtype == "bfloat16" else 13)
    return (words + np.uint32(0x800000 if dtype == "float32" else 0)).view(np.float32).astype(np.float64)


def elements(words: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """What words hold."""
    held = words.astype(np.int32)
    if dtype == "float16":
        return held.view(np.float16).astype(np.float64)
    if dtype == "bfloat16":
        return (held.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    return held.view(np.float32).astype(np.float64)


def places(kernel: ir.Kernel, case: Case) -> Counter[float]:
    """How often each element of the weight is in what is packed."""
    (weight, packed), dtype = kernel.tensors, case.dtype
    words = run(kernel, {weight.name: weights(weight.elements, dtype)})[packed.name]
    return Counter(each for each in elements(words, dtype).tolist() if each)


ONCE = [name for name in PACKED if name not in SCALED]


@pytest.mark.parametrize("name", some(ONCE, 5, lambda name: name == "streams: streamed_of_planes_grad_kept"))
def test_every_element_has_one_place(name: str) -> None:
    """Or as many as there are rows of its channel, where an instruction has more rows than there are channels."""
    case = PACKED[name]
    kernel = packing(case)
    assert verify(kernel) == ()
    weight, _ = kernel.tensors
    used = {product.weight for product in case.divided.of.products}
    taps = np.prod(case.weight_shape[2:])
    folded = case.divided.of.folds
    given = weights(weight.elements, case.dtype)
    expected = Counter(each for k, each in enumerate(given.tolist()) if folded or k % taps in used)
    copies = case.divided.copies if type(case.divided) is Walks else 1
    assert places(kernel, case) == Counter({each: n * copies for each, n in expected.items()})


def in_two_words(case: Case) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """A weight, and what is packed of it, [stage][word][..]: walks have all second words behind all first ones, streams
    those of each stage."""
    kernel = packing(case)
    stages = case.divided.steps if type(case.divided) is Streams else 1
    weight, packed = kernel.tensors
    draw = np.random.default_rng(1).standard_normal(weight.elements).astype(np.float32)
    words = run(kernel, {weight.name: draw})[packed.name]
    return draw, words.reshape(case.divided.channel_tiles * stages, 2, -1)


@pytest.mark.parametrize("name", ["exact: rows", "streams: streamed_tiles_kept"])
def test_float32_kept_exact_is_the_sum_of_its_words(name: str) -> None:
    draw, words = in_two_words(PACKED[name])
    found = elements(words, "float32")
    whole = found.sum(1)
    assert np.allclose(np.sort(whole[whole != 0]), np.sort(draw), rtol=2**-21)
    assert np.abs(found[:, 1]).max() < 2**-10 * np.abs(draw).max()


@pytest.mark.parametrize("name", SCALED)
def test_words_of_fp16_are_a_stages_weights_by_one_power_of_two(name: str) -> None:
    """And every weight has one place, whatever stages differ in."""
    case, kernel = PACKED[name], packing(PACKED[name])
    assert verify(kernel) == () and isinstance(case.divided, Streams)
    streams, (weight, packed) = case.divided, kernel.tensors
    draw = np.random.default_rng(1).standard_normal(weight.elements).astype(np.float32)
    draw *= 2.0 ** np.linspace(-6, 6, weight.elements).astype(int)
    used = {product.weight for product in streams.of.products}
    taps = np.prod(case.weight_shape[2:])
    every = np.sort([each for k, each in enumerate(draw) if k % taps in used])
    words = run(kernel, {weight.name: draw})[packed.name].astype(np.int32)
    behind = streams.channel_tiles * streams.packed_units * 4
    scales, tiles = words[behind:].view(np.float32), words[:behind].reshape(streams.channel_tiles, -1)
    assert (np.frexp(scales)[0] == 0.5).all() and len(scales) == streams.channel_tiles * streams.stages
    found = list[Any]()
    for number, scale in enumerate(scales):
        tile, stage = divmod(number, streams.stages)
        part, step = divmod(stage, streams.steps)
        units = streams.weight_units(streams.parts[part])
        begin = streams.begins[part] + step * units
        high, low = tiles[tile, begin * 4 : (begin + units) * 4].view(np.float16).astype(np.float64).reshape(2, -1)
        assert 2**14 <= np.abs(high).max() < 2**15 + 1 and np.abs(low).max() <= 2**3
        found.append((high + low)[high != 0] / scale)
    assert np.allclose(np.sort(np.concatenate(found)), every, rtol=2**-19)


@pytest.mark.parametrize("name", some(list(FINISHED), 3))
def test_every_element_is_the_sum_of_its_parts(name: str) -> None:
    case = FINISHED[name]
    kernel = finishing(case)
    assert verify(kernel) == ()
    parts, result = kernel.tensors
    drawn = np.random.default_rng(2).integers(1, 2**40, parts.elements).astype(np.float64)
    blocks = parts.elements // (kernel.blocks * 32)
    totals = drawn.reshape(blocks, -1).sum(0)
    found = run(kernel, {parts.name: drawn})[result.name]
    assert not np.isnan(found).any()
    assert len(set(found)) == len(found)
    assert set(found) <= set(totals)


def at_one_place(node: Any) -> ir.Node:
    return replace(node, to=replace(node.to, at=Number(7)))


def by_one_tap(node: Any) -> ir.Node:
    return replace(node, index=node.index.table[ZERO]) if isinstance(node.index, Listed) else node


def by_its_words_turned(node: Any) -> ir.Node:
    return replace(node, guard=(replace(node.guard[0], sign="=="),)) if node.otherwise else node


WRONG: dict[str, tuple[str, type, Callable[[Any], ir.Node]]] = {
    "Store: at one place": ("warps: three_dims", ir.Store, at_one_place),
    "Let: by one tap": ("warps: three_dims", ir.Let, by_one_tap),
    "Load: where there is none": ("warps: wide_kernel", ir.Load, lambda node: replace(node, guard=node.guard[:1])),
    "Bits: the same half twice": ("warps: halves", ir.Bits, lambda node: replace(node, values=2 * node.values[:1])),
    "Convert: the other word": ("exact: rows", ir.Convert, by_its_words_turned),
    "Convert: the other word of a stage": ("streams: streamed_tiles_kept", ir.Convert, by_its_words_turned),
}


@pytest.mark.parametrize("word", WRONG)
def test_what_is_wrong_is_seen(word: str) -> None:
    name, kind, change = WRONG[word]
    kernel = packing(PACKED[name])
    weight, packed = kernel.tensors
    given = np.random.default_rng(3).standard_normal(weight.elements)
    try:
        found = run(changed(kernel, kind, change, -1), {weight.name: given})[packed.name]
    except OutOfBounds:
        return
    assert not np.array_equal(found, run(kernel, {weight.name: given})[packed.name], equal_nan=True)
