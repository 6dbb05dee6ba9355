"""The command line: one function a verb. Results on stdout, progress on stderr.

Exit codes: 0 a candidate passed; 1 none passed; 2 misuse (a bad task, argument or device);
3 the judge itself failed; 130 interrupted, 143 told to end.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from crucible import hardware, legible, pipeline, store
from crucible.candidate import find_candidates
from crucible.contract import CONTRACTS
from crucible.doctor import examined
from crucible.errors import CrucibleError, JudgeError, MisuseError, StoreError
from crucible.gpus import H200, Gpu, closest_gpu, find_gpu, known_gpu
from crucible.judge.attempts import is_own_failure
from crucible.judge.process.limits import RANGES, Limits
from crucible.judge.timing.baselines import BASELINES
from crucible.report import table, why
from crucible.report.markdown import markdown
from crucible.report.words import words
from crucible.roofline import from_datasheet, here
from crucible.run import Run, run_from_json
from crucible.task import Task, find_tasks

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


@app.command()
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
    fresh: Annotated[bool, typer.Option("--fresh", help="Judge again what an earlier run has judged.")] = False,
    resume: Annotated[
        str | None,
        typer.Option("--resume", help="Go on with a run that was cut short: its folder, its id, or latest."),
    ] = None,
) -> None:
    """Say of each candidate whether it is right (Evaluation) and how fast (Runtime, -1 when not right)."""
    if (task is None) == (resume is None):
        raise MisuseError("give a task, or --resume with a run that was cut short, and not both")
    _check_outputs({"--json": json_file, "--page": page}, [task, *(candidates or [])])
    limits = _limits(
        ("--build-limit", "build_s", build_limit),
        ("--run-limit", "run_s", run_limit),
        ("--oracle-limit", "oracle_s", oracle_limit),
        ("--race-limit", "race_s", race_limit),
        ("--shrink-limit", "shrink_s", shrink_limit),
        ("--stress-limit", "stress_s", stress_limit),
        ("--memory-limit", "memory_bytes", memory_limit),
    )
    console = Console(stderr=True)
    options = {"contract": contract, "training": training, "mode": mode, "scale": scale, "device": device}
    options |= {"baselines": baselines, "shapes": shape or (), "gpu": gpu, "sanitize": sanitize, "strict": strict}
    options["fresh_baselines"] = fresh_baselines
    with _progress(console) as say:
        if task is None:
            runs = _resumed(context, str(resume), say)
        else:
            runs = _judged(task, candidates or [], say, {**options, "seed": seed, "limits": limits, "fresh": fresh})
    trouble = _written(runs, json_file, page)
    out = Console(width=None if sys.stdout.isatty() else table.PLAIN_WIDTH)
    for run in runs:
        table.show(run, out)
        if run.folder:
            console.print(words(f"kept in {run.folder}"), soft_wrap=True)
        if run.trouble:
            console.print(words(f"crucible: {run.trouble}", style="yellow"), soft_wrap=True)
    for one in trouble:
        console.print(words(f"crucible: {one}", style="yellow"), soft_wrap=True)
    raise typer.Exit(3 if trouble else _exit_code(runs))


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

    def say(line: str) -> None:
        console.print(words(line), soft_wrap=True)

    _check_outputs({"--output": output}, [task])
    text = fusing.write(loaded, tf32=contract == "tf32", gpu=_laid_out_for(gpu), tune=tune, say=say)
    store.write_text(output, text)
    print(fusing.plan_of(text))
    console.print(words(f"written to {output}"), soft_wrap=True)


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
    """Say what this machine offers, and try what the sandbox holds: 1 where something that matters is missing."""
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


@app.command()
def serve(
    host: Annotated[
        str, typer.Option(help="Address to listen on; one that others reach needs --token-file.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: one that is free.")] = 8000,
    workers: Annotated[
        int | None, typer.Option(help="How many judge; default one a GPU, or one for two cores.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--store", help="Where the queue is kept; default serve/ in Crucible's home.")
    ] = None,
    queue_limit: Annotated[int, typer.Option(min=1, help="Submissions that may wait or be judged at a time.")] = 10_000,
    token_file: Annotated[Path | None, typer.Option(help="Who may come in: a file with a token a line.")] = None,
) -> None:
    """Judge for others over HTTP, until Ctrl-C: see docs/serve.md. What is queued then goes on next time."""
    try:
        from crucible.serve import server, tokens  # fastapi and uvicorn: an extra, and half a second
    except ImportError as error:
        raise MisuseError(
            f"serve needs the packages of its extra ({error}): pip install 'crucible-kernels[serve]'"
        ) from error
    console = Console(stderr=True)

    def say(text: str) -> None:
        console.print(words(text), soft_wrap=True)

    admitted = tokens.Tokens.load(token_file) if token_file is not None else tokens.Tokens()
    place = folder if folder is not None else store.home() / "serve"
    server.serve(server.Service(host, port, workers, place, queue_limit, admitted), say)


def main() -> None:
    """Entry point: errors become exit codes, in one line each; `CRUCIBLE_TRACEBACK=1` shows where they come from."""
    legible.any_encoding()
    ended: list[int] = []
    try:
        with _ending_in_order(ended):
            app()
    except SystemExit as end:
        sys.exit(128 + ended[0] if ended and end.code == 130 else end.code)
    except MisuseError as error:
        _fail(error, 2)
    except CrucibleError as error:
        _fail(error, 3)
    except KeyboardInterrupt:
        sys.exit(128 + ended[0] if ended else 130)
    except OSError as error:
        _fail(JudgeError(f"the system refuses: {error}"), 3)
    except Exception as error:  # noqa: BLE001 - whatever it is, it has an exit code and a line
        _fail(pipeline.own_error(error), 3)


@contextlib.contextmanager
def _ending_in_order(ended: list[int]) -> Iterator[None]:
    """Makes of SIGTERM and SIGHUP what Ctrl-C is: what is finished is kept, nothing is left running."""

    def end(number: int, _: object) -> None:
        ended.append(number)
        raise KeyboardInterrupt

    ours = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _limits(*given: tuple[str, str, float]) -> Limits:
    """From options, fields and values. Raises MisuseError that names the option."""
    values: dict[str, Any] = {}
    for option, name, value in given:
        unit = 2**30 if option == "--memory-limit" else 1
        scaled = value * unit
        values[name] = int(scaled) if unit > 1 and abs(scaled) < 2.0**60 else scaled
        try:
            Limits(**{name: values[name]})
        except MisuseError:
            least, most, words_of = RANGES[name]
            unit_words = "GiB" if unit > 1 else words_of
            raise MisuseError(
                f"{option} {value:g}: give a number of {unit_words} from {least:g} to {most / unit:g}"
            ) from None
    return Limits(**values)


def _check_outputs(files: dict[str, Path | None], inputs: Sequence[Path | None]) -> None:
    """Whether what the user wants written can be, before anything is judged, and would not take the place of something
    else. Raises MisuseError."""
    seen: dict[Path, str] = {}
    for option, file in files.items():
        if file is None:
            continue
        store.check_writable(file, option)
        there = file.resolve()
        if there in seen:
            raise MisuseError(f"{seen[there]} and {option} name the same file {file}: give two")
        seen[there] = option
        for given in inputs:
            if given is not None and there in _files_of(given):
                raise MisuseError(f"{option} {file} is the task or a candidate: name another file")
        if not store.is_device(file) and file.is_file() and not _is_ours(file, option):
            raise MisuseError(f"{option} {file} holds something else and would be lost: name another file")


def _files_of(given: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return [file.resolve() for file in ([given] if given.is_file() else given.rglob("*.py"))]
    return []


_OURS = {
    "--json": (b"{", b"["),
    "--page": (b"<!doctype html", b"<html"),
    "--output": (b'"""', b"#", b"import", b"from"),
}
"""How what an option writes begins."""


