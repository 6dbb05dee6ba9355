"""At which sizes a task is judged: what is free, what is cut, what is ragged, and what the user may ask for."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible import shapes
from crucible.errors import TaskError
from crucible.judge.diagnosis.specialised import hard_coded
from crucible.task import Task
from support import TASKS, write

REFERENCE = """
import torch
from torch import nn

batch_size, height = 128, 256
width: int = 2 * 128
channels = 16
features = channels * 4
eps = 1e-5
name = "x"
unused = 7

class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.eps = eps

def get_inputs():
    return [torch.rand(batch_size, channels, height, width)]

def get_init_inputs():
    return [channels]
"""
NAMES = st.sampled_from(["batch_size", "height", "width", "depth", "seq_len", "N"])
FREE = st.dictionaries(NAMES, st.integers(1, 5000), min_size=1, max_size=5)


def test_free_is_what_get_inputs_alone_reads() -> None:
    assert shapes.free_sizes(REFERENCE) == {"batch_size": 128, "height": 256, "width": 256}


def test_own_numbers_are_all_positive_integers_of_the_module() -> None:
    assert shapes.own_numbers(REFERENCE) == {
        "batch_size": 128,
        "height": 256,
        "width": 256,
        "channels": 16,
        "features": 64,
        "unused": 7,
    }


@pytest.mark.parametrize(
    "lines",
    [
        "height = width = 128",
        "height = width = side = 2 * 64",
        "height, width = 128, 128",
        "(height, width) = [128, 256 // 2]",
        "[height, width] = [64 + 64, 130 - 2]",
        "height: int = 128\nwidth: 'int' = height",
        "height = 1 << 7\nwidth = 2 ** 7",
        "height, width = side = 128, 128",
        "base = 32\nheight = base * 4\nwidth = height",
    ],
)
def test_sizes_are_read_however_they_are_assigned(lines: str) -> None:
    text = REFERENCE.replace("height = 128, 256\nwidth: int = 2 * 128", f"other = 128, 1\n{lines}")
    assert {name: shapes.own_numbers(text)[name] for name in ("height", "width")} == {"height": 128, "width": 128}
    assert shapes.free_sizes(text).get("width") == 128


@pytest.mark.parametrize("value", ["1.5", "-3", "0", "unknown * 2", "True", "10 / 2", "f(3)", "2 ** 99", "[1, 2]"])
def test_what_is_no_size_is_not_read(value: str) -> None:
    assert "n" not in shapes.own_numbers(f"n = {value}\n")


def test_a_variable_of_the_module_is_no_reader_of_a_size() -> None:
    """`batch_size, _ = x.shape` in a forward binds a name of its own."""
    local = REFERENCE.replace(
        "        self.eps = eps", "        batch_size = height = 1\n        self.eps = batch_size"
    )
    assert set(shapes.free_sizes(local)) == {"batch_size", "height", "width"}
    reads = REFERENCE.replace("        self.eps = eps", "        self.eps = height")
    assert set(shapes.free_sizes(reads)) == {"batch_size", "width"}
    default = REFERENCE.replace("def get_init_inputs():", "def get_init_inputs(n=batch_size):")
    assert set(shapes.free_sizes(default)) == {"height", "width"}


@pytest.mark.parametrize("folder", TASKS, ids=lambda folder: folder.name)
def test_batch_and_space_of_the_shipped_tasks_are_free(folder: Path) -> None:
    assert set(shapes.free_sizes((folder / "reference.py").read_text())) == {"batch_size", "depth", "height", "width"}


@given(FREE)
def test_nothing_is_larger_than_the_tasks_own(free: shapes.Sizes) -> None:
    for sizes in (*shapes.cut_down(free), *shapes.ragged(free, {})):
        assert all(1 <= sizes[name] <= free[name] for name in sizes)


@given(FREE)
def test_a_cut_size_is_the_own_one_halved_so_often(free: shapes.Sizes) -> None:
    """So what divided it still does, as long as it can."""
    own = {name: value * 64 for name, value in free.items()}
    for sizes in shapes.cut_down(own):
        for name, value in sizes.items():
            assert value in [own[name] >> halved for halved in range(20)] or (name, value) == ("batch_size", 2)
            assert value <= 4096


@given(FREE)
def test_the_first_ragged_sizes_differ_from_the_cut_ones_and_are_odd_in_batch_and_space(free: shapes.Sizes) -> None:
    for first in shapes.cut_down(free):
        tries = shapes.ragged(free, first)
        assert all(any(sizes[name] != first[name] for name in sizes) for sizes in tries)
        if all(value > 70 for value in free.values()) and len(free) < 3:
            assert all(value % 2 for name, value in tries[0].items())


def test_without_free_sizes_there_is_nothing_to_cut() -> None:
    assert shapes.cut_down({}) == ()
    assert shapes.ragged({}, {}) == ()


def test_channels_are_few_or_as_they_are() -> None:
    free = {"batch_size": 64, "channels": 48, "height": 128, "width": 128}
    round_ = shapes.cut_down(free)
    assert round_[:2] == (
        {"batch_size": 2, "channels": 12, "height": 64, "width": 64},
        {"batch_size": 2, "channels": 48, "height": 64, "width": 64},
    )
    assert shapes.ragged(free, {})[:2] == (
        {"batch_size": 3, "channels": 7, "height": 67, "width": 37},
        {"batch_size": 3, "height": 67, "width": 37},
    )


def test_a_size_that_is_set_reaches_what_the_module_makes_of_it() -> None:
    text = "a = b = 8\nshape = (a, b)\nclass C:\n    a = 3\n"
    names: dict[str, object] = {}
    exec(compile(shapes.set_in(ast.parse(text), {"a": 2}), "<text>", "exec"), names)
    assert (names["a"], names["b"], names["shape"]) == (2, 8, (2, 8))


def test_rows_alone_are_cut_like_space() -> None:
    assert [sizes["batch_size"] for sizes in shapes.cut_down({"batch_size": 4096})][:2] == [4096, 1024]
    assert shapes.ragged({"batch_size": 4096}, {})[0] == {"batch_size": 2053}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("height", "write NAME=NUMBER"),
        ("height=0", "numbers from 1"),
        ("height=-3", "numbers from 1"),
        ("height=4.5", "numbers from 1"),
        ("heigth=4", r"no module-level number heigth \(it has batch_size, height, width, channels, features, unused\)"),
        ("", "write NAME=NUMBER"),
    ],
)
def test_a_shape_that_cannot_be_read_is_refused(text: str, words: str) -> None:
    with pytest.raises(TaskError, match=words):
        shapes.parse(text, REFERENCE)


def task(tmp_path: Path, tail: str = "") -> Task:
    loaded = Task.load(write(tmp_path / "a_task.py", REFERENCE + tail))
    return loaded.at(scale=None, training=False, mode="train", small_by_default=True)


def test_asked_shapes_take_the_place_of_all_others(tmp_path: Path) -> None:
    asked = task(tmp_path).shaped(["batch_size=2, height=9", "width=5"]).cut_down(own=False)
    assert asked.sizes == {"batch_size": 2, "height": 9}
    assert asked.further == (({"width": 5},),)
    assert asked.first == ()


def test_only_the_first_asked_shape_may_change_weights(tmp_path: Path) -> None:
    assert task(tmp_path).shaped(["channels=3"]).sizes == {"channels": 3}
    with pytest.raises(TaskError, match=r"channels decides about weights.*others may change batch_size, height, width"):
        task(tmp_path).shaped(["height=3", "channels=3"])


def test_a_task_with_a_small_size_keeps_it_and_gets_a_ragged_one(tmp_path: Path) -> None:
    cut = task(tmp_path, "SMALL = {'height': 8, 'batch_size': 3}\n").cut_down(own=False)
    assert (cut.scale, cut.sizes, cut.first) == ("small", {"height": 8, "batch_size": 3}, ())
    assert cut.further[0][0] == {"batch_size": 3, "height": 67, "width": 37}


def test_a_task_without_one_is_cut_down_unless_its_own_is_asked_for(tmp_path: Path) -> None:
    cut = task(tmp_path).cut_down(own=False)
    assert (cut.scale, cut.sizes) == ("cut-down", {})
    assert cut.first[0] == {"batch_size": 2, "height": 64, "width": 64}
    assert task(tmp_path).cut_down(own=True).first == ()


def test_every_choice_of_shapes_is_another_task_to_the_store(tmp_path: Path) -> None:
    plain = task(tmp_path)
    others = [plain.shaped(["height=3"]), plain.shaped(["height=3", "height=4"]), plain.cut_down(own=False)]
    assert len({plain.digest, *(other.digest for other in others)}) == 4


SIZES = {"height": 200, "width": 256, "depth": 16, "length": 4097}


@pytest.mark.parametrize(
    "line",
    [
        "    x = x.view(-1, 200)",
        "SOURCE = 'for (int i = 0; i < 4097u; ++i)'",
        "SOURCE = 'constexpr int WIDTH = 256;'",
        "SOURCE = '#define DEPTH 16'",
        "    y = f(depth=16)",
        "SOURCE = 'const int ID = 16;'",
        "SOURCE = '#define W_IN 256'",
        "SOURCE = 'constexpr int in_w = 256, d = 8;'",
        "    kernel(input_depth=16)",
        "    kernel(D=16)",
    ],
)
def test_a_size_of_the_tasks_own_is_found(line: str) -> None:
    indented = f"class ModelNew:\n{line}" if line.startswith(" ") else f"\n{line}"
    assert hard_coded(indented, SIZES).startswith("line 2 holds")


@pytest.mark.parametrize(
    "text",
    [
        "height = 200\nwidth = 256\n",
        "def get_inputs():\n    return [torch.rand(200, 4097)]\n",
        "SOURCE = 'k<<<n / 256, 256>>>(n, 16);'",
        "SOURCE = 'float x200 = 1.200f + 200.5f;'",
        "SOURCE = 'const int IW = 16, OD = 16, index = 256, IC = 16, INW2 = 256;'",
        "def broken(:",
        'SOURCE = """\n// 200 rows\nfloat a; // and 4097\nfloat b /* 200 */;\n/* of\n * 200 */\n"""',
        'def forward(x):\n    """200 rows\n    of 4097."""\n    return x  # 200',
    ],
)
def test_what_is_no_size_of_the_tasks_own_is_not(text: str) -> None:
    assert hard_coded(text, SIZES) == ""


