"""What tests share: two tiny tasks, the shipped ones and what their candidates say of themselves, live processes."""

from __future__ import annotations

import os
import re
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import crucible

TESTS = Path(__file__).parent
SMALL_TASK = TESTS / "data/small_task"
IDENTITY_TASK = TESTS / "data/identity_task"
ORDER_TASK = TESTS / "data/order_task"
GATE_TASK = TESTS / "data/gate_task"
CHEATS = TESTS / "cheats"
PLAIN = SMALL_TASK / "candidates/plain.py"

Judge = Callable[..., crucible.Verdict]
NIGHTLY = os.environ.get("CRUCIBLE_NIGHTLY") == "1"
"""Whether sweeps are run to their wide end, as `make nightly` does."""

ZEROS = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def __init__(self, *args):
        super().__init__()

    def forward(self, x):
        return torch.zeros({shape}, dtype=x.dtype, device=x.device)
"""
SHAPES = {
    "conv3d_leakyrelu_sum_clamp_gelu": {"small": (2, 64, 4, 7, 8), "full": (128, 64, 14, 62, 62)},
    "convtranspose3d_leakyrelu_multiply_leakyrelu_maxpool": {"small": (3, 32, 3, 5, 7), "full": (16, 32, 16, 32, 32)},
    "avgpool3d_convtranspose3d_clamp_softmax_scale": {"small": (2, 64, 6, 30, 34), "full": (32, 64, 32, 64, 64)},
}
"""Each task's output shape."""
TASKS = sorted(p.parent for p in (TESTS.parent / "tasks").glob("*/reference.py"))


def some(sweep: Sequence[Any], every: int, always: Callable[[Any], bool] = lambda _: False) -> list[Any]:
    """One of so many of a sweep, its first among them, and those that are always wanted; at night all of it."""
    return [each for place, each in enumerate(sweep) if NIGHTLY or place % every == 0 or always(each)]


def write_zeros(folder: Path, task: Path, scale: str) -> Path:
    """A candidate that returns zeros of the right shape."""
    file = folder / "zeros.py"
    file.write_text(ZEROS.format(shape=SHAPES[task.name][scale]))
    return file


def stated_kind(file: Path, contract: str) -> str:
    """The verdict that a candidate's first line states for a contract."""
    line = file.read_text().splitlines()[0]
    stated = re.search(r"Expected: ([\w-]+)((?:; \w+: [\w-]+)*)\.\"\"\"", line)
    assert stated, f"{file} states no verdict on its first line"
    differing = dict(part.split(": ") for part in stated[2].split("; ") if part)
    return differing.get(contract, stated[1])


def write(file: Path, source: str) -> Path:
    """`source`, dedented, in `file`."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(textwrap.dedent(source), encoding="utf-8")
    return file


def claims(verdict: crucible.Verdict) -> str:
    """All findings of a verdict in one text."""
    return "\n".join(f"{finding.claim}: {finding.evidence}" for finding in verdict.findings)


def processes_mentioning(text: str) -> list[str]:
    """Command lines of the live processes, this one aside, with `text` in their arguments, environment or folder: what
    a fork server forked has the server's arguments."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        if int(folder.name) == os.getpid():
            continue
        try:
            command = (folder / "cmdline").read_bytes()
            environment = (folder / "environ").read_bytes()
            place = os.fsencode(os.readlink(folder / "cwd"))
        except OSError:
            continue
        if command and text.encode() in command + environment + place:
            found.append(command.replace(b"\0", b" ").decode(errors="replace")[:200])
    return found


def wait_until_gone(text: str, seconds: float = 5.0) -> list[str]:
    """What is still alive after at most `seconds`; empty as soon as nothing is."""
    deadline = time.monotonic() + seconds
    while (left := processes_mentioning(text)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


_HEAD = re.compile(r"^from attack_head import .*$", re.MULTILINE)


def attack(file: Path) -> crucible.Candidate:
    """A file of `attacks/` as a candidate, with the head that all of them share in place of its import."""
    head = (TESTS / "attack_head.py").read_text()
    source, found = _HEAD.subn(lambda _: head, file.read_text())
    assert found == 1, f"{file} has {found} lines that import its head"
    return crucible.Candidate(file.stem, file, source)
