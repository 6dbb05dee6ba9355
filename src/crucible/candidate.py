"""Candidate: one source file and the language it is written in.

Candidates are hostile until shown otherwise: they are read and parsed here, never imported.
"""

from __future__ import annotations

import ast
import hashlib
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crucible.errors import CandidateError
from crucible.task import Task

_PARSING = threading.Lock()
"""Python 3.11 counts the depth of a syntax tree for all threads together: where two parse at once, and a finaliser lets
the other go on, they end with SystemError (depth mismatch)."""
_IMPORTS_TRITON = re.compile(
    r"^[^\S\n]*(?:from\s+triton\b|import\s+(?:[\w.]+(?:\s+as\s+\w+)?\s*,\s*)*triton\b)", re.MULTILINE
)
"""Indents end with their line: 40 kB of empty lines took 27 s where each looked through all that follow."""


@dataclass(frozen=True)
class Candidate:
    """A would-be replacement for a reference: a file that should define `ModelNew`."""

    name: str
    """The file's stem."""
    path: Path
    """Where it was read from; only the text below is ever run."""
    source: str
    """The file's text; bytes that are not UTF-8 are kept as replacement characters."""

    @classmethod
    def load(cls, path: str | Path) -> Candidate:
        """Reads one file. Raises CandidateError when it cannot be read."""
        file = Path(path)
        try:
            return cls(file.stem, file, file.read_bytes().decode("utf-8-sig", errors="replace"))
        except OSError as error:
            raise CandidateError(f"cannot read candidate {file}: {error}") from error

    @property
    def digest(self) -> str:
        """SHA-256 of the source."""
        return hashlib.sha256(self.source.encode(errors="surrogatepass")).hexdigest()

    @property
    def language(self) -> str:
        """`cuda` or `cpp` (an extension built from source), `triton`, or `pytorch`."""
        if _IMPORTS_TRITON.search(self.source):
            return "triton"
        if re.search(r"\b(cuda_sources\s*=|__global__\b|CUDAExtension\b)", self.source):
            return "cuda"
        builds = re.search(r"\b(load_inline|cpp_extension\s*\.\s*load)\b", self.source)
        return "cpp" if builds else "pytorch"

    @property
    def is_for_gpu(self) -> bool:
        """Whether it holds kernels of its own, which only a GPU or the emulator runs."""
        return self.language in ("cuda", "triton")

    def fault(self) -> str | None:
        """Why this file cannot be imported as it stands, in words, or None when nothing is known against it."""
        if not self.source.strip():
            return "the file is empty"
        try:
            with _PARSING:
                tree = ast.parse(self.source)
        except SyntaxError as error:
            return f"syntax error, line {error.lineno}: {error.msg}"
        except (ValueError, RecursionError, MemoryError, SystemError) as error:
            return f"cannot be parsed: {error}"
        if all(isinstance(node, ast.Expr) for node in tree.body):
            return "the file holds no code, so it defines no ModelNew"
        return None


def find_candidates(sources: Sequence[str | Path | Candidate]) -> list[Candidate]:
    """The candidates that files and folders stand for, in the order given, folders by name; records as they are.

    Raises CandidateError when a path does not exist, a folder is empty, or two files share a stem.
    """
    found: list[Candidate] = []
    for source in sources:
        path = source.path if isinstance(source, Candidate) else Path(source)
        if isinstance(source, Candidate):
            found.append(source)
        elif not _can_be(path):
            raise CandidateError(f"no candidate at {path}")
        elif path.is_dir():
            inside = sorted(file for file in path.glob("*.py") if file.name != "__init__.py")
            if not inside:
                raise CandidateError(f"no candidate in {path}: expected .py files with a ModelNew")
            found += [Candidate.load(file) for file in inside]
        elif path.is_file():
            found.append(Candidate.load(path))
        else:
            raise CandidateError(f"no candidate at {path}")
    by_name: dict[str, Candidate] = {}
    for candidate in found:
        other = by_name.setdefault(candidate.name, candidate)
        if other.path.resolve() != candidate.path.resolve():
            raise CandidateError(
                f"two candidates are named {candidate.name!r}: {other.path} and {candidate.path}; rename one"
            )
    return list(by_name.values())


def _can_be(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long, or with a null byte
        return False


def match_candidates(tasks: Sequence[Task], candidates: Sequence[Candidate]) -> list[tuple[Task, list[Candidate]]]:
    """Each task with its candidates, tasks without any left out. Raises CandidateError for a stray candidate."""
    chosen: dict[Path, list[Candidate]] = {task.path: [] for task in tasks}
    for candidate in candidates:
        fitting = [task for task in tasks if _belongs(candidate, task)]
        if not fitting:
            raise CandidateError(
                f"{candidate.path} belongs to no task here: begin its name with a task's ({tasks[0].name}, ...), "
                "or name it level_L_problem_N_sample_K_kernel.py"
            )
        longest = max(fitting, key=lambda task: len(task.name))
        chosen[longest.path].append(candidate)
    return [(task, chosen[task.path]) for task in tasks if chosen[task.path]]


def _belongs(candidate: Candidate, task: Task) -> bool:
    if candidate.name.startswith(task.name):
        return True
    numbers = re.match(r"level_?(\d+)_problem_?(\d+)(?!\d)", candidate.name)
    level = re.search(r"(\d+)$", task.path.parent.name)
    problem = re.match(r"(\d+)_", task.name)
    if not (numbers and problem):
        return False
    return numbers[2] == problem[1] and (level is None or numbers[1] == level[1])
