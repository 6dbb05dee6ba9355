"""Gradients of weights by warpgroup instructions from those of windows, on the emulator against PyTorch's."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from conv_harness import TWO, Built, Case, build, forward, transposed
from pooled_harness import SpreadCase, is_spread_right

from crucible import emulator
from crucible.algebra.buffer import Buffer
from crucible.algebra.convolution.correlation import input_gradient, transposed_convolution
from crucible.algebra.convolution.windows import Spread, Spreads
from crucible.algebra.program import Operand, contiguous
from crucible.gpus import H200
from crucible.graph import ITEM_BYTES
from crucible.kinds.convolution.weights import lower_weight_for_warpgroups
from crucible.print.written import Lowered
from crucible.schedule.convolution.questions import WeightGradient
from crucible.schedule.convolution.warpgroup.weight_choice import best_weight_walks, weight_walk
from crucible.schedule.convolution.warpgroup.weight_walks import WeightWalks
from crucible.schedule.convolution.weights import chosen_for_weight
from support import some


@dataclass(frozen=True)
class WindowCase(SpreadCase):
    """The gradient of the weight alone, divided as estimated best, then changed."""

    changed: dict[str, int | bool] = field(default_factory=dict)
    is_turned: bool = True

    @property
    def division(self) -> WeightWalks:
        of, item = input_gradient(self.case.correlation), ITEM_BYTES[self.dtype]
        return replace(best_weight_walks(of, item, 1, TWO, Spread(self.sizes, "choice"))[0], **self.changed)

    @property
    def wanted(self) -> tuple[str, ...]:
        return ("grad_weight",)

    def lowered(self) -> Lowered:
        of, dtype = self.case.correlation, self.dtype
        grad, x = (
            Operand(name, dtype, contiguous(shape)) for name, shape in (("upstream", self.windows), ("x", of.in_shape))
        )
        each = lower_weight_for_warpgroups(self.name, self.division, grad, x, "grad_weight")
        elements = of.out_channels * of.in_channels * len(of.products)
        made = (Buffer("grad_weight", dtype, elements), Buffer("choice", "uint8", 1))  # given: its dtype counts
        return Lowered(each.kernels, (*made, *each.buffers))


def windows(case: Case, **changed: int | bool) -> WindowCase:
    return WindowCase(case, tuple(case.correlation.phases), is_held=False, changed=changed)


CASES = [
    windows(transposed("cubes", (2, 16, 4, 4, 8), 12, (3, 3, 3), stride=2, padding=1, output_padding=1)),
    windows(transposed("not_tiled", (2, 16, 4, 5, 8), 20, (3, 3, 3), stride=2, padding=1), rows=2, walk=3),
    windows(transposed("before", (2, 16, 3, 4, 10), 8, (3, 3, 3), stride=2)),
    windows(transposed("two_stage", (2, 16, 3, 8, 32), 24, (3, 3, 3), stride=2, padding=1, output_padding=1),
            rows=4, walk=2, stagers=2, channel_tiles=2, slots=2),
    windows(transposed("two_dims", (2, 16, 7, 12), 8, (4, 3), stride=2, padding=1)),
    windows(transposed("rows_alone", (2, 32, 6, 12), 8, (3, 4), stride=2, padding=1, output_padding=1)),
    windows(transposed("by_threes", (2, 16, 5, 8), 8, (4, 4), stride=3, padding=1)),
    windows(transposed("halves", (2, 16, 4, 6, 16), 16, (3, 3, 3), stride=2, padding=1, output_padding=1,
                       dtype="float16")),
    windows(transposed("bfloats", (2, 32, 8, 16), 8, (3, 3), stride=2, padding=1, dtype="bfloat16")),
]  # fmt: skip


TRIED = some(CASES, 3, lambda case: case.case.name in ("two_stage", "halves"))


@pytest.fixture(scope="module")
def built() -> Built:
    return build(TRIED)


@pytest.mark.usefixtures("no_faults")
@pytest.mark.parametrize("case", TRIED, ids=lambda case: case.name)
def test_kernels_compute_what_pytorch_does(built: Built, case: WindowCase) -> None:
    assert is_spread_right(built, case) == ""


@pytest.mark.usefixtures("no_faults")
@pytest.mark.parametrize("order", ["reverse", "random"])
def test_they_do_so_in_any_order_of_threads(built: Built, order: str) -> None:
    with emulator.schedule(order):
        assert is_spread_right(built, next(case for case in CASES if case.case.name == "two_stage")) == ""


@pytest.mark.parametrize(
    ("case", "spread"),
    [
        (transposed("other_windows", (2, 16, 8, 16), 8, (3, 3), stride=2, padding=1), Spread((2, 4), "choice")),
        (transposed("means", (2, 16, 8, 16), 8, (3, 3), stride=2, padding=1), Spread((2, 2))),
        (transposed("few_channels", (2, 12, 8, 16), 8, (3, 3), stride=2, padding=1), Spread((2, 2), "choice")),
        (transposed("elements_unread", (2, 16, 8, 16), 8, (1, 3), stride=2), Spread((2, 2), "choice")),
    ],
    ids=lambda each: each.name if isinstance(each, Case) else "",
)
def test_what_they_do_not_serve_is_declined(case: Case, spread: Spread) -> None:
    assert weight_walk(input_gradient(case.correlation), 4, H200, spread) is None


P74 = input_gradient(
    transposed_convolution((16, 16, 16, 32, 32), (16, 32, 3, 3, 3), [2] * 3, [1] * 3, [1] * 3, [1] * 3, 1)
)


def test_the_way_of_least_estimated_time_is_taken() -> None:
    source = Operand("upstream", "float32", contiguous((16, 32, 16, 32, 32)))
    grad = Operand("x", "float32", contiguous(P74.out_shape))
    found = chosen_for_weight(WeightGradient("p74", P74, source, grad, (Spread((2, 2, 2), "choice"), None)), H200)
    assert isinstance(found, WeightWalks)
    assert found.windows and found.moves and found.moves.places == (2, 2, 1)


def test_windows_of_the_gradient_are_for_warps() -> None:
    of = forward("pooled", (16, 16, 32, 32), 32, (3, 3), padding=1).correlation
    source, grad = (
        Operand("x", "float32", contiguous(of.in_shape)),
        Operand("y", "float32", contiguous((16, 32, 16, 16))),
    )
    spreads: Spreads = (None, Spread((2, 2), "choice"))
    assert not isinstance(chosen_for_weight(WeightGradient("pooled", of, source, grad, spreads), H200), WeightWalks)
