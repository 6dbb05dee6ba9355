"""Harbor: the reward of one candidate as its verifiers write it (`reward.json`), and a task as a folder of its form."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from crucible.errors import JudgeError
from crucible.judge.verdict.evidence import Compared, Measured, NotMeasured
from crucible.judge.verdict.parts import Parts
from crucible.judge.verdict.verdict import Cheated, DoesNotBuild, DoesNotImport, NotJudged, Verdict
from crucible.report.cells import best_baseline
from crucible.run import WITHOUT_BASELINES, Run


def reward_text(runs: Sequence[Run]) -> str:
    """The `reward.json` of a run with one candidate. Raises JudgeError where there is no verdict on it: a machine that
    broke must never read as a reward of 0."""
    run = _whole(runs)
    verdict = run.verdicts[0]
    parts = {"reward": reward(run, verdict), **parts_of(verdict)}
    return json.dumps({name: value for name, value in parts.items() if math.isfinite(value)}, indent=1) + "\n"


def reward(run: Run, verdict: Verdict) -> float:
    """0 for what did not pass; else the lower end of the speed-up's interval over the fastest baseline, so that noise
    is worth nothing; 1 where no race was asked for, or nothing here can be raced (the emulator)."""
    if not verdict.evaluation:
        return 0.0
    lower = verdict.parts.over(best_baseline(run)).speedup_lower
    return 1.0 if lower is None else lower


def parts_of(verdict: Verdict) -> dict[str, float]:
    """What a reward may be made of, as far as it is known: numbers alone, 1 for yes."""
    outcome = verdict.outcome
    parts = {
        "correct": float(verdict.evaluation),
        "compile_ok": float(not isinstance(outcome, DoesNotBuild | DoesNotImport)),
        "cheated": float(isinstance(outcome, Cheated)),
    }
    compared = [c for c in (verdict.forward, verdict.backward) if isinstance(c, Compared) and c.tensors]
    if compared:
        parts["error_in_noise"] = max(check.noise_multiple for check in compared)
    return {**parts, **_speed(verdict.parts)} if isinstance(verdict.timing, Measured) else parts


def _speed(parts: Parts) -> dict[str, float]:
    """Of what is known of a pass."""
    known = parts.metrics
    named = ("runtime_ms", "share_of_floor", "own_share")
    found: dict[str, float] = {name: known[name] for name in named if name in known}
    for over in parts.speedups:
        name = f"speedup_vs_{over.baseline.replace('-', '_')}"
        found |= {name: over.ratio, f"{name}_low": over.interval[0]}
    return found


def _whole(runs: Sequence[Run]) -> Run:
    """The one run, whose one candidate has a verdict, and a race where it should have one. Raises JudgeError."""
    if len(runs) != 1 or len(runs[0].verdicts) != 1 or runs[0].cut_short:
        found = sum(len(run.verdicts) for run in runs)
        cause = next((f" ({run.trouble})" for run in runs if run.trouble), "")
        raise JudgeError(f"no reward is written: it is of one candidate, judged to the end; {found} were{cause}")
    run, verdict = runs[0], runs[0].verdicts[0]
    if isinstance(verdict.outcome, NotJudged):
        raise JudgeError(f"no reward is written: {verdict.outcome.words}")
    if verdict.evaluation and (lost := _lost_race(run, verdict)):
        raise JudgeError(f"no reward is written: it passed, and {lost}")
    return run


def _lost_race(run: Run, verdict: Verdict) -> str:
    """Why a pass has no speed-up that was asked for; empty where it has, or none was."""
    unraced = [finding.evidence for finding in run.findings if finding.claim == WITHOUT_BASELINES]
    if unraced:
        return f"the judge failed on the baselines: {unraced[0]}"
    if isinstance(verdict.timing, NotMeasured):
        return f"was not timed: {verdict.timing.reason}" if run.device.kind == "cuda" else ""
    rivals = run.ground.baselines
    if rivals and verdict.parts.over(best_baseline(run)).speedup is None:
        return f"was not raced with a baseline that is right ({', '.join(rival.candidate for rival in rivals)})"
    return ""
