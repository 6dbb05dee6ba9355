"""Whether two recordings of the verdicts, made one after the other on one device, tell the same story.

    python benchmarks/compare_runs.py FIRST SECOND [--json FILE]

For each pair of candidates of a task that the first run ranks apart, the second must not rank them the other way
round; a tie in either run is no contradiction. Exit code 1 when one is.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found = compare(json.loads(args.first.read_text()), json.loads(args.second.read_text()))
    print(markdown(found))
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    sys.exit(1 if found["contradictions"] else 0)


def compare(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Ranks, runtimes and speed-ups side by side, and the pairs that changed their order."""
    rows, contradictions = [], []
    others = {(run["task"], run["contract"]): run for run in second["runs"]}
    for run in first["runs"]:
        pairs = _paired(run, others[run["task"], run["contract"]])
        rows += [{"task": run["task"], **_row(a, b)} for a, b in pairs]
        contradictions += [f"{run['task']}: {a['name']}, {b['name']}" for a, b in _swapped(pairs)]
    keys = ("device", "driver", "versions")
    return {**{key: first[key] for key in keys}, "rows": rows, "contradictions": contradictions}


def markdown(found: dict[str, Any]) -> str:
    lines = ["| task | candidate | rank | ms | over eager | ratio of the two runs |", "|---|---|---|---|---|---|"]
    for row in found["rows"]:
        (one, two), speedups = row["ms"], [_interval(s) for s in row["over_eager"]]
        lines.append(
            f"| {row['task'].split('_')[0]} | {row['name']} | {row['ranks'][0]}, {row['ranks'][1]} "
            f"| {one:.4g}, {two:.4g} | {', '.join(speedups)} | {two / one:.3f} |"
        )
    return "\n".join([*lines, f"contradictions: {', '.join(found['contradictions']) or 'none'}"])


def _paired(one: dict[str, Any], two: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Candidates and baselines that are right in both."""
    entries = {entry["name"]: entry for entry in two["candidates"] + two["baselines"]}
    found = [(a, entries[a["name"]]) for a in one["candidates"] + one["baselines"] if a["name"] in entries]
    return [(a, b) for a, b in found if a["evaluation"] and b["evaluation"]]


def _swapped(pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Candidates whose order differs, a rank apart both times."""
    ranked = [pair for pair in pairs if pair[0]["rank"]]
    return [
        (a[0], b[0])
        for a, b in itertools.combinations(ranked, 2)
        if (a[0]["rank"] - b[0]["rank"]) * (a[1]["rank"] - b[1]["rank"]) < 0
    ]


def _row(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": a["name"],
        "ranks": [a["rank"], b["rank"]],
        "ms": [a["runtime_ms"], b["runtime_ms"]],
        "over_eager": [_over_eager(a), _over_eager(b)],
    }


def _over_eager(entry: dict[str, Any]) -> list[float]:
    """Ratio, low and high; ones for eager itself."""
    found = next((s for s in entry["timing"]["speedups"] if s["baseline"] == "eager"), None)
    return [found["ratio"], *found["interval"]] if found else [1.0, 1.0, 1.0]


def _interval(figures: list[float]) -> str:
    return f"{figures[0]:.3g} [{figures[1]:.3g}, {figures[2]:.3g}]"


if __name__ == "__main__":
    main()
