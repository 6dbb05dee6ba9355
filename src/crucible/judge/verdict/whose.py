"""Whose kernels ran: a candidate's own, which its file names, or those of PyTorch and its libraries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from crucible.judge.verdict.evidence import Costs, Finding, NotMeasured
from crucible.judge.verdict.kernel_names import short
from crucible.judge.verdict.modelled import Modelled, NotModelled
from crucible.legible import counted

MOST_NAMES = 12
_NOT_MODELLED = NotMeasured("only what passes on the emulator is modelled")
LITTLE = 0.5
"""Of a call's time: below it a candidate with kernels of its own owes its runtime to others'."""
_LIBRARIES = re.compile(
    r"\b(at|c10|cub|thrust|cudnn|cublas\w*|cutlass\w*|xmma\w*|nccl\w*)::|^(void )?(cudnn|cublas|nvjet)_"
)
"""Whatever a candidate's file says: its words hold no kernel that they name."""


@dataclass(frozen=True)
class Whose:
    """The kernels of one call by who wrote them; of a CPU, PyTorch's operators beside all else that ran."""

    own: tuple[str, ...]
    """Named in the candidate's file, the longest first."""
    others: tuple[str, ...]
    """All others: PyTorch's, its libraries', what torch.compile made, and what the file names nowhere."""
    own_share: float | NotMeasured
    """Of the time that kernels ran; on a CPU of the call's, all that no operator of PyTorch's took."""
    by: str
    """`the profiler`, or `the emulator`, which knows what was launched and not for how long."""
    modelled_share: float | NotMeasured = _NOT_MODELLED
    """Of the time that the emulator's model gives a call, that of the candidate's kernels."""

    @property
    def words(self) -> str:
        """One clause: `own kernels 97 % of the time`."""
        if isinstance(self.own_share, NotMeasured):
            words = f"{counted(len(self.own), 'own kernel')}, {counted(len(self.others), 'operator')} of PyTorch's"
            known = isinstance(self.modelled_share, float)
            return words + (f", own {self.modelled_share:.0%} of the modelled time" if known else "")
        return f"own {'kernels' if self.own else 'code'} {self.own_share:.0%} of the time"


NOT_TOLD = NotMeasured("not reached")


def told_by_profiler(costs: Costs | NotMeasured, source: str) -> Whose | NotMeasured:
    """Of a profiled call, with the candidate's text."""
    if isinstance(costs, NotMeasured):
        return costs
    if costs.operators or not costs.kernels:
        share = 1.0 - min(1.0, costs.operators_ms / costs.call_ms) if costs.call_ms else 1.0
        return Whose((), _names(kernel.name for kernel in costs.operators), share, "the profiler")
    own = [kernel for kernel in costs.kernels if is_named_in(kernel.name, source)]
    others = [kernel for kernel in costs.kernels if kernel not in own]
    total = sum(kernel.time_ms for kernel in costs.kernels)
    share = sum(kernel.time_ms for kernel in own) / total if total else 0.0
    return Whose(_names(k.name for k in own), _names(k.name for k in others), share, "the profiler")


def told_by_emulator(launched: Sequence[str], operations: Sequence[str], modelled: Modelled | NotModelled) -> Whose:
    """Of kernels that the emulator launched, operators that PyTorch ran beside them, and the model of both."""
    untimed = NotMeasured("the emulator shows what a kernel does, not how long a GPU takes")
    share = modelled.own_share if isinstance(modelled, Modelled) else NotMeasured(modelled.reason)
    return Whose(_names(launched), _names(operations), untimed, "the emulator", share)


def is_named_in(kernel: str, source: str) -> bool:
    """Whether a kernel, by its name with types and arguments, is one that a text defines."""
    if _LIBRARIES.search(kernel):
        return False
    name = re.split(r"[<(]", kernel.removeprefix("void "))[0].split("::")[-1].strip()
    if bool(name) and _defines(source, name):
        return True
    return any(_defines(source, function) for function in _made_of(name, source))


def _made_of(kernel: str, source: str) -> list[str]:
    """The functions that a kernel may have been made of, by its name."""
    if "helion" in source and kernel.startswith("_helion_"):
        return [kernel.removeprefix("_helion_")]
    if "tilelang" in source and (found := re.fullmatch(r"(\w+)_kernel(_\d+)?", kernel)):
        return [found[1]]
    if "cutlass" in source and kernel.startswith("kernel_cutlass_"):  # then types, with the same mark between them
        parts = kernel.removeprefix("kernel_cutlass_").split("_")[:MOST_NAMES]
        return ["_".join(parts[:n]) for n in range(1, len(parts) + 1)]
    return []


def _defines(source: str, name: str) -> bool:
    return re.search(rf"(__global__[^;{{}}]*?|\bdef\s+)\b{re.escape(name)}\s*\(", source) is not None


def little_of_its_own(whose: Whose | NotMeasured) -> list[Finding]:
    """What to say of a candidate that has kernels and lets others do the work."""
    if isinstance(whose, NotMeasured):
        return []
    measured = not isinstance(whose.own_share, NotMeasured)
    share, time = (whose.own_share, "time") if measured else (whose.modelled_share, "modelled time")
    if isinstance(share, NotMeasured) or share >= LITTLE:
        return []
    claim = f"most of its {time} goes to kernels that are not its own"
    own, others = (", ".join(dict.fromkeys(map(short, names))) for names in (whose.own, whose.others[:3]))
    return [
        Finding(claim, f"its own, {own or 'of which there are none'}: {share:.0%} of the {time}; the rest: {others}")
    ]


def _names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))[:MOST_NAMES]
