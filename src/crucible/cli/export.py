"""`crucible export`: a task in another benchmark's form."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from crucible.candidate import Candidate
from crucible.errors import MisuseError
from crucible.interchange import harbor_task
from crucible.task import Task


def export(
    task: Annotated[Path, typer.Argument(help="A reference file, or a task's folder.")],
    folder: Annotated[Path, typer.Argument(help="The folder to write; it must not be there yet.")],
    harbor: Annotated[bool, typer.Option("--harbor", help="As a Harbor task, with Crucible as its verifier.")] = False,
    judge: Annotated[str, typer.Option(help="Options for crucible judge, as '--contract fp32 --training'.")] = "",
    solution: Annotated[
        Path | None, typer.Option(help="A candidate that is right, for solution/solve.sh; default: the reference.")
    ] = None,
    gpu_type: Annotated[list[str] | None, typer.Option(help="A GPU that it may run on, as Harbor names it.")] = None,
    install: Annotated[str, typer.Option(help="What pip installs the judge from.")] = "crucible-kernels",
    image: Annotated[str, typer.Option(help="The container image to begin with.")] = harbor_task.IMAGE,
) -> None:
    """Write a task in another benchmark's form.

    Example: crucible export tasks/conv3d_leakyrelu_sum_clamp_gelu harbor/conv3d --harbor
    """
    if not harbor:
        raise MisuseError("say in which form: --harbor")
    try:
        options = shlex.split(judge)
    except ValueError as error:
        raise MisuseError(f"--judge {judge!r}: {error}") from error
    text = Candidate.load(solution).source if solution else ""
    what = harbor_task.Exported(Task.load(task), options, install, image, gpu_type or (), text)
    harbor_task.export(what, folder)
    print(folder)
