"""JUnit XML of runs, for CI systems: a suite a task, a test case a candidate.

There is no one schema. What is written keeps to what Jenkins' (junit-10.xsd) and Ant's (JUnit.xsd, stricter) both
take: a case holds at most one child, all else stands in the suite.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Sequence
from xml.etree import ElementTree

from crucible import legible
from crucible.judge.verdict.verdict import NotJudged, Verdict
from crucible.report import cells
from crucible.report.scanning import file_of, line_of
from crucible.report.why import findings_of
from crucible.run import Run

_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(runs: Sequence[Run]) -> str:
    """The XML, ending in a newline. A candidate that did not pass is a failure; one that could not be judged here is
    skipped; one that the judge failed on, and a run that was cut short, is an error."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    root = ElementTree.Element("testsuites")
    for number, run in enumerate(runs):
        root.append(_suite(run, number, stamp))
    ElementTree.indent(root, " ")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _suite(run: Run, number: int, stamp: str) -> ElementTree.Element:
    cases = [_case(run, verdict) for verdict in run.verdicts]
    cases += [_cut_short(run)] if run.cut_short else []
    children = [child.tag for case in cases for child in case]
    kept = {
        "name": run.task.name,
        "package": "crucible",
        "id": str(number),
        "timestamp": stamp,
        "hostname": socket.gethostname() or "localhost",
        "tests": str(len(cases)),
        "failures": str(children.count("failure")),
        "errors": str(children.count("error")),
        "skipped": str(children.count("skipped")),
        "time": f"{sum(verdict.total_s for verdict in run.verdicts):.3f}",
    }
    suite = _element("testsuite", kept)
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in _properties(run).items():
        properties.append(_element("property", {"name": name, "value": value}))
    suite.extend(cases)
    suite.append(_element("system-out", text="\n".join(_line(run, verdict) for verdict in run.verdicts)))
    suite.append(_element("system-err", text=run.trouble))
    return suite


def _properties(run: Run) -> dict[str, str]:
    return {
        "device": run.device.name,
        "contract": run.contract.name,
        "scale": run.task.scale,
        "seed": str(run.seed),
        "best": run.best or "",
        **run.versions,
    }


def _line(run: Run, verdict: Verdict) -> str:
    """`fast: passed, 1.25 ms ±0.02, 1.38 [1.37, 1.4] over eager`, as the table says it."""
    rivals = [f"{cells.speedup(verdict, rival)} over {rival}" for rival in cells.rivals(run)]
    timed = [f"{cells.runtime(verdict)}", *rivals] if verdict.runtime_ms >= 0 else []
    return ", ".join([f"{verdict.candidate}: {cells.verdict_words(verdict)}", *timed])


def _case(run: Run, verdict: Verdict) -> ElementTree.Element:
    named = {"classname": run.task.name, "name": verdict.candidate, "time": f"{verdict.total_s:.3f}"}
    case = _element("testcase", named)
    outcome = verdict.outcome
    if isinstance(outcome, NotJudged) and not outcome.failed:
        ElementTree.SubElement(case, "skipped")
    elif not verdict.evaluation:
        tag = "error" if isinstance(outcome, NotJudged) else "failure"
        kept = {"type": outcome.kind, "message": outcome.words}
        case.append(_element(tag, kept, _why(run, verdict)))
    return case


def _why(run: Run, verdict: Verdict) -> str:
    """Where it is, its causes, what to do, then what it printed."""
    found = findings_of(run, verdict)
    line = line_of(verdict, found[0] if found else None)
    rows = [f"{file_of(run, verdict.candidate)}{f':{line}' if line else ''}: {verdict.outcome.words}"]
    for finding in found:
        rows += [finding.claim, f"  seen: {finding.evidence}"]
        rows += [f"  do: {finding.remedy}"] if finding.remedy else []
    return "\n".join([*rows, *(["", verdict.log] if verdict.log else [])])


def _cut_short(run: Run) -> ElementTree.Element:
    """What is missing is no pass: a run that ended early fails a build."""
    case = _element("testcase", {"classname": run.task.name, "name": "all candidates judged", "time": "0"})
    case.append(_element("error", {"type": run.cut_short, "message": run.trouble or run.cut_short}))
    return case


def _element(tag: str, attributes: dict[str, str] | None = None, text: str = "") -> ElementTree.Element:
    element = ElementTree.Element(tag, {name: _legal(value) for name, value in (attributes or {}).items()})
    element.text = _legal(text)
    return element


def _legal(text: str) -> str:
    """What XML 1.0 has a place for; the rest by its code."""
    return _NOT_XML.sub(lambda found: f"[U+{ord(found[0]):04X}]", legible.lines(text))
