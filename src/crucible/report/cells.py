"""What the table and the page say alike: runtimes, speed-ups, errors and sizes in words."""

from __future__ import annotations

from collections.abc import Sequence

from crucible.judge.timing.baselines import ANCHOR
from crucible.judge.verdict.evidence import Compared, Measured, NotMeasured, Speedup, Timing
from crucible.judge.verdict.modelled import Modelled
from crucible.judge.verdict.verdict import Verdict
from crucible.run import Run


def clock_words(run: Run) -> str:
    """What the Runtime column says, and by which clock."""
    covers = "forward+backward" if run.task.training else "forward"
    by = "by CUDA events" if run.device.kind == "cuda" else "in CPU time"
    return f"runtime of {covers} {by}, ± half its interquartile range"


def verdict_words(verdict: Verdict) -> str:
    """The outcome, and what of a pass was wrong though nobody asked for it, or not timed."""
    words = verdict.outcome.words
    backward = verdict.backward
    if verdict.evaluation and isinstance(backward, Compared) and not all(tensor.ok for tensor in backward.tensors):
        words += ", wrong gradients (not asked for)"
    untimed = verdict.evaluation and isinstance(verdict.timing, NotMeasured)
    return f"{words}, not timed" if untimed else words


def best_baseline(run: Run) -> str:
    """The fastest one that is right; empty when none is."""
    right = [v for v in run.ground.baselines if v.runtime_ms > 0]
    return min(right, key=lambda v: v.runtime_ms).candidate if right else ""


def rivals(run: Run) -> list[str]:
    """Baselines that candidates are compared with: eager, and the fastest."""
    best = best_baseline(run)
    return [ANCHOR, *([best] if best and best != ANCHOR else [])] if run.ground.baselines else []


def runtime(verdict: Verdict) -> str:
    """`1.25 ms ±0.02`, half the interquartile range; `-1` where it did not pass or was not timed."""
    if not verdict.evaluation or not isinstance(verdict.timing, Measured):
        return "-1"
    low, high = verdict.timing.quartiles_ms
    return f"{verdict.timing.median_ms:.4g} ms ±{(high - low) / 2:.2g}"


def ranked(run: Run) -> list[tuple[str, Verdict]]:
    """Ranks as they are shown: `1`, `m1` among modelled times, `-` for what has none."""
    modelled = run.modelled_ranks
    return [
        (f"m{modelled[v.candidate]}" if v.candidate in modelled else str(rank) if rank else "-", v)
        for rank, v in run.ranked
    ]


def time(run: Run, verdict: Verdict) -> str:
    """`runtime`, or `~0.9 ms` where that is modelled."""
    modelled = verdict.modelled
    if isinstance(modelled, Modelled) and verdict.candidate in run.modelled_ranks:
        return f"~{modelled.time_ms:.3g} ms"
    return runtime(verdict)


def model_words(run: Run) -> str:
    """What `~` and `m1` mean, where the run has them."""
    models = [v.modelled for v in run.passed if isinstance(v.modelled, Modelled) and v.candidate in run.modelled_ranks]
    if not models:
        return ""
    return (
        f"~ modelled, not measured: the least time on an {models[0].gpu} at {models[0].at} for what the emulator "
        "counted (bytes, loads and stores, matrix products, launches); m1, m2, ... rank these among themselves"
    )


def speedup(verdict: Verdict, rival: str) -> str:
    """`1.38 [1.37, 1.4]`: the ratio with its 95 % confidence interval; `-` where there is none."""
    if not verdict.evaluation or not isinstance(verdict.timing, Measured):
        return "-"
    if verdict.candidate == rival and not verdict.timing.speedup_over(rival):
        return "1"
    found = verdict.timing.speedup_over(rival)
    return _interval(found) if found else "-"


def short_speedup(verdict: Verdict, rival: str) -> str:
    """`1.38 ±0.015`: the ratio with half of its 95 % confidence interval."""
    found = verdict.timing.speedup_over(rival) if isinstance(verdict.timing, Measured) else None
    if not verdict.evaluation or found is None:
        return speedup(verdict, rival)
    low, high = found.interval
    return f"{found.ratio:.3g} ±{(high - low) / 2:.2g}"


def _interval(found: Speedup) -> str:
    low, high = found.interval
    return f"{found.ratio:.3g} [{low:.3g}, {high:.3g}]"


def error(verdict: Verdict) -> str:
    """The worst error in multiples of the contract's noise."""
    checks = [c for c in (verdict.forward, verdict.backward) if isinstance(c, Compared) and c.tensors]
    return f"{max(check.noise_multiple for check in checks):.2g}" if checks else "-"


def medians(timings: Sequence[Timing | None]) -> str:
    """`0.031 ms`; a forward's where both it and forward+backward are short enough to be replayed: `0.03, 0.1 ms`."""
    found = [f"{timing.median_ms:.3g}" for timing in timings if isinstance(timing, Measured)]
    return f"{', '.join(found)} ms" if found else "-"


def size(count: int) -> str:
    """Bytes: `1.5 GiB`."""
    amount, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if amount < 1000:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.3g} {unit}"


def case(check: Compared, number: int) -> str:
    """What one of the judge's cases was; its number in records that say no more."""
    return check.cases[number] if 0 <= number < len(check.cases) else f"case {number}"
