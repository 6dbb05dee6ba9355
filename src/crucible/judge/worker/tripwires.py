"""What must not have been touched. Every check here fails closed.

These run in the candidate's process and are tripwires: they name what was tried. What keeps a candidate honest
is that the expected values are never in its process and that what it computed is compared elsewhere.
"""

from __future__ import annotations

import builtins
import gc
import json
import os
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from crucible import tf32

_WATCHED: tuple[tuple[Any, str, str], ...] = (
    (torch, "torch", "allclose isclose equal empty empty_like zeros isnan no_grad set_grad_enabled"),
    (torch.testing, "torch.testing", "assert_close"),
    (torch.autograd, "torch.autograd", "grad backward"),
    (torch.cuda, "torch.cuda", "synchronize Event Stream current_stream empty_cache"),
    (torch.cuda.Event, "torch.cuda.Event", "record elapsed_time synchronize query"),
    (
        torch.Tensor,
        "torch.Tensor",
        "copy_ cpu to clone detach contiguous data_ptr untyped_storage flatten split",
    ),
    (torch.nn.Module, "torch.nn.Module", "load_state_dict state_dict __call__ named_parameters"),
    (time, "time", "time time_ns perf_counter perf_counter_ns monotonic process_time process_time_ns sleep"),
    (os, "os", "write close kill"),
    (json, "json", "dumps loads"),
    (builtins, "builtins", "isinstance type len open print abs max min float super getattr"),
    (sys, "sys", "settrace setprofile _getframe exit"),
    (gc, "gc", "get_objects get_referrers"),
)
"""Owner, its name, and the functions of it that the judge or a clock rests on."""


def snapshot() -> Callable[[], list[str]]:
    """Notes the judge's and the clock's functions; the function returned names those replaced since."""
    get = getattr
    own = _own_code()
    noted = [
        (owner, f"{name}.{item}", item, get(owner, item)) for owner, name, items in _WATCHED for item in items.split()
    ]

    def replaced() -> list[str]:
        return [label for owner, label, item, was in [*noted, *own] if get(owner, item, None) is not was]

    return replaced


def _own_code() -> list[tuple[Any, str, str, Any]]:
    """Every function and class of the judge's that this process has loaded, and every method."""
    found: list[tuple[Any, str, str, Any]] = []
    for module_name, module in list(sys.modules.items()):
        if not module_name.startswith("crucible."):
            continue
        for name, value in vars(module).items():
            if callable(value) and getattr(value, "__module__", "").startswith("crucible."):
                found.append((module, f"{module_name}.{name}", name, value))
                if isinstance(value, type):
                    found += [
                        (value, f"{module_name}.{name}.{item}", item, getattr(value, item))
                        for item, member in vars(value).items()
                        if isinstance(member, types.FunctionType)
                    ]
    return found


def precision_flags() -> dict[str, Any]:
    """Global switches that change what everybody's arithmetic means."""
    return {
        "torch.backends.cudnn.allow_tf32": tf32.in_convolutions(),
        "torch.backends.cuda.matmul.allow_tf32": tf32.in_products(),
        "torch.get_default_dtype()": str(torch.get_default_dtype()),
        "torch.backends.cudnn.enabled": torch.backends.cudnn.enabled,
    }


_HUNTS = ("gc.get_objects", "gc.get_referrers", "sys.settrace", "sys.setprofile")


class Watch:
    """What the interpreter's audit events say about the candidate: forks, and walks over all objects."""

    def __init__(self) -> None:
        self.forked = False
        self.hunts: set[str] = set()
        sys.addaudithook(self._hook)

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if event in ("os.fork", "os.forkpty"):
            self.forked = True
            raise PermissionError("a candidate may not fork: the judge runs it in one process")
        if event in _HUNTS and _caller_is_candidate():
            self.hunts.add(event)


_modules = sys.modules
_LIBRARIES = ("<frozen ", str(Path(__file__).parents[2]), *(path for path in sys.path if os.path.isabs(path)))
_PLAIN_CONTROL_FLOW = (StopIteration, StopAsyncIteration, GeneratorExit)


class Swallowed:
    """Exceptions that the candidate's own Python caught, in its file or in code that it made (`exec`): a kernel that
    fails into a fallback shows here."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.seen: list[str] = []

    def __enter__(self) -> Swallowed:
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: Any, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename != self.file and _is_of_a_library(frame):
            return None
        frame.f_trace_lines = False  # a Python loop would otherwise stop at every line
        if event == "exception" and len(self.seen) < 20 and not issubclass(arg[0], _PLAIN_CONTROL_FLOW):
            kind, value, _ = arg
            self.seen.append(f"line {frame.f_lineno}: {kind.__name__}: {str(value)[:200]}")
        return self._trace


def _is_of_a_library(frame: Any) -> bool:
    """Whether code was installed before the candidate came: what it has `exec` run, or imports of its own making, is in
    no such file, and has a namespace that is no such module's."""
    file, names = frame.f_code.co_filename, frame.f_globals
    if file.startswith(_LIBRARIES):
        return True
    name = names.get("__name__", "")
    module = None if name == "candidate" else _modules.get(name)
    return file[:1] == "<" and module is not None and getattr(module, "__dict__", None) is names


def _caller_is_candidate() -> bool:
    frame = sys._getframe(2)
    return frame is not None and frame.f_globals.get("__name__") == "candidate"
