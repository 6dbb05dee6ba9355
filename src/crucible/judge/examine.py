"""examine: one candidate from its file to its verdict."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from crucible import shapes
from crucible.candidate import Candidate
from crucible.contract import Contract
from crucible.emulator.faults import Fault
from crucible.emulator.trace import Trace
from crucible.gpus import DEFAULT, MAX_THREADS_PER_BLOCK, Gpu, known_gpu
from crucible.hardware import Device
from crucible.judge.decoys import answers_without_its_kernels
from crucible.judge.diagnosis.asks_who_judges import signs
from crucible.judge.diagnosis.own_sizes import at_own_sizes
from crucible.judge.diagnosis.sanitizer import TOOLS, sanitized
from crucible.judge.diagnosis.shrinking import smallest_failing
from crucible.judge.diagnosis.specialised import hard_coded, held
from crucible.judge.process.candidate_process import CandidateProcess, Ended
from crucible.judge.process.limits import Limits
from crucible.judge.process.oracle_process import OracleProcess
from crucible.judge.process.replies import MOST_TRACED, faults_of
from crucible.judge.stressing import Stood, StressVerifier, stood
from crucible.judge.timing.contents import Contents, TimedSlot
from crucible.judge.timing.contestants import Contestants
from crucible.judge.timing.measure import Readings, measure
from crucible.judge.timing.modelling import Growth, model
from crucible.judge.verdict.clipped import clipped
from crucible.judge.verdict.compiler_messages import first_error, line_in
from crucible.judge.verdict.drawn import or_drawn
from crucible.judge.verdict.evidence import Finding, NotMeasured, Resources
from crucible.judge.verdict.modelled import NOT_MODELLED, Modelled, NotModelled
from crucible.judge.verdict.sanitizer_reports import NOT_SANITIZED, NotSanitized, Sanitized
from crucible.judge.verdict.stop import Stop, stop_if_raised
from crucible.judge.verdict.verdict import (
    Cheated,
    Crashed,
    DoesNotBuild,
    DoesNotImport,
    Faulty,
    IllegalAccess,
    Incomplete,
    LaunchError,
    NotJudged,
    Outcome,
    Passed,
    Raises,
    Verdict,
    Wrong,
)
from crucible.judge.verdict.whose import NOT_TOLD, Whose, little_of_its_own, told_by_emulator, told_by_profiler
from crucible.judge.verify import Verifier
from crucible.occupancy import occupancy
from crucible.task import Task

_OF_SIZES = (Crashed, Faulty, IllegalAccess, Incomplete, LaunchError, Raises, Wrong)
"""What sizes can be the cause of."""
_FALLBACK = "fallback: "
"""What such a finding's claim begins with."""
MOST_KERNELS = 64
"""Of one candidate, whose resources are kept."""
LONGEST_NAME = 1000
_USUAL_GPU = known_gpu(DEFAULT)


@dataclass(frozen=True)
class Setting:
    """What all candidates of a run share."""

    task: Task
    contract: Contract
    device: Device
    construction_seed: int
    """Of the weights: all that candidates see of the run's seed, which it does not tell."""
    limits: Limits
    inputs: Path
    """Where the oracle writes what candidates are handed."""
    contents: tuple[Contents, ...] = ()
    """What is timed, on what."""
    headers: tuple[Path, ...] = ()
    """Folders of precompiled headers."""
    gpu: Gpu = _USUAL_GPU
    """What the emulator answers as, and nvcc compiles for."""
    emulator: Path | None = None
    """What the emulator prepared for its candidates; None where CUDA C++ runs on a GPU or not at all."""
    strict: bool = False
    """Whether what passes must be right beyond the task's own inputs too."""
    sanitize: bool = False
    """Whether those for a GPU run under compute-sanitizer too, after their verdicts."""


