"""The record of emulator_on_gpu.py: verdicts, counts and tables. Needs neither GPU nor torch."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import sanitizer

from crucible.judge.verdict.sanitizer_reports import Report

Json = dict[str, Any]


def judged(name: str, of: Json) -> str:
    """The verdict on a planted fault by what was kept of its run."""
    found = [Report(report["kind"], report["heading"]) for report in of["reports"]]
    return sanitizer.verdict(of["kind"], found, name=name, same_line=of["same line"], ended=of["ended"] or "")


def emulator_found(of: Json) -> str:
    """Whether the emulator named a planted fault."""
    said = of.get("emulator")
    return "not run" if said is None else "found" if any(w.startswith(of["kind"]) for w in said) else "SILENT"


def summary(record: Json) -> Json:
    """Counts of what came out."""
    verdicts = [of.get("verdict", "does not build") for of in record["faults"].values()]
    tools = [
        said for sort in ("right", "twins") for of in record[sort].values() for said in of.get("tools", {}).values()
    ]
    near = {name: of for name, of in record["right"].items() if "reference" in of}
    return {
        "right kernels": len(record["right"]),
        "right as the reference": sum(of["reference"] <= 1 for of in near.values()),
        "right as the emulator": sum(of["emulator"] is not None and of["emulator"] <= 1 for of in near.values()),
        "faults": len(verdicts),
        "found by the emulator": [emulator_found(of) for of in record["faults"].values()].count("found"),
        "found by the GPU or a tool": sum(verdict.startswith("agrees") for verdict in verdicts),
        "no tool can see": sum(verdict.startswith("cannot see it") for verdict in verdicts),
        "not known": sum(verdict.startswith("not known") for verdict in verdicts),
        "differ": sum(not verdict.startswith(("agrees", "cannot", "not known")) for verdict in verdicts),
        "twins": len(record["twins"]),
        "runs of right kernels and twins under a tool": len(tools),
        "of them clean": tools.count("clean"),
    }


def by_kind(record: Json) -> str:
    """Markdown: a row for each kind of planted fault."""
    rows = ["| kind | planted | emulator | GPU and compute-sanitizer | clean twins |", "|---|---|---|---|---|"]
    kinds: dict[str, list[str]] = {}
    for name, of in sorted(record["faults"].items()):
        kinds.setdefault(of["kind"], []).append(name)
    for kind, names in kinds.items():
        faults = [record["faults"][name] for name in names]
        found = sum(emulator_found(of) == "found" for of in faults)
        verdicts = Counter(of.get("verdict", "does not build") for of in faults)
        said = "; ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
        clean = sum(is_clean(record["twins"].get(name, {})) for name in names)
        rows.append(f"| {kind} | {len(names)} | {found} | {said} | {clean} |")
    return "\n".join(rows)


def is_clean(of: Json) -> bool:
    """Whether a twin or a right kernel ran under a tool, and none said anything."""
    return bool(of.get("tools")) and set(of["tools"].values()) == {"clean"}


def table(record: Json) -> str:
    """Markdown: kinds, then each planted fault by emulator and tool, then what was not as it should be elsewhere."""
    rows = [by_kind(record), ""]
    rows += ["| kind | file | emulator | tool | reports | verdict | twin |", "|---|---|---|---|---|---|---|"]
    for name, of in sorted(record["faults"].items()):
        twin = (
            "; ".join(f"{t}: {said}" for t, said in record["twins"].get(name, {}).get("tools", {}).items()) or "not run"
        )
        reports = "; ".join(report["heading"] for report in of.get("reports", [])) or "-"
        verdict = of.get("verdict", "does not build")
        rows.append(
            f"| {of.get('kind')} | {name} | {emulator_found(of)} | {of.get('tool')} | {reports} | {verdict} | {twin} |"
        )
    for name, of in sorted(record["right"].items()):
        unclean = {tool: said for tool, said in of.get("tools", {}).items() if said != "clean"}
        if unclean or of.get("reference", 2) > 1 or (of.get("emulator") or 0) > 1:
            rows.append(f"\nright kernel {name}: {json.dumps({**of, 'tools': unclean})}")
    return "\n".join([*rows, "", json.dumps(record["summary"], indent=1)])
