"""Request: what a run was asked for, on disk before anything is judged, so that it can be gone on with."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crucible.candidate import Candidate
from crucible.contract import Contract, find_contract
from crucible.errors import MisuseError, RecordError
from crucible.gpus import Gpu, known_gpu
from crucible.hardware import Device
from crucible.judge.process.limits import Limits
from crucible.judge.timing.baselines import BASELINES, Baseline
from crucible.task import Task

SCHEMA = "crucible.request/1"


@dataclass(frozen=True)
class Request:
    """All that a run's verdicts depend on."""

    task: Task
    """With the run's settings in it."""
    contract: Contract
    device: Device
    versions: Mapping[str, str]
    code: str
    """Crucible's own digest."""
    gpu: Gpu | None
    seed: int
    seed_is_secret: bool
    limits: Limits
    baselines: tuple[Baseline, ...]
    sanitize: bool
    strict: bool
    candidates: Sequence[Candidate]

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "task": {f.name: _written(getattr(self.task, f.name)) for f in dataclasses.fields(Task)},
            "contract": self.contract.name,
            "device": vars(self.device),
            "versions": dict(self.versions),
            "code": self.code,
            "gpu": self.gpu.name if self.gpu else "",
            "seed": self.seed,
            "seed_is_secret": self.seed_is_secret,
            "limits": vars(self.limits),
            "baselines": [baseline.name for baseline in self.baselines],
            "sanitize": self.sanitize,
            "strict": self.strict,
            "candidates": [_candidate(c) for c in self.candidates],
        }

    def check(self, device: Device, versions: Mapping[str, str], code: str) -> None:
        """Whether the same verdicts would be reached here and now. Raises MisuseError that says what differs."""
        wanted = {"device": self.device.name, "driver": self.device.driver, "Crucible's code": self.code[:12]}
        found = {"device": device.name, "driver": device.driver, "Crucible's code": code[:12]}
        wanted, found = {**wanted, **self.versions}, {**found, **versions}
        differing = [f"{name} was {wanted[name]}, is {found.get(name, '-')}" for name in wanted
                     if wanted[name] != found.get(name, "-")]  # fmt: skip
        if differing:
            remedy = "judge what is missing in a run of its own"
            raise MisuseError(f"the run cannot be gone on with here: {'; '.join(differing)}; {remedy}")


def request_from_json(data: Any) -> Request:
    """What `Request.to_json` made. Raises RecordError."""
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise RecordError(f"not what a run of this version was asked for (schema {SCHEMA!r}): judge again")
    try:
        task = {name: _read(value) for name, value in data["task"].items()}
        return Request(
            Task(**{**task, "path": Path(task["path"])}),
            find_contract(data["contract"]),
            Device(**data["device"]),
            dict(data["versions"]),
            str(data["code"]),
            known_gpu(data["gpu"]) if data["gpu"] else None,
            data["seed"],
            bool(data["seed_is_secret"]),
            Limits(**data["limits"]),
            tuple(BASELINES[name] for name in data["baselines"]),
            bool(data["sanitize"]),
            bool(data["strict"]),
            [Candidate(c["name"], Path(c["path"]), c["source"], c.get("unusable", "")) for c in data["candidates"]],
        )
    except (KeyError, TypeError, ValueError, AttributeError, SyntaxError) as error:
        raise RecordError(f"not a whole {SCHEMA} record ({type(error).__name__}: {error}): judge again") from error


def _candidate(candidate: Candidate) -> dict[str, str]:
    return {f.name: str(getattr(candidate, f.name)) for f in dataclasses.fields(Candidate)}


def _written(value: Any) -> str:
    """A field as Python writes it: JSON has no tuples, and a task's digest tells them from lists."""
    return repr(str(value) if isinstance(value, Path) else value)


def _read(text: str) -> Any:
    return ast.literal_eval(text)
