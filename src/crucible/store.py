"""Store: runs and verdicts on disk, readable by people, written so that nothing half-done is ever read.

<home>/verdicts/<key>.json    one verdict by the content of everything it depends on
<home>/runs/<when>-<task>/    request.json at the beginning, candidates/<n>-<name>.json as each is finished, run.json
<home>/headers/<key>/         precompiled torch/extension.h
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import stat
import tempfile
import time
from pathlib import Path
from typing import Any, TypeAlias

from crucible.errors import MisuseError, RecordError, StoreError


def home() -> Path:
    """`$CRUCIBLE_HOME`, or `~/.crucible`."""
    return Path(os.environ.get("CRUCIBLE_HOME") or Path.home() / ".crucible").absolute()


def key_of(*parts: Any) -> str:
    """SHA-256 over the parts' JSON."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


_Seen: TypeAlias = tuple[tuple[str, int, int, int, int], ...]
_digests: dict[Path, tuple[_Seen, str]] = {}
_SETTLED_NS = 2_000_000_000
"""A file that was written less long ago may have been written twice within one tick of the file system's clock."""


def code_digest() -> str:
    """SHA-256 over Crucible's own source: a changed judge trusts no earlier verdict. Files are read again where any of
    them is another one, or was written, since (0.1 s of a run's 0.8 where one process has many)."""
    package = Path(__file__).parent
    seen = tuple(_seen(path) for path in _sources(str(package)))
    known = _digests.get(package)
    if known is not None and known[0] == seen:
        return known[1]
    digest = hashlib.sha256()
    for path, *_ in seen:
        digest.update(Path(path).read_bytes())
    if all(time.time_ns() - changed > _SETTLED_NS for *_, changed in seen):
        _digests[package] = seen, digest.hexdigest()
    return digest.hexdigest()


def _sources(package: str) -> list[str]:
    """All of Python, and what candidates are compiled with on the emulator."""
    native = tuple(os.path.join(package, "emulator", kind) for kind in ("headers", "runtime"))
    return sorted(
        os.path.join(folder, name)
        for folder, _, names in os.walk(package)
        for name in names
        if name.endswith(".py") or folder.startswith(native)
    )


def _seen(path: str) -> tuple[str, int, int, int, int]:
    found = os.stat(path)
    return path, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def write_text(path: Path, text: str) -> None:
    """Writes under a temporary name, then renames; through a link to what it points to, and into a device or a pipe as
    that is. Raises StoreError."""
    try:
        if is_device(path):
            _write_through(path, text)
            return
        target = path.resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        _write_beside(target, text)
    except OSError as error:
        remedy = "free some space or set CRUCIBLE_HOME to another disk"
        raise StoreError(f"cannot write {path}: {error}; {remedy}") from error


def check_writable(path: Path, option: str) -> None:
    """Tries whether a file that an option names can be written, before anything is done for it; what is there stays as
    it is. Raises MisuseError."""
    try:
        if path.is_dir():
            raise MisuseError(f"{option} {path} is a folder: name a file in it")
        if is_device(path):
            _write_through(path, "")  # /dev/full refuses even nothing
            return
        target = path.resolve()  # a pipe of the shell's has no name of its own, so not before
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, trial = tempfile.mkstemp(prefix=f".{target.name[:40]}.", suffix=".tmp", dir=target.parent)
        os.close(descriptor)
        os.unlink(trial)
    except (OSError, ValueError, RuntimeError) as error:  # a null byte in the name, a loop of links
        raise MisuseError(f"{option} {path} cannot be written ({error}): name a file that can") from error


def is_device(path: Path) -> bool:
    """Whether it is there and no plain file, or has one of the system's own names: `/dev/stdout` may be a file that a
    shell has opened, whose place none may take."""
    named = any(path.absolute().is_relative_to(folder) for folder in ("/dev/fd", "/proc")) or path.parent == Path(
        "/dev"
    )
    return path.exists() and (named or not path.is_file())


def _write_through(device: Path, text: str) -> None:
    """Into what is no plain file: nothing may take its place. A pipe that nobody reads is an OSError, no wait."""
    waits = stat.S_ISFIFO(device.stat().st_mode)
    descriptor = os.open(device, os.O_WRONLY | os.O_APPEND | (os.O_NONBLOCK if waits else 0))
    if waits:
        os.set_blocking(descriptor, True)
    with os.fdopen(descriptor, "wb", buffering=0) as opened:
        data = memoryview(text.encode(errors="backslashreplace"))
        data = data[opened.write(data) or 0 :]  # once for nothing too
        while data:
            data = data[opened.write(data) or 0 :]


