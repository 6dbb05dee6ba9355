"""`crucible check`: the emulator by itself, for kernels with no task."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from crucible import hardware, legible, store
from crucible.cli import limits as limits_
from crucible.cli import outputs
from crucible.cli.progress import Progress
from crucible.gpus import DEFAULT, known_gpu
from crucible.judge.checking import check as run_checked
from crucible.report import checked as report


def check(
    file: Annotated[Path, typer.Argument(help="A Python file that launches kernels, or a .cu file with a main.")],
    gpu: Annotated[str, typer.Option(help="Which GPU the emulator answers as: h200, h100, a100, l40s, ...")] = DEFAULT,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the findings as JSON.")] = None,
    sarif_file: Annotated[
        Path | None, typer.Option("--sarif", help="Also write them as SARIF, which code hosts show at their lines.")
    ] = None,
    limit: Annotated[float, typer.Option(help="Seconds for all that the file does.")] = 300.0,
    memory_limit: Annotated[float, typer.Option(help="GiB for the file's processes; 0: 3/4 of what is free.")] = 0.0,
) -> None:
    """Run a file's kernels without a GPU and name races, bad accesses, uninitialised reads, diverging barriers.

    Exit code 0 clean, 1 not, 2 misuse, 3 the emulator failed or lacks something.

    Example: crucible check kernels.cu --sarif kernels.sarif
    """
    outputs.check_outputs({"--json": json_file, "--sarif": sarif_file}, [file])
    limits = limits_.limits_of(("--limit", "run_s", limit), ("--memory-limit", "memory_bytes", memory_limit))
    with Progress(Console(stderr=True)) as say:
        checked = run_checked(file, known_gpu(gpu), limits, say)
    if json_file is not None:
        store.write_text(json_file, report.to_json(checked, file))
    if sarif_file is not None:
        version = hardware.versions().get("crucible-kernels", "")
        store.write_text(sarif_file, report.to_sarif(checked, file, version))
    if checked.log.strip():
        print(legible.lines(checked.log), file=sys.stderr)
    print("\n".join(report.lines(checked, file)))
    raise typer.Exit(0 if checked.is_clean else 1)
