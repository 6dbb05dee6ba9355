"""A run as Markdown, for pull requests: a table, the cause of each failure, the why of the best.

What a candidate wrote is hostile: its name, a compiler's message that quotes it, a finding that does.
"""

from __future__ import annotations

import re

from crucible import legible
from crucible.explain.source import line_text
from crucible.judge.verdict.evidence import Finding
from crucible.judge.verdict.verdict import Verdict
from crucible.report import cells
from crucible.report.why import findings_of
from crucible.run import Run

MOST = 600
"""Characters of one text that a candidate had a part in."""
_MARKS = re.compile(r"([\\`*_\[\]<>|~!$])")
_REFERS = re.compile(r"(?<=[@#])|(?<=GH)(?=-)|(?<=[Ww])(?=[Ww][Ww]\.)|(?<=:)(?=/)")
"""Where GitHub would see a user, an issue or an address: a space of no width parts it."""


def markdown(run: Run) -> str:
    """GitHub's Markdown, ending in a newline."""
    return "\n".join([*_heading(run), "", *_table(run), "", *_causes(run), *_notes(run)]).rstrip() + "\n"


def escaped(text: str) -> str:
    """One line that is read as it stands: no markup, no HTML, no mention of users or issues, no link. For the middle
    of a line: a list's or a heading's mark at its beginning would be one."""
    line = legible.line(text).strip()
    line = line if len(line) <= MOST else f"{line[:MOST]}…"
    parted = _REFERS.sub("\u200b", line).replace("&", "&amp;")
    return _MARKS.sub(r"\\\1", parted)


def _heading(run: Run) -> list[str]:
    covers = "forward and gradients" if run.task.training else "forward"
    place = f"{run.device.name}, torch {run.versions.get('torch', '-')}"
    emulated = f"; CUDA C++ on the emulator, as {run.gpu}" if run.gpu else ""
    rows = [f"### {escaped(run.task.name)}", ""]
    rows += [escaped(f"{covers}, {run.task.scale} size, contract {run.contract.name}; {place}{emulated}")]
    rows += [f"<br>{escaped(f'floor, {floor.covers}: {floor.words}')}" for floor in run.ground.floors]
    return rows


def _table(run: Run) -> list[str]:
    rivals = cells.rivals(run)
    names = ["", "Candidate", "Evaluation", "Runtime", *(f"over {rival}" for rival in rivals), "of floor", "Error"]
    rows = [("" if rank == "-" else rank, verdict) for rank, verdict in cells.ranked(run)]
    rows += [("baseline", verdict) for verdict in run.ground.baselines]
    aligned = ["---", "---", "---", *["---:"] * (len(names) - 3)]
    return [
        _line(names),
        f"|{'|'.join(aligned)}|",
        *(_line(_row(run, rank, verdict, rivals)) for rank, verdict in rows),
    ]


def _row(run: Run, rank: str, verdict: Verdict, rivals: list[str]) -> list[str]:
    share = run.ground.share_of_floor(verdict.timing) if verdict.evaluation else 0.0
    speedups = [cells.speedup(verdict, rival) for rival in rivals]
    floor = f"{share:.1%}" if share else "-"
    return [
        rank,
        verdict.candidate,
        str(verdict.evaluation),
        cells.time(run, verdict),
        *speedups,
        floor,
        cells.error(verdict),
    ]


def _line(texts: list[str]) -> str:
    return f"| {' | '.join(escaped(text) for text in texts)} |"


def _causes(run: Run) -> list[str]:
    """What did not pass, each with its cause; then the best."""
    rows = []
    for verdict in (verdict for _, verdict in run.ranked):
        if not verdict.evaluation or verdict.candidate == run.best:
            rows += _cause(run, verdict)
    return rows


def _cause(run: Run, verdict: Verdict) -> list[str]:
    found = findings_of(run, verdict)
    said = "the best" if verdict.candidate == run.best else verdict.outcome.kind.replace("-", " ")
    rows = [
        f"- **{escaped(verdict.candidate)}** ({said}): {escaped(found[0].claim if found else verdict.outcome.words)}"
    ]
    return rows + (_details(run, verdict, found[0]) if found else [])


def _details(run: Run, verdict: Verdict, finding: Finding) -> list[str]:
    text = line_text(run.sources.get(verdict.candidate, ""), finding.line)
    rows = [f"  <br>seen: {escaped(finding.evidence)}"]
    rows += [f"  <br>line {finding.line}: {escaped(text)}"] if text and text not in finding.evidence else []
    rows += [f"  <br>do: {escaped(finding.remedy)}"] if finding.remedy else []
    return rows


def _notes(run: Run) -> list[str]:
    notes = [f"- {escaped(model)}"] if (model := cells.model_words(run)) else []
    notes += [f"- check: {escaped(f'{finding.claim} ({finding.evidence})')}" for finding in run.findings]
    return notes + ([f"- trouble: {escaped(run.trouble)}"] if run.trouble else [])
