"""The command line: one function a verb. Results on stdout, progress on stderr.

Exit codes: 0 a candidate passed; 1 none passed; 2 misuse (a bad task, argument or device);
3 the judge itself failed; 130 interrupted.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from crucible import hardware, pipeline, store
from crucible.candidate import find_candidates
from crucible.contract import CONTRACTS
from crucible.errors import CrucibleError, JudgeError, MisuseError
from crucible.gpus import H200, Gpu, closest_gpu, find_gpu, known_gpu
from crucible.judge.process import sandbox
from crucible.judge.process.limits import Limits
from crucible.judge.timing.baselines import BASELINES
from crucible.report import table, why
from crucible.report.markdown import markdown
from crucible.roofline import from_datasheet, here
from crucible.run import Run, run_from_json
from crucible.task import Task, find_tasks

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


@app.command()
def judge(
    task: Annotated[Path, typer.Argument(help="A reference file, a task's folder, or a folder of task files.")],
    candidates: Annotated[
        list[Path] | None, typer.Argument(help="Files or folders of candidates; without, the task's own.")
    ] = None,
    contract: Annotated[str, typer.Option(help=f"What right means: {', '.join(CONTRACTS)}.")] = "tf32",
    training: Annotated[bool, typer.Option("--training", help="Require gradients.")] = False,
    mode: Annotated[str, typer.Option(help="The modules' mode: train (as constructed) or eval.")] = "train",
    scale: Annotated[str | None, typer.Option(help="full or small; default full on a GPU, small without one.")] = None,
    device: Annotated[
        str, typer.Option(help="auto, cuda, cpu or emulator (CUDA C++ on the CPU, every fault named).")
    ] = "auto",
    shape: Annotated[
        list[str] | None,
        typer.Option(help="Sizes to judge at, NAME=NUMBER,...; may be repeated. The first is the one that is timed."),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(help="Which GPU the emulator answers as: h200 (the usual one), h100, a100, l40s, b200, ..."),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Of all that is drawn: a run's own repeats it. Default: a secret one."),
    ] = None,
    baselines: Annotated[
        str | None,
        typer.Option(help=f"What to race: {', '.join(BASELINES)}, comma-separated; all; none. Default by device."),
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the run as JSON to this file.")] = None,
    build_limit: Annotated[float, typer.Option(help="Seconds for import and build.")] = Limits.build_s,
    run_limit: Annotated[float, typer.Option(help="Seconds for one forward or backward.")] = Limits.run_s,
    oracle_limit: Annotated[float, typer.Option(help="Seconds for the reference's answers.")] = Limits.oracle_s,
    race_limit: Annotated[
        float, typer.Option(help="Seconds for one timed race; 0: as the device needs.", min=0.0)
    ] = 0.0,
    shrink_limit: Annotated[
        float, typer.Option(help="Seconds to look for the smallest shape at which a candidate fails; 0: none.", min=0.0)
    ] = Limits.shrink_s,
    memory_limit: Annotated[float, typer.Option(help="GiB for a candidate; 0: 3/4 of the machine's.")] = 0.0,
    sanitize: Annotated[
        bool,
        typer.Option(
            "--sanitize", help="Then run kernels under NVIDIA's compute-sanitizer, outside of the sandbox; needs a GPU."
        ),
    ] = False,
    page: Annotated[Path | None, typer.Option("--page", help="Also write the run as one HTML file.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Judge again what an earlier run has judged.")] = False,
) -> None:
    """Say of each candidate whether it is right (Evaluation) and how fast (Runtime, -1 when not right)."""
    limits = Limits(build_limit, run_limit, oracle_limit, race_limit, shrink_limit, int(memory_limit * 2**30))
    console = Console(stderr=True)
    options = {"contract": contract, "training": training, "mode": mode, "scale": scale, "device": device}
    options |= {"baselines": baselines, "shapes": shape or (), "gpu": gpu, "sanitize": sanitize}
    with _progress(console) as say:
        runs = _judged(task, candidates or [], say, {**options, "seed": seed, "limits": limits, "fresh": fresh})
    out = Console(width=None if sys.stdout.isatty() else table.PLAIN_WIDTH)
    for run in runs:
        table.show(run, out)
        if run.folder:
            console.print(Text(f"kept in {run.folder}"), soft_wrap=True)
        if run.trouble:
            console.print(Text(f"crucible: {run.trouble}", style="yellow"), soft_wrap=True)
    if json_file is not None:
        data = [run.to_json() for run in runs]
        store.write_text(json_file, json.dumps(data[0] if len(data) == 1 else data, indent=1, allow_nan=False) + "\n")
    if page is not None:
        _write_page(page, runs)
    cut_short = {run.cut_short for run in runs}
    if "interrupted" in cut_short:
        raise typer.Exit(130)
    if "failed" in cut_short:
        raise typer.Exit(3)
    raise typer.Exit(0 if any(run.passed for run in runs) else 1)


@app.command()
def explain(
    run: Annotated[str, typer.Argument(help="A run's folder, its JSON file, its id (or how that begins), or latest.")],
    candidate: Annotated[str | None, typer.Argument(help="One candidate's name; without, the causes of all.")] = None,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Table, causes and the why of the best as Markdown, for a pull request.")
    ] = False,
) -> None:
    """Say why candidates of a judged run are wrong or slow, from its record: nothing is run."""
    if as_markdown and candidate is not None:
        raise MisuseError("--markdown tells of a whole run: leave out the candidate's name")
    out = Console(width=None if sys.stdout.isatty() else table.PLAIN_WIDTH)
    runs = [run_from_json(data) for data in store.read_run(run)]
    if as_markdown:
        print("\n".join(markdown(one) for one in runs), end="")
        return
    for one in runs:
        why.show(one, candidate, out)


@app.command()
def page(
    run: Annotated[str, typer.Argument(help="A run's folder, its JSON file, its id (or how that begins), or latest.")],
    file: Annotated[Path, typer.Option("--output", "-o", help="The HTML file to write.")],
) -> None:
    """Write a judged run, or several of one JSON file, as one self-contained HTML page: nothing is run."""
    _write_page(file, [run_from_json(data) for data in store.read_run(run)])


@app.command()
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
        str, typer.Option(help="What kernels are laid out for: h200, h100, a100, l40s, b200; auto: this machine's.")
    ] = "auto",
    tune: Annotated[
        bool,
        typer.Option(
            "--tune", help="Divide convolutions as measured on this GPU, every division verified; minutes once."
        ),
    ] = False,
) -> None:
    """Write the fused module of a task: CUDA C++ with its backward, in one readable file; the plan goes to stdout."""
    from crucible import fusing  # it loads torch, seconds

    loaded = Task.load(task).at(scale=scale, training=False, mode=mode, small_by_default=False).shaped(shape or ())
    if contract not in ("tf32", "fp32"):
        raise MisuseError(f"fuse --contract is tf32 or fp32, not {contract!r}")
    console = Console(stderr=True)

    def say(words: str) -> None:
        console.print(Text(words), soft_wrap=True)

    text = fusing.write(loaded, tf32=contract == "tf32", gpu=_laid_out_for(gpu), tune=tune, say=say)
    store.write_text(output, text)
    print(fusing.plan_of(text))
    console.print(Text(f"written to {output}"), soft_wrap=True)


def _laid_out_for(name: str) -> Gpu:
    """Of `auto` this machine's GPU, or without one an H200. Raises DeviceError for a name that is not known."""
    if name != "auto":
        return known_gpu(name)
    device = hardware.find_device()
    return closest_gpu(device.name) if device.kind == "cuda" else H200


