"""`crucible traces`: solutions of FlashInfer-Bench and SOL-ExecBench, judged, as traces of their schema."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from crucible import pipeline
from crucible.cli.limits import limits_of
from crucible.cli.progress import Progress
from crucible.contract import CONTRACTS
from crucible.errors import JudgeError, MisuseError, TaskError
from crucible.interchange.definition import Solution, Workload
from crucible.interchange.traces import Problem, TraceFile, problems, status_of, trace_file, trace_of
from crucible.interchange.wrapping import candidate_of, task_of
from crucible.judge.process.limits import Limits
from crucible.report.words import words
from crucible.run import Run


def traces(
    place: Annotated[
        Path, typer.Argument(help="A dataset (definitions/, workloads/, solutions/), or a problem (definition.json).")
    ],
    solutions: Annotated[
        list[Path] | None, typer.Argument(help="Solutions' JSON files; without, those in the folder.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The JSONL file to add to; default: traces/ of the dataset.")
    ] = None,
    definition: Annotated[str | None, typer.Option(help="Only this definition.")] = None,
    contract: Annotated[str, typer.Option(help=f"What right means: {', '.join(CONTRACTS)}.")] = "tf32",
    device: Annotated[str, typer.Option(help="auto, cuda, cpu or emulator.")] = "auto",
    fresh: Annotated[bool, typer.Option("--fresh", help="Judge again what has a trace already.")] = False,
    build_limit: Annotated[float, typer.Option(help="Seconds for import and build.")] = Limits.build_s,
    run_limit: Annotated[float, typer.Option(help="Seconds for one call.")] = Limits.run_s,
    race_limit: Annotated[float, typer.Option(help="Seconds for one timed race; 0: as the device needs.")] = 0.0,
) -> None:
    """Judge solutions of FlashInfer-Bench or SOL-ExecBench on their workloads: a trace for each.

    Example: crucible traces flashinfer-trace --definition rmsnorm_h128
    """
    chosen = [one for one in problems(place, solutions or ()) if definition in (None, one.definition.name)]
    if not any(problem.solutions and problem.workloads for problem in chosen):
        raise MisuseError(
            f"{place} has no definition with workloads and solutions{f' of {definition}' if definition else ''}"
        )
    options: dict[str, Any] = {"contract": contract, "device": device, "baselines": "eager", "fresh": fresh}
    options["limits"] = limits_of(
        ("--build-limit", "build_s", build_limit),
        ("--run-limit", "run_s", run_limit),
        ("--race-limit", "race_s", race_limit),
    )
    work = _Work(place, output, options)
    for problem in chosen:
        work.check(problem)
    console = Console(stderr=True)
    with Progress(console) as say:
        for problem in chosen:
            for workload in problem.workloads:
                if work.code != 130:
                    work.judge(problem, workload, say)
    for line in work.told():
        console.print(words(line), soft_wrap=True)
    raise typer.Exit(work.code)


class _Work:
    """One call's traces."""

    def __init__(self, place: Path, output: Path | None, options: dict[str, Any]) -> None:
        self._place, self._output, self._options = place, output, options
        self._files: dict[Path, TraceFile] = {}
        self._written = self._right = self._before = 0
        self._left_out: list[str] = []
        self.code = 0

    def check(self, problem: Problem) -> None:
        """Reads the files that traces go to. Raises MisuseError where one holds something else."""
        for solution in problem.solutions:
            self._file(problem, solution)

    def judge(self, problem: Problem, workload: Workload, say: Callable[[str], None]) -> None:
        """All solutions on one workload; their traces are on disk before the next begins."""
        missing = [one for one in problem.solutions if self._is_missing(problem, workload, one)]
        self._before += len(problem.solutions) - len(missing)
        candidates = {}
        for solution in missing:
            try:
                candidates[solution.name] = candidate_of(problem.definition, workload, solution)
            except MisuseError as error:
                self._leave_out(f"{solution.name}: {error}", say)
        if not candidates:
            return
        say(f"{problem.definition.name}, workload {workload.uuid}: {len(candidates)} solutions")
        try:
            task = task_of(problem.definition, workload, problem.root)
            run = pipeline.judge(task, list(candidates.values()), say=say, **self._options)
        except (TaskError, JudgeError, MisuseError) as error:
            self._leave_out(f"{problem.definition.name}, workload {workload.uuid}: {error}", say)
            self.code = 3
            return
        self._keep(run, problem, workload, [one for one in missing if one.name in candidates], say)

    def _keep(
        self, run: Run, problem: Problem, workload: Workload, solutions: list[Solution], say: Callable[[str], None]
    ) -> None:
        verdicts = {verdict.candidate: verdict for verdict in run.verdicts}
        for solution in solutions:
            verdict = verdicts.get(solution.name)
            if verdict is None or not status_of(verdict, sol=solution.is_sol):
                why = verdict.outcome.words if verdict else run.cut_short
                untimed = ", and was not timed: the schema wants a latency" if verdict and verdict.evaluation else ""
                self._leave_out(f"{solution.name}, workload {workload.uuid}: {why}{untimed}", say)
                continue
            trace = trace_of(run, verdict, problem, workload, solution)
            self._file(problem, solution).add([trace])
            self._written += 1
            self._right += verdict.evaluation
        if run.cut_short:
            self.code = 130 if run.cut_short == "interrupted" else 3

    def told(self) -> list[str]:
        """What was done."""
        lines = [f"{self._right} of {self._written} right, {self._before} had a trace"]
        lines += [f"traces: {file}" for file in self._files if file.exists()]
        return lines + [f"no trace: {one}" for one in self._left_out]

    def _leave_out(self, line: str, say: Callable[[str], None]) -> None:
        self._left_out.append(line)
        self.code = self.code or 3
        say(f"left out: {line}")

    def _is_missing(self, problem: Problem, workload: Workload, solution: Solution) -> bool:
        return bool(self._options["fresh"]) or not self._file(problem, solution).holds(problem, workload, solution)

    def _file(self, problem: Problem, solution: Solution) -> TraceFile:
        file = trace_file(self._place, self._output, problem, solution)
        if file not in self._files:
            self._files[file] = TraceFile(file)
        return self._files[file]
