"""Convolutions by warpgroup instructions, on the emulator against PyTorch in float64, and what the kernels must not do
without."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from conv_harness import (
    ALONE,
    DTYPES,
    SUMS,
    TWO,
    Beside,
    Built,
    Case,
    beside,
    build,
    forward,
    is_right,
    operands,
    row_sums_are_right,
    sums_are_right,
    transposed,
)
from launcher import Run, loaded
from torch.utils.cpp_extension import COMMON_NVCC_FLAGS

from crucible import emulator, hardware
from crucible.algebra.convolution.correlation import convolution
from crucible.algebra.program import Operand, contiguous
from crucible.emission.extension import flags
from crucible.emission.host import Host
from crucible.emulator.nvcc import find
from crucible.errors import MisuseError
from crucible.gpus import H200, known_gpu
from crucible.kinds.convolution.lower import lower_convolution
from crucible.print.written import Lowered
from crucible.schedule.convolution.halo import STEP_UNITS
from crucible.schedule.convolution.tiling import Tiling
from crucible.schedule.convolution.warpgroup.stream_choice import stream_division
from crucible.schedule.convolution.warpgroup.walk_choice import division
from crucible.schedule.convolution.warpgroup.walks import Walks, walk
from support import some

P90 = convolution((128, 8, 16, 64, 64), (64, 8, 3, 3, 3), (1, 1, 1), (0, 0, 0), (1, 1, 1), 1)


def walks(**changed: int | tuple[int, ...]) -> Callable[[Tiling], Tiling]:
    """The best division, changed."""

    def chosen(tiling: Tiling) -> Tiling:
        found = walk(tiling.made, tiling.unit, TWO)
        assert found is not None
        return replace(found, **changed)  # type: ignore[arg-type]

    return chosen


CASES = [
    forward("one_dim", (3, 8, 40), 16, (3,), tiling=walks()),
    forward("two_dims", (5, 8, 9, 12), 40, (3, 2), padding=1, chain="shifted", tiling=walks(box=(2, 13))),
    forward("bulk", (3, 8, 6, 5, 9), 64, (2, 2, 2), chain="shifted", tiling=walks(box=(1, 3, 8), walk=3, slots=3)),
    forward("one_stages", (3, 8, 6, 5, 9), 64, (2, 2, 2), tiling=walks(box=(1, 3, 8), walk=3, slots=3, stagers=1)),
    forward("one_stages_rows", (5, 8, 9, 12), 40, (3, 2), padding=1, tiling=walks(box=(2, 13), stagers=1)),
    forward("bulk_halves", (2, 16, 5, 4, 8), 70, (2, 1, 3), padding=1, dtype="float16", tiling=walks(box=(1, 3, 8))),
    forward("bulk_bfloats", (1, 7, 32), 24, (5,), padding=2, dtype="bfloat16", chain="shifted", tiling=walks()),
    forward("rows", (2, 5, 5, 7, 9), 24, (2, 2, 1), padding=1, chain="biased", tiling=walks(box=(1, 3, 11), walk=2)),
    forward("in_pieces", (1, 3, 5, 45), 20, (2, 3), dilation=2, chain="biased", tiling=walks(box=(2, 32))),
    forward("in_steps", (2, 19, 8, 9), 80, (2, 2), padding=1, tiling=walks(box=(2, 10))),
    forward("one_tap", (2, 40, 6, 7), 64, (1, 1), tiling=walks(box=(3, 7))),
    forward("three_teams", (2, 8, 6, 4, 8), 64, (3, 1, 1), tiling=walks(groups=3, slots=5, box=(1, 2, 8))),
    forward("narrow", (3, 8, 14, 3), 16, (1, 2), padding=1, chain="biased", tiling=walks()),
    forward("sums", (3, 8, 6, 9), 70, (3, 2), chain="sums", tiling=walks()),
    forward(
        "brought",
        (3, 8, 5, 6, 10),
        64,
        (2, 2, 3),
        chain="summed",
        tiling=walks(box=(1, 2, 8), walk=3, slots=3),
    ),
    forward("brought_two", (2, 8, 9, 12), 40, (3, 1), chain="of_two", tiling=walks(box=(3, 12))),
    forward(
        "brought_halves",
        (2, 16, 5, 4, 8),
        70,
        (2, 1, 3),
        padding=1,
        dtype="float16",
        chain="summed",
        tiling=walks(box=(1, 3, 8)),
    ),
    forward("brought_to_the_last_row", (2, 8, 5, 26), 64, (1, 7), chain="summed", tiling=walks(box=(2, 20))),
    forward("brought_odd", (2, 8, 9, 10), 40, (2, 2), chain="summed", tiling=walks(box=(4, 9))),
    forward(
        "brought_to_three",
        (5, 8, 8, 8),
        64,
        (3, 1),
        chain="of_two",
        tiling=walks(box=(2, 8), groups=3, slots=4),
    ),
    forward("brought_in_pieces", (2, 8, 102), 12, (3,), chain="summed", tiling=walks(box=(32,))),
    forward("summed_in_rows", (2, 8, 9, 12), 40, (2, 2), chain="summed", tiling=walks(box=(3, 11))),
    forward("alone", (2, 8, 7, 9), 24, (2, 2), chain="alone", tiling=walks(box=(4, 8))),
    forward("alone_scaled", (2, 8, 9, 9), 24, (2, 2), chain="alone_scaled", tiling=walks(box=(3, 8))),
    transposed("at_stride_1", (2, 8, 9, 9), 16, (2, 2), padding=1, tiling=walks()),
]

BESIDE = [
    beside(case)
    for case in (
        forward("beside_sums", (3, 8, 6, 9), 70, (3, 2), chain="sums", tiling=walks()),
        forward("beside_planes", (3, 8, 8, 5, 9), 64, (2, 2, 2), chain="shifted",
                tiling=walks(box=(1, 3, 8), walk=4, slots=3)),
        forward("beside_idle", (2, 8, 4, 4, 8), 128, (2, 1, 1),
                tiling=walks(box=(1, 3, 8), walk=2, groups=3, slots=5)),
        forward("beside_brought", (3, 8, 5, 6, 10), 64, (2, 2, 3), chain="summed",
                tiling=walks(box=(1, 2, 8), walk=3, slots=3)),
        forward("beside_eights", (3, 8, 9, 20), 32, (3, 3), padding=1, tiling=walks(box=(2, 20))),
        forward("beside_fours", (3, 8, 9, 20), 13, (3, 3), padding=1, chain="shifted", tiling=walks(box=(2, 20))),
        forward("beside_halves", (2, 16, 5, 4, 8), 70, (2, 1, 3), padding=1, dtype="float16",
                tiling=walks(box=(1, 3, 8))),
        forward("beside_rows", (3, 8, 6, 7, 9), 24, (2, 2, 1), chain="shifted", tiling=walks(box=(1, 3, 9), walk=4)),
        forward("beside_row_sums", (2, 8, 9, 12), 40, (2, 2), chain="summed", tiling=walks(box=(3, 11))),
    )
]  # fmt: skip
"""Boxes that do not divide outputs, of one plane or several, run by run and by rows, channels fewer than a tile's."""
BROUGHT = (
    "brought",
    "brought_two",
    "brought_halves",
    "brought_odd",
    "brought_to_the_last_row",
    "brought_to_three",
    "brought_in_pieces",
    "narrow",
)
LEAVE_IN_RUNS = ("bulk", "one_stages", "bulk_halves", "bulk_bfloats", "three_teams", "at_stride_1", "sums", *BROUGHT)
TRIED = some(CASES, 6, lambda case: case.name == "bulk")
BESIDE_HERE = some(BESIDE, 8, lambda case: case.name in ("beside_planes", "beside_rows"))
SUMMED = [case for case in TRIED if case.chain in SUMS]


