"""The least time that some work can take on some device: the roofline model of Williams, Waterman and Patterson
(Communications of the ACM 52(4), 2009), for a whole module instead of a kernel.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from crucible.contract import Contract
from crucible.errors import JudgeError
from crucible.gpus import Gpu

_BOOT = "import sys; sys.path[:0] = [{package!r}]; sys.path += {installed!r}; from crucible.rates import main; main()"


@dataclass(frozen=True)
class Work:
    """What a module cannot avoid doing, however it is fused."""

    covers: str
    """`forward` or `forward+backward`."""
    bytes_moved: int
    """Bytes read from and written to device memory."""
    matrix_flops: int
    """Operations of convolutions and matrix products; a multiply-add counts as two."""
    other_flops: int
    """Operations of everything else, at least one for each element."""


@dataclass(frozen=True)
class Rates:
    """How fast a device is. Every device has all of these: where there are no units for a precision, it runs at
    the rate of the next wider one."""

    bandwidth_gb_s: float
    """Device memory, in 10^9 bytes a second, read and written bytes together."""
    fp32_tflops: float
    """Matrix products of fp32 operands, and all other arithmetic, in 10^12 operations a second."""
    tf32_tflops: float
    """Matrix products of operands rounded to TF32."""
    bf16_tflops: float
    """Matrix products of bfloat16 operands with fp32 sums."""
    source: str
    """`measured here`, or the datasheet."""

    @property
    def words(self) -> str:
        """`4.25 TB/s; matrix products: 51 TFLOP/s fp32, 408 TF32, 784 bf16 (measured here)`."""
        rates = f"{self.fp32_tflops:.3g} TFLOP/s fp32, {self.tf32_tflops:.3g} TF32, {self.bf16_tflops:.3g} bf16"
        return f"{_in_words(self.bandwidth_gb_s * 1e9, 'B/s')}; matrix products: {rates} ({self.source})"


@dataclass(frozen=True)
class Floor:
    """The least time of some work on some device."""

    covers: str
    """`forward` or `forward+backward`."""
    time_ms: float
    """Milliseconds."""
    limited_by: str
    """`memory`, `matrix products` or `other arithmetic`."""
    words: str
    """`0.478 ms: 2.03 GB at 4.25 TB/s (190 GFLOP of matrix products at 416 TFLOP/s take 0.458 ms)`."""
    bytes_moved: int = 0
    """Bytes that no fusion saves; 0 in records of before this was kept."""
    matrix_flops: int = 0
    """Operations of convolutions and matrix products."""


@dataclass(frozen=True)
class _Need:
    """One resource: how much of it, at which rate."""

    limited_by: str
    time_ms: float
    words: str


def floor(work: Work, rates: Rates, contract: Contract) -> Floor:
    """The least time: the slowest of memory, matrix products and other arithmetic, all overlapping perfectly.

    Matrix products run at the rate of the fastest units that keep the contract's precision. Under `fp32` that is
    the larger of the fp32 rate and that of split operands: three products of fp16, as fast as bfloat16, of numbers that
    a scale brings in its range (relative error 5e-8, where sums one after the other in fp32 have 3e-7 to 1.6e-6:
    `benchmarks/notes.md`, "float32 kept by three products of fp16"; after Ootomo and Yokota, 2022).
    """
    matrix_tflops, how = _matrix_rate(rates, contract)
    needs = [
        _need("memory", work.bytes_moved, "B", "", rates.bandwidth_gb_s * 1e9, "B/s"),
        _need(
            "matrix products", work.matrix_flops, "FLOP", " of matrix products", matrix_tflops * 1e12, f"FLOP/s{how}"
        ),
        _need("other arithmetic", work.other_flops, "FLOP", " of other arithmetic", rates.fp32_tflops * 1e12, "FLOP/s"),
    ]
    first, second = sorted(needs, key=lambda need: need.time_ms, reverse=True)[:2]
    also = f" ({second.words} take {second.time_ms:.3g} ms)" if second.time_ms else ""
    words = f"{first.time_ms:.3g} ms: {first.words}{also}"
    return Floor(work.covers, first.time_ms, first.limited_by, words, work.bytes_moved, work.matrix_flops)


def from_datasheet(gpu: Gpu) -> Rates:
    """The rates that the maker states.

    Nobody reaches them, so a floor from them is lower than one from measured rates: on an H200, copies reach 88 %
    of the bandwidth, products 82 % of the rate in TF32 and, by how warm the chip is, 64 to 79 % in bfloat16.
    """
    return Rates(
        bandwidth_gb_s=gpu.bandwidth_gb_s,
        fp32_tflops=gpu.fp32_tflops,
        tf32_tflops=gpu.tf32_tflops,
        bf16_tflops=gpu.bf16_tflops,
        source=f"{gpu.name} datasheet",
    )


def here(timeout_s: float = 120.0, *, kind: str = "auto") -> Rates:
    """The rates of the device of this machine (`auto`, `cuda` or `cpu`), measured in a process of its own, so that
    the caller need not load torch: a second for the measurement, several for torch and the driver.

    Raises JudgeError with the process's last words when it fails or takes longer than `timeout_s` seconds.
    """
    command = [*_isolated_python(), kind]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise JudgeError(f"measuring the device's rates took longer than {timeout_s:g} s") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise JudgeError(f"measuring the device's rates failed: {last}")
    return Rates(**json.loads(done.stdout.strip().splitlines()[-1]))


def _isolated_python() -> list[str]:
    """Isolated from the current folder and from PYTHON* variables; torch may be the user's own installation."""
    package = str(Path(__file__).resolve().parents[1])
    torch = importlib.util.find_spec("torch")
    installed = [str(Path(torch.origin).parents[1])] if torch is not None and torch.origin is not None else []
    return [sys.executable, "-I", "-c", _BOOT.format(package=package, installed=installed)]


def _matrix_rate(rates: Rates, contract: Contract) -> tuple[float, str]:
    """In 10^12 operations a second, and how it is reached where that needs a word."""
    known = [(rates.fp32_tflops, ""), (rates.bf16_tflops / 3, " (three products of fp16 each)")]
    if contract.operand_bits <= 10:
        known.append((rates.tf32_tflops, ""))
    if contract.operand_bits <= 7:
        known.append((rates.bf16_tflops, ""))
    return max(known, key=lambda pair: pair[0])


def _need(limited_by: str, amount: int, unit: str, of: str, rate: float, rate_unit: str) -> _Need:
    words = f"{_in_words(amount, unit)}{of} at {_in_words(rate, rate_unit)}"
    return _Need(limited_by, amount / rate * 1e3, words)


def _in_words(value: float, unit: str) -> str:
    """Three digits and a prefix: `2.03 GB`, `416 TFLOP/s`."""
    prefixes = ["", "k", "M", "G", "T", "P"]
    while value >= 999.5 and len(prefixes) > 1:
        value /= 1000
        prefixes.pop(0)
    return f"{value:.3g} {prefixes[0]}{unit}"
