"""What a user may import from `crucible`, and nothing that says more than it holds."""

from __future__ import annotations

import dataclasses
import inspect
from importlib import metadata

import crucible
from crucible import errors


def test_the_front_door_is_this_list() -> None:
    assert crucible.__all__ == [
        "Candidate",
        "CrucibleError",
        "JudgeError",
        "Limits",
        "MisuseError",
        "RewardError",
        "Run",
        "Task",
        "Verdict",
        "fuse",
        "judge",
        "score",
        "score_sync",
    ]


def test_every_exported_name_is_there_and_explained() -> None:
    for name in crucible.__all__:
        assert inspect.getdoc(getattr(crucible, name)), name


def test_records_cannot_be_changed() -> None:
    for record in (crucible.Candidate, crucible.Limits, crucible.Run, crucible.Task, crucible.Verdict):
        assert dataclasses.is_dataclass(record)
        assert record.__dataclass_params__.frozen  # type: ignore[attr-defined]


def test_judge_takes_two_things_and_settings_by_name() -> None:
    parameters = inspect.signature(crucible.judge).parameters
    by_place = [name for name, p in parameters.items() if p.kind is not p.KEYWORD_ONLY]
    assert by_place == ["task", "candidates"]
    assert {"contract", "training", "mode", "scale", "device", "seed", "limits", "fresh", "say"} <= set(parameters)


def test_the_version_is_the_packages() -> None:
    assert crucible.__version__ == metadata.version("crucible-kernels")


def test_every_error_has_one_root_and_misuse_is_not_the_judges_failure() -> None:
    kinds = [e for e in vars(errors).values() if inspect.isclass(e)]
    assert all(issubclass(kind, crucible.CrucibleError) for kind in kinds)
    misuse = {kind.__name__ for kind in kinds if issubclass(kind, crucible.MisuseError)}
    failure = {kind.__name__ for kind in kinds if issubclass(kind, crucible.JudgeError)}
    assert misuse == {"MisuseError", "TaskError", "CandidateError", "DeviceError", "RecordError", "CaptureError"}
    assert failure == {"JudgeError", "ProcessLostError", "StoreError"}
