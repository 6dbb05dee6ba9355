"""`crucible kernelbench`: a run of KernelBench's, judged, its results and baselines in the benchmark's own files."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from crucible import pipeline
from crucible.cli.limits import limits_of
from crucible.cli.progress import Progress
from crucible.contract import CONTRACTS
from crucible.errors import JudgeError, MisuseError, TaskError
from crucible.hardware import find_device
from crucible.interchange.kernelbench import (
    BASELINE_FILES,
    Results,
    Sample,
    Timings,
    checkout_of,
    hardware_name,
    problems,
    samples,
)
from crucible.judge.process.limits import Limits
from crucible.report.words import words
from crucible.run import Run
from crucible.task import Task


def kernelbench(
    run: Annotated[Path, typer.Argument(help="A run's folder, runs/NAME, with level_L_problem_P_sample_S_kernel.py.")],
    level: Annotated[int, typer.Option(help="Which level's kernels to judge.")],
    checkout: Annotated[
        Path | None, typer.Option(help="The KernelBench checkout; default: where the run's folder lies.")
    ] = None,
    hardware: Annotated[
        str | None, typer.Option(help="Name of this machine's folder in results/timing; default: the device's.")
    ] = None,
    timing: Annotated[
        Path | None, typer.Option(help="Folder for baseline times; default: CHECKOUT/results/timing.")
    ] = None,
    contract: Annotated[str, typer.Option(help=f"What right means: {', '.join(CONTRACTS)}.")] = "kernelbench",
    device: Annotated[str, typer.Option(help="auto, cuda, cpu or emulator.")] = "auto",
    baselines: Annotated[
        str, typer.Option(help=f"What to race, comma-separated: {', '.join(BASELINE_FILES)}; none.")
    ] = "eager,compile",
    fresh: Annotated[bool, typer.Option("--fresh", help="Judge again what has a result already.")] = False,
    build_limit: Annotated[float, typer.Option(help="Seconds for import and build.")] = Limits.build_s,
    run_limit: Annotated[float, typer.Option(help="Seconds for one forward.")] = Limits.run_s,
    race_limit: Annotated[float, typer.Option(help="Seconds for one timed race; 0: as the device needs.")] = 0.0,
) -> None:
    """Judge a KernelBench run: eval_results.json and baseline times, as benchmark_eval_analysis.py scores them.

    Example: crucible kernelbench KernelBench/runs/mine --level 2
    """
    unknown = [name for name in baselines.split(",") if name not in (*BASELINE_FILES, "none")]
    if unknown:
        raise MisuseError(f"KernelBench has no file for baseline {unknown[0]!r}: choose {', '.join(BASELINE_FILES)}")
    home = checkout if checkout is not None else checkout_of(run)
    tasks = problems(home, level)
    given = samples(run, level)
    beyond = sorted({sample.problem for sample in given} - set(tasks))
    if beyond:
        raise MisuseError(f"level {level} in {home} has no problem {', '.join(map(str, beyond))}, and {run} has")
    options: dict[str, Any] = {"contract": contract, "device": device, "baselines": baselines, "fresh": fresh}
    options["limits"] = limits_of(
        ("--build-limit", "build_s", build_limit),
        ("--run-limit", "run_s", run_limit),
        ("--race-limit", "race_s", race_limit),
    )
    place = hardware or hardware_name(find_device(device).name)
    work = _Work(Results(run), Timings((timing or home / "results" / "timing") / place, level), options)
    console = Console(stderr=True)
    with Progress(console) as say:
        work.judge([sample for sample in given if fresh or not work.results.holds(sample)], tasks, say)
    for line in work.told(len(given)):
        console.print(words(line), soft_wrap=True)
    raise typer.Exit(work.code)


class _Work:
    """One call's tasks, and what came of them."""

    def __init__(self, results: Results, timings: Timings, options: dict[str, Any]) -> None:
        self.results, self._timings, self._options = results, timings, options
        self._right = self._judged = self._untimed = 0
        self._left_out: list[str] = []
        self._files: list[Path] = []
        self.code = 0

    def judge(self, missing: list[Sample], tasks: dict[int, Path], say: Callable[[str], None]) -> None:
        """Each task's samples; its results are on disk before the next begins."""
        for problem, chosen in groupby(missing, key=lambda sample: sample.problem):
            several = list(chosen)
            say(f"problem {problem}: {len(several)} samples")
            try:
                candidates = [sample.candidate for sample in several]
                run = pipeline.judge(Task.load(tasks[problem]), candidates, say=say, **self._options)
            except (TaskError, JudgeError) as error:
                say(f"left out problem {problem}: {error}")
                self._left_out += [sample.candidate.name for sample in several]
                self.code = 3
                continue
            self._keep(run, several, tasks[problem])
            if run.cut_short == "interrupted":
                self.code = 130
                return

    def _keep(self, run: Run, several: list[Sample], problem: Path) -> None:
        left_out = self.results.add(run, several)
        self._left_out += left_out
        self.code = 3 if left_out or run.cut_short else self.code
        self._judged += len(several) - len(left_out)
        self._right += len(run.passed)
        self._untimed += sum(verdict.runtime_ms < 0 for verdict in run.passed)
        self._files += [file for file in self._timings.add(run, problem) if file not in self._files]

    def told(self, all_of_them: int) -> list[str]:
        """What was done, and what a reader of the files should know."""
        before = all_of_them - self._judged - len(self._left_out)
        lines = [
            f"{self._right} of {self._judged} right, {before} had a result or were not reached: {self.results.file}"
        ]
        lines += [f"baselines: {file}" for file in self._files]
        if self._untimed:
            lines.append(f"{self._untimed} right ones have no runtime (-1): the analysis counts them as not faster")
        if self._left_out:
            lines.append(f"not judged, so not in the file: {', '.join(self._left_out)}")
        return lines
