"""What candidates are built against, made once for all later runs."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from crucible import hardware, store
from crucible.candidate import Candidate
from crucible.emulator import toolchain
from crucible.hardware import Device
from crucible.judge.beforehand import known_without_running, runs_on_emulator
from crucible.judge.process.launcher import SOURCE

Say = Callable[[str], None]
HEADER_PAYS_FROM = 3
"""Builds of C++ extensions for which precompiling `torch/extension.h` pays: 48 s once, 16 s of a core saved each."""


def prepared_emulator(candidates: Sequence[Candidate], device: Device, say: Say) -> Path | None:
    """What the emulator compiles candidates against; None where nothing will run on it."""
    if not any(runs_on_emulator(candidate, device) for candidate in candidates):
        return None
    say("preparing the emulator (once for all later runs: half a minute)")
    try:
        return toolchain.prepare(whole=True).folder
    except toolchain.BuildError as error:
        say(f"no emulator: {_last_line(str(error))}")
        return None


def prepared_headers(
    candidates: Sequence[Candidate], device: Device, versions: dict[str, str], say: Say
) -> tuple[Path, ...]:
    """Folders of precompiled headers, in which compilers look first; made where enough builds will use them."""
    builds = [c.language for c in candidates if known_without_running(c, device) is None]
    folder = store.home() / "headers" / store.key_of(versions)[:16]
    wanted = {
        folder: ("precompile_header", builds.count("cpp") >= max(HEADER_PAYS_FROM, hardware.cores())),
        folder.with_name(f"{folder.name}-halves"): (
            "precompile_for_halves",
            device.kind == "cuda" and "cuda" in builds,
        ),
    }
    for place, (function, pays) in wanted.items():
        if pays and not place.is_dir():
            say("precompiling PyTorch's headers, once for all later runs")
            precompile_once(function, place, say)
    return tuple(place for place in wanted if place.is_dir())


def precompile_once(function: str, folder: Path, say: Say) -> None:
    """By a function of `judge.worker.building`, unless somebody else makes that folder meanwhile: runs that start
    together wait for the first. Twelve that each made their own had no verdict after 140 s (32 processors)."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with open(folder.with_name(f"{folder.name}.lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.is_dir():
                _precompile(function, folder, say)
    except OSError as error:  # candidates are built without
        say(f"no precompiled header: {error}")


def _precompile(function: str, folder: Path, say: Say) -> None:
    code = f"import sys; sys.path.insert(0, {str(SOURCE)!r}); from pathlib import Path; "
    code += f"from crucible.judge.worker.building import {function}; {function}(Path(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=False)
    if done.returncode:
        say(f"no precompiled header: {_last_line(done.stderr)}")


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["?"])[-1]
