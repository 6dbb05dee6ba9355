"""`crucible explain`: from a run's folder, file, id or the latest; what is not there is said in words."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from explaining import a_run, compared, oracle
from typer.testing import CliRunner

from crucible import cli
from crucible.errors import RecordError
from crucible.explain.findings import findings
from crucible.judge.verdict.evidence import Compared
from crucible.judge.verdict.verdict import Passed, Verdict, Wrong
from crucible.run import Run

WANT = oracle(4, 6)
TWICE = Compared((compared(2 * WANT.float(), WANT),), 4.0)


def kept(home: Path, name: str, age_s: float = 0.0) -> Path:
    """A run as a judge leaves it behind."""
    run = a_run(Verdict("doubled", Wrong("forward", "output is off"), TWICE), Verdict("right", Passed()))
    run = Run(**{**vars(run), "explanations": findings(run)})
    file = home / "runs" / name / "run.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(run.to_json()))
    os.utime(file, (file.stat().st_mtime - age_s,) * 2)
    return file


def shown(*arguments: str) -> str:
    done = CliRunner().invoke(cli.app, ["explain", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_a_run_is_found_by_folder_file_id_beginning_and_as_the_latest(crucible_home: Path) -> None:
    file = kept(crucible_home, "20260101-120000-a_task-abc123")
    kept(crucible_home, "20250101-120000-older-def456", age_s=60)
    ways = [str(file.parent), str(file), file.parent.name, "20260101", "latest"]
    texts = {shown(way) for way in ways}
    assert len(texts) == 1
    assert "1. output is 2 times what it should be" in texts.pop()
    assert "right: passed" not in shown("latest", "doubled")


def test_a_file_of_several_runs_shows_them_all(crucible_home: Path, tmp_path: Path) -> None:
    one = json.loads(kept(crucible_home, "a").read_text())
    both = tmp_path / "both.json"
    both.write_text(json.dumps([one, {**one, "task": "another_task"}]))
    text = shown(str(both))
    assert "a_task: 2 candidates" in text and "another_task: 2 candidates" in text


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere", "there is no run 'nowhere' in"),
        ("2026", "2 runs in .* begin with '2026'"),
        ("", "there is no run ''"),
    ],
)
def test_what_is_not_there_is_said_in_words(crucible_home: Path, name: str, words: str) -> None:
    kept(crucible_home, "20260101-a")
    kept(crucible_home, "20260102-b")
    with pytest.raises(RecordError, match=words):
        shown(name)


def test_without_any_run_there_is_no_latest(crucible_home: Path) -> None:
    with pytest.raises(RecordError, match="judge something first"):
        shown("latest")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "holds no JSON"),
        ('{"schema": "crucible.run/0"}', "its schema is 'crucible.run/0'"),
        ('{"schema": "crucible.run/1", "task": "t"}', "not a whole crucible.run/1 record"),
        ("[3]", "its schema is 'none'"),
    ],
)
def test_a_file_that_is_no_record_is_said_so(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "some.json"
    file.write_text(text)
    with pytest.raises(RecordError, match=words):
        shown(str(file))


def test_a_folder_without_a_record_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"cannot read .*run\.json"):
        shown(str(tmp_path))
