"""Roofline, kernels and marked sources, before they are drawn."""

from __future__ import annotations

import dataclasses
import itertools
import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from recorded import FLOOR, timed, whole_run

from crucible.contract import CONTRACTS
from crucible.judge.verdict.evidence import Costs, Finding, Kernel, NotMeasured
from crucible.judge.verdict.kernel_names import short
from crucible.judge.verdict.verdict import Passed, Verdict
from crucible.report.page.kernels import timeline
from crucible.report.page.roofline import BOTTOM, LEFT, MOST_LABELS, RIGHT, TEXT, TOP, plot, work_of
from crucible.report.page.source import AROUND, source_of
from crucible.roofline import Rates, Work, floor
from crucible.run import Run

amounts = st.integers(1000, 10**15)
rates = st.floats(0.1, 1e6)


@given(amounts, amounts, rates, rates)
def test_a_floors_words_say_what_it_was_made_of(moved: int, flops: int, bandwidth: float, rate: float) -> None:
    made = floor(Work("forward", moved, flops, 0), Rates(bandwidth, rate, rate, rate, "made up"), CONTRACTS["tf32"])
    found = work_of(made)
    assert found is not None
    for value, exact in ((found.bytes_moved, moved), (found.flops, flops), (found.bandwidth, bandwidth * 1e9)):
        assert math.isclose(value, exact, rel_tol=0.01)
    assert math.isclose(found.rate, rate * 1e12, rel_tol=0.01)


def test_words_without_bytes_or_operations_make_no_plot() -> None:
    for words in ("0.2 ms: 0.85 GB at 4.25 TB/s", "", "5 GFLOP of matrix products at 1 TFLOP/s (1 FLOP at 1 FLOP/s)"):
        assert work_of(dataclasses.replace(FLOOR, words=words)) is None


def timed_run(*medians: float) -> Run:
    verdicts = tuple(Verdict(f"candidate {i}", Passed(), timing=timed(ms)) for i, ms in enumerate(medians))
    return dataclasses.replace(whole_run(), verdicts=verdicts)


@given(st.lists(st.floats(0.05, 1e4), min_size=1, max_size=30), amounts, amounts)
def test_all_that_is_drawn_is_inside_and_labels_do_not_meet(medians: list[float], moved: int, flops: int) -> None:
    assume(1e-4 < flops / moved < 1e6)
    made = floor(Work("forward", moved, flops, 0), Rates(4000, 50, 400, 800, "made up"), CONTRACTS["tf32"])
    drawn = plot(timed_run(*medians), made)
    assert drawn is not None
    names = [dot.name for dot in drawn.dots]
    assert len(names) == 1 + len(medians) + 2 and names[0] == "floor"
    for x, y in (*drawn.roof, *((drawn.x, dot.y) for dot in drawn.dots)):
        assert LEFT - 1 <= x <= RIGHT + 1 and TOP - 1 <= y <= BOTTOM + 1
    labels = [dot.label_y for dot in drawn.dots[1:] if dot.label]
    assert len(labels) == min(len(names), MOST_LABELS) - 1
    assert all(below - above >= TEXT - 0.02 for above, below in itertools.pairwise(labels))
    assert all(TOP <= label <= BOTTOM for label in labels)


def test_the_floor_is_on_the_roof_and_the_slower_is_lower() -> None:
    drawn = plot(timed_run(1.0, 10.0), FLOOR)
    assert drawn is not None and drawn.bandwidth == "4.26 TB/s" and drawn.rate == "415 TFLOP/s"
    heights = {dot.name: dot.y for dot in drawn.dots}
    (x0, y0), (x1, y1) = drawn.roof[:2]
    on_roof = y0 + (drawn.x - x0) / (x1 - x0) * (y1 - y0)
    assert math.isclose(heights["floor"], on_roof, abs_tol=0.5)
    assert heights["floor"] < heights["candidate 0"] < heights["candidate 1"]
    decade = heights["candidate 1"] - heights["candidate 0"]
    assert math.isclose(heights["candidate 0"] - heights["floor"], math.log10(1 / 0.378) * decade, rel_tol=0.01)


def test_nothing_timed_makes_no_plot() -> None:
    untimed = dataclasses.replace(
        whole_run(), verdicts=(), ground=dataclasses.replace(whole_run().ground, baselines=())
    )
    assert plot(untimed, FLOOR) is None


KERNELS = {
    "softmax_kernel(float const*, float*, int)": "softmax_kernel",
    "void ns::(anonymous namespace)::softmax<float, 4>(float*)": "softmax",
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, at::native::(anonymous namespace)::"
    "SoftMaxForwardEpilogue>(float*, float const*, int)": "cunn_SoftMaxForward",
    "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::"
    "direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}": "elementwise_kernel: direct_copy_kernel_cuda",
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int)":
    "vectorized_elementwise_kernel: FillFunctor",
    "triton_poi_fused_add_0": "triton_poi_fused_add_0",
    "": "",
}  # fmt: skip


@pytest.mark.parametrize(("full", "wanted"), KERNELS.items(), ids=list(KERNELS.values()))
def test_a_kernels_short_name_tells_it_from_others(full: str, wanted: str) -> None:
    assert short(full) == wanted


@given(st.text())
def test_any_text_has_a_short_name(text: str) -> None:
    assert len(short(text)) <= 60


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=12), st.floats(0, 10))
def test_a_timeline_fills_its_bar_once(times: list[float], idle: float) -> None:
    assume(sum(times) > 1e-3)
    busy = sum(times)
    kernels = tuple(Kernel(f"k{i}", 1, ms) for i, ms in enumerate(times))
    line = timeline(Costs(0.1, 0, 0, kernels, busy, busy + idle, 1))
    assert line is not None
    assert math.isclose(sum(part.share for part in line.parts), 1, rel_tol=1e-6)
    ends = [(part.start, part.start + part.width) for part in line.parts]
    assert all(abs(end - start) < 0.01 for (_, end), (start, _) in itertools.pairwise(ends))
    assert abs(ends[-1][1] - 100) < 0.01
    assert [part.time_ms for part in line.parts if part.full] == sorted(times, reverse=True)


def test_no_kernels_make_no_timeline() -> None:
    assert timeline(NotMeasured("no GPU")) is None
    assert timeline(Costs(0.1, 0, 0, (), 0.0, 0.0, 1)) is None


def test_lines_are_marked_with_what_is_said_of_them() -> None:
    found = source_of(
        "a\nb\nc\r\nd\n", (Finding("one", "", line=2), Finding("two", "", line=2), Finding("far", "", line=9)), 4
    )
    assert found is not None and found.lines == ("a", "b", "c", "d")
    assert found.marked == {2: ("one", "two"), 4: ("the verdict names this line",)}
    assert found.around(2) == ((1, "a"), (2, "b"), (3, "c"), (4, "d")) and AROUND == 2
    assert found.around(0) == found.around(9) == ()
    assert source_of("", ()) is None


NO_PLANS = {
    "comment": "# fused by Crucible\n",
    "no Python": "fused by Crucible (((",
    "null byte": "'fused by Crucible \x00'",
    "not the docstring": '"""other"""\n"fused by Crucible"\n',
    "too deep": "(" * 5000 + "fused by Crucible",
}


@pytest.mark.parametrize("text", NO_PLANS.values(), ids=list(NO_PLANS))
def test_what_only_says_that_crucible_wrote_it_has_no_plan(text: str) -> None:
    found = source_of(text, ())
    assert found is not None and found.plan == ""
