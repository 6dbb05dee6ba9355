"""What Triton's runtime says of the GPU: the driver's answers, compiled kernels' resources, and no timing."""

from __future__ import annotations

import importlib
import types
from collections.abc import Callable
from typing import Any

import torch

from crucible.emulator.pretend import PROPERTIES
from crucible.emulator.triton.watch import Watch

_ANSWERS = {
    "max_shared_mem": PROPERTIES["shared_memory_per_block_optin"],
    "max_num_regs": PROPERTIES["regs_per_multiprocessor"],
    "multiprocessor_count": PROPERTIES["multi_processor_count"],
    "warpSize": PROPERTIES["warp_size"],
    "sm_clock_rate": 1980000,
    "mem_clock_rate": 3201000,
    "mem_bus_width": 6144,
}
"""`driver.active.utils.get_device_properties` on an H200; rates in kHz, width in bits."""


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

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self.utils = types.SimpleNamespace(get_device_properties=lambda *_: dict(_ANSWERS))

    def get_current_target(self) -> Any:
        return importlib.import_module("triton.backends.compiler").GPUTarget("cuda", 90, 32)

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


def install(runtime: Any, watch: Watch) -> None:
    """Answers as an H200 does; `autotune` takes the first configuration that its pruning leaves."""
    testing: Any = importlib.import_module("triton.testing")
    testing.do_bench = _untimed
    importlib.import_module("triton.runtime").driver.set_active(Driver(watch))
    importlib.import_module("triton.runtime.autotuner").Autotuner._bench = lambda *_, **__: [1.0, 1.0, 1.0]


def _untimed(call: Callable[[], Any], *_: Any, quantiles: Any = None, **__: Any) -> Any:
    """Calls once; every call takes as long as any other."""
    call()
    return [1.0] * len(quantiles) if quantiles else 1.0
