"""Numbers of which the page compares any two candidates'."""

from __future__ import annotations

from typing import Any

from crucible.judge.verdict.evidence import Costs, Measured
from crucible.judge.verdict.modelled import Modelled
from crucible.report import cells
from crucible.report.page.facts import Entry, Section

Cell = tuple[str, float | None]
"""As it is read, and the number behind it where two can be divided."""
NONE: Cell = ("-", None)


def compared(section: Section) -> dict[str, Any]:
    """For the script: labels, and for each candidate and baseline its cells in their order."""
    rows = [_row(section, entry) for entry in section.entries]
    labels = list(dict.fromkeys(label for row in rows for label in row))
    cells_of = [[row.get(label, NONE) for label in labels] for row in rows]
    entries = [{"name": entry.name, "cells": found} for entry, found in zip(section.entries, cells_of, strict=True)]
    return {"labels": labels, "entries": entries}


def _row(section: Section, entry: Entry) -> dict[str, Cell]:
    verdict = entry.verdict
    row: dict[str, Cell] = {
        "Evaluation": (str(verdict.evaluation), None),
        "Verdict": (entry.words, None),
        "Runtime": (entry.runtime, verdict.runtime_ms if verdict.runtime_ms > 0 else None),
    }
    if isinstance(verdict.modelled, Modelled):
        row["Modelled, not measured"] = (f"{verdict.modelled.time_ms:.3g} ms", verdict.modelled.time_ms or None)
    row |= {f"Speed-up over {rival}": (words, None) for rival, words in entry.speedups}
    row["Of floor"] = (entry.of_floor, None)
    row["Error, in noise"] = (entry.error, _number(entry.error))
    row |= _costs(verdict.costs) if isinstance(verdict.costs, Costs) else {}
    for timing in verdict.further:
        if isinstance(timing, Measured):
            row[f"{timing.covers.capitalize()}, {timing.how}"] = (cells.medians([timing]), timing.median_ms)
    for one in verdict.resources:
        row[f"{one.kernel}: registers"] = (str(one.registers), one.registers)
        row[f"{one.kernel}: occupancy"] = (f"{one.occupancy:.0%}", one.occupancy)
    row["Build"] = (f"{verdict.build_s:.1f} s", verdict.build_s)
    return row


def _costs(costs: Costs) -> dict[str, Cell]:
    return {
        "Kernels launched": (str(costs.launches), costs.launches),
        "Time in kernels": (f"{costs.busy_ms:.4g} ms", costs.busy_ms),
        "First kernel to last": (f"{costs.span_ms:.4g} ms", costs.span_ms),
        "Peak memory": (cells.size(costs.peak_bytes), costs.peak_bytes),
        "Allocations": (str(costs.allocations), costs.allocations),
        "First call": (f"{costs.first_call_s:.2g} s", costs.first_call_s),
    }


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None
