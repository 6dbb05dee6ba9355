"""The judge of public candidates: what a manifest names is read, and what came is summed up."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from public_candidates import _chosen, summary, text_of


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Of somebody's repository, with two forms of files that hold many candidates."""
    folder = tmp_path / "somebody/kernels"
    folder.mkdir(parents=True)
    (folder / "one.py").write_text("class ModelNew: ...\n")
    (folder / "tree.json").write_text(json.dumps({"1": [{"code": "first"}, {"code": "second"}]}))
    (folder / "rows.json").write_text('{"code": "of row 0"}\n{"code": "of row 1"}\n')
    named = ["-c", "user.name=x", "-c", "user.email=x@example.com"]
    for command in (["init", "-q"], ["add", "."], [*named, "commit", "-qm", "all"]):
        subprocess.run(["git", "-C", folder, *command], check=True)
    (folder / "one.py").write_text("changed since\n")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "part", "text"),
    [
        ("one.py", "", "class ModelNew: ...\n"),
        ("tree.json", "1/1/code", "second"),
        ("rows.json", "1/code", "of row 1"),
    ],
)
def test_a_place_is_read_at_its_commit(clone: Path, path: str, part: str, text: str) -> None:
    head = subprocess.run(
        ["git", "-C", clone / "somebody/kernels", "rev-parse", "HEAD"], capture_output=True, text=True
    )
    where = {"repository": "somebody/kernels", "commit": head.stdout.strip(), "path": path, "part": part}
    assert text_of(where, clone) == text


def test_what_came_is_summed_up() -> None:
    told = {"a": "passed", "b": "passed", "c": "wrong", "d": "raises", "e": "", "f": "passed"}
    entries = [{"id": name, "published": published} for name, published in told.items()]
    results = {
        "a": {"verdict": "passed", "words": "passed", "wall_s": 1.0},
        "b": {"verdict": "wrong", "words": "wrong shape: output is [1], should be []", "wall_s": 2.0},
        "c": {"verdict": "not-judged", "words": "not judged here: cudaGraph_t, line 7", "wall_s": 3.0},
        "d": {"verdict": "not-judged", "words": "not judged here: cudaGraph_t, line 12", "wall_s": 4.0},
        "e": {"verdict": "passed", "words": "passed", "wall_s": 50.0},
    }
    assert summary(entries, results) == [
        "5 of 6 judged; definite 3 (60.0%); of 2 with a published verdict 1 agree (50.0%)",
        "seconds: median 3.0, 90 % within 4.0, most 50.0",
        "   2 not-judged: not judged here: cudaGraph_t, line N",
        "     apart: b: published passed, here wrong: wrong shape: output is [1], should be [] ",
    ]
    assert summary(entries, {}) == ["nothing was judged"]


def test_a_sample_is_the_same_each_time_and_of_all_authors() -> None:
    entries = [{"id": f"{author}/{i}"} for author in "ab" for i in range(50)]
    sample = [entry["id"] for entry in _chosen(entries, "", 20)]
    assert sample == [entry["id"] for entry in _chosen(entries[::-1], "", 20)]
    assert {name[0] for name in sample} == {"a", "b"}
    assert {entry["id"] for entry in _chosen(entries, "a/1,b/2", 0)} == {
        *(f"a/{i}" for i in (1, *range(10, 20))),
        *(f"b/{i}" for i in (2, *range(20, 30))),
    }
