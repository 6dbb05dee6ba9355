"""What `benchmarks/kernelbench.py` found, as a record, a table and a plot."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

COVERS = ("forward", "forward+backward")
REWRITTEN = "algebraic rewrite"
"""Of a plan: what such tasks gain is told apart."""
TIE = "best"
"""The faster of torch.compile and max-autotune, by medians."""
RULE = "allclose_0.0001"
TEMPLATE = Path(__file__).with_name("kernelbench.svg.jinja")
CURVE = Path(__file__).with_name("kernelbench_curve.svg.jinja")
WIDTH, LEFT, RIGHT, TOP, ROW = 980, 330, 956, 70, 15


def report(folder: Path, level: int) -> str:
    """Writes record.json, table.md, plot.svg and curve.svg into the folder. Returns the summary."""
    columns = {place.name: held(place) for place in sorted(folder.iterdir()) if (place / "header.json").exists()}
    found = {name: {**header, "summary": summary(tasks), "tasks": tasks} for name, (header, tasks) in columns.items()}
    (folder / "record.json").write_text(json.dumps({"level": level, "columns": found}, indent=1) + "\n")
    (folder / "table.md").write_text("\n\n".join(table(name, each["tasks"]) for name, each in found.items()) + "\n")
    (folder / "plot.svg").write_text(drawn(level, found))
    (folder / "curve.svg").write_text(curve(level, found))
    return "\n\n".join(told(name, each) for name, each in found.items())


def held(place: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """A column's header, and its tasks by name in the order of their numbers."""
    files = [file for file in place.glob("*.json") if file.name != "header.json"]
    files.sort(key=lambda file: int(file.stem.split("_")[0]))
    return json.loads((place / "header.json").read_text()), {f.stem: json.loads(f.read_text()) for f in files}


def over(found: Mapping[str, Any], covers: str, baseline: str) -> Mapping[str, Any] | None:
    """A right task's speed-up over a baseline, or over the better of two."""
    if covers not in found or not found.get("right"):
        return None
    speedups = found[covers]["over"]
    if baseline != TIE:
        return speedups.get(baseline)  # type: ignore[no-any-return]
    rivals = [speedups[name] for name in ("compile", "max-autotune") if name in speedups]
    return min(rivals, key=lambda each: each["ratio"], default=None)


def summary(tasks: Mapping[str, Any]) -> dict[str, Any]:
    """How many are written and right; for each direction and baseline how many are faster, tied (the interval holds
    1) and slower, the geometric mean, and the least; the same without tasks that were rewritten."""
    own = {name: found for name, found in tasks.items() if not found.get("rewritten")}
    counts = {
        "tasks": len(tasks),
        "written": sum("refused" not in found for found in tasks.values()),
        "right": sum(bool(found.get("right")) for found in tasks.values()),
        "rewritten": len(tasks) - len(own),
        "handed over": {covers: sum(_is_handed(found, covers) for found in tasks.values()) for covers in COVERS},
    }
    return {**counts, "allclose": _allclose(tasks), "all": _shares(tasks), "without rewritten": _shares(own)}


def _is_handed(found: Mapping[str, Any], covers: str) -> bool:
    """Whether torch.compile computes it, in the file that is measured."""
    ratio = found.get("beside", {}).get(covers)
    return ratio is not None and ratio < 1


def _allclose(tasks: Mapping[str, Any]) -> dict[str, Any]:
    """By the benchmark's own rule, 1e-4 of strict float32: how many of eager's and of ours, and who eager's alone."""
    passed = {
        who: {name for name, found in tasks.items() if found.get(who, {}).get(RULE)} for who in ("eager", "written")
    }
    counts = {who: len(names) for who, names in passed.items()}
    return {**counts, "eager alone": [name for name in tasks if name in passed["eager"] - passed["written"]]}


def _shares(tasks: Mapping[str, Any]) -> dict[str, Any]:
    return {
        covers: {
            name: _share(found)
            for name in ("eager", "compile", "max-autotune", TIE)
            if (found := [s for task in tasks.values() if (s := over(task, covers, name))])
        }
        for covers in COVERS
    }


