"""Tensors as bits: how many cross at a time, as what they are looked at, and what memory holds that nobody wrote."""

from __future__ import annotations

import torch

CHUNK_BYTES = 16 << 20
"""Candidate bytes held at a time: large enough for full PCIe speed, small beside any tensor that matters."""
POISON = {
    torch.float32: 0x7FC5EED5,
    torch.float64: 0x7FF8C0DE5EED5000,
    torch.bfloat16: 0x7FD5,
    torch.float16: 0x7ED5,
}
"""NaN payloads that the worker fills fresh memory with: arithmetic does not make them."""
INTEGER_VIEWS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By item size: what to look at a tensor's bits as."""
