"""Submission: one candidate for one task with the options of its judgement, by content. Nothing here executes it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from crucible import store
from crucible.candidate import Candidate
from crucible.contract import find_contract
from crucible.errors import MisuseError, RecordError
from crucible.judge.process.limits import Limits
from crucible.task import MODES, Task

SCHEMA = "crucible.submission/1"
DEVICES = ("auto", "cuda", "cpu", "emulator")
USUAL: Mapping[str, Any] = {
    "contract": "tf32", "training": False, "mode": "train", "scale": None, "device": "auto", "shapes": [], "gpu": None,
    "seed": None, "limits": {}, "baselines": None, "sanitize": False, "strict": False, "fresh_baselines": False,
}  # fmt: skip
"""The arguments of `pipeline.judge` that a submission may have, and what they are where it says nothing."""
_TYPES: Mapping[str, tuple[type, ...]] = {
    "contract": (str,), "training": (bool,), "mode": (str,), "scale": (str, type(None)), "device": (str,),
    "shapes": (list,), "gpu": (str, type(None)), "seed": (int, type(None)), "limits": (dict,),
    "baselines": (str, type(None)), "sanitize": (bool,), "strict": (bool,), "fresh_baselines": (bool,),
}  # fmt: skip
_LONGEST_NAME = 255
"""What file systems take."""


@dataclass(frozen=True)
class Submission:
    """What a fleet judges. Raises MisuseError for a name or an option that cannot be."""

    task_name: str
    task_source: str
    """The reference file's text."""
    candidate_name: str
    candidate_source: str
    """The candidate's text."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `pipeline.judge`, as JSON has them; those that are as usual are left out."""
    priority: int = 0
    """Higher ones go first."""
    task_path: str = ""
    """Where the reference was read from, for messages; empty where it came as text."""
    candidate_path: str = ""
    candidate_unusable: str = ""
    """Why there is no module in the answer that it was to come from; empty where there is one."""

    def __post_init__(self) -> None:
        for what in ("task", "candidate"):
            _check_name(what, getattr(self, f"{what}_name"))
        if not isinstance(self.priority, int) or not -(1 << 31) <= self.priority < 1 << 31:
            raise MisuseError(f"priority {self.priority!r}: give a whole number of 32 bits; 0 is the usual one")
        object.__setattr__(self, "options", _checked(self.options))

    @classmethod
    def of(cls, task: Task, candidate: Candidate, priority: int = 0, **options: Any) -> Submission:
        """Of records that are loaded; `limits` may be a Limits. Raises MisuseError."""
        names = (task.name, task.source, candidate.name, candidate.source)
        return cls(*names, options, priority, str(task.path), str(candidate.path), candidate.unusable)

    @cached_property
    def id(self) -> str:
        """SHA-256 of all that is judged: the texts, the candidate's language and the options, without names."""
        candidate = self.candidate
        return store.key_of(SCHEMA, self.task_source, candidate.digest, candidate.language, dict(self.options))

    @property
    def batch(self) -> str:
        """Of what one oracle answers: the same task under the same options. Kernels that may run on the emulator are
        apart, since they are judged at sizes cut down for it, and so would be all that is judged with them."""
        return store.key_of(SCHEMA, self.task_source, self.candidate.acts_on_gpu, dict(self.options))

    @property
    def kind(self) -> str:
        """`auto`, `cuda`, `cpu` or `emulator`: which workers may take it."""
        return str(self.options.get("device", "auto"))

    @property
    def candidate(self) -> Candidate:
        path = self.candidate_path or f"{self.candidate_name}.py"
        return Candidate(self.candidate_name, Path(path), self.candidate_source, self.candidate_unusable)

    @property
    def arguments(self) -> dict[str, Any]:
        """Keywords for `pipeline.judge`."""
        given = dict(self.options)
        limits = Limits(**given.pop("limits", {}))
        return {**given, "limits": limits}

    def task(self, folder: Path) -> Task:
        """The task, read from a copy in `folder`. Raises TaskError where the text is none."""
        file = folder / "reference.py"
        file.write_text(self.task_source, encoding="utf-8", errors="surrogatepass")
        loaded = Task.load(file)
        return dataclasses.replace(loaded, name=self.task_name, path=Path(self.task_path) if self.task_path else file)

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **{f.name: getattr(self, f.name) for f in dataclasses.fields(self)}}


def submission_from_json(data: Any) -> Submission:
    """What `Submission.to_json` made. Raises RecordError."""
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise RecordError(f"not a submission of this version (schema {SCHEMA!r}): submit it again")
    try:
        return Submission(**{name: value for name, value in data.items() if name != "schema"})
    except (TypeError, ValueError, AttributeError) as error:
        raise RecordError(f"not a whole {SCHEMA} record ({type(error).__name__}: {error}): submit it again") from error


def _check_name(what: str, name: Any) -> None:
    fits = isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME and name not in (".", "..")
    if not fits or "/" in name or "\0" in name:
        raise MisuseError(f"{what} name {str(name)[:80]!r}: give 1 to {_LONGEST_NAME} characters, none of them a slash")


def _checked(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Options in their one form: checked, in order, without those that are as usual. Raises MisuseError."""
    unknown = sorted(set(options) - set(USUAL))
    if unknown:
        raise MisuseError(f"no option {', '.join(unknown)}: a submission may have {', '.join(USUAL)}")
    found: dict[str, Any] = {}
    for name in sorted(options):
        value = _plain(name, options[name])
        if not isinstance(value, _TYPES[name]) or (isinstance(value, bool) and bool not in _TYPES[name]):
            raise MisuseError(f"option {name} {value!r}: give it as {' or '.join(t.__name__ for t in _TYPES[name])}")
        if value != USUAL[name]:
            found[name] = value
    find_contract(found.get("contract", "tf32"))
    if found.get("device", "auto") not in DEVICES:
        raise MisuseError(f"no device {found['device']!r}: choose {', '.join(DEVICES)}")
    if found.get("mode", "train") not in MODES:
        raise MisuseError(f"mode {found['mode']!r}: choose one of {', '.join(MODES)}")
    return found


def _plain(name: str, value: Any) -> Any:
    """An option as JSON has it."""
    if name == "shapes":
        return [str(shape) for shape in value or ()]
    if name == "limits":
        return _changed_limits(value)
    return value


def _changed_limits(value: Any) -> dict[str, Any]:
    """Limits that are not as usual. Raises MisuseError."""
    given = vars(value) if isinstance(value, Limits) else dict(value or {})
    try:
        Limits(**given)
    except TypeError as error:
        names = ", ".join(f.name for f in dataclasses.fields(Limits))
        raise MisuseError(f"limits {json.dumps(given, default=str)[:200]}: give some of {names}") from error
    usual = vars(Limits())
    return {name: given[name] for name in sorted(given) if given[name] != usual[name]}