def _is_ours(file: Path, option: str) -> bool:
    """Whether a file that is there may be what an earlier run wrote; an empty one may always be written."""
    try:
        with file.open("rb") as opened:
            head = opened.read(64).lstrip().lower()
    except OSError:
        return False
    return not head or head.startswith(_OURS[option])


def _resumed(context: typer.Context, which: str, say: Callable[[str], None]) -> list[Run]:
    """A run that is gone on with as it was asked for: beside `--resume`, only files to write may be named."""
    named = [name for name in context.params
             if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"]  # fmt: skip
    beyond = [name.replace("_", "-") for name in named if name not in ("resume", "json_file", "page")]
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


def _written(runs: list[Run], json_file: Path | None, page: Path | None) -> list[str]:
    """Writes the files asked for, before anything is shown; what could not be written, in words."""
    trouble: list[str] = []
    data = [run.to_json() for run in runs]
    text = json.dumps(data[0] if len(data) == 1 else data, indent=1, allow_nan=False) + "\n"
    writes = [partial(store.write_text, json_file, text)] if json_file is not None else []
    writes += [partial(_write_page, page, runs)] if page is not None else []
    for write in writes:
        try:
            write()
        except StoreError as error:
            trouble.append(str(error))
    return trouble


def _exit_code(runs: list[Run]) -> int:
    cut_short = {run.cut_short for run in runs}
    if "interrupted" in cut_short:
        return 130
    if "failed" in cut_short:
        return 3
    if any(run.passed for run in runs):
        return 0
    return 3 if any(is_own_failure(verdict) for run in runs for verdict in run.verdicts) else 1


def _judged(path: Path, candidates: list[Path], say: Callable[[str], None], options: dict[str, Any]) -> list[Run]:
    """One run for a task; for a folder of tasks, one for each task that has candidates."""
    tasks = find_tasks(path)
    if len(tasks) == 1:
        try:
            return [pipeline.judge(Task.load(tasks[0]), candidates, say=say, **options)]
        except JudgeError as error:
            return [_run_of(error)]
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
        line = words(f"{time.monotonic() - self._start:6.1f} s  {(text.splitlines() or [''])[0]}")
        if self._status is not None:
            self._status.update(line[:120])
        else:
            self._console.print(line, soft_wrap=True)


def _fail(error: CrucibleError, code: int) -> None:
    who = "the judge failed: " if isinstance(error, JudgeError) else ""
    if os.environ.get("CRUCIBLE_TRACEBACK"):
        traceback.print_exception(error)
    with contextlib.suppress(OSError):
        print(f"crucible: {who}{legible.line(str(error))}", file=sys.stderr)
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    if code == 3 and isinstance(error.__cause__ or error.__context__, OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what it still holds nobody can have
    sys.exit(code)
