"""TF32: whether cuDNN and cuBLAS may round float32 operands to it, by whichever of PyTorch's two ways that was said.

`torch.backends.cudnn.allow_tf32` and `torch.backends.cuda.matmul.allow_tf32` are the older way. Since PyTorch 2.9 each
operation has a `fp32_precision` too, which the older flags follow into, but not back: where that was set, reading them
raises RuntimeError.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

_CUDNN: Any = torch.backends.cudnn
_MATMUL: Any = torch.backends.cuda.matmul


def in_convolutions() -> bool:
    """Whether PyTorch's convolutions of float32 tensors may round to TF32."""
    return bool(_CUDNN.conv.fp32_precision == "tf32")


def in_products() -> bool:
    """Whether PyTorch's products of float32 matrices may."""
    return bool(_MATMUL.fp32_precision == "tf32")


@contextlib.contextmanager
def allowed(convolutions: bool, products: bool) -> Iterator[None]:
    """Both as said inside the block, and as they were behind it."""
    put_back = _as_it_is(_CUDNN, _CUDNN.conv, _CUDNN.rnn), _as_it_is(_MATMUL, _MATMUL)
    _say(convolutions, _CUDNN, _CUDNN.conv, _CUDNN.rnn)
    _say(products, _MATMUL, _MATMUL)
    try:
        yield
    finally:
        for each in put_back:
            each()


def _say(allow: bool, library: Any, *operations: Any) -> None:
    """Both ways, so that both can be read: the older alone forbids nothing where `torch.backends.fp32_precision` is
    tf32."""
    library.allow_tf32 = allow
    for operation in operations:
        operation.fp32_precision = "tf32" if allow else "ieee"


def _as_it_is(library: Any, *operations: Any) -> Callable[[], None]:
    """What makes a library's switches again what they are now."""
    said = [operation.fp32_precision for operation in operations]
    older: bool | None = None
    with contextlib.suppress(RuntimeError):
        older = library.allow_tf32

    def put_back() -> None:
        if older is not None:
            library.allow_tf32 = older
        for operation, how in zip(operations, said, strict=True):
            operation.fp32_precision = how

    return put_back
