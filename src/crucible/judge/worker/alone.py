"""A file by itself on the emulator: run as a program would be, and what its kernels did wrong."""

from __future__ import annotations

import ctypes
import json
import os
import sys
import traceback
import types
from pathlib import Path
from typing import Any

from crucible import emulator
from crucible.emulator import includes, pretend, programs
from crucible.gpus import known_gpu
from crucible.judge.worker import building, on_emulator

LONGEST = 2000
_exit, _write = os._exit, os.write


def run(settings: dict[str, Any]) -> None:
    """Runs `settings["file"]` and writes one line of JSON: faults, kernels that ran, how it ended."""
    gpu = known_gpu(settings["gpu"])
    emulated = on_emulator.start(settings["emulator"], gpu, settings["triton_program_s"])
    watcher = building.Watcher(False, emulated.emulator, gpu.architecture)
    file = Path(settings["file"])
    os.chdir(file.parent)
    ended = _ended(file, emulated)
    faults = emulated.emulator.faults() if emulated.emulator else ()
    answer = {
        **ended,
        "not_covered": ended["not_covered"] or watcher.not_covered or emulated.not_covered,
        "faults": [fault.to_json() for fault in faults],
        "launched": emulated.launched(),
    }
    _say(settings["answers"], (json.dumps(answer) + "\n").encode())


def _say(descriptor: int, text: bytes) -> None:
    """What the program printed goes first; then nothing of its own runs any more."""
    sys.stdout.flush()
    ctypes.CDLL(None).fflush(None)
    while text:
        text = text[_write(descriptor, text) :]
    _exit(0)


def _ended(file: Path, emulated: on_emulator.Emulated) -> dict[str, Any]:
    """How it came to its end: `code`, `raised` with its `line` of the file, or `not_covered`."""
    ended: dict[str, Any] = {"code": 0, "raised": "", "line": 0, "not_covered": ""}
    try:
        ended["code"] = _run(file, emulated)
    except SystemExit as end:
        ended["code"] = end.code if isinstance(end.code, int) else int(end.code is not None)
    except (emulator.NotCovered, building.OutsideEmulator, pretend.NotPretended) as error:
        ended["not_covered"] = str(error)[:LONGEST]
    except BaseException as error:  # noqa: BLE001 - whatever it raises, it ended by that
        ended["raised"] = f"{type(error).__name__}: {error}"[:LONGEST]
        frames = traceback.extract_tb(error.__traceback__)
        ended["line"] = next((frame.lineno or 0 for frame in reversed(frames) if frame.filename == str(file)), 0)
    return ended


def _run(file: Path, emulated: on_emulator.Emulated) -> int:
    text = file.read_text(encoding="utf-8", errors="replace")
    if file.suffix == ".py":
        emulated.written_in(text)
        main = types.ModuleType("__main__")
        main.__file__ = str(file)
        sys.argv, sys.modules["__main__"] = [str(file)], main
        sys.path.insert(0, str(file.parent))
        exec(compile(text, str(file), "exec"), main.__dict__)
        return 0
    source = programs.callable_main(includes.inlined(text, file.parent, programs.NAME))
    flags = [f"-I{file.parent}"]
    built = emulator.load_inline(file.stem, programs.DECLARED, source, [programs.FUNCTION], extra_cuda_cflags=flags)
    return int(getattr(built, programs.FUNCTION)())
