"""Layouts: the same values under other strides, for what a kernel must not take for contiguous."""

from __future__ import annotations

from collections.abc import Callable

import torch

CONTIGUOUS, TRANSPOSED, STRIDED, EXPANDED, MISALIGNED = "contiguous", "transposed", "strided", "expanded", "misaligned"


def laid_out(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    """A tensor of the same shape and values in memory of its own; `EXPANDED` is its first element everywhere, or, of
    what differs within its first item, that item. What has too few dims for a layout stays contiguous."""
    if not tensor.dim() or not tensor.numel():
        return _copied(tensor)
    return _WAYS[layout](tensor)


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    """A matrix with its columns in order, images with channels last."""
    if tensor.dim() < 2:
        return _copied(tensor)
    dim = 0 if tensor.dim() == 2 else 1
    return _copied(tensor.movedim(dim, -1)).movedim(-1, dim)


def _strided(tensor: torch.Tensor) -> torch.Tensor:
    """Every other element of the last dim of a larger tensor, from the second on."""
    room = torch.full((*tensor.shape, 2), 7, dtype=tensor.dtype, device=tensor.device)
    room[..., 1] = tensor
    return room[..., 1]


def _expanded(tensor: torch.Tensor) -> torch.Tensor:
    """With a stride of 0 in the first dim, or in all of them where all values are the same, as a sum's gradient has."""
    first = tensor.flatten()[0]
    part = first.reshape([1] * tensor.dim()) if bool((tensor == first).all()) else tensor[:1]
    return part.clone().expand_as(tensor)


def _misaligned(tensor: torch.Tensor) -> torch.Tensor:
    """Contiguous from the second element of its memory on, where no vector of elements may be loaded."""
    room = torch.empty(tensor.numel() + 1, dtype=tensor.dtype, device=tensor.device)
    room[1:] = tensor.flatten()
    return room[1:].view(tensor.shape)


_WAYS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    CONTIGUOUS: _copied,
    TRANSPOSED: _transposed,
    STRIDED: _strided,
    EXPANDED: _expanded,
    MISALIGNED: _misaligned,
}
