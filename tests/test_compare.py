"""A stream compared in chunks says what the whole tensors say."""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from crucible.judge.boundary.bits import POISON
from crucible.judge.boundary.bundles import raw_bytes
from crucible.judge.oracle import compare
from crucible.judge.oracle.compare import Difference, Expected, benchmark_rule, read_stream, unravel
from crucible.judge.process.channel import ChannelTimeout

VIEWS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
CPU = torch.device("cpu")
LARGEST = sys.float_info.max
"""What stands for infinity in a result, as JSON has none."""
quick = settings(deadline=None, max_examples=80)


def expect(values: torch.Tensor, dtype: torch.dtype = torch.float32, **more: object) -> Expected:
    """Expected values with generous tolerances, kept as float64 where they are floats."""
    kept = values.double() if values.is_floating_point() else values
    scale = float(kept.pow(2).mean().sqrt()) or 1.0 if kept.is_floating_point() and kept.numel() else 1.0
    shape = tuple(values.shape)
    defaults = {"scale": scale, "relative_l2_allowed": 1.0, "peak_allowed": 1.0}
    return Expected("output", kept.flatten(), dtype, shape, **{**defaults, **more})  # type: ignore[arg-type]


def sequential(terms: torch.Tensor) -> torch.Tensor:
    """Each row's sum in float32, one term after another."""
    total = torch.zeros(len(terms))
    for column in terms.unbind(1):
        total = total + column
    return total


