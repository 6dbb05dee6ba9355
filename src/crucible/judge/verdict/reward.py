"""reward: a number for a verdict, by the rules that the field's training loops go by.

Speed counts by the lower end of its confidence interval, so that noise cannot be farmed. A candidate that is wrong
never earns more than one that is right, and what was not judged earns nothing at all: that is an error, not a 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from crucible.errors import RewardError
from crucible.judge.verdict.parts import Parts

BOUNDS = ("lower", "median")
MARGIN = 1.05
"""CUDA Agent's: 5 % faster than a baseline."""


@dataclass(frozen=True)
class Speed:
    """How fast a candidate is, asked for where a policy comes to need it."""

    policy: str
    parts: Parts
    baseline: str | None
    """What the user wants to be divided by in place of the policy's own choice."""
    bound: str

    def up(self, baseline: str) -> float:
        """The speed-up over the user's baseline, else over this one. Raises RewardError."""
        return self._known("speedup", self.parts.over(self.baseline or baseline))

    def of_floor(self) -> float:
        """The share of the floor. Raises RewardError."""
        return self._known("share_of_floor", self.parts)

    def _known(self, name: str, parts: Parts) -> float:
        value: float | None = getattr(parts, f"{name}_lower" if self.bound == "lower" else name)
        if value is None:
            words = parts.reasons.get(name, "not measured")
            raise RewardError(f"reward policy {self.policy!r} needs {name}, which is not known: {words}")
        return value


Rule = Callable[[Parts, Speed], float]


def _beats_baseline(parts: Parts, speed: Speed) -> float:
    """1 where it is faster than the strongest baseline of the run, else 0."""
    return 1.0 if parts.correct and speed.up("strongest") > 1 else 0.0


def _cuda_agent(parts: Parts, speed: Speed) -> float:
    """CUDA Agent's: -1 wrong, 1 right, 2 where 5 % faster than eager, 3 where 5 % faster than torch.compile too."""
    if not parts.correct:
        return -1.0
    eager, compiled = speed.up("eager") > MARGIN, speed.up("compile") > MARGIN
    return 3.0 if eager and compiled else 2.0 if eager else 1.0


def _kernrl(parts: Parts, speed: Speed) -> float:
    """kernrl's: -0.5 not built, -0.25 wrong, min(s - 1, 2) for a speed-up s over eager, half of s - 1 where that is
    slower, but never less than for a wrong one (kernrl's own falls to -0.5 there)."""
    if not _stands(parts):
        return -0.5
    if not parts.correct:
        return -0.25
    gain = speed.up("eager") - 1
    return min(gain, 2.0) if gain > 0 else max(gain / 2, -0.25)


def _roofline(parts: Parts, speed: Speed) -> float:
    """kernelbench.com's: the share of the floor, 1 at most; 0 wrong."""
    return min(max(speed.of_floor(), 0.0), 1.0) if parts.correct else 0.0


def _weighted(parts: Parts, speed: Speed) -> float:
    """0.3 built, 0.4 right, and 0.3 of the gain over eager, which is full at a speed-up of 2."""
    if not parts.correct:
        return 0.3 if _stands(parts) else 0.0
    return 0.3 + 0.4 + 0.3 * min(max(speed.up("eager") - 1, 0.0), 1.0)


def _stands(parts: Parts) -> bool:
    """Whether it compiled, and was not refused for what it did then."""
    return bool(parts.compiled) and parts.kind != "cheated"


POLICIES: dict[str, Rule] = {
    "beats-baseline": _beats_baseline,
    "cuda-agent": _cuda_agent,
    "kernrl": _kernrl,
    "roofline": _roofline,
    "weighted": _weighted,
}
Policy = str | Callable[[Parts], float]


def reward_of(parts: Parts, words: str, policy: Policy, baseline: str | None, bound: str) -> float:
    """The reward by a policy's name, or by a function of the parts. `words` are the outcome's. Raises RewardError."""
    if bound not in BOUNDS:
        raise RewardError(f"no bound {bound!r}: choose one of {', '.join(BOUNDS)}")
    name = policy if isinstance(policy, str) else getattr(policy, "__name__", "of yours")
    if isinstance(policy, str) and policy not in POLICIES:
        raise RewardError(
            f"no reward policy {policy!r}: choose one of {', '.join(POLICIES)}, or give a function of parts"
        )
    if parts.correct is None:
        raise RewardError(f"reward policy {name!r} has no number for what is neither right nor wrong: {words}")
    if isinstance(policy, str):
        value: object = POLICIES[policy](parts, Speed(policy, parts, baseline, bound))
    else:
        value = policy(parts.over(baseline) if baseline else parts)
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise RewardError(f"reward policy {name!r} gives {str(value)[:80]!r}, which is no finite number")
    return float(value)
