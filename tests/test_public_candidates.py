"""The judge of public candidates: what a manifest names is read, and what came is summed up."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from public_candidates import Slot, _chosen, _run, _slots, compared, extract, summary, text_of


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
    assert extract([{"task": where, "candidate": where}], clone, clone / "texts") == 1
    shutil.rmtree(clone / "somebody")
    assert text_of(where, clone / "texts") == text


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
        "5 of 6 judged; definite 3 (60.0%); of 2 with a published verdict 1 agree (50.0%); "
        "right 1 of 1 (100.0%), open 1",
        "seconds: median 3.0, 90 % within 4.0, most 50.0",
        "   2 not-judged: not judged here: cudaGraph_t, line N",
        "     apart: b: published passed, here wrong: wrong shape: output is [1], should be [] [open] ",
    ]
    assert summary(entries, {}) == ["nothing was judged"]


def test_a_verdict_is_right_that_agrees_or_that_was_found_right() -> None:
    looked_at = {"a": "", "b": "ours", "c": "theirs", "d": "open", "e": "", "f": "theirs"}
    verdicts = {"a": "passed", "b": "wrong", "c": "wrong", "d": "wrong", "e": "wrong", "f": "passed"}
    entries = [{"id": name, "published": "passed", "right": right} if right else {"id": name, "published": "passed"}
               for name, right in looked_at.items()]  # fmt: skip
    results = {name: {"verdict": kind, "words": "", "wall_s": 1.0} for name, kind in verdicts.items()}
    # f agrees, whatever was said of an older verdict; nobody has looked at e.
    assert summary(entries, results)[0].endswith("; right 3 of 4 (75.0%), open 2")


def test_what_two_devices_say_is_compared() -> None:
    here = {"a": "passed", "b": "wrong", "c": "timed-out", "d": "passed", "e": "passed"}
    there = {"a": "passed", "b": "raises", "c": "passed", "d": "wrong", "f": "passed"}
    results = [{name: {"verdict": kind, "words": kind} for name, kind in each.items()} for each in (here, there)]
    assert compared(*results) == [
        "of 4 in both 3 definite in both; 2 the same (66.7%)",
        "     apart: d: here passed (passed), there wrong (wrong)",
    ]


def test_each_judge_keeps_to_its_processors_and_time(tmp_path: Path) -> None:
    cores = sorted(os.sched_getaffinity(0))
    assert {core for slot in _slots(2, "emulator", 1) for core in slot.cores} <= set(cores)
    assert [slot.gpus for slot in _slots(3, "cuda", 2)] == ["0", "1", "0"]
    asks = "import os, time; held = bytearray(200 << 20); time.sleep(1); print(os.environ['OMP_NUM_THREADS'])"
    words, took = _run([sys.executable, "-c", asks], tmp_path, 30, Slot(frozenset(cores[:1]), ""))
    assert words == "1\n"
    assert took["processors"] == 1
    assert 200 <= took["peak_mib"] < 400
    words, took = _run([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path, 0.5, Slot(frozenset(cores), ""))
    assert words == "took over 0.5 s"
    assert took["wall_s"] < 20


def test_a_sample_is_the_same_each_time_and_of_all_authors() -> None:
    entries = [{"id": f"{author}/{i}"} for author in "ab" for i in range(50)]
    sample = [entry["id"] for entry in _chosen(entries, "", 20)]
    assert sample == [entry["id"] for entry in _chosen(entries[::-1], "", 20)]
    assert {name[0] for name in sample} == {"a", "b"}
    assert {entry["id"] for entry in _chosen(entries, "a/1,b/2", 0)} == {
        *(f"a/{i}" for i in (1, *range(10, 20))),
        *(f"b/{i}" for i in (2, *range(20, 30))),
    }