@quick
@given(st.integers(2, 300), st.integers(0, 2**31))
def test_a_sum_in_another_order_is_right(terms: int, seed: int) -> None:
    """Whatever the noise of PyTorch's own order: as far off as a plain loop is."""
    values = torch.randn(64, terms, generator=torch.Generator().manual_seed(seed))
    right = expect(values.double().sum(1))
    right.allow(0.0, 0.0, 4.0)
    assert compared(right, sequential(values)).result(0).ok


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_what_is_allowed_without_noise_is_small(dtype: torch.dtype) -> None:
    values = torch.randn(1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    right = expect(values, dtype)
    right.allow(0.0, 0.0, 4.0)
    eps = torch.finfo(dtype).eps
    assert compared(right, values.to(dtype)).result(0).ok
    assert not compared(right, (values * (1 + 12 * eps)).to(dtype)).result(0).ok
    wide = dtype.itemsize >= 4
    assert compared(right, (values * (1 + 6 * eps)).to(dtype)).result(0).ok == wide


@pytest.mark.parametrize(("noise", "times"), [(0.0, 4.0), (0.24, 4.0), (0.26, 16.0), (1e9, 16.0)])
def test_where_zeros_would_pass_for_a_gradient_more_of_the_noise_does(noise: float, times: float) -> None:
    right, output = expect(torch.randn(100)), expect(torch.randn(100))
    right.allow(noise, 3 * noise, 4.0, may_cancel=True)
    output.allow(noise, 3 * noise, 4.0)
    assert output.relative_l2_allowed == pytest.approx(max(4 * noise, 8 * torch.finfo(torch.float32).eps))
    floor = (
        4 * 2 * 2 * torch.finfo(torch.float32).eps
    )  # of what is never less than noise: four units, twice at the peak
    assert right.relative_l2_allowed == pytest.approx(times * noise or floor / 2)
    assert right.peak_allowed == pytest.approx(times * 3 * noise or floor)
    zeros = compared(right, torch.zeros(100)).result(0)
    assert (zeros.relative_l2 <= right.relative_l2_allowed) == (times > 4)


@pytest.mark.parametrize(("noise", "times"), [(0.0, 4.0), (2e-4, 4.0), (3e-4, 16.0)])
@pytest.mark.parametrize("own", [0.0, 1e-3])
def test_zeros_pass_for_an_answer_that_is_small_in_the_scale_of_another(noise: float, times: float, own: float) -> None:
    """A bias's gradient in front of a norm that takes all of it: its noise is large for itself, not for the scale."""
    right = expect(torch.full((100,), own), scale=1.0, share=own)
    right.allow(noise, noise, 4.0, may_cancel=True)
    times = times if own else 16.0
    assert right.relative_l2_allowed == pytest.approx(times * noise or 8 * torch.finfo(torch.float32).eps)


@pytest.mark.parametrize(("own", "times"), [(0.0, 4.0), (9e-6, 4.0), (1.1e-5, 1.0), (1.0, 1.0)])
def test_what_is_nothing_beside_another_answer_is_allowed_more_of_its_noise(own: float, times: float) -> None:
    """Of a batch norm less its mean, cotangents of ones leave exactly nothing; numbers less their mean, summed, do."""
    other = expect(torch.ones(100), relative_l2_allowed=1e-5, peak_allowed=3e-5)
    right = expect(torch.full((100,), own), scale=1.0, share=own, relative_l2_allowed=1e-7, peak_allowed=2e-7)
    right.allow_as(other)
    assert right.relative_l2_allowed == pytest.approx(times * 1e-5)
    assert right.peak_allowed == pytest.approx(times * 3e-5)
    noise = expect(torch.ones(100), relative_l2_allowed=1.5, peak_allowed=2.0)  # CANCELS times its own, already
    nothing = expect(torch.zeros(100), scale=1.0, share=0.0, relative_l2_allowed=1e-7, peak_allowed=2e-7)
    nothing.allow_as(noise)
    assert (nothing.relative_l2_allowed, nothing.peak_allowed) == (1.5, 2.0)
    wider = expect(torch.ones(100), relative_l2_allowed=1.0, peak_allowed=2.0)
    wider.allow_as(other)
    assert (wider.relative_l2_allowed, wider.peak_allowed) == (1.0, 2.0)


def compared(expected: Expected, got: torch.Tensor, cuts: list[int] | None = None) -> Difference:
    difference = Difference(expected)
    edges = sorted({0, got.numel(), *(cut for cut in cuts or [] if cut < got.numel())})
    for start, end in itertools.pairwise(edges):
        difference.add(got.flatten()[start:end])
    return difference


def poisoned(dtype: torch.dtype, elements: int) -> torch.Tensor:
    value = torch.zeros(elements, dtype=dtype)
    value.view(VIEWS[dtype.itemsize]).fill_(POISON[dtype])
    return value


@quick
@given(st.integers(1, 300), st.lists(st.integers(1, 299)), st.integers(0, 2**31), st.sampled_from(list(POISON)))
def test_chunks_say_what_the_whole_says(elements: int, cuts: list[int], seed: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(seed)
    want = torch.randn(elements, generator=generator, dtype=torch.float64)
    got = (want + 0.1 * torch.randn(elements, generator=generator, dtype=torch.float64)).to(dtype)
    got[torch.rand(elements, generator=generator) < 0.05] = torch.nan
    got[torch.rand(elements, generator=generator) < 0.05] = poisoned(dtype, 1)[0]
    whole = compared(expect(want, dtype), got).result(0)
    parts = compared(expect(want, dtype), got, cuts).result(0)
    assert parts.relative_l2 == pytest.approx(whole.relative_l2, rel=1e-12)
    for field in ("peak", "worst_index", "nan", "unwritten", "elements"):
        assert getattr(parts, field) == getattr(whole, field)


@quick
@given(st.integers(0, 2**31), st.sampled_from([(7,), (3, 5), (2, 3, 4), ()]))
def test_errors_are_what_the_formulas_say(seed: int, shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(seed)
    want = torch.randn(shape, generator=generator, dtype=torch.float64) + 0.01
    got = (want + torch.randn(shape, generator=generator, dtype=torch.float64)).float()
    error = compared(expect(want), got).result(3)
    distance = (got.double() - want).abs()
    peaks = distance / (want.abs() + want.pow(2).mean().sqrt())
    assert error.relative_l2 == pytest.approx(float(distance.norm() / want.norm()))
    assert error.peak == pytest.approx(float(peaks.max()))
    assert float(peaks[error.worst_index]) == float(peaks.max())
    assert (error.case, error.nan, error.unwritten, error.elements) == (3, 0, 0, want.numel())


@pytest.mark.parametrize("dtype", POISON)
def test_nan_and_memory_never_written_are_counted_apart(dtype: torch.dtype) -> None:
    want = torch.ones(100)
    got = want.to(dtype, copy=True)
    got[10:15] = torch.nan
    got[20:50] = poisoned(dtype, 30)
    error = compared(expect(want, dtype), got, [12, 33]).result(0)
    assert (error.nan, error.unwritten) == (35, 30)
    assert error.ratio == float("inf")
    assert not error.ok


@pytest.mark.parametrize("dtype", POISON)
def test_arithmetic_on_poison_gives_nan_but_no_claim_of_unwritten_memory_is_lost(dtype: torch.dtype) -> None:
    """Poison is NaN in its dtype, so that no result computed from it can pass."""
    assert torch.isnan(poisoned(dtype, 3)).all()
    assert torch.isnan(poisoned(dtype, 3) * 0 + 1).all()


def test_nan_where_the_answer_has_nan_is_no_error() -> None:
    error = compared(expect(torch.tensor([1.0, torch.nan]), scale=1.0), torch.tensor([1.0, torch.nan])).result(0)
    assert (error.nan, error.peak, error.relative_l2) == (0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("want", "got", "peak"),
    [
        (torch.inf, torch.inf, 0.0),
        (-torch.inf, torch.inf, LARGEST),
        (torch.inf, 1e30, LARGEST),
        (1.0, torch.inf, LARGEST),
    ],
)
def test_infinities_differ_unless_equal(want: float, got: float, peak: float) -> None:
    error = compared(expect(torch.tensor([2.0, want]), scale=1.0), torch.tensor([2.0, got])).result(0)
    assert error.peak == peak
    assert error.ok == (peak == 0.0)
    assert error.worst_index == ((1,) if peak else (0,))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
def test_integers_and_truths_must_be_equal(dtype: torch.dtype) -> None:
    want = (torch.arange(12) % 2).to(dtype).reshape(3, 4)
    tight = expect(want, dtype, relative_l2_allowed=0.5 / 12)
    assert compared(tight, want, [5]).result(0).ok
    got = want.clone()
    got[1, 2], got[2, 3] = 1 - int(got[1, 2]), 1 - int(got[2, 3])
    error = compared(tight, got, [5, 7]).result(0)
    assert not error.ok
    assert error.worst_index == (1, 2)
    assert error.peak == 1.0


def test_an_integers_error_is_the_share_of_elements_that_differ() -> None:
    want = torch.zeros(100, dtype=torch.int64)
    got = want.clone()
    got[:4] = 7
    assert compared(expect(want, torch.int64), got).result(0).relative_l2 == pytest.approx(0.04)


def test_wrong_integers_are_beyond_the_benchmarks_rule() -> None:
    want = torch.zeros(8, dtype=torch.int64)
    rule = benchmark_rule(expect(want, torch.int64), want)
    difference = compared(rule, torch.ones(8, dtype=torch.int64))
    assert not difference.result(0).ok
    assert difference.beyond_rule == 8


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_an_empty_tensor_is_right(dtype: torch.dtype) -> None:
    difference = Difference(expect(torch.empty(0, 3, dtype=dtype), dtype))
    difference.add(torch.empty(0, dtype=dtype))
    assert difference.result(0).ok


@quick
@given(st.integers(0, 2**31), st.floats(0, 4), st.sampled_from([torch.float32, torch.bfloat16, torch.float16]))
def test_the_benchmarks_rule_is_allclose(seed: int, size: float, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(seed)
    tolerance = 1e-4 if dtype == torch.float32 else 1e-2
    want = torch.randn(50, generator=generator, dtype=torch.float64)
    noise = torch.rand(50, generator=generator, dtype=torch.float64) * tolerance * size
    got = (want + noise).to(dtype)
    rule = benchmark_rule(expect(want, dtype), want)
    assert (rule.absolute, rule.relative) == (tolerance, tolerance)
    difference = compared(rule, got, [20])
    close = torch.isclose(want, got.double(), rtol=tolerance, atol=tolerance)  # in the benchmark's order
    assert difference.result(0).ok == bool(close.all())
    assert difference.beyond_rule == int((~close).sum())


def test_the_benchmarks_rule_refuses_nan() -> None:
    want = torch.ones(4)
    got = torch.tensor([1.0, torch.nan, 1.0, 1.0])
    assert not compared(benchmark_rule(expect(want), want.double()), got).result(0).ok


@quick
@given(st.integers(0, 63), st.integers(0, 31))
def test_one_bit_changes_the_fingerprint(index: int, bit: int) -> None:
    got = torch.linspace(1, 2, 64)
    other = got.clone()
    other.view(torch.int32)[index] ^= -(2**31) if bit == 31 else 2**bit
    assert compared(expect(got), got).fingerprint != compared(expect(got), other).fingerprint


@quick
@given(st.integers(0, 63), st.integers(0, 63))
def test_swapped_elements_change_the_fingerprint(a: int, b: int) -> None:
    got = torch.linspace(1, 2, 64)
    other = got.clone()
    other[[a, b]] = got[[b, a]]
    same = compared(expect(got), got).fingerprint == compared(expect(got), other).fingerprint
    assert same == (a == b)


@pytest.mark.parametrize("shape", [(5,), (2, 3), (4, 1, 2), ()])
def test_flat_places_have_coordinates(shape: tuple[int, ...]) -> None:
    numbers = torch.arange(torch.Size(shape).numel()).reshape(shape)
    for index in numbers.flatten().tolist():
        assert int(numbers[unravel(index, shape)]) == index


# --- through a real pipe


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    for descriptor in (reading, writing):
        try:
            os.close(descriptor)
        except OSError:
            continue


def writing(descriptor: int, tensors: list[torch.Tensor], drop: int = 0) -> threading.Thread:
    """Writes the tensors' bytes in a thread, the last `drop` of them left out, and closes the pipe."""
    data = b"".join(bytes(raw_bytes(tensor)) for tensor in tensors)

    def write() -> None:
        view = memoryview(data)[: len(data) - drop]
        while view:
            view = view[os.write(descriptor, view) :]
        os.close(descriptor)

    thread = threading.Thread(target=write)
    thread.start()
    return thread


def test_tensors_arrive_one_after_another(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "CHUNK_BYTES", 4096)
    tensors = [torch.randn(70_000), torch.arange(999), torch.empty(0), torch.randn(5, 7).bfloat16()]
    thread = writing(pipe[1], tensors)
    expected = [expect(t, t.dtype) for t in tensors]
    found = read_stream(pipe[0], expected, [], CPU, 10)
    thread.join()
    assert [d.index for d, _ in found] == [t.numel() for t in tensors]
    assert all(d.result(0).relative_l2 == 0 and rule is None for d, rule in found)


def test_a_stream_is_held_to_both_rules_at_once(pipe: tuple[int, int]) -> None:
    got = torch.randn(1000)
    thread = writing(pipe[1], [got])
    expected = expect(got + 1e-3, relative_l2_allowed=0.1, peak_allowed=0.1)
    ((difference, rule),) = read_stream(pipe[0], [expected], [benchmark_rule(expected, expected.values)], CPU, 10)
    thread.join()
    assert rule is not None
    assert difference.result(0).ok
    assert not rule.result(0).ok
    assert rule.beyond_rule > 900


def test_missing_bytes_are_the_end_of_the_file(pipe: tuple[int, int]) -> None:
    tensors = [torch.randn(10), torch.randn(1000)]
    thread = writing(pipe[1], tensors, drop=1)
    with pytest.raises(EOFError, match="before the end of output"):
        read_stream(pipe[0], [expect(t) for t in tensors], [], CPU, 10)
    thread.join()


def test_chunks_of_several_tensors_meet_what_they_are_held_against(pipe: tuple[int, int]) -> None:
    """Two and a half chunks and two more tensors: the next chunk is read and its values brought meanwhile."""
    tensors = [torch.randn(10_000_000), torch.randint(0, 9, (5_000_000,)), torch.randn(7)]
    expected = [expect(tensor, tensor.dtype) for tensor in tensors]
    rules = [benchmark_rule(one, one.values) for one in expected]
    given = [tensor.clone() for tensor in tensors]
    given[0][-1] += 1
    given[1][4_999_999] += 1
    thread = writing(pipe[1], given)
    found = read_stream(pipe[0], expected, rules, CPU, 10)
    thread.join()
    for (difference, rule), one, sent in zip(found, expected, given, strict=True):
        alone = Difference(one)
        alone.add(sent)
        assert difference.result(0) == alone.result(0)
        assert rule is not None and rule.index == one.values.numel()
    assert [difference.result(0).worst_index for difference, _ in found[:2]] == [(9_999_999,), (4_999_999,)]


def test_a_writer_that_hangs_is_a_timeout(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], b"1234")
    with pytest.raises(ChannelTimeout):
        read_stream(pipe[0], [expect(torch.zeros(100))], [], CPU, 0.05)
