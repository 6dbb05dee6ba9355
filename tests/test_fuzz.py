"""A part of the nightly fuzzing (`make fuzz`): whatever tasks, candidates, options, replies and records hold, the judge
ends with its own exit codes and its own words."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fuzz
import fuzz_tasks
from crucible.judge.process.replies import _FORMS, is_reply

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def test_three_hundred_inputs_are_read_or_refused(crucible_home: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRUCIBLE_HOME", "kept by monkeypatch")
    assert fuzz.fuzz(300, seed=20260801, runs=0) == []


@pytest.mark.slow
def test_mutated_candidates_leave_the_one_beside_them_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRUCIBLE_HOME", "kept by monkeypatch")
    assert fuzz.fuzz(0, seed=20260801, runs=1) == []


@given(st.sampled_from([*_FORMS, "start", "trace"]), st.dictionaries(st.text(max_size=8), json_values, max_size=6))
@settings(max_examples=100, deadline=None)
def test_no_reply_is_beyond_the_form_check(verb: str, reply: dict[str, object]) -> None:
    assert is_reply(verb, reply) in (True, False)
    assert is_reply(verb, {"done": verb, **reply}) in (True, False)


def test_a_fuzzer_that_finds_nothing_would_find_something(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault that is planted where tasks are read is found, with what reproduces it."""

    def planted(*_: object) -> object:
        raise IndexError("planted")

    monkeypatch.setattr("crucible.task._training", planted)
    monkeypatch.setenv("CRUCIBLE_HOME", "kept by monkeypatch")
    found = fuzz.fuzz(7 * 8, seed=5, runs=0)
    assert found and all("IndexError: planted" in one and "try_task, 5/" in one for one in found)


def test_mutations_are_of_the_seed_alone() -> None:
    one, two = (fuzz.mutated(fuzz.TASK, random.Random("7/1")) for _ in range(2))
    assert one == two != fuzz.TASK


def test_mutated_tasks_are_answered_or_refused_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRUCIBLE_HOME", "kept by monkeypatch")
    assert fuzz.fuzz(0, seed=20260801, runs=0, tasks=24) == []


def test_a_task_that_ends_the_oracle_would_be_found(tmp_path: Path) -> None:
    ending = fuzz.TASK.replace("def get_inputs():\n", "def get_inputs():\n    __import__('os')._exit(3)\n")
    (found,) = fuzz_tasks.answered(1, 5, tmp_path, lambda chance: ending)
    assert found.startswith("task 5/0: ProcessLostError") and "exit code 3" in found
