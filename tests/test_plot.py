"""The plot of the written tasks shows what was recorded."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results"
RECORD, PLOT = RESULTS / "written_tasks_h200.json", RESULTS / "written_tasks_h200.svg"
SVG = "{http://www.w3.org/2000/svg}"


def drawn(record: Path, file: Path) -> str:
    command = [sys.executable, str(ROOT / "benchmarks/plot.py"), str(record), str(file)]
    subprocess.run(command, check=True)
    return file.read_text()


def test_the_committed_plot_is_the_recorded_one(tmp_path: Path) -> None:
    assert PLOT.read_text() == drawn(RECORD, tmp_path / "plot.svg")


def test_it_stands_in_the_readme() -> None:
    assert "(benchmarks/results/written_tasks_h200.svg)" in (ROOT / "README.md").read_text()


def test_every_time_stands_at_its_logarithm(tmp_path: Path) -> None:
    """Read back from the picture: all of the record and of the targets, at equal distances for equal factors."""
    record = json.loads(RECORD.read_text())
    first = next(iter(record["modules"].values()))
    first["forward"]["median_ms"]["written"] = 0.0123
    (tmp_path / "record.json").write_text(json.dumps(record))
    root = ElementTree.fromstring(drawn(tmp_path / "record.json", tmp_path / "plot.svg"))
    targets = json.loads((RESULTS / "targets.json").read_text())["tasks"]
    rows = root.findall(f"{SVG}g")
    wanted = [(name, covers) for name in targets for covers in ("forward", "forward+backward")]
    assert len(rows) == len(wanted) == 6
    decade = 0.0
    for row, (name, covers) in zip(rows, wanted, strict=True):
        found = {dot.get("class"): float(dot.get("cx", "")) for dot in row.findall(f"{SVG}circle")}
        marks = (line for line in row.findall(f"{SVG}line") if line.get("class") != "line")
        found |= {mark.get("class"): float(mark.get("x1", "")) for mark in marks}
        times = {**record["modules"][name][covers]["median_ms"], **targets[name][covers]}
        assert found.keys() == times.keys()
        decade = decade or (found["eager"] - found["floor"]) / math.log10(times["eager"] / times["floor"])
        for one in found:
            assert abs(found["eager"] - found[one] - decade * math.log10(times["eager"] / times[one])) < 0.2, one
    assert decade > 50
