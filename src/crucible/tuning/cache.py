"""What was measured, kept on disk: one JSON file a question, GPU and version.

<home>/tuned/<key>.json    {"schema", "gpu", "versions", "question", "chosen", "tried": [{"way", "estimate_ms", "ms"}]}
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from crucible import hardware, store
from crucible.schedule.convolution.questions import Question

SCHEMA = "crucible.tuned/1"


@dataclass(frozen=True)
class Tried:
    """A division that was verified and timed."""

    way: str
    """In words: see `ways.described`."""
    estimate_ms: float
    ms: float


@dataclass(frozen=True)
class Measured:
    """The divisions of a question, that of least estimated time first."""

    tried: tuple[Tried, ...]

    @property
    def fastest(self) -> Tried:
        return min(self.tried, key=lambda each: each.ms)


@dataclass(frozen=True)
class Cache:
    """Of one GPU."""

    root: Path
    gpu: str
    """Its name, as the driver prints it."""
    versions: dict[str, str]
    """Of all that times depend on."""
    say: Callable[[str], None]
    """Takes warnings."""

    def get(self, question: Question) -> Measured | None:
        """What is kept of a question; None, with a warning, where the file is not what was written here."""
        path = self._path(question)
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            wanted = self._head(question)
            if {name: data[name] for name in wanted} != wanted:
                raise ValueError("it is of another GPU, version or question")
            found = Measured(
                tuple(Tried(str(t["way"]), float(t["estimate_ms"]), float(t["ms"])) for t in data["tried"])
            )
            if not found.tried or found.fastest.way != data["chosen"]:
                raise ValueError("what it chose is not the fastest that it tells of")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            self.say(f"{path} is not used, and {question.name} is measured again: {error!r}")
            return None
        return found

    def put(self, question: Question, measured: Measured) -> None:
        """Raises StoreError."""
        tried = [asdict(each) for each in measured.tried]
        data = {**self._head(question), "chosen": measured.fastest.way, "tried": tried}
        store.write_text(self._path(question), json.dumps(data, indent=1, allow_nan=False) + "\n")

    def _head(self, question: Question) -> dict[str, Any]:
        return {"schema": SCHEMA, "gpu": self.gpu, "versions": self.versions, "question": question.text.splitlines()}

    def _path(self, question: Question) -> Path:
        return self.root / f"{store.key_of(self._head(question))}.json"


def cache_of(gpu: str, say: Callable[[str], None]) -> Cache:
    """Under Crucible's home. A changed Crucible, torch or nvcc trusts no earlier time."""
    versions = {name: hardware.versions()[name] for name in ("torch", "nvcc")}
    return Cache(store.home() / "tuned", gpu, {**versions, "crucible": store.code_digest()}, say)