@pytest.fixture(scope="module")
def built() -> Built:
    return build([*TRIED, *BESIDE_HERE])


@pytest.mark.usefixtures("no_faults")
@pytest.mark.parametrize("case", TRIED, ids=lambda case: case.name)
def test_kernels_compute_what_pytorch_does(built: Built, case: Case) -> None:
    text = built.lowered[case.name].kernels[1].text
    assert ("* to = reinterpret_cast<uint4*>" in text) == (case.name in LEAVE_IN_RUNS)
    assert ("bulk_copy(" in text) == (case.name in (*BROUGHT, "alone_scaled"))
    assert case.chain in ALONE or is_right(built, case) == ""


@pytest.mark.usefixtures("no_faults")
@pytest.mark.parametrize("order", ["reverse", "random"])
def test_they_do_so_in_any_order_of_threads(built: Built, order: str) -> None:
    with emulator.schedule(order):
        assert is_right(built, next(case for case in CASES if case.name == "bulk")) == ""


@pytest.mark.usefixtures("no_faults")
@pytest.mark.parametrize("case", SUMMED, ids=lambda case: case.name)
def test_channel_sums_are_those_of_the_output(built: Built, case: Case) -> None:
    assert sums_are_right(built, case) == ""


@pytest.mark.usefixtures("no_faults")
@pytest.mark.parametrize("case", BESIDE_HERE, ids=lambda case: case.name)
def test_images_have_sums_of_their_own_beside_a_result(built: Built, case: Beside) -> None:
    assert row_sums_are_right(built, case) == ""
    assert is_right(built, case) == ""


