"""Gradients of weights by warpgroup instructions, on the emulator against PyTorch in float64."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from conv_harness import TWO, Built, Case, WeightCase, build, forward, is_right, transposed

from crucible import emulator
from crucible.algebra.convolution.correlation import Correlation, convolution
from crucible.algebra.convolution.fused import Convolution
from crucible.algebra.program import Operand, contiguous
from crucible.gpus import H200, Gpu, known_gpu
from crucible.graph import ITEM_BYTES
from crucible.kinds.convolution.backward import lower_product_backward
from crucible.kinds.convolution.weights import lower_weight_for_warpgroups
from crucible.print.written import Lowered
from crucible.schedule.convolution.warpgroup.weight_choice import best_weight_walks, weight_walk
from crucible.schedule.convolution.warpgroup.weight_shape import TEAMS
from crucible.schedule.convolution.warpgroup.weight_walks import WeightWalks
from support import some


@dataclass(frozen=True)
class HeldCase(WeightCase):
    """Divided as estimated best, then changed."""

    changed: dict[str, int | bool] = field(default_factory=dict)
    moves: tuple[int, ...] | None = None
    """How many there are of the gradient's channels along each dim."""

    @property
    def division(self) -> WeightWalks:
        ways = best_weight_walks(self.correlation, ITEM_BYTES[self.case.dtype], 10**6, TWO)
        walks = next(each for each in ways if (each.moves and each.moves.places) == self.moves)
        return replace(walks, **self.changed)

    def lowered(self) -> Lowered:
        of, dtype = self.correlation, self.case.dtype
        source, grad = (
            Operand("source", dtype, contiguous(of.in_shape)),
            Operand("grad", dtype, contiguous(of.out_shape)),
        )
        return lower_weight_for_warpgroups(self.name, self.division, source, grad, "result")


def held(case: Case, **changed: int | bool) -> HeldCase:
    return HeldCase(case, changed=changed)


def moved(case: Case, *moves: int, **changed: int | bool) -> HeldCase:
    return HeldCase(case, changed=changed, moves=moves)


WHOLE = {"together": True, "outer": 3, "channel_tiles": 1, "raw": 0}
"""All taps of three planes in a block."""
CASES = [
    held(forward("cubes", (2, 8, 5, 7, 8), 64, (3, 3, 3)), **WHOLE | {"rows": 2}),
    held(forward("one_dim", (3, 5, 40), 16, (3,), padding=1), raw=0),
    held(forward("two_dims", (2, 12, 7, 16), 72, (3, 2), padding=1), channel_tiles=2, raw=0),
    held(forward("odd", (2, 3, 6, 9), 20, (2, 3), padding=1), together=True, outer=1),
    held(forward("in_boxes", (1, 8, 6, 98), 64, (2, 3), dilation=2)),
    held(forward("strided", (2, 8, 5, 9, 16), 64, (3, 3, 3), stride=2, padding=1), **WHOLE),
    held(forward("walked", (1, 8, 8, 4, 8), 64, (2, 2, 2)), walk=3, slots=3, raw=0),
    held(forward("in_parts", (2, 8, 4, 7, 8), 64, (3, 3, 3)), **WHOLE | {"outer": 2}),
    held(forward("row_by_row", (2, 8, 4, 7, 8), 64, (2, 3, 3)), together=False, outer=6),
    held(forward("row_parts", (2, 8, 4, 7, 8), 64, (2, 3, 3)), together=False, outer=4),
    held(forward("halves", (2, 16, 5, 5, 20), 64, (3, 3, 3), padding=1, dtype="float16"), **WHOLE),
    held(forward("bfloats", (3, 8, 9, 16), 40, (3, 3), padding=1, dtype="bfloat16"), vector=4, width=32, raw=0),
    held(forward("strided_halves", (2, 8, 9, 18), 64, (3, 2), stride=2, padding=1, dtype="float16")),
    held(
        forward("brought", (1, 12, 7, 9, 16), 64, (3, 3, 3), padding=1),
        **WHOLE | {"raw": 3, "rows": 4, "slots": 4},
    ),
    held(
        forward("brought_strided", (2, 8, 7, 9, 16), 64, (3, 3, 3), stride=2, padding=1),
        raw=2,
        rows=2,
        walk=2,
    ),
    held(forward("brought_row", (3, 8, 40), 16, (3,), padding=1), raw=3),
    held(forward("brought_halves", (3, 20, 9, 16), 64, (3, 3), dtype="float16"), raw=3),
    held(forward("each_once", (2, 8, 5, 8, 34), 64, (3, 3, 3), padding=1), **WHOLE | {"rows": 2, "walk": 3}),
    held(
        transposed("two_stage", (1, 16, 3, 8, 32), 12, (3, 3, 3), stride=2, padding=1, output_padding=1),
        **WHOLE | {"raw": 3, "rows": 4, "slots": 5, "vector": 4, "walk": 2, "stagers": 2},
    ),
    held(forward("two_stage_others", (2, 12, 5, 9, 16), 64, (3, 3, 3), padding=1), **WHOLE | {"raw": 2, "stagers": 2}),
    held(forward("two_load", (2, 20, 7, 16), 64, (3, 3), dtype="bfloat16"), stagers=2, raw=0),
    moved(transposed("both", (2, 16, 4, 4, 8), 12, (3, 3, 3), stride=2, padding=1, output_padding=1), 2, 2, 1),
    moved(transposed("both_odd", (2, 16, 4, 5, 7), 12, (3, 3, 3), stride=2, padding=1), 2, 2, 1, rows=2, walk=3),
    moved(transposed("planes", (2, 32, 4, 5, 16), 8, (3, 3, 3), stride=2), 2, 1, 1, walk=2),
    moved(
        transposed("rows", (1, 32, 4, 8, 32), 8, (3, 3, 3), stride=2, padding=1, output_padding=1),
        1,
        2,
        1,
        rows=4,
        raw=3,
        slots=5,
        vector=4,
        walk=2,
        stagers=2,
    ),
    moved(forward("moved_left", (2, 8, 9, 20), 16, (5, 3), stride=2), 1, 3, 1),
    moved(forward("moved_by_thirds", (2, 12, 13, 23), 32, (4, 5), stride=3, padding=2), 1, 2, 1),
    moved(forward("moved_beyond", (2, 8, 8, 20), 16, (4, 3), stride=2, padding=3, dtype="float16"), 1, 3, 1, rows=2),
    held(transposed("turned", (2, 8, 3, 4, 8), 16, (3, 3, 3), stride=2, padding=1, output_padding=1)),
    held(transposed("at_stride_1", (2, 8, 9, 9), 16, (2, 2), padding=1)),
]


