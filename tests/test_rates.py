"""Measured rates: plausible, quick, on little memory, and without a trace in PyTorch's settings."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
import torch

from crucible import rates
from crucible.roofline import Rates

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machinery at a hundredth of its size."""
    monkeypatch.setitem(rates._COPY_BYTES, "cpu", 4 << 20)
    monkeypatch.setitem(rates._MATRIX_SIZES, "cpu", (64, 128))


@pytest.fixture
def settings() -> Iterator[None]:
    """What a test may change of PyTorch's: the TF32 flag (which monkeypatch cannot) and the number of threads."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.get_num_threads()
    yield
    torch.backends.cuda.matmul.allow_tf32 = before[0]
    torch.set_num_threads(before[1])


@pytest.fixture
def one_thread(settings: None) -> None:
    """Two threads on a busy machine may wait for each other a thousand times longer than they compute."""
    torch.set_num_threads(1)


def test_a_cpu_has_all_rates() -> None:
    found = rates.measure(CPU, limit_s=0.02)
    assert found.source == "measured here"
    assert 0.1 < found.bandwidth_gb_s < 5e3
    assert 1e-5 < found.fp32_tflops == found.tf32_tflops <= found.bf16_tflops < 1e3


def test_rates_agree_with_a_stopwatch(one_thread: None) -> None:
    """Within a factor of ten, since nothing else on the machine stands still."""

    def best_s(action: Callable[[], object]) -> float:
        times = []
        for _ in range(5):
            start = time.perf_counter()
            action()
            times.append(time.perf_counter() - start)
        return min(times)

    x, y = torch.rand(1 << 20), torch.rand(1 << 20)
    a, b = torch.rand(128, 128), torch.rand(128, 128)
    copied = 2 * (4 << 20) / best_s(lambda: y.copy_(x))
    multiplied = 2 * 128**3 / best_s(lambda: a @ b)
    assert 0.1 < rates._copy_rate(CPU, 4 << 20, 0.01) / copied < 10
    assert 0.1 < rates._product_rate(CPU, torch.float32, 128, 0.01) / multiplied < 10


def test_products_that_would_take_too_long_are_left_out(monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    """As those of bfloat16 are on a CPU without units for it; this one would take a minute and more."""
    monkeypatch.setitem(rates._MATRIX_SIZES, "cpu", (64, 10_000))
    start = time.perf_counter()
    assert rates._matrix_rate(CPU, torch.float32, 0.01) > 0
    assert time.perf_counter() - start < 10


@pytest.mark.parametrize("allowed", [False, True])
def test_settings_are_put_back(allowed: bool, settings: None) -> None:
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.set_num_threads(3)
    rates.measure(CPU, limit_s=0.0)
    assert torch.get_num_threads() == 3
    assert torch.backends.cuda.matmul.allow_tf32 is allowed
    assert torch.is_grad_enabled()
    with pytest.raises(ZeroDivisionError), rates._quiet(CPU):
        assert not torch.backends.cuda.matmul.allow_tf32
        _ = 1 // 0
    assert torch.backends.cuda.matmul.allow_tf32 is allowed


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("no"), MemoryError(), RuntimeError("can't allocate memory")])
def test_sizes_are_halved_until_they_fit(error: Exception) -> None:
    tried = []

    def rate(size: int) -> float:
        tried.append(size)
        if size > 300:
            raise error
        return size * 2.0

    assert rates._fitting(1024, rate) == 512.0
    assert tried == [1024, 512, 256]


def test_halving_ends() -> None:
    def never(size: int) -> float:
        raise MemoryError(f"{size}")

    with pytest.raises(MemoryError, match="64"):
        rates._fitting(1024, never)


def test_another_error_is_no_lack_of_memory() -> None:
    tried = []

    def rate(size: int) -> float:
        tried.append(size)
        raise RuntimeError("a kernel is missing")

    with pytest.raises(RuntimeError, match="missing"):
        rates._fitting(1024, rate)
    assert tried == [1024]


def test_the_best_of_the_timed_calls_counts_and_the_first_is_not_timed() -> None:
    calls: list[int] = []

    def action() -> None:
        calls.append(len(calls))
        if len(calls) == 1:
            torch.rand(1 << 22).sum()

    assert rates._best_s(CPU, action, 0.0) < 1e-3
    assert len(calls) == 3


def test_the_module_prints_json() -> None:
    code = (
        "import sys; sys.argv = ['-', 'cpu']; from crucible import rates;"
        "rates._COPY_BYTES['cpu'] = 1 << 20; rates._MATRIX_SIZES['cpu'] = (64,); rates.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert Rates(**json.loads(done.stdout)).fp32_tflops > 0
