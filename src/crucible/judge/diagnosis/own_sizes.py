"""Whether a candidate that fails at other sizes than the task's own is written for those: at them it is right.

That its text holds a number which is also a size says little: 224 may be channels, 4096 a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Set

from crucible import shapes
from crucible.judge.process.candidate_process import Ended
from crucible.judge.verdict.verdict import Faulty, Outcome, Passed, TimedOut
from crucible.judge.verify import Verifier
from crucible.shapes import Sizes

NUMBER = 90
"""Of the inputs, which no case of the judge's has."""
AT_MOST = 24.0
"""Times little work: what kernels do within a run's limit on the emulator."""


def at_own_sizes(verifier: Verifier, own: Sizes, held: Set[str]) -> tuple[str, Sizes]:
    """The task's own sizes at which a candidate was tried and fails as well, in words, so that its numbers are no
    reason; or those at which it is right. Neither where those are too much work. `own` are sizes of inputs that differ
    from those of the case that failed, `held` the names of those that its text holds. Its process may be over
    afterwards."""
    failed = ""
    for sizes in _tries(own, held):
        outcome = _tried(verifier, sizes)
        if isinstance(outcome, Passed):
            return "", sizes
        failed = shapes.words(sizes) if outcome is not None else ""
    return failed, {}


def _tries(own: Sizes, held: Set[str]) -> Iterator[Sizes]:
    """The sizes that it holds alone, then with all of space: what is for one height is often for one width too."""
    some = {name: size for name, size in own.items() if name in held}
    space = {name: size for name, size in own.items() if name in held or not shapes.is_batch(name)}
    yield from (some, space) if some != space else (some,)


def _tried(verifier: Verifier, sizes: Sizes) -> Outcome | None:
    """What it comes to there; None where that cannot be known."""
    limit_s = verifier.limits.oracle_s
    trial = verifier.oracle.trial(verifier.case["index"], sizes, NUMBER, limit_s, AT_MOST)
    if "refused" in trial:
        return None
    again = Verifier(verifier.process, verifier.oracle, verifier.description, training=verifier.training,
                     emulated=verifier.emulated, maps=False)  # fmt: skip
    try:
        outcome = again.outcome_of(trial["case"])
        named = next((words for words, fault in again.faults.items() if fault.convicts), "")
        outcome = Faulty(named) if named and isinstance(outcome, Passed) else outcome
    except Ended as ended:
        outcome = ended.outcome
    return None if isinstance(outcome, TimedOut) else outcome
