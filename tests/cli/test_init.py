"""`crucible init`: what it writes is judged at once, and nothing is overwritten."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import crucible
from conftest import QUICK
from crucible.cli import app
from crucible.errors import MisuseError


def written(folder: Path) -> Path:
    done = CliRunner().invoke(app, ["init", str(folder)], catch_exceptions=False)
    assert done.exit_code == 0 and f"next: crucible judge {folder} --watch" in done.output
    return folder


@pytest.mark.slow
def test_what_it_writes_passes_on_the_emulator_with_a_modelled_time(tmp_path: Path) -> None:
    run = crucible.judge(written(tmp_path / "mine"), **{**QUICK, "device": "emulator"})
    verdict = run.verdict("one_kernel")
    assert verdict.evaluation, verdict.outcome.words
    assert not verdict.faults
    modelled = verdict.modelled.time_ms  # type: ignore[union-attr]
    # Full size on an H200: 1024 x 512 and 512 x 256 read and written by the product, its result read and written again.
    moved = 4 * (1024 * 512 + 512 * 256 + 3 * 1024 * 256) / 4.8e12 * 1e3
    assert moved < modelled < 3 * moved + 0.02
    assert {part.name for part in verdict.modelled.parts} >= {"bias_relu_kernel"}  # type: ignore[union-attr]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    folder = written(tmp_path / "mine")
    (folder / "candidates/one_kernel.py").unlink()
    (folder / "reference.py").write_text("mine")
    with pytest.raises(MisuseError, match=r"has reference\.py already"):
        CliRunner().invoke(app, ["init", str(folder)], catch_exceptions=False)
    assert (folder / "reference.py").read_text() == "mine"
    assert not (folder / "candidates/one_kernel.py").exists()


def test_what_is_in_the_way_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises((MisuseError, crucible.JudgeError)):
        CliRunner().invoke(app, ["init", str(tmp_path / "file")], catch_exceptions=False)
