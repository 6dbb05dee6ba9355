"""The whole story on one screen: a task and candidates in, a run out."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from crucible import hardware, store
from crucible.candidate import Candidate, find_candidates, match_candidates
from crucible.contract import Contract, find_contract
from crucible.emulator import toolchain
from crucible.errors import DeviceError, JudgeError, StoreError, TaskError
from crucible.explain.findings import findings
from crucible.gpus import DEFAULT, Gpu, known_gpu
from crucible.hardware import Device
from crucible.judge import sandbox
from crucible.judge.baselines import Baseline, choose_baselines
from crucible.judge.evidence import Finding, Measured
from crucible.judge.examine import Examination, Setting, is_timed_here, known_without_running, runs_on_emulator
from crucible.judge.field import Field
from crucible.judge.kept import Limits
from crucible.judge.lane import secret_contents
from crucible.judge.launcher import SOURCE
from crucible.judge.process import OracleProcess
from crucible.judge.rivals import Rivals
from crucible.judge.sanitizer import demand
from crucible.judge.timing import CPU_PACE, GPU_PACE
from crucible.judge.verdict import Crashed, OutOfMemory, TimedOut, Verdict, from_json, to_json
from crucible.roofline import Floor
from crucible.run import Ground, Run, candidate_json, ground_from_json
from crucible.task import Task

Say = Callable[[str], None]
HEADER_PAYS_FROM = 3
"""Builds for which precompiling `torch/extension.h` pays: 48 s once, 16 s of a core saved each. Where there are
more cores than builds it is nvcc that takes the time, beside which `main.cpp` compiles for nothing (H200, 16 cores:
34 s with and without)."""
_NOT_KEPT = (TimedOut, OutOfMemory, Crashed)
"""Outcomes that depend on what else the machine was doing, so they are found anew each time."""


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
    seed: int = 0,
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
        seed: of weights, inputs and cotangents.
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
    bench = _Bench(loaded, rule, place, pretended, seed, limits or Limits(), fresh, rivals, say, sanitize)
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
    limits: Limits
    fresh: bool
    baselines: tuple[Baseline, ...]
    say: Say
    sanitize: bool = False
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    ground: Ground = field(default_factory=Ground)
    floors_measured: bool = False
    trouble: list[str] = field(default_factory=list)
    cut_short: str = ""

    def judge(self, candidates: list[Candidate]) -> Run:
        self.kept = store.Verdicts(store.home())
        self.run_folder = store.RunFolder(store.home(), self.task.name)
        self.order = [c.name for c in candidates]
        self.sources = {c.name: c.source for c in candidates}
        self._has_cuda = any(c.language == "cuda" for c in candidates)
        self.versions = hardware.versions()
        code = store.code_digest()
        names = [baseline.name for baseline in self.baselines]
        settings = [
            self.task.digest,
            vars(self.contract),
            vars(self.device),
            self._gpu_name,
            self.versions,
            self.seed,
            code,
            names,
        ]
        self.key = store.key_of(*settings)
        keys = {c.name: store.key_of(self.key, c.digest, vars(self.limits), self.sanitize) for c in candidates}
        new = [c for c in candidates if not self._known(c, keys[c.name])]
        if not new:
            self.ground = self._known_ground()
        try:
            for verdict in self._examined(new) if new else ():
                self._keep(verdict, keys[verdict.candidate])
        except KeyboardInterrupt:
            self._cut_short("interrupted", "interrupted")
        except JudgeError as error:
            if not self.verdicts:
                raise
            self._cut_short("failed", f"the judge failed: {error}")
        return self._finish()

    @property
    def _gpu_name(self) -> str:
        return self.gpu.name if self.gpu else ""

    def _cut_short(self, how: str, words: str) -> None:
        self.cut_short = how
        self.trouble.append(f"{words}; {len(self.verdicts)} of {len(self.order)} candidates were judged")

    def _known(self, candidate: Candidate, key: str) -> bool:
        """Answers a candidate from an earlier run of the same content, where there is one."""
        data = None if self.fresh else self.kept.get(key)
        if data is None:
            return False
        try:
            verdict = from_json(data)
        except (KeyError, TypeError):
            return False
        self._add(replace(verdict, candidate=candidate.name, cached=True))
        return True

    def _known_ground(self) -> Ground:
        data = self.kept.get(self.key)
        try:
            return ground_from_json(data) if data else Ground()
        except (KeyError, TypeError):
            return Ground()

    def _examined(self, candidates: list[Candidate]) -> Iterator[Verdict]:
        """Builds a wave side by side while oracle and baselines prepare, then judges one at a time, undisturbed."""
        with tempfile.TemporaryDirectory(prefix="crucible-") as temporary:
            work = Path(temporary)
            setting = self._setting(work, candidates)
            everyone = [Examination(c, setting, work / f"candidate{i}") for i, c in enumerate(candidates)]
            pace = GPU_PACE if self.device.kind == "cuda" else CPU_PACE
            self.field = Field(self.device.kind, pace.within(self.limits.race_s), self.say)
            races = any(is_timed_here(candidate, self.device) for candidate in candidates)
            rivals = Rivals(self.baselines if races else (), setting, work, self.field)
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
        self.contents = secret_contents(self.task.training)
        return Setting(
            self.task,
            self.contract,
            self.device,
            self.seed,
            self.limits,
            work / "inputs",
            self.contents,
            self._header(candidates),
            self.gpu or known_gpu(DEFAULT),
            self._emulator(candidates),
            self.sanitize,
        )

    def _unconfined(self) -> tuple[Finding, ...]:
        """A verdict reached without the sandbox says so."""
        if sandbox.landlock_abi():
            return ()
        claim = "candidates ran without the sandbox: they could read and write what this user can"
        return (Finding(claim, "this kernel has no Landlock (Linux 5.13 and later)"),)

    def _prepare(self, oracle: OracleProcess, rivals: Rivals, pool: ThreadPoolExecutor) -> dict[str, Any]:
        """The reference's answers; the baselines come up meanwhile, and compile once there are inputs."""
        started = pool.submit(rivals.build)
        request = {
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
        warm: list[Future[None]] = []

        def warm_up() -> None:
            started.result()
            rivals.warm(self.say)

        def written() -> None:
            warm.append(pool.submit(warm_up))

        description = oracle.prepare(request, self.say, written, self.limits.oracle_s)
        for work in warm:
            work.result()
        self.ground = self._known_ground()
        if not (self.ground.baselines or self.ground.floors):  # an earlier run of the same task may have some
            self.ground = Ground(tuple(from_json(finding) for finding in description["findings"]))
            self._guarded(lambda: self.kept.put(self.key, to_json(self.ground)))
        return description

    def _settle(self, oracle: OracleProcess, rivals: Rivals, description: dict[str, Any]) -> None:
        """What holds for all candidates; kept, so that a run answered from the store has it too."""
        found = tuple(from_json(finding) for finding in description["findings"])
        baselines = tuple(rivals.enter(oracle, description, self.say))
        self.ground = Ground(found, baselines, self.ground.floors)
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
        self.ground = replace(self.ground, findings=(*self.ground.findings, *doubts), floors=known)
        self._guarded(lambda: self.kept.put(self.key, to_json(self.ground)))

    def _emulator(self, candidates: list[Candidate]) -> Path | None:
        """What the emulator compiles candidates against, made once; None where nothing will run on it."""
        if not any(runs_on_emulator(candidate, self.device) for candidate in candidates):
            return None
        self.say("preparing the emulator (once for all later runs: half a minute)")
        try:
            return toolchain.prepare(whole=True).folder
        except toolchain.BuildError as error:
            self.say(f"no emulator: {(str(error).strip().splitlines() or ['?'])[-1]}")
            return None

    def _header(self, candidates: list[Candidate]) -> Path | None:
        """The precompiled `torch/extension.h`, made where enough builds will use it."""
        builds = sum(
            c.language in ("cpp", "cuda") and known_without_running(c, self.device) is None for c in candidates
        )
        if self.device.kind == "cpu":
            builds = sum(c.language == "cpp" for c in candidates)
        folder = store.home() / "headers" / store.key_of(self.versions)[:16]
        if folder.is_dir() or builds < max(HEADER_PAYS_FROM, hardware.cores()):
            return folder if folder.is_dir() else None
        self.say("precompiling torch/extension.h, once for all later runs")
        code = f"import sys; sys.path.insert(0, {str(SOURCE)!r}); from pathlib import Path; "
        code += "from crucible.judge.building import precompile_header; precompile_header(Path(sys.argv[1]))"
        done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=False)
        if done.returncode:
            self.say(f"no precompiled header: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
        return folder if folder.is_dir() else None

    def _keep(self, verdict: Verdict, key: str) -> None:
        """A new verdict: to the run's folder, and to the store unless chance had a part in it."""
        if verdict.evaluation:
            verdict = replace(verdict, findings=(*verdict.findings, *self.ground.questions(verdict.timing)))
        self._add(verdict)
        if not isinstance(verdict.outcome, _NOT_KEPT):
            self._guarded(lambda: self.kept.put(key, to_json(verdict)))

    def _add(self, verdict: Verdict) -> None:
        self.verdicts[verdict.candidate] = verdict
        self.say(f"{verdict.candidate}: {verdict.outcome.words}")
        number = self.order.index(verdict.candidate)
        self._guarded(lambda: self.run_folder.add(number, verdict.candidate, candidate_json(0, verdict)))

    def _guarded(self, write: Callable[[], None]) -> bool:
        """Whether a record was written; a full disk loses no verdict, it is reported beside them."""
        try:
            write()
        except StoreError as error:
            if str(error) not in self.trouble:
                self.trouble.append(str(error))
            return False
        return True

    def _finish(self) -> Run:
        run = Run(
            self.task,
            self.contract,
            self.device,
            self.versions,
            self.seed,
            tuple(self.verdicts[name] for name in self.order if name in self.verdicts),
            replace(self.ground, findings=(*self.ground.findings, *self._unconfined())),
            self._gpu_name if self._has_cuda else "",
            trouble="; ".join(self.trouble),
            cut_short=self.cut_short,
            sources=self.sources,
        )
        run = replace(run, explanations=findings(run))
        kept = self._guarded(lambda: self.run_folder.finish(run.to_json()))
        return replace(run, folder=str(self.run_folder.path) if kept else "", trouble="; ".join(self.trouble))


def _waves(items: list[Examination], size: int) -> list[list[Examination]]:
    return [items[i : i + size] for i in range(0, len(items), size)]


@contextlib.contextmanager
def _closed_on_error(started: Sequence[Examination | Rivals]) -> Iterator[None]:
    """Kills processes when anything goes wrong, so that no build thread waits for them."""
    try:
        yield
    except BaseException:
        for examination in started:
            examination.close()
        raise
