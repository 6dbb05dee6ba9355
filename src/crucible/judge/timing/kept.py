"""Baselines as an earlier run of the same task measured them, so that `torch.compile` need not come up again.

A candidate takes turns with the anchor all the same. What it is to a kept baseline follows from two races: its own,
with the anchor, and the one that the baseline had with the anchor then; the interval is that of both.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crucible import store
from crucible.errors import StoreError
from crucible.judge.timing.baselines import ANCHOR, Baseline
from crucible.judge.verdict.evidence import Finding, Measured, Speedup
from crucible.judge.verdict.verdict import (
    Crashed,
    NotJudged,
    Outcome,
    OutOfMemory,
    Passed,
    TimedOut,
    Verdict,
    from_json,
    to_json,
)
from crucible.spread import quotient

SCHEMA = "crucible.baseline/1"
OFF = 1.1
"""The anchor this many times faster or slower than beside a kept baseline: it is another machine, or another state."""
_BY_CHANCE = (TimedOut, OutOfMemory, Crashed, NotJudged)
_WHEN = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_MOST_RATIO = 1e6


@dataclass(frozen=True)
class Kept:
    """One baseline, right or not, as it was found."""

    verdict: Verdict
    since: str
    """When it was measured: UTC, ISO 8601."""

    def against(self, anchor: Speedup, like: Measured) -> Speedup | None:
        """The speed-up over this baseline of what has that one over the anchor and is timed as `like` is; None where
        this baseline was not timed so."""
        met = self._over_anchor(like.covers, like.how)
        if met is None:
            return None
        found = quotient(anchor.rounds, met.rounds).reported
        middle = sorted(met.rounds)[len(met.rounds) // 2]
        rounds = tuple(ratio / middle for ratio in anchor.rounds)
        return Speedup(self.verdict.candidate, found.value, (found.low, found.high), rounds, self.since)

    def _over_anchor(self, covers: str, how: str) -> Speedup | None:
        for timing in _timings(self.verdict):
            if (timing.covers, timing.how) == (covers, how):
                return timing.speedup_over(ANCHOR)
        return None

    def anchor_ms(self, like: Measured) -> float:
        """What the anchor took when they met; 0 where they did not so."""
        for timing in _timings(self.verdict):
            over = timing.speedup_over(ANCHOR)
            if over and (timing.covers, timing.how) == (like.covers, like.how):
                return timing.median_ms * over.ratio
        return 0.0


class KeptBaselines:
    """`<home>/baselines/<key>/<name>.json`. What is not in order there counts as absent, and is measured anew."""

    def __init__(self, *parts: Any) -> None:
        """`parts` is all that a baseline's time depends on."""
        self.key = store.key_of(SCHEMA, *parts)
        self.folder: Path = store.home() / "baselines" / self.key

    def recall(self, baselines: Iterable[Baseline]) -> dict[str, Kept]:
        """Those that are kept, by name; never the anchor, which always takes turns."""
        names = [baseline.name for baseline in baselines]
        if ANCHOR not in names:
            return {}  # nothing to compare through
        found = {name: self._read(name) for name in names if name != ANCHOR}
        return {name: kept for name, kept in found.items() if kept is not None}

    def keep(self, verdicts: Iterable[Verdict]) -> str:
        """Keeps what chance had no part in; what went wrong with that, or nothing."""
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        try:
            for verdict in verdicts:
                if verdict.candidate != ANCHOR and _is_sound(verdict, verdict.candidate):
                    data = {"schema": SCHEMA, "key": self.key, "since": since, "verdict": to_json(verdict)}
                    text = json.dumps(data, indent=1, allow_nan=False)
                    store.write_text(self.folder / f"{verdict.candidate}.json", text)
        except StoreError as error:
            return str(error)
        return ""

    def _read(self, name: str) -> Kept | None:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            data = json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))
            verdict, since = from_json(data["verdict"]), data["since"]
            in_order = data["schema"] == SCHEMA and data["key"] == self.key and _WHEN.fullmatch(since)
            if in_order and _is_sound(verdict, name):
                return Kept(replace(verdict, cached=True), since)
        return None


def through_anchor(record: Measured, kept: Sequence[Kept]) -> Measured:
    """The record with its speed-ups over kept baselines too."""
    anchor = record.speedup_over(ANCHOR)
    if anchor is None:
        return record
    found = [speedup for one in kept if (speedup := one.against(anchor, record))]
    return replace(record, speedups=(*record.speedups, *found))


def told(kept: Sequence[Kept], anchor: Verdict | None) -> tuple[Finding, ...]:
    """That baselines were not run, since when, and whether the anchor still is what it was then."""
    right = [one for one in kept if isinstance(one.verdict.outcome, Passed)]
    if not kept:
        return ()
    since = min(one.since for one in kept)
    names = ", ".join(one.verdict.candidate for one in kept)
    evidence = f"{names}, measured since {since}; compared through {ANCHOR}, which takes turns with every candidate"
    found = [Finding("baselines are kept from an earlier run", evidence, "--fresh-baselines measures them anew")]
    now = anchor.timing if anchor and isinstance(anchor.timing, Measured) else None
    then = max((one.anchor_ms(now) for one in right), default=0.0) if now else 0.0
    if now and then and not 1 / OFF <= now.median_ms / then <= OFF:
        words = f"{ANCHOR} took {then:.3g} ms beside them and takes {now.median_ms:.3g} ms now"
        found.append(Finding("kept baselines may be of another machine", words, "measure anew: --fresh-baselines"))
    return tuple(found)


def _timings(verdict: Verdict) -> list[Measured]:
    return [timing for timing in (verdict.timing, *verdict.further) if isinstance(timing, Measured)]


def _is_sound(verdict: Any, name: str) -> bool:
    """Whether it is a baseline's verdict that can be kept, with figures that can be."""
    if not isinstance(verdict, Verdict) or verdict.candidate != name or not isinstance(verdict.outcome, Outcome):
        return False
    timings = _timings(verdict)
    if not isinstance(verdict.outcome, Passed):
        return not isinstance(verdict.outcome, _BY_CHANCE)
    return isinstance(verdict.timing, Measured) and all(_is_plausible(timing) for timing in timings)


def _is_plausible(timing: Measured) -> bool:
    over = timing.speedup_over(ANCHOR)
    if over is None or len(over.rounds) < 2:
        return False
    ratios = [over.ratio, *over.interval, *over.rounds]
    return _is_time(timing.median_ms) and all(_is_time(ratio) and ratio < _MOST_RATIO for ratio in ratios)


def _is_time(value: Any) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool) and math.isfinite(value) and value > 0
