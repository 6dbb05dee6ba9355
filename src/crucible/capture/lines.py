"""The user's own line, out of stack traces that mostly show PyTorch."""

from __future__ import annotations

import linecache
import re
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from torch._subclasses import meta_utils

from crucible.errors import CaptureError

LINE = "crucible_line"
"""Under this name `annotate` keeps a node's line."""
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in .*')
_STDLIB = sysconfig.get_path("stdlib")
_CRUCIBLE = str(Path(__file__).parents[1])
_FOREIGN = (str(Path(torch.__file__).parent), _CRUCIBLE, "<")
"""Beginnings of the file names of PyTorch, Crucible and generated code."""
_STANDS_IN = str(Path(meta_utils.__file__))


def line_in(meta: dict[str, Any]) -> str:
    """`model.py:31: x = F.leaky_relu(x, 0.2)`: where a node of torch.export's comes from.

    Its own notes, which know `forward` methods alone, serve for what ours missed."""
    file, line = meta.get("custom", {}).get(LINE, ("", 0))
    if file:
        return _innermost([(file, line)])
    return _innermost([(match["file"], int(match["line"])) for match in _FRAME.finditer(meta.get("stack_trace") or "")])


def calling_line() -> tuple[str, int]:
    """File and line of the user's that the mode which asks was called from; an empty name where the module is all
    PyTorch's. Who called the capture does not count."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not frame.f_code.co_filename.startswith(_CRUCIBLE):
        if not _is_foreign(frame.f_code.co_filename):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return "", 0


def is_standing_in() -> bool:
    """Whether PyTorch makes a fake tensor of a real one just now: of a view it does so by views, without gradients."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not frame.f_code.co_filename.startswith(_CRUCIBLE):
        if frame.f_code.co_filename == _STANDS_IN:
            return True
        frame = frame.f_back
    return False


def line_of(error: BaseException) -> str:
    """The user's line that was running when this was raised."""
    frames = [(code.co_filename, line) for code, line in _frames(error)]
    return _innermost(frames)


def refusal(where: str, reason: str, way_out: str) -> CaptureError:
    """An error that names the line, what cannot be captured and what to do instead."""
    return CaptureError(f"{where or 'forward'}: {reason}. {way_out}")


def _innermost(frames: list[tuple[str, int]]) -> str:
    own = [frame for frame in frames if not _is_foreign(frame[0])]
    if not own:
        return ""
    file, line = own[-1]
    text = linecache.getline(file, line).strip()
    return f"{Path(file).name}:{line}: {text}" if text else f"{Path(file).name}:{line}"


@cache
def _is_foreign(file: str) -> bool:
    return file.startswith(_FOREIGN) or (file.startswith(_STDLIB) and "site-packages" not in file)


def _frames(error: BaseException) -> Iterator[tuple[CodeType, int]]:
    traceback = error.__traceback__
    while traceback is not None:
        yield traceback.tb_frame.f_code, traceback.tb_lineno
        traceback = traceback.tb_next
