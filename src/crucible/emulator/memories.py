"""A GPU's memory and the host's, told apart while a candidate is constructed.

A module is moved to the GPU when it stands. Until then its weights are the host's, and PyTorch refuses to compute with
them and with what its constructor has on the GPU; many a constructor swallows that and does without what it tried.
Where there is one memory it would succeed. Inside `apart`, what is the GPU's is known by its storage.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from crucible.emulator import recording
from crucible.emulator.streams import tensors_in
from crucible.tracing import heard

_BETWEEN = ("copy_", "_copy_from", "set_")
"""Operations that take tensors of both, and leave each where it is."""
REFUSED = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
"""PyTorch's own words."""

_refusing = contextlib.ExitStack()
"""Holds who refuses, where anybody does."""
_on_gpu: dict[int, torch.UntypedStorage] | None = None
"""By address, what is the GPU's; they are held, so that no other one takes their place. None where it is all one."""


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """Two memories inside the block, all of it the GPU's before and after."""
    global _on_gpu
    _on_gpu = {}
    recording.watched.append(_launched)
    try:
        with _refusing:
            yield
    finally:
        recording.watched.remove(_launched)
        _on_gpu = None


def are_apart() -> bool:
    """Whether somebody is inside `apart`."""
    return _on_gpu is not None


def is_on_gpu(tensor: torch.Tensor) -> bool:
    """Whether it would be; so is what has no storage to be known by."""
    if _on_gpu is None:
        return True
    address = _address(tensor)
    return not address or address in _on_gpu


def on_gpu(tensor: torch.Tensor) -> torch.Tensor:
    """What `tensor.cuda()` gives: itself where it is there."""
    return tensor if is_on_gpu(tensor) else placed(tensor.clone())


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    """What `tensor.cpu()` gives."""
    if _on_gpu is None or not is_on_gpu(tensor):
        return tensor
    copied = tensor.clone()
    _on_gpu.pop(_address(copied), None)
    return copied


def placed(made: Any) -> Any:
    """What was made there, which is so from now on."""
    if _on_gpu is not None:
        found = {_address(tensor): tensor.untyped_storage() for tensor in tensors_in(made) if _address(tensor)}
        if found and not _on_gpu:  # most constructors have nothing there, and pay nothing for one who looks
            _refusing.enter_context(_Refusing())
        _on_gpu.update(found)
    return made


def _address(tensor: torch.Tensor) -> int:
    """Of its storage; 0 where it has none: it is sparse, without elements, or without values."""
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (NotImplementedError, RuntimeError):
        return 0


def _is_known_there(tensor: torch.Tensor) -> bool:
    return _on_gpu is not None and _address(tensor) in _on_gpu


def _launched(given: Any, result: Any, _: str) -> None:
    """A kernel of the candidate's, which hands out what is where its tensors were."""
    if any(map(_is_known_there, tensors_in(given))):
        placed(result)


class _Refusing(TorchDispatchMode):
    """Raises where PyTorch would for a weight on the host beside a tensor on the GPU. Unlike in `streams` Dynamo does
    without it: under it `torch.compile` raises, which a constructor may call to warm up."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        given = [] if func._schema.name.partition("::")[2] in _BETWEEN else tensors_in((args, named))
        if not any(map(_is_known_there, given)):
            return heard(func, args, named)
        if any(isinstance(each, torch.nn.Parameter) and each.dim() and not is_on_gpu(each) for each in given):
            raise RuntimeError(REFUSED)
        return placed(heard(func, args, named))
