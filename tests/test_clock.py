"""The clock takes one sample at a time, by two clocks at once, and counts processor time on a CPU."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from crucible.judge.worker import clock
from crucible.judge.worker.clock import CPU_CACHE_BYTES, Sample, sampler

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def sample() -> Callable[[Callable[[], Any]], Sample]:
    return sampler(CPU)


def spin(seconds: float) -> None:
    """Processor time of this thread, whatever else the machine does."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def least(samples: list[Sample]) -> Sample:
    """Of each clock's times the least: what a busy machine adds is left out."""
    return Sample(min(s.device_ms for s in samples), min(s.wall_ms for s in samples), None)


def test_a_sample_has_what_the_step_gave_and_two_times(sample: Callable[[Callable[[], Any]], Sample]) -> None:
    result = object()
    taken = sample(lambda: result)
    assert taken.result is result
    assert taken.device_ms >= 0
    assert taken.wall_ms > 0


def test_a_step_is_called_once_for_a_sample(sample: Callable[[Callable[[], Any]], Sample]) -> None:
    calls: list[int] = []
    for _ in range(5):
        sample(lambda: calls.append(1))
    assert len(calls) == 5


def test_sleep_is_wall_time_and_work_is_processor_time(sample: Callable[[Callable[[], Any]], Sample]) -> None:
    asleep = least([sample(lambda: time.sleep(0.03)) for _ in range(3)])
    assert asleep.wall_ms >= 30
    assert asleep.device_ms < asleep.wall_ms / 3
    busy = sample(lambda: spin(0.03))
    assert busy.device_ms >= 30
    assert busy.wall_ms >= 29


def test_work_of_other_threads_counts(sample: Callable[[Callable[[], Any]], Sample]) -> None:
    """Processor time is the whole process's: a step that lets threads work saves nothing."""

    def step() -> None:
        threads = [threading.Thread(target=spin, args=(0.02,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert sample(step).device_ms >= 40


def test_a_real_step_takes_longer_when_it_does_more(sample: Callable[[Callable[[], Any]], Sample]) -> None:
    small, large = torch.randn(1000), torch.randn(4_000_000)
    few = least([sample(small.exp) for _ in range(3)])
    many = least([sample(large.exp) for _ in range(3)])
    assert many.device_ms > few.device_ms
    assert many.wall_ms > few.wall_ms


def test_what_lies_between_two_samples_does_not_count(sample: Callable[[Callable[[], Any]], Sample]) -> None:
    taken = []
    for _ in range(3):
        spin(0.03)
        taken.append(sample(lambda: None))
    assert least(taken).device_ms < 30 / 3
    assert least(taken).wall_ms < 30 / 2


class Fills(TorchDispatchMode):
    """Notes how many bytes each operation fills, and when the step runs."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int | str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ == "fill_":
            self.seen.append(args[0].numel() * args[0].element_size())
        return func(*args, **(kwargs or {}))


def test_each_sample_finds_the_caches_written_over(sample: Callable[[Callable[[], Any]], Sample]) -> None:
    with Fills() as fills:
        for _ in range(3):
            sample(lambda: fills.seen.append("step"))
    assert fills.seen[1::2] == ["step"] * 3
    assert all(isinstance(size, int) and size >= clock._last_cache_bytes() for size in fills.seen[::2])


def test_all_steps_of_a_process_write_over_the_same_memory() -> None:
    """To get it takes longer than to write it ten times."""
    assert clock._flush() is clock._flush()


def test_writing_over_the_caches_does_not_count(sample: Callable[[Callable[[], Any]], Sample]) -> None:
    before = time.process_time()
    taken = [sample(lambda: None) for _ in range(10)]
    spent_ms = (time.process_time() - before) * 1e3
    assert sum(s.device_ms for s in taken) < spent_ms / 4


def test_the_flush_is_as_large_as_the_last_cache_and_not_without_bounds() -> None:
    assert 0 < clock._last_cache_bytes() <= CPU_CACHE_BYTES
    sizes = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    known = [int(size[:-1]) << 10 for file in sizes if (size := file.read_text().strip()).endswith("K")]
    assert clock._last_cache_bytes() == min(max(known, default=CPU_CACHE_BYTES), CPU_CACHE_BYTES)


def test_a_clock_replaced_by_a_candidate_is_not_read(
    sample: Callable[[Callable[[], Any]], Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(1_000_000)
    for name in ("process_time", "monotonic", "perf_counter", "time", "process_time_ns", "perf_counter_ns"):
        monkeypatch.setattr(time, name, lambda: 0.0)
    taken = sample(x.exp)
    assert taken.device_ms > 0
    assert taken.wall_ms > 0


def test_a_step_that_replaces_the_clock_while_it_is_timed_gains_nothing(
    sample: Callable[[Callable[[], Any]], Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    def step() -> None:
        spin(0.02)
        monkeypatch.setattr(time, "process_time", lambda: 0.0)
        monkeypatch.setattr(time, "perf_counter", lambda: 0.0)

    assert sample(step).device_ms >= 20


def test_what_a_step_raises_comes_out_and_the_next_sample_is_whole(
    sample: Callable[[Callable[[], Any]], Sample],
) -> None:
    def broken() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        sample(broken)
    assert sample(os.getpid).result == os.getpid()


def test_two_samplers_do_not_disturb_each_other() -> None:
    one, two = sampler(CPU), sampler(CPU)
    inner = one(lambda: two(lambda: spin(0.02)))
    assert inner.device_ms > inner.result.device_ms >= 20