def test_other_reductions_are_refused() -> None:
    """Maxima, what reads another reduction or a tensor, several results: by whoever divides, and if a division is
    given."""
    case = next(case for case in BESIDE if case.name == "beside_planes")
    conv, (off, square) = case.fused, case.fused.reductions
    assert division(conv, H200) and stream_division(conv, H200)
    whole = Operand("other", "float32", contiguous(case.correlation.out_shape))
    of_image = Operand("other", "float32", (64, 1, 0, 0, 0), shared=True)
    others = [
        replace(conv, reductions=(replace(off, kind="max"),)),
        replace(conv, reductions=(off, replace(square, expr=square.expr - off.leaf))),
        replace(conv, results=(*conv.results, replace(conv.results[0], name="again"))),
        *(
            replace(conv, operands=(*conv.operands, each), reductions=(replace(off, expr=off.expr * each.leaf),))
            for each in (whole, of_image)
        ),
    ]
    for other in others:
        assert division(other, H200) is None and stream_division(other, H200) is None
        with pytest.raises(MisuseError, match="beside one result at most"):
            lower_convolution(other, case.divided, TWO)


def test_rows_narrower_than_what_lanes_share_are_refused() -> None:
    """Of 16 channels lanes take every other eight of sixteen positions, which are to lie in two rows at most."""
    narrow = forward("too_narrow", (2, 8, 9, 10), 16, (2, 2), tiling=walks(box=(4, 9)))
    with pytest.raises(MisuseError, match="16 positions of planes 10 wide lie in more than two rows"):
        narrow.lowered()


# what cannot be left out

BULK, BROUGHT_IN = (next(case for case in CASES if case.name == name) for name in ("bulk", "brought"))
STAGED = "fence_proxy_async();\n                    mbarrier_arrive(full"
FINISHED = "wgmma_wait(sums);"
RELEASED = "\n                for (int s = 0; s < leave; ++s) mbarrier_arrive(empty + (stage + s) % 3);"
LEFT_OUT = {
    # what: in which case, text, in its place, what the emulator says
    "published input": (BULK, STAGED, STAGED.removeprefix("fence_proxy_async();"), "missing-proxy-fence"),
    "an output of all lanes": (BULK, "__syncwarp();\n                {", "{", "missing-syncwarp"),
    "input that has come": (
        BULK,
        "mbarrier_wait(full + (stage",
        "if (false) mbarrier_wait(full + (stage",
        "race-shared",
    ),
    "the other one's input": (
        BULK,
        "mbarrier_wait(full + stage",
        "if (false) mbarrier_wait(full + stage",
        "race-shared",
    ),
    "finished products": (BULK, FINISHED + RELEASED, RELEASED + FINISHED, "race-shared"),
    "operands that have come": (
        BROUGHT_IN,
        "mbarrier_wait(brings + threadIdx.x",
        "if (false) mbarrier_wait(brings + threadIdx.x",
        "race-shared",
    ),
    "a tile that has left": (
        BROUGHT_IN,
        "fence_proxy_async();\n                __syncwarp();",
        "fence_proxy_async();",
        "race-shared",
    ),
    "a tile that copies write": (
        BROUGHT_IN,
        "fence_proxy_async();\n                __syncwarp();",
        "__syncwarp();",
        "missing-proxy-fence",
    ),
}


LEFT_OUT_HERE = some(list(LEFT_OUT), 2)


