"""A file with kernels and no task: run by itself on the emulator, in the sandbox that candidates run in."""

from __future__ import annotations

import json
import os
import select
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from crucible import legible
from crucible.emulator import programs, toolchain
from crucible.emulator.faults import Fault
from crucible.errors import JudgeError, MisuseError
from crucible.gpus import Gpu
from crucible.judge.process import reach, sandbox
from crucible.judge.process.limits import Limits
from crucible.judge.process.supervised import FIRST, SupervisedProcess, exit_in_words, private_environment

MOST_BYTES = 4 << 20
MOST_FAULTS = 200
Say = Callable[[str], None]


@dataclass(frozen=True)
class Checked:
    """What came of a file's run."""

    file: Path
    faults: tuple[Fault, ...]
    """What its kernels did wrong, each once."""
    launched: tuple[str, ...]
    """Kernels that ran, by name."""
    raised: str
    """What ended it before its end, in words; empty where nothing did."""
    line: int
    """Of the file, where that was; 0 where nobody knows."""
    log: str
    """Both ends of what it printed."""

    @property
    def is_clean(self) -> bool:
        """Whether it came to its end and no kernel did what CUDA leaves undefined."""
        return not self.raised and not any(fault.convicts for fault in self.faults)


def check(file: Path, gpu: Gpu, limits: Limits, say: Say = lambda _: None) -> Checked:
    """Runs a Python file, or a `.cu` file with a `main`.

    Raises MisuseError for a file that nothing can be launched from or that launches nothing, JudgeError where the
    emulator lacks what it uses or the time is up.
    """
    file = file.absolute()
    _refuse(file)
    say("preparing the emulator (once for all later runs: half a minute)")
    try:
        prepared = toolchain.prepare(whole=True).folder
    except toolchain.BuildError as error:
        raise JudgeError(f"no emulator: {(str(error).strip().splitlines() or ['?'])[-1]}") from None
    say(f"running {file.name}")
    with tempfile.TemporaryDirectory(prefix="crucible-check-") as folder:
        answer, log = _answer(file, gpu, limits, Path(folder), prepared)
    if answer["not_covered"]:
        raise JudgeError(f"not checked here: {answer['not_covered']} is not covered by the emulator")
    faults = tuple(
        replace(fault, file=file.name) if fault.file == programs.NAME else fault for fault in answer["faults"]
    )
    checked = Checked(file, faults, answer["launched"], answer["raised"], answer["line"], log)
    if checked.is_clean and not checked.launched:
        raise MisuseError(f"{file.name} launched no kernel that the emulator saw: nothing was checked")
    return checked


def _refuse(file: Path) -> None:
    if file.suffix not in (".py", ".cu"):
        raise MisuseError(f"{file.name}: give a Python file that launches kernels, or a .cu file with a main")
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise MisuseError(f"{file} cannot be read: {error.strerror}") from None
    if file.suffix == ".cu" and not programs.has_main(text):
        raise MisuseError(f"{file.name} defines no main: give the Python file that builds and launches it")


def _answer(file: Path, gpu: Gpu, limits: Limits, folder: Path, prepared: Path) -> tuple[dict[str, Any], str]:
    """What its process says, read with care: whatever ran there may have written it."""
    for name in ("home", "tmp", "extensions"):
        (folder / name).mkdir()
    reading, writing = os.pipe()
    settings = {
        "file": str(file),
        "gpu": gpu.name,
        "emulator": str(prepared),
        "triton_program_s": limits.run_s / 12,
        "answers": FIRST,
        "held_by": asdict(sandbox.layers()),
        "readable": [*reach.readable(), *reach.python(), str(prepared), str(file.parent)],
        "writable": [str(folder)],
        "usable": reach.usable(),
        "file_bytes": limits.file_bytes,
    }
    process = SupervisedProcess(
        "process.checked",
        json.dumps(settings),
        folder=folder,
        passed=[writing],
        environment=private_environment(folder, ""),
        limits=limits,
    )
    os.close(writing)
    try:
        text = _read(reading, time.monotonic() + limits.run_s)
        if text is None:
            raise JudgeError(f"{file.name} took over {limits.run_s:g} s: raise --limit, or launch less")
        read = _plain(text) if text else _no_answer(process)
    finally:
        process.kill()
        os.close(reading)
    own = {programs.NAME: file.name}
    read["faults"] = tuple(replace(fault, file=own.get(fault.file, fault.file)) for fault in read["faults"])
    return read, process.log.text


def _read(descriptor: int, deadline: float) -> bytes | None:
    """All that comes until the other end closes; None where time is up first."""
    text = b""
    while len(text) < MOST_BYTES:
        if not select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return None
        data = os.read(descriptor, 1 << 16)
        if not data:
            break
        text += data
    return text


def _plain(text: bytes) -> dict[str, Any]:
    """Raises JudgeError for what no process of ours writes."""
    try:
        data = json.loads(text)
        faults = tuple(Fault.from_json(fault) for fault in data["faults"][:MOST_FAULTS])
        launched = tuple(str(name)[:1000] for name in data["launched"][:MOST_FAULTS])
        raised, code, line = legible.line(str(data["raised"])), int(data["code"]), int(data["line"])
        not_covered = legible.line(str(data["not_covered"]))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise JudgeError(f"its process answered with something else than a report: {error}") from None
    if code and not raised:
        raised = f"it ended with exit code {code}"
    return {"faults": faults, "launched": launched, "raised": raised, "line": line, "not_covered": not_covered}


def _no_answer(process: SupervisedProcess) -> dict[str, Any]:
    """It ended before its report: that is how it ended."""
    end = process.end()
    what = {"memory": "it took too much memory", "processes": "it started too many processes"}.get(str(end.get("end")))
    raised = what or f"its process ended early: {exit_in_words(end.get('code'))}"
    return {"faults": (), "launched": (), "raised": raised, "line": 0, "not_covered": ""}
