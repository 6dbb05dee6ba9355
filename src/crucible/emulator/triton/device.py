"""What Triton's runtime says of the GPU: the driver's answers, compiled kernels' resources, and no timing."""

from __future__ import annotations

import importlib
import types
from collections.abc import Callable
from typing import Any

import torch

from crucible.emulator.triton.watch import Watch
from crucible.gpus import WARP, Gpu


def properties_of(gpu: Gpu) -> dict[str, int]:
    """`driver.active.utils.get_device_properties`; rates in kHz, width in bits."""
    return {
        "max_shared_mem": gpu.shared_memory_per_block_bytes,
        "max_num_regs": gpu.registers_per_sm,
        "multiprocessor_count": gpu.sms,
        "warpSize": WARP,
        "sm_clock_rate": gpu.clock_mhz * 1000,
        "mem_clock_rate": gpu.memory_clock_mhz * 1000,
        "mem_bus_width": gpu.memory_bus_bits,
    }


class Compiled:
    """What a launch or `warmup` gives: a kernel that can be launched again. Its resources are not known here."""

    n_regs = 32
    n_spills = 0
    name = ""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.metadata = types.SimpleNamespace(shared=0, num_warps=4, num_stages=3, num_ctas=1)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        launch: Callable[..., Any] = self.kernel[grid]
        return launch

    def _init_handles(self) -> None:
        pass


class Driver:
    """`triton.runtime.driver.active`."""

    def __init__(self, watch: Watch, gpu: Gpu) -> None:
        self._watch = watch
        self._capability = 10 * gpu.compute_capability[0] + gpu.compute_capability[1]
        self.utils = types.SimpleNamespace(get_device_properties=lambda *_: properties_of(gpu))

    def get_current_target(self) -> Any:
        return importlib.import_module("triton.backends.compiler").GPUTarget("cuda", self._capability, WARP)

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        pass

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return 9, 0

    def get_benchmarker(self) -> Callable[..., Any]:
        return _untimed

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._watch.beyond(f"triton.runtime.driver.active.{name}")


def install(watch: Watch, gpu: Gpu) -> None:
    """Answers as that GPU does; `autotune` takes the first configuration that its pruning leaves."""
    testing: Any = importlib.import_module("triton.testing")
    testing.do_bench = _untimed
    importlib.import_module("triton.runtime").driver.set_active(Driver(watch, gpu))
    importlib.import_module("triton.runtime.autotuner").Autotuner._bench = lambda *_, **__: [1.0, 1.0, 1.0]


def _untimed(call: Callable[[], Any], *_: Any, quantiles: Any = None, **__: Any) -> Any:
    """Calls once; every call takes as long as any other."""
    call()
    return [1.0] * len(quantiles) if quantiles else 1.0
