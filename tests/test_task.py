"""A task is read, named and checked without running a line of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from crucible.errors import TaskError
from crucible.task import Task, find_tasks

SOURCE = """
import torch
raise SystemExit("nobody may run this")
batch_size, width = 64, 32
depth: int = 3
class Model(torch.nn.Module):
    pass
def get_inputs():
    return []
get_init_inputs = lambda: []
"""


def write(file: Path, source: str = SOURCE) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source, encoding="utf-8")
    return file


@pytest.mark.parametrize(("place", "name"), [("7_Softmax.py", "7_Softmax"), ("softmax/reference.py", "softmax")])
def test_a_task_is_named_after_its_file_or_folder(tmp_path: Path, place: str, name: str) -> None:
    file = write(tmp_path / place)
    task = Task.load(file)
    assert (task.name, task.path, task.source) == (name, file, SOURCE)
    assert (task.small, task.scale, task.training, task.mode) == ({}, "full", False, "train")


def test_a_folder_stands_for_its_reference(tmp_path: Path) -> None:
    write(tmp_path / "a/reference.py")
    assert Task.load(tmp_path / "a") == Task.load(str(tmp_path / "a/reference.py"))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (SOURCE.replace("class Model(", "class Other("), "defines no Model: a task"),
        ("x = 1", "defines no Model, get_inputs, get_init_inputs"),
        ("def f(:\n", "not valid Python, line 1"),
        ("x = 1\0", "not valid Python"),
        ("-" * 100_000 + "1", "not valid Python"),
        (SOURCE + "SMALL = [1]\n", "SMALL must be a literal dict"),
        (SOURCE + "SMALL = {1: 2}\n", "SMALL must be a literal dict"),
        (SOURCE + "SMALL = {'width': width}\n", "SMALL must be a literal dict"),
        (SOURCE + "SMALL = {[]: 1}\n", "SMALL must be a literal dict"),
        (SOURCE + "SMALL = {'height': 2}\n", "SMALL names height"),
    ],
)
def test_what_is_no_task_is_refused_in_words(tmp_path: Path, source: str, words: str) -> None:
    file = write(tmp_path / "task.py", source)
    with pytest.raises(TaskError, match=words) as error:
        Task.load(file)
    assert str(file) in str(error.value)


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin.py").write_bytes(b"# \xe9\n")
    with pytest.raises(TaskError, match="cannot read"):
        Task.load(tmp_path / "latin.py")
    for place in ("missing.py", "."):
        with pytest.raises(TaskError, match="give a reference file, or a folder"):
            Task.load(tmp_path / place)


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    file = write(tmp_path / "task.py", "\ufeff" + SOURCE)
    assert Task.load(file).name == "task"


def test_names_may_come_from_imports_assignments_and_annotations(tmp_path: Path) -> None:
    source = "from shapes import Model, inputs as get_inputs\nget_init_inputs = list\n"
    assert Task.load(write(tmp_path / "task.py", source)).name == "task"


@pytest.mark.parametrize(("line", "training"), [("TRAINING = True", True), ("TRAINING = False", False), ("", False)])
def test_a_task_may_ask_for_training(tmp_path: Path, line: str, training: bool) -> None:
    assert Task.load(write(tmp_path / "task.py", f"{SOURCE}{line}\n")).training is training


def small_task(tmp_path: Path) -> Task:
    return Task.load(write(tmp_path / "task.py", SOURCE + "SMALL = {'batch_size': 2, 'depth': 1}\n"))


def test_the_small_size_is_taken_where_it_is_wanted_and_declared(tmp_path: Path) -> None:
    task = small_task(tmp_path)

    def sizes(scale: str | None, by_default: bool) -> dict[str, int]:
        return task.at(scale=scale, training=False, mode="train", small_by_default=by_default).sizes

    assert sizes(None, True) == sizes("small", False) == {"batch_size": 2, "depth": 1}
    assert sizes(None, False) == sizes("full", True) == {}
    plain = Task.load(write(tmp_path / "plain.py"))
    assert plain.at(scale=None, training=False, mode="eval", small_by_default=True).scale == "full"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mode": "test"}, "choose one of train, eval"),
        ({"scale": "tiny"}, "choose full or small"),
    ],
)
def test_settings_that_do_not_exist_are_refused(tmp_path: Path, settings: dict[str, str], words: str) -> None:
    with pytest.raises(TaskError, match=words):
        small_task(tmp_path).at(
            **{"scale": None, "mode": "train", "training": False, **settings}, small_by_default=False
        )


def test_a_small_size_that_is_not_declared_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="has no small size: add SMALL"):
        Task.load(write(tmp_path / "task.py")).at(scale="small", training=False, mode="train", small_by_default=True)


def test_training_can_be_asked_for_but_not_taken_back(tmp_path: Path) -> None:
    asks = Task.load(write(tmp_path / "task.py", SOURCE + "TRAINING = True\n"))
    assert asks.at(scale=None, training=False, mode="train", small_by_default=False).training
    plain = Task.load(write(tmp_path / "plain.py"))
    assert plain.at(scale=None, training=True, mode="train", small_by_default=False).training


def test_the_digest_changes_with_the_source_and_each_setting(tmp_path: Path) -> None:
    task = small_task(tmp_path)
    settings = [
        {"scale": scale, "training": training, "mode": mode}
        for scale in ("full", "small")
        for training in (False, True)
        for mode in ("train", "eval")
    ]
    digests = {task.at(**s, small_by_default=False).digest for s in settings}  # type: ignore[arg-type]
    other = Task.load(write(tmp_path / "task.py", task.source + "# \n"))
    assert len(digests | {other.digest}) == 9
    assert task.digest == small_task(tmp_path).digest


# --- finding


def test_a_file_or_a_tasks_folder_is_one_task(tmp_path: Path) -> None:
    file = write(tmp_path / "a/reference.py")
    write(tmp_path / "a/candidates/copy.py")
    assert find_tasks(file) == find_tasks(str(tmp_path / "a")) == [file]


def test_a_folder_of_tasks_is_all_below_it_in_order(tmp_path: Path) -> None:
    files = [write(tmp_path / place) for place in ("level1/2_b.py", "level2/1_a.py", "z/reference.py")]
    write(tmp_path / "level1/candidate.py", "class ModelNew:\n    pass\ndef get_inputs(): pass\n")
    write(tmp_path / "notes.py", "x = 1\n")
    assert find_tasks(tmp_path) == files


def test_a_tasks_own_candidates_are_no_tasks(tmp_path: Path) -> None:
    """KernelBench's candidates often carry a copy of the reference."""
    task = write(tmp_path / "a/reference.py")
    write(tmp_path / "a/candidates/copy.py", SOURCE + "class ModelNew(Model):\n    pass\n")
    assert find_tasks(tmp_path) == [task]


def test_a_folder_named_like_a_file_is_passed_over(tmp_path: Path) -> None:
    task = write(tmp_path / "folder.py/task.py")
    assert find_tasks(tmp_path) == [task]


@pytest.mark.parametrize(("place", "words"), [("nowhere", "no file or folder"), (".", "no task below")])
def test_no_task_is_an_error(tmp_path: Path, place: str, words: str) -> None:
    write(tmp_path / "notes.py", "x = 1\n")
    with pytest.raises(TaskError, match=words):
        find_tasks(tmp_path / place)
