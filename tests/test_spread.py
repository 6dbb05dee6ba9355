"""Medians, quartiles, and intervals that hold the true ratio as often as they say."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crucible.spread import RESOLUTION, Interval, interval, quartiles, quotient
from support import some

ratios = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=30)
brief = settings(max_examples=40, deadline=None)

RACES = 100
COVERED = 0.88
"""Of 95 %: a percentile bootstrap of a median over few rounds is a little too narrow, and that much is accepted."""


def gaussian(draw: random.Random) -> float:
    return draw.gauss(1, 0.02)


def noisy(draw: random.Random) -> float:
    return draw.gauss(1, 0.3)


def with_outliers(draw: random.Random) -> float:
    """One round in five meets a neighbour that takes two to ten times as much, of one side or of the other."""
    factor = draw.uniform(2, 10) if draw.random() < 0.2 else 1.0
    return draw.gauss(1, 0.02) * (factor if draw.random() < 0.5 else 1 / factor)


def skewed(draw: random.Random) -> float:
    """Log-normal: its median is 1, its mean is not."""
    return draw.lognormvariate(0, 0.5)


def coarse(draw: random.Random) -> float:
    """A clock of few ticks: most rounds agree to the last digit."""
    return draw.choice((0.99, 1.0, 1.0, 1.0, 1.01))


NOISES = [gaussian, noisy, with_outliers, skewed, coarse]


@pytest.mark.parametrize(
    ("noise", "rounds"), some([(noise, n) for n in (8, 14, 40) for noise in NOISES], 4, lambda each: each[1] == 8)
)
def test_the_interval_holds_the_true_ratio(noise: Callable[[random.Random], float], rounds: int) -> None:
    draw = random.Random(7)
    found = [interval([1.7 * noise(draw) for _ in range(rounds)]) for _ in range(RACES)]
    assert sum(one.low <= 1.7 <= one.high for one in found) >= COVERED * RACES


@pytest.mark.parametrize("noise", NOISES)
def test_the_quotients_interval_holds_the_true_ratio(noise: Callable[[random.Random], float]) -> None:
    draw = random.Random(11)
    races = [([3.0 * noise(draw) for _ in range(12)], [2.0 * noise(draw) for _ in range(16)]) for _ in range(RACES)]
    found = [quotient(over, under) for over, under in races]
    assert sum(one.low <= 1.5 <= one.high for one in found) >= COVERED * RACES


def test_an_interval_is_no_wider_than_its_samples_and_shrinks_with_more() -> None:
    draw = random.Random(3)
    few = [interval([gaussian(draw) for _ in range(8)]).half_width for _ in range(50)]
    many = [interval([gaussian(draw) for _ in range(40)]).half_width for _ in range(50)]
    assert statistics.median(many) < 0.7 * statistics.median(few)
    assert 0 < statistics.median(many) < 0.02


def test_a_difference_is_seen_and_none_is_not_invented() -> None:
    draw = random.Random(5)
    assert not interval([gaussian(draw) * 1.1 for _ in range(20)]).holds_one
    assert interval([gaussian(draw) for _ in range(20)]).holds_one
    assert not quotient([gaussian(draw) * 1.1 for _ in range(20)], [gaussian(draw) for _ in range(20)]).holds_one


def test_one_outlier_moves_neither_value_nor_interval_far() -> None:
    clean = [1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0, 1.01]
    spoilt = interval([*clean[:-1], 50.0])
    assert spoilt.value == pytest.approx(1.0)
    assert spoilt.high < 1.1


@brief
@given(ratios)
def test_the_interval_holds_its_value_and_lies_within_the_samples(samples: list[float]) -> None:
    found = interval(samples)
    assert found.value == statistics.median(samples)
    assert min(samples) <= found.low <= found.value <= found.high <= max(samples)


@brief
@given(ratios, st.integers(-10, 10))
def test_the_unit_does_not_matter(samples: list[float], power: int) -> None:
    """By powers of two, so that nothing is rounded."""
    scale = 2.0**power
    found, scaled = interval(samples), interval([scale * s for s in samples])
    assert scaled == Interval(found.value * scale, found.low * scale, found.high * scale)
    assert quotient([scale * s for s in samples], [scale * s for s in samples]) == quotient(samples, samples)
    assert quartiles([scale * s for s in samples]) == pytest.approx([scale * q for q in quartiles(samples)])


@brief
@given(ratios, ratios)
def test_the_same_samples_always_give_the_same_interval(over: list[float], under: list[float]) -> None:
    random.seed(len(over))
    first = interval(over), quotient(over, under)
    random.seed(1)
    assert (interval(over), quotient(over, under)) == first


@brief
@given(ratios, ratios)
def test_a_quotient_holds_its_value_and_lies_within_what_is_possible(over: list[float], under: list[float]) -> None:
    found = quotient(over, under)
    assert found.value == statistics.median(over) / statistics.median(under)
    slack = 1 + 1e-12
    assert min(over) / max(under) / slack <= found.low <= found.value <= found.high <= max(over) / min(under) * slack


def test_the_sides_of_a_quotient_are_resampled_apart() -> None:
    """Two lists of equal samples from different rounds are as uncertain as any two."""
    samples = [0.9, 0.95, 1.0, 1.0, 1.05, 1.1]
    assert quotient(samples, samples).half_width > 0.02


@brief
@given(ratios)
def test_what_is_reported_holds_what_was_found(samples: list[float]) -> None:
    found = interval(samples)
    assert found.reported.value == found.value
    assert found.reported.low < found.low <= found.high < found.reported.high
    assert found.reported.high == pytest.approx(found.high * (1 + RESOLUTION))


@pytest.mark.parametrize(
    ("low", "high", "tie"),
    [(0.9, 1.1, True), (1.0, 1.2, True), (0.8, 1.0, True), (1.001, 1.2, False), (0.5, 0.9, False)],
)
def test_a_tie_is_an_interval_that_holds_one(low: float, high: float, tie: bool) -> None:
    assert Interval((low + high) / 2, low, high).holds_one is tie


def test_the_half_width_is_a_share_of_the_value() -> None:
    assert Interval(2.0, 1.9, 2.2).half_width == pytest.approx(0.075)
    assert interval([3.0]).half_width == 0


def test_quartiles() -> None:
    assert quartiles([1, 2, 3, 4, 5]) == (2, 4)
    assert quartiles([5, 1, 4, 2, 3]) == (2, 4)
    assert quartiles([1, 2]) == (1.25, 1.75)
    assert quartiles([7]) == (7, 7)


@brief
@given(ratios)
def test_quartiles_lie_about_the_median(samples: list[float]) -> None:
    low, high = quartiles(samples)
    slack = 1 + 1e-12
    assert min(samples) <= low * slack
    assert low <= statistics.median(samples) * slack
    assert statistics.median(samples) <= high * slack
    assert high <= max(samples) * slack
