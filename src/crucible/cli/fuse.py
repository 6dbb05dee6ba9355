"""`crucible fuse`: the fused module of a task."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from crucible import hardware, store
from crucible.cli import outputs
from crucible.errors import MisuseError
from crucible.gpus import H200, Gpu, closest_gpu, known_gpu
from crucible.report.words import words
from crucible.task import Task


def fuse(
    task: Annotated[Path, typer.Argument(help="A reference file, or a task's folder.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write: a candidate for the task.")],
    mode: Annotated[str, typer.Option(help="The module's mode: train (as constructed) or eval.")] = "train",
    scale: Annotated[str, typer.Option(help="full or small: the sizes that the kernels are written for.")] = "full",
    shape: Annotated[list[str] | None, typer.Option(help="Sizes to write for, NAME=NUMBER,...")] = None,
    contract: Annotated[
        str, typer.Option(help="tf32: convolutions and linear layers may round operands to TF32; fp32: they may not.")
    ] = "tf32",
    gpu: Annotated[
        str, typer.Option(help="GPU to choose tiles for: h200, h100, a100, l40s, b200; auto: this machine's.")
    ] = "auto",
    tune: Annotated[
        bool,
        typer.Option("--tune", help="Choose tile configs by measuring them on this GPU, each verified; minutes once."),
    ] = False,
    race: Annotated[
        bool,
        typer.Option(
            "--race", help="Time it beside torch.compile on this GPU, which then computes what it does faster."
        ),
    ] = False,
    race_max_autotune: Annotated[
        bool,
        typer.Option("--race-max-autotune", help="The same, beside torch.compile's max-autotune as well: minutes."),
    ] = False,
    check: Annotated[
        bool, typer.Option(help="Run the file once, over tensors without elements, before it is handed over.")
    ] = True,
) -> None:
    """Write the fused module of a task: CUDA C++ with its backward, in one readable file; the plan goes to stdout.

    Example: crucible fuse tasks/conv3d_leakyrelu_sum_clamp_gelu -o fused.py
    """
    from crucible import fusing  # it loads torch, seconds

    loaded = Task.load(task).at(scale=scale, training=False, mode=mode, small_by_default=False).shaped(shape or ())
    if contract not in ("tf32", "fp32"):
        raise MisuseError(f"fuse --contract is tf32 or fp32, not {contract!r}")
    console = Console(stderr=True)

    def say(line: str) -> None:
        console.print(words(line), soft_wrap=True)

    outputs.check_outputs({"--output": output}, [task])
    target, rounds = _laid_out_for(gpu), contract == "tf32"
    rivals = "max-autotune" if race_max_autotune else race
    text = fusing.write(loaded, tf32=rounds, gpu=target, tune=tune, race=rivals, check=check, say=say)
    store.write_text(output, text)
    print(fusing.plan_of(text))
    console.print(words(f"written to {output}"), soft_wrap=True)


def _laid_out_for(name: str) -> Gpu:
    """Of `auto` this machine's GPU, or without one an H200. Raises DeviceError for a name that is not known."""
    if name != "auto":
        return known_gpu(name)
    device = hardware.find_device()
    return closest_gpu(device.name) if device.kind == "cuda" else H200
