"""What can become of a candidate: a closed union, and the verdict with its evidence.

Outcomes are values. The judge's own failure is an exception (`crucible.errors.JudgeError`), never an outcome.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, ClassVar, get_args

from crucible.emulator.faults import Fault
from crucible.emulator.trace import Launch, Line, Trace
from crucible.judge.verdict.error_map import Along, ErrorMap, Fit, Match, Picture, Values
from crucible.judge.verdict.evidence import (
    NO_VARIANT,
    NOT_COMPARED,
    NOT_MEASURED,
    Check,
    Clocks,
    Compared,
    Costs,
    Finding,
    Kernel,
    Measured,
    Moments,
    NotCompared,
    NotMeasured,
    NoVariant,
    Resources,
    Speedup,
    TensorError,
    Timing,
    Variant,
)
from crucible.judge.verdict.modelled import NOT_MODELLED, Modelled, NotModelled, Part
from crucible.judge.verdict.parts import Parts, not_judged, not_right, right
from crucible.judge.verdict.reward import Policy, reward_of
from crucible.judge.verdict.sanitizer_reports import NOT_SANITIZED, NotSanitized, Report, Sanitized, ToolRun
from crucible.judge.verdict.stressed import Stressed
from crucible.judge.verdict.trials import NOT_SHRUNK, NotShrunk, SmallestFailing, Trial
from crucible.judge.verdict.whose import NOT_TOLD, Whose
from crucible.roofline import Floor


@dataclass(frozen=True)
class Passed:
    """Right within the contract."""

    kind: ClassVar[str] = "passed"
    fallback: str = ""
    """Why something else than what it brought may have given the answers; empty where nothing says so."""

    @property
    def words(self) -> str:
        return f"passed, by a fallback: {self.fallback}" if self.fallback else "passed"


@dataclass(frozen=True)
class Wrong:
    """It ran, and what came out is not the reference's answer."""

    kind: ClassVar[str] = "wrong"
    what: str
    """`forward`, `weights` (it keeps a copy of them), `gradient`, `buffers`, `structure`, `shape`, `dtype`, `device`,
    `nan`, `not reproducible`, or `overwritten`: the outputs of one call by the next."""
    detail: str

    @property
    def words(self) -> str:
        return f"wrong {self.what}: {self.detail}"


@dataclass(frozen=True)
class Fragile:
    """Right on the task's own inputs, and not beyond them, where the user asks for that too (`--strict`)."""

    kind: ClassVar[str] = "fragile"
    rules: tuple[str, ...]
    """Those that it does not keep."""
    detail: str

    @property
    def words(self) -> str:
        return f"fragile ({', '.join(self.rules)}): {self.detail}"


@dataclass(frozen=True)
class Incomplete:
    """Some of the output was never written: the judge's poison is still in it."""

    kind: ClassVar[str] = "incomplete"
    detail: str

    @property
    def words(self) -> str:
        return f"incomplete: {self.detail}"


@dataclass(frozen=True)
class Faulty:
    """Its answers were right, and a kernel did what CUDA leaves undefined: on another GPU or day they need not be."""

    kind: ClassVar[str] = "faulty"
    fault: str
    """In the emulator's words."""

    @property
    def words(self) -> str:
        return f"faulty (its answers were right, by luck): {self.fault}"


@dataclass(frozen=True)
class InferenceOnly:
    """The task asks for training, and gradients are missing."""

    kind: ClassVar[str] = "inference-only"
    missing: tuple[str, ...]
    """Inputs and parameters that no gradient reaches."""

    @property
    def words(self) -> str:
        return f"inference only: no gradient for {', '.join(self.missing)}"


@dataclass(frozen=True)
class DoesNotBuild:
    """Its C++ or CUDA source does not compile or link."""

    kind: ClassVar[str] = "does-not-build"
    message: str
    """The compiler's first error."""
    line: int = 0
    """Of the candidate's file, 0 when it cannot be told."""

    @property
    def words(self) -> str:
        return f"does not build: {self.message}"


@dataclass(frozen=True)
class DoesNotImport:
    """The file raises when imported, defines no ModelNew, or ModelNew cannot be constructed."""

    kind: ClassVar[str] = "does-not-import"
    message: str
    line: int = 0
    """Of the candidate's file, 0 when it cannot be told."""

    @property
    def words(self) -> str:
        return f"does not import: {self.message}"


@dataclass(frozen=True)
class Raises:
    """A Python exception while it ran."""

    kind: ClassVar[str] = "raises"
    stage: str
    """`forward` or `backward`."""
    message: str
    line: int = 0
    """Of the candidate's file, 0 when it cannot be told."""

    @property
    def words(self) -> str:
        return f"raises in {self.stage}: {self.message}"


