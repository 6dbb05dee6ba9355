"""Submissions: one by its content, checked when it is made, the same after JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crucible import pipeline
from crucible.candidate import Candidate
from crucible.errors import MisuseError, RecordError
from crucible.fleet.submission import USUAL, Submission, submission_from_json
from crucible.judge.process.limits import Limits
from crucible.task import Task
from fleet.fleeting import small
from support import PLAIN, SMALL_TASK


def made(**options: Any) -> Submission:
    return Submission("task", "# task", "candidate", "# candidate", options)


def test_its_id_is_of_its_content() -> None:
    one = made()
    assert one.id == made(contract="tf32", shapes=(), limits=Limits()).id, "said or unsaid, the usual is the usual"
    assert one.id == Submission("other", "# task", "another", "# candidate", {}, 7, "/elsewhere").id
    others = [
        Submission("task", "# other", "candidate", "# candidate"),
        Submission("task", "# task", "candidate", "# other"),
        made(contract="fp32"),
        made(limits={"run_s": 1.0}),
        made(shapes=["n=2"]),
    ]
    assert len({one.id, *(other.id for other in others)}) == 6


def test_an_answer_without_a_module_keeps_its_reason() -> None:
    """It came to be an empty file, whose verdict said less."""
    task, none = Task.load(SMALL_TASK), Candidate.from_answer("I cannot help with that.")
    one = submission_from_json(json.loads(json.dumps(Submission.of(task, none).to_json())))
    assert none.unusable and one.candidate.fault() == none.unusable
    assert one.id != Submission.of(task, Candidate("answer", none.path, none.source)).id


def test_json_and_back() -> None:
    one = made(contract="fp32", shapes=("n=2",), limits=Limits(run_s=2.0), seed=3)
    again = submission_from_json(json.loads(json.dumps(one.to_json())))
    assert again == one and again.id == one.id
    assert again.arguments == {"contract": "fp32", "shapes": ["n=2"], "limits": Limits(run_s=2.0), "seed": 3}
    for broken in ({}, {**one.to_json(), "schema": "other"}, {**one.to_json(), "more": 1}, [], None):
        with pytest.raises(RecordError):
            submission_from_json(broken)


def test_its_options_are_the_judges() -> None:
    """Names and what they usually are."""
    import inspect

    parameters = inspect.signature(pipeline.judge).parameters
    usual = {name: parameters[name].default for name in USUAL}
    assert {**usual, "shapes": [], "limits": {}} == USUAL
    assert set(parameters) - set(USUAL) == {"task", "candidates", "fresh", "say", "root", "listener"}


@pytest.mark.parametrize(
    "options, words",
    [
        ({"colour": "red"}, "no option colour: a submission may have contract"),
        ({"contract": "fp8"}, "fp8"),
        ({"device": "tpu"}, "no device 'tpu': choose auto, cuda, cpu, emulator"),
        ({"mode": "test"}, "mode 'test': choose one of train, eval"),
        ({"training": 1}, "option training 1: give it as bool"),
        ({"seed": True}, "option seed True: give it as int or NoneType"),
        ({"limits": {"run_s": -1}}, "run_s -1: give a number of seconds"),
        ({"limits": {"runs": 1}}, "give some of build_s, run_s"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(MisuseError, match=words):
        made(**options)


@pytest.mark.parametrize("name", ["", "a/b", "..", "x" * 256, "nul\0"])
def test_names_that_no_file_can_have_are_refused(name: str) -> None:
    with pytest.raises(MisuseError, match="task name"):
        Submission(name, "", "candidate", "")
    with pytest.raises(MisuseError, match="candidate name"):
        Submission("task", "", name, "")


def test_kernels_for_the_emulator_are_a_batch_of_their_own() -> None:
    """They are judged at smaller sizes, and would take their neighbours there."""
    kernel = Submission("task", "# task", "kernel", "import triton\n")
    assert made().batch == Submission("task", "# task", "other", "# other").batch
    assert kernel.batch != made().batch != made(contract="fp32").batch


def test_of_loaded_records(tmp_path: Path) -> None:
    one = Submission.of(Task.load(SMALL_TASK), Candidate.load(PLAIN), device="cpu", limits=Limits(run_s=1.0))
    assert (one.task_name, one.candidate_name, one.kind) == ("small_task", "plain", "cpu")
    assert one.candidate == Candidate.load(PLAIN)
    there = small(0).task(tmp_path)
    assert (there.source, there.digest, there.name) == (one.task_source, Task.load(SMALL_TASK).digest, "small_task")
