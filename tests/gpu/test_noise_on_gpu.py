"""Weights and inputs are moved by roundoffs where the reference runs."""

from __future__ import annotations

import torch

from crucible.judge.oracle.noise import perturbed

PART = 1 << 24
"""Elements that are moved at a time."""


def test_what_is_moved_lies_on_the_gpu_within_reach_and_takes_little_beside_itself() -> None:
    value, reach = torch.randn(4 * PART + 5), 2.0**-11
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    moved = perturbed(value, reach, torch.Generator("cuda").manual_seed(0))
    taken = torch.cuda.max_memory_allocated() - before
    assert moved.is_cuda
    assert taken <= moved.nbytes + 5 * 8 * PART, f"{taken >> 20} MiB"
    some = value != 0  # 5 of 67 million draws are 0, which stays
    assert not moved.cpu()[~some].any()
    off = (moved.cpu()[some].double() / value[some].double() - 1).abs()
    assert 0.9 * reach < float(off.max()) <= reach + 2.0**-24
    again = perturbed(value, reach, torch.Generator("cuda").manual_seed(0))
    assert torch.equal(moved, again)
