"""Transposed convolutions with a pool over their phases by warpgroup instructions, on the emulator against PyTorch in
float64, with what they keep for backward."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from conv_harness import TWO, Built, Case, Tensors, build, forward, transposed
from launcher import loaded
from pooled_harness import PooledCase, is_right, operands

from crucible import emulator
from crucible.algebra.convolution.fused import Convolution
from crucible.gpus import H200, known_gpu
from crucible.print.written import Lowered
from crucible.schedule.convolution.choice import chosen
from crucible.schedule.convolution.tiling import Tiling
from crucible.schedule.convolution.warpgroup.pooled import PooledWalks, pool_division
from support import some


def pooled(name: str, shape: tuple[int, ...], made: int, size: int = 3, output_padding: int = 1, stride: int = 2,
           chain: str = "bent", kind: str = "max", dtype: str = "float32", gradients: bool = False,
           **changed: int | tuple[int, ...]) -> PooledCase:  # fmt: skip
    """A pool over the phases of a transposed convolution of padding 1; `changed` is of the best division."""
    rank = len(shape) - 2

    def division(conv: Convolution) -> Tiling:
        found = pool_division(conv, TWO)
        assert found is not None
        return replace(found, **changed)  # type: ignore[arg-type]

    of = transposed(name, shape, made, (size,) * rank, stride=stride, padding=1, output_padding=output_padding,
                    dtype=dtype)  # fmt: skip
    return PooledCase(of, kind, (stride,) * rank, chain, division=division, gradients=gradients)


ROWS = pooled("rows", (1, 9, 4, 3, 7), 20, 3, 0, box=(1, 2, 7), walk=2, groups=2, slots=5, channels=32)
CASES = [
    ROWS,
    pooled("whole", (1, 8, 32), 32, box=(32,), channels=32, gradients=True),
    pooled("two_tiles", (2, 8, 3, 12), 40, chain="clamped", box=(2, 12), channels=32),
    pooled("rows_of_one_phase", (1, 8, 5, 12), 70, chain="falling", box=(3, 12), channels=64),
    pooled("kernel_of_four", (1, 8, 3, 2, 9), 24, 4, 0, box=(1, 2, 9), walk=3, groups=2, channels=32),
    pooled("in_pieces", (1, 32, 4, 45), 32, 4, 0, chain="none", box=(3, 32), slots=2, channels=32),
    pooled("three_teams", (1, 40, 5, 2, 8), 32, box=(1, 1, 8), walk=5, groups=3, slots=6, channels=32),
    pooled("stride_of_three", (1, 8, 2, 10), 64, 5, 0, stride=3, chain="folded", box=(2, 10)),
    pooled("mean", (1, 8, 4, 9), 20, kind="avg", chain="scaled", box=(2, 9), channels=64),
    pooled("halves", (1, 20, 3, 4, 8), 32, dtype="float16", box=(1, 2, 8), walk=3, groups=2),
    pooled("bfloats", (2, 20, 21), 50, 4, 0, dtype="bfloat16"),
]
WITH_NAN = ("rows", "rows_of_one_phase", "mean")
TRIED = some(CASES, 6, lambda case: case.case.name in WITH_NAN)
SIGNED = [case for case in TRIED if case.chain in ("bent", "falling")]
"""Whose chain has a direction that a sign decides for each channel."""
P74 = transposed("p74", (16, 16, 16, 32, 32), 32, (3, 3, 3), stride=2, padding=1, output_padding=1)


@pytest.fixture(scope="module")
def built() -> Built:
    return build(TRIED)


@pytest.mark.usefixtures("no_faults")
@pytest.mark.parametrize("case", TRIED, ids=lambda case: case.name)
def test_kernels_compute_what_pytorch_does(built: Built, case: PooledCase) -> None:
    assert [kernel.architecture for kernel in built.lowered[case.name].kernels[:2]] == ["sm_90a"] * 2
    assert is_right(built, case) == ""


@pytest.mark.usefixtures("no_faults")
@pytest.mark.parametrize("name", WITH_NAN)
def test_nan_comes_out_where_it_does_in_pytorch(built: Built, name: str) -> None:
    """And infinity where rows are of one phase: of two, it is multiplied by the zeros among the weights."""
    case = next(case for case in TRIED if case.case.name == name)

    def change(known: Tensors) -> None:
        x = known["x"].flatten()
        x[:: math.ceil(x.numel() / 3)] = math.nan
        x[1 :: math.ceil(x.numel() / 2)] = math.nan if name == "rows" else math.inf

    assert is_right(built, case, change) == ""


@pytest.mark.usefixtures("no_faults")
@pytest.mark.parametrize("case", SIGNED, ids=lambda case: case.name)
def test_the_largest_is_followed_where_all_channels_have_a_direction(built: Built, case: PooledCase) -> None:
    """Numbers that are drawn have zeros among them, and warps of such channels compare values."""

    def change(known: Tensors) -> None:
        known["scale"][known["scale"] == 0] = -0.5
        if case.case.name in ("rows", "rows_of_one_phase"):  # others multiply it by zeros among the weights
            known["x"].flatten()[:: math.ceil(known["x"].numel() / 3)] = math.nan

    assert is_right(built, case, change) == ""


@pytest.mark.usefixtures("no_faults")
@pytest.mark.parametrize("case", [case for case in SIGNED if not case.gradients], ids=lambda case: case.name)
@pytest.mark.parametrize("number", [0.0, math.nan, -1e30, 1e-30])
def test_channels_without_a_direction_compare_values(built: Built, case: PooledCase, number: float) -> None:
    """Infinity times 0 is NaN, of several NaN the last is chosen, of equal values the first."""

    def change(known: Tensors) -> None:
        known["scale"][::3] = number
        if case.case.name == "rows_of_one_phase":  # infinity is multiplied by zeros among the weights
            known["x"].flatten()[:: math.ceil(known["x"].numel() / 3)] = math.inf
            known["bias"][4::9] = -math.inf

    assert is_right(built, case, change) == ""


@pytest.mark.usefixtures("no_faults")
@pytest.mark.parametrize("order", ["reverse", "random"])
def test_they_do_so_in_any_order_of_threads(built: Built, order: str) -> None:
    with emulator.schedule(order):
        assert is_right(built, ROWS) == ""


# what cannot be left out

LEFT_OUT = {
    # what: text, in its place, what the emulator says
    "weights that are none": (
        "*reinterpret_cast<Pack<unsigned, 4>*>(weights + p * 4) = none;",
        "(void)p;",
        "uninitialised-shared",
    ),
    "zeros around": ("row[spot] = uint4{}", "(void)row", "uninitialised-shared"),
    "published weights": (
        "fence_proxy_async();\n        mbarrier_arrive(provided)",
        "mbarrier_arrive(provided)",
        "missing-proxy-fence",
    ),
    "waiting for weights": ("mbarrier_wait(provided, 0);", "", "race-shared"),
    "waiting for each plane": ("mbarrier_wait(full + stage % 5, stage / 5 % 2);", "", "race-shared"),
    "published input": (
        "fence_proxy_async();\n                        mbarrier_arrive(full",
        "mbarrier_arrive(full",
        "missing-proxy-fence",
    ),
    "input that later elements read": ("if (own == 3)", "if (own == 2)", "race-shared"),
}


def test_the_emulator_sees_what_is_left_out() -> None:
    whole, _ = ROWS.lowered().kernels
    made = []
    for number, (text, instead, _) in enumerate(LEFT_OUT.values()):
        assert text in whole.text
        changed = whole.text.replace(text, instead).replace(f" {whole.name}(", f" without_{number}(")
        made.append(replace(whole, name=f"without_{number}", text=changed))
    known = operands(ROWS)
    left = torch.zeros(ROWS.fused.made_shape)
    types = dict.fromkeys(("x", "weight", "out", "bias", "scale", "other"), "float32")
    run = loaded("pool_mutants", [Lowered(tuple(made))], [types])
    tensors = [left if name == "out" else known[name] for name in (*whole.reads, *whole.writes)]
    for number, (what, (_, _, kind)) in enumerate(LEFT_OUT.items()):
        emulator.forget()
        run(number, tensors)
        assert kind in {fault.kind for fault in emulator.faults()}, what


# which convolutions they are for


def test_the_benchmarks_pooled_convolution_goes_to_warpgroups_on_hopper_alone() -> None:
    conv = PooledCase(P74, "max", (2, 2, 2), "bent").fused
    found = chosen(conv, H200)
    assert isinstance(found, PooledWalks) and found.pairs and found.columns_of_b == 128
    assert found.shared_bytes <= H200.shared_memory_per_block_bytes
    assert found.slots >= found.span * found.groups  # or warpgroups would wait for each other for ever
    assert found.staged_plane[1] == 32  # what is outside in every item is never loaded
    assert sum(map(len, found.multiplied)) == 36 / found.steps  # of two phases each: 18 where the phases have 27 taps
    assert not isinstance(chosen(conv, known_gpu("a100")), PooledWalks)


@pytest.mark.parametrize(
    ("case", "sizes"),
    [
        (transposed("grouped", (2, 16, 9, 9), 64, (3, 3), stride=2, groups=2), (2, 2)),
        (transposed("heavy", (2, 256, 9, 9), 256, (3, 3), stride=2), (2, 2)),
        (transposed("without_taps", (2, 8, 9, 9), 64, (1, 1), stride=2), (2, 2)),
        (transposed("exact", (2, 8, 9, 9), 64, (3, 3), stride=2, exact=True), (2, 2)),
        (transposed("other_windows", (2, 8, 9, 9), 64, (3, 3), stride=2), (4, 2)),
        (forward("without_phases", (2, 8, 9, 9), 64, (3, 3)), (2, 2)),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
def test_what_they_do_not_serve_is_left_to_warps(case: Case, sizes: tuple[int, ...]) -> None:
    assert pool_division(PooledCase(case, "max", sizes, "bent").fused, H200) is None