@dataclass(frozen=True)
class LaunchError:
    """A kernel could not be launched as asked; its output is not to be trusted."""

    kind: ClassVar[str] = "launch-error"
    message: str

    @property
    def words(self) -> str:
        return f"launch error: {self.message}"


@dataclass(frozen=True)
class IllegalAccess:
    """A kernel touched memory it may not, and the device context is lost."""

    kind: ClassVar[str] = "illegal-access"
    message: str

    @property
    def words(self) -> str:
        return f"illegal access: {self.message}"


@dataclass(frozen=True)
class OutOfMemory:
    """The candidate needed more memory than the device or its limit gives."""

    kind: ClassVar[str] = "out-of-memory"
    message: str

    @property
    def words(self) -> str:
        return f"out of memory: {self.message}"


@dataclass(frozen=True)
class TimedOut:
    """A stage outlasted its limit and was killed."""

    kind: ClassVar[str] = "timed-out"
    stage: str
    """`import or build`, `construction`, `forward`, `backward` or `timing`."""
    limit_s: float

    @property
    def words(self) -> str:
        return f"timed out: {self.stage} took over {self.limit_s:g} s"


@dataclass(frozen=True)
class Crashed:
    """The process died: a signal, or an exit without the evidence asked for."""

    kind: ClassVar[str] = "crashed"
    stage: str
    how: str

    @property
    def words(self) -> str:
        return f"crashed in {self.stage}: {self.how}"


@dataclass(frozen=True)
class Cheated:
    """It touched what must not be touched."""

    kind: ClassVar[str] = "cheated"
    how: str
    """`early exit`, `forged message`, `patched function`, `mutated input`, `aliased input`, `tensor subclass`
    or `forked`."""
    detail: str

    @property
    def words(self) -> str:
        return f"refused ({self.how}): {self.detail}"


@dataclass(frozen=True)
class NotJudged:
    """This machine cannot run it, or the judge failed on it. Neither right nor wrong."""

    kind: ClassVar[str] = "not-judged"
    reason: str
    failed: bool = False
    """Whether it is the judge that failed, on this candidate alone."""

    @property
    def words(self) -> str:
        return f"not judged: the judge failed: {self.reason}" if self.failed else f"not judged here: {self.reason}"


Outcome = (
    Passed
    | Wrong
    | Fragile
    | Incomplete
    | Faulty
    | InferenceOnly
    | DoesNotBuild
    | DoesNotImport
    | Raises
    | LaunchError
    | IllegalAccess
    | OutOfMemory
    | TimedOut
    | Crashed
    | Cheated
    | NotJudged
)
OUTCOMES: dict[str, type[Outcome]] = {outcome.kind: outcome for outcome in get_args(Outcome)}


NO_FLOOR = NotMeasured("no floor is known: nothing was timed, or the reference's work could not be counted")
_BEFORE_IT_STANDS = {"start", "import or build", "audit", "construction"}
"""Stages of a process until ModelNew is constructed."""


