"""Parts: what a reward is made of, as far as a verdict knows it; nothing that is not known is a number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from crucible.judge.verdict.evidence import Measured, NotMeasured, Speedup, Timing
from crucible.judge.verdict.whose import Whose

USUAL_BASELINE = "eager"
"""What speed-ups are told over where nobody names another: what the field divides by."""


@dataclass(frozen=True)
class Parts:
    """Each is None where it is not known, and then `reasons` says why, by its name."""

    kind: str
    """The outcome's: `passed`, `wrong`, `does-not-build`, `cheated`, ... (docs/judging.md)."""
    compiled: bool | None
    """Whether it was built, imported and constructed; None of what was not judged."""
    correct: bool | None
    """Whether it passed; None of what was not judged."""
    runtime_ms: float | None = None
    speedup: float | None = None
    """Over `baseline`: the median over rounds of its time by the candidate's."""
    speedup_lower: float | None = None
    """The lower end of that ratio's 95 % confidence interval, from the race's own rounds."""
    share_of_floor: float | None = None
    """The least time that the hardware allows by the runtime; 1 at the hardware's limit."""
    share_of_floor_lower: float | None = None
    """The same by the upper quartile of the runtime's samples."""
    own_share: float | None = None
    """Of the time that kernels ran, that of its own ones."""
    whose: Whose | None = None
    """Whose kernels ran, by name."""
    fallback: str = ""
    """Why something else than what it brought may have given the answers; empty where nothing says so."""
    baseline: str = USUAL_BASELINE
    """What `speedup` is over."""
    speedups: tuple[Speedup, ...] = ()
    """Over each baseline that it took turns with."""
    reasons: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Why a part is None, by its name."""

    def over(self, baseline: str) -> Parts:
        """The same with the speed-up over another baseline; over `strongest`, the one that it gains least on for
        sure."""
        if baseline == "strongest":
            least = min(self.speedups, key=lambda speedup: speedup.interval[0], default=None)
            baseline = least.baseline if least is not None else baseline
        found = next((speedup for speedup in self.speedups if speedup.baseline == baseline), None)
        reasons = {name: why for name, why in self.reasons.items() if name not in _SPEED}
        if found is not None:
            low, ratio = found.interval[0], found.ratio
            return replace(self, baseline=baseline, speedup=ratio, speedup_lower=min(low, ratio), reasons=reasons)
        raced = ", ".join(speedup.baseline for speedup in self.speedups) or "none"
        why = self.reasons.get("runtime_ms") or f"no turns were taken with {baseline} (baselines of this run: {raced})"
        reasons |= dict.fromkeys(_SPEED, why)
        return replace(self, baseline=baseline, speedup=None, speedup_lower=None, reasons=reasons)

    @property
    def metrics(self) -> dict[str, float]:
        """The parts that are numbers and known, as a training loop logs them."""
        known = {name: getattr(self, name) for name in (*_JUDGED, *_TIMED, *_SPEED, *_FLOOR, "own_share")}
        return {name: float(value) for name, value in known.items() if value is not None}


_JUDGED, _TIMED, _SPEED = ("compiled", "correct"), ("runtime_ms",), ("speedup", "speedup_lower")
_FLOOR = ("share_of_floor", "share_of_floor_lower")


def not_judged(kind: str, why: str) -> Parts:
    """Of what is neither right nor wrong."""
    everything = (*_JUDGED, *_TIMED, *_SPEED, *_FLOOR, "own_share", "whose")
    return Parts(kind, None, None, reasons=dict.fromkeys(everything, why))


def not_right(kind: str, *, compiled: bool) -> Parts:
    """Of what was judged and did not pass."""
    why = f"only what passes is timed; it is {kind}"
    return Parts(kind, compiled, False, reasons=dict.fromkeys((*_TIMED, *_SPEED, *_FLOOR, "own_share", "whose"), why))


def right(kind: str, fallback: str, timing: Timing, share: float | NotMeasured, whose: Whose | NotMeasured) -> Parts:
    """Of a pass. `share` is of the floor."""
    reasons: dict[str, str] = {}
    parts = Parts(kind, True, True, fallback=fallback)
    if isinstance(whose, NotMeasured):
        reasons |= dict.fromkeys(("own_share", "whose"), whose.reason)
    elif isinstance(whose.own_share, NotMeasured):
        reasons["own_share"], parts = whose.own_share.reason, replace(parts, whose=whose)
    else:
        parts = replace(parts, whose=whose, own_share=whose.own_share)
    if isinstance(timing, NotMeasured):
        reasons |= dict.fromkeys((*_TIMED, *_SPEED, *_FLOOR), timing.reason)
        return replace(parts, reasons=reasons)
    if isinstance(share, NotMeasured):
        reasons |= dict.fromkeys(_FLOOR, share.reason)
    else:
        slow = max(timing.quartiles_ms[1], timing.median_ms)
        lower = share * timing.median_ms / slow if slow else share
        parts = replace(parts, share_of_floor=share, share_of_floor_lower=lower)
    parts = replace(parts, runtime_ms=timing.median_ms, speedups=_of_race(timing), reasons=reasons)
    return parts.over(USUAL_BASELINE)


def _of_race(timing: Measured) -> tuple[Speedup, ...]:
    return tuple(speedup for speedup in timing.speedups if speedup.ratio > 0)
