"""The whole story on one screen: a task and candidates in, a run out."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crucible import hardware, seeds, store
from crucible.candidate import Candidate, find_candidates, match_candidates
from crucible.contract import Contract, find_contract
from crucible.errors import DeviceError, JudgeError, TaskError
from crucible.explain.findings import findings
from crucible.gpus import DEFAULT, Gpu, known_gpu
from crucible.hardware import Device
from crucible.judge.diagnosis.sanitizer import demand
from crucible.judge.examine import Examination, Setting, is_timed_here, runs_on_emulator
from crucible.judge.prepared import prepared_emulator, prepared_header
from crucible.judge.process import sandbox
from crucible.judge.process.limits import Limits
from crucible.judge.process.oracle_process import OracleProcess
from crucible.judge.timing.baseline_runs import BaselineRuns
from crucible.judge.timing.baselines import Baseline, choose_baselines
from crucible.judge.timing.contents import secret_contents
from crucible.judge.timing.contestants import Contestants
from crucible.judge.timing.race import CPU_PACE, GPU_PACE
from crucible.judge.verdict.evidence import Finding, Measured
from crucible.judge.verdict.verdict import Verdict, from_json
from crucible.records import Records
from crucible.roofline import Floor
from crucible.run import Ground, Run
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
    sanitize: bool = False,
    say: Say = lambda text: None,
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
        limits: time, memory and process limits of a candidate.
        fresh: judge again what an earlier run has judged.
        baselines: what to take turns with, comma-separated (see docs/timing.md); None for the device's usual ones.
        sanitize: run candidates with kernels of their own under NVIDIA's compute-sanitizer too, after their verdicts
            and outside of the sandbox; needs a GPU and the tool.
        say: called with a line of progress now and then.

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
    drawn = seeds.secret() if seed is None else seed
    bench = _Bench(
        loaded, rule, place, pretended, drawn, seed is None, limits or Limits(), fresh, rivals, say, sanitize
    )
    return bench.judge(chosen)


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
    loaded = []
    for path in tasks:
        try:
            loaded.append(Task.load(path))
        except TaskError as error:
            say(f"left out: {error}")
    pairs = match_candidates(loaded, candidates) if candidates else [(t, [_itself(t)]) for t in loaded]
    runs = []
    for task, chosen in pairs:
        try:
            runs.append(judge(task, chosen, say=say, **options))
        except (TaskError, JudgeError) as error:
            say(f"left out {task.name}: {error}")
    if not runs:
        raise TaskError(f"none of {len(tasks)} tasks could be judged; the reasons stand above")
    return runs


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


@dataclass
class _Bench:
    """One run while it is under way."""

    task: Task
    contract: Contract
    device: Device
    gpu: Gpu | None
    seed: int
    seed_is_secret: bool
    """Nobody asked for this one: a verdict under another secret seed is as good."""
    limits: Limits
    fresh: bool
    baselines: tuple[Baseline, ...]
    say: Say
    sanitize: bool = False
    floors_measured: bool = False

    def judge(self, candidates: list[Candidate]) -> Run:
        self.versions = hardware.versions()
        key = self._key()
        self.records = Records(self.task.name, [c.name for c in candidates], key, self.say)
        keys = {c.name: store.key_of(key, c.digest, vars(self.limits), self.sanitize) for c in candidates}
        new = [c for c in candidates if self.fresh or not self.records.recall(c.name, keys[c.name])]
        if not new:
            self.records.recall_ground()
        try:
            for verdict in self._examined(new) if new else ():
                self.records.keep(replace(verdict, seed=self.seed), keys[verdict.candidate])
        except KeyboardInterrupt:
            self.records.cut("interrupted", "interrupted")
        except JudgeError as error:
            if not self.records.verdicts:
                raise
            self.records.cut("failed", f"the judge failed: {error}")
        return self._finish(candidates)

    def _key(self) -> str:
        """Of all that every verdict depends on."""
        return store.key_of(
            self.task.digest,
            vars(self.contract),
            vars(self.device),
            self._gpu_name,
            self.versions,
            "secret" if self.seed_is_secret else self.seed,
            store.code_digest(),
            [baseline.name for baseline in self.baselines],
        )

    @property
    def _gpu_name(self) -> str:
        return self.gpu.name if self.gpu else ""

    def _examined(self, candidates: list[Candidate]) -> Iterator[Verdict]:
        """Builds a wave side by side while oracle and baselines prepare, then judges one at a time, undisturbed."""
        with tempfile.TemporaryDirectory(prefix="crucible-") as temporary:
            work = Path(temporary)
            setting = self._setting(work, candidates)
            everyone = [Examination(c, setting, work / f"candidate{i}") for i, c in enumerate(candidates)]
            pace = GPU_PACE if self.device.kind == "cuda" else CPU_PACE
            self.field = Contestants(self.device.kind, pace.within(self.limits.race_s), self.say)
            races = any(is_timed_here(candidate, self.device) for candidate in candidates)
            rivals = BaselineRuns(self.baselines if races else (), setting, work, self.field)
            oracle = OracleProcess(work, self.limits)
            description = None
            try:
                for wave in _waves(everyone, hardware.cores()):
                    with ThreadPoolExecutor(len(wave) + 2) as pool, _closed_on_error([*wave, rivals]):
                        self.say(f"building {', '.join(e.candidate.name for e in wave)}")
                        builds = [pool.submit(examination.build) for examination in wave]
                        if description is None:
                            description = self._prepare(oracle, rivals, pool)
                        for build in builds:
                            build.result()
                    if races and wave[0] is everyone[0]:
                        self._settle(oracle, rivals, description)
                    for examination in wave:
                        self.say(f"judging {examination.candidate.name}")
                        verdict = examination.judge(oracle, description, self.field)
                        if isinstance(verdict.timing, Measured):
                            self._measure_floors(oracle)
                        yield verdict
            finally:
                for examination in everyone:
                    examination.close()
                rivals.close()
                oracle.kill()

    def _setting(self, work: Path, candidates: list[Candidate]) -> Setting:
        (work / "inputs").mkdir()
        self.contents = secret_contents(self.task.training, self.seed)
        return Setting(
            self.task,
            self.contract,
            self.device,
            seeds.derived(self.seed, "construction"),
            self.limits,
            work / "inputs",
            self.contents,
            prepared_header(candidates, self.device, self.versions, self.say),
            self.gpu or known_gpu(DEFAULT),
            prepared_emulator(candidates, self.device, self.say),
            self.sanitize,
        )

    def _unconfined(self) -> tuple[Finding, ...]:
        """A verdict reached without the sandbox says so."""
        if sandbox.landlock_abi():
            return ()
        claim = "candidates ran without the sandbox: they could read and write what this user can"
        return (Finding(claim, "this kernel has no Landlock (Linux 5.13 and later)"),)

    def _prepare(self, oracle: OracleProcess, rivals: BaselineRuns, pool: ThreadPoolExecutor) -> dict[str, Any]:
        """The reference's answers; the baselines come up meanwhile, and compile once there are inputs."""
        started = pool.submit(rivals.build)
        warm: list[Future[None]] = []

        def warm_up() -> None:
            started.result()
            rivals.warm(oracle, self.say)

        def written() -> None:
            warm.append(pool.submit(warm_up))

        description = oracle.prepare(self._asked(), self.say, written, self.limits.oracle_s)
        for work in warm:
            work.result()
        self.records.recall_ground()
        if not (self.records.ground.baselines or self.records.ground.floors):  # an earlier run may have some
            self.records.keep_ground(Ground(tuple(from_json(finding) for finding in description["findings"])))
        return description

    def _asked(self) -> dict[str, Any]:
        """What the oracle is told of the task."""
        return {
            "source": self.task.source,
            "path": str(self.task.path),
            "sizes": self.task.sizes,
            "first": self.task.first,
            "further": self.task.further,
            "asked": bool(self.task.asked),
            "mode": self.task.mode,
            "training": self.task.training,
            "contract": self.contract.name,
            "device": self.device.kind,
            "seed": self.seed,
            "secrets": [contents.secrets for contents in self.contents],
        }

    def _settle(self, oracle: OracleProcess, rivals: BaselineRuns, description: dict[str, Any]) -> None:
        """What holds for all candidates; kept, so that a run answered from the store has it too."""
        found = tuple(from_json(finding) for finding in description["findings"])
        baselines = tuple(rivals.enter(oracle, description, self.say))
        self.records.ground = Ground(found, baselines, self.records.ground.floors)
        if baselines:
            self._measure_floors(oracle)

    def _measure_floors(self, oracle: OracleProcess) -> None:
        """Once, and only where there is a time to hold against them: it takes 3 s of a processor."""
        if self.floors_measured:
            return
        self.floors_measured = True
        floors = from_json(oracle.floors(self.limits.race_s, self.limits.oracle_s))
        known = tuple(floor for floor in floors if isinstance(floor, Floor))
        doubts = tuple(floor for floor in floors if isinstance(floor, Finding))
        ground = self.records.ground
        self.records.keep_ground(replace(ground, findings=(*ground.findings, *doubts), floors=known))

    def _finish(self, candidates: list[Candidate]) -> Run:
        records, has_cuda = self.records, any(c.language == "cuda" for c in candidates)
        run = Run(
            self.task,
            self.contract,
            self.device,
            self.versions,
            self.seed,
            records.in_order(),
            replace(records.ground, findings=(*records.ground.findings, *self._unconfined())),
            self._gpu_name if has_cuda else "",
            trouble=records.trouble,
            cut_short=records.cut_short,
            sources={c.name: c.source for c in candidates},
        )
        return records.finish(replace(run, explanations=findings(run)))


def _waves(items: list[Examination], size: int) -> list[list[Examination]]:
    return [items[i : i + size] for i in range(0, len(items), size)]


@contextlib.contextmanager
def _closed_on_error(started: Sequence[Examination | BaselineRuns]) -> Iterator[None]:
    """Kills processes when anything goes wrong, so that no build thread waits for them."""
    try:
        yield
    except BaseException:
        for examination in started:
            examination.close()
        raise