@app.command()
def doctor(
    rates: Annotated[bool, typer.Option("--rates", help="Measure bandwidth and matrix rates.")] = False,
) -> None:
    """Say what this machine offers: device, compilers, sandbox, versions."""
    out = Console()
    device = hardware.find_device()
    abi = sandbox.landlock_abi()
    rows = {
        "device": device.name,
        "cores": str(hardware.cores()),
        "memory": f"{hardware.memory_bytes() >> 30} GiB",
        "sandbox": f"Landlock version {abi}" if abi else "none: this kernel has no Landlock",
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
        out.print(Text(f"{name:16} {value}"), soft_wrap=True)


def main() -> None:
    """Entry point: errors become exit codes."""
    try:
        app()
    except MisuseError as error:
        _fail(error, 2)
    except CrucibleError as error:
        _fail(error, 3)
    except KeyboardInterrupt:
        sys.exit(130)


def _judged(path: Path, candidates: list[Path], say: Callable[[str], None], options: dict[str, Any]) -> list[Run]:
    """One run for a task; for a folder of tasks, one for each task that has candidates."""
    tasks = find_tasks(path)
    if len(tasks) == 1:
        return [pipeline.judge(Task.load(tasks[0]), candidates, say=say, **options)]
    return pipeline.judge_folder(tasks, find_candidates(candidates), say=say, **options)


def _write_page(file: Path, runs: list[Run]) -> None:
    from crucible.report.page.render import render  # loads jinja2: 0.1 s that only a page is worth

    store.write_text(file, render(runs))


class _progress:
    """Progress on stderr: one live line on a terminal, plain lines elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._start = time.monotonic()
        self._status = console.status("starting") if console.is_terminal else None

    def __enter__(self) -> Callable[[str], None]:
        if self._status is not None:
            self._status.start()
        return self._say

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def _say(self, text: str) -> None:
        line = Text(f"{time.monotonic() - self._start:6.1f} s  {text.splitlines()[0]}")
        if self._status is not None:
            self._status.update(line[:120])
        else:
            self._console.print(line, soft_wrap=True)


def _fail(error: CrucibleError, code: int) -> None:
    who = "the judge failed: " if isinstance(error, JudgeError) else ""
    print(f"crucible: {who}{error}", file=sys.stderr)
    sys.exit(code)
