"""Convolutions of several phases by warpgroup instructions, and reductions of their rows, on the emulator against
PyTorch in float64."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import pytest
import reducing_harness
import torch
from conv_harness import (
    ALONE,
    NEAR,
    SUMS,
    TWO,
    Built,
    Case,
    backward,
    build,
    forward,
    is_right,
    operands,
    sums_are_right,
    transposed,
    wanted,
)
from launcher import loaded
from reducing_harness import Reducing, wrong

from crucible import emulator
from crucible.algebra.convolution.fused import Convolution
from crucible.algebra.program import Operand
from crucible.gpus import H200, known_gpu
from crucible.kinds.convolution.lower import lower_convolution
from crucible.print.written import Lowered
from crucible.schedule.convolution.choice import chosen
from crucible.schedule.convolution.tiling import Tiling
from crucible.schedule.convolution.warpgroup.phases import PhaseWalks, best_phase_walks, phase_division, walk_phases
from crucible.schedule.convolution.warpgroup.streams import Streams
from support import some

P38 = transposed("p38", (32, 32, 16, 32, 32), 64, (3, 3, 3), stride=2, padding=1, output_padding=1)


def phases(**changed: int | tuple[int, ...]) -> Callable[[Tiling], Tiling]:
    """The best division, changed."""

    def chosen(tiling: Tiling) -> Tiling:
        found = walk_phases(tiling.made, tiling.unit, TWO)
        assert found is not None
        return replace(found, **changed)  # type: ignore[arg-type]

    return chosen


def doubled(name: str, shape: tuple[int, ...], made: int, size: int = 3, output_padding: int = 1,
            stride: int = 2, **changed: object) -> Case:  # fmt: skip
    """A transposed convolution of padding 1; `changed` is of its case, the rest of its division."""
    of_case = {key: changed.pop(key) for key in ("chain", "dtype") if key in changed}
    kernel, way = (size,) * (len(shape) - 2), phases(**changed)  # type: ignore[arg-type]
    more = {"padding": 1, "output_padding": output_padding}
    return transposed(name, shape, made, kernel, stride=stride, tiling=way, **more, **of_case)  # type: ignore[arg-type]


CASES = [
    doubled("one_dim", (3, 8, 21), 16),
    doubled("two_dims", (2, 8, 5, 12), 40, chain="shifted", box=(2, 12)),
    doubled("odd", (2, 8, 5, 9), 70, output_padding=0, chain="shifted", box=(3, 9)),
    doubled("shares", (2, 16, 4, 5, 8), 64, chain="shifted", box=(1, 2, 8), walk=2, slots=4, together=2),
    doubled("one_by_one", (1, 8, 4, 3, 8), 32, output_padding=0, box=(1, 2, 8), walk=3, slots=4, together=1),
    doubled("all_together", (1, 8, 3, 3, 8), 64, box=(1, 3, 8), walk=3, slots=3, together=4),
    doubled("kernel_of_four", (2, 8, 4, 3, 9), 64, 4, output_padding=0, box=(1, 3, 9), walk=4, slots=5, groups=2),
    doubled("three_teams", (2, 8, 4, 3, 8), 64, box=(1, 3, 8), walk=4, slots=5, groups=3, together=2),
    doubled("threes", (2, 8, 7, 9), 64, 5, output_padding=0, stride=3, box=(2, 9), groups=3, together=3),
    doubled("more_than_teams", (2, 8, 5, 3, 8), 64, box=(1, 3, 8), walk=3, slots=5, groups=3, together=4),
    doubled("fewer_than_teams", (3, 8, 5, 3, 8), 64, box=(1, 3, 8), walk=2, slots=5, groups=3, together=1),
    doubled("odd_channels", (2, 6, 5, 3, 8), 40, box=(1, 3, 8), walk=5, slots=3, together=2),
    doubled("plane_by_plane", (3, 8, 5, 3, 8), 64, chain="shifted", box=(1, 3, 8), walk=1, slots=3, together=2),
    doubled("reads_shares", (2, 8, 3, 4, 8), 64, chain="biased", box=(1, 2, 8), walk=2, slots=3, together=4),
    doubled("in_pieces", (1, 8, 4, 45), 64, 4, output_padding=0, box=(2, 32)),
    doubled("stride_of_three", (2, 8, 4, 10), 64, 5, output_padding=0, stride=3, chain="shifted", box=(2, 10)),
    doubled("halves", (2, 16, 3, 4, 8), 64, dtype="float16", box=(1, 2, 8), walk=3, slots=4),
    doubled("bfloats", (2, 20, 5, 8), 130, 4, output_padding=0, dtype="bfloat16", chain="shifted"),
    doubled("reads", (2, 8, 5, 12), 40, chain="biased", box=(2, 12)),
    doubled("reads_odd", (2, 8, 5, 9), 70, output_padding=0, chain="biased", box=(3, 9)),
    doubled("reads_pieces", (1, 8, 4, 45), 64, 4, output_padding=0, chain="biased", box=(2, 32)),
    doubled("reads_thirds", (2, 8, 4, 10), 64, 5, output_padding=0, stride=3, chain="biased", box=(2, 10)),
    doubled("reads_halves", (2, 20, 5, 8), 130, 4, output_padding=0, dtype="float16", chain="biased"),
    doubled("sums", (2, 8, 5, 12), 70, chain="summed", box=(2, 12)),
    doubled(
        "sums_by_shares", (2, 8, 4, 3, 8), 64, chain="of_two", box=(1, 3, 8), walk=4, slots=5, groups=3, together=2
    ),
    doubled("sums_alone", (2, 8, 5, 9), 24, output_padding=0, chain="alone_scaled", box=(3, 9)),
    backward(forward("of_strides", (2, 24, 9, 12), 40, (3, 3), stride=2, padding=1, tiling=phases())),
]
SHARES = next(case for case in CASES if case.name == "shares")


@dataclass(frozen=True)
class Laid(Case):
    """A case that reads `other` in a layout of its own."""

    strides: tuple[int, ...] = ()

    @property
    def fused(self) -> Convolution:
        whole = super().fused
        return replace(whole, operands=tuple(self._laid(each) for each in whole.operands))

    def _laid(self, operand: Operand) -> Operand:
        return replace(operand, strides=self.strides) if operand.name == "other" else operand


def laid(name: str, *strides: int) -> Laid:
    """Of [2, 40, 10, 24] outputs."""
    of = doubled(name, (2, 8, 5, 12), 40, chain="biased", box=(2, 12))
    return Laid(**{each.name: getattr(of, each.name) for each in fields(Case)}, strides=strides)


LAID = [
    laid("channels_last", 9600, 1, 960, 40),
    laid("of_rows", 400, 10, 1, 0),
    laid("of_rows_apart", 10400, 260, 26, 1),
]


TRIED = some(CASES, 6, lambda case: case is SHARES)


@pytest.fixture(scope="module")
def built() -> Built:
    return build([*TRIED, *LAID])


@pytest.mark.usefixtures("no_faults")
@pytest.mark.parametrize("case", TRIED, ids=lambda case: case.name)
def test_kernels_compute_what_pytorch_does(built: Built, case: Case) -> None:
    assert built.lowered[case.name].kernels[1].architecture == "sm_90a"
    assert case.chain in ALONE or is_right(built, case) == ""
    assert case.chain not in SUMS or sums_are_right(built, case) == ""


@pytest.mark.usefixtures("no_faults")
@pytest.mark.parametrize("case", LAID, ids=lambda case: case.name)
def test_what_chains_read_may_lie_in_any_way(built: Built, case: Laid) -> None:
    known, shape = operands(case), case.correlation.out_shape
    memory = torch.randn(1 + sum((n - 1) * stride for n, stride in zip(shape, case.strides, strict=True)))
    (right, size), found = (
        wanted(case, known | {"other": memory.as_strided(shape, case.strides)}),
        built(case, known | {"other": memory})["out"],
    )
    assert ((found.double() - right).abs() / (size + right.abs() + 0.05)).max() < NEAR["float32"]


@pytest.mark.usefixtures("no_faults")
@pytest.mark.parametrize("order", ["reverse", "random"])
def test_they_do_so_in_any_order_of_threads(built: Built, order: str) -> None:
    with emulator.schedule(order):
        assert is_right(built, SHARES) == ""


# what cannot be left out

NEWEST, LEAVES = "mbarrier_wait(full + slot_1, lap ^ (slot_1 < slot));", "mbarrier_arrive(empty + slot);\n"
STAGED = f"fence_proxy_async();\n{' ' * 24}mbarrier_arrive(full"
LEFT_OUT = {
    # what: texts and those in their place, what the emulator says
    "zeros around": ({"ring[p] = uint4{}": "(void)p"}, "uninitialised-shared"),
    "published input": ({STAGED: STAGED.removeprefix("fence_proxy_async();")}, "missing-proxy-fence"),
    "the newest plane": ({NEWEST: "mbarrier_wait(full + slot, lap);"}, "race-shared"),
    "products before their plane leaves": ({LEAVES: "", NEWEST: NEWEST + LEAVES}, "race-shared"),
}


def test_the_emulator_sees_what_is_left_out() -> None:
    order, whole = SHARES.lowered().kernels
    made = [order]
    for number, (changes, _) in enumerate(LEFT_OUT.values()):
        changed = whole.text.replace(f" {whole.name}(", f" without_{number}(")
        for text, instead in changes.items():
            assert text in changed
            changed = changed.replace(text, instead)
        made.append(replace(whole, name=f"without_{number}", text=changed))
    types = dict.fromkeys(("x", "weight", "out", "bias"), "float32") | {f"{SHARES.name}_packed": "int32"}
    run = loaded("phase_mutants", [Lowered(tuple(made))], [types])
    known = operands(SHARES)
    packed = torch.zeros(SHARES.lowered().buffers[0].elements, dtype=torch.int32)
    run(0, [known["weight"], packed])
    for number, (_, kind) in enumerate(LEFT_OUT.values()):
        emulator.forget()
        with contextlib.suppress(RuntimeError):  # barriers that are ahead of their waiters end a launch
            run(1 + number, [known["x"], packed, known["bias"], torch.zeros(SHARES.correlation.out_shape)])
        assert kind in {fault.kind for fault in emulator.faults()}


# reductions of rows

ROWS = [
    Reducing(transposed("p38", (1, 32, 4, 6, 16), 60, (3, 3, 3), stride=2, padding=1, output_padding=1), "bounded"),
    Reducing(
        transposed("tiles", (1, 32, 3, 3, 8), 130, (3, 3, 3), stride=2, padding=1, output_padding=1, dtype="float16"),
        "bounded",
    ),
    Reducing(transposed("bfloats", (1, 32, 4, 24), 40, (4, 4), stride=2, padding=1, dtype="bfloat16"), "mean"),
    Reducing(transposed("flat", (2, 32, 9, 25), 64, (4, 4), stride=2, padding=1), "normal"),
    Reducing(transposed("in_pieces", (2, 32, 300), 64, (4,), stride=2, padding=1), "bounded", ()),
    Reducing(transposed("compared", (2, 32, 9, 24), 64, (4, 4), stride=2, padding=1), "largest", ()),
]


@pytest.mark.usefixtures("no_faults")
def test_rows_are_reduced_as_pytorch_does() -> None:
    tried = some(ROWS, len(ROWS))
    built = reducing_harness.build(tried)
    assert {case.name: wrong(built, case) for case in tried} == {case.name: [] for case in tried}


@pytest.mark.parametrize(("width", "by_warpgroups"), [(10, False), (32, True)])
def test_rows_that_fill_sectors_partly_are_for_warps(width: int, by_warpgroups: bool) -> None:
    """Rows of 19 floats: a module took 1.37 ms by warpgroups, 0.69 by warps (H200)."""
    more = {"output_padding": 1} if width == 32 else {}
    conv = transposed("short", (32, 3, 24, 37, width), 64, (3, 3, 3), stride=2, padding=1, **more).fused
    assert isinstance(chosen(conv, H200), PhaseWalks) is by_warpgroups


def test_which_passes_over_rows_are_for_warpgroups() -> None:
    by_warpgroups = {case.name: [k.name for k in case.lowered.kernels if k.architecture] for case in ROWS}
    assert {name: len(found) for name, found in by_warpgroups.items()} == {
        "p38_bounded": 5,  # forward and backward, which reads a gradient of the output's size; the input's gradient
        "tiles_bounded": 5,
        "bfloats_mean": 3,  # backward, too: by warps the gradient that it reads costs instructions
        "flat_normal": 5,  # a pass goes on from rows of the one before; one reads two tensors
        "in_pieces_bounded": 2,  # which writes: where only sums are made, warps are estimated to be faster
        "compared_largest": 0,  # a gradient of the maximum would ask which products are equal to it
    }


# which convolutions they are for


def test_the_benchmarks_transposed_convolution_goes_to_warpgroups_on_hopper_alone() -> None:
    found = phase_division(P38.fused, H200)
    assert isinstance(found, PhaseWalks) and sum(found.dealt) == H200.sms
    assert found.shared_bytes <= H200.shared_memory_per_block_bytes
    assert found.slots >= found.span + found.groups - 1  # or warpgroups would wait for each other for ever
    assert found.staged_plane[1] == 32 and found.plane[1] == 33  # what is outside in every item is never loaded
    _, kernel = lower_convolution(P38.fused, gpu=H200).kernels
    assert kernel.architecture == "sm_90a" and "store(out_row" in kernel.text and "out_pack.at[k]" in kernel.text
    assert phase_division(P38.fused, known_gpu("a100")) is None


def test_what_its_chain_reads_is_asked_for_before_its_turn_comes() -> None:
    case = replace(P38, chain="biased")
    found = phase_division(case.fused, H200)
    assert found is not None and found.fetched == 4 and found.held <= found.registers == 208
    _, kernel = lower_convolution(case.fused, gpu=H200).kernels
    steps = ("setmaxnreg_inc<208>();", "other_ahead[i][j][0] = load<4>(", "mbarrier_wait(full + slot_1")
    places = [
        kernel.text.index(step) for step in (*steps, "wgmma_fence();", "wgmma_wait(", "other_value = other_ahead")
    ]
    assert places == sorted(places)


MEASURED = {
    # box, tensors written, bytes read for an output, instructions of its chain, blocks of each share: ms of P38's
    # passes on an H200 by two warpgroups with two outer phases, no turns, and slots found by divisions
    ((1, 3, 32), 0, 0, 10, (51, 81)): 0.287,
    ((1, 2, 32), 1, 0, 12, (66, 66)): 0.420,
    ((1, 2, 32), 0, 4, 10, (66, 66)): 0.412,
    ((1, 2, 32), 1, 4, 16, (66, 66)): 0.706,
}


@pytest.mark.parametrize("way", MEASURED)
def test_estimates_are_near_what_was_measured(
    way: tuple[tuple[int, int, int], int, int, int, tuple[int, int]],
) -> None:
    """As those kernels were: around a phase's products and chain they took 850 clocks."""
    box, tensors, fetched, issued, dealt = way
    ways = best_phase_walks(P38.correlation, 4, 40, H200, tensors, fetched, issued)
    found = next(each for each in ways if (each.box, each.groups, each.together) == (box, 2, 2))
    machine = found.machine
    found = replace(found, machine=replace(machine, phases=replace(machine.phases, turn_clocks=850)))
    longest = max(found.time_of(part, blocks) for part, blocks in enumerate(dealt)) * H200.sms
    assert 0.9 < max(longest, found.moved) / H200.sms / 1.78e6 / MEASURED[way] < 1.1


def test_shares_are_dealt_by_what_they_take() -> None:
    found = walk_phases(P38.correlation, 4, H200, 0)
    assert found is not None and found.shares > 1
    times = [-(-found.items // n) * found.clocks_of(s) for s, n in enumerate(found.dealt)]
    assert max(times) < 1.2 * min(times)


@pytest.mark.parametrize(
    "case",
    [
        transposed("grouped", (2, 16, 9, 9), 64, (3, 3), stride=2, groups=2),
        transposed("heavy", (2, 256, 9, 9), 256, (3, 3), stride=2),
        transposed("without_taps", (2, 8, 9, 9), 64, (1, 1), stride=2),
    ],
    ids=lambda case: case.name,
)
def test_what_they_do_not_serve_is_left_to_warps(case: Case) -> None:
    assert phase_division(case.fused, H200) is None
    assert not lower_convolution(case.fused, gpu=H200).kernels[1].architecture


def test_where_float32_is_kept_streams_make_phases() -> None:
    case = transposed("exact", (2, 8, 9, 9), 64, (3, 3), stride=2, exact=True)
    assert phase_division(case.fused, H200) is None
    assert isinstance(chosen(case.fused, H200), Streams)
