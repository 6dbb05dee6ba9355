"""What a candidate's process hands out: forms of tensors, their bytes, and whether what it was given is unchanged."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from crucible.judge.boundary.bits import CHUNK_BYTES, INTEGER_VIEWS
from crucible.judge.boundary.bundles import Leaf, raw_bytes
from crucible.judge.worker import clock


def described(leaves: list[Leaf]) -> list[dict[str, Any]]:
    """The form of each tensor of an output."""
    return [
        {
            "name": leaf.name,
            "dtype": str(leaf.tensor.dtype)[6:],
            "shape": list(leaf.tensor.shape),
            "device": kind_of(leaf.tensor),
        }
        for leaf in leaves
    ]


def subclass_in(out: Any) -> str | None:
    """The name of a tensor subclass in the output; nothing of the subclass's own is called."""
    kind = type(out)
    if isinstance(out, torch.Tensor) and kind is not torch.Tensor and kind is not torch.nn.Parameter:
        return kind.__name__
    if kind in (tuple, list) or isinstance(out, tuple):
        return next((name for item in out if (name := subclass_in(item))), None)
    if kind is dict:
        return next((name for item in out.values() if (name := subclass_in(item))), None)
    return None


def mutated(tensors: list[torch.Tensor], given: list[torch.Tensor]) -> list[int]:
    """Indices of tensors that no longer hold what they did."""
    return [
        i for i, (now, before) in enumerate(zip(tensors, given, strict=True)) if not _same_bits(now.detach(), before)
    ]


def _same_bits(now: torch.Tensor, before: torch.Tensor) -> bool:
    view = INTEGER_VIEWS.get(now.element_size())
    if now.is_complex() or view is None:
        return torch.equal(now, before.to(now.device))
    a, b = now.flatten().view(view), before.flatten().view(view)
    return all(torch.equal(x, y.to(x.device)) for x, y in zip(a.split(1 << 24), b.split(1 << 24), strict=True))


def write(descriptor: int, tensor: torch.Tensor) -> None:
    """All of a tensor's bytes in row-major order, a chunk at a time."""
    if not tensor.is_contiguous() and tensor.dim() and tensor.numel() * tensor.element_size() > CHUNK_BYTES:
        for row in tensor:
            write(descriptor, row)
        return
    flat = tensor.contiguous().flatten()
    elements = max(1, CHUNK_BYTES // flat.element_size())
    chunks = flat.split(elements)
    for chunk in _from_gpu(chunks) if kind_of(flat) == "cuda" else chunks:
        view = raw_bytes(chunk)
        while view:
            view = view[os.write(descriptor, view) :]


def _from_gpu(chunks: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
    """The chunks on the CPU; each is on its way while the one before it is looked at."""
    staging = [_pinned(chunk) for chunk in chunks[:2]]
    here: list[torch.Tensor] = []
    for number, chunk in enumerate(chunks):
        copy = staging[number % 2][: chunk.numel()].copy_(chunk, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record()
        yield from here
        arrived.synchronize()
        here = [copy]
    yield from here


def kind_of(tensor: torch.Tensor) -> str:
    """Where a tensor is, also in a process that takes its CPU for a GPU."""
    with torch._C.DisableTorchFunction():
        return tensor.device.type


def _pinned(like: torch.Tensor) -> torch.Tensor:
    """Page-locked memory on the CPU: copies from the GPU run at full speed into it."""
    return torch.empty(like.shape, dtype=like.dtype, pin_memory=True)


def finish(device: torch.device) -> None:
    """Waits for the device; raises RuntimeError for an error nobody looked at (a launch that was refused)."""
    if device.type != "cuda":
        return
    code, words = _last_cuda_error()
    if code:
        raise RuntimeError(f"CUDA error: {words} (left unchecked by the candidate)")
    torch.cuda.synchronize()


def _last_cuda_error() -> tuple[int, str]:
    """cudaGetLastError of the runtimes that this process has loaded."""
    for runtime in clock.cuda_runtimes():
        runtime.cudaGetErrorString.restype = ctypes.c_char_p
        code = runtime.cudaGetLastError()
        if code:
            return code, runtime.cudaGetErrorString(code).decode()
    return 0, ""
