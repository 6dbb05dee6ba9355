"""Findings from what compute-sanitizer said of a candidate on a GPU."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from crucible.explain.faults import KINDS
from crucible.judge.verdict.evidence import Finding
from crucible.judge.verdict.sanitizer_reports import Report, Sanitized
from crucible.judge.verdict.verdict import IllegalAccess, LaunchError, Passed, Verdict
from crucible.run import Run


def reported_of_what_failed(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """The tools' reports on a candidate that is not right: a kernel of its own that the GPU was stopped by is the
    cause, others may be."""
    if not isinstance(verdict.outcome, Passed):
        ended = isinstance(verdict.outcome, IllegalAccess | LaunchError)
        for tool, report in _reports(verdict):
            own = _is_own(report, run.sources.get(verdict.candidate, ""))
            yield _finding(tool, report, "certain" if ended and own and tool == "memcheck" else "likely")


def reported_of_what_passed(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """The same of a candidate whose answer is right."""
    if isinstance(verdict.outcome, Passed):
        for tool, report in _reports(verdict):
            yield _finding(tool, report, "possible", "; the answer is right all the same")


def tools_that_ended_early(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """Tools that could not look at all of it, whose silence says nothing."""
    if isinstance(verdict.sanitizer, Sanitized):
        for one in verdict.sanitizer.runs:
            if one.ended:
                yield Finding(
                    f"{one.tool} did not come to its end",
                    f"it {one.ended}; {len(one.reports)} reports until then",
                    "judge it with --sanitize at a smaller size (--scale small, --shape)",
                )


def _reports(verdict: Verdict) -> Iterator[tuple[str, Report]]:
    """Those of a kind that has a name, by the first tool that has them; the rest are errors of a tool, or of the
    process that it watched."""
    seen = set()
    for one in verdict.sanitizer.runs if isinstance(verdict.sanitizer, Sanitized) else ():
        for report in one.reports:
            what = (report.kind, report.kernel, report.file, report.lines)
            if report.kind in KINDS and what not in seen:
                seen.add(what)
                yield one.tool, report


def _finding(tool: str, report: Report, confidence: str, beside: str = "") -> Finding:
    claim, remedy = KINDS[report.kind]
    times = f"{report.count} time{'s' if report.count > 1 else ''}"
    return Finding(
        f"{_subject(report)} {claim}: {_what(report)}{_who(report)}{_where(report)}{beside}",
        f"{tool} reported it {times}: {'; '.join(report.text.splitlines())}",
        f"{remedy}; compute-sanitizer saw it {times}",
        confidence,
        report.python_line,
        report.kernel,
    )


def _subject(report: Report) -> str:
    if report.kernel:
        return f"`{report.kernel}`"
    return "a copy between GPU and host" if report.heading.startswith("Host API") else "a kernel"


def _what(report: Report) -> str:
    """The tool's heading, as far as it says what was done; of a race, which accesses."""
    accesses = Counter(access.lower() for access in re.findall(r"\b(Read|Write) access at", report.text))
    if accesses:
        return " and ".join(f"{count} {access}{'s' if count > 1 else ''}" for access, count in accesses.items())
    return re.split(r" \(error \d", report.heading)[0].rstrip(".")


def _who(report: Report) -> str:
    return f" by thread {report.thread} in block {report.block}" if report.thread else ""


def _where(report: Report) -> str:
    if report.python_line:
        return f", line {report.python_line}"
    others = [line for line in dict.fromkeys(report.lines) if line != report.line]
    also = f" and {', '.join(map(str, others))}" if others else ""
    return f", {report.file}:{report.line}{also}" if report.line else ""


def _is_own(report: Report, source: str) -> bool:
    name = re.match(r"\w+", report.kernel)
    return name is not None and re.search(rf"\b{name[0]}\b", source) is not None
