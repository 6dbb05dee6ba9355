"""Convolutions in float32 that is kept, by three products of TF32 of warpgroup instructions: on the emulator against
PyTorch in float64."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from conv_harness import (
    DTYPES,
    EXACT,
    SUMS,
    TWO,
    Built,
    Case,
    build,
    forward,
    is_right,
    operands,
    sums_are_right,
    transposed,
    wanted,
)
from launcher import loaded
from random_walks import drawn

from crucible import emulator
from crucible.algebra.convolution.correlation import convolution
from crucible.gpus import H200, known_gpu
from crucible.kinds.convolution.lower import lower_convolution
from crucible.print.written import Kernel, Lowered
from crucible.schedule.convolution.choice import chosen
from crucible.schedule.convolution.tiling import Tiling
from crucible.schedule.convolution.warpgroup.walk_choice import division
from crucible.schedule.convolution.warpgroup.walks import Walks, walk
from crucible.target import sm80, sm90
from support import some

P90 = convolution((128, 8, 16, 64, 64), (64, 8, 3, 3, 3), (1, 1, 1), (0, 0, 0), (1, 1, 1), 1)
RELATIVE = 1e-6
"""Error in relative L2 that is allowed to a convolution. Of each product 2^-21 may be lost (a lower word's last bit of
either factor, 2^-23, and the product of both lower words, 2^-22), and what tensor cores cut off when they add up `n`
instructions of higher words, n 2^-23 of the sum at most; both are far less on average."""


def exact(**changed: int | tuple[int, ...]) -> Callable[[Tiling], Tiling]:
    """The best division, changed."""

    def chosen(tiling: Tiling) -> Tiling:
        found = walk(tiling.made, tiling.unit, TWO, exact=True)
        assert found is not None
        return replace(found, **changed)  # type: ignore[arg-type]

    return chosen


CASES = [
    forward("bulk", (3, 8, 6, 5, 9), 64, (2, 2, 2), chain="shifted", exact=True, tiling=exact(box=(1, 3, 8), walk=3)),
    forward("held", (2, 7, 5, 4, 10), 70, (3, 2, 3), padding=1, exact=True, tiling=exact(lower_held=7, box=(1, 3, 10))),
    forward("all_held", (3, 8, 9, 10), 24, (2, 3), chain="summed", exact=True, tiling=exact(lower_held=6, box=(3, 8))),
    forward("in_steps", (2, 19, 8, 9), 80, (2, 2), padding=1, exact=True, tiling=exact(box=(2, 10))),
    forward("rows", (2, 5, 5, 7, 9), 24, (2, 2, 1), chain="biased", exact=True, tiling=exact(lower_held=2)),
    forward("one_tap", (3, 8, 50), 16, (1,), chain="shifted", exact=True, tiling=exact(groups=3, slots=4)),
    forward(
        "like_p90",
        (1, 8, 5, 8, 64),
        64,
        (3, 3, 3),
        chain="summed",
        exact=True,
        tiling=exact(box=(1, 2, 62), walk=3, groups=2, slots=5, lower_held=15),
    ),
    forward("deep", (1, 37, 7, 9), 24, (3, 3), padding=1, exact=True, tiling=exact()),
    forward("deep_held", (1, 8, 6, 7, 9), 24, (3, 3, 4), exact=True, tiling=exact(lower_held=9)),
    transposed("turned", (2, 8, 9, 9), 16, (2, 2), padding=1, chain="of_two", exact=True, tiling=exact()),
]
EVERY = [*CASES, *drawn(5)]
BY_NAME = {case.name: case for case in EVERY}


TRIED = some(EVERY, 6, lambda case: case.name == "held")


@pytest.fixture(scope="module")
def built() -> Built:
    return build(TRIED)


@pytest.mark.usefixtures("no_faults")
@pytest.mark.parametrize("case", TRIED, ids=lambda case: case.name)
def test_kernels_compute_what_pytorch_does(built: Built, case: Case) -> None:
    assert built.lowered[case.name].kernels[1].architecture == "sm_90a"
    assert is_right(built, case) == ""
    known = operands(case)
    right, _ = wanted(case, known)
    assert float((built(case, known)["out"].double() - right).norm()) <= RELATIVE * float(right.norm())


@pytest.mark.usefixtures("no_faults")
@pytest.mark.parametrize("case", [case for case in TRIED if case.chain in SUMS], ids=lambda case: case.name)
def test_channel_sums_are_those_of_the_output(built: Built, case: Case) -> None:
    assert sums_are_right(built, case) == ""


@pytest.mark.usefixtures("no_faults")
@pytest.mark.parametrize("order", ["reverse", "random"])
def test_they_do_so_in_any_order_of_threads(built: Built, order: str) -> None:
    with emulator.schedule(order):
        assert is_right(built, BY_NAME["held"]) == ""


@pytest.mark.parametrize("bits", [0x7F800000, 0x7FFFFFFF], ids=["infinity", "what GPUs make of NaN"])
def test_what_is_not_finite_is_seen(built: Built, bits: int) -> None:
    """Of a NaN whose bits are all set the higher word is 0."""
    case = BY_NAME["held"]
    known = operands(case)
    known["x"].view(torch.int32)[0, 0, 2, 2, 2] = bits
    found, (right, _) = built(case, known)["out"], wanted(case, known)
    assert torch.equal(found.isfinite(), right.isfinite())


# a word as two


DIVIDE = """\
__global__ void divide(const int* words, int* higher_words, int* lower_words) {
    const int p = blockIdx.x * 128 + threadIdx.x;
    if (p < COUNT) higher_words[p] = tf32_high(words[p]), lower_words[p] = tf32_low(words[p]);
}
"""


def test_a_word_is_two_of_tf32_to_two_to_the_minus_23_of_it() -> None:
    generator = torch.Generator().manual_seed(0)
    mantissa = torch.cat([torch.arange(0, 1 << 15), torch.randint(0, 1 << 23, (5000,), generator=generator)])
    exponent = torch.randint(30, 250, mantissa.shape, generator=generator)
    words = (mantissa | exponent << 23).to(torch.int32)
    higher, lower = torch.zeros_like(words), torch.zeros_like(words)
    count, names = words.numel(), ("words", "higher", "lower")
    text, blocks = DIVIDE.replace("COUNT", str(count)), -(-count // 128)
    kernel = Kernel("divide", text, (sm80.TF32_HIGH, sm90.TF32_LOW), names[:1], names[1:], (blocks, 1, 1), 128)
    loaded("divide", [Lowered((kernel,))], [dict.fromkeys(names, "int32")])(0, [words, higher, lower])
    assert not ((higher | lower) & 0x1FFF).any()
    value, above, below = (each.view(torch.float32).double() for each in (words, higher, lower))
    assert float(((value - above - below).abs() / value.abs()).max()) <= 2**-23
    assert float((below.abs() / value.abs()).max()) <= 2**-11


# what cannot be left out

HELD = BY_NAME["held"]
LEFT_OUT = {
    # what: in which of both kernels, text, in its place
    "lower words of weights": (0, "? low : high", "? 0 * low : high"),
    # `held` is what the kernel is called
    "lower words of weights in registers": (1, "held_2[tap][i] = own_2[", "held_2[tap][i] = 0 * own_2["),
    "lower words of planes": (1, "low = tf32_low_of_pack(words[0][u]);", "low = {};"),
}


@pytest.mark.parametrize("what", some(list(LEFT_OUT), 3))
def test_no_part_is_for_nothing(what: str) -> None:
    at, text, instead = LEFT_OUT[what]
    lowered = HELD.lowered()
    kernels = list(lowered.kernels)
    assert text in kernels[at].text
    kernels[at] = replace(kernels[at], text=kernels[at].text.replace(text, instead))
    types = dict.fromkeys(("x", "weight", "out"), "float32") | {each.name: each.dtype for each in lowered.buffers}
    run = loaded("exact_mutants", [Lowered(tuple(kernels))], [types])
    known = operands(HELD) | {"out": torch.zeros(HELD.correlation.out_shape)}
    known |= {each.name: torch.zeros(each.elements, dtype=DTYPES[each.dtype]) for each in lowered.buffers}
    for number, kernel in enumerate(kernels):
        run(number, [known[name] for name in (*kernel.reads, *kernel.writes)])
    right, size = wanted(HELD, known)
    assert float(((known["out"] - right).abs() / size).max()) > 10 * EXACT


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_largest_is_added_last(case: Case) -> None:
    """Or each of three additions would cut something off of the whole sum."""
    found, taps = walk(case.correlation, 4, TWO, exact=True), len(case.correlation.products)
    assert found is not None
    walks = case.tiling(found)
    assert isinstance(walks, Walks)
    lines = case.lowered().kernels[1].text.splitlines()
    products = [line for line in lines if "wgmma_m64n" in line]
    assert len(products) == len(walks.word_passes) * taps
    assert "false)" in products[0] or "s >= 1)" in products[0]
    for line in products[-taps:]:
        places = re.search(r"sums, a(?: \+ (\d+))?, b_\d+(?: \+ (\d+))?, true", line)
        assert places and int(places[1] or 0) < walks.word_units and int(places[2] or 0) < walks.plane_units


# which convolutions they are for


def test_the_benchmarks_convolution_goes_to_warpgroups_on_hopper_alone() -> None:
    case = replace(BY_NAME["bulk"], correlation=P90, weight_shape=(64, 8, 3, 3, 3))
    found = chosen(case.fused, H200)
    assert isinstance(found, Walks) and found.exact and found.box == (1, 2, 62)
    assert found.slots == found.span + found.groups  # with fewer an item's first planes are waited for
    assert found.shared_bytes <= H200.shared_memory_per_block_bytes
    assert found.columns_of_b // 2 + 4 * found.lower_held <= 128  # registers, as sums alone take
    assert found.total_clocks / H200.sms < 2.7e6  # 1.5 ms
    assert division(case.fused, known_gpu("a100")) is None
    assert not lower_convolution(case.fused, gpu=known_gpu("a100")).kernels[1].architecture


def test_weights_that_do_not_fit_twice_are_left_to_warps() -> None:
    of = convolution((8, 16, 16, 32, 32), (64, 16, 3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), 1)
    assert walk(of, 4, H200) is not None
    assert walk(of, 4, H200, exact=True) is None
