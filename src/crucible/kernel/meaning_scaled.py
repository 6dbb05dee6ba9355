"""What numbers in fp16's range mean, and the power of two that brings them there."""

from __future__ import annotations

import numpy as np

from crucible.gpus import WARP
from crucible.kernel import nodes as ir
from crucible.kernel.tensor_cores import Array, as_words
from crucible.kernel.whereabouts import Places


def largest(run: Places, node: ir.Largest) -> Array:
    value, before = (run.registers[each.of][run.element(each)] for each in (node.value, node.into))
    return np.asarray(np.maximum(before, np.where(np.isfinite(value), np.abs(value), 0).max(axis=0)))


def scale(run: Places, node: ir.Scale) -> Array:
    """Rows of blocks, as all threads of one have it."""
    found = run.registers[node.largest.of][run.element(node.largest)]
    most = np.where(run.active, found, 0).max(axis=1, keepdims=True)
    run.shared[node.scratch].reshape(len(run.blocks), -1)[:, : node.threads // WARP] = most
    exponent = np.frexp(most)[1] - 1.0
    return np.broadcast_to(np.where(most > 0, 2.0 ** np.minimum(14 - exponent, 126), 2.0**126), run.shape)


def split(run: Places, node: ir.SplitScaled) -> Array:
    value, by = (run.registers[each.of][run.element(each)] for each in (node.value, node.scale))
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = value * by
        high = scaled.astype(np.float16)
        part = high if node.part == "high" else (scaled - high).astype(np.float16)
    return as_words(np.stack([part[::2], part[1::2]], axis=-1).view(np.uint16))[..., 0]
