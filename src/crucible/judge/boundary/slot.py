"""The slot: memory in which the oracle puts the contents of one timed call. All others can only read it."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os

import torch

from crucible.judge.boundary.bundles import raw_bytes

_ALIGNMENT = 64
_SEALS = 0x2 | 0x4 | 0x10  # F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_FUTURE_WRITE: what is mapped already may be written to
_ADD_SEALS = 1033


class Slot:
    """The oracle's end, with room for tensors like those given."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        size = max(1, sum(_room(tensor) for tensor in tensors))
        self.descriptor = os.memfd_create("contents", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        os.ftruncate(self.descriptor, size)
        self._memory = mmap.mmap(self.descriptor, size)
        with contextlib.suppress(OSError):  # Linux before 5.1: who writes there spoils its own contents alone
            fcntl.fcntl(self.descriptor, _ADD_SEALS, _SEALS)

    def put(self, tensors: list[torch.Tensor]) -> None:
        """These contents in place of the last ones."""
        offset = 0
        for tensor in tensors:
            if tensor.numel():
                place = torch.frombuffer(self._memory, dtype=tensor.dtype, count=tensor.numel(), offset=offset)
                place.copy_(tensor.detach().flatten())
            offset += _room(tensor)


def take(descriptor: int, targets: list[torch.Tensor]) -> None:
    """What is in the slot, into contiguous tensors of the same shapes. Raises EOFError where it is too short."""
    offset = 0
    for target in targets:
        on_cpu = (
            target if target.device.type == "cpu" else torch.empty(target.shape, dtype=target.dtype, pin_memory=True)
        )
        _read(descriptor, raw_bytes(on_cpu), offset)
        if on_cpu is not target:
            target.copy_(on_cpu)
        offset += _room(target)


def _read(descriptor: int, view: memoryview, offset: int) -> None:
    while view:
        got = os.preadv(descriptor, [view], offset)
        if not got:
            raise EOFError("the slot is shorter than what was to be in it")
        view, offset = view[got:], offset + got


def _room(tensor: torch.Tensor) -> int:
    return -(-tensor.numel() * tensor.element_size() // _ALIGNMENT) * _ALIGNMENT
