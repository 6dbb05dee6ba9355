"""The state that a GPU is in when a candidate is called: its libraries started, its caller's stream busy."""

from __future__ import annotations

import torch

_HELD_CLOCKS = 2_000_000
"""About a millisecond: starting a copy on another stream takes some ten microseconds."""


def hold_back(device: torch.device) -> None:
    """Keeps the caller's stream busy for a millisecond: who works on another one that does not wait for it then reads
    inputs which are not there yet, each time and not by chance alone."""
    if device.type == "cuda":
        torch.cuda._sleep(_HELD_CLOCKS)


def start_libraries(device: torch.device) -> None:
    """cuBLAS and cuDNN start at their first use, which fails where that is in the capture of a CUDA graph. In the
    process of KernelBench's evaluator, and of whoever uses a module, something has used them before."""
    if device.type == "cuda":
        one = torch.ones(1, 1, 1, device=device)
        torch.nn.functional.conv1d(one, one)
        torch.mm(one[0], one[0])
