"""Decoys: kernels that are launched on the emulator and reach no answer, which others compute.

Asked by leaving them out: with every launch checked and none of them run, over memory that is poisoned, the answer of
whoever needs its kernels is wrong. No mark on tensors and no share of time can be fooled about that.
"""

from __future__ import annotations

from crucible.judge.process.candidate_process import Ended
from crucible.judge.verdict.stop import Stop
from crucible.judge.verify import Verifier

LONGEST_S = 30.0
"""A host function that waits for what its kernel writes may wait for ever then. At 10 s a decoy went unseen twice
beside ten busy processes on two cores, which by reading this limit alone explains."""


def answers_without_its_kernels(verifier: Verifier) -> bool:
    """Whether a candidate that passed is right on the last case that it was judged on where none of its kernels run: of
    those of the task's own sizes, since others may be PyTorch's in so many words. Its process may not outlive the
    question; a failure is as good as a wrong answer."""
    cases = verifier.description["cases"]
    own = [each for each in verifier.judged if cases[each]["sizes"] == cases[0]["sizes"]]
    if not own:
        return False
    case = {**cases[own[-1]], "backward": False}
    request = {**verifier.request(case, poison=True), "schedule": "idle"}
    verifier.oracle.attach(verifier.process.results.fileno())
    try:
        reply = verifier.process.ask(request, "forward", min(LONGEST_S, verifier.limits.run_s))
        return "raised" not in reply and verifier.is_right(case, reply)
    except (Ended, Stop):
        return False
    finally:
        verifier.oracle.detach()
