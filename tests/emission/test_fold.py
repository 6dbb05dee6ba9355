"""Folded text means what it meant."""

from __future__ import annotations

import ast

from hypothesis import given, settings
from hypothesis import strategies as st

from crucible.emission.fold import WIDTH, folded
from support import NIGHTLY

names = st.from_regex(r"[a-z]{1,25}", fullmatch=True).map(lambda name: f"{name}_")
strings = st.text("ab, ()[]\\'{}", max_size=30).map(repr).filter(lambda text: text.startswith("'"))
quoted = strings.map(lambda text: '"' + text[1:-1].replace('"', "") + '"')
items = st.one_of(names, st.integers(0, 10**9).map(str), quoted)
lists = st.lists(items, min_size=1, max_size=8).map(lambda each: f"[{', '.join(each)}]")
calls = st.lists(st.one_of(items, lists), min_size=1, max_size=12).map(lambda each: f"call({', '.join(each)})")


@given(calls, st.integers(0, 3))
@settings(max_examples=200 if NIGHTLY else 70, deadline=None)
def test_python_stays_the_same(call: str, depth: int) -> None:
    line = "    " * depth + f"out = {call}"
    text = "".join("    " * i + "if x:\n" for i in range(depth)) + line
    assert ast.dump(ast.parse(folded(text))) == ast.dump(ast.parse(text))


@given(st.lists(names, min_size=1, max_size=40))
@settings(max_examples=50, deadline=None)
def test_lists_of_names_fit(each: list[str]) -> None:
    assert all(len(line) <= WIDTH for line in folded(f"    out = run({', '.join(each)})").split("\n"))


def test_names_outside_of_brackets_are_not_torn_apart() -> None:
    line = ", ".join(f"gradient_of_{i}" for i in range(8)) + " = call(" + ", ".join("argument" for _ in range(3)) + ")"
    assert ast.dump(ast.parse(folded(line))) == ast.dump(ast.parse(line))


def test_a_comment_behind_code_stays_there() -> None:
    line = "    x = " + " + ".join(["value"] * 14) + ";  // a sum, of " + ", ".join(["values"] * 5)
    assert folded(line) == line


def test_comments_fold_at_words() -> None:
    text = "    // " + " ".join(["word"] * 40)
    lines = folded(text).split("\n")
    assert len(lines) > 1
    assert all(line.startswith("    // word") and len(line) <= WIDTH for line in lines)


def test_where_no_comma_comes_in_time_arguments_begin_a_line() -> None:
    name, each = "run_" + "long_" * 15, ["argument"] * 30
    text = f"    {name}<<<66, 256, 0, stream>>>({', '.join(each)});"
    lines = folded(text).split("\n")
    assert lines[0].endswith("(") and all(len(line) <= WIDTH for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_parameters_before_a_body_are_all_folded() -> None:
    text = f"void run({', '.join(f'const torch::Tensor& parameter_{i}' for i in range(12))}) {{"
    assert all(len(line) <= WIDTH for line in folded(text).split("\n"))
