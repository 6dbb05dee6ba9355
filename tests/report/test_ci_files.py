"""JUnit and SARIF of a run: what CI systems are told, whatever a candidate is named or says."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from recorded import whole_run
from test_sarif import checked

from crucible.emulator.faults import Fault
from crucible.judge.verdict.evidence import Finding
from crucible.judge.verdict.verdict import DoesNotBuild, Faulty, NotJudged, Passed, Verdict, Wrong
from crucible.report.junit import junit
from crucible.report.scanning import scanned
from crucible.run import Run, run_from_json

ANT = {
    "testsuites": (set(), set(), ("testsuite",)),
    "testsuite": (
        {"name", "package", "id", "timestamp", "hostname", "tests", "failures", "errors", "time"},
        {"skipped"},
        ("properties", "testcase", "system-out", "system-err"),
    ),
    "properties": (set(), set(), ("property",)),
    "property": ({"name", "value"}, set(), ()),
    "testcase": ({"name", "classname", "time"}, set(), ("skipped", "error", "failure")),
    "failure": ({"type"}, {"message"}, ()),
    "error": ({"type"}, {"message"}, ()),
    "skipped": (set(), set(), ()),
    "system-out": (set(), set(), ()),
    "system-err": (set(), set(), ()),
}
"""Ant's JUnit.xsd: attributes that must be, that may be, and the children in their order. Jenkins' takes all of it."""
RACE = Fault("race-shared", "k<4>", (1, 0, 0), (2, 0, 0), 3, "tile", "a write and a read", (1, 0, 0), (5, 0, 0), 4,
             python_line=13, other_python_line=14)  # fmt: skip
HOSTILE = "\x00\x1b]0;t\x07 ]]> <![CDATA[ </testcase> &amp; \ud800\udfff \ufffe\uffff \u202e \r\n\t \U0010ffff"


def valid(element: ElementTree.Element) -> None:
    needed, allowed, children = ANT[element.tag]
    assert needed <= set(element.attrib) <= needed | allowed, element.attrib
    tags = [child.tag for child in element]
    assert set(tags) <= set(children) and tags == sorted(tags, key=children.index)
    if element.tag == "testcase":
        assert len(tags) <= 1
    if element.tag == "testsuite":
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", element.attrib["timestamp"])
        assert {"properties", "system-out", "system-err"} <= set(tags)
        cases = [[child.tag for child in case] for case in element.iter("testcase")]
        assert int(element.attrib["tests"]) == len(cases)
        for tag, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            assert int(element.attrib[name]) == sum(case == [tag] for case in cases)
    for child in element:
        valid(child)


def parsed(text: str) -> ElementTree.Element:
    root = ElementTree.fromstring(text.encode())
    valid(root)
    return root


def run_of(*verdicts: Verdict, **changes: Any) -> Run:
    return replace(whole_run(), verdicts=verdicts, explanations={}, files={}, **{"trouble": "", **changes})


def cases_of(run: Run) -> dict[str, ElementTree.Element]:
    return {case.attrib["name"]: case for case in parsed(junit([run])).iter("testcase")}


def test_a_suite_says_of_each_candidate_what_became_of_it() -> None:
    cases = cases_of(whole_run())
    assert {name: [child.tag for child in case] for name, case in cases.items()} == {
        "plain best": [],
        "plain wrong": ["failure"],
        "plain broken": ["failure"],
        "plain absent": ["skipped"],
        "plain written": [],
    }
    (failure,) = cases["plain broken"]
    assert failure.attrib == {"type": "does-not-build", "message": "does not build: plain"}
    assert failure.text is not None and failure.text.startswith("plain broken.py:2: does not build")
    assert "do: plain" in failure.text
    assert parsed(junit([whole_run(), whole_run()])).findall("testsuite")[1].attrib["id"] == "1"


def test_what_the_judge_failed_on_is_an_error_and_so_is_a_run_cut_short() -> None:
    run = run_of(Verdict("a", NotJudged("disk full", failed=True)), cut_short="interrupted", trouble="1 of 2")
    cases = cases_of(run)
    assert [child.tag for child in cases["a"]] == ["error"]
    (cut,) = cases["all candidates judged"]
    assert cut.attrib == {"type": "interrupted", "message": "1 of 2"}
    noted = checked(scanned([run]))["invocations"][0]
    assert not noted["executionSuccessful"] and len(noted["toolExecutionNotifications"]) == 2
    alone = checked(scanned([run_of(cut_short="failed")]))["invocations"][0]
    assert not alone["executionSuccessful"] and alone["toolExecutionNotifications"][0]["message"]["text"] == "failed"


def test_code_scanning_gets_compile_errors_and_faults_at_their_lines_and_wrong_answers_at_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = run_of(
        Verdict("broken", DoesNotBuild("expected ';'", 7)),
        Verdict("wrong", Wrong("forward", "off by one"), faults=(RACE,)),
        Verdict("lucky", Faulty(RACE.words), faults=(RACE,)),
        Verdict("fine", Passed(), faults=(replace(RACE, kind="never-ran"),)),
        Verdict("good", Passed()),
        Verdict("absent", NotJudged("no GPU")),
    )
    files = {v.candidate: tmp_path / f"kernels/{v.candidate}.py" for v in run.verdicts}
    run = replace(run, files=files, explanations={"broken": (Finding("a brace is missing", "seen", line=2),)})
    log = checked(scanned([run]))
    found = [
        (
            one["ruleId"],
            one["level"],
            place["artifactLocation"]["uri"],
            place.get("region", {}).get("startLine", 0),
            [other["physicalLocation"]["region"]["startLine"] for other in one.get("relatedLocations", ())],
        )
        for one in log["results"]
        for place in [one["locations"][0]["physicalLocation"]]
    ]
    assert found == [
        ("does-not-build", "error", "kernels/broken.py", 7, []),
        ("wrong", "error", "kernels/wrong.py", 0, []),
        ("race-shared", "error", "kernels/wrong.py", 13, [14]),
        ("faulty", "error", "kernels/lucky.py", 13, []),
        ("never-ran", "note", "kernels/fine.py", 13, [14]),
    ]
    assert log["invocations"] == [
        {
            "executionSuccessful": True,
            "toolExecutionNotifications": [
                {"level": "warning", "message": {"text": "absent: not judged here: no GPU"}}
            ],
        }
    ]
    words = {rule["id"]: rule["shortDescription"]["text"] for rule in log["tool"]["driver"]["rules"]}
    assert words["wrong"] == "It ran, and what came out is not the reference's answer."
    assert words["race-shared"] == "A kernel has a race in shared memory."


@settings(max_examples=25, deadline=None)
@given(st.text(st.characters(), max_size=8))
@example(HOSTILE)
@example("\uffff")
@example("]]>")
def test_hostile_text_stays_valid(text: str) -> None:
    run = whole_run(text)
    xml = junit([replace(run, cut_short="failed")])
    root = parsed(xml)
    assert len(root.findall("testsuite/testcase")) == 6
    checked(scanned([run]))
    shown = "".join(root.itertext()) + "".join(value for one in root.iter() for value in one.attrib.values())
    assert not re.search(r"[\x00-\x08\x1b\ud800-\udfff\u202e\ufffe\uffff]", shown)


def test_a_record_is_told_of_as_its_run_was() -> None:
    run = whole_run()
    again = run_from_json(json.loads(json.dumps(run.to_json())))
    verdicts = {v.candidate: v for v in again.verdicts}
    again = replace(again, verdicts=tuple(verdicts[v.candidate] for v in run.verdicts))
    without_time = re.compile(r'timestamp="[^"]*"')
    assert without_time.sub("", junit([again])) == without_time.sub("", junit([run]))
    assert scanned([again]) == scanned([run])
    assert time.strptime(re.findall(r'timestamp="([^"]*)"', junit([run]))[0], "%Y-%m-%dT%H:%M:%S")