def _share(speedups: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    ratios = [each["ratio"] for each in speedups]
    ties = sum(each["interval"][0] <= 1 <= each["interval"][1] for each in speedups)
    faster = sum(each["interval"][0] > 1 for each in speedups)
    return {
        "tasks": len(ratios),
        "faster": faster,
        "ties": ties,
        "slower": len(ratios) - faster - ties,
        "fast_1": sum(each >= 1 for each in ratios),
        "fast_1.5": sum(each >= 1.5 for each in ratios),
        "fast_2": sum(each >= 2 for each in ratios),
        "geometric_mean": math.exp(math.fsum(map(math.log, ratios)) / len(ratios)),
        "least": min(ratios),
    }


def told(name: str, column: Mapping[str, Any]) -> str:
    """The summary in lines."""
    found = column["summary"]
    lines = [f"{name}: {found['tasks']} tasks, {found['written']} written, {found['right']} right, "
             f"{found['rewritten']} by an {REWRITTEN}"]  # fmt: skip
    handed = found.get("handed over", {})
    if any(handed.values()):
        lines.append(f"  left to torch.compile, which was faster: {', '.join(f'{n} {c}' for c, n in handed.items())}")
    close = found["allclose"]
    lines.append(f"  by the benchmark's own rule of 1e-4: eager {close['eager']}, ours {close['written']}; "
                 f"eager alone: {', '.join(close['eager alone']) or 'none'}")  # fmt: skip
    for which in ("all", "without rewritten"):
        for covers, shares in found[which].items():
            for baseline, s in shares.items():
                lines.append(
                    f"  {which}, {covers} over {baseline}: fast_1 {s['fast_1']} of {s['tasks']} ({s['faster']} faster, "
                    f"{s['ties']} ties, {s['slower']} slower), fast_1.5 {s['fast_1.5']}, fast_2 {s['fast_2']}, "
                    f"geometric mean {s['geometric_mean']:.3f}, least {s['least']:.3f}"
                )
    lines += [f"  look at {task}: {words}" for task, f in column["tasks"].items() if (words := _trouble(f))]
    return "\n".join(lines)


def _trouble(found: Mapping[str, Any]) -> str:
    """Why a task does not count; empty where it does."""
    for word in ("refused", "failed"):
        if word in found:
            return f"{word}: {found[word][-300:]}"
    if not found["right"]:
        return f"wrong: written {found['written']}, eager {found['eager']}"
    failed = [f"{covers}: {found[covers]['failed']}" for covers in COVERS if found.get(covers, {}).get("failed")]
    return "; ".join(failed)


def table(column: str, tasks: Mapping[str, Any]) -> str:
    """Milliseconds, and the speed-up over the better of the compiled with its interval."""
    head = [f"{covers}: {word}" for covers in ("forward", "f+b") for word in ("eager", "compiled", "ours", "over it")]
    lines = [f"## {column}", "", f"| task | {' | '.join(head)} | |", f"|---{'|---' * len(head)}|---|"]
    for name, found in tasks.items():
        cells = [cell for covers in COVERS for cell in _cells(found, covers)]
        handed = [covers for covers in COVERS if _is_handed(found, covers)]
        note = "rewritten" if found.get("rewritten") else ""
        note += f" torch.compile's: {', '.join(handed)}" if handed else ""
        lines.append(f"| {name.replace('_', ' ')} | {' | '.join(cells)} | {_trouble(found)[:80] or note} |")
    return "\n".join(lines)


def _cells(found: Mapping[str, Any], covers: str) -> list[str]:
    medians = found.get(covers, {}).get("median_ms", {})
    best = min((medians[name] for name in ("compile", "max-autotune") if name in medians), default=None)
    speedup = over(found, covers, TIE) or over(found, covers, "eager")
    words = [f"{ms:.4g}" if ms is not None else "-" for ms in (medians.get("eager"), best, medians.get("written"))]
    if speedup is None:
        return [*words, "-"]
    return [*words, f"{speedup['ratio']:.3g} [{speedup['interval'][0]:.3g}, {speedup['interval'][1]:.3g}]"]


def short(device: str) -> str:
    """H100, of NVIDIA H100 80GB HBM3."""
    return device.removeprefix("NVIDIA ").split()[0]


def drawn(level: int, columns: Mapping[str, Any]) -> str:
    """The first column's speed-ups on a logarithmic axis, a row for each task, the largest forward first."""
    column, found = next(iter(columns.items()), ("", {"tasks": {}, "device": ""}))
    rows = []
    for name, task in found["tasks"].items():
        dots = {c: s for c in COVERS if (s := over(task, c, TIE) or over(task, c, "eager"))}
        if dots:
            rows.append((name, task, dots))
    rows.sort(key=lambda row: -next(iter(row[2].values()))["ratio"])
    low, high = _ends([s["ratio"] for _, _, dots in rows for s in dots.values()])

    def at(ratio: float) -> float:
        return round(LEFT + (math.log2(ratio) - low) / (high - low) * (RIGHT - LEFT), 1)

    ticks = [{"x": at(tick), "words": f"{tick:g}"} for tick in _ticks(low, high)]
    lines = [
        {
            "y": TOP + ROW * place + ROW // 2,
            "task": " ".join(name.split("_"))[:50] + (" (rewritten)" if task.get("rewritten") else ""),
            "dots": [
                {"name": "both" if "+" in covers else "forward", "x": at(s["ratio"]), "low": at(s["interval"][0]),
                 "high": at(s["interval"][1]), "words": f"{name}, {covers}: {s['ratio']:.3g}"}
                for covers, s in dots.items()
            ],
        }
        for place, (name, task, dots) in enumerate(rows)
    ]  # fmt: skip
    bottom = TOP + ROW * len(lines)
    return _rendered(
        TEMPLATE, title=_title(level, column, found), width=WIDTH, height=bottom + 30, top=TOP, bottom=bottom,
        one=at(1.0), ticks=ticks, rows=lines,
    )  # fmt: skip


def curve(level: int, columns: Mapping[str, Any]) -> str:
    """The first column's speed-ups, forward's and both's each in order: how many tasks are how fast."""
    column, found = next(iter(columns.items()), ("", {"tasks": {}, "device": ""}))
    sorted_ = {}
    for covers in COVERS:
        speedups = {n: over(task, covers, TIE) or over(task, covers, "eager") for n, task in found["tasks"].items()}
        sorted_[covers] = sorted((each["ratio"], name) for name, each in speedups.items() if each)
    low, high = _ends([ratio for each in sorted_.values() for ratio, _ in each])
    left, right, top, bottom = 52, WIDTH - 16, 64, 320

    def at(ratio: float) -> float:
        return round(bottom - (math.log2(ratio) - low) / (high - low) * (bottom - top), 1)

    series = [
        {
            "name": "both" if "+" in covers else "forward",
            "dots": [
                {"x": round(left + (place + 0.5) / len(each) * (right - left), 1), "y": at(ratio),
                 "words": f"{name}, {covers}: {ratio:.3g}"}
                for place, (ratio, name) in enumerate(each)
            ],
        }
        for covers, each in sorted_.items()
    ]  # fmt: skip
    ticks = [{"y": at(tick), "words": f"{tick:g}"} for tick in _ticks(low, high)]
    return _rendered(
        CURVE, title=_title(level, column, found), width=WIDTH, height=bottom + 28, left=left, right=right,
        bottom=bottom, one=at(1.0), ticks=ticks, series=series, count=max(map(len, sorted_.values())),
    )  # fmt: skip


def _ends(ratios: Sequence[float]) -> tuple[float, float]:
    """Of a logarithmic axis."""
    return math.log2(min([0.7, *ratios])) - 0.2, math.log2(max([2.0, *ratios])) + 0.2


def _ticks(low: float, high: float) -> list[float]:
    return [2.0**k for k in range(math.ceil(low), math.floor(high) + 1)]


def _title(level: int, column: str, found: Mapping[str, Any]) -> str:
    tasks = f"KernelBench level {level}" if level else "Networks"
    better = "the better of torch.compile's" if "max-autotune" in found.get("baselines", ()) else "torch.compile"
    return f"{tasks} on {found['device']}, {column}: times as fast as {better}"


def _rendered(template: Path, **what: Any) -> str:
    environment = Environment(autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    return environment.from_string(template.read_text()).render(**what)
