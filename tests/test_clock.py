"""The clock takes enough samples, not for ever, each on fresh contents, and counts processor time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from crucible.judge.clock import MAX_SAMPLES, MIN_SAMPLES, WARMUP, sample

CPU = torch.device("cpu")


def samples_of(step: Callable[[], Any], limit_s: float) -> list[float]:
    return sample(step, lambda shift: None, CPU, limit_s)[0]


class Step:
    """Counts its calls; takes some wall time or some processor time."""

    def __init__(self, sleeps_s: float = 0.0, spins_s: float = 0.0) -> None:
        self.calls = 0
        self.sleeps_s, self.spins_s = sleeps_s, spins_s

    def __call__(self) -> int:
        self.calls += 1
        time.sleep(self.sleeps_s)
        end = time.process_time() + self.spins_s
        while time.process_time() < end:
            pass
        return self.calls


def test_a_quick_step_is_sampled_to_the_full_count() -> None:
    step = Step()
    samples, last = sample(step, lambda shift: None, CPU, 60.0)
    assert len(samples) == MAX_SAMPLES
    assert step.calls == last == MAX_SAMPLES + WARMUP
    assert min(samples) >= 0


def test_a_slow_step_ends_with_the_limit() -> None:
    start = time.monotonic()
    assert MIN_SAMPLES <= len(samples_of(Step(sleeps_s=0.02), 0.3)) <= 16
    assert time.monotonic() - start < 3


def test_even_past_the_limit_there_are_enough_samples() -> None:
    assert len(samples_of(Step(sleeps_s=0.01), 0.0)) == MIN_SAMPLES


@pytest.mark.parametrize("limit_s", [0.0, 60.0])
def test_each_sample_has_contents_of_its_own_and_the_last_the_right_ones(limit_s: float) -> None:
    contents: list[int] = []
    seen: list[int] = []
    samples, last = sample(lambda: seen.append(contents[-1]) or contents[-1], contents.append, CPU, limit_s)
    assert seen == contents
    assert len(seen) == len(samples) + WARMUP
    assert len(set(seen)) == len(seen)
    assert last == seen[-1] == 0


def test_putting_contents_in_place_does_not_count() -> None:
    spin = Step(spins_s=0.02)
    samples, _ = sample(lambda: None, lambda shift: spin() and None, CPU, 0.0)
    assert max(samples) < 10


def test_on_the_cpu_sleep_does_not_count_and_work_does() -> None:
    assert max(samples_of(Step(sleeps_s=0.02), 0.0)) < 10
    assert min(samples_of(Step(spins_s=0.02), 0.0)) >= 20


def test_a_real_step_takes_longer_when_it_does_more() -> None:
    small, large = torch.randn(1000), torch.randn(4_000_000)
    assert min(samples_of(large.exp, 0.5)) > min(samples_of(small.exp, 0.5))


def test_a_clock_replaced_by_a_candidate_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("process_time", "monotonic", "perf_counter", "time"):
        monkeypatch.setattr(time, name, lambda: 0.0)
    samples = samples_of(torch.randn(100_000).exp, 0.0)
    assert len(samples) == MIN_SAMPLES
    assert max(samples) > 0


def test_what_a_step_raises_comes_out() -> None:
    def broken() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        samples_of(broken, 1.0)
