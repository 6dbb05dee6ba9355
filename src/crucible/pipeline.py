"""The whole story on one screen: a task and candidates in, a run out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from crucible import hardware, seeds, store
from crucible.candidate import Candidate, find_candidates, match_candidates
from crucible.contract import Contract, find_contract
from crucible.errors import DeviceError, JudgeError, MisuseError, ProcessLostError, RecordError, TaskError
from crucible.explain.findings import findings
from crucible.gpus import DEFAULT, Gpu, known_gpu
from crucible.hardware import Device
from crucible.judge.attempts import Attempts, is_own_failure
from crucible.judge.diagnosis.sanitizer import demand
from crucible.judge.examine import Examination, Setting, is_timed_here, runs_on_emulator
from crucible.judge.prepared import prepared_emulator, prepared_headers
from crucible.judge.process import sandbox
from crucible.judge.process.folders import temporary
from crucible.judge.process.limits import Limits
from crucible.judge.process.oracle_process import OracleProcess
from crucible.judge.timing.baseline_runs import BaselineRuns
from crucible.judge.timing.baselines import ANCHOR, Baseline, choose_baselines
from crucible.judge.timing.contents import secret_contents
from crucible.judge.timing.contestants import Contestants
from crucible.judge.timing.kept import KeptBaselines, told
from crucible.judge.timing.race import CPU_PACE, GPU_PACE
from crucible.judge.verdict.evidence import Finding, Measured
from crucible.judge.verdict.verdict import Verdict, from_json
from crucible.legible import are, counted
from crucible.listening import Listener
from crucible.records import Records
from crucible.request import Request, request_from_json
from crucible.roofline import Floor
from crucible.run import WITHOUT_BASELINES, Ground, Run, verdict_from_json
from crucible.task import Task
from crucible.underway import Step

Say = Callable[[str], None]
Prepared = tuple[OracleProcess, dict[str, Any]]


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
    bench = _Bench(loaded, rule, place, pretended, drawn, seed is None, *how)
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
    bench = _Bench(asked.task, asked.contract, asked.device, *options, folder=folder)
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
    strict: bool = False
    fresh_baselines: bool = False
    root: Path | None = None
    _oracles: list[OracleProcess] = field(default_factory=list)
    """All that were started."""
    floors_measured: bool = False
    listener: Listener = field(default_factory=Listener)
    folder: store.RunFolder | None = None
    """Of a run that is gone on with."""

    def judge(self, candidates: list[Candidate], done: Sequence[Verdict] = ()) -> Run:
        """The run; `done` are verdicts that stand in its folder. Raises TaskError, and JudgeError with the run in it
        where there is no verdict at all."""
        self.versions = hardware.versions()
        key = self._key()
        folder = self.folder or store.RunFolder.new(self.root or store.home(), self.task.name)
        request = None if self.folder else self._request(candidates).to_json()
        self.records = Records(folder, [c.name for c in candidates], key, self.say, request)
        by_name = {c.name: c for c in candidates}
        self.records.told = lambda verdict: self.listener.reached(self._run([by_name[verdict.candidate]], (verdict,)))
        for verdict in done:
            self.records.take_over(verdict)
        keys = {c.name: store.key_of(key, c.digest, vars(self.limits), self.sanitize, self.strict) for c in candidates}
        missing = [c for c in candidates if c.name not in self.records.verdicts]
        self.records.recall_ground()
        new = [c for c in missing if self.fresh or not self.records.recall(c.name, keys[c.name])]
        failure: JudgeError | None = None
        try:
            for verdict in self._examined(new) if new else ():
                if not self.listener.calls_off(verdict.candidate):
                    self.records.keep(replace(verdict, seed=self.seed), keys[verdict.candidate])
        except KeyboardInterrupt:
            self.records.cut("interrupted", "interrupted")
        except MisuseError:
            if not self.records.verdicts:
                self.records.abandon()
            raise
        except Exception as error:  # noqa: BLE001 - no verdict is lost by what is wrong in the judge's own code
            failure = error if isinstance(error, JudgeError) else own_error(error)
            self.records.cut("failed", f"the judge failed: {failure}")
        run = self._finish(candidates)
        if failure is not None and not run.verdicts:
            failure.run = run
            raise failure
        return run

    def _request(self, candidates: list[Candidate]) -> Request:
        seed = (self.seed, self.seed_is_secret)
        options = (self.gpu, *seed, self.limits, self.baselines, self.sanitize, self.strict, candidates)
        return Request(self.task, self.contract, self.device, self.versions, store.code_digest(), *options)

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
        with temporary("crucible-") as work:
            setting = self._setting(work, candidates)
            everyone = [Examination(c, setting, work / f"candidate{i}") for i, c in enumerate(candidates)]
            self.listener.began(work, {examination.candidate.name: examination.folder for examination in everyone})
            pace = GPU_PACE if self.device.kind == "cuda" else CPU_PACE
            self.field = Contestants(self.device.kind, pace.within(self.limits.race_s), self._go_on)
            races = any(is_timed_here(candidate, self.device) for candidate in candidates)
            rivals = BaselineRuns(self._to_run() if races else (), setting, work, self.field)
            attempts: Attempts | None = None
            try:
                for wave in _waves(everyone, hardware.cores()):
                    with ThreadPoolExecutor(len(wave) + 2) as pool, _closed_on_error([*wave, rivals]):
                        self.say(f"building {', '.join(e.candidate.name for e in wave)}")
                        builds = [
                            pool.submit(examination.build) for examination in wave if self._is_wanted(examination)
                        ]
                        if attempts is None:
                            attempts = self._prepare(work, rivals, pool)
                        for build in builds:
                            build.result()
                    if races and wave[0] is everyone[0]:
                        self._settle(attempts, rivals)
                    for examination in filter(self._is_wanted, wave):
                        done, total = len(self.records.verdicts), self.records.total
                        self._go_on(Step(f"judging {examination.candidate.name}", done, total))
                        verdict = attempts.judge(examination)
                        if isinstance(verdict.timing, Measured):
                            self._measure_floors(attempts)
                        yield verdict
                        if self.field.lost:
                            self._revive(attempts, rivals)
            finally:
                for examination in everyone:
                    examination.close()
                rivals.close()
                for oracle in self._oracles:
                    oracle.kill()

    def _go_on(self, text: str) -> None:
        """A line of progress. Raises KeyboardInterrupt where nothing of the run is wanted any more."""
        if self.listener.is_over():
            raise KeyboardInterrupt
        self.say(text)

    def _is_wanted(self, examination: Examination) -> bool:
        """Whether somebody waits for its verdict; what is left of it is ended where nobody does."""
        called_off = self.listener.calls_off(examination.candidate.name)
        if called_off:
            examination.close()
        return not called_off

    def _to_run(self) -> tuple[Baseline, ...]:
        """The baselines that no earlier run has measured, and the anchor."""
        machine = (vars(self.device), self.versions, store.code_digest())
        self.kept_baselines = KeptBaselines(self.task.digest, vars(self.contract), self.limits.race_s, *machine)
        found = {} if self.fresh_baselines else self.kept_baselines.recall(self.baselines)
        self.field.kept = tuple(found.values())
        return tuple(baseline for baseline in self.baselines if baseline.name not in found)

    def _setting(self, work: Path, candidates: list[Candidate]) -> Setting:
        (work / "inputs").mkdir()
        self.contents = secret_contents(self.task.training, self.seed)
        return Setting(
            self.task,
            self.contract,
            self.device,
            seeds.construction(self.seed, self.contract.seed),
            self.limits,
            work / "inputs",
            self.contents,
            prepared_headers(candidates, self.device, self.versions, self.say),
            self.gpu or known_gpu(DEFAULT),
            prepared_emulator(candidates, self.device, self.say),
            self.strict,
            self.sanitize,
        )

    def _unconfined(self) -> tuple[Finding, ...]:
        """A verdict reached without the sandbox says so."""
        held_by = sandbox.layers()
        if not held_by.missing:
            return ()
        if not held_by.landlock:
            claim = "candidates ran without the sandbox: they could read and write what this user can"
        else:
            claim = "candidates ran without half of the sandbox: they could connect, and change modes of files"
        return (Finding(claim, held_by.missing),)

    def _prepare(self, work: Path, rivals: BaselineRuns, pool: ThreadPoolExecutor) -> Attempts:
        """The reference's answers; the baselines come up meanwhile, and compile once there are inputs."""
        started = pool.submit(rivals.build)
        warm: list[Future[None]] = []

        def warm_up() -> None:
            started.result()
            rivals.warm(self._oracles[-1], self._go_on)

        def written() -> None:
            warm.append(pool.submit(warm_up))

        def renew(said: Say = lambda text: None, once: Callable[[], None] = lambda: None) -> Prepared:
            oracle = OracleProcess(work, self.limits)
            self._oracles.append(oracle)
            return oracle, oracle.prepare(self._asked(), said, once, self.limits.oracle_s)

        try:
            oracle, description = renew(self._go_on, written)
        except ProcessLostError as error:
            self._go_on(f"{error}; once more")
            oracle, description = renew(self._go_on, lambda: None if warm else written())
        for compiled in warm:
            compiled.result()
        self.records.recall_ground()
        if not (self.records.ground.baselines or self.records.ground.floors):  # an earlier run may have some
            self.records.keep_ground(Ground(tuple(from_json(finding) for finding in description["findings"])))
        kind = self.device.kind
        return Attempts(kind, work, self.limits, renew, self.field, self._go_on, oracle, description)

    def _asked(self) -> dict[str, Any]:
        """What the oracle is told of the task."""
        return {
            "source": self.task.source,
            "path": str(self.task.path),
            "sizes": self.task.sizes,
            "first": self.task.first,
            "smaller": self.task.how_to_make_it_smaller,
            "smaller_weights": self.task.smaller_weights,
            "further": self.task.further,
            "beyond": self.task.beyond,
            "asked": bool(self.task.asked),
            "mode": self.task.mode,
            "training": self.task.training,
            "contract": self.contract.name,
            "tolerance": self.task.tolerance,
            "device": self.device.kind,
            "seed": self.seed,
            "secrets": [contents.secrets for contents in self.contents],
        }

    def _settle(self, attempts: Attempts, rivals: BaselineRuns) -> None:
        """What holds for all candidates; kept, so that a run answered from the store has it too."""
        found = tuple(from_json(finding) for finding in attempts.description["findings"])
        baselines: tuple[Verdict, ...] = ()
        try:
            measured = {v.candidate: v for v in rivals.enter(attempts.oracle, attempts.description, self._go_on)}
            if trouble := self.kept_baselines.keep(measured.values()):
                self.records.note(trouble)
            kept = {one.verdict.candidate: one.verdict for one in self.field.kept}
            baselines = tuple({**kept, **measured}[baseline.name] for baseline in self.baselines)
            found += told(self.field.kept, measured.get(ANCHOR))
        except Exception as error:  # noqa: BLE001 - candidates are judged without them
            found += (Finding(WITHOUT_BASELINES, str(error)),)
            attempts.restore()
        self.records.ground = Ground(found, baselines, self.records.ground.floors)
        if baselines:
            self._measure_floors(attempts)

    def _revive(self, attempts: Attempts, rivals: BaselineRuns) -> None:
        try:
            rivals.revive(attempts.oracle, attempts.description, self._go_on)
        except Exception as error:  # noqa: BLE001 - the next ones are judged without it
            self.say(f"a baseline that was lost stays so: {error}")
            attempts.restore()

    def _measure_floors(self, attempts: Attempts) -> None:
        """Once, and only where there is a time to hold against them: it takes 3 s of a processor."""
        if self.floors_measured:
            return
        self.floors_measured = True
        try:
            floors = from_json(attempts.oracle.floors(self.limits.race_s, self.limits.oracle_s))
        except JudgeError as error:
            floors = (Finding("no floor is known: the judge failed on it", str(error)),)
            attempts.restore()
        known = tuple(floor for floor in floors if isinstance(floor, Floor))
        doubts = tuple(floor for floor in floors if isinstance(floor, Finding))
        ground = self.records.ground
        self.records.keep_ground(replace(ground, findings=(*ground.findings, *doubts), floors=known))

    def _run(self, candidates: Sequence[Candidate], verdicts: tuple[Verdict, ...]) -> Run:
        """Of what is known so far."""
        ground = self.records.ground
        return Run(
            self.task,
            self.contract,
            self.device,
            self.versions,
            self.seed,
            verdicts,
            replace(ground, findings=(*ground.findings, *self._unconfined())),
            self._gpu_name if any(c.language == "cuda" for c in candidates) else "",
            sources={c.name: c.source for c in candidates},
            files={c.name: c.path for c in candidates},
        )

    def _finish(self, candidates: list[Candidate]) -> Run:
        run = self._run(candidates, self.records.in_order())
        run = replace(run, trouble=self.records.trouble, cut_short=self.records.cut_short)
        return self.records.finish(replace(run, explanations=self._explained(run)))

    def _explained(self, run: Run) -> Mapping[str, tuple[Finding, ...]]:
        """Why each candidate is wrong or slow; without that, a run is a run all the same."""
        try:
            return findings(run)
        except Exception as error:  # noqa: BLE001 - no verdict hangs on it
            self.records.note(f"no explanations: {own_error(error)}")
            return {}


def own_error(error: Exception) -> JudgeError:
    """What went wrong in the judge's own code, with where, as the failure that it is."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" ({Path(trace.tb_frame.f_code.co_filename).name}, line {trace.tb_lineno})" if trace else ""
    failure = JudgeError(f"{type(error).__name__}: {str(error)[:500]}{where}")
    failure.__cause__ = error
    return failure


def finished_verdicts(entries: Sequence[Any]) -> list[Verdict]:
    """Those of a run's folder that stand; what is of another version, or what the judge failed on, is judged again."""
    found = []
    for entry in entries:
        with contextlib.suppress(RecordError):
            verdict = verdict_from_json(entry)
            found += [] if is_own_failure(verdict) else [verdict]
    return found


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
