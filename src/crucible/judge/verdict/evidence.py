"""Evidence: what was compared, what was timed, what it took, and what a reader should know beside it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from crucible.judge.verdict.error_map import ErrorMap
from crucible.legible import counted


@dataclass(frozen=True)
class TensorError:
    """How far one tensor is from the oracle's, beside how far it may be."""

    name: str
    """`output`, `output[1]`, `gradient of conv.weight`, ..."""
    case: int
    """Which of the judge's cases."""
    relative_l2: float
    """‖candidate - oracle‖ / ‖oracle‖ (for integers: the share of elements that differ)."""
    relative_l2_allowed: float
    peak: float
    """max |candidate - oracle| / (|oracle| + rms(oracle))."""
    peak_allowed: float
    worst_index: tuple[int, ...]
    """Where the peak is."""
    nan: int
    """Elements that are NaN where the oracle's are not, or the other way round."""
    unwritten: int
    """Of those, elements that still hold the judge's poison."""
    elements: int
    map: ErrorMap | None = None
    """Where and how it is wrong; None where it is right, or nobody looked."""
    shape: tuple[int, ...] = ()
    largest: float | None = None
    """max |candidate - oracle|, of what is finite; None for integers of which one is wrong, and in records from before
    it was kept."""

    @property
    def part(self) -> str:
        """`forward` or `gradient`."""
        return "gradient" if self.name.startswith("gradient of ") else "forward"

    @property
    def ratio(self) -> float:
        """Error over what is allowed; above 1 the tensor is wrong."""
        if self.nan:
            return float("inf")
        return max(self.relative_l2 / self.relative_l2_allowed, self.peak / self.peak_allowed)

    @property
    def ok(self) -> bool:
        return self.ratio <= 1.0


@dataclass(frozen=True)
class Compared:
    """A part (forward or backward) that was compared with the oracle."""

    tensors: tuple[TensorError, ...]
    multiple: float
    """What is allowed, as a multiple of the noise floor."""
    missing: tuple[str, ...] = ()
    """Gradients that the candidate does not give."""
    cases: tuple[str, ...] = ()
    """What each of the judge's cases was, by number."""

    @property
    def worst(self) -> TensorError:
        return max(self.tensors, key=lambda tensor: tensor.ratio)

    @property
    def ok(self) -> bool:
        return not self.missing and all(tensor.ok for tensor in self.tensors)

    @property
    def noise_multiple(self) -> float:
        """The worst error as a multiple of the noise floor; 0 when there was nothing to compare."""
        return self.worst.ratio * self.multiple if self.tensors else 0.0

    @property
    def words(self) -> str:
        if self.missing:
            return "missing" if not self.tensors else "partly missing"
        return "ok" if self.ok else "wrong"


@dataclass(frozen=True)
class NotCompared:
    """A part that was not compared, and why."""

    reason: str
    ok: ClassVar[bool] = False

    @property
    def words(self) -> str:
        return "-"

    @property
    def raised(self) -> bool:
        """Whether it did, by the word in front, which no candidate writes."""
        return self.reason.startswith(RAISES)


Check = Compared | NotCompared
NOT_COMPARED = NotCompared("not reached")
RAISES = "raises "
"""In front of a message, of what was not compared for it."""


@dataclass(frozen=True)
class Variant:
    """The function that a wrong answer is the answer of: the reference with an edit or two."""

    words: str
    """`the reference with gelu(approximate='tanh') in place of 'none' (reference.py:27)`."""
    edits: tuple[str, ...]
    """Each in words, without its line."""
    lines: tuple[int, ...]
    """Of the reference's file."""
    measure: str
    """`relative L2` or `peak`, whichever the answer is further off in; under `kernelbench` peak counts tolerances."""
    error_to_reference: float
    error_to_variant: float
    allowed: float
    part: str = ""
    """What of the answer was looked at (`the first 2 of 128 batch items`); "" for all of it."""
    alike: tuple[str, ...] = ()
    """Other variants that the answer cannot be told apart from, in words."""

    @property
    def evidence(self) -> str:
        """What it is, with both errors."""
        verb = "equals" if self.error_to_variant <= self.allowed else "is near"
        errors = f"{self.error_to_variant:.2g} from that and {self.error_to_reference:.2g} from the reference"
        where = f", on {self.part}" if self.part else ""
        alike = f"; it cannot be told apart from {'; or '.join(self.alike)}" if self.alike else ""
        return f"it {verb} {self.words}: {errors} in {self.measure}, {self.allowed:.2g} allowed{where}{alike}"


@dataclass(frozen=True)
class NoVariant:
    """No variant of the reference is known to be what was computed, and why."""

    reason: str


NO_VARIANT = NoVariant("only wrong values are looked up")


@dataclass(frozen=True)
class Speedup:
    """How many times faster than a baseline, which took turns with it or, in an earlier run, with eager as it does."""

    baseline: str
    ratio: float
    """Baseline's time by the candidate's: the median over rounds."""
    interval: tuple[float, float]
    """95 % bootstrap confidence interval; a tie where it holds 1."""
    rounds: tuple[float, ...]
    """The ratio in each round, from which candidates of different runs are ranked."""
    kept: str = ""
    """Since when (UTC) the baseline's time is kept, where it took no turns with this one: the ratio is through eager's
    then, its interval of both races. Empty where they took turns."""

    def divided(self, factor: float) -> Speedup:
        """As if the baseline had been, or the candidate not been, this many times faster."""
        low, high = self.interval
        rounds = tuple(ratio / factor for ratio in self.rounds)
        return replace(self, ratio=self.ratio / factor, interval=(low / factor, high / factor), rounds=rounds)


