"""What candidates are built against is made once, also by runs that start together."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path

from crucible.judge.prepared import precompile_once


def test_a_run_waits_for_headers_that_another_one_makes(tmp_path: Path) -> None:
    folder, said = tmp_path / "headers/one", list[str]()
    folder.parent.mkdir()
    run = threading.Thread(target=precompile_once, args=("precompile_header", folder, said.append), daemon=True)
    with open(folder.with_name("one.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run.start()
        run.join(0.5)
        assert run.is_alive()
        folder.mkdir()
    run.join(10)
    assert not run.is_alive()
    assert (list(folder.iterdir()), said) == ([], [])  # nothing was made anew


def test_what_cannot_be_made_is_told_and_goes_on(tmp_path: Path) -> None:
    said: list[str] = []
    precompile_once("no_such_function", tmp_path / "new/one", said.append)
    assert "no precompiled header: ImportError" in said[0]


def test_a_home_that_cannot_be_written_is_told_and_goes_on(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "home").touch()
    precompile_once("precompile_header", tmp_path / "home/headers/one", said.append)
    assert "no precompiled header: [Errno 20] Not a directory" in said[0]