def test_a_kernels_letters_are_the_tasks_own_letters() -> None:
    assert hard_coded("SOURCE = 'const int IH = 16;'", {"D": 8, "H": 16, "W": 8}) == "line 1 holds 16, the task's own H"
    assert hard_coded("SOURCE = 'const int IC = 16;'", {"c": 16, "H": 8}) == ""


def test_a_size_above_a_blocks_threads_stays_above_them_in_one_shape() -> None:
    assert shapes.long({"batch_size": 128, "dim1": 4096, "dim2": 4095}) == (
        {"batch_size": 1, "dim1": 2048, "dim2": 63},
        {"batch_size": 1, "dim1": 64, "dim2": 2047},
    )
    assert shapes.long({"batch_size": 8, "height": 512, "width": 2048}) == (
        {"batch_size": 1, "height": 64, "width": 2048},
    )
    assert shapes.long({"batch_size": 4096, "dim": 393216}) == ()


def test_a_tasks_long_sizes_are_kept_beside_the_shape_that_is_cut(tmp_path: Path) -> None:
    text = "import torch\nbatch, rows, columns = 8, 64, 4095\nclass Model: ...\n"
    text += "def get_inputs():\n    return [torch.rand(batch, rows, columns)]\ndef get_init_inputs():\n    return []\n"
    loaded = Task.load(write(tmp_path / "long.py", text))
    cut = loaded.at(scale=None, training=False, mode="train", small_by_default=True).cut_down(own=False)
    assert cut.beyond == ({"batch": 1, "rows": 64, "columns": 2047},)
    assert cut.digest != replace(cut, beyond=()).digest
    assert loaded.cut_down(own=True).beyond == ()


def test_a_size_that_inputs_have_in_two_places_is_cut_in_both() -> None:
    inputs = "def get_inputs():\n    return [zeros(n, *shape), zeros(n)]\n"
    source = f"n = 4096\nshape = (4096,)\nother = (4096, 2)\n{inputs}"
    tries = shapes.cut_together(source, shapes.free_sizes(source))
    assert tries == tuple({"n": size, "shape": (size,)} for size in (1024, 519, 67, 16))
    assert not shapes.cut_together(source + "def get_init_inputs():\n    return [shape]\n", {"n": 4096})
