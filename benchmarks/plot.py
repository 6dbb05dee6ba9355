"""Draws the three written tasks as an SVG: milliseconds on a logarithmic axis, beside PyTorch's and what is asked.

    python benchmarks/plot.py benchmarks/results/written_tasks_h200.json benchmarks/results/written_tasks_h200.svg

The first file is what `benchmarks/written_modules.py` records; what must be reached, what is aimed at and the floors
are in `benchmarks/results/targets.json`, as far as they are known. The same files give the same text.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

TARGETS = Path(__file__).parent / "results/targets.json"
COVERS = ("forward", "forward+backward")
DOTS = {"written": "written by Crucible", "compile": "torch.compile", "eager": "eager PyTorch"}
BELOW = "eager"
"""Its time stands below: torch.compile's is often near."""
MARKS = {"floor": "floor", "aim": "aim", "must": "must"}
WIDTH, LEFT, RIGHT, TOP, ROW = 860, 300, 836, 66, 40
TEMPLATE = Path(__file__).with_name("plot.svg.jinja")


@dataclass(frozen=True)
class Axis:
    """Milliseconds to places, by their logarithms."""

    low: float
    high: float

    def __call__(self, ms: float) -> float:
        part = (math.log10(ms) - self.low) / (self.high - self.low)
        return round(LEFT + part * (RIGHT - LEFT), 1)

    def ticks(self) -> list[dict[str, Any]]:
        """One to nine times each power of ten, those of one with words."""
        powers = range(math.floor(self.low), math.ceil(self.high) + 1)
        values = [n * 10.0**power for power in powers for n in range(1, 10)]
        inside = [value for value in values if self.low <= math.log10(value) <= self.high]
        one = {10.0**power for power in powers}
        return [{"x": self(value), "words": f"{value:g}" if value in one else ""} for value in inside]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("svg", type=Path)
    args = parser.parse_args()
    args.svg.write_text(drawn(json.loads(args.record.read_text()), json.loads(TARGETS.read_text())["tasks"]))


def drawn(record: Mapping[str, Any], targets: Mapping[str, Any]) -> str:
    """The plot of a record's modules that have targets."""
    each = [(name, covers) for name in targets if name in record["modules"] for covers in COVERS]
    values = {at: _values(record["modules"][at[0]][at[1]], targets[at[0]][at[1]]) for at in each}
    every = [math.log10(ms) for found in values.values() for ms in found.values()]
    axis = Axis(min(every) - 0.1, max(every) + 0.1)
    rows = [_row(number, at, values[at], axis) for number, at in enumerate(each)]
    bottom = TOP + ROW * len(rows)
    shown = {name for found in values.values() for name in found}
    names = [name for name in (*DOTS, *MARKS) if name in shown]
    starts = [12 + 10.0 + sum(24 + 7 * len((DOTS | MARKS)[name]) for name in names[:i]) for i in range(len(names))]
    legend = [
        {"name": name, "words": (DOTS | MARKS)[name], "dot": name in DOTS, "x": x}
        for name, x in zip(names, starts, strict=True)
    ]
    title = f"Three tasks on an {record['device']}, torch {record['versions']['torch']}"
    environment = Environment(autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    return environment.from_string(TEMPLATE.read_text()).render(
        title=title, width=WIDTH, height=bottom + 42, top=TOP, bottom=bottom, left=LEFT, right=RIGHT,
        ticks=axis.ticks(), rows=rows, legend=legend,
    )  # fmt: skip


def _values(found: Mapping[str, Any], targets: Mapping[str, float]) -> dict[str, float]:
    """Milliseconds by the name of a dot or a mark."""
    dots = {name: found["median_ms"][name] for name in DOTS}
    return dots | {name: targets[name] for name in MARKS if name in targets}


def _row(number: int, at: tuple[str, str], values: Mapping[str, float], axis: Axis) -> dict[str, Any]:
    task, covers = at
    places = [axis(ms) for ms in values.values()]
    words = {name: f"{(DOTS | MARKS)[name]}: {ms:.3g} ms" for name, ms in values.items()}
    parts = task.split("_")
    return {
        "y": TOP + ROW * number + ROW // 2,
        "task": "" if number % len(COVERS) else " → ".join([parts[0], "…", parts[-1]]),
        "covers": covers,
        "low": min(places),
        "high": max(places),
        "dots": [
            {"name": n, "x": axis(values[n]), "words": words[n], "label": f"{values[n]:.3g}", "below": n == BELOW}
            for n in DOTS
        ],
        "marks": [{"name": n, "x": axis(values[n]), "words": words[n]} for n in MARKS if n in values],
    }


if __name__ == "__main__":
    main()