@pytest.fixture(scope="module")
def mutants() -> Run:
    """The pack kernel and the other one of each case, without what is left out."""
    made: list[Lowered] = []
    types: list[dict[str, str]] = []
    for number, (case, text, instead, _) in enumerate(LEFT_OUT[what] for what in LEFT_OUT_HERE):
        lowered = case.lowered()
        order, whole = lowered.kernels
        assert text in whole.text
        changed = whole.text.replace(text, instead).replace(f" {whole.name}(", f" without_{number}(")
        packed = replace(order, name=f"pack_{number}", text=order.text.replace(f" {order.name}(", f" pack_{number}("))
        made.append(Lowered((packed, replace(whole, name=f"without_{number}", text=changed))))
        names = dict.fromkeys(("x", "weight", "out", "bias", "other"), "float32")
        types.append(names | {buffer.name: buffer.dtype for buffer in lowered.buffers})
    return loaded("warpgroup_mutants", made, types)


@pytest.mark.parametrize("what", LEFT_OUT_HERE)
def test_the_emulator_sees_what_is_left_out(mutants: Run, what: str) -> None:
    case, _, _, kind = LEFT_OUT[what]
    lowered, number = case.lowered(), 2 * LEFT_OUT_HERE.index(what)
    known = operands(case) | {"out": torch.zeros(case.correlation.out_shape)}
    known |= {each.name: torch.zeros(each.elements, dtype=DTYPES[each.dtype]) for each in lowered.buffers}
    emulator.forget()
    for order in ("forward", "reverse", "random"):
        with emulator.schedule(order):
            for at, kernel in enumerate(lowered.kernels):
                mutants(number + at, [known[name] for name in (*kernel.reads, *kernel.writes)])
    kinds = {fault.kind for fault in emulator.faults() if fault.kind != "never-ran"}
    assert kind in kinds


# which convolutions they are for


def test_the_benchmarks_convolution_can_go_to_warpgroups_on_hopper_alone() -> None:
    case = replace(BULK, correlation=P90, weight_shape=(64, 8, 3, 3, 3))
    lowered = lower_convolution(case.fused, division(case.fused, H200), H200)
    _, kernel = lowered.kernels
    assert flags([Host("run", {}, {}, {}, {}, (lowered,))]) == ["-O3", "-gencode=arch=compute_90a,code=sm_90a"]
    assert kernel.architecture == "sm_90a" and "m64n256k8" in "".join(kernel.preamble)
    assert "lane + j * 32 < left / 4" in kernel.text  # 992 bytes a channel, and fewer at the end
    assert division(case.fused, known_gpu("a100")) is None
    assert lower_convolution(case.fused, gpu=H200).kernels[1].text == kernel.text  # 1.5 ms and more by warps, measured
    portable = lower_convolution(case.fused, gpu=known_gpu("a100"))
    assert flags([Host("run", {}, {}, {}, {}, (portable,))]) == ["-O3"]
    assert not portable.kernels[1].architecture and "wgmma" not in "".join(portable.kernels[1].preamble)


@pytest.mark.parametrize(
    "case",
    [
        forward("strided", (2, 8, 9, 9), 64, (3, 3), stride=2),
        forward("grouped", (2, 16, 9, 9), 64, (3, 3), groups=2),
        forward("heavy", (2, 256, 9, 9), 256, (3, 3)),
    ],
    ids=lambda case: case.name,
)
def test_what_they_do_not_serve_is_left_to_warps(case: Case) -> None:
    assert division(case.fused, H200) is None
    assert not lower_convolution(case.fused, gpu=H200).kernels[1].architecture


def test_all_that_a_division_holds_fits() -> None:
    found = walk(P90, 4, H200)
    assert isinstance(found, Walks) and found.box == (1, 4, 62) and found.columns_of_b == 256
    assert found.slots >= found.span + found.groups - 1  # or warpgroups would wait for each other for ever
    assert found.shared_bytes <= H200.shared_memory_per_block_bytes


@pytest.mark.skipif(not hardware.nvcc(), reason="there is no nvcc here")
def test_nvcc_keeps_what_is_on_its_way_in_registers() -> None:
    """Of half types, 32 channels of three positions: as single halves they spilled 108 bytes."""
    case = forward("of_three", (2, 32, 96, 96), 64, (3, 3), dtype="bfloat16", chain="biased", tiling=walks(box=(1, 94)))
    assert case.divided.steps * STEP_UNITS * case.divided.unit == 32 and case.divided.staged_plane == (3, 96)
    texts: list[str] = []
    build([case], load=lambda **told: texts.append(told["cuda_sources"]))
    nvcc = find("sm_90a", COMMON_NVCC_FLAGS)
    assert nvcc is not None
    compiled = nvcc.kernels(texts[0], (), ())
    assert compiled
    assert [each.spill_store_bytes for each in compiled] == [0] * len(compiled), compiled
