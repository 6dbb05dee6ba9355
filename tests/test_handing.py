"""Inputs go over as descriptors: the files of a request's case and no others, each opened anew, shut to writing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from crucible.judge.boundary.bundles import Handed, read_bundle, write_bundle
from crucible.judge.process.handing import files_for, opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_bundle(tmp_path / "init", [3])
    write_bundle(tmp_path / "weights", [["weight", True, "weight"]])
    for case in (0, 1, 10):
        for part in ("inputs", "state", "cotangents"):
            write_bundle(tmp_path / f"case{case}.{part}", [torch.full((2,), float(case))])
    (tmp_path / "case1.inputs.tmp").write_text("being written")
    return tmp_path


def names(folder: Path, **request: object) -> set[str]:
    return {file.name.rpartition(".")[0] for file in files_for(request, folder)}


def test_a_request_brings_the_files_of_its_case_alone(folder: Path) -> None:
    one = {"case1.inputs", "case1.state", "case1.cotangents"}
    pairing = {"weights", "case0.state"}
    assert names(folder, do="run", case=1) == {*pairing, *one}
    assert names(folder, do="backward", case=1) == one
    assert names(folder, do="construct", seed=0) == {"init"}
    assert names(folder, do="step", case=1, after=10) == {"case10.state", *one}
    assert names(folder, do="set_up", case=1, backward=True) == {*pairing, *one}
    assert names(folder, do="influence", weight="w") == {*pairing, "case0.inputs", "case0.cotangents"}
    assert names(folder, do="import") == names(folder, do="audit") == set()


def test_a_timed_call_brings_the_weights_it_runs_on_and_a_cases_own_inputs_where_it_has_them(folder: Path) -> None:
    pairing = {"weights", "case0.state"}
    assert names(folder, do="sample", weights=10, own=-1) == {*pairing, "case10.state"}
    assert names(folder, do="sample", weights=0, own=1) == {*pairing, "case1.inputs"}


def test_a_step_that_is_to_be_timed_brings_how_its_contents_are_drawn(folder: Path) -> None:
    (folder / "timed.json").write_text("[]")
    assert "timed.json" in {file.name for file in files_for({"do": "set_up", "case": 0}, folder)}
    assert "timed.json" not in {file.name for file in files_for({"do": "run", "case": 0}, folder)}


def test_what_is_handed_is_read_as_from_a_folder(folder: Path) -> None:
    handed = Handed()
    files = files_for({"do": "run", "case": 10}, folder)
    with opened(files) as descriptors:
        handed.take([file.name for file in files], [os.dup(each) for each in descriptors])
    for _ in range(2):  # from its beginning each time
        assert read_bundle(handed / "case10.inputs")[0].tolist() == [10.0, 10.0]
    with pytest.raises(FileNotFoundError, match=r"has not handed over case1\.inputs\.json"):
        read_bundle(handed / "case1.inputs")


def test_the_next_request_takes_the_place_of_the_last(folder: Path) -> None:
    handed, before = Handed(), len(os.listdir("/proc/self/fd"))
    for case in (0, 1, 10):
        files = files_for({"do": "run", "case": case}, folder)
        with opened(files) as descriptors:
            handed.take([file.name for file in files], [os.dup(each) for each in descriptors])
        assert read_bundle(handed / f"case{case}.state")[0][0] == case
    handed.take([], [])
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(FileNotFoundError):
        read_bundle(handed / "case10.state")


def test_fewer_descriptors_than_names_are_an_error() -> None:
    with pytest.raises(ValueError, match="shorter"):
        Handed().take(["case0.inputs.bin", "case0.inputs.json"], [os.open(os.devnull, os.O_RDONLY)])


def test_each_has_a_place_of_its_own_in_a_file_and_none_can_write(folder: Path) -> None:
    files = files_for({"do": "construct"}, folder)
    with opened(files) as one, opened(files) as other:
        os.lseek(one[0], 0, os.SEEK_END)
        assert os.lseek(other[0], 0, os.SEEK_CUR) == 0
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.pwrite(one[0], b"x", 0)
    assert {file.stat().st_mode & 0o777 for file in folder.glob("*.bin")} == {0o400}
