"""SARIF as its schema has it, whatever a candidate is named or says."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crucible.report.sarif import Location, Result, Trouble, sarif

SCHEMA = os.environ.get("CRUCIBLE_SARIF_SCHEMA", "")
"""OASIS's sarif-schema-2.1.0.json, where somebody has it: 117 kB under a licence of its own."""
FIELDS: dict[str, tuple[set[str], set[str]]] = {
    "log": ({"version", "runs"}, {"$schema"}),
    "run": ({"tool", "results"}, {"invocations", "columnKind"}),
    "driver": ({"name", "rules"}, {"version"}),
    "rule": ({"id", "shortDescription"}, set()),
    "result": ({"ruleId", "ruleIndex", "level", "message", "locations"}, {"relatedLocations"}),
    "place": ({"physicalLocation"}, {"id", "message"}),
    "physical": ({"artifactLocation"}, {"region"}),
    "artifact": ({"uri"}, {"uriBaseId"}),
}
"""By the schema's objects: fields that must be, and those that may be."""
ADDRESS = re.compile(r"(?:file:///)?(?:[A-Za-z0-9._~/-]|%[0-9A-F]{2})+")
texts = st.text(st.characters(), max_size=12)


def checked(text: str) -> dict[str, Any]:
    """The log's run, after a look at all that the schema asks for."""
    text.encode()
    log = json.loads(text, parse_constant=lambda name: pytest.fail(name))
    has(log, "log")
    assert log["version"] == "2.1.0" and len(log["runs"]) == 1
    (run,) = log["runs"]
    has(run, "run")
    has(run["tool"]["driver"], "driver")
    rules = run["tool"]["driver"]["rules"]
    for rule in rules:
        has(rule, "rule")
        assert rule["shortDescription"]["text"]
    for result in run["results"]:
        has(result, "result")
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note", "none") and result["message"]["text"]
        for place in (*result["locations"], *result.get("relatedLocations", ())):
            check_place(place)
    return run


def has(data: dict[str, Any], name: str) -> None:
    needed, allowed = FIELDS[name]
    assert needed <= set(data) <= needed | allowed, (name, data)


def check_place(place: dict[str, Any]) -> None:
    has(place, "place")
    has(place["physicalLocation"], "physical")
    has(place["physicalLocation"]["artifactLocation"], "artifact")
    assert ADDRESS.fullmatch(place["physicalLocation"]["artifactLocation"]["uri"])
    assert place["physicalLocation"].get("region", {"startLine": 1})["startLine"] >= 1


def test_a_result_says_what_where_and_what_has_to_do_with_it(tmp_path: Path) -> None:
    race = Result(
        "race-shared", "error", "two threads write", tmp_path / "a b/k:1.py", 12, (Location("a b/k:1.py", 14, "and"),)
    )
    elsewhere = Result("wrong", "warning", "off by one", "/elsewhere/m.py")
    words = {"race-shared": "A race in shared memory"}
    run = checked(sarif([race, elsewhere, race], rules=words, version="0.1.0", root=tmp_path))
    place = {"artifactLocation": {"uri": "a%20b/k%3A1.py", "uriBaseId": "%SRCROOT%"}, "region": {"startLine": 12}}
    assert run["results"][0]["locations"] == [{"physicalLocation": place}]
    beside = run["results"][0]["relatedLocations"][0]
    assert beside["message"]["text"] == "and" and beside["physicalLocation"]["region"]["startLine"] == 14
    assert run["results"][1]["locations"] == [
        {"physicalLocation": {"artifactLocation": {"uri": "file:///elsewhere/m.py"}}}
    ]
    assert [rule["shortDescription"]["text"] for rule in run["tool"]["driver"]["rules"]] == [words[race.rule], "wrong"]
    assert run["tool"]["driver"]["version"] == "0.1.0"
    assert run["invocations"] == [{"executionSuccessful": True}]


def test_what_went_wrong_beside_the_results_is_no_result() -> None:
    run = checked(sarif([], trouble=[Trouble("the judge failed"), Trouble("not here", "warning")]))
    (invocation,) = run["invocations"]
    assert run["results"] == [] and invocation["executionSuccessful"] is False
    notes = [(note["level"], note["message"]["text"]) for note in invocation["toolExecutionNotifications"]]
    assert notes == [("error", "the judge failed"), ("warning", "not here")]
    assert checked(sarif([], trouble=[Trouble("x", "note")]))["invocations"][0]["executionSuccessful"] is True


def test_a_level_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="fatal"):
        sarif([Result("a", "fatal", "b", "c")])


@settings(max_examples=60, deadline=None)
@given(texts, texts, texts, st.integers(-1, 9))
@example("\ufdd0", "\uffff", "\ud800", 0)
def test_whatever_is_named_or_said_is_valid(rule: str, message: str, name: str, line: int) -> None:
    file = f"d/{name.replace(chr(0), '')}"
    text = sarif([Result(rule, "note", message, file, line, (Location(file, line, message),))])
    assert text.isascii()
    run = checked(text)
    said = run["results"][0]["message"]["text"]
    assert not re.search(r"[\x00-\x08\x1b\ud800-\udfff\u202e\ufffe\uffff]", said)
    if SCHEMA:
        validated(text)


def test_no_link_is_made_of_what_a_candidate_says() -> None:
    run = checked(sarif([Result("a", "note", "see [here](https://x.y)", "c.py")]))
    assert "](" not in run["results"][0]["message"]["text"]


def test_a_name_that_is_no_text_is_an_address_all_the_same(tmp_path: Path) -> None:
    raw = os.fsdecode(b"caf\xe9.py")
    run = checked(sarif([Result("a", "note", "b", raw)], root=tmp_path))
    uri = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert unquote(uri, errors="surrogateescape") == raw


@pytest.mark.skipif(not SCHEMA, reason="CRUCIBLE_SARIF_SCHEMA names no sarif-schema-2.1.0.json")
def test_the_official_schema_takes_it() -> None:
    place = Location("/x/y.py", 3, "other side")
    validated(sarif([Result("a", "error", "b", "c.py", 1, (place, Location("d.py")))], trouble=[Trouble("x")]))


def validated(text: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    checker = jsonschema.Draft7Validator(
        json.loads(Path(SCHEMA).read_text()), format_checker=jsonschema.Draft7Validator.FORMAT_CHECKER
    )
    assert [error.message for error in checker.iter_errors(json.loads(text))] == []
