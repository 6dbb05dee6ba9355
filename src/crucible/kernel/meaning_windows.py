"""What windows mean whose elements come one after another, and what lanes tell each other of them."""

from __future__ import annotations

import numpy as np

from crucible.gpus import WARP
from crucible.kernel import nodes as ir
from crucible.kernel.whereabouts import Array, Places
from crucible.kernel.window_nodes import SIGNS

LANES, BYTES = 4, 2
"""Side by side, that exchange; of a tile that each has."""


def becoming(run: Places, node: ir.Take) -> list[tuple[ir.Element, Array, Array]]:
    """Registers, what is in them, and what they may become, before any of them does."""
    found = []
    for into, new in node.becomes:
        value = run.registers[new.of][run.element(new)] if isinstance(new, ir.Element) else run.index(new)
        found.append((into, run.registers[into.of][run.element(into)], value))
    return found


def flipped(value: Array, signs: Array, dtype: str) -> Array:
    """NaN where other bits are turned round."""
    turned = -value
    if dtype == "halves":
        words = np.nan_to_num(value).astype(np.int64).astype(np.uint32) ^ np.uint32(SIGNS[dtype])
        turned = words.view(np.int32).astype(np.float64)
    return np.asarray(np.where(signs == 0, value, np.where(signs == SIGNS[dtype], turned, np.nan)))


def voted(holds: Array) -> Array:
    """Where it does for all lanes of a warp."""
    blocks, threads = holds.shape
    return np.asarray(np.all(holds.reshape(blocks, -1, WARP), axis=-1).repeat(WARP, axis=-1).reshape(blocks, threads))


def exchanged(values: Array) -> Array:
    """Of what lanes have [tile][blocks, threads] the bytes [byte][blocks, threads] of each one's own tile."""
    both = np.stack([values % 256, values // 256], axis=1)
    apart = both.reshape(LANES, BYTES, values.shape[1], -1, LANES)  # tile, byte, block, lanes, one of them
    found: Array = apart.transpose(4, 1, 2, 3, 0).reshape(LANES * BYTES, *values.shape[1:])
    return found
