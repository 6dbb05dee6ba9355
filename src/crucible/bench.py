"""The bench: one run while it is under way, from what is kept of it to its last verdict."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from crucible import hardware, seeds, store
from crucible.candidate import Candidate
from crucible.contract import Contract
from crucible.errors import JudgeError, MisuseError, ProcessLostError, own_error
from crucible.explain.findings import findings
from crucible.gpus import DEFAULT, Gpu, known_gpu
from crucible.hardware import Device
from crucible.judge.attempts import Attempts
from crucible.judge.beforehand import is_timed_here, known_without_running
from crucible.judge.examine import Examination, Setting
from crucible.judge.prepared import prepared_emulator, prepared_headers
from crucible.judge.process import sandbox
from crucible.judge.process.folders import temporary
from crucible.judge.process.limits import Limits
from crucible.judge.process.oracle_process import OracleProcess
from crucible.judge.timing.baseline_runs import BaselineRuns
from crucible.judge.timing.baselines import ANCHOR, Baseline
from crucible.judge.timing.contents import secret_contents
from crucible.judge.timing.contestants import Contestants
from crucible.judge.timing.kept import KeptBaselines, told
from crucible.judge.timing.race import CPU_PACE, GPU_PACE
from crucible.judge.verdict.clipped import clipped
from crucible.judge.verdict.evidence import Finding, Measured
from crucible.judge.verdict.verdict import Verdict, from_json
from crucible.listening import Listener
from crucible.records import Records
from crucible.request import Request
from crucible.roofline import Floor
from crucible.run import WITHOUT_BASELINES, Ground, Run
from crucible.task import Task
from crucible.underway import Step

Say = Callable[[str], None]
Prepared = tuple[OracleProcess, dict[str, Any]]


@dataclass
class Bench:
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
        """What is known of a candidate before it runs waits for no reference's answers, and needs none."""
        known = {candidate.name: known_without_running(candidate, self.device) for candidate in candidates}
        for name, outcome in known.items():
            if outcome is not None:
                yield Verdict(name, clipped(outcome))
        rest = [candidate for candidate in candidates if known[candidate.name] is None]
        yield from self._ran(rest) if rest else ()

    def _ran(self, candidates: list[Candidate]) -> Iterator[Verdict]:
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
            return self._oracle(work, self._asked(), said, once)

        def elsewhere(folder: Path, **other: Any) -> Prepared:
            (folder / "inputs").mkdir(parents=True)
            return self._oracle(folder, {**self._asked(), **other})

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
        return Attempts(kind, work, self.limits, renew, elsewhere, self.field, self._go_on, oracle, description)

    def _oracle(
        self,
        folder: Path,
        asked: dict[str, Any],
        said: Say = lambda text: None,
        once: Callable[[], None] = lambda: None,
    ) -> Prepared:
        """A fresh one that has its answers."""
        oracle = OracleProcess(folder, self.limits)
        self._oracles.append(oracle)
        return oracle, oracle.prepare(asked, said, once, self.limits.oracle_s)

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
