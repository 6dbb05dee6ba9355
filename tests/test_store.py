"""Records are written whole or not at all, and what cannot be read counts as absent."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

import crucible
from crucible import store
from crucible.errors import StoreError
from crucible.store import RunFolder, Verdicts, code_digest, key_of, write_text


def test_home_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CRUCIBLE_HOME", str(tmp_path))
    assert store.home() == tmp_path
    monkeypatch.setenv("CRUCIBLE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert store.home() == tmp_path / ".crucible"


def test_text_is_written_with_its_folders_and_nothing_beside_it(tmp_path: Path) -> None:
    write_text(tmp_path / "a/b/c.json", "first")
    write_text(tmp_path / "a/b/c.json", "übung")
    assert [file.name for file in (tmp_path / "a/b").iterdir()] == ["c.json"]
    assert (tmp_path / "a/b/c.json").read_text(encoding="utf-8") == "übung"


def test_a_reader_never_sees_half_a_record(tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    texts = ["a" * 2_000_000, "b" * 2_000_000]
    write_text(file, texts[0])
    done = threading.Event()

    def rewrite() -> None:
        for i in range(30):
            write_text(file, texts[i % 2])
        done.set()

    thread = threading.Thread(target=rewrite)
    thread.start()
    while not done.is_set():
        assert file.read_text() in texts
    thread.join()


@pytest.mark.parametrize("place", ["blocked/record.json", "blocked/deeper/record.json", "folder"])
def test_a_place_that_cannot_be_written_is_a_store_error(tmp_path: Path, place: str) -> None:
    (tmp_path / "blocked").write_text("a file where a folder should be")
    (tmp_path / "folder/inside").mkdir(parents=True)
    with pytest.raises(StoreError, match=r"cannot write .*CRUCIBLE_HOME"):
        write_text(tmp_path / place, "text")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["blocked", "folder"]


def test_a_file_system_that_takes_no_files_is_a_store_error() -> None:
    with pytest.raises(StoreError, match="cannot write"):
        write_text(Path("/proc/record.json"), "text")


def test_verdicts_are_kept_by_key(tmp_path: Path) -> None:
    kept = Verdicts(tmp_path)
    kept.put("k" * 64, {"kind": "passed", "n": [1, 2]})
    assert Verdicts(tmp_path).get("k" * 64) == {"kind": "passed", "n": [1, 2]}
    assert kept.get("another") is None


@pytest.mark.parametrize("content", [b"", b'{"kind": ', b"\xff\xfe\x00"])
def test_an_unreadable_verdict_counts_as_absent(tmp_path: Path, content: bytes) -> None:
    kept = Verdicts(tmp_path)
    kept.put("key", {})
    (tmp_path / "verdicts/key.json").write_bytes(content)
    assert kept.get("key") is None


def test_a_folder_in_a_verdicts_place_counts_as_absent(tmp_path: Path) -> None:
    (tmp_path / "verdicts/key.json").mkdir(parents=True)
    assert Verdicts(tmp_path).get("key") is None


def test_a_runs_folder_holds_each_verdict_and_the_whole(tmp_path: Path) -> None:
    folder = RunFolder.new(tmp_path, "a task/with: odd letters")
    folder.add(0, "../../escape", {"name": "a"})
    folder.add(11, "b" * 300, {"name": "b"})
    folder.finish({"schema": "x"})
    names = sorted(file.name for file in (folder.path / "candidates").iterdir())
    assert names == ["000-.._.._escape.json", f"011-{'b' * 80}.json"]
    assert json.loads((folder.path / "run.json").read_text()) == {"schema": "x"}
    assert folder.path.parent == tmp_path / "runs"
    assert "a_task_with__odd_letters" in folder.path.name


def test_two_runs_of_one_task_in_one_second_have_two_folders(tmp_path: Path) -> None:
    one = RunFolder.new(tmp_path, "task")
    one.finish({"run": 1})
    two = RunFolder.new(tmp_path, "task")
    two.finish({"run": 2})
    assert json.loads((one.path / "run.json").read_text()) == {"run": 1}
    assert one.path != two.path


def test_keys_depend_on_content_and_order_of_parts_but_not_of_names() -> None:
    assert key_of({"a": 1, "b": 2}) == key_of({"b": 2, "a": 1})
    assert key_of(1, 2) != key_of(2, 1)
    assert key_of("ab", "c") != key_of("a", "bc")
    assert key_of([1]) != key_of(1)
    assert key_of("x") == "cd65ea2c2ad99e94a85b1b6df72efef9cb2ed0ae933a60c32ce16317f7d7d6aa"
    assert len(key_of()) == 64


def test_the_code_digest_is_that_of_every_source_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a copy of the package: stable as it is, another when one byte of one file changes."""
    package = Path(crucible.__file__).parent
    for file in package.rglob("*.py"):
        write_text(tmp_path / file.relative_to(package), file.read_text())
    monkeypatch.setattr(store, "__file__", str(tmp_path / "store.py"))
    before = code_digest()
    assert before == code_digest()
    (tmp_path / "judge/oracle/power.py").write_text((tmp_path / "judge/oracle/power.py").read_text() + "\n")
    assert code_digest() != before
