"""Whether it was memory that lacked: PyTorch has a class for what its own allocator on a GPU says, others have words.

Beside other processes on a full GPU an honest candidate raised `AcceleratorError: CUDA error: out of memory` where CUDA
itself asked for a context or a stream.
"""

from __future__ import annotations

import torch

_WORDS = (
    "allocate memory",  # PyTorch's allocator on a CPU
    "CUDA error: out of memory",
    "[CUDA]: out of memory",  # Triton's driver
    "_ALLOC_FAILED",  # cuBLAS, cuDNN, cuFFT, cuSPARSE
)


def is_out_of_memory(error: BaseException, said: str | None = None) -> bool:
    """`said`: the error's words, where its own `__str__` is not to be called."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    said = str(error) if said is None else said
    return any(words in said for words in _WORDS)