@dataclass(frozen=True)
class Verdict:
    """What the judge says of one candidate."""

    candidate: str
    outcome: Outcome
    forward: Check = NOT_COMPARED
    backward: Check = NOT_COMPARED
    timing: Timing = NOT_MEASURED
    """What the Runtime column says: forward, or forward+backward where the task asks for training."""
    further: tuple[Timing, ...] = ()
    """Forward apart from forward+backward; replays of a CUDA graph."""
    costs: Costs | NotMeasured = NOT_MEASURED
    whose: Whose | NotMeasured = NOT_TOLD
    """Whose kernels ran, and their share of the time."""
    share_of_floor: float | NotMeasured = NO_FLOOR
    """The task's least time on this device by the runtime, 1 at the hardware's limit."""
    accesses: Trace | NotMeasured = NOT_MEASURED
    """What its kernels ask of memory; only of those that passed on the emulator."""
    modelled: Modelled | NotModelled = NOT_MODELLED
    """How long a GPU might take for that; only of those, and never held against what was measured."""
    resources: tuple[Resources, ...] = ()
    """Of the kernels that ran on the emulator, where nvcc could be asked."""
    faults: tuple[Fault, ...] = ()
    """What the emulator saw of its kernels, each once, kernels that never ran among them."""
    variant: Variant | NoVariant = NO_VARIANT
    """What it computes in place of the reference, where that is a variant of it."""
    smallest_failing: SmallestFailing | NotShrunk = NOT_SHRUNK
    stress: tuple[Stressed, ...] = ()
    """What it does beyond the task's own inputs; only of those that passed."""
    sanitizer: Sanitized | NotSanitized = NOT_SANITIZED
    """What compute-sanitizer says of it."""
    findings: tuple[Finding, ...] = ()
    build_s: float = 0.0
    """Seconds from the start of its process until ModelNew could be constructed."""
    total_s: float = 0.0
    """Seconds spent on this candidate, waiting for others excluded."""
    stages_s: tuple[tuple[str, float], ...] = ()
    """Seconds its process was busy in each stage, by name."""
    waits_s: tuple[tuple[str, float], ...] = ()
    """Seconds the judge waited meanwhile for others: the oracle, by what it was asked, baselines, other runs' races.
    What is left of `total_s` beside both is the judge's own work."""
    seed: int = 0
    """Of the run that reached it."""
    log: str = ""
    """The tail of what it and its compiler printed."""
    cached: bool = field(default=False, compare=False)
    """Answered from an earlier run of the same content on the same machine."""

    @property
    def evaluation(self) -> bool:
        """True only for a pass."""
        return isinstance(self.outcome, Passed)

    @property
    def runtime_ms(self) -> float:
        """Median runtime in milliseconds, -1.0 when not passed (the field's convention)."""
        return self.timing.median_ms if self.evaluation and isinstance(self.timing, Measured) else -1.0

    @property
    def parts(self) -> Parts:
        """What a reward is made of; None for what is not known, with the reason."""
        outcome = self.outcome
        if isinstance(outcome, NotJudged):
            return not_judged(outcome.kind, outcome.words)
        if isinstance(outcome, Passed):
            return right(outcome.kind, outcome.fallback, self.timing, self.share_of_floor, self.whose)
        return not_right(outcome.kind, compiled=self._was_constructed)

    def reward(self, policy: Policy, *, baseline: str | None = None, bound: str = "lower") -> float:
        """A finite number for a training loop.

        Args:
            policy: `beats-baseline`, `cuda-agent`, `kernrl`, `roofline`, `weighted` (docs/loops.md), or a function of
                `Parts`.
            baseline: what speed-ups are over (`eager`, `compile`, `max-autotune`, ..., or `strongest`); None for the
                policy's own.
            bound: `lower`, the end of the 95 % confidence interval, so that noise earns nothing; or `median`.

        Raises RewardError where the candidate was not judged, or is right and the policy needs a speed-up or a floor
        that is not known.
        """
        return reward_of(self.parts, self.outcome.words, policy, baseline, bound)

    @property
    def _was_constructed(self) -> bool:
        """Of what did not pass: whether it came as far as a ModelNew."""
        if isinstance(self.outcome, DoesNotBuild | DoesNotImport):
            return False
        if isinstance(self.outcome, Crashed | TimedOut | OutOfMemory | Cheated | IllegalAccess | LaunchError):
            return bool({name for name, _ in self.stages_s} - _BEFORE_IT_STANDS)
        return True


def to_json(value: Any) -> Any:
    """Plain JSON data of a record; unions are told apart by `kind` (outcomes) or by the class's name."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
        if isinstance(value, _WITH_A_KIND):
            fields["what"] = fields.pop("kind")  # `kind` says which record it is
        tag = value.kind if isinstance(value, Outcome) else type(value).__name__
        return {"kind": tag, **fields}
    if isinstance(value, tuple | list):
        return [to_json(item) for item in value]
    return value


_WITH_A_KIND = (Fault, Report)
"""Records with a field of that name, which is `what` in JSON."""
_RECORDS: dict[str, type] = {
    **OUTCOMES,
    **{t.__name__: t for t in (TensorError, Compared, NotCompared, Speedup, Measured, NotMeasured, Moments)},
    **{t.__name__: t for t in (Whose, Kernel, Costs, Clocks, Resources, Finding, Floor, Verdict)},
    **{t.__name__: t for t in (Trace, Launch, Line, Fault)},
    **{t.__name__: t for t in (Modelled, NotModelled, Part)},
    **{t.__name__: t for t in (ErrorMap, Along, Values, Fit, Match, Picture)},
    **{t.__name__: t for t in (Variant, NoVariant, Stressed)},
    **{t.__name__: t for t in (SmallestFailing, Trial, NotShrunk)},
    **{t.__name__: t for t in (Sanitized, ToolRun, Report, NotSanitized)},
}


def from_json(data: Any) -> Any:
    """The record that `to_json` wrote. Raises KeyError or TypeError when it is of another version."""
    if isinstance(data, list):
        return tuple(from_json(item) for item in data)
    if isinstance(data, dict):
        fields = {name: from_json(item) for name, item in data.items() if name != "kind"}
        if data["kind"] in (record.__name__ for record in _WITH_A_KIND):
            fields["kind"] = fields.pop("what")
        return _RECORDS[data["kind"]](**fields)
    return data
