"""Footprint: what evaluating a reference takes of memory, known before it is evaluated: traced without values.

A case that would not fit is not begun: the process that tries to hold it is ended by the system, and with it what was
known by then.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from crucible import hardware
from crucible.copies import duplicate
from crucible.judge.boundary.bundles import numbers_to_tensors, put_together, take_apart
from crucible.judge.boundary.modules import call, gradients_of
from crucible.judge.oracle.batches import batch, batch_size
from crucible.judge.oracle.reference import Reference

TRACED_FROM = 1 << 20
"""Bytes of inputs and weights; below it nothing is traced, since tensors without values bring half of torch along
(1.1 s)."""
SHARE = 0.7
"""Of what is left that tensors may take: libraries work in memory of their own (im2col, packing)."""


class Footprint(TorchDispatchMode):
    """While active, keeps the most bytes of all tensors that an operation made and that were alive at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.peak_bytes = 0
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                self._alive[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        self._alive = {key: kept for key, kept in self._alive.items() if not kept[0].expired()}
        self.peak_bytes = max(self.peak_bytes, sum(size for _, size in self._alive.values()))
        return out


def footprint(reference: Reference, inputs: Any, dtype: torch.dtype | None, *, backward: bool) -> int | None:
    """Bytes that one evaluation of `inputs` holds at its peak, cast to `dtype` (None: as they are); None where that
    cannot be traced."""
    structure, leaves = take_apart(inputs, "input")
    try:
        model = duplicate(reference.model).to("meta")
        model = model if dtype is None else model.to(dtype)
        tensors = [_on_meta(leaf.tensor, dtype) for leaf in leaves]
        wanted: dict[str, torch.Tensor] = {name: p for name, p in model.named_parameters() if p.requires_grad}
        with Footprint() as seen, torch.set_grad_enabled(backward):
            given = [t.requires_grad_(backward and t.is_floating_point()).clone() for t in tensors]
            found = take_apart(numbers_to_tensors(call(model, put_together(structure, given))), "output")[1]
            if backward:
                wanted.update({f"input {i}": t for i, t in enumerate(tensors) if t.requires_grad})
                outputs = [leaf.tensor for leaf in found]
                gradients_of(outputs, wanted, [torch.empty_like(t) for t in outputs if t.is_floating_point()])
    except Exception:  # noqa: BLE001 - a reference may refuse tensors without values in any way
        return None
    weights = sum(p.nbytes for p in (*model.parameters(), *model.buffers()))
    given_bytes = sum(t.nbytes for t in tensors) + sum(leaf.tensor.nbytes for leaf in leaves)
    return int(seen.peak_bytes + weights + given_bytes)


def room_bytes(device: torch.device, limit_bytes: int) -> int:
    """What an evaluation may hold: of the device's memory, or of this process's limit."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0] * SHARE)
    with open("/proc/self/statm", encoding="ascii") as file:
        resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    left = limit_bytes - resident if limit_bytes else hardware.available_bytes()
    return int(min(left, hardware.available_bytes()) * SHARE)


def is_worth_tracing(reference: Reference, inputs: Any) -> bool:
    """Whether it could be too large at all."""
    held = sum(leaf.tensor.nbytes for leaf in take_apart(inputs, "input")[1])
    return held + sum(p.nbytes for p in reference.model.parameters()) >= TRACED_FROM


def most_items(reference: Reference, inputs: Any, dtype: torch.dtype, room: int, *, backward: bool) -> int:
    """How many batch items fit at a time, by halves of the batch; 0 where not even one does, or none can be told."""
    items = (batch_size(inputs) or 0) // 2
    while items:
        held = footprint(reference, batch(inputs, 0, items), dtype, backward=backward)
        if held is not None and held <= room:
            return items
        items //= 2
    return 0


def _on_meta(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    wanted = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=wanted, device="meta")