@dataclass
class Examination:
    """A candidate on its way: its process while it lives, its outcome once that is known."""

    candidate: Candidate
    setting: Setting
    folder: Path
    process: CandidateProcess | None = None
    outcome: Outcome | None = None
    findings: list[Finding] = field(default_factory=list)
    resources: tuple[Resources, ...] = ()
    faults: tuple[Fault, ...] = ()
    """Kernels that never ran, barriers that nobody came to."""
    launched: tuple[str, ...] = ()
    """Its kernels that ran on the emulator."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Of its process."""
    case: dict[str, Any] = field(default_factory=dict)
    """The one that it ran last."""
    build_s: float = 0.0
    busy_s: float = 0.0
    failure: Exception | None = None
    """The judge's own, while it was built; `judge` raises it."""
    patience: float = 1.0
    """The share of a run's limit that it may take."""
    right_at: shapes.Sizes = field(default_factory=dict)
    """The task's own sizes for which it is written, and at which it was right once, where it fails at others."""

    def build(self) -> None:
        """Reads, imports and builds; may run beside other candidates' builds."""
        start = time.monotonic()
        try:
            self._import()
        except (Ended, Stop) as end:
            self.outcome = _as_import(end.outcome)
        except Exception as error:  # noqa: BLE001 - the others' builds go on
            self.failure = error
        self.build_s = time.monotonic() - start
        self.busy_s = self.build_s

    def judge(self, oracle: OracleProcess, description: dict[str, Any], rivals: Contestants) -> Verdict:
        """Constructs, verifies, times; ends the process. Raises what goes wrong in the judge's own code."""
        start, waited = time.monotonic(), _waits_s(oracle, rivals)
        verdict = Verdict(self.candidate.name, NotJudged("not reached"))
        if self.failure is not None:
            raise self.failure
        try:
            if self.outcome is None:
                verdict = self._judged(oracle, description, rivals)
            else:
                verdict = replace(verdict, outcome=self.outcome)
        finally:
            ended = time.monotonic()
            self.close()
            ended_s = time.monotonic() - ended
        outcome = or_drawn(verdict.outcome, draws=description["draws"])
        if isinstance(outcome, DoesNotBuild):
            outcome = replace(outcome, line=line_in(self.candidate.source, outcome.message))
        findings = (*self.findings, *verdict.findings)
        if isinstance(outcome, Passed):
            outcome = Passed(next((f.claim.removeprefix(_FALLBACK) for f in findings if _FALLBACK in f.claim), ""))
        return replace(
            verdict,
            outcome=clipped(outcome),
            costs=clipped(verdict.costs),
            resources=self.resources,
            faults=(*verdict.faults, *self.faults),
            sanitizer=self._sanitized(outcome),
            findings=clipped(findings),
            build_s=self.build_s,
            total_s=self.busy_s + time.monotonic() - start,
            stages_s=tuple(self.process.stages_s.items()) if self.process else (),
            waits_s=(
                *(
                    (what, seconds - waited.get(what, 0.0))
                    for what, seconds in _waits_s(oracle, rivals).items()
                    if seconds > waited.get(what, 0.0)
                ),
                ("the end of its process", ended_s),
            ),
            log=self.process.log if self.process else "",
        )

    def construct(self) -> CandidateProcess:
        """`ModelNew(*init_inputs)` in its process, which is returned. Raises Ended or Stop."""
        if self.outcome is not None or self.process is None:
            raise Stop(self.outcome or NotJudged(str(self.failure or "it was never started"), failed=True))
        request = {"do": "construct", "seed": self.setting.construction_seed}
        try:
            reply = self.process.ask(request, "construction", self.setting.limits.build_s)
            stop_if_raised(reply, "construction")
        except (Ended, Stop) as end:
            raise Stop(_as_import(end.outcome)) from end
        return self.process

    @property
    def emulated(self) -> bool:
        """Whether its kernels run on the emulator: judged like any other, never timed."""
        return self.setting.emulator is not None and self.candidate.acts_on_gpu

    def afresh(self, inputs: Path | None = None) -> Examination:
        """The same candidate as if it had never been tried, in a folder of its own; on what lies in `inputs`, if that
        is not where it was."""
        setting = replace(self.setting, inputs=inputs) if inputs else self.setting
        folder = Path(tempfile.mkdtemp(prefix=f"{self.folder.name}-again", dir=self.folder.parent)) / "candidate"
        return Examination(self.candidate, setting, folder)

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()

    def _import(self) -> None:
        setting = self.setting
        self.folder.mkdir(parents=True)
        file = self.folder / "candidate.py"
        file.write_text(self.candidate.source, encoding="utf-8", errors="backslashreplace")
        emulator = setting.emulator if self.emulated else None
        compile_only = setting.device.kind == "cpu" and self.candidate.language == "cuda" and not emulator
        self.settings = {
            "file": str(file),
            "inputs": str(setting.inputs),
            "device": setting.device.kind,
            "allow_tf32": convolution_and_product_flags(setting.contract),
            "mode": setting.task.mode,
            "bfloat16": setting.contract.bfloat16_tensors,
            "copies_weights": not setting.contract.allclose,
            "compile_only": compile_only,
            "header": os.pathsep.join(map(str, setting.headers)),
            "emulator": str(emulator) if emulator else "",
            # Small against the limit: a loop without end is named before the judge ends the process, however busy
            # the machine.
            "triton_program_s": setting.limits.run_s / 12 if self.candidate.language == "triton" else 0.0,
            "gpu": setting.gpu.short_name,
        }
        readable = [str(folder) for folder in (*setting.headers, emulator) if folder]
        self.process = CandidateProcess(self.settings, self.folder, readable, setting.limits)
        reply = self.process.ask({"do": "import"}, "import or build", setting.limits.build_s)
        if reply.get("compiled_only"):
            raise Stop(
                NotJudged(f"CUDA C++ that compiles for {setting.gpu.architecture}; there is no GPU here to run it")
            )
        stop_if_raised(reply, "import")
        if compile_only:
            raise Stop(NotJudged("CUDA C++ that is built only when it runs; there is no GPU here"))
        self._audit()

    def _judged(self, oracle: OracleProcess, description: dict[str, Any], rivals: Contestants) -> Verdict:
        name, training = self.candidate.name, self.setting.task.training
        try:
            process = self.construct()
        except Stop as stop:
            return Verdict(name, stop.outcome)
        limits = replace(self.setting.limits, run_s=self.patience * self.setting.limits.run_s)
        verifier = Verifier(process, oracle, description, training=training, emulated=self.emulated, limits=limits)
        outcome = self._unless_specialised(verifier.verify(), verifier)
        readings = Readings(NotMeasured(f"only what passes is timed; it {outcome.kind}"))
        if self.emulated and isinstance(outcome, Passed):
            readings = Readings(NotMeasured("the emulator shows what a kernel does, not how long a GPU takes"))
        elif isinstance(outcome, Passed):
            try:
                contents = [c.known(description).within(verifier.judged) for c in self.setting.contents]
                slot = TimedSlot(oracle, self.setting.device.kind, self.setting.limits.oracle_s)
                measure(name, process, verifier, rivals, readings, contents, slot)
            except (Ended, Stop) as end:
                outcome = end.outcome
        try:
            self._audit(after_running=True)
        except (Stop, Ended) as end:  # what a ruined process can no longer say is no verdict in place of the one it has
            outcome = end.outcome if isinstance(outcome, Passed) or isinstance(end.outcome, Cheated) else outcome
        outcome, accesses, modelled = self._traced(verifier, outcome)
        if isinstance(accesses, Trace) and not accesses.launches and "__global__" in self.candidate.source:
            claim = f"{_FALLBACK}none of its kernels ran in a forward"
            self.findings.append(Finding(claim, "0 launches were seen of what its source calls __global__"))
        beyond = self._stood(verifier, outcome)
        smallest = smallest_failing(outcome, verifier, self.setting.task, self.candidate.source)
        if isinstance(accesses, Trace) and accesses.launches and isinstance(beyond.outcome, Passed):
            self._look_for_decoys(verifier)
        if verifier.case:
            self.case = {**verifier.request(verifier.case), "inputs": description["inputs"]}
        found = verifier.found
        verdict = Verdict(
            name,
            beyond.outcome,
            found.forward_check,
            found.backward_check,
            accesses=accesses,
            modelled=modelled,
            faults=tuple(verifier.faults.values()),
            variant=found.variant,
            smallest_failing=smallest,
            stress=beyond.stress,
            findings=(*found.findings, *beyond.findings),
        )
        verdict = readings.fill(verdict)
        whose = self._whose(verdict, found.operations)
        doubts = little_of_its_own(whose) if self.candidate.language != "pytorch" else []
        if verdict.evaluation and (asked := signs(self.candidate.source)):
            doubts.append(Finding("its text asks who runs it: elsewhere it may do something else", "; ".join(asked)))
        return replace(verdict, whose=whose, findings=(*verdict.findings, *doubts))

    def _look_for_decoys(self, verifier: Verifier) -> None:
        """Last of all: the process need not outlive it."""
        if answers_without_its_kernels(verifier):
            claim = f"{_FALLBACK}its answer is right without its kernels"
            evidence = f"{', '.join(self.launched)}: launched for show, since others compute the answer"
            self.findings.append(Finding(claim, evidence))

    def _whose(self, verdict: Verdict, operations: tuple[str, ...]) -> Whose | NotMeasured:
        """Whose kernels ran, of what passed."""
        if not verdict.evaluation:
            return NOT_TOLD
        if self.emulated:
            return told_by_emulator(self.launched, operations, verdict.modelled)
        return told_by_profiler(verdict.costs, self.candidate.source)

    def _stood(self, passed: Verifier, outcome: Outcome) -> Stood:
        """What passed beyond the task's own inputs: last, since a GPU's context may not outlive it. Of a process that
        its trace ended, in a fresh one: a slow trace neither convicts nor leads around these rules."""
        if not isinstance(outcome, Passed) or not self.setting.limits.stress_s:
            return Stood((), outcome, ())
        if not passed.process.is_over:
            return self._beyond(passed.process, passed, outcome)
        again = self.afresh()
        try:
            again.build()
            return self._beyond(again.construct(), passed, outcome)
        except Stop as stop:
            return Stood((), stop.outcome, ())
        finally:
            again.close()

    def _beyond(self, process: CandidateProcess, passed: Verifier, outcome: Outcome) -> Stood:
        verifier = StressVerifier(
            process,
            passed.oracle,
            passed.description,
            training=self.setting.task.training,
            emulated=self.emulated,
            maps=False,
        )
        verifier.specialised = hard_coded(self.candidate.source, shapes.own_numbers(self.setting.task.source))
        verifier.no_gradients = passed.found.without_gradients
        verifier.way, verifier.left_before = passed.way, passed.left_before
        return stood(verifier, outcome, strict=self.setting.strict)

    def _sanitized(self, outcome: Outcome) -> Sanitized | NotSanitized:
        """On the case that it failed, or the last; the verdict stands by then."""
        if not self.setting.sanitize:
            return NOT_SANITIZED
        if not (self.candidate.is_for_gpu and self.case) or isinstance(outcome, Cheated):
            return NotSanitized("only candidates with kernels of their own that ran, and did not cheat, are")
        settings = {**self.settings, "seed": self.setting.construction_seed}
        folder = self.folder / "sanitizer"
        return sanitized(settings, folder, self.case, self.candidate.source, self.setting.limits, TOOLS)

    def _traced(
        self, verifier: Verifier, outcome: Outcome
    ) -> tuple[Outcome, Trace | NotMeasured, Modelled | NotModelled]:
        """What the kernels of a pass on the emulator ask of memory, and the time that a GPU might take for it; a forged
        answer is no pass."""
        if not (self.emulated and isinstance(outcome, Passed)):
            return outcome, NotMeasured("only what passes on the emulator is traced"), NOT_MODELLED
        try:
            accesses, operators = verifier.trace()
        except Ended as ended:
            return ended.outcome, NotMeasured("not reached"), NOT_MODELLED
        if isinstance(accesses, NotMeasured):
            return outcome, accesses, NotModelled(accesses.reason)
        if self.candidate.language == "triton":
            return outcome, accesses, NotModelled("what Triton's interpreter reads and writes is not counted")
        setting = self.setting
        grown = verifier.oracle.growth(setting.limits.oracle_s)
        growth = Growth(*grown) if grown else None
        covers = "forward+backward" if setting.task.training else "forward"
        found = model(accesses, operators, growth, setting.gpu, setting.contract, covers, MOST_TRACED)
        return outcome, accesses, found

    def _unless_specialised(self, outcome: Outcome, verifier: Verifier) -> Outcome:
        """A failure at other sizes than the task's own, of a candidate written for those alone, is none."""
        sizes = {**verifier.description["sizes"], **verifier.sizes}
        if not isinstance(outcome, _OF_SIZES) or (isinstance(outcome, Wrong) and outcome.what == "not reproducible"):
            return outcome
        task, judged_at = self.setting.task, {**self.setting.task.sizes, **sizes}
        own = shapes.own_numbers(task.source)
        differing = {name: own[name] for name, size in judged_at.items() if own.get(name, size) != size}
        words = hard_coded(self.candidate.source, differing)
        if not words:
            return outcome
        names = {name for _, name in held(self.candidate.source, differing)}
        free = shapes.free_sizes(task.source)
        of_inputs = {name: size for name, size in differing.items() if name in free}
        failed_at = ""
        if names <= set(free):
            failed_at, self.right_at = at_own_sizes(verifier, of_inputs, names & set(free))
        if failed_at:
            claim = "a number in it that is a size of the task is no reason: it fails at that size as well"
            self.findings.append(Finding(claim, f"{words}; it fails at {failed_at} too"))
            return outcome
        at = shapes.words({name: judged_at[name] for name in differing})
        return NotJudged(f"size-specialised: {words}; at other sizes ({at}): {outcome.words}")

    def _audit(self, *, after_running: bool = False) -> None:
        """Asks the tripwires; a replaced function ends the matter, the rest is named."""
        assert self.process is not None
        seen = self.process.ask({"do": "audit"}, "audit", self.setting.limits.run_s)
        stop_if_raised(seen, "audit")
        if seen["replaced"]:
            raise Stop(Cheated("patched function", f"it replaced {', '.join(seen['replaced'])}"))
        findings = [
            Finding(
                f"{_FALLBACK}an extension did not build, and it went on without",
                f"{b['name']}: {first_error(b['error'])}",
            )
            for b in seen["builds"]
            if b["error"]
        ]
        findings += [Finding("it looked into the process that judges it", hunt) for hunt in seen["hunts"]]
        findings += [
            Finding("it changed a global switch", f"{flag}: {change}") for flag, change in seen["flags"].items()
        ]
        if self.emulated and after_running:
            self.launched = tuple(name[:LONGEST_NAME] for name in seen["launched"])
            rows = [row for row in seen["resources"] if is_of_a_kernel(row)]
            self.resources = tuple(resources_of(self.setting.gpu, row) for row in rows[:MOST_KERNELS])
            never_ran, never_reached = (
                faults_of({"faults": seen["never_ran"]}),
                faults_of({"faults": seen["never_reached"]}),
            )
            self.faults = (*never_ran, *never_reached)
            claim = "a kernel never ran on any of the judge's inputs"
            findings += [Finding(claim, fault.words) for fault in never_ran]
            claim = "a barrier was never reached on any of the judge's inputs"
            findings += [Finding(claim, fault.words) for fault in never_reached]
        self.findings += [finding for finding in findings if finding not in self.findings]


