"""The table of GPUs: found by name, and figures that agree with each other."""

from __future__ import annotations

import dataclasses

import pytest

from crucible.gpus import GPUS, KIB, Gpu, find_gpu

# Operations per clock and multiprocessor, from the architectures' whitepapers: outside the tensor cores in fp32,
# and dense bfloat16 in them. A rate over this and the multiprocessors is a clock, and a clock is easily believed.
PER_CLOCK = {(8, 0): (128, 2048), (8, 9): (256, 1024), (9, 0): (256, 4096), (10, 0): (256, 8192)}


@pytest.mark.parametrize(
    ("printed", "short"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA B200", "b200"),
    ],
)
def test_a_gpu_is_found_by_its_printed_and_its_short_name(printed: str, short: str) -> None:
    found = find_gpu(printed)
    assert found is not None
    assert (found.name, found.short_name) == (printed, short)
    assert find_gpu(short) is find_gpu(short.upper()) is find_gpu(f" {printed.lower()}\n") is found


@pytest.mark.parametrize("name", ["", "NVIDIA", "h", "NVIDIA H100 NVL", "NVIDIA H200 NVL", "NVIDIA GeForce RTX 4090"])
def test_a_gpu_that_is_not_in_the_table_is_none(name: str) -> None:
    assert find_gpu(name) is None


@pytest.mark.parametrize(
    ("name", "short"), [("h100", "h100-sxm"), ("a100", "a100-sxm-80gb"), ("A100-PCIe", "a100-pcie-80gb")]
)
def test_a_family_name_means_its_common_member(name: str, short: str) -> None:
    assert find_gpu(name) is find_gpu(short) is not None


def test_names_are_unique() -> None:
    names = [name for gpu in GPUS for name in (gpu.name.lower(), gpu.short_name)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.short_name)
def test_rates_are_dense(gpu: Gpu) -> None:
    """A rate with sparsity would need twice any clock these chips reach."""
    cores, tensors = PER_CLOCK[gpu.compute_capability]
    for rate, per_clock in ((gpu.fp32_tflops, cores), (gpu.bf16_tflops, tensors)):
        clock_ghz = rate * 1e3 / (gpu.sms * per_clock)
        assert 1.405 < clock_ghz < 2.6  # an A100 runs at 1.41
    assert gpu.tf32_tflops == pytest.approx(gpu.bf16_tflops / 2, rel=0.02)
    assert gpu.fp16_tflops == gpu.bf16_tflops
    assert gpu.fp8_tflops is None or gpu.fp8_tflops == pytest.approx(2 * gpu.bf16_tflops, rel=0.02)
    assert (gpu.fp8_tflops is None) == (gpu.compute_capability < (8, 9))


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.short_name)
def test_figures_are_whole_and_have_sources(gpu: Gpu) -> None:
    for field in dataclasses.fields(gpu):
        value = getattr(gpu, field.name)
        assert value is None or isinstance(value, str | tuple) or value > 0, field.name
    assert gpu.shared_memory_per_sm_bytes - gpu.shared_memory_per_block_bytes == KIB  # CUDA keeps 1 KiB a block
    text = " ".join(gpu.sources)
    assert all(word in text for word in ("bandwidth", "rates", "multiprocessors", "L2", "shared memory", "nvidia.com"))
    for rate in ("TF32", "BF16", "FP8"):
        assert (rate in text) == (gpu.compute_capability >= (9, 0)), "say whether sparsity was taken out"
