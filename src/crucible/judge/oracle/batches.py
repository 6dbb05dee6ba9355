"""Batches, and how many of their items are evaluated at a time."""

from __future__ import annotations

from typing import Any

import torch

from crucible.judge.boundary.bundles import put_together, take_apart
from crucible.judge.oracle.reference import Reference

PART_BYTES = 128 << 20
"""Where a task's outputs are larger and its batch items independent, they are evaluated in parts of this size."""


def batch_size(inputs: Any) -> int | None:
    """The leading size that all input tensors share, None when they share none."""
    sizes = {leaf.tensor.shape[0] if leaf.tensor.dim() else 0 for leaf in take_apart(inputs, "input")[1]}
    return sizes.pop() if len(sizes) == 1 else None


def batch(inputs: Any, start: int, items: int) -> Any:
    if not batch_size(inputs):
        return None
    structure, leaves = take_apart(inputs, "input")
    return put_together(structure, [leaf.tensor[start : start + items] for leaf in leaves])


def items_of_part(
    reference: Reference, state: dict[str, torch.Tensor], inputs: Any, dtype: torch.dtype, most: int = 0
) -> int:
    """Batch items a part, by trying: 0 when the outputs are small or the items depend on one another; at most `most`
    where that is not 0, however small the outputs are."""
    total = batch_size(inputs) or 0
    if total < 4:
        return 0
    two, one = batch(inputs, 0, 2), batch(inputs, 1, 1)
    try:
        pair = reference.evaluate(state, two, dtype=dtype).outputs
        single = reference.evaluate(state, one, dtype=dtype).outputs
    except Exception:  # noqa: BLE001 - a reference may refuse a batch size in any way
        return 0  # the reference takes its own batch size only
    if len(pair) != len(single):
        return 0
    bytes_of_one = 0
    for a, b in zip(pair, single, strict=True):
        if a.tensor.shape != (2, *b.tensor.shape[1:]):
            return 0
        if not torch.allclose(a.tensor[1:], b.tensor, rtol=1e-9, atol=1e-12):
            return 0  # batch items are not independent (batch norm in training, a mean over the batch)
        bytes_of_one += b.tensor.numel() * 4
    if bytes_of_one * total <= PART_BYTES and not most:
        return 0
    whole = reference.shapes_on_meta(inputs)  # last: meta tensors bring half of torch along, 1.1 s
    if whole is not None and whole != [(total, *leaf.tensor.shape[1:]) for leaf in single]:
        return 0
    items = max(1, PART_BYTES // max(1, bytes_of_one))
    return min(items, most) if most else items
