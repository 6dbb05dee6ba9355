"""What candidates are built against, made once for all later runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from crucible import hardware, store
from crucible.candidate import Candidate
from crucible.emulator import toolchain
from crucible.hardware import Device
from crucible.judge.examine import known_without_running, runs_on_emulator
from crucible.judge.process.launcher import SOURCE

Say = Callable[[str], None]
HEADER_PAYS_FROM = 3
"""Builds for which precompiling `torch/extension.h` pays: 48 s once, 16 s of a core saved each. Where there are
more cores than builds it is nvcc that takes the time, beside which `main.cpp` compiles for nothing (H200, 16 cores:
34 s with and without)."""


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


def prepared_header(candidates: Sequence[Candidate], device: Device, versions: dict[str, str], say: Say) -> Path | None:
    """The folder of the precompiled `torch/extension.h`, made where enough builds will use it."""
    if device.kind == "cpu":
        builds = sum(c.language == "cpp" for c in candidates)
    else:
        builds = sum(c.language in ("cpp", "cuda") and known_without_running(c, device) is None for c in candidates)
    folder = store.home() / "headers" / store.key_of(versions)[:16]
    if folder.is_dir() or builds < max(HEADER_PAYS_FROM, hardware.cores()):
        return folder if folder.is_dir() else None
    say("precompiling torch/extension.h, once for all later runs")
    code = f"import sys; sys.path.insert(0, {str(SOURCE)!r}); from pathlib import Path; "
    code += "from crucible.judge.worker.building import precompile_header; precompile_header(Path(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=False)
    if done.returncode:
        say(f"no precompiled header: {_last_line(done.stderr)}")
    return folder if folder.is_dir() else None


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["?"])[-1]
