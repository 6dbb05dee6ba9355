"""The smallest failing shape: what is found is what was seen, and no verdict hangs on it."""

from __future__ import annotations

import dataclasses
import json
import math
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import crucible
from crucible import shapes
from crucible.judge.diagnosis.shrinking import INPUTS, MOST_RUNS, Enough, Search
from crucible.judge.verdict.trials import OTHERWISE, REFUSED, RIGHT, WRONG, NotShrunk, SmallestFailing, changed, edges
from crucible.judge.verdict.verdict import Verdict, Wrong, from_json, to_json
from crucible.shapes import Sizes
from support import claims, write

# --- the search alone

OFF: dict[str, Callable[[Sizes], bool]] = {
    "everywhere": lambda at: True,
    "over 32": lambda at: at["width"] > 32,
    "no multiple of 32": lambda at: at["width"] % 32 != 0,
    "over 1000 in all": lambda at: math.prod(at.values()) > 1000,
    "more than one": lambda at: at["batch_size"] > 1,
    "odd": lambda at: at["width"] % 2 == 1,
    "both": lambda at: at["batch_size"] > 2 and at["width"] > 16,
}
FIRST = {"height": 37, "batch_size": 5, "width": 67}
POWERS = {"height": 32, "batch_size": 4, "width": 64}


def searched(
    fails: Callable[[Sizes], bool], first: Sizes = FIRST, takes: Callable[[Sizes], bool] = lambda at: True
) -> Search:
    """A search to its end."""
    search = Search(first, lambda at: REFUSED if not takes(at) else WRONG if fails(at) else RIGHT)
    search.run([], [POWERS if first == FIRST else first])
    return search


@pytest.mark.parametrize(
    ("off", "found"),
    [
        ("everywhere", {"batch_size": 1, "height": 1, "width": 1}),
        ("over 32", {"batch_size": 1, "height": 1, "width": 33}),
        ("no multiple of 32", {"batch_size": 1, "height": 1, "width": 1}),
        ("more than one", {"batch_size": 2, "height": 1, "width": 1}),
        ("both", {"batch_size": 3, "height": 1, "width": 17}),
    ],
)
def test_the_smallest_is_found(off: str, found: Sizes) -> None:
    search = searched(OFF[off])
    assert (search.found, search.stopped) == (found, "")
    assert list(search.found or {}) == ["batch_size", "height", "width"]


@pytest.mark.parametrize("off", OFF)
def test_what_is_found_fails_and_no_size_of_it_can_be_one_less(off: str) -> None:
    search = searched(OFF[off])
    assert search.found and search.trials[tuple(search.found.items())] == WRONG
    for name, size in search.found.items():
        below = changed(tuple(search.found.items()), name, size - 1)
        assert size == 1 or (search.trials[below] == RIGHT and not OFF[off](dict(below)))


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.sampled_from("abcd"), st.integers(1, 70), min_size=1), st.integers(0, 2**32), st.integers(0, 9)
)
def test_whatever_fails_the_search_ends_and_says_only_what_it_saw(first: Sizes, salt: int, tenths: int) -> None:
    """Failures at random places, so that nothing is as simple as bisection would have it."""
    seen: dict[tuple[tuple[str, int], ...], str] = {}

    def look(at: Sizes) -> str:
        key = tuple(at.items())
        assert key not in seen, "looked at twice"
        assert all(size >= 1 for size in at.values())
        wrong = at == first or zlib.crc32(repr((salt, key)).encode()) % 10 < tenths
        seen[key] = WRONG if wrong else (RIGHT, REFUSED, OTHERWISE)[zlib.crc32(repr((key, salt)).encode()) % 3]
        return seen[key]

    search = Search(first, look)
    search.run([], [])
    assert search.trials == seen
    assert search.found is not None
    at = tuple(search.found.items())
    assert seen[at] == WRONG
    assert all(seen[changed(at, name, size - 1)] != WRONG for name, size in at if size > 1)


def test_where_nothing_smaller_is_right_the_search_rises_to_what_is() -> None:
    search = searched(OFF["no multiple of 32"])
    (edge, *_) = edges(search.trials, tuple((search.found or {}).items()))
    assert (edge.name, edge.wrong, edge.right) == ("width", 31, 32)
    assert dict(edge.at) | {"width": 1} == {"batch_size": 1, "height": 1, "width": 1}
    doubled = {size: search.trials[changed(edge.at, "width", size)] for size in (33, 64, 65)}
    assert doubled == {33: WRONG, 64: RIGHT, 65: WRONG}


def test_sizes_that_the_reference_refuses_are_neither_right_nor_wrong() -> None:
    search = searched(OFF["everywhere"], takes=lambda at: at["width"] >= 3 and at["height"] % 2 == 1)
    assert search.found == {"batch_size": 1, "height": 1, "width": 3}
    assert RIGHT not in search.trials.values()


