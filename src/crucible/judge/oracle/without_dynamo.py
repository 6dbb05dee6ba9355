"""PyTorch's operations in Python without PyTorch's compiler.

Each that computes shapes alone (`meta`) is wrapped, so that Dynamo leaves it alone, and the wrapper's first call
imports Dynamo to tell it so: 1 to 2.4 s of a processor and 60 MB, where all else of a tiny task's oracle takes less.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import types
from collections.abc import Callable
from typing import Any

NAME = "torch._dynamo"
_MARK = "__dynamo_disable"
"""Where the wrapper (torch/_compile.py) keeps what it was answered."""


class _NotYet(types.ModuleType):
    """Stands in Dynamo's place until it is asked for anything but to leave one of PyTorch's own functions alone, which
    it does: for what a reference compiles, Dynamo comes then."""

    def __init__(self) -> None:
        super().__init__(NAME)
        self._left: list[Callable[..., Any]] = []

    def disable(self, fn: Any = None, recursive: bool = True, **how: Any) -> Any:
        if fn is None or how != {"wrapping": False}:  # somebody else asks, and may compile
            return self._real().disable(fn, recursive, **how)
        self._left.append(fn)
        return fn

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real(), name)

    def _real(self) -> types.ModuleType:
        if sys.modules.get(NAME) is self:
            del sys.modules[NAME]
            for fn in self._left:  # they ask again
                with contextlib.suppress(AttributeError):
                    delattr(fn, _MARK)
        return importlib.import_module(NAME)


def put_off() -> None:
    """From here on this process has Dynamo only where something is compiled."""
    sys.modules.setdefault(NAME, _NotYet())
