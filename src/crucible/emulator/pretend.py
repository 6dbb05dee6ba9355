"""A process without a GPU in which `device="cuda"` works: CUDA tensors are CPU tensors that say otherwise."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch.amp import autocast_mode
from torch.overrides import TorchFunctionMode

from crucible.emulator import graphs, memories, recording, streams
from crucible.gpus import MAX_THREADS_PER_BLOCK, SHARED_WITHOUT_OPT_IN_BYTES, WARP, Gpu


def properties_of(gpu: Gpu) -> types.SimpleNamespace:
    """What `torch.cuda.get_device_properties` answers; headers/crucible/runtime_api.h answers the same in C++."""
    major, minor = gpu.compute_capability
    return types.SimpleNamespace(
        name=gpu.name,
        major=major,
        minor=minor,
        total_memory=gpu.memory_bytes,
        multi_processor_count=gpu.sms,
        max_threads_per_multi_processor=gpu.max_threads_per_sm,
        max_threads_per_block=MAX_THREADS_PER_BLOCK,
        warp_size=WARP,
        regs_per_multiprocessor=gpu.registers_per_sm,
        shared_memory_per_block=SHARED_WITHOUT_OPT_IN_BYTES,
        shared_memory_per_block_optin=gpu.shared_memory_per_block_bytes,
        shared_memory_per_multiprocessor=gpu.shared_memory_per_sm_bytes,
        L2_cache_size=gpu.l2_bytes,
    )


class NotPretended(BaseException):
    """The candidate asks for what no CPU can do here. A BaseException, so that its own `except Exception` makes no
    fallback of it."""


asked_in_vain: list[str] = []
"""What it asked for, by name."""


class OnCpu(TorchFunctionMode):
    """Every `cuda` that PyTorch is asked for becomes `cpu`."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func == _DEVICE_OF:
            return _on_cuda(func(*args)) if memories.is_on_gpu(args[0]) else func(*args)
        if func is _ARGUMENTS_OF_TO:
            return func(*args, **(kwargs or {}))
        if func in _TO_THE_HOST:
            streams.current().synchronize()
        where = {value.partition(":")[0] for value in map(_device_named, (*args, *(kwargs or {}).values())) if value}
        named = {name: _on_cpu(value) for name, value in (kwargs or {}).items()}
        if func is not torch.device:
            args = tuple(_on_cpu(value) for value in args)
        if named.get("pin_memory"):
            named["pin_memory"] = False
        made = func(*args, **named)
        if "cuda" in where and func is not torch.device:
            return memories.on_gpu(made) if func is torch.Tensor.to else memories.placed(made)
        to_host = func is torch.Tensor.cpu or (func is torch.Tensor.to and "cpu" in where)
        return memories.on_host(made) if to_host else made


_DEVICE_OF: Any = torch.Tensor.device.__get__
"""`x.device`, which candidates compare with `"cuda"` before they launch anything."""


_ARGUMENTS_OF_TO: Any = torch._C._nn._parse_to
"""Of `module.to`, which moves its tensors one by one."""


_TO_THE_HOST: frozenset[Any] = frozenset({torch.Tensor.cpu, torch.Tensor.numpy, torch.Tensor.tolist})


def _on_cuda(device: torch.device) -> torch.device:
    return torch.device("cuda", 0) if device.type == "cpu" else device


def _device_named(value: Any) -> str:
    """The device that an argument names, if it does: `cuda`, `cuda:0`, `cpu`."""
    if isinstance(value, torch.device):
        return value.type
    return value if isinstance(value, str) and (value == "cpu" or value.partition(":")[0] == "cuda") else ""


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == "cuda" else value
    return "cpu" if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")) else value


@contextlib.contextmanager
def _nothing(*_: Any, **__: Any) -> Iterator[None]:
    yield


def install(gpu: Gpu) -> None:
    """From here on this process pretends to have that GPU; it cannot be undone."""
    properties = properties_of(gpu)
    answers: dict[str, Any] = {
        "is_available": True,
        "is_initialized": True,
        "is_bf16_supported": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_properties": properties,
        "get_device_capability": gpu.compute_capability,
        "get_device_name": gpu.name,
        "mem_get_info": (properties.total_memory, properties.total_memory),
        "memory_allocated": 0,
        "max_memory_allocated": 0,
        "memory_reserved": 0,
    }
    for name, value in answers.items():
        setattr(torch.cuda, name, _always(value))
    for name in ("empty_cache", "set_device", "init", "manual_seed", "manual_seed_all"):
        setattr(torch.cuda, name, _always(None))
    torch.cuda.reset_peak_memory_stats = _always(None)
    cuda: Any = torch.cuda
    tensor: Any = torch.Tensor
    module: Any = torch.nn.Module
    cuda.Stream, cuda.Event, cuda.stream, cuda.device = streams.Stream, streams.Event, streams.stream, _nothing
    cuda.current_stream, cuda.default_stream = streams.current, streams.default
    cuda.set_stream = streams.make_current
    cuda.CUDAGraph = cuda.graphs.CUDAGraph = graphs.CUDAGraph
    cuda.graph = cuda.graphs.graph = graphs.graph
    cuda.graph_pool_handle = cuda.graphs.graph_pool_handle = _always((0, 0))
    cuda.is_current_stream_capturing = lambda: bool(recording.current)
    cuda.synchronize = graphs.synchronize
    for name in ("cudart", "caching_allocator_alloc", "caching_allocator_delete"):
        setattr(cuda, name, _in_vain(f"torch.cuda.{name}"))
    tensor.is_cuda = property(memories.is_on_gpu)
    tensor.cuda = lambda self, *_, **__: memories.on_gpu(self)
    module.cuda = lambda self, *_, **__: self._apply(memories.on_gpu) if memories.are_apart() else self
    tensor.pin_memory = lambda self, *_: self
    tensor.record_stream = _always(None)
    recurrent: Any = torch.nn.RNNBase
    recurrent.flatten_parameters = _always(None)  # cuDNN's, where PyTorch was built with it
    autocast: Any = autocast_mode.autocast
    autocast.__init__ = _autocast_on_cpu(autocast.__init__)
    mode: Any = OnCpu()
    mode.__enter__()


def _autocast_on_cpu(start: Any) -> Any:
    """`torch.autocast("cuda")` for tensors that are the CPU's; float16 where no dtype is named, as on CUDA."""

    def started(self: Any, device_type: str, dtype: Any = None, *rest: Any, **named: Any) -> None:
        if device_type == "cuda":
            device_type, dtype = "cpu", dtype or torch.get_autocast_dtype("cuda")
        start(self, device_type, dtype, *rest, **named)

    return started


def _always(value: Any) -> Any:
    return lambda *_, **__: value


def _in_vain(name: str) -> Any:
    def asked(*_: Any, **__: Any) -> Any:
        asked_in_vain.append(name)
        raise NotPretended(name)

    return asked
