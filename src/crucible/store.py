"""Store: runs and verdicts on disk, readable by people, written so that nothing half-done is ever read.

<home>/verdicts/<key>.json    one verdict by the content of everything it depends on
<home>/runs/<when>-<task>/    run.json, and candidates/<n>-<name>.json as each is finished
<home>/headers/<key>/         precompiled torch/extension.h
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import time
from pathlib import Path
from typing import Any

from crucible.errors import RecordError, StoreError


def home() -> Path:
    """`$CRUCIBLE_HOME`, or `~/.crucible`."""
    return Path(os.environ.get("CRUCIBLE_HOME") or Path.home() / ".crucible").absolute()


def key_of(*parts: Any) -> str:
    """SHA-256 over the parts' JSON."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def code_digest() -> str:
    """SHA-256 over Crucible's own source: a changed judge trusts no earlier verdict."""
    package = Path(__file__).parent
    digest = hashlib.sha256()
    native = [file for kind in ("headers", "runtime") for file in (package / "emulator" / kind).rglob("*")]
    for file in sorted([*package.rglob("*.py"), *(file for file in native if file.is_file())]):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def write_text(path: Path, text: str) -> None:
    """Writes under a temporary name, then renames. Raises StoreError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise StoreError(
            f"cannot write {path}: {error}; free some space or set CRUCIBLE_HOME to another disk"
        ) from error


class Verdicts:
    """Verdicts by key. What cannot be read counts as absent."""

    def __init__(self, root: Path) -> None:
        self.root = root / "verdicts"

    def get(self, key: str) -> Any:
        """The JSON kept under `key`, or None."""
        try:
            return json.loads((self.root / f"{key}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def put(self, key: str, data: Any) -> None:
        write_text(self.root / f"{key}.json", json.dumps(data, indent=1, allow_nan=False))


class RunFolder:
    """One run's folder. Each verdict is on disk the moment it is known."""

    def __init__(self, root: Path, task: str) -> None:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in task)[:80]
        self.path = root / "runs" / f"{stamp}-{safe}-{secrets.token_hex(3)}"

    def add(self, number: int, name: str, data: Any) -> None:
        """Writes one verdict. Raises StoreError."""
        safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in name)[:80]
        write_text(self.path / "candidates" / f"{number:03d}-{safe}.json", json.dumps(data, indent=1, allow_nan=False))

    def finish(self, data: Any) -> None:
        """Writes the whole run. Raises StoreError."""
        write_text(self.path / "run.json", json.dumps(data, indent=1, allow_nan=False))


def read_run(which: str) -> list[Any]:
    """The JSON of a run: a folder of `runs/`, a JSON file (of one run, of several, or what
    `benchmarks/record_verdicts.py` wrote), an id or its beginning, or `latest`. Raises RecordError."""
    file = _run_file(which)
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecordError(f"cannot read {file}: {error.strerror or error}") from error
    except ValueError as error:
        raise RecordError(f"{file} holds no JSON ({error}): give a run's folder or its JSON file") from error
    if isinstance(data, dict) and isinstance(data.get("runs"), list):
        return [{**_shared(data), **run} if isinstance(run, dict) else run for run in data["runs"]]
    return data if isinstance(data, list) else [data]


def _shared(record: dict[str, Any]) -> dict[str, Any]:
    """What a record of several runs says once for all of them, as each run says it."""
    name = str(record.get("device", ""))
    kind = "cpu" if name.startswith("CPU") else "cuda"
    device = {"kind": kind, "name": name, "driver": str(record.get("driver", ""))}
    return {"device": device, "versions": record.get("versions", {})}


def _run_file(which: str) -> Path:
    path = Path(which)
    if which and path.is_dir():
        return path / "run.json"
    if path.is_file():
        return path
    kept = home() / "runs"
    finished = [folder for folder in kept.glob("*") if (folder / "run.json").is_file()]
    if which == "latest" and finished:
        return max(finished, key=lambda folder: (folder / "run.json").stat().st_mtime) / "run.json"
    found = [folder for folder in finished if folder.name == which] or [
        folder for folder in finished if which and folder.name.startswith(which)
    ]
    if len(found) == 1:
        return found[0] / "run.json"
    if which == "latest":
        raise RecordError(f"no run is kept in {kept}: judge something first")
    many = f"{len(found)} runs in {kept} begin with {which!r}" if found else f"there is no run {which!r} in {kept}"
    raise RecordError(f"{many}: give a run's folder, its JSON file, its id, or latest")