def test_a_first_shape_that_is_too_much_work_is_begun_from_a_smaller_one() -> None:
    def little(at: Sizes) -> bool:
        return at["width"] < 100

    search = Search({"width": 4096}, lambda at: (WRONG if at["width"] > 20 else RIGHT) if little(at) else REFUSED)
    search.run([{"width": 16}, {"width": 64}], [])
    assert search.found == {"width": 21}
    right = Search({"width": 4096}, lambda at: RIGHT if little(at) else REFUSED)
    right.run([{"width": 16}, {"width": 64}], [])
    assert (right.found, list(right.trials.values())) == ({"width": 4096}, [REFUSED, RIGHT, RIGHT])


def test_every_shape_that_the_judge_may_begin_from_can_be_begun_from() -> None:
    """Odd shapes may name a few sizes alone (`{'batch_size': 3}`): the others are as at first. A candidate that was
    wrong at 32 x 32 x 64 x 64, in shape at all others, was not judged for it."""
    first = {"batch_size": 32, "depth": 32, "height": 64, "width": 64}
    starts = [*reversed(shapes.cut_down(first)), *reversed(shapes.ragged(first, {}))]
    few = {"batch_size": 3}
    assert few in starts
    search = Search(first, lambda at: REFUSED if at == first else WRONG if at == {**first, **few} else OTHERWISE)
    search.run(starts, [])
    assert search.found == {**first, **few}
    nowhere = Search(first, lambda at: REFUSED if at == first else OTHERWISE)
    nowhere.run(starts, [])
    assert nowhere.found == first and len(nowhere.trials) == 1 + len(starts)


def test_a_failure_that_does_not_come_again_has_no_smallest_shape() -> None:
    search = Search(FIRST, lambda at: RIGHT)
    search.run([], [POWERS])
    assert (search.found, len(search.trials), search.stopped) == (None, 1, "it is right on other inputs")


def test_a_search_that_is_cut_short_keeps_what_it_has() -> None:
    def look(at: Sizes) -> str:
        if len(search.trials) == 6:
            raise Enough("6 runs were made")
        return WRONG if at["width"] > 3 else RIGHT

    search = Search(FIRST, look)
    search.run([], [POWERS])
    assert search.stopped == "6 runs were made"
    assert search.found and 3 < search.found["width"] <= 67
    assert search.trials[tuple(search.found.items())] == WRONG


def test_the_runs_suffice_for_bounds_in_four_sizes_at_once() -> None:
    search = searched(lambda at: min(at.values()) > 10, dict.fromkeys("abcd", 67))
    assert search.found == dict.fromkeys("abcd", 11)
    assert sum(INPUTS if came == RIGHT else 1 for came in search.trials.values()) <= MOST_RUNS


# --- candidates

TASK = """
import torch
from torch import nn

batch_size = 4
width = 70
{more}

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x):
        {check}
        return torch.tanh(x) * self.scale[:, None]

def get_inputs():
    return [torch.rand(batch_size, 3, width) * 4]

def get_init_inputs():
    return []
"""
CANDIDATE = """
import os
import time
import torch
from torch import nn

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        out = torch.tanh(x) * self.scale[:, None]
        n = x.shape[2]
        {body}
        return out
"""
BODIES = {
    "right": "pass",
    "always": "out = out * 2",
    "over_32": "out = torch.cat([out[..., :32], 0 * out[..., 32:]], 2)",
    "past_32": "out = torch.cat([out[..., :n - n % 32], 0 * out[..., n - n % 32:]], 2)",
    "batch": "out = out * (2 if len(x) > 1 else 1)",
    "gradient": "out = out + (x - x.detach()) * (n > 17)",
    "nan": "out = out / (n <= 40)",
    "no_weight": "out = torch.tanh(x)",
    "refuses": "out = out * 2; assert n > 9",
    "dies": "out = out * 2; os._exit(0) if n < 20 else None",
    "hangs": "out = out * 2\n        while n < 20: time.sleep(0.1)",
    "first_call": "out = out * (2 if self.calls == 1 else 1)",
    "hard_coded": "out = out * 2 if n == 70 else out",
}
HANG_S = 4.0


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list:
    folder = tmp_path_factory.mktemp("candidates")
    return [write(folder / f"{name}.py", CANDIDATE.format(body=body)) for name, body in BODIES.items()]


@pytest.fixture(scope="module")
def runs(judge_batch: Callable[..., crucible.Run], files: list, tmp_path_factory: pytest.TempPathFactory) -> list:
    """With the search and without it."""
    task = write(tmp_path_factory.mktemp("task") / "reference.py", TASK.format(more="", check=""))
    limits = [crucible.Limits(race_s=0.05, shrink_s=shrink_s, stress_s=0) for shrink_s in (HANG_S, 0)]
    return [judge_batch(task, files, training=True, limits=each) for each in limits]


SEEN = {
    "always": ((1, 1), None),
    "over_32": ((1, 33), (1, 32)),
    "past_32": ((1, 1), (1, 32)),
    "batch": ((2, 1), (1, 1)),
    "gradient": ((1, 18), (1, 17)),
    "nan": ((1, 41), (1, 40)),
}


