"""The record of all cheats and attacks: dealt out, gone on with, put together; and what the kept one says."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from support import CHEATS, TESTS, attack

sys.path.insert(0, str(TESTS.parent / "benchmarks"))
import record_cheats

FILES = [*sorted(CHEATS.glob("*.py")), *sorted(record_cheats.ATTACKS.glob("*.py"))]
KEPT = json.loads((TESTS.parent / "benchmarks/results/cheats_cpu.json").read_text())


def _record(file: Path, names: str, **machine: str) -> Path:
    entries = [{"name": name, "list": "attacks", "right": name != "b"} for name in names]
    file.write_text(json.dumps({"device": "a GPU", **machine, "files": entries}))
    return file


def test_shards_hold_every_file_once_and_take_much_the_same_time() -> None:
    every = record_cheats.units(FILES)
    shards = [record_cheats.shard(every, number, 4) for number in range(4)]
    assert sorted(file for part in shards for unit in part for file in unit.files) == sorted(FILES)
    seconds = [sum(unit.seconds for unit in part) for part in shards]
    assert max(seconds) < 1.2 * min(seconds)
    assert max(len(unit.files) for unit in every) <= record_cheats.TOGETHER


def test_what_may_end_the_judge_runs_alone_and_last() -> None:
    every = record_cheats.units(FILES)
    alone = [unit for unit in every if unit.last]
    assert every[-len(alone) :] == alone
    assert sorted(unit.last for unit in alone) == sorted(record_cheats.LAST)
    assert {len(unit.files) for unit in alone} == {1}


def test_records_of_one_machine_become_one(tmp_path: Path) -> None:
    parts = [_record(tmp_path / "1.json", "ca"), _record(tmp_path / "2.json", "b")]
    assert [each["name"] for each in record_cheats.merged(parts)["files"]] == ["a", "b", "c"]
    with pytest.raises(SystemExit, match="of 2 machines"):
        record_cheats.merged([parts[0], _record(tmp_path / "3.json", "d", driver="another")])


def test_every_attack_is_one_file_with_its_head_in_it() -> None:
    for file in sorted(record_cheats.ATTACKS.glob("*.py")):
        source = attack(file).source
        compile(source, file.name, "exec")
        assert "class Honest(nn.Module)" in source
        assert "attack_head import" not in source.split('"""', 2)[2].split('"""', 1)[0]


def test_the_kept_record_has_every_file_with_a_verdict_of_its_own() -> None:
    assert sorted(each["name"] for each in KEPT["files"]) == sorted(file.stem for file in FILES)
    expected = {file.stem: record_cheats.expectation(file).kinds for file in FILES}
    assert [each["name"] for each in KEPT["files"] if each["verdict"] not in expected[each["name"]]] == []


def test_words_that_no_encoding_takes_end_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    entry = {"name": "odd", "words": "raises: \ud800\x1b[2J", "runtime_ms": -1.0}
    entry |= {"expected": ["passed"], "right": False}
    assert record_cheats.told({"files": [entry]}, []) == 1
    assert "raises: [U+D800][U+001B][2J" in capfd.readouterr().out
