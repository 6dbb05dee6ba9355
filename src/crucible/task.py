"""Task: a reference file in the KernelBench form, and how it is to be run.

Nothing here executes the file: it is read and parsed, so that a parent process can name, hash and check a
task without trusting it.
"""

from __future__ import annotations

import ast
import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crucible.errors import TaskError

FORM = ("Model", "get_inputs", "get_init_inputs")
MODES = ("train", "eval")


@dataclass(frozen=True)
class Task:
    """One reference and its settings."""

    name: str
    """The folder's name for `<name>/reference.py`, else the file's stem."""
    path: Path
    """The reference file."""
    source: str
    """Its text, as read once; everybody works from this copy."""
    small: dict[str, Any]
    """The file's `SMALL`: values for its module-level sizes at `--scale small`; empty if it has none."""
    scale: str = "full"
    """`full`, or `small` for CPU work."""
    training: bool = False
    """Gradients are required (the file's `TRAINING`, or `--training`)."""
    mode: str = "train"
    """`train` as KernelBench leaves its modules, or `eval`."""

    @classmethod
    def load(cls, path: str | Path) -> Task:
        """Reads a reference file, or the folder that holds a `reference.py`. Raises TaskError."""
        file = _reference_in(Path(path))
        source = _read(file)
        constants = _module_names(file, source)
        missing = [name for name in FORM if name not in constants]
        if missing:
            raise TaskError(f"{file} defines no {', '.join(missing)}: a task is a file with {', '.join(FORM)}")
        return cls(
            name=file.parent.name if file.name == "reference.py" else file.stem,
            path=file,
            source=source,
            small=_small_sizes(file, constants),
            training=_literal(constants.get("TRAINING")) is True,
        )

    def at(self, *, scale: str | None, training: bool, mode: str, small_by_default: bool) -> Task:
        """This task with a run's settings; `scale=None` takes the small size where one is wanted and declared."""
        if mode not in MODES:
            raise TaskError(f"mode {mode!r}: choose one of {', '.join(MODES)}")
        if scale is None:
            scale = "small" if small_by_default and self.small else "full"
        if scale not in ("full", "small"):
            raise TaskError(f"scale {scale!r}: choose full or small")
        if scale == "small" and not self.small:
            raise TaskError(
                f"{self.path} has no small size: add SMALL = {{'batch_size': 2, ...}}, "
                "new values for its module-level sizes, or use --scale full"
            )
        return replace(self, scale=scale, training=self.training or training, mode=mode)

    @property
    def sizes(self) -> dict[str, Any]:
        """What to set in the reference's namespace before its functions are called."""
        return self.small if self.scale == "small" else {}

    @property
    def digest(self) -> str:
        """SHA-256 over the source and every setting."""
        text = repr((self.source, sorted(self.sizes.items()), self.training, self.mode))
        return hashlib.sha256(text.encode()).hexdigest()


def find_tasks(path: str | Path) -> list[Path]:
    """The task files that `path` stands for: itself, its `reference.py`, or every task below that folder."""
    root = Path(path)
    if not root.exists():
        raise TaskError(f"no file or folder {root}")
    if root.is_file() or (root / "reference.py").is_file():
        return [_reference_in(root)]
    found = [file for file in sorted(root.rglob("*.py")) if _looks_like_a_task(file)]
    if not found:
        raise TaskError(f"no task below {root}: a task is a file with {', '.join(FORM)}")
    return found


def _reference_in(path: Path) -> Path:
    file = path / "reference.py" if path.is_dir() else path
    if not file.is_file():
        raise TaskError(f"no task at {path}: give a reference file, or a folder with a reference.py")
    return file


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"cannot read {file}: {error}") from error


def _module_names(file: Path, source: str) -> dict[str, ast.expr | None]:
    """Names bound at the top of the module, with the value's expression where it is a plain assignment."""
    try:
        tree = ast.parse(source, filename=str(file))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        raise TaskError(f"{file} is not valid Python{f', line {line}' if line else ''}: {error}") from error
    names: dict[str, ast.expr | None] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names[node.name] = None
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                names.update(_bound(target, node.value))
        elif isinstance(node, ast.AnnAssign):
            names.update(_bound(node.target, node.value))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update({alias.asname or alias.name: None for alias in node.names})
    return names


def _bound(target: ast.expr, value: ast.expr | None) -> dict[str, ast.expr | None]:
    """What an assignment binds; `a, b = 1, 2` binds both."""
    if isinstance(target, ast.Name):
        return {target.id: value}
    return {item.id: None for item in ast.walk(target) if isinstance(item, ast.Name)}


def _literal(value: ast.expr | None) -> Any:
    try:
        return ast.literal_eval(value) if value is not None else None
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None


def _small_sizes(file: Path, constants: dict[str, ast.expr | None]) -> dict[str, Any]:
    if "SMALL" not in constants:
        return {}
    sizes = _literal(constants["SMALL"])
    if not isinstance(sizes, dict) or not all(isinstance(name, str) for name in sizes):
        raise TaskError(f"{file}: SMALL must be a literal dict of names and sizes")
    unknown = sorted(set(sizes) - set(constants))
    if unknown:
        raise TaskError(f"{file}: SMALL names {', '.join(unknown)}, which the module does not define")
    return sizes


def _looks_like_a_task(file: Path) -> bool:
    if not file.is_file() or "candidates" in file.parts:
        return False
    text = file.read_text(encoding="utf-8", errors="replace")
    return "class Model(" in text and "def get_inputs" in text
