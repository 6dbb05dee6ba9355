"""The roofline plot: what the device allows, the task's place under it, and how near each candidate comes.

Rates that candidates reach count the work that no fusion saves, so all of them stand above one place of the axis:
the task's own operations by its own bytes. The vertical distance to the roof is the factor left to gain.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from crucible.judge.verdict.evidence import Measured
from crucible.judge.verdict.verdict import Verdict
from crucible.roofline import Floor
from crucible.run import Run

WIDTH, HEIGHT = 480, 340
LEFT, RIGHT, TOP, BOTTOM = 54, 470, 14, 296
TEXT = 15
"""Between two labels' lines."""
MOST_LABELS = 14
LONGEST = 30
"""Characters of a label; the rest is in its title."""
_NEED = re.compile(r"([\d.e+]+) ([kMGTP]?)(B|FLOP)[\w ]*? at ([\d.e+]+) ([kMGTP]?)(?:B|FLOP)/s")
_PREFIX = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}


@dataclass(frozen=True)
class Work:
    """What a floor was made of."""

    bytes_moved: float
    bandwidth: float
    """Bytes a second."""
    flops: float
    rate: float
    """Operations a second."""

    @property
    def intensity(self) -> float:
        """Operations for each byte."""
        return self.flops / self.bytes_moved

    @property
    def ridge(self) -> float:
        """The intensity from which on arithmetic is the limit."""
        return self.rate / self.bandwidth

    def roof(self, intensity: float) -> float:
        """Operations a second that the device allows there."""
        return min(self.rate, intensity * self.bandwidth)


@dataclass(frozen=True)
class Tick:
    """A line of the grid."""

    at: float
    label: str


@dataclass(frozen=True)
class Dot:
    """A candidate, a baseline or the floor."""

    name: str
    label: str
    """What stands beside it; empty where there is no room."""
    y: float
    label_y: float
    share: str
    """Of the floor."""
    style: str
    """`best`, `candidate`, `baseline` or `floor`."""


@dataclass(frozen=True)
class Plot:
    """In the units of its viewBox."""

    covers: str
    x: float
    """Of all dots."""
    roof: tuple[tuple[float, float], ...]
    dots: tuple[Dot, ...]
    ticks_x: tuple[Tick, ...]
    ticks_y: tuple[Tick, ...]
    bandwidth: str
    rate: str
    intensity: str
    words: str
    """What is the limit, and where the floor is."""


