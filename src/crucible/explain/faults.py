"""Findings from the emulator's faults, and from what a GPU says of an illegal access."""

from __future__ import annotations

from collections.abc import Iterator

from crucible.emulator.faults import Fault
from crucible.judge.verdict.evidence import Finding
from crucible.judge.verdict.verdict import (
    Faulty,
    IllegalAccess,
    Incomplete,
    LaunchError,
    NotJudged,
    Passed,
    Verdict,
    Wrong,
)
from crucible.run import Run

KINDS = {
    "out-of-bounds-global": ("goes outside of its tensor", "guard the index with the tensor's size"),
    "out-of-bounds-shared": ("goes outside of its shared memory", "make the array larger or the index smaller"),
    "out-of-bounds-local": ("goes outside of a local array", "make the array larger or the index smaller"),
    "misaligned": (
        "accesses an address that its type does not allow",
        "use the narrower type where the address is odd",
    ),
    "uninitialised-shared": (
        "reads shared memory that nobody wrote",
        "write it, then __syncthreads(), before it is read",
    ),
    "uninitialised-global": ("reads memory that nobody wrote", "write it before it is read, or start from zeros"),
    "race-global": ("has a race in global memory", "let one thread write it, or use an atomic operation"),
    "race-shared": ("has a race in shared memory", "put a __syncthreads() between the two accesses"),
    "unordered-streams": (
        "works on a stream that has not waited for what it reads",
        "let that stream wait first: stream.wait_stream(torch.cuda.current_stream())",
    ),
    "missing-proxy-fence": (
        "hands shared memory to wgmma or a bulk copy before it is visible to them",
        "put a fence.proxy.async behind the writes, before the barrier",
    ),
    "missing-syncwarp": ("has lanes that do not wait for each other", "put a __syncwarp() between the two accesses"),
    "divergent-barrier": ("has threads of one block at different barriers", "move __syncthreads() out of the branch"),
    "absent-lanes": (
        "names lanes in a warp operation that are not there",
        "make the mask that of the lanes that come by",
    ),
    "launch-limits": ("is launched with more than the GPU allows", "lower what the launch asks for, below that limit"),
    "unchecked-launch": ("was refused, and nobody asked", "check each launch: C10_CUDA_KERNEL_LAUNCH_CHECK()"),
    "deadlock": ("has threads that wait for ever", "let all of a block come to each barrier, and flags be written"),
    "runaway-loop": ("has a thread that does not end", "look at the bound and the step of that loop"),
    "index-overflow": ("overflows an index", "compute the index in int64_t, or guard it before subtracting"),
    "division-by-zero": ("divides an integer by zero", "guard the divisor"),
    "device-assert": ("fails an assertion of its own", "look at what it asserts"),
    "illegal-instruction": ("comes to a trap", "look at what leads there"),
}
"""What a kernel does, and what to do about it."""
_FIRST = (
    "launch-limits",
    "race-shared",
    "race-global",
    "unordered-streams",
    "missing-proxy-fence",
    "missing-syncwarp",
    "divergent-barrier",
    "index-overflow",
)
_NEXT_TO_IT = "just "
"""Just past the end of a tensor or just before it: a loop or a guard leads there. An index that was itself computed
from what nobody wrote leads far off; then that read, which comes first, is the cause."""
_BESIDE = ("never-ran", "never-reached", "unchecked-launch")


def faults_that_end_it(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """The fault behind an illegal access or a refused launch."""
    outcome = verdict.outcome
    if not isinstance(outcome, IllegalAccess | LaunchError):
        return
    named = [f for f in verdict.faults if f.words in outcome.message]
    fatal = [f for f in verdict.faults if f.fatal]
    beside = [f for f in fatal if f.memory.startswith(_NEXT_TO_IT)]
    fault = next(iter([*beside, *named, *fatal]), None)
    if fault is not None:
        yield _finding(fault, "certain")
        yield from (_finding(other, "likely") for other in named if other != fault)
        return
    yield Finding(
        "a kernel accesses memory that it may not" if isinstance(outcome, IllegalAccess) else "a launch is refused",
        outcome.message,
        "run it with --device emulator, or with --sanitize: that names thread, block and line of the first bad access",
    )


def faults_behind_it(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """Races, unwritten shared memory and their like, where the answer is wrong."""
    outcome = verdict.outcome
    if not isinstance(outcome, Wrong | Incomplete):
        return
    irreproducible = isinstance(outcome, Wrong) and outcome.what == "not reproducible"
    kinds = [f for f in verdict.faults if f.kind in KINDS and f.kind not in _BESIDE]
    if isinstance(outcome, Incomplete):  # what nobody wrote is told by itself; who did not wait for it is not
        kinds = [f for f in kinds if f.kind in _FIRST]
    for fault in sorted(kinds, key=lambda f: _FIRST.index(f.kind) if f.kind in _FIRST else len(_FIRST)):
        sure = irreproducible and fault.kind.startswith(("race", "missing-syncwarp"))
        yield _finding(fault, "certain" if sure else "likely")


def faults_without_harm(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """Faults of a candidate whose answer is right: it may fail on another input or schedule."""
    if isinstance(verdict.outcome, Passed | Faulty):
        for fault in sorted(verdict.faults, key=lambda fault: not fault.convicts):
            if fault.kind in KINDS:
                found = _finding(fault, "certain" if fault.convicts else "possible")
                claim = f"{found.claim}; the answer is right all the same"
                yield Finding(claim, found.evidence, found.remedy, found.confidence, found.line, found.kernel)


def sizes_it_was_written_for(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """Why a candidate was not judged here."""
    if isinstance(verdict.outcome, NotJudged):
        yield Finding(
            "it was not judged here, so nothing is known of it",
            verdict.outcome.reason,
            "judge it at --scale full, or on a GPU",
        )


def _finding(fault: Fault, confidence: str) -> Finding:
    claim, remedy = KINDS.get(fault.kind, (f"shows {fault.kind}", "look at that line"))
    times = f", seen {fault.count} times" if fault.count > 1 else ""
    memory = f" ({fault.memory})" if fault.memory else ""
    return Finding(
        f"`{fault.kernel}` {claim}{memory}",
        f"{fault.words}{times}",
        f"{remedy}; the fault was seen {fault.count} time{'s' if fault.count > 1 else ''}",
        confidence,
        fault.python_line or (fault.line if fault.file.endswith(".py") else 0),
        fault.kernel,
    )
