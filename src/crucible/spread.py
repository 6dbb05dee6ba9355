"""Spread: medians, quartiles, and how sure one can be of a ratio.

Plain Python: a few dozen rounds need no array library, and the process that ranks never imports one.
"""

from __future__ import annotations

import functools
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

RESAMPLES = 1000
CONFIDENCE = 0.95
RESOLUTION = 0.01
"""Two processes that run the same code differ by this share, whatever the rounds of one run say: eager PyTorch
against the reference as its own candidate gave 1.007 [1.003, 1.009] and 1.001 [1.000, 1.002] (H200). A reported
interval is wider by it, on both sides."""


@dataclass(frozen=True)
class Interval:
    """A ratio with its bootstrap confidence interval."""

    value: float
    low: float
    high: float

    @property
    def holds_one(self) -> bool:
        """Whether the ratio may be 1.0: a tie."""
        return self.low <= 1.0 <= self.high

    @property
    def reported(self) -> Interval:
        """With what the rounds of one run cannot show."""
        return Interval(self.value, self.low * (1 - RESOLUTION), self.high * (1 + RESOLUTION))

    @property
    def half_width(self) -> float:
        """Half the interval's width as a share of the value."""
        return (self.high - self.low) / 2 / self.value


def quartiles(samples: Sequence[float]) -> tuple[float, float]:
    """First and third quartile; a lone sample is both."""
    if len(samples) < 2:
        return samples[0], samples[0]
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return low, high


def interval(ratios: Sequence[float]) -> Interval:
    """The median of paired ratios, one a round, with its 95 % bootstrap interval over rounds."""
    return _interval(statistics.median(ratios), _medians(tuple(ratios)))


def spread_of(values: Sequence[float]) -> float:
    """The width of the 95 % bootstrap interval of the median of differences, one a round, in their own unit."""
    found = interval(values)
    return found.high - found.low


def quotient(over: Sequence[float], under: Sequence[float]) -> Interval:
    """Median of `over` by median of `under`, which were drawn in different rounds, with its 95 % interval."""
    value = statistics.median(over) / statistics.median(under)
    draws = [a / b for a, b in zip(_medians(tuple(over), 1), _medians(tuple(under), 2), strict=True)]
    return _interval(value, draws)


@functools.lru_cache(maxsize=1024)
def _medians(values: tuple[float, ...], seed: int = 0) -> list[float]:
    """Medians of resamples; seeded, so that the same record always gives the same rank. Kept: each of a run's
    candidates is held against several others (5 ms each time)."""
    draw = random.Random(seed)
    return [statistics.median(draw.choices(values, k=len(values))) for _ in range(RESAMPLES)]


def _interval(value: float, draws: list[float]) -> Interval:
    draws = sorted(draws)
    cut = int((1 - CONFIDENCE) / 2 * len(draws))
    return Interval(value, min(draws[cut], value), max(draws[-1 - cut], value))