@dataclass(frozen=True)
class _Scale:
    """Logarithms to places."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        part = (math.log10(value) - self.low) / (self.high - self.low)
        return round(self.start + part * (self.stop - self.start), 2)

    def ticks(self) -> list[float]:
        """Powers of ten inside."""
        return [10.0**power for power in range(math.ceil(self.low), math.floor(self.high) + 1)]


def plot(run: Run, floor: Floor) -> Plot | None:
    """None where nothing was timed, or the floor does not say what it was made of."""
    work, timed = work_of(floor), _timed(run, floor.covers)
    if work is None or not timed:
        return None
    across = _across(work)
    rates = [work.flops / (ms * 1e-3) for _, ms, _ in timed]
    top = work.roof(10**across.high)
    best_possible = work.roof(work.intensity)
    up = _Scale(math.log10(min(best_possible, *rates) / 3), math.log10(max(top, *rates) * 1.6), BOTTOM, TOP)
    found = [("floor", floor.time_ms, "floor"), *timed]
    ends = [10**across.low, min(max(work.ridge, 10**across.low), 10**across.high), 10**across.high]
    return Plot(
        floor.covers,
        across(work.intensity),
        tuple((across(at), up(max(work.roof(at), 10**up.low))) for at in _from_bottom(ends, work, up)),
        _dots(found, [best_possible, *rates], up),
        tuple(Tick(across(value), _plain(value)) for value in across.ticks()),
        tuple(Tick(up(value), _in_words(value)) for value in up.ticks()),
        f"{_in_words(work.bandwidth)}B/s",
        f"{_in_words(work.rate)}FLOP/s",
        f"{work.intensity:.3g}",
        _words(work, floor),
    )


def work_of(floor: Floor) -> Work | None:
    """Amounts and rates, which a floor keeps in its words alone; None where these name no bytes, or no operations."""
    needs = {found[3]: found for found in _NEED.finditer(floor.words)}
    if set(needs) != {"B", "FLOP"}:
        return None
    amounts = [float(needs[unit][1]) * _PREFIX[needs[unit][2]] for unit in ("B", "FLOP")]
    rates = [float(needs[unit][4]) * _PREFIX[needs[unit][5]] for unit in ("B", "FLOP")]
    work = Work(amounts[0], rates[0], amounts[1], rates[1])
    return work if min(*amounts, *rates) > 0 else None


def _timed(run: Run, covers: str) -> list[tuple[str, float, str]]:
    """Name, milliseconds and style of all that has a time for this part of the work, the fastest first."""
    baselines = {verdict.candidate for verdict in run.ground.baselines}
    found = []
    for verdict in (*run.verdicts, *run.ground.baselines):
        ms = _median(verdict, covers)
        if verdict.evaluation and ms > 0:
            style = "baseline" if verdict.candidate in baselines else "candidate"
            found.append((verdict.candidate, ms, "best" if verdict.candidate == run.best else style))
    return sorted(found, key=lambda row: row[1])


def _median(verdict: Verdict, covers: str) -> float:
    timings = [t for t in (verdict.timing, *verdict.further) if isinstance(t, Measured) and t.how == "as called"]
    return next((timing.median_ms for timing in timings if timing.covers == covers), 0.0)


def _across(work: Work) -> _Scale:
    """The task's place is at three tenths, so that labels have room beside it, and the ridge is in view."""
    place, ridge = math.log10(work.intensity), math.log10(work.ridge)
    decades = max(2.5, (ridge - place + 0.4) / 0.7, (place - ridge + 0.4) / 0.3)
    return _Scale(place - 0.3 * decades, place + 0.7 * decades, LEFT, RIGHT)


def _from_bottom(ends: Sequence[float], work: Work, up: _Scale) -> list[float]:
    """The roof's corners, from where it comes into view."""
    entry = 10**up.low / work.bandwidth
    return [entry, *(end for end in ends if end > entry)] if entry > ends[0] else list(ends)


def _dots(found: Sequence[tuple[str, float, str]], rates: Sequence[float], up: _Scale) -> tuple[Dot, ...]:
    """The floor first, then down."""
    places = [up(rate) for rate in rates]
    labels = [places[0], *_spread(places[1:MOST_LABELS])]
    dots = []
    for i, (name, ms, style) in enumerate(found):
        label, place = (f"{_cut(name)}  {ms:.3g} ms", labels[i]) if i < len(labels) else ("", places[i])
        dots.append(Dot(name, label, places[i], place, f"{found[0][1] / ms:.1%}", style))
    return tuple(dots)


def _spread(places: Sequence[float]) -> list[float]:
    """Places at least a line apart, near those wanted, which come from top to bottom; none leaves the plot."""
    if not places:
        return []
    spread = [max(places[0], TOP + 8.0)]
    for place in places[1:]:
        spread.append(max(place, spread[-1] + TEXT))
    limit = BOTTOM - 6.0
    for i in reversed(range(len(spread))):
        spread[i] = min(spread[i], limit)
        limit = spread[i] - TEXT
    return [round(place, 2) for place in spread]


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"


def _plain(value: float) -> str:
    return f"{value:g}"


def _in_words(value: float) -> str:
    """`4.26 T`, `100 G`."""
    unit = max((unit for unit in _PREFIX if _PREFIX[unit] <= value * 1.0005), key=lambda u: _PREFIX[u], default="")
    return f"{value / _PREFIX[unit]:.3g} {unit}"


def _words(work: Work, floor: Floor) -> str:
    limit = "bandwidth" if work.intensity < work.ridge else "arithmetic"
    return (
        f"{work.intensity:.3g} operations for each byte, where the roof bends at {work.ridge:.3g}: {limit} is the "
        f"limit, and {floor.time_ms:.3g} ms the floor of {floor.covers}. Of it reach:"
    )