@pytest.mark.parametrize(("dilation", "is_moved"), [(1, {False}), (2, {True, False})])
def test_nothing_is_moved_to_taps_that_are_not_equally_spaced(dilation: int, is_moved: set[bool]) -> None:
    """At stride 4 those of -1, 0 and 1 would be 0, 1 and 3, those of -1, 1 and 3 only 1 and 3. It raised (KernelBench
    level 1 task 81)."""
    layer = transposed("apart", (2, 16, 9, 16), 8, (3, 3), stride=4, padding=1, dilation=dilation)
    ways = best_weight_walks(HeldCase(layer).correlation, 4, 10**6, TWO)
    assert {each.moves is not None for each in ways} == is_moved


TRIED = some(CASES, 6, lambda case: case.name == "walked_weight")


@pytest.fixture(scope="module")
def built() -> Built:
    return build(TRIED)


@pytest.mark.usefixtures("no_faults")
@pytest.mark.parametrize("case", TRIED, ids=lambda case: case.name)
def test_kernels_compute_what_pytorch_does(built: Built, case: HeldCase) -> None:
    assert is_right(built, case) == ""


P90 = convolution((128, 8, 16, 64, 64), (64, 8, 3, 3, 3), (1, 1, 1), (0, 0, 0), (1, 1, 1), 1)


def test_a_weight_whose_sums_fit_in_registers_is_divided_so() -> None:
    """27 taps of eight channels are 108 sums a thread, by instructions of 72 columns each."""
    found = weight_walk(P90, 4, H200)
    assert found is not None
    assert (found.parts, found.columns, found.sums, found.vector) == (1, 72, 108, 2)


P38 = WeightCase(transposed("p38", (32, 32, 16, 32, 32), 64, (3, 3, 3), 2, 1, 1)).correlation


def test_where_staging_takes_longest_two_warpgroups_stage() -> None:
    """P38's 32 channels are rows twice, a row of positions on: six taps of three rows in the stead of nine."""
    found = weight_walk(P38, 4, H200)
    assert found is not None and found.moves is not None
    assert (found.stagers, found.moves.places, found.columns, found.outer) == (2, (1, 2, 1), 48, 3)
    assert (TEAMS * found.registers + found.stagers * found.staging_registers) * 128 <= 65536
    assert found.total_clocks < min(
        each.total_clocks for each in best_weight_walks(P38, 4, 99, H200) if each.stagers == 1
    )


@pytest.mark.parametrize(("exact", "architecture"), [(False, "sm_90a"), (True, "")])
def test_backward_takes_the_way_of_least_estimated_time(exact: bool, architecture: str) -> None:
    source = Operand("x", "float32", contiguous(P90.in_shape))
    shape = (64, 8, 3, 3, 3)
    weight = Operand("weight", "float32", contiguous(shape))
    conv = Convolution("p90", P90, source, weight, shape, (), (), exact=exact)
    (step,) = lower_product_backward(conv, ["weight"], "upstream").steps
    assert isinstance(step, Lowered)
    assert step.kernels[0].architecture == architecture


@pytest.mark.parametrize(
    ("of", "gpu"),
    [
        (forward("grouped", (2, 16, 8, 16), 64, (3, 3), groups=2).correlation, TWO),
        (forward("other", (2, 8, 8, 16), 64, (3, 3)).correlation, known_gpu("a100")),
        (transposed("phases", (2, 8, 8, 16), 64, (2, 2), stride=2).correlation, TWO),
    ],
    ids=["groups", "GPU", "phases"],
)
def test_what_they_do_not_serve_is_declined(of: Correlation, gpu: Gpu) -> None:
    assert weight_walk(of, 4, gpu) is None


@pytest.mark.usefixtures("no_faults")
@pytest.mark.parametrize("order", ["reverse", "random"])
def test_they_do_so_in_any_order_of_threads(built: Built, order: str) -> None:
    with emulator.schedule(order):
        assert is_right(built, next(case for case in CASES if case.name == "walked_weight")) == ""
