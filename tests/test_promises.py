"""What docs/judging.md promises: each row of "What cannot be touched" names who tries it, and whoever tries something
has a row; for each paragraph the tests are named that hold it true."""

from __future__ import annotations

import re

from crucible.judge.process.limits import Limits
from support import CHEATS, TESTS

TEXT = (TESTS.parent / "docs/judging.md").read_text()


def tried() -> dict[str, list[str]]:
    """By the table's first column, the names in its last."""
    table = TEXT.split("## What cannot be touched")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines() if line[:2] == "| "]
    assert rows[0] == ["tried", "what stops it", "who tries"]
    return {row[0]: re.findall(r"`([\w/]+)`", row[-1]) for row in rows[1:] if len(row) == 3}


def test_each_promise_names_who_tries_it() -> None:
    rows = tried()
    assert len(rows) >= 20
    for what, names in rows.items():
        assert names, f"nobody tries {what}"
        missing = [n for n in names if not any((folder / f"{n}.py").is_file() for folder in (CHEATS, TESTS))]
        assert not missing, f"{what}: there is no {missing}"


def test_every_cheat_has_a_promise_that_it_tries() -> None:
    named = {name for names in tried().values() for name in names}
    cheats = {file.stem for file in CHEATS.glob("*.py") if not file.stem.startswith("honest_")}
    assert cheats - named == set()


def leads() -> set[str]:
    """What a paragraph begins with, in bold; and the headings of sections whose paragraphs have no such lead."""
    own = TEXT.split("## How each promise is tested")[0]
    return set(re.findall(r"^\*\*(.+?)\.?\*\*", own, re.MULTILINE)) | {
        "What can become of a candidate",
        "Runtime",
        "Limits",
    }


def proofs() -> list[tuple[str, list[str]]]:
    """By the promise's lead, the tests that are named."""
    table = TEXT.split("## How each promise is tested")[1].split("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in table.splitlines() if line.startswith("| **")]
    return [(re.findall(r"\*\*(.+?)\*\*", row[0])[0], re.findall(r"`([\w/:]+)`", row[-1])) for row in rows]


def test_each_paragraph_has_a_row_and_each_row_a_paragraph() -> None:
    assert {lead for lead, _ in proofs()} == leads()


def test_each_row_names_tests_that_there_are() -> None:
    for lead, names in proofs():
        assert names, f"nothing tests {lead}"
        for name in names:
            file, _, function = name.partition("::")
            source = TESTS / f"{file}.py"
            assert source.is_file(), f"{lead}: there is no {file}"
            there = re.findall(r"^def (test_\w+)", source.read_text(), re.MULTILINE)
            assert function in there or (there and not function), f"{lead}: there is no {name}"


def test_the_limits_are_those_of_the_program() -> None:
    section, limits = TEXT.split("\n## Limits\n")[1], Limits()
    assert f"{limits.build_s:g} s for import, build and construction; {limits.run_s:g} s for one forward" in section
    assert f"{limits.processes} processes" in section
    assert f"{limits.file_bytes >> 30} GiB a file; {limits.shrink_s:g} s for the smallest failing shape" in section
    assert f"At most {limits.stress_s:g} s for the reference's answers" in TEXT
