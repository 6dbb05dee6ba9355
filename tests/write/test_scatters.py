"""Convolutions of few output channels by warpgroup instructions, every input by all taps at once, on the emulator
against PyTorch in float64, and what the kernels must not do without."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from conv_harness import (
    DTYPES,
    TWO,
    Built,
    Case,
    backward,
    build,
    forward,
    is_right,
    operands,
    transposed,
    wanted,
)
from launcher import Run, loaded
from random_scatters import drawn

from crucible import emulator
from crucible.algebra.convolution.correlation import convolution, input_gradient
from crucible.emission.extension import flags
from crucible.emission.host import Host
from crucible.gpus import H200, known_gpu
from crucible.kinds.convolution.lower import lower_convolution
from crucible.print.written import Lowered
from crucible.schedule.convolution.choice import chosen
from crucible.schedule.convolution.tiling import Tiling
from crucible.schedule.convolution.warpgroup.scatter import Scatter, best_scatters, scattered
from support import some

P90 = input_gradient(convolution((128, 8, 16, 64, 64), (64, 8, 3, 3, 3), (1, 1, 1), (0, 0, 0), (1, 1, 1), 1))


def scatters(
    inner: int | None = None, *, exact: bool = False, **changed: int | tuple[int, ...]
) -> Callable[[Tiling], Tiling]:
    """The best division, or that with this inner dim, changed."""

    def changed_best(tiling: Tiling) -> Tiling:
        found = [each for each in best_scatters(tiling.made, 99, TWO, exact=exact) if inner in (None, each.inner)]
        return replace(found[0], **changed)  # type: ignore[arg-type]

    return changed_best


CASES = [
    backward(forward("like_p90", (3, 8, 5, 7, 9), 24, (3, 3, 3), tiling=scatters(inner=0))),
    forward("bands", (1, 8, 5, 7, 12), 8, (3, 3, 3), padding=1, tiling=scatters(inner=0, box=(3, 4, 12), slots=3)),
    forward("bands_of_planes", (1, 16, 6, 6, 10), 5, (2, 3, 2), tiling=scatters(inner=1, box=(3, 3, 9))),
    forward("image", (2, 12, 9, 13), 3, (3, 3), padding=1, chain="biased", tiling=scatters()),
    forward("image_in_bands", (2, 8, 11, 8), 8, (3, 5), padding=2, chain="shifted", tiling=scatters(box=(4, 8))),
    backward(forward("wide", (1, 3, 6, 150), 16, (3, 3), padding=1, tiling=scatters())),
    forward("wide_and_even", (1, 8, 4, 132), 8, (3, 2), chain="biased", tiling=scatters()),
    transposed("whole_rows", (1, 8, 2, 6, 62), 8, (2, 2, 3), tiling=scatters(inner=0)),
    forward("dilated", (1, 8, 2, 9, 12), 4, (1, 3, 3), dilation=2, tiling=scatters(inner=0)),
    forward("one_tap_spread", (2, 20, 5, 6), 8, (1, 1), tiling=scatters()),
    forward("in_chunks", (1, 72, 4, 5, 8), 8, (2, 2, 2), tiling=scatters(inner=0)),
    forward("in_parts", (2, 8, 6, 8), 11, (3, 3), padding=1, chain="biased", tiling=scatters()),
    forward("odd_planes", (4, 7, 3, 5, 5), 8, (3, 2, 2), chain="shifted", tiling=scatters(inner=0)),
]
KEPT = [
    backward(
        forward("exact_volumes", (2, 8, 5, 6, 9), 24, (3, 3, 3), exact=True, tiling=scatters(inner=0, exact=True))
    ),
    forward("exact_bands", (1, 8, 5, 7, 12), 8, (3, 3, 3), padding=1, exact=True,
            tiling=scatters(inner=1, exact=True, box=(4, 3, 12), slots=3)),
    forward("exact_image", (2, 12, 9, 13), 3, (3, 3), padding=1, chain="biased", exact=True,
            tiling=scatters(exact=True)),
    forward("exact_in_chunks", (1, 48, 6, 70), 11, (2, 2), exact=True, tiling=scatters(exact=True)),
    forward("deep", (1, 40, 6, 20), 8, (3, 3), padding=1, exact=True, tiling=scatters(exact=True)),
]  # fmt: skip
CASES += KEPT
DRAWN = [*drawn(4), *drawn(3, seed=1, exact=True)]
BY_NAME = {case.name: case for case in CASES}


ANY_ORDER = ("bands", "image_in_bands", "exact_in_chunks")
TRIED = some([*CASES, *DRAWN], 6, lambda case: case in KEPT or case.name in (*ANY_ORDER, "whole_rows"))


@pytest.fixture(scope="module")
def built() -> Built:
    return build(TRIED)


@pytest.mark.usefixtures("no_faults")
@pytest.mark.parametrize("case", TRIED, ids=lambda case: case.name)
def test_kernels_compute_what_pytorch_does(built: Built, case: Case) -> None:
    text = built.lowered[case.name].kernels[1].text
    assert "every input by all" in text
    assert is_right(built, case) == ""


@pytest.mark.usefixtures("no_faults")
@pytest.mark.parametrize("case", KEPT, ids=lambda case: case.name)
def test_float32_is_kept(built: Built, case: Case) -> None:
    """In relative L2 (see `test_warpgroups_exact`)."""
    known = operands(case)
    right, _ = wanted(case, known)
    assert float((built(case, known)["out"].double() - right).norm()) <= 1e-6 * float(right.norm())


@pytest.mark.usefixtures("no_faults")
@pytest.mark.parametrize("order", ["reverse", "random"])
@pytest.mark.parametrize("name", ANY_ORDER)
def test_they_do_so_in_any_order_of_threads(built: Built, name: str, order: str) -> None:
    with emulator.schedule(order):
        assert is_right(built, BY_NAME[name]) == ""


@pytest.mark.usefixtures("no_faults")
def test_shared_memory_is_read_and_written_without_conflicts_and_memory_in_whole_sectors(built: Built) -> None:
    with emulator.trace() as seen:
        assert is_right(built, BY_NAME["whole_rows"]) == ""
    lines = [line for line in seen.lines if not line.kernel.endswith("_pack")]
    shared = [line for line in lines if line.space == "shared"]
    assert {(line.operation, line.width) for line in shared} >= {("load", 8), ("load", 16), ("store", 8)}
    assert all(line.wavefronts == line.ideal_wavefronts for line in shared)
    stored = [line for line in lines if line.space == "global" and line.operation == "store"]
    assert stored and all(line.sectors == line.ideal_sectors for line in stored)


# what cannot be left out

BANDS = BY_NAME["bands"]
LEFT_OUT = {
    # what: text, in its place, what the emulator says; nothing where the result is wrong
    "inputs that have come": ("mbarrier_wait(full + slot", "if (false) mbarrier_wait(full + slot", "race-shared"),
    "inputs that have been read": ("mbarrier_wait(empty + slot", "if (false) mbarrier_wait(empty + slot", "deadlock"),
    "published weights": ("fence_proxy_async();", "", "missing-proxy-fence"),
    "a turn to add up": ("mbarrier_wait(turns + team", "if (false) mbarrier_wait(turns + team", "race-shared"),
    "what other lanes added": ("team_together(threadIdx.x / 128);", "", "race-shared"),
    "rows that begin with zeros": ("rows[p] = zero;", ";", "uninitialised-shared"),
    "rows that are all there": ("together<3, 256>();", "", "race-shared"),
    "nothing from beyond a row": ("own_column < 12 ?", "own_column < 13 ?", ""),
}


LEFT_OUT_HERE = some(list(LEFT_OUT), 2, lambda what: not LEFT_OUT[what][2])


@pytest.fixture(scope="module")
def mutants() -> Run:
    """The kernel without each of what is left out; the first one puts the weight in order."""
    lowered = BANDS.lowered()
    order, whole = lowered.kernels
    made = [order]
    for number, (text, instead, _) in enumerate(LEFT_OUT[what] for what in LEFT_OUT_HERE):
        assert text in whole.text
        changed = whole.text.replace(text, instead).replace(f" {whole.name}(", f" without_{number}(")
        made.append(replace(whole, name=f"without_{number}", text=changed))
    names = dict.fromkeys(("x", "weight", "out"), "float32") | {each.name: each.dtype for each in lowered.buffers}
    return loaded("scatter_mutants", [Lowered(tuple(made))], [names])


@pytest.mark.parametrize("what", LEFT_OUT_HERE)
def test_the_emulator_sees_what_is_left_out(mutants: Run, what: str) -> None:
    *_, kind = LEFT_OUT[what]
    (buffer,), known = BANDS.lowered().buffers, operands(BANDS)
    packed = torch.zeros(buffer.elements, dtype=DTYPES[buffer.dtype])
    emulator.forget()
    out = torch.zeros(BANDS.correlation.out_shape)
    mutants(0, [known["weight"], packed])
    with contextlib.suppress(RuntimeError):  # a kernel that does not come back
        mutants(1 + LEFT_OUT_HERE.index(what), [known["x"], packed, out])
    kinds = {fault.kind for fault in emulator.faults() if fault.kind != "never-ran"}
    right, size = wanted(BANDS, known)
    assert kind in kinds if kind else ((out - right).abs() > 0.01 * size).any()


# which convolutions they are for


def test_the_benchmarks_input_gradient_goes_to_them_on_hopper_alone() -> None:
    case = replace(BY_NAME["like_p90_grad"], correlation=P90, weight_shape=(64, 8, 3, 3, 3))
    found = chosen(case.fused, H200)
    assert isinstance(found, Scatter) and found.box == (16, 64, 64)  # a sample a block: no input is read twice
    assert found.total_clocks / H200.sms < 1.4e6  # 0.75 ms; 2.38 by warps, measured
    lowered = lower_convolution(case.fused, gpu=H200)
    assert flags([Host("run", {}, {}, {}, {}, (lowered,))]) == ["-O3", "-gencode=arch=compute_90a,code=sm_90a"]
    assert "m64n72k8" in "".join(lowered.kernels[1].preamble)
    kept = chosen(replace(case, exact=True).fused, H200)
    assert isinstance(kept, Scatter) and kept.exact and kept.box == (16, 64, 64)
    assert scattered(case.fused, known_gpu("a100")) is None
    assert not lower_convolution(case.fused, gpu=known_gpu("a100")).kernels[1].architecture


@pytest.mark.parametrize(
    "case",
    [
        forward("strided", (2, 8, 9, 9), 8, (3, 3), stride=2),
        forward("grouped", (2, 16, 9, 9), 16, (3, 3), groups=2),
        forward("halves", (2, 8, 9, 9), 8, (3, 3), dtype="float16"),
        forward("line", (2, 8, 9), 8, (3,)),
        forward("channels", (2, 8, 9, 9), 24, (3, 3)),
        forward("taps", (2, 64, 9, 9), 8, (7, 7)),
        forward("summed_up", (2, 8, 9, 9), 8, (3, 3), chain="sums"),
        forward("padded_by_all", (2, 8, 9, 9), 8, (3, 3), padding=3),
        forward("of_odd_size", (1, 5, 9, 9), 8, (3, 3)),
        forward("dilated_inside", (1, 8, 7, 7, 7), 4, (2, 2, 2), dilation=2),
    ],
    ids=lambda case: case.name,
)
def test_what_they_do_not_serve_is_left_to_others(case: Case) -> None:
    assert scattered(case.fused, H200) is None
    assert "every input by all" not in lower_convolution(case.fused, gpu=H200).kernels[1].text


@pytest.mark.parametrize("exact", [False, True])
def test_all_that_a_division_holds_fits(exact: bool) -> None:
    for each in best_scatters(P90, 99, H200, exact=exact):
        assert each.shared_bytes <= H200.shared_memory_per_block_bytes and each.slots > 1
        assert each.half_words % 8 == 4 and each.pitch % 32 == 8  # no bank conflicts
        reads = [each.read(dim) for dim in (0, 1, 2)]
        assert all(n <= axis.extent for n, axis in zip(reads, P90.axes, strict=True))