def _waits_s(oracle: OracleProcess, rivals: Contestants) -> dict[str, float]:
    """Seconds waited so far for anybody but the candidate."""
    return {**{f"oracle: {asked}": seconds for asked, seconds in oracle.waits_s.items()}, **rivals.waits_s}


def is_of_a_kernel(row: list[Any]) -> bool:
    """Whether what the candidate's process says of a kernel can be: it may say anything."""
    kernel, threads, *sizes = row
    launched = len(kernel) <= LONGEST_NAME and 1 <= threads <= MAX_THREADS_PER_BLOCK
    return launched and all(0 <= size < 1 << 40 for size in sizes)


def resources_of(gpu: Gpu, row: list[Any]) -> Resources:
    """What the candidate's process says that nvcc said, with the occupancy that follows."""
    kernel, threads, registers, loads, stores, stack, static, dynamic = row
    fit = occupancy(gpu, registers=registers, shared_bytes=static + dynamic, threads=threads)
    return Resources(
        *(kernel, threads, registers, loads, stores, stack, static, dynamic),
        *(fit.blocks, fit.warps, fit.share, fit.limited_by),
    )


def convolution_and_product_flags(contract: Contract) -> tuple[bool, bool]:
    """PyTorch's TF32 switches for a candidate's own library calls under a contract."""
    if contract.allclose:
        return True, False  # PyTorch's defaults, as the benchmark leaves them
    return contract.allow_tf32, contract.allow_tf32


def _as_import(outcome: Outcome) -> Outcome:
    """An exception before anything ran means that it does not import."""
    if isinstance(outcome, Raises):
        where = "" if outcome.stage == "import" else f"{outcome.stage}: "
        return DoesNotImport(where + outcome.message, outcome.line)
    return outcome
