"""What the oracle keeps of expected values stays what it was."""

from __future__ import annotations

import mmap
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from crucible.errors import JudgeError
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


IN_8_MIB = """
import subprocess, sys
from pathlib import Path
import torch
from crucible.errors import JudgeError
from crucible.judge.oracle.sealed import SealedStore

subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", sys.argv[1]], check=True)
store = SealedStore(Path(sys.argv[1]))
first = store.empty(5 << 18, torch.float32)
try:
    second = store.empty(5 << 18, torch.float32)
    first.fill_(1.0), second.fill_(1.0)
except JudgeError as error:
    print(error)
"""


def may_mount() -> bool:
    command = ["unshare", "-rm", "true"]
    return bool(shutil.which("unshare")) and subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not may_mount(), reason="a small disk takes a mount, which this user may not make")
def test_room_that_two_believe_in_is_the_firsts(tmp_path: Path) -> None:
    """Pages that nobody has written to yet are taken: who writes to one that the disk lacks is killed."""
    command = ["unshare", "-rm", sys.executable, "-c", IN_8_MIB, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"the oracle needs 5 MiB in {tmp_path} and 3 are free (No space left on device): set TMPDIR\n"


def test_what_no_disk_holds_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(JudgeError, match=r"needs 4398046511104 MiB in .* are free .*: set TMPDIR"):
        SealedStore(tmp_path).empty(1 << 59, torch.float64)
    assert list(tmp_path.iterdir()) == []
