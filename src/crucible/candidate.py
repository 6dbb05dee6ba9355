"""Candidate: one source file and the language it is written in.

Candidates are hostile until shown otherwise: they are read and parsed here, never imported.
"""

from __future__ import annotations

import ast
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from crucible.errors import CandidateError

LANGUAGES = ("cuda", "triton", "cpp", "pytorch")


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
            return cls(file.stem, file, file.read_bytes().decode("utf-8", errors="replace"))
        except OSError as error:
            raise CandidateError(f"cannot read candidate {file}: {error}") from error

    @property
    def digest(self) -> str:
        """SHA-256 of the source."""
        return hashlib.sha256(self.source.encode()).hexdigest()

    @property
    def language(self) -> str:
        """`cuda` or `cpp` (an extension built from source), `triton`, or `pytorch`."""
        if re.search(r"^\s*(import|from)\s+triton\b", self.source, re.MULTILINE):
            return "triton"
        if re.search(r"\b(cuda_sources\s*=|__global__\b|CUDAExtension\b)", self.source):
            return "cuda"
        return "cpp" if re.search(r"\b(load_inline|cpp_extension\s*\.\s*load)\b", self.source) else "pytorch"

    def fault(self) -> str | None:
        """Why this file cannot be imported as it stands, in words, or None when nothing is known against it."""
        if not self.source.strip():
            return "the file is empty"
        try:
            tree = ast.parse(self.source)
        except SyntaxError as error:
            return f"syntax error, line {error.lineno}: {error.msg}"
        except (ValueError, RecursionError, MemoryError) as error:
            return f"cannot be parsed: {error}"
        if all(isinstance(node, ast.Expr) for node in tree.body):
            return "the file holds no code, so it defines no ModelNew"
        return None


def find_candidates(paths: list[Path]) -> list[Candidate]:
    """The candidates that files and folders stand for, in the order given, folders by name.

    Raises CandidateError when a path does not exist, a folder is empty, or two files share a stem.
    """
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(file for file in path.glob("*.py") if file.name != "__init__.py")
            if not inside:
                raise CandidateError(f"no candidate in {path}: expected .py files with a ModelNew")
            files += inside
        elif path.is_file():
            files.append(path)
        else:
            raise CandidateError(f"no candidate at {path}")
    by_name: dict[str, Path] = {}
    for file in files:
        if file.stem in by_name and by_name[file.stem].resolve() != file.resolve():
            raise CandidateError(
                f"two candidates are named {file.stem!r}: {by_name[file.stem]} and {file}; rename one"
            )
        by_name[file.stem] = file
    return [Candidate.load(file) for file in by_name.values()]
