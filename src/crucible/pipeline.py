"""The whole story on one screen: a task and candidates in, a run out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from crucible import hardware, seeds, store
from crucible.bench import Bench
from crucible.candidate import Candidate, find_candidates, match_candidates
from crucible.contract import find_contract
from crucible.errors import DeviceError, JudgeError, MisuseError, RecordError, TaskError
from crucible.gpus import DEFAULT, Gpu, known_gpu
from crucible.hardware import Device
from crucible.judge.attempts import is_own_failure
from crucible.judge.beforehand import runs_on_emulator
from crucible.judge.diagnosis.sanitizer import demand
from crucible.judge.process.limits import Limits
from crucible.judge.timing.baselines import choose_baselines
from crucible.judge.verdict.verdict import Verdict
from crucible.legible import are, counted
from crucible.listening import Listener
from crucible.request import request_from_json
from crucible.run import Run, verdict_from_json
from crucible.task import Task

Say = Callable[[str], None]


def judge(
    task: str | Path | Task,
    candidates: Sequence[str | Path | Candidate] | None = None,
    *,
    contract: str = "tf32",
    training: bool = False,
    mode: str = "train",
    scale: str | None = None,
    device: str = "auto",
    shapes: Sequence[str] = (),
    gpu: str | None = None,
    seed: int | None = None,
    limits: Limits | None = None,
    fresh: bool = False,
    baselines: str | None = None,
    fresh_baselines: bool = False,
    sanitize: bool = False,
    strict: bool = False,
    say: Say = lambda text: None,
    listener: Listener | None = None,
    root: Path | None = None,
) -> Run:
    """Judges candidates of one task.

    Args:
        task: a reference file, or a folder with `reference.py` and, perhaps, `candidates/`.
        candidates: files, folders or Candidate records; None takes the task's own.
        contract: `fp32`, `tf32`, `bf16` or `kernelbench` (see docs/judging.md).
        training: gradients are required; a missing one fails.
        mode: the module's mode, `train` (as constructed) or `eval`.
        scale: `full` or `small`; None is small on a machine without a GPU where the task declares it.
        device: `auto`, `cuda`, `cpu` or `emulator`.
        shapes: sizes to judge at, as `batch_size=2,height=33`; the first is the one that is timed. Without, kernels
            on the emulator are judged at their small size and at a ragged one.
        gpu: which one the emulator answers as and nvcc compiles for (`h200`, `l40s`, ...: `crucible.gpus`), where
            candidates run without one; None for an H200.
        seed: of weights, inputs and all else that is drawn; an earlier run's `seed` repeats it, None is a secret one.
            Contract `kernelbench` has one of its own for weights and inputs.
        limits: time, memory and process limits of a candidate.
        fresh: judge again what an earlier run has judged.
        baselines: what to take turns with, comma-separated (see docs/timing.md); None for the device's usual ones.
        fresh_baselines: measure all of them again; without, those but eager are taken from an earlier run of the same
            task, GPU and versions where there is one.
        sanitize: run candidates with kernels of their own under NVIDIA's compute-sanitizer too, after their verdicts
            and outside of the sandbox; needs a GPU and the tool.
        strict: what passes must also be right beyond the task's own inputs (see docs/judging.md).
        say: called with a line of progress now and then.
        listener: hears of verdicts as they stand, and may call candidates off.
        root: the folder below which the run is kept; None for the store's home.

    Returns the Run. Raises MisuseError for a bad task or argument, JudgeError when the judge itself failed.
    """
    place = hardware.find_device(device)
    if sanitize:
        demand(place)
    rule = find_contract(contract)
    loaded = task if isinstance(task, Task) else Task.load(task)
    loaded = loaded.at(scale=scale, training=training, mode=mode, small_by_default=place.kind == "cpu")
    if rule.allclose:
        loaded = replace(loaded, training=False)  # the benchmark's rule knows no gradients
    loaded = loaded.shaped(shapes)
    pretended = _pretended(gpu, place)
    chosen = find_candidates(candidates or own_candidates(loaded))
    if any(runs_on_emulator(candidate, place) for candidate in chosen):
        loaded = loaded.cut_down(own=scale is not None)
    rivals = choose_baselines(baselines, loaded, place.kind)
    drawn, kept = seeds.secret() if seed is None else checked_seed(seed), limits or Limits()
    how = (kept, fresh, rivals, say, sanitize, strict)
    bench = Bench(loaded, rule, place, pretended, drawn, seed is None, *how)
    bench.listener = listener or bench.listener
    bench.fresh_baselines, bench.root = fresh_baselines, root
    return bench.judge(chosen)


def resume(which: str, *, say: Say = lambda text: None) -> Run:
    """Goes on with a run that was begun (its folder, its id or how that begins, `latest`): verdicts that stand there
    stay, what is missing or what the judge failed on is judged, with the task, options and seed of then.

    Raises RecordError or MisuseError where that cannot be, JudgeError when the judge itself failed.
    """
    folder = store.find_begun(which)
    asked = request_from_json(folder.request())
    asked.check(hardware.find_device(asked.device.kind), hardware.versions(), store.code_digest())
    done = finished_verdicts(folder.verdicts())
    say(f"{folder.path.name}: {len(done)} of {counted(len(asked.candidates), 'candidate')} {are(len(done))} judged")
    seed = (asked.seed, asked.seed_is_secret)
    options = (asked.gpu, *seed, asked.limits, False, asked.baselines, say, asked.sanitize, asked.strict)
    bench = Bench(asked.task, asked.contract, asked.device, *options, folder=folder)
    return bench.judge(list(asked.candidates), done)


def checked_seed(seed: int) -> int:
    """Raises MisuseError for what PyTorch takes for no seed."""
    if not isinstance(seed, int) or not 0 <= seed < 1 << 63:
        raise MisuseError(f"--seed {seed}: give a whole number from 0 to 2**63 - 1")
    return seed


def judge_folder(
    tasks: Sequence[Path], candidates: Sequence[Candidate], *, say: Say = lambda text: None, **options: Any
) -> list[Run]:
    """Judges candidates against a folder of task files, somebody's KernelBench checkout for one.

    A candidate belongs to the task whose stem its own name begins with, or whose number its name carries as
    KernelBench writes it (`level_2_problem_90_sample_0_kernel.py`). Without candidates each task's reference is
    judged as its own replacement, which shows whether the task can be judged at all. A task that cannot be loaded
    or answered is reported through `say` and left out. Options are `judge`'s. Raises CandidateError when a
    candidate belongs to no task.
    """
    runs = []
    for task, chosen in matched(tasks, candidates, say=say):
        try:
            runs.append(judge(task, chosen, say=say, **options))
        except (TaskError, JudgeError) as error:
            say(f"left out {task.name}: {error}")
            failed = error.run if isinstance(error, JudgeError) else None
            runs += [failed] if isinstance(failed, Run) else []
    if not runs:
        raise TaskError(f"none of {counted(len(tasks), 'task')} could be judged; the reasons stand above")
    return runs


def matched(
    tasks: Sequence[Path], candidates: Sequence[Candidate], *, say: Say = lambda text: None
) -> list[tuple[Task, list[Candidate]]]:
    """Tasks of a folder with the candidates that belong to each, or without any each with its own reference; tasks that
    cannot be loaded are reported through `say`. Raises CandidateError."""
    loaded = []
    for path in tasks:
        try:
            loaded.append(Task.load(path))
        except TaskError as error:
            say(f"left out: {error}")
    return match_candidates(loaded, candidates) if candidates else [(t, [_itself(t)]) for t in loaded]


def own_candidates(task: Task) -> list[Path]:
    """The candidates that a task's folder brings. Raises CandidateError through `find_candidates` if none."""
    return [task.path.parent / "candidates"]


def _pretended(gpu: str | None, device: Device) -> Gpu | None:
    """The GPU that stands for the one that is missing; None on a real one. Raises DeviceError when asked for both."""
    if device.kind != "cuda":
        return known_gpu(gpu or DEFAULT)
    if gpu:
        raise DeviceError(f"candidates run on this machine's {device.name}: a GPU to emulate needs --device emulator")
    return None


def _itself(task: Task) -> Candidate:
    """A task's reference as a candidate for itself."""
    return Candidate(task.name, task.path, f"{task.source}\n\nModelNew = Model\n")


def finished_verdicts(entries: Sequence[Any]) -> list[Verdict]:
    """Those of a run's folder that stand; what is of another version, or what the judge failed on, is judged again."""
    found = []
    for entry in entries:
        with contextlib.suppress(RecordError):
            verdict = verdict_from_json(entry)
            found += [] if is_own_failure(verdict) else [verdict]
    return found
