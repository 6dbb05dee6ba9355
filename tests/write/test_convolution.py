"""Convolution kernels on the emulator against PyTorch in float64: all that a layer can be told, and their gradients."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from conv_harness import ONE, TWO, Built, Case, WeightCase, backward, build, forward, is_right, operands, transposed
from torch.utils.cpp_extension import COMMON_NVCC_FLAGS

from crucible import hardware
from crucible.algebra.program import Program
from crucible.emulator.nvcc import find
from crucible.errors import MisuseError
from crucible.gpus import H200
from crucible.kinds.convolution.backward import lower_convolution_backward
from crucible.kinds.convolution.lower import lower_convolution
from crucible.schedule.convolution.halo import UNITS
from crucible.schedule.convolution.tile_choice import best, tile
from crucible.schedule.convolution.tiling import Tiling
from support import some

pytestmark = pytest.mark.usefixtures("no_faults")


def alone(tiling: Tiling, box: tuple[int, ...]) -> Tiling:
    """With a multiprocessor for each block, and so many positions that its threads load several at a time."""
    return replace(tiling, box=box, blocks=1, ahead=False)


def fold(plain: Tiling) -> Tiling:
    """The best whose last taps are in the place of channels."""
    return next(each for each in best(plain.made, plain.unit, 1000, ONE) if each.of.folds)


FORWARD = [
    forward("plain_1d", (2, 8, 40), 16, (3,)),
    forward("one_channel", (3, 1, 9, 12), 5, (3, 3), padding=1),
    forward("many_channels", (1, 40, 6, 7), 80, (1, 1)),
    forward("strided", (2, 5, 11, 13), 20, (3, 2), stride=2, padding=1),
    forward("dilated", (2, 9, 12, 12), 17, (3, 3), padding=2, dilation=2),
    forward("grouped", (2, 12, 8, 8), 18, (3, 3), groups=3, padding=1),
    forward("depthwise", (2, 6, 9, 9), 6, (5, 5), groups=6, stride=3, padding=2),
    forward("merged", (2, 40, 9, 9), 40, (3, 3), groups=40, padding=1, chain="biased"),
    forward("merged_pairs", (2, 24, 3, 8, 8), 48, (1, 3, 2), groups=24, dtype="float16", front="clamped"),
    forward("merged_exact", (3, 34, 50), 34, (5,), groups=34, stride=2, padding=2, exact=True, chain="sums"),
    forward("three_dims", (2, 8, 5, 7, 9), 24, (3, 3, 3), padding=1, chain="biased"),
    forward("uneven_stride", (1, 8, 7, 10, 6), 16, (2, 3, 1), stride=3, padding=1),
    forward("wide_kernel", (1, 3, 20, 21), 32, (7, 7), stride=2, padding=3),
    forward("sums", (3, 8, 6, 10), 30, (3, 3), chain="sums"),
    forward("halves", (2, 24, 9, 9), 33, (3, 3), padding=1, dtype="float16", chain="biased"),
    forward("bfloats", (2, 7, 30), 12, (5,), padding=2, dtype="bfloat16"),
    forward("exact", (2, 9, 12, 12), 17, (3, 3), padding=1, exact=True),
    forward("mixed", (1, 228, 6, 7), 17, (3, 3), padding=1, exact=True, chain="biased"),
    forward("staged", (2, 40, 9, 9), 32, (3, 3), padding=1, tiling=lambda t: replace(t, staged=2)),
    forward("staged_unevenly", (2, 19, 9, 9), 32, (3, 3), padding=1, tiling=lambda t: replace(t, staged=2)),
    forward("loads_together", (2, 8, 20, 21), 16, (3, 3), padding=1, tiling=lambda t: alone(t, (16, 21))),
    forward(
        "loads_together_halves",
        (2, 12, 20, 21),
        16,
        (3, 3),
        padding=1,
        dtype="float16",
        tiling=lambda t: alone(t, (16, 21)),
    ),
    forward("loads_together_dealt", (1, 8, 22, 33), 16, (3, 3), stride=2, tiling=lambda t: alone(t, (8, 16))),
    forward("ahead", (3, 8, 9, 9), 32, (3, 3), padding=1, tiling=lambda t: replace(t, ahead=True)),
    forward("ahead_in_steps", (2, 19, 9, 9), 32, (3, 3), padding=1, tiling=lambda t: replace(t, staged=2, ahead=True)),
    forward("folded", (2, 12, 5, 7), 7, (3, 3), padding=1, tiling=fold),
    forward("folded_unevenly", (2, 8, 4, 6, 9), 3, (3, 2, 4), dilation=2, padding=3, chain="biased", tiling=fold),
    forward("folded_sums", (2, 19, 7, 11), 6, (2, 5), chain="sums", tiling=fold),
    forward(
        "front_ahead",
        (2, 19, 9, 9),
        32,
        (3, 3),
        padding=1,
        front="bent",
        tiling=lambda t: replace(t, staged=2, ahead=True),
    ),
    forward(
        "front_together", (2, 8, 20, 21), 16, (3, 3), padding=1, front="clamped", tiling=lambda t: alone(t, (16, 21))
    ),
    forward("front_folded", (2, 12, 5, 7), 7, (3, 3), padding=1, front="bent", tiling=fold),
    forward("front_grouped", (2, 12, 8, 8), 18, (3, 3), groups=3, padding=1, front="clamped", chain="biased"),
    transposed("front_doubled", (2, 12, 7, 9), 20, (3, 3), stride=2, padding=1, output_padding=1, front="bent"),
    transposed("doubled_1d", (2, 8, 20), 16, (4,), stride=2, padding=1),
    transposed("doubled", (2, 12, 7, 9), 20, (3, 3), stride=2, padding=1, output_padding=1, chain="biased"),
    transposed("doubled_3d", (1, 16, 4, 5, 6), 32, (3, 3, 3), stride=2, padding=1, output_padding=1),
    transposed("doubled_ahead", (5, 9, 5, 6), 16, (3, 3), stride=2, padding=1, tiling=lambda t: replace(t, ahead=True)),
    transposed("tripled", (2, 5, 5, 6), 9, (2, 5), stride=3, output_padding=1),
    transposed("one_tap", (2, 4, 6, 6), 8, (1, 1), stride=2, output_padding=1),
    transposed("at_stride_1", (2, 8, 9, 9), 16, (3, 3), padding=1),
    transposed("merged_doubled", (2, 32, 5, 6), 32, (3, 3), stride=2, groups=32, output_padding=1, front="bent"),
    transposed("spread", (2, 8, 6, 7), 16, (3, 3), stride=2, padding=1, dilation=2, groups=2),
]
CASES = [
    *FORWARD,
    *(
        backward(case)
        for case in FORWARD
        if case.name not in ("sums", "folded_sums", "merged_exact", "staged", "staged_unevenly")
    ),
]


WEIGHTS = [WeightCase(case) for case in FORWARD]
WEIGHTS += [
    WeightCase(case, way) for case in FORWARD if case.name in ("strided", "exact", "three_dims") for way in (1, 2)
]
OF_EACH_KIND = (
    "merged", "three_dims", "sums", "halves", "bfloats", "exact", "loads_together", "ahead_in_steps", "folded",
    "front_grouped", "doubled", "spread",
)  # fmt: skip
RUN = [*some(FORWARD, 3, lambda case: case.name in OF_EACH_KIND), *some(CASES[len(FORWARD) :], 6), *some(WEIGHTS, 6)]
"""What is run: of forward one of each kind, and some of either gradient. Of all of them hashes hold the text."""


@pytest.fixture(scope="module")
def built() -> Built:
    return build(RUN)


@pytest.mark.parametrize("case", RUN, ids=lambda case: case.name)
def test_kernels_compute_what_pytorch_does(built: Built, case: Case | WeightCase) -> None:
    assert is_right(built, case) == ""


def test_several_positions_are_loaded_together() -> None:
    cases = [case for case in FORWARD if case.name.startswith("loads_together")]
    assert len(cases) == 3
    for case in cases:
        found = tile(case.correlation, UNITS[case.dtype], ONE)
        assert found is not None and case.tiling(found).positions_together > 1


def test_sums_that_do_not_fit_beside_the_tiles_are_refused() -> None:
    case = next(case for case in CASES if case.name == "sums")
    tiling = tile(case.correlation, 4, ONE)
    assert tiling is not None
    needed = tiling.shared_bytes + 4 * tiling.channels
    lower_convolution(case.fused, tiling, replace(H200, shared_memory_per_block_bytes=needed))
    with pytest.raises(MisuseError, match="1 sums for each of 32 channels take 128 bytes"):
        lower_convolution(case.fused, tiling, replace(H200, shared_memory_per_block_bytes=needed - 1))


def test_channel_sums_are_those_of_the_output(built: Built) -> None:
    case = next(case for case in CASES if case.name == "sums")
    found = built(case, operands(case))
    parts = found["total_parts"].reshape(-1, found["total_parts"].numel() // built.lowered["sums"].kernels[1].grid[0])
    total = parts.reshape(built.lowered["sums"].kernels[1].grid[0], -1).double().sum(0)[: case.correlation.out_channels]
    assert torch.allclose(total, found["out"].double().sum((0, 2, 3)), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_the_gradient_of_a_product_is_of_its_dtype_where_it_needs_no_product(dtype: str) -> None:
    """As behind a factor: no pass of the convolution is needed for it, and a program writes it."""
    fused = forward("scaled", (2, 8, 9, 9), 16, (3, 3), dtype=dtype).fused
    (result,) = fused.results
    halved = replace(fused, results=(replace(result, expr=result.expr * 0.5),))
    steps = lower_convolution_backward(halved, ["x", "weight"], "upstream", TWO)
    (written,) = [each for step in steps.steps if isinstance(step, Program) for each in step.results]
    (buffer,) = [each for each in steps.buffers if each.name == written.name]
    assert written.dtype == buffer.dtype == dtype


@pytest.mark.skipif(not hardware.nvcc(), reason="there is no nvcc here")
def test_nvcc_takes_half_types_as_load_inline_has_them() -> None:
    """Without NVIDIA's conversions and operators of __half: a convolution and both of its gradients."""
    given = [
        forward(f"of_{dtype}", (2, 24, 9, 9), 33, (3, 3), padding=1, dtype=dtype, chain="biased")
        for dtype in ("float16", "bfloat16")
    ]
    texts: list[str] = []
    build(
        [each for case in given for each in (case, backward(case), WeightCase(case))],
        load=lambda **told: texts.append(told["cuda_sources"]),
    )
    nvcc = find("sm_90", COMMON_NVCC_FLAGS)
    assert nvcc is not None
    compiled = nvcc.kernels(texts[0], (), ())
    assert compiled is not None and len(compiled) >= 6
