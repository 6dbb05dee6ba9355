"""Folders on the way are gone afterwards."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from crucible.errors import MisuseError
from crucible.judge.process.folders import remove, temporary

DEEP = "import os\nfor _ in range(2500):\n    os.mkdir('d' * 200)\n    os.chdir('d' * 200)\n"


def test_a_tree_deeper_than_python_recurses_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "deep"
    folder.mkdir()
    # -I and -S: nothing is imported from the folder that it ends in, which took an hour where coverage is measured
    subprocess.run([sys.executable, "-I", "-S", "-c", DEEP], cwd=folder, check=True, timeout=60)
    remove(folder)
    assert not folder.exists()


def test_a_folder_that_candidates_would_not_find_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link").symlink_to("/dev/shm")
    for place in ("/dev/shm", str(tmp_path / "link")):
        monkeypatch.setattr(tempfile, "tempdir", place)
        with pytest.raises(MisuseError, match=r"TMPDIR is .*see a /dev/shm of their own: set TMPDIR"), temporary("no-"):
            pass


def test_a_temporary_folder_is_gone_whatever_happened_in_it() -> None:
    with pytest.raises(ZeroDivisionError), temporary("crucible-test-") as folder:
        (folder / "file").write_text("x")
        raise ZeroDivisionError
    assert not folder.exists()
