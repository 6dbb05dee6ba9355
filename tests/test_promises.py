"""What docs/judging.md says cannot be touched: each row names who tries it, and whoever tries something has a row."""

from __future__ import annotations

import re

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
