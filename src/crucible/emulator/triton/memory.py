"""The memory of one tensor that a kernel was given: its bytes, its name, and who touched them last."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

NOBODY_WROTE = {
    2: (0x7FF9, 0x7ED5, 0x7FD5),
    4: (0x7FF97FF9, 0x7FC5EED5, 0x7ED57ED5, 0x7FD57FD5),
    8: (0x7FF97FF97FF97FF9, 0x7FF8C0DE5EED5000),
}
"""By size in bytes: what the arena's fresh memory holds (runtime/memory.h), and the judge's own poison."""


@dataclass
class Memory:
    """The storage behind an argument."""

    name: str
    kind: str
    """`float`, `half`, ...: the element's type, as CUDA names it."""
    start: int
    end: int
    item: int
    """Bytes of an element."""
    floating: bool

    def at(self, addresses: Any, size: int) -> Any:
        """The `size` bytes at each address, as unsigned integers. Addresses are multiples of `size`."""
        first = -self.start % size
        words = self._bytes[first : first + (self.end - self.start - first) // size * size].view(f"u{size}")
        return words[(addresses - np.uint64(self.start + first)) // np.uint64(size)]

    def slots(self, addresses: Any) -> Any:
        """Numbers of the elements at the addresses."""
        return ((addresses - np.uint64(self.start)) // np.uint64(self.item)).astype(np.int64)

    def shows_poison(self, size: int) -> bool:
        """Whether the patterns of fresh memory are no likely contents: two bytes may be any integer."""
        return size > 2 or self.floating

    def distance(self, address: int) -> int:
        return max(self.start - address, address - self.end, 0)

    def words(self, address: int) -> str:
        """`12 bytes past the end of `out` (float[2048])`, or the element's number."""
        name = f"`{self.name}` ({self.kind}[{(self.end - self.start) // self.item}])"
        if address < self.start:
            return f"{_bytes(self.start - address)} before the start of {name}"
        if address >= self.end:
            past = address - self.end
            return f"{_bytes(past)} past the end of {name}" if past else f"just past the end of {name}"
        return f"element {(address - self.start) // self.item} of {name}"

    @cached_property
    def writers(self) -> Any:
        """For each element the number of the launch's access that wrote it last; 0 is none."""
        return np.zeros((self.end - self.start) // self.item, dtype=np.int32)

    @cached_property
    def readers(self) -> Any:
        """The same for reads."""
        return np.zeros((self.end - self.start) // self.item, dtype=np.int32)

    @cached_property
    def earlier_readers(self) -> Any:
        """The last read by a program other than the one that read last."""
        return np.zeros((self.end - self.start) // self.item, dtype=np.int32)

    @cached_property
    def _bytes(self) -> Any:
        return np.ctypeslib.as_array((ctypes.c_uint8 * (self.end - self.start)).from_address(self.start))


def _bytes(count: int) -> str:
    return f"{count} byte" if count == 1 else f"{count} bytes"