@pytest.mark.parametrize("name", SEEN)
def test_a_candidate_is_seen_to_fail_at_its_smallest_shape(runs: list, name: str) -> None:
    found = runs[0].verdict(name).smallest_failing
    assert isinstance(found, SmallestFailing), found
    smallest, right = SEEN[name]
    assert (tuple(dict(found.at).values()), dict(found.first)) == (smallest, {"batch_size": 4, "width": 70})
    at = [tuple(dict(one).values()) for one in found.came(RIGHT)]
    assert right in at if right else at == []
    assert found.stopped == ""
    assert ("gradient" if name == "gradient" else "output") in found.words


def test_a_weight_that_is_never_read_has_no_smallest_shape(runs: list) -> None:
    verdict = runs[0].verdict("no_weight")
    assert getattr(verdict.outcome, "what", "") == "weights", verdict.outcome.words
    assert isinstance(verdict.smallest_failing, NotShrunk)


def test_sizes_that_the_candidate_refuses_are_no_failure_of_the_same_sort(runs: list) -> None:
    found = runs[0].verdict("refuses").smallest_failing
    assert isinstance(found, SmallestFailing)
    assert dict(found.at) == {"batch_size": 1, "width": 10}
    assert found.came(OTHERWISE) and not found.came(RIGHT)


@pytest.mark.parametrize(("name", "words"), [("dies", "exit code 0"), ("hangs", f"{HANG_S:g} s were up")])
def test_a_process_that_ends_in_the_search_ends_the_search_alone(runs: list, name: str, words: str) -> None:
    verdict = runs[0].verdict(name)
    found = verdict.smallest_failing
    assert isinstance(verdict.outcome, Wrong) and isinstance(found, SmallestFailing)
    assert words in found.stopped and "(at batch_size = 1, width = 1)" in found.stopped
    assert found.at == found.first


@pytest.mark.parametrize("name", BODIES)
def test_the_search_changes_nothing_else(runs: list, name: str) -> None:
    searched, plain = (run.verdict(name) for run in runs)
    same = ("outcome", "forward", "backward", "findings", "faults", "variant")
    assert [getattr(searched, field) for field in same] == [getattr(plain, field) for field in same]
    assert isinstance(plain.smallest_failing, NotShrunk)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("right", "only wrong values"),
        ("first_call", "is not seen to fail again: it is right on other inputs"),
        ("hard_coded", "size-specialised: line 17 holds 70, the task's own width"),
    ],
)
def test_what_cannot_be_shrunk_says_why(runs: list, name: str, words: str) -> None:
    found = runs[0].verdict(name).smallest_failing
    assert isinstance(found, NotShrunk) and words in found.reason, found


@pytest.mark.parametrize(
    ("more", "check", "came"),
    [
        ("", "assert x.shape == (4, 3, 70)", {WRONG, REFUSED}),
        ("", "assert x.shape[2] > 30", {WRONG, REFUSED}),
        ("used = [batch_size, width]", "", None),
    ],
)
def test_a_reference_that_cannot_be_cut_is_no_ones_failure(
    judge_source: Callable[..., Verdict], tmp_path: object, more: str, check: str, came: set[str] | None
) -> None:
    task = write(tmp_path / "reference.py", TASK.format(more=more, check=check))  # type: ignore[operator]
    limits = crucible.Limits(race_s=0.05, stress_s=0)
    verdict = judge_source(CANDIDATE.format(body=BODIES["always"]), task, limits=limits)
    found = verdict.smallest_failing
    assert isinstance(verdict.outcome, Wrong)
    if came is None:
        assert found == NotShrunk("the task has no size of its inputs' alone")
        return
    assert isinstance(found, SmallestFailing) and {trial.came for trial in found.trials} == came
    assert dict(found.at) == ({"batch_size": 1, "width": 31} if ">" in check else {"batch_size": 4, "width": 70})


def test_the_benchmarks_rule_takes_tiny_answers_and_the_judge_says_what_it_would_do(
    judge_source: Callable[..., Verdict], tmp_path: object
) -> None:
    """Outputs of 1e-6: under an absolute tolerance of 1e-4 whatever is wrong is right."""
    tiny = TASK.format(more="", check="x = x * 1e-6")
    task = write(tmp_path / "reference.py", tiny)  # type: ignore[operator]
    body = "out = torch.tanh(x * 2e-6) * self.scale[:, None]"
    verdict = judge_source(CANDIDATE.format(body=body), task, contract="kernelbench")
    assert verdict.evaluation
    claim = "right by the public benchmark's rule, wrong by the judge's own (contract tf32)"
    assert f"{claim}: wrong forward: output is off by 1 in relative L2" in claims(verdict)


def test_a_search_comes_back_from_json(runs: list) -> None:
    for verdict in runs[0].verdicts:
        again = from_json(json.loads(json.dumps(to_json(verdict))))
        assert dataclasses.replace(again, cached=verdict.cached) == verdict


def test_batches_come_first() -> None:
    assert shapes.batch_first({"width": 3, "batch_size": 2, "height": 1}) == ("batch_size", "width", "height")
    assert shapes.batch_first({"batch_size": 2}) == ("batch_size",)
