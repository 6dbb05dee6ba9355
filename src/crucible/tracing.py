"""`torch.jit.trace` in a process where dispatch modes listen.

PyTorch turns its tracer off inside a dispatch mode. What the tracer records only below the operation that a mode hears
(`aten::_convolution` below `aten::convolution`) is then missing from the trace, which goes on with the result as a
constant, or raises where that has a gradient.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch

_TRACER: Any = torch._C._parse_dispatch_key("Tracer")


def heard(func: Any, args: Any, kwargs: Any) -> Any:
    """Calls an operation that a dispatch mode has heard of, so that a trace under way holds it."""
    if torch._C._get_tracing_state() is None:
        return func(*args, **kwargs)
    with torch._C._SetExcludeDispatchKeyGuard(_TRACER, False):
        return func(*args, **kwargs)


def untraced() -> AbstractContextManager[None]:
    """Inside, nothing comes into a trace under way."""
    guard: AbstractContextManager[None] = torch._C._SetExcludeDispatchKeyGuard(_TRACER, True)
    return guard
