"""`crucible doctor`: what this machine offers."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from crucible import hardware, store
from crucible.doctor import examined
from crucible.gpus import find_gpu
from crucible.report.words import words
from crucible.roofline import from_datasheet, here


def doctor(
    rates: Annotated[bool, typer.Option("--rates", help="Measure bandwidth and matrix rates.")] = False,
) -> None:
    """Say what this machine offers, and try the sandbox: exit code 1 where something that matters is missing.

    Example: crucible doctor --rates
    """
    out = Console()
    device = hardware.find_device()
    health = examined(device)
    rows = {
        "device": device.name,
        "cores": str(hardware.cores()),
        "memory": f"{hardware.memory_bytes() >> 30} GiB",
        **health.rows,
        "sanitizer": hardware.compute_sanitizer() or "none: no compute-sanitizer for --sanitize",
        "records": str(store.home()),
        **hardware.versions(),
    }
    gpu = find_gpu(device.name)
    if gpu is not None:
        rows["by datasheet"] = from_datasheet(gpu).words
    if rates:
        rows["measured"] = here(kind=device.kind).words
    for name, value in rows.items():
        out.print(words(f"{name:16} {value}"), soft_wrap=True)
    for complaint in health.complaints:
        out.print(words(f"missing: {complaint}"), style="yellow", soft_wrap=True)
    raise typer.Exit(1 if health.complaints else 0)
