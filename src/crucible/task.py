"""Task: a reference file in the KernelBench form, and how it is to be run.

Nothing here executes the file: it is read and parsed, so that a parent process can name, hash and check a
task without trusting it.
"""

from __future__ import annotations

import ast
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from crucible import shapes
from crucible.errors import TaskError
from crucible.syntax import tree_of

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
    """`full`, `small` for CPU work, or `cut-down` where the judge finds smaller sizes itself."""
    training: bool = False
    """Gradients are required (the file's `TRAINING`, or `--training`)."""
    mode: str = "train"
    """`train` as KernelBench leaves its modules, or `eval`."""
    asked: tuple[shapes.Sizes, ...] = ()
    """Shapes that the user asked for: the first is the task's own here, at the others it is judged as well."""
    first: tuple[shapes.Sizes, ...] = ()
    """Sizes to try in place of its own; empty: its own."""
    smaller_weights: tuple[shapes.Sizes, ...] = ()
    """The same with smaller weights, where all of `first` is too much work."""
    tries: tuple[tuple[shapes.Sizes, ...], ...] = ()
    """Further shapes of the judge's choice, each as sizes to try in this order until the reference takes one."""
    beyond: tuple[shapes.Sizes, ...] = ()
    """Shapes that are cut down too, but for one size each, which stays above a block's threads."""

    tolerance: dict[str, float] = field(default_factory=dict)
    """`crucible.contract.Tolerance`'s fields, for contract `kernelbench`; empty: the benchmark's own."""

    @classmethod
    def load(cls, path: str | Path) -> Task:
        """Reads a reference file, or the folder that holds a `reference.py`. Raises TaskError."""
        file = _reference_in(Path(path))
        return cls.from_source(_read(file), file)

    @classmethod
    def from_source(cls, source: str, file: Path = Path("reference.py")) -> Task:
        """A task from a reference's text; `file` is what it is called in messages. Raises TaskError."""
        constants = _module_names(file, source)
        missing = [name for name in FORM if name not in constants]
        if missing:
            raise TaskError(f"{file} defines no {', '.join(missing)}: a task is a file with {', '.join(FORM)}")
        return cls(
            name=(file.parent.name if file.name == "reference.py" else "") or file.stem,
            path=file,
            source=source,
            small=_small_sizes(file, constants),
            training=_training(file, constants),
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

    def shaped(self, asked: Sequence[str]) -> Task:
        """This task at the shapes that `--shape` names. Raises TaskError."""
        given = tuple(shapes.parse(text, self.source) for text in asked)
        free = set(shapes.free_sizes(self.source))
        for sizes in given[1:]:
            beyond = sorted(set(sizes) - free)
            if beyond:
                raise TaskError(
                    f"--shape {shapes.words(sizes)}: {', '.join(beyond)} decides about weights too, so only the first "
                    f"--shape can have it; the others may change {', '.join(sorted(free)) or 'nothing'}"
                )
        return replace(self, asked=given)

    def cut_down(self, *, own: bool) -> Task:
        """This task at sizes that an emulator can run (unless `own` is to stay), and at ragged ones too; as it is where
        shapes were asked for."""
        if self.asked:
            return self
        free = shapes.free_sizes(self.source)
        stays = own or self.scale == "small"
        first = () if stays else (*shapes.cut_down(free), *shapes.cut_together(self.source, free))
        smaller = () if stays else self._smaller_weights(free)
        ragged = shapes.not_grown(shapes.ragged(free, self.sizes), self.sizes)
        scale = "cut-down" if first or smaller else self.scale
        tries, beyond = (ragged,) if ragged else (), shapes.long(free) if first else ()
        return replace(self, scale=scale, first=first, smaller_weights=smaller, tries=tries, beyond=beyond)

    def _smaller_weights(self, free: shapes.Sizes) -> tuple[shapes.Sizes, ...]:
        return shapes.cut_weights(shapes.weight_sizes(self.source), free, shapes.groups(self.source))

    @property
    def sizes(self) -> dict[str, Any]:
        """What to set in the reference's namespace before its functions are called."""
        own = self.small if self.scale == "small" else {}
        return {**own, **(self.asked[0] if self.asked else {})}

    @property
    def how_to_make_it_smaller(self) -> str:
        """Words for who has too little memory or time."""
        if self.scale == "full" and self.small:
            return "judge at --scale small"
        names = list(shapes.free_sizes(self.source)) or list(shapes.own_numbers(self.source))
        return f"judge at smaller sizes (--shape {','.join(f'{name}=...' for name in names[:4]) or 'NAME=NUMBER'})"

    @property
    def further(self) -> tuple[tuple[shapes.Sizes, ...], ...]:
        """Beside its own, the shapes at which it is judged: for each the sizes to try."""
        return tuple((sizes,) for sizes in self.asked[1:]) or self.tries

    @property
    def digest(self) -> str:
        """SHA-256 over the source and every setting."""
        chosen = (self.first, self.smaller_weights, self.further, self.beyond)
        allowed = sorted(self.tolerance.items())
        text = repr((self.source, sorted(self.sizes.items()), chosen, self.training, self.mode, *allowed))
        return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def find_tasks(path: str | Path) -> list[Path]:
    """The task files that `path` stands for: itself, its `reference.py`, or every task below that folder."""
    root = Path(path)
    if not _exists(root):
        raise TaskError(f"no file or folder {root}")
    if root.is_file() or (root / "reference.py").is_file():
        return [_reference_in(root)]
    found = [file for file in sorted(root.rglob("*.py")) if _looks_like_a_task(file)]
    if not found:
        raise TaskError(f"no task below {root}: a task is a file with {', '.join(FORM)}")
    return found


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long, or with a null byte
        return False


def _reference_in(path: Path) -> Path:
    if not _exists(path):
        raise TaskError(f"no task at {path}: give a reference file, or a folder with a reference.py")
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
        tree = tree_of(source, filename=str(file))
    except (SyntaxError, ValueError, RecursionError, MemoryError, SystemError) as error:
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
    for name, size in sizes.items():
        own = _literal(constants[name])
        if not _may_replace(size, own):
            instead = f", which is {own!r} in the file" if own is not None else ""
            raise TaskError(f"{file}: SMALL gives {size!r} for {name}{instead}: give what it could be, sizes from 1")
    return sizes


def _may_replace(size: Any, own: Any) -> bool:
    """Whether a small value is of the kind of the module's own, where that is known, and no size below 1 is in it."""
    if isinstance(size, tuple | list):
        return own is None or (isinstance(own, tuple | list) and all(_may_replace(item, None) for item in size))
    if isinstance(size, bool) or isinstance(own, bool):
        return isinstance(size, bool) and isinstance(own, bool | None)
    if isinstance(size, int):
        positive = size >= 1 or (isinstance(own, int | float) and own < 1)
        return positive and size < 1 << 62 and isinstance(own, int | float | None)
    if isinstance(size, float):
        return math.isfinite(size) and isinstance(own, float | None)
    return type(size) is type(own)


def _training(file: Path, constants: dict[str, ast.expr | None]) -> bool:
    """The file's `TRAINING`. Raises TaskError for what is neither True nor False."""
    if "TRAINING" not in constants:
        return False
    value = _literal(constants["TRAINING"])
    if not isinstance(value, bool):
        instead = f", not {value!r}" if value is not None else ""
        raise TaskError(f"{file}: TRAINING must be True or False, written out{instead}")
    return value


def _looks_like_a_task(file: Path) -> bool:
    if not file.is_file() or "candidates" in file.parts:
        return False
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False  # a file of others in the same folder
    return "class Model(" in text and "def get_inputs" in text
