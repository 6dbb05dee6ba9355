"""A candidate is read, never imported: its language, its faults and where it belongs come from its text."""

from __future__ import annotations

import gc
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from crucible.candidate import Candidate, find_candidates, match_candidates
from crucible.errors import CandidateError
from crucible.task import Task

PLAIN = "import torch\nclass ModelNew(torch.nn.Module):\n    pass\n"


def candidate(source: str, name: str = "a") -> Candidate:
    return Candidate(name, Path(f"{name}.py"), source)


def write(file: Path, source: str = PLAIN) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source, encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("source", "language"),
    [
        (PLAIN, "pytorch"),
        ("import triton\nimport triton.language as tl\n", "triton"),
        ("def f():\n    from triton import jit\n", "triton"),
        ("import torch as t, triton, triton.language as tl\n", "triton"),
        ("import tritonclient\n", "pytorch"),
        ("load_inline(name='x', cpp_sources='', cuda_sources=source)", "cuda"),
        ("source = '__global__ void k() {}'", "cuda"),
        ("CUDAExtension('x', ['x.cu'])", "cuda"),
        ("load_inline(name='x', cpp_sources=source)", "cpp"),
        ("torch.utils.cpp_extension.load(name='x', sources=['x.cpp'])", "cpp"),
        ("model.load_state_dict({})", "pytorch"),
    ],
)
def test_the_language_is_read_from_the_text(source: str, language: str) -> None:
    assert candidate(source).language == language


def test_a_long_text_of_nothing_takes_no_time() -> None:
    """Whoever sends one would stop everybody else: 40 kB of empty lines took 27 s."""
    start = time.process_time()
    assert candidate("\n" * 200_000).language == "pytorch"
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("", "the file is empty"),
        (" \n\t\n", "the file is empty"),
        ("class ModelNew(:\n", "syntax error, line 1"),
        ("x = 1\nfor\n", "syntax error, line 2"),
        ("x = 1\0", "null bytes"),
        ("-" * 100_000 + "1", "cannot be parsed"),
        ("'''all in a string: class ModelNew'''", "holds no code"),
        ("# only a comment", "holds no code"),
        ("```python\nclass ModelNew: pass\n```", "syntax error, line 1"),
    ],
)
def test_what_cannot_be_imported_is_said_in_words(source: str, words: str) -> None:
    assert words in (candidate(source).fault() or "")


@pytest.mark.parametrize("source", [PLAIN, "raise SystemExit", "import nothing_there"])
def test_nothing_is_held_against_what_parses_and_nothing_is_run(source: str) -> None:
    assert candidate(source).fault() is None


class Garbage:
    """What the collector finds in the middle of things, and whose end lets other threads go on."""

    def __init__(self) -> None:
        self.own = self

    def __del__(self) -> None:
        time.sleep(1e-4)


def test_threads_may_look_for_faults_at_once() -> None:
    """Python 3.11 counts the depth of a syntax tree for all threads together; seen as SystemError in a run of CI."""
    text = PLAIN + "".join(f"def f{i}(x):\n    return [x, [x, [x + {i}]]]\n" for i in range(40))
    before = gc.get_threshold()
    gc.set_threshold(50)
    try:
        with ThreadPoolExecutor(4) as pool:
            done = pool.map(lambda i: (Garbage(), candidate(text).fault())[1], range(40))
            assert set(done) == {None}
    finally:
        gc.set_threshold(*before)


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    assert Candidate.load(write(tmp_path / "a.py", "\ufeff" + PLAIN)).fault() is None


def test_any_bytes_can_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"x = '\xff'\n")
    found = Candidate.load(tmp_path / "a.py")
    assert (found.name, found.source) == ("a", "x = '\ufffd'\n")
    with pytest.raises(CandidateError, match="cannot read candidate"):
        Candidate.load(tmp_path / "missing.py")


def test_the_digest_is_the_sources_alone() -> None:
    assert candidate(PLAIN, "a").digest == candidate(PLAIN, "b").digest
    assert candidate(PLAIN).digest != candidate(PLAIN + " ").digest


# --- finding


def test_files_come_in_the_order_given_and_folders_by_name(tmp_path: Path) -> None:
    for name in ("folder/b", "folder/a", "folder/__init__", "folder/notes/deep", "z", "y"):
        write(tmp_path / f"{name}.py")
    (tmp_path / "folder/readme.md").write_text("")
    found = find_candidates([tmp_path / "z.py", tmp_path / "folder", str(tmp_path / "y.py")])
    assert [c.name for c in found] == ["z", "a", "b", "y"]
    assert all(c.source == PLAIN for c in found)


def test_a_file_named_twice_is_one_candidate(tmp_path: Path) -> None:
    file = write(tmp_path / "folder/a.py")
    assert [c.name for c in find_candidates([file, tmp_path / "folder"])] == ["a"]


def test_records_are_taken_as_they_are(tmp_path: Path) -> None:
    record = candidate(PLAIN)
    assert find_candidates([record, write(tmp_path / "b.py")])[0] is record


def test_two_files_of_one_name_are_an_error(tmp_path: Path) -> None:
    files = [write(tmp_path / "one/a.py"), write(tmp_path / "two/a.py")]
    with pytest.raises(CandidateError, match=r"two candidates are named 'a'.*rename one"):
        find_candidates(files)


@pytest.mark.parametrize(("place", "words"), [("missing.py", "no candidate at"), ("empty", "no candidate in")])
def test_nothing_found_is_an_error(tmp_path: Path, place: str, words: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(CandidateError, match=words):
        find_candidates([tmp_path / place])


# --- belonging


def task(place: str) -> Task:
    path = Path(place)
    return Task(path.parent.name if path.name == "reference.py" else path.stem, path, "", {})


TASKS = [task("level1/9_Conv.py"), task("level2/9_Conv_Relu.py"), task("level2/90_Softmax.py")]


@pytest.mark.parametrize(
    ("name", "belongs"),
    [
        ("9_Conv_fast", "9_Conv"),
        ("9_Conv_Relu_fast", "9_Conv_Relu"),
        ("level_1_problem_9_sample_0_kernel", "9_Conv"),
        ("level_2_problem_9_sample_0_kernel", "9_Conv_Relu"),
        ("level2_problem90_sample_3", "90_Softmax"),
    ],
)
def test_a_candidate_belongs_to_the_task_that_its_name_says(name: str, belongs: str) -> None:
    one = candidate(PLAIN, name)
    assert [(t.name, found) for t, found in match_candidates(TASKS, [one])] == [(belongs, [one])]


@pytest.mark.parametrize("name", ["softmax", "level_3_problem_9_sample_0", "level_2_problem_900"])
def test_a_candidate_of_no_task_is_an_error(name: str) -> None:
    with pytest.raises(CandidateError, match="belongs to no task here"):
        match_candidates(TASKS, [candidate(PLAIN, name)])
