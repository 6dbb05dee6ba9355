"""What PyTorch's profiler counts in one call: against steps whose blocks are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from crucible.judge.worker.profile import MOST_KERNELS, _kernels, profile_call

CPU = torch.device("cpu")
KIB = 1024


def block(kib: int) -> torch.Tensor:
    """`kib` KiB in one allocation."""
    return torch.empty(kib * KIB, dtype=torch.uint8)


def nothing() -> None:
    pass


def one() -> Any:
    return block(512)


def two_at_a_time() -> Any:
    return block(512), block(256)


def one_after_the_other() -> None:
    for _ in range(4):
        block(512)


def a_peak_in_the_middle() -> Any:
    first = block(512)
    second = block(2048)
    del second
    return first, block(64)


def of_operations() -> Any:
    """Two results of 64 KiB each; the first is needed for the second."""
    x = torch.ones(KIB * 16)
    return x.exp()


@pytest.mark.parametrize(
    ("step", "allocations", "peak_kib"),
    [
        (nothing, 0, 0),
        (one, 1, 512),
        (two_at_a_time, 2, 768),
        (one_after_the_other, 4, 512),
        (a_peak_in_the_middle, 3, 2560),
        (of_operations, 2, 128),
    ],
)
def test_allocations_are_counted_and_their_peak_is_found(
    step: Callable[[], Any], allocations: int, peak_kib: int
) -> None:
    found = profile_call(step, CPU)
    assert found["allocations"] == allocations
    assert found["peak_bytes"] == pytest.approx(peak_kib * KIB, abs=KIB)


def test_what_lay_there_before_does_not_count() -> None:
    weights = torch.randn(KIB * KIB)
    found = profile_call(lambda: weights[:KIB].exp(), CPU)
    assert (found["allocations"], found["peak_bytes"]) == (1, 4 * KIB)


def test_a_workspace_given_back_first_is_still_a_peak() -> None:
    held: list[torch.Tensor] = []

    def step() -> None:
        held.clear()
        held.append(block(512))

    assert profile_call(step, CPU)["peak_bytes"] == 512 * KIB


def test_the_second_of_two_calls_is_counted() -> None:
    """What a first call allocates once and for all, a cache or a workspace, is not what a call takes."""
    cache: list[torch.Tensor] = []
    calls: list[int] = []

    def step() -> torch.Tensor:
        calls.append(1)
        if not cache:
            cache.append(block(4096))
        return block(64)

    found = profile_call(step, CPU)
    assert len(calls) == 2
    assert (found["allocations"], found["peak_bytes"]) == (1, 64 * KIB)


def test_on_a_cpu_no_kernels_are_launched() -> None:
    found = profile_call(lambda: torch.randn(64, 64) @ torch.randn(64, 64), CPU)
    assert [found[name] for name in ("kernels", "busy_ms", "span_ms", "streams")] == [[], 0.0, 0.0, 0]


def test_gradients_are_in_it() -> None:
    x = torch.randn(KIB * KIB, requires_grad=True)

    def step() -> Any:
        return torch.autograd.grad((x * x).sum(), x)

    found = profile_call(step, CPU)
    assert found["peak_bytes"] >= 8 * KIB * KIB  # the product, and the gradient beside it
    assert found["allocations"] >= 3


def test_what_the_step_raises_comes_out() -> None:
    def broken() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        profile_call(broken, CPU)
    assert profile_call(one, CPU)["allocations"] == 1


# --- kernels, of played events


@dataclass
class PlayedEvent:
    """An event as the profiler records it, in microseconds."""

    called: str
    start_us: int
    duration_us: int
    stream: int = 7
    where: str = "DeviceType.CUDA"

    def name(self) -> str:
        return self.called

    def device_type(self) -> str:
        return self.where

    def start_ns(self) -> int:
        return (1_000_000 + self.start_us) * 1000

    def duration_ns(self) -> int:
        return self.duration_us * 1000

    def device_resource_id(self) -> int:
        return self.stream


def test_kernels_by_name_the_longest_first() -> None:
    found = _kernels([PlayedEvent("relu", 0, 10), PlayedEvent("gemm", 20, 100), PlayedEvent("relu", 130, 30)])
    assert found["kernels"] == [["gemm", 1, 0.1], ["relu", 2, pytest.approx(0.04)]]
    assert (found["busy_ms"], found["span_ms"], found["streams"]) == (pytest.approx(0.14), pytest.approx(0.16), 1)


def test_copies_and_what_runs_on_the_cpu_are_no_kernels() -> None:
    events = [
        PlayedEvent("Memcpy HtoD (Pageable -> Device)", 0, 500),
        PlayedEvent("Memset (Device)", 0, 500),
        PlayedEvent("[memory]", 0, 0),
        PlayedEvent("aten::mm", 0, 900, where="DeviceType.CPU"),
        PlayedEvent("gemm", 600, 100),
    ]
    assert _kernels(events)["kernels"] == [["gemm", 1, 0.1]]
    assert _kernels(events[:4])["kernels"] == []


@pytest.mark.parametrize(
    ("spans", "busy_us"),
    [
        ([(0, 10), (10, 10)], 20),
        ([(0, 10), (5, 10)], 15),
        ([(0, 100), (10, 20), (50, 100)], 150),  # one within another, then one that outlasts it
        ([(50, 10), (0, 10)], 20),
        ([(0, 10), (0, 10), (0, 10)], 10),
    ],
)
def test_kernels_beside_each_other_are_busy_once(spans: list[tuple[int, int]], busy_us: int) -> None:
    events = [PlayedEvent(f"k{i}", start, duration, stream=i) for i, (start, duration) in enumerate(spans)]
    found = _kernels(events)
    assert found["busy_ms"] == pytest.approx(busy_us / 1000)
    assert found["streams"] == len(spans)


def test_every_launch_is_counted_however_many_kernels_there_are() -> None:
    found = _kernels([PlayedEvent(f"k{i}", 10 * i, 5) for i in range(MOST_KERNELS + 20)])
    assert sum(count for _, count, _ in found["kernels"]) == MOST_KERNELS + 20