@dataclass(frozen=True)
class NotMeasured:
    """No runtime, and why."""

    reason: str


NOT_MEASURED = NotMeasured("not reached")


@dataclass(frozen=True)
class Clocks:
    """The GPU's clocks while something was timed, as nvidia-smi reads them."""

    sm_mhz: tuple[int, int]
    """Lowest and highest."""
    memory_mhz: tuple[int, int]
    temperature_c: float
    """Highest."""
    power_w: float
    """Highest."""
    slowed_by: tuple[str, ...]
    """`power cap`, `hardware slowdown`, a thermal limit, `power brake`."""


@dataclass(frozen=True)
class Moments:
    """What files of other benchmarks say of the same samples."""

    mean_ms: float
    deviation_ms: float
    """Standard deviation, of the samples as they are (divided by their number)."""
    least_ms: float
    most_ms: float


@dataclass(frozen=True)
class Measured:
    """A runtime."""

    median_ms: float
    quartiles_ms: tuple[float, float]
    samples: int
    clock: str
    """`CUDA events`, `CPU time` on a machine without a GPU, or what counted instead: `wall time` where the device
    worked on after its stream was done, `the profiler` where kernels took longer than the events say, `the judge's
    own clock` where the process reports less than passed."""
    covers: str
    """`forward` or `forward+backward`."""
    how: str = "as called"
    """`as called`, or `graph replay` (a CUDA graph of the same step, without its launches)."""
    wall_ms: float = 0.0
    """Median wall time of the same samples, until the whole device was idle."""
    speedups: tuple[Speedup, ...] = ()
    clocks: Clocks | NotMeasured = NOT_MEASURED
    moments: Moments | NotMeasured = NOT_MEASURED
    """Not in records from before they were kept."""

    def speedup_over(self, baseline: str) -> Speedup | None:
        """The speed-up over that baseline, None where they did not take turns."""
        return next((speedup for speedup in self.speedups if speedup.baseline == baseline), None)


Timing = Measured | NotMeasured


@dataclass(frozen=True)
class Kernel:
    """A kernel that one call launches."""

    name: str
    count: int
    time_ms: float
    """All its launches in one call, by the profiler."""


@dataclass(frozen=True)
class Costs:
    """What a call of the timed step takes beside time, by PyTorch's profiler inside the candidate's process."""

    first_call_s: float
    """The first forward: module loading, autotuning, compilation."""
    peak_bytes: int
    """Memory from PyTorch's allocator beyond inputs and weights, at its highest in a call."""
    allocations: int
    """Blocks asked of PyTorch's allocator in a call."""
    kernels: tuple[Kernel, ...]
    """What was launched, by time; empty on a CPU."""
    busy_ms: float
    """In which any kernel ran, on any stream."""
    span_ms: float
    """From the first kernel's start to the last one's end, on all streams."""
    streams: int
    """CUDA streams that kernels ran on."""
    operators: tuple[Kernel, ...] = ()
    """On a CPU: PyTorch's operators that the call asked for, by time."""
    operators_ms: float = 0.0
    """In which any of these ran."""
    call_ms: float = 0.0
    """The call that was profiled; 0 on a GPU."""

    @property
    def launches(self) -> int:
        return sum(kernel.count for kernel in self.kernels)


@dataclass(frozen=True)
class Resources:
    """What one block or thread of a kernel takes of a GPU by its compiler's account, and what fits there then."""

    kernel: str
    """With its template arguments."""
    threads: int
    """Of a block, as it was launched."""
    registers: int
    """Of one thread."""
    spill_load_bytes: int
    """Registers that go to memory and back, of one thread."""
    spill_store_bytes: int
    stack_bytes: int
    """Of one thread: spills, and arrays that registers cannot hold."""
    static_shared_bytes: int
    """Of one block."""
    dynamic_shared_bytes: int
    """Of one block, as it was launched."""
    blocks: int
    """Resident on one multiprocessor at a time."""
    warps: int
    occupancy: float
    """The share of the warps that a multiprocessor can hold."""
    limited_by: str
    """What stands in the way of more: `threads`, `blocks`, `registers` or `shared memory`."""

    @property
    def words(self) -> str:
        spills = (
            f"{counted(self.spill_store_bytes + self.spill_load_bytes, 'byte')} of spills"
            if self.spills
            else "no spills"
        )
        shared = self.static_shared_bytes + self.dynamic_shared_bytes
        uses = f"{counted(self.registers, 'register')}, {spills}, {counted(shared, 'byte')} of shared memory"
        fits = f"{counted(self.blocks, 'block')} of {counted(self.threads, 'thread')} a multiprocessor"
        return f"{self.kernel}: {uses}; {fits}, occupancy {self.occupancy:.0%}, limited by {self.limited_by}"

    @property
    def spills(self) -> bool:
        return self.spill_store_bytes + self.spill_load_bytes > 0


@dataclass(frozen=True)
class Finding:
    """Something a reader should know: what was seen, with its evidence, and what to do about it."""

    claim: str
    evidence: str
    """Figures, and where they were seen."""
    remedy: str = ""
    """What to change, with the figure that it moves; empty where there is nothing to change."""
    confidence: str = "certain"
    """`certain`, `likely` or `possible`."""
    line: int = 0
    """Of the candidate's file, 0 where none is concerned."""
    kernel: str = ""
