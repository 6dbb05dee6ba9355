"""Candidates under NVIDIA's compute-sanitizer: after their verdicts, each tool in a process of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from crucible import hardware
from crucible.emulator.places import Places
from crucible.errors import DeviceError
from crucible.hardware import Device
from crucible.judge.process.limits import Limits
from crucible.judge.process.supervised import SupervisedProcess, exit_in_words, private_environment
from crucible.judge.verdict.sanitizer_reports import Report, Sanitized, ToolRun, merged, reports

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
TOOL_S = 150.0
"""One tool on one case. Kernels of the emulator's corpus under it were right in it, and one that hangs has to end."""
MOST_BYTES = 8 << 20
"""Read of what a tool wrote."""
_OPTIONS = ("--print-limit", "200", "--launch-timeout", "120", "--target-processes", "application-only",
            "--show-backtrace", "device", "--ignore-getprocaddress-notfound")  # fmt: skip
_PADDING = ("--padding", "4096")
"""Between allocations, for memcheck: an access just past a tensor's end meets no other tensor."""
_LATE = "took over"
_FIRST_PORT, _PORTS = 49152, 1600
"""A tool tries ten ports from the one it is given to talk to its process; tens of them that tools take."""
_HEADERS = ("#include <torch/types.h>", "#include <cuda.h>", "#include <cuda_runtime.h>")
"""What `load_inline` puts before a candidate's CUDA sources."""


def demand(device: Device) -> None:
    """Raises DeviceError with all that is missing here for `--sanitize`."""
    missing = []
    if device.kind != "cuda":
        missing.append("an NVIDIA GPU to run on (--device emulator names faults without one)")
    if not hardware.compute_sanitizer():
        missing.append("compute-sanitizer on PATH or in /usr/local/cuda/bin (it is part of the CUDA toolkit)")
    if missing:
        raise DeviceError(f"--sanitize needs {' and '.join(missing)}")


def sanitized(
    settings: dict[str, Any], folder: Path, case: dict[str, Any], source: str, limits: Limits, tools: Iterable[str]
) -> Sanitized:
    """What each tool says of a candidate on one case. `settings` are those of its process, `folder` is empty or new.

    Tools run side by side: each takes 20 s on an H200, nearly all of it on one core. One that came to no summary, for
    want of the GPU's memory perhaps, gets the GPU for itself."""
    for name in ("home", "tmp", "extensions"):
        (folder / name).mkdir(parents=True)
    settings = {**settings, "stream": -1, "file_bytes": limits.file_bytes}
    ended = _run(folder, (), {**settings, "case": None}, limits, limits.build_s)
    if ended:
        return Sanitized(tuple(ToolRun(tool, (), f"its build for the tools {ended}") for tool in tools))
    settings = {**settings, "case": case}

    def under(tool: str) -> ToolRun:
        return _under(tool, folder, settings, source, limits)

    with ThreadPoolExecutor(len(TOOLS)) as pool:
        found = tuple(pool.map(under, tools))
    return Sanitized(tuple(under(one.tool) if one.ended and not one.ended.startswith(_LATE) else one for one in found))


def located(report: Report, source: str, built: Iterable[Path]) -> Report:
    """With the line of the candidate's file: its own, or that of the string which was compiled as this file."""
    if report.file.endswith(".py"):
        return replace(report, python_line=report.line)
    name = Path(report.file).name
    texts = {file.read_text(encoding="utf-8", errors="replace") for file in built if file.name == name}
    if len(texts) != 1 or not report.line:
        return report
    lines = texts.pop().split("\n")
    added = len(_HEADERS) if tuple(line.strip() for line in lines[: len(_HEADERS)]) == _HEADERS else 0
    parts = (*lines[:added], "\n".join(lines[added:]))
    return replace(report, python_line=Places(source).line(parts, report.line))


def _under(tool: str, folder: Path, settings: dict[str, Any], source: str, limits: Limits) -> ToolRun:
    log = folder / f"{tool}.txt"
    log.unlink(missing_ok=True)
    port = _FIRST_PORT + 10 * ((os.getpid() * len(TOOLS) + TOOLS.index(tool)) % _PORTS)
    padding = _PADDING if tool == "memcheck" else ()
    command = (hardware.compute_sanitizer(), "--tool", tool, *_OPTIONS, "--port", str(port), *padding)
    command += ("--log-file", str(log))
    ended = _run(folder, command, settings, limits, TOOL_S)
    text = _beginning(log)
    built = sorted((folder / "extensions").rglob("*.cu"))
    found = [located(report, source, built) for report in merged(reports(text))]
    return ToolRun(tool, tuple(found), "" if "SUMMARY" in text else ended or "wrote no summary")


def _beginning(log: Path) -> str:
    try:
        with log.open("rb") as file:
            return file.read(MOST_BYTES).decode(errors="replace")
    except OSError:
        return ""


def _run(folder: Path, command: tuple[str, ...], settings: dict[str, Any], limits: Limits, limit_s: float) -> str:
    """Runs the candidate behind a command, and says how that ended; nothing where it ended well."""
    environment = private_environment(folder, settings["header"])
    flags = f"{environment.get('NVCC_APPEND_FLAGS', '')} -lineinfo".strip()
    # Without its cache PyTorch asks CUDA for each tensor, so that the tools know where one ends and what is written.
    environment |= {"NVCC_APPEND_FLAGS": flags, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    process = SupervisedProcess(
        "worker.sanitized",
        json.dumps(settings),
        folder=folder,
        passed=[],
        environment=environment,
        limits=limits,
        behind=command,
    )
    end = process.end(within_s=limit_s)
    if not end:
        return f"{_LATE} {limit_s:g} s"
    if end["end"] != "exit":
        return f"passed its limit of {end['end']}"
    return "" if end["code"] == 0 else f"ended with {exit_in_words(end['code'])}: {process.last_words}"
