"""Markdown for pull requests, read as GitHub's rules read it."""

from __future__ import annotations

import functools
import itertools
import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token
from recorded import whole_run
from typer.testing import CliRunner

from crucible import cli, legible
from crucible.errors import MisuseError
from crucible.report.markdown import escaped, markdown
from crucible.run import run_from_json

HOSTILE = (
    "a | b", "|\n|---|", "<script>alert(1)</script>", "@everyone", "#1", "GH-1", "fixes owner/repo#2", "[x](http://x.y)",
    "![i](x)", "www.example.org", "https://example.org", "`code", "**bold**", "__b__", "~~s~~", "&lt;b&gt;", "<!-- -->",
    "\\|", "\\", "x@example.org", "- list\n- list", "# head", "$x$", "\u202e",
)  # fmt: skip
texts = st.lists(st.one_of(st.sampled_from(HOSTILE), st.text(max_size=6)), max_size=4).map(lambda p: "x" + " ".join(p))


def parsed(text: str) -> list[Token]:
    return MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(text)


def structure(tokens: list[Token]) -> list[str]:
    """Blocks, and what is inside of them but for text and breaks."""
    inner = [[c.type for c in token.children or () if c.type not in ("text", "text_special")] for token in tokens]
    return [f"{token.type}: {' '.join(types)}" for token, types in zip(tokens, inner, strict=True)]


def read(token: Token) -> list[str]:
    """Its words, as a reader sees them."""
    return "".join(child.content for child in token.children or ()).replace("\u200b", "").split()


def seen(text: str) -> list[str]:
    """The words of a text, what cannot be seen by its code."""
    return legible.line(text).split()


@functools.cache
def benign() -> list[str]:
    return structure(parsed(markdown(whole_run("x"))))


@settings(max_examples=60, deadline=None)
@given(texts)
def test_no_text_of_a_candidate_changes_what_it_is_made_of(text: str) -> None:
    shown = markdown(whole_run(text))
    tokens = parsed(shown)
    assert structure(tokens) == benign()
    cells = [token for before, token in itertools.pairwise(tokens) if before.type == "td_open"]
    assert read(cells[1]) == seen(f"{text} best") and read(cells[2]) == ["True"]
    assert not re.search(r"[@#](?=[\w-])|GH-\d|(?i:www)\.|://", shown.replace("### ", ""))


@given(texts)
def test_it_reads_as_it_stands(text: str) -> None:
    (paragraph,) = (token for token in parsed(f"x {escaped(text)} x") if token.type == "inline")
    assert read(paragraph) == seen(f"x {text} x")


def test_table_causes_and_the_best() -> None:
    shown = markdown(whole_run())
    rows = [line for line in shown.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + 5 + 2
    assert rows[2].startswith("| 1 | plain best | True | 2 ms ±0.02 | 2 \\[1.96, 2.04\\] | 0.8 ")
    assert "- **plain best** (the best): plain\n  <br>seen: plain" in shown
    assert "- **plain broken** (does not build): plain" in shown
    assert "plain written** (" not in shown, "what passed and is not the best needs no cause"


def test_the_command_prints_it(tmp_path: Path) -> None:
    record = tmp_path / "run.json"
    record.write_text(json.dumps(whole_run().to_json()))
    done = CliRunner().invoke(cli.app, ["explain", str(record), "--markdown"], catch_exceptions=False)
    assert done.exit_code == 0 and done.output == markdown(run_from_json(json.loads(record.read_text())))
    with pytest.raises(MisuseError, match="leave out the candidate"):
        CliRunner().invoke(cli.app, ["explain", str(record), "plain best", "--markdown"], catch_exceptions=False)
