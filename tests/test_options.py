"""Options and files that cannot be: one line that says what, where and what to do, exit 2, and nothing is lost."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import crucible
from crucible import cli, store
from crucible.errors import MisuseError
from support import PLAIN, SMALL_TASK, write


def refused(arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that the command line ends with, exit 2."""
    monkeypatch.setattr(sys, "argv", ["crucible", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    shown = capsys.readouterr().err
    assert end.value.code == 2, shown
    assert "Traceback" not in shown and len(shown.splitlines()) == 1, shown
    return shown


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *((f"--{name}-limit", value) for name in ("run", "build", "oracle") for value in ("nan", "inf", "-5", "0")),
        *((f"--{name}-limit", value) for name in ("race", "shrink", "memory") for value in ("nan", "-1", "1e300")),
        ("--seed", "-3"),
        ("--seed", "99999999999999999999999"),
        ("--shape", "batch_size=" + "9" * 5000),
    ],
)  # fmt: skip
def test_a_number_that_cannot_be_is_named_with_its_option(
    option: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], crucible_home: Path
) -> None:
    shown = refused(["judge", str(SMALL_TASK), str(PLAIN), option, value, "--device", "cpu"], monkeypatch, capsys)
    assert option in shown and value.removesuffix("300")[:20] in shown
    assert not (crucible_home / "runs").exists()


@pytest.mark.parametrize("field", ["build_s", "run_s", "memory_bytes", "processes"])
@pytest.mark.parametrize("value", [float("nan"), -1, float("inf"), "8", True])
def test_limits_that_cannot_be_are_refused_where_they_are_made(field: str, value: object) -> None:
    with pytest.raises(MisuseError, match=field):
        crucible.Limits(**{field: value})  # type: ignore[arg-type]


def test_what_cannot_be_written_is_refused_before_anything_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], crucible_home: Path
) -> None:
    notes = write(tmp_path / "notes.json", "my notes")
    candidate = write(tmp_path / "mine.py", PLAIN.read_text())
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    places = ["/dev/full", "/proc/x.json", str(tmp_path), f"{notes}/x.json", str(notes), str(candidate), str(fifo)]
    for place in places:
        for option in ("--json", "--page"):
            arguments = ["judge", str(SMALL_TASK), str(candidate), "--device", "cpu", option, place]
            assert option in refused(arguments, monkeypatch, capsys)
    assert notes.read_text() == "my notes"
    assert candidate.read_text() == PLAIN.read_text()
    assert not Path("/dev/full").is_file()
    assert not (crucible_home / "runs").exists()
    assert {file.name for file in tmp_path.iterdir()} - {"crucible-home"} == {"notes.json", "mine.py", "pipe"}


def test_two_outputs_need_two_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "one")
    arguments = ["judge", str(SMALL_TASK), "--json", str(tmp_path / "one"), "--page", str(tmp_path / "link")]
    assert "the same file" in refused(arguments, monkeypatch, capsys)


def test_a_link_is_written_through_and_keeps_its_target(tmp_path: Path) -> None:
    target, link = tmp_path / "far/target.json", tmp_path / "link.json"
    target.parent.mkdir()
    target.write_text("{}")
    target.chmod(0o640)
    link.symlink_to(target)
    store.check_writable(link, "--json")
    store.write_text(link, "new \ud800")
    assert link.is_symlink() and link.resolve() == target
    assert target.read_text() == "new \\ud800"
    assert target.stat().st_mode & 0o777 == 0o640
    assert [file.name for file in target.parent.iterdir()] == ["target.json"]


def test_a_loop_of_links_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(MisuseError, match="--json"):
        store.check_writable(tmp_path / "a", "--json")


def test_a_device_is_written_into(capfd: pytest.CaptureFixture[str]) -> None:
    store.check_writable(Path("/dev/stderr"), "--json")
    store.write_text(Path("/dev/stderr"), "said")
    assert capfd.readouterr().err == "said"
    assert not Path("/dev/stderr").is_file() or Path("/dev/stderr").is_symlink()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("TRAINING = 'no'", "TRAINING must be True or False, written out, not 'no'"),
        ("TRAINING = 1", "not 1"),
        ("TRAINING = bool(0)", "written out"),
        ("SMALL = {'batch_size': -2}", "SMALL gives -2 for batch_size, which is 4"),
        ("SMALL = {'batch_size': 'two'}", "SMALL gives 'two' for batch_size"),
        ("SMALL = {'batch_size': 1e999}", "SMALL gives inf for batch_size"),
        ("SMALL = {'batch_size': True}", "SMALL gives True"),
        ("SMALL = {'batch_size': None}", "SMALL gives None"),
        ("SMALL = {'batch_size': (2, 2)}", "SMALL gives (2, 2)"),
        ("SMALL = {2: 3}", "SMALL must be a literal dict"),
    ],
)
def test_nonsense_in_a_task_file_is_named(line: str, words: str, tmp_path: Path) -> None:
    file = write(tmp_path / "task.py", (SMALL_TASK / "reference.py").read_text() + f"\n{line}\n")
    with pytest.raises(crucible.MisuseError) as error:
        crucible.Task.load(file)
    assert words in str(error.value) and str(file) in str(error.value)


@pytest.mark.parametrize("arguments", [["judge"], ["judge", str(SMALL_TASK), "--resume", "latest"],
                                       ["judge", "--resume", "latest"], ["judge", "--resume", "\0"],
                                       ["judge", "x" * 5000], ["judge", str(SMALL_TASK), "y" * 5000],
                                       ["explain", "z" * 5000], ["fuse", "nothing", "-o", "/dev/full"]])  # fmt: skip
def test_what_is_not_there_is_named(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(arguments, monkeypatch, capsys)