def _write_beside(target: Path, text: str) -> None:
    temporary = target.with_name(f".{target.name[:200]}.{os.getpid()}.{secrets.token_hex(3)}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
        if target.exists():
            shutil.copymode(target, temporary)
        os.replace(temporary, target)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


_REQUEST = "request.json"


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
    """One run's folder. What was asked is on disk before anything is judged, each verdict the moment it is known."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def new(cls, root: Path, task: str) -> RunFolder:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        return cls(root / "runs" / f"{stamp}-{_safe(task)}-{secrets.token_hex(3)}")

    def begin(self, request: Any) -> None:
        """Writes what the run was asked for. Raises StoreError."""
        write_text(self.path / _REQUEST, json.dumps(request, indent=1, allow_nan=False))

    def remove_request(self) -> None:
        """Of a run that never came to be; the folder too where nothing else is in it."""
        with contextlib.suppress(OSError):
            (self.path / _REQUEST).unlink()
            self.path.rmdir()

    def request(self) -> Any:
        """What `begin` wrote. Raises RecordError."""
        return _json_of(self.path / _REQUEST, "nothing is known of what it was asked for, so it cannot be gone on with")

    def verdicts(self) -> list[Any]:
        """What `add` wrote, in the candidates' order; what cannot be read counts as absent."""
        found = []
        for file in sorted((self.path / "candidates").glob("*.json")):
            with contextlib.suppress(OSError, ValueError):
                found.append(json.loads(file.read_text(encoding="utf-8")))
        return found

    def add(self, number: int, name: str, data: Any) -> None:
        """Writes one verdict. Raises StoreError."""
        file = self.path / "candidates" / f"{number:03d}-{_safe(name)}.json"
        write_text(file, json.dumps(data, indent=1, allow_nan=False))

    def finish(self, data: Any) -> None:
        """Writes the whole run. Raises StoreError."""
        write_text(self.path / "run.json", json.dumps(data, indent=1, allow_nan=False))


def _safe(name: str) -> str:
    """A name as part of a file's: bytes, not letters, are what a file system counts."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in name)[:80]


def _json_of(file: Path, otherwise: str) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RecordError(f"cannot read {file} ({error}): {otherwise}") from error


def read_run(which: str) -> list[Any]:
    """The JSON of a run: a folder of `runs/`, a JSON file (of one run, of several, or what
    `benchmarks/record_verdicts.py` wrote), an id or its beginning, or `latest`. Raises RecordError."""
    file = _run_file(which)
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecordError(f"cannot read {file}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
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


def find_begun(which: str) -> RunFolder:
    """The folder of a run that was begun, finished or not: by its path, its id or how that begins, or `latest`. Raises
    RecordError."""
    return RunFolder(_named_file(which, _REQUEST).parent)


def _run_file(which: str) -> Path:
    return _named_file(which, "run.json")


def _named_file(which: str, name: str) -> Path:
    """A run's file of that name; `which` may be another file itself."""
    path = Path(which)
    try:
        if which and path.is_dir():
            return path / name
        if path.is_file():
            return path.parent / name if name == _REQUEST else path
    except (OSError, ValueError) as error:  # a name too long for a file, or with a null byte
        raise RecordError(
            f"no run can be called so ({error}): give its folder, its JSON file, its id, or latest"
        ) from error
    kept = home() / "runs"
    finished = [folder for folder in kept.glob("*") if (folder / name).is_file()]
    if which == "latest" and finished:
        return max(finished, key=lambda folder: (folder / name).stat().st_mtime) / name
    found = [folder for folder in finished if folder.name == which] or [
        folder for folder in finished if which and folder.name.startswith(which)
    ]
    if len(found) == 1:
        return found[0] / name
    if which == "latest":
        raise RecordError(f"no run is kept in {kept}: judge something first")
    many = f"{len(found)} runs in {kept} begin with {which!r}" if found else f"there is no run {which!r} in {kept}"
    raise RecordError(f"{many}: give a run's folder, its JSON file, its id, or latest")
