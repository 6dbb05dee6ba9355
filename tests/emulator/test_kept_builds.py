"""What is kept between runs goes when something else is added and nobody asked for it in a month."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest

from crucible import emulator
from crucible.emulator import kept, toolchain

MONTH = kept.KEPT_S + 3600


def aged(file: Path, seconds: float) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    os.utime(file, (time.time() - seconds,) * 2)
    return file


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Three folders of headers, one of them asked for lately, and what is none."""
    for name, age in (("0123456789abcdef", MONTH), ("fedcba9876543210", 60.0), ("00000000deadbeef", MONTH)):
        aged(tmp_path / name / "checked/prefix.h.gch", MONTH)
        aged(tmp_path / f"{name}.lock", age)
    aged(tmp_path / "mine.lock", MONTH)
    aged(tmp_path / "mine/thesis.txt", MONTH)
    return tmp_path


def test_what_nobody_asked_for_in_a_month_is_forgotten(home: Path) -> None:
    kept.forget_prepared(home)
    assert sorted(each.name for each in home.iterdir()) == [
        "fedcba9876543210", "fedcba9876543210.lock", "mine", "mine.lock",
    ]  # fmt: skip


def test_what_is_being_prepared_is_not(home: Path) -> None:
    with open(home / "0123456789abcdef.lock") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        kept.forget_prepared(home)
    assert (home / "0123456789abcdef/checked/prefix.h.gch").exists()
    assert not (home / "00000000deadbeef").exists()


def test_an_extension_stays_while_it_is_asked_for(tmp_path: Path) -> None:
    old, again, new = (aged(tmp_path / f"{name}.so", MONTH) for name in ("old", "again", "new"))
    kept.asked_for(again)
    kept.asked_for(new)
    kept.forget_extensions(tmp_path)
    assert not old.exists() and again.exists() and new.exists()
    kept.asked_for(tmp_path / "gone.so")  # removed meanwhile, or not ours to write


def test_building_another_forgets_it() -> None:
    folder = toolchain.prepare().folder / "extensions"
    old = aged(folder / "of_another_year.so", MONTH)
    text = f"__global__ void k(float* x) {{ *x = {time.time_ns() % 2**20}; }}"  # none that is kept
    emulator.load_inline("another", "", text + "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}")
    assert not old.exists()


def test_preparing_another_forgets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler, home = tmp_path / "g++", tmp_path / "home"
    compiler.write_text('#!/bin/sh\nwhile [ $# -gt 0 ]; do [ "$1" = -o ] && : > "$2"; shift; done\n')
    compiler.chmod(0o755)
    aged(home / "0123456789abcdef/checked/prefix.h.gch", MONTH)
    aged(home / "0123456789abcdef.lock", MONTH)
    monkeypatch.setenv("CRUCIBLE_EMULATOR_HOME", str(home))
    now = toolchain.prepare(str(compiler)).folder
    assert sorted(each.name for each in home.iterdir()) == [now.name, f"{now.name}.lock"]
    os.utime(home / f"{now.name}.lock", (0, 0))
    toolchain.prepare(str(compiler))  # all of it is there: it is asked for, and nothing is removed
    assert time.time() - (home / f"{now.name}.lock").stat().st_mtime < 60
