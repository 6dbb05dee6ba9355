"""The state that a GPU is in when a candidate is called: its libraries started, its caller's stream busy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

_HELD_CLOCKS = 4_000_000
"""About two milliseconds: starting a copy on another stream takes some ten microseconds."""


def taken_back(device: torch.device, tensors: Sequence[torch.Tensor]) -> Callable[[], None]:
    """Makes zeros of inputs on a GPU; what is returned writes them again, behind two milliseconds in which the caller's
    stream is busy: who works on another one that does not wait for it reads zeros, each time and not by chance alone.
    Their values are kept for as long as that is, so that nobody is handed the memory; without room for them, nothing is
    done."""
    own = [tensor.detach() for tensor in tensors] if device.type == "cuda" else []
    if own and sum(t.numel() * t.element_size() for t in own) > torch.cuda.mem_get_info()[0] // 4:
        own = []
    kept = [tensor.clone() for tensor in own]
    for tensor in own:
        tensor.zero_()

    def write_again() -> None:
        if own:
            torch.cuda._sleep(_HELD_CLOCKS)
        for tensor, values in zip(own, kept, strict=True):
            tensor.copy_(values)

    return write_again


def start_libraries(device: torch.device) -> None:
    """cuBLAS and cuDNN start at their first use, which fails where that is in the capture of a CUDA graph. In the
    process of KernelBench's evaluator, and of whoever uses a module, something has used them before."""
    if device.type == "cuda":
        one = torch.ones(1, 1, 1, device=device)
        torch.nn.functional.conv1d(one, one)
        torch.mm(one[0], one[0])
