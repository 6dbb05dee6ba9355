"""What the oracle keeps of expected values stays what it was."""

from __future__ import annotations

import mmap
from pathlib import Path

import torch

from crucible.judge.oracle.sealed import SealedStore


def aligned(elements: int) -> torch.Tensor:
    """Ones in memory that begins with a page, as one allocation in 64 does."""
    room = torch.ones(elements + mmap.PAGESIZE // 8, dtype=torch.float64)
    return room[-room.data_ptr() % mmap.PAGESIZE // 8 :][:elements]


def resident(values: torch.Tensor) -> int:
    """KiB of the mapping that a tensor lies in that are in memory."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    for line in lines:
        first, _, last = line.partition(" ")[0].partition("-")
        if last and int(first, 16) <= values.data_ptr() < int(last, 16):
            return next(int(line.split()[1]) for line in lines if line.startswith("Rss:"))
    raise AssertionError("it lies in no mapping")


def test_what_lies_in_no_file_is_not_given_back() -> None:
    values = aligned(4096)
    assert values.data_ptr() % mmap.PAGESIZE == 0
    SealedStore.release(values)
    assert torch.equal(values, torch.ones(4096, dtype=torch.float64))


def test_what_lies_in_a_file_is_given_back_and_read_again(tmp_path: Path) -> None:
    values = SealedStore(tmp_path).empty(1 << 20, torch.float64)
    values.fill_(3.0)
    before = resident(values)
    SealedStore.release(values)
    assert before >= 8 << 10
    assert resident(values) == 0
    assert torch.equal(values, torch.full((1 << 20,), 3.0, dtype=torch.float64))
    assert list(tmp_path.iterdir()) == []  # nobody else can open it
