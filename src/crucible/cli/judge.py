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
from crucible.cli import exits, outputs, watching
from crucible.cli.limits import limits_of
from crucible.cli.panels import HOW, LIMITS, OUT, WHAT, HelpAll
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
        list[Path] | None,
        typer.Argument(help="Files (modules, or answers: .md, .txt) or folders; without, the task's own."),
    ] = None,
    contract: Annotated[
        str, typer.Option(help=f"Precision to judge by: {', '.join(CONTRACTS)}.", rich_help_panel=WHAT)
    ] = "tf32",
    training: Annotated[
        bool,
        typer.Option("--training", help="Judge and time backward too.", rich_help_panel=WHAT),
    ] = False,
    device: Annotated[
        str,
        typer.Option(help="auto, cuda, cpu, or emulator (CUDA C++ on the CPU).", rich_help_panel=WHAT),
    ] = "auto",
    gpu: Annotated[
        str | None,
        typer.Option(
            help="GPU that the emulator answers as: h200 (default), h100, a100, l40s, b200.", rich_help_panel=WHAT
        ),
    ] = None,
    scale: Annotated[
        str | None,
        typer.Option(help="full or small sizes; default: full on a GPU, small without.", rich_help_panel=WHAT),
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(help="Sizes, NAME=NUMBER,...; may be repeated, the first is timed.", rich_help_panel=WHAT),
    ] = None,
    mode: Annotated[
        str, typer.Option(help="Modules' mode: train (as constructed) or eval.", rich_help_panel=WHAT, hidden=True)
    ] = "train",
    seed: Annotated[
        int | None,
        typer.Option(help="Of weights and inputs; default: a secret one.", rich_help_panel=WHAT, hidden=True),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Must be right beyond the task's own inputs too.", rich_help_panel=WHAT),
    ] = False,
    baselines: Annotated[
        str | None,
        typer.Option(help=f"To race: {', '.join(BASELINES)}; all; none.", rich_help_panel=HOW),
    ] = None,
    fresh_baselines: Annotated[
        bool,
        typer.Option(
            "--fresh-baselines", help="Measure all baselines again, not eager alone.", rich_help_panel=HOW, hidden=True
        ),
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Judge again what an earlier run has judged.", rich_help_panel=HOW)
    ] = False,
    resume: Annotated[
        str | None,
        typer.Option("--resume", help="Go on with a run: its folder, its id, or latest.", rich_help_panel=HOW),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Judge again whenever a file is saved; Ctrl-C ends.", rich_help_panel=HOW)
    ] = False,
    sanitize: Annotated[
        bool,
        typer.Option(
            "--sanitize",
            help="Then run kernels under compute-sanitizer, outside of the sandbox; needs a GPU.",
            rich_help_panel=HOW,
            hidden=True,
        ),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Costs, occupancy and all notes too.", rich_help_panel=OUT)
    ] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write JSON.", rich_help_panel=OUT)] = None,
    page: Annotated[Path | None, typer.Option("--page", help="Also write one HTML file.", rich_help_panel=OUT)] = None,
    junit: Annotated[
        Path | None, typer.Option("--junit", help="Also write JUnit XML, for CI.", rich_help_panel=OUT)
    ] = None,
    sarif: Annotated[
        Path | None,
        typer.Option("--sarif", help="Also write SARIF, for code scanning.", rich_help_panel=OUT),
    ] = None,
    reward: Annotated[
        Path | None,
        typer.Option("--reward", help="Also write one candidate's reward as JSON.", rich_help_panel=OUT),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option("--on", help="Fleet of workers: local (all GPUs), ray, or ray://HOST:PORT.", rich_help_panel=HOW),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="With --on: how many; default: one a GPU.", rich_help_panel=HOW)
    ] = None,
    build_limit: Annotated[
        float, typer.Option(help="Seconds for import and build.", rich_help_panel=LIMITS, hidden=True)
    ] = Limits.build_s,
    run_limit: Annotated[
        float, typer.Option(help="Seconds for one forward or backward.", rich_help_panel=LIMITS, hidden=True)
    ] = Limits.run_s,
    oracle_limit: Annotated[
        float, typer.Option(help="Seconds for the reference's answers.", rich_help_panel=LIMITS, hidden=True)
    ] = Limits.oracle_s,
    race_limit: Annotated[
        float,
        typer.Option(help="Seconds for one timed race; 0: as the device needs.", rich_help_panel=LIMITS, hidden=True),
    ] = 0.0,
    shrink_limit: Annotated[
        float,
        typer.Option(help="Seconds to find the smallest failing shape; 0: none.", rich_help_panel=LIMITS, hidden=True),
    ] = Limits.shrink_s,
    stress_limit: Annotated[
        float,
        typer.Option(help="Seconds beyond the task's own inputs; 0: none.", rich_help_panel=LIMITS, hidden=True),
    ] = Limits.stress_s,
    memory_limit: Annotated[
        float,
        typer.Option(help="GiB for a candidate; 0: 3/4 of what is free.", rich_help_panel=LIMITS, hidden=True),
    ] = 0.0,
    help_all: HelpAll = False,
) -> None:
    """Judge candidates of a task: is each right (Evaluation), and how fast (Runtime; -1 where not right).

    Example: crucible judge tasks/conv3d_leakyrelu_sum_clamp_gelu --page page.html
    """
    if (task is None) == (resume is None):
        raise MisuseError("give a task, or --resume with a run that was cut short, and not both")
    if watch and (resume is not None or on is not None):
        raise MisuseError("--watch judges what is saved from now on, here: leave out --resume and --on")
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
    options: dict[str, Any] = {
        "contract": contract,
        "training": training,
        "mode": mode,
        "scale": scale,
        "device": device,
    }
    options |= {"baselines": baselines, "shapes": shape or (), "gpu": gpu, "sanitize": sanitize, "strict": strict}
    options |= {"fresh_baselines": fresh_baselines, "seed": seed, "limits": limits, "fresh": fresh}
    console = Console(stderr=True)

    def once() -> list[Run]:
        with Progress(console) as say:
            if task is None:
                return _resumed(context, str(resume), say)
            if on is not None:
                from crucible.fleet.campaign import judge_on  # sqlite3 and more: a tenth of what starting takes

                return judge_on(on, task, candidates or [], workers=workers, say=say, **options)
            return _judged(task, candidates or [], say, options)

    def shown(runs: list[Run]) -> int:
        return _shown(runs, outputs.written(runs, files), console, verbose=verbose)

    if watch and task is not None:
        watching.watch(lambda: watched(task, candidates or []), once, shown, console)
    raise typer.Exit(shown(once()))


def _shown(runs: list[Run], trouble: list[str], console: Console, *, verbose: bool) -> int:
    """Prints runs, where they are kept and what went wrong around them; the exit code."""
    out = Console(width=None if sys.stdout.isatty() else table.plain_width())
    for run in runs:
        table.show(run, out, verbose=verbose)
        if run.folder:
            console.print(words(f"kept in {run.folder}"), soft_wrap=True)
        if run.trouble:
            console.print(words(f"crucible: {run.trouble}", style="yellow"), soft_wrap=True)
    for one in trouble:
        console.print(words(f"crucible: {one}", style="yellow"), soft_wrap=True)
    return 3 if trouble else exits.code_of(runs)


def watched(task: Path, candidates: list[Path]) -> list[Path]:
    """The files that a run of these reads. Raises MisuseError where there is no task."""
    tasks = find_tasks(task)
    places = candidates or [file.parent / "candidates" for file in tasks]
    inside = [file for place in places for file in (place.rglob("*.py") if place.is_dir() else [place])]
    return sorted({*tasks, *inside})


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
    files = ("json_file", "page", "junit", "sarif", "reward", "verbose")
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
