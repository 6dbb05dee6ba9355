"""The clock takes enough samples, not for ever, and counts processor time."""

from __future__ import annotations

import time

import pytest
import torch

from crucible.judge.clock import MAX_SAMPLES, MIN_SAMPLES, WARMUP, sample

CPU = torch.device("cpu")


class Step:
    """Counts its calls; takes some wall time or some processor time."""

    def __init__(self, sleeps_s: float = 0.0, spins_s: float = 0.0) -> None:
        self.calls = 0
        self.sleeps_s, self.spins_s = sleeps_s, spins_s

    def __call__(self) -> None:
        self.calls += 1
        time.sleep(self.sleeps_s)
        end = time.process_time() + self.spins_s
        while time.process_time() < end:
            pass


def test_a_quick_step_is_sampled_to_the_full_count() -> None:
    step = Step()
    samples = sample(step, CPU, 60.0)
    assert len(samples) == MAX_SAMPLES
    assert step.calls == MAX_SAMPLES + WARMUP
    assert min(samples) >= 0


def test_a_slow_step_ends_with_the_limit() -> None:
    step = Step(sleeps_s=0.02)
    start = time.monotonic()
    samples = sample(step, CPU, 0.3)
    assert MIN_SAMPLES <= len(samples) <= 15
    assert time.monotonic() - start < 3


def test_even_past_the_limit_there_are_enough_samples() -> None:
    assert len(sample(Step(sleeps_s=0.01), CPU, 0.0)) == MIN_SAMPLES


def test_on_the_cpu_sleep_does_not_count_and_work_does() -> None:
    asleep = sample(Step(sleeps_s=0.02), CPU, 0.0)
    busy = sample(Step(spins_s=0.02), CPU, 0.0)
    assert max(asleep) < 10
    assert min(busy) >= 20


def test_a_real_step_takes_longer_when_it_does_more() -> None:
    small, large = torch.randn(1000), torch.randn(4_000_000)
    assert min(sample(lambda: large.exp(), CPU, 0.5)) > min(sample(lambda: small.exp(), CPU, 0.5))


def test_a_clock_replaced_by_a_candidate_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("process_time", "monotonic", "perf_counter", "time"):
        monkeypatch.setattr(time, name, lambda: 0.0)
    data = torch.randn(100_000)
    samples = sample(lambda: data.exp(), CPU, 0.0)
    assert len(samples) == MIN_SAMPLES
    assert max(samples) > 0


def test_what_a_step_raises_comes_out() -> None:
    def broken() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        sample(broken, CPU, 1.0)
