"""`crucible judge`: right or wrong, and how fast."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from crucible import pipeline
from crucible.candidate import find_candidates
from crucible.cli import exits, outputs
from crucible.cli.limits import limits_of
from crucible.cli.progress import Progress
from crucible.contract import CONTRACTS
from crucible.errors import JudgeError, MisuseError
from crucible.judge.process.limits import Limits
from crucible.judge.timing.baselines import BASELINES
from crucible.report import table
from crucible.report.words import words
from crucible.run import Run
from crucible.task import Task, find_tasks


def judge(
    context: typer.Context,
    task: Annotated[
        Path | None, typer.Argument(help="A reference file, a task's folder, or a folder of task files.")
    ] = None,
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
    fresh_baselines: Annotated[
        bool, typer.Option("--fresh-baselines", help="Measure all baselines again, not eager alone.")
    ] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the run as JSON to this file.")] = None,
    build_limit: Annotated[float, typer.Option(help="Seconds for import and build.")] = Limits.build_s,
    run_limit: Annotated[float, typer.Option(help="Seconds for one forward or backward.")] = Limits.run_s,
    oracle_limit: Annotated[float, typer.Option(help="Seconds for the reference's answers.")] = Limits.oracle_s,
    race_limit: Annotated[float, typer.Option(help="Seconds for one timed race; 0: as the device needs.")] = 0.0,
    shrink_limit: Annotated[
        float, typer.Option(help="Seconds to look for the smallest shape at which a candidate fails; 0: none.")
    ] = Limits.shrink_s,
    stress_limit: Annotated[
        float, typer.Option(help="Seconds for what passes beyond the task's own inputs; 0: none.")
    ] = Limits.stress_s,
    strict: Annotated[
        bool, typer.Option("--strict", help="What passes must be right beyond the task's own inputs too.")
    ] = False,
    memory_limit: Annotated[float, typer.Option(help="GiB for a candidate; 0: 3/4 of what is free.")] = 0.0,
    sanitize: Annotated[
        bool,
        typer.Option(
            "--sanitize", help="Then run kernels under NVIDIA's compute-sanitizer, outside of the sandbox; needs a GPU."
        ),
    ] = False,
    page: Annotated[Path | None, typer.Option("--page", help="Also write the run as one HTML file.")] = None,
    junit: Annotated[Path | None, typer.Option("--junit", help="Also write the run as JUnit XML, for CI.")] = None,
    sarif: Annotated[
        Path | None, typer.Option("--sarif", help="Also write what did not pass as SARIF, for code scanning.")
    ] = None,
    reward: Annotated[
        Path | None,
        typer.Option("--reward", help="Also write one candidate's reward as JSON; none where the judge failed."),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Judge again what an earlier run has judged.")] = False,
    on: Annotated[
        str | None,
        typer.Option(
            "--on", help="Judge with a fleet of workers: local (all GPUs of this machine), ray, or ray://HOST:PORT."
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="With --on: how many; default one for each GPU, without any for two cores each.")
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option("--resume", help="Go on with a run that was cut short: its folder, its id, or latest."),
    ] = None,
) -> None:
    """Say of each candidate whether it is right (Evaluation) and how fast (Runtime, -1 when not right)."""
    if (task is None) == (resume is None):
        raise MisuseError("give a task, or --resume with a run that was cut short, and not both")
    if workers is not None and on is None:
        raise MisuseError("--workers is of a fleet: give --on local, or --on ray, too")
    files = {"--json": json_file, "--page": page, "--junit": junit, "--sarif": sarif, "--reward": reward}
    outputs.check_outputs(files, [task, *(candidates or [])])
    if reward is not None:
        outputs.clear_reward(reward, task, candidates or [])
    limits = limits_of(
        ("--build-limit", "build_s", build_limit),
        ("--run-limit", "run_s", run_limit),
        ("--oracle-limit", "oracle_s", oracle_limit),
        ("--race-limit", "race_s", race_limit),
        ("--shrink-limit", "shrink_s", shrink_limit),
        ("--stress-limit", "stress_s", stress_limit),
        ("--memory-limit", "memory_bytes", memory_limit),
    )
    console = Console(stderr=True)
    options: dict[str, Any] = {
        "contract": contract,
        "training": training,
        "mode": mode,
        "scale": scale,
        "device": device,
    }
    options |= {"baselines": baselines, "shapes": shape or (), "gpu": gpu, "sanitize": sanitize, "strict": strict}
    options["fresh_baselines"] = fresh_baselines
    with Progress(console) as say:
        options |= {"seed": seed, "limits": limits, "fresh": fresh}
        if task is None:
            runs = _resumed(context, str(resume), say)
        elif on is not None:
            from crucible.fleet.campaign import judge_on  # sqlite3 and more: a tenth of what starting takes

            runs = judge_on(on, task, candidates or [], workers=workers, say=say, **options)
        else:
            runs = _judged(task, candidates or [], say, options)
    trouble = outputs.written(runs, files)
    out = Console(width=None if sys.stdout.isatty() else table.PLAIN_WIDTH)
    for run in runs:
        table.show(run, out)
        if run.folder:
            console.print(words(f"kept in {run.folder}"), soft_wrap=True)
        if run.trouble:
            console.print(words(f"crucible: {run.trouble}", style="yellow"), soft_wrap=True)
    for one in trouble:
        console.print(words(f"crucible: {one}", style="yellow"), soft_wrap=True)
    raise typer.Exit(3 if trouble else exits.code_of(runs))


def _judged(path: Path, candidates: list[Path], say: Callable[[str], None], options: dict[str, Any]) -> list[Run]:
    """One run for a task; for a folder of tasks, one for each task that has candidates."""
    tasks = find_tasks(path)
    if len(tasks) == 1:
        try:
            return [pipeline.judge(Task.load(tasks[0]), candidates, say=say, **options)]
        except JudgeError as error:
            return [_run_of(error)]
    return pipeline.judge_folder(tasks, find_candidates(candidates), say=say, **options)


def _resumed(context: typer.Context, which: str, say: Callable[[str], None]) -> list[Run]:
    """A run that is gone on with as it was asked for: beside `--resume`, only files to write may be named."""
    named = [name for name in context.params
             if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"]  # fmt: skip
    files = ("json_file", "page", "junit", "sarif", "reward")
    beyond = [name.replace("_", "-") for name in named if name not in ("resume", *files)]
    if beyond:
        raise MisuseError(f"--resume goes on with the options of then: leave out --{', --'.join(beyond)}")
    try:
        return [pipeline.resume(which, say=say)]
    except JudgeError as error:
        return [_run_of(error)]


def _run_of(error: JudgeError) -> Run:
    """The run that the judge failed on. Raises the failure again where there is none."""
    if not isinstance(error.run, Run):
        raise error
    return error.run
