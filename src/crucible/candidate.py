"""Candidate: one source file and the language it is written in.

Candidates are hostile until shown otherwise: they are read and parsed here, never imported.
"""

from __future__ import annotations

import ast
import hashlib
import keyword
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crucible.answer import extracted
from crucible.errors import CandidateError
from crucible.syntax import parsed
from crucible.task import Task

ANSWERS = (".md", ".markdown", ".txt")
"""Ends of names of files that hold an answer of a language model, not a Python module."""


def _importing(module: str, inside: str = "") -> re.Pattern[str]:
    """Lines that import `module`, or `inside` of it. Nothing here looks further than its line, or a short list: 40 kB
    of empty lines took 27 s where each looked through all that follow."""
    listed = r"(?:[\w.]+(?:[^\S\n]+as[^\S\n]+\w+)?[^\S\n]*,[^\S\n]*)*"
    ways = [rf"from\s+{re.escape(module)}\b", rf"import\s+{listed}{re.escape(module)}\b"]
    if inside:
        whole = re.escape(f"{module}.{inside}")
        a_part = rf"from\s+{re.escape(module)}\s+import\s+(?:\([^)]{{0,400}}?|[^\n#]{{0,400}}?)\b{inside}\b"
        ways = [rf"from\s+{whole}\b", a_part, rf"import\s+{listed}{whole}\b"]
    return re.compile(rf"^[^\S\n]*(?:{'|'.join(ways)})", re.MULTILINE)


@dataclass(frozen=True)
class KernelLanguage:
    """A language for kernels inside Python, which a package of its own brings."""

    name: str
    """As `Candidate.language` says it."""
    words: str
    distribution: str
    """What is installed for it."""
    imported: re.Pattern[str]


KERNEL_LANGUAGES = (
    KernelLanguage("tilelang", "TileLang", "tilelang", _importing("tilelang")),
    KernelLanguage("cute_dsl", "CuTe DSL", "nvidia-cutlass-dsl", _importing("cutlass", "cute")),
    KernelLanguage("cutile", "cuTile", "cuda-tile", _importing("cuda", "tile")),
    KernelLanguage("helion", "Helion", "helion", _importing("helion")),
)
"""Those beside Triton; looked for before it, since some of them are used together with it."""
_IMPORTS_TRITON = _importing("triton")
ORDERS_ITSELF = re.compile(r"\bCUDAGraph\b|\bcuda\.graphs?\b|\bmake_graphed_callables\b|\bcuda\.[Ss]tream\b")
"""In a text that says in what order a GPU works, by CUDA graphs or streams."""


@dataclass(frozen=True)
class Candidate:
    """A would-be replacement for a reference: a file that should define `ModelNew`."""

    name: str
    """The file's stem."""
    path: Path
    """Where it was read from; only the text below is ever run."""
    source: str
    """The file's text; bytes that are not UTF-8 are kept as replacement characters."""
    unusable: str = ""
    """Why there is no module in the answer that it was to come from, in words; empty where there is one."""

    @classmethod
    def load(cls, path: str | Path) -> Candidate:
        """Reads one file, a module or an answer (`ANSWERS`). Raises CandidateError when it cannot be read."""
        file = Path(path)
        try:
            text = file.read_bytes().decode("utf-8-sig", errors="replace")
        except OSError as error:
            raise CandidateError(f"cannot read candidate {file}: {error}") from error
        if file.suffix.lower() in ANSWERS:
            return cls.from_answer(text, name=file.stem, path=file)
        return cls(file.stem, file, text)

    @classmethod
    def from_answer(
        cls, text: str, entry_point: str = "ModelNew", *, name: str = "answer", path: Path | None = None
    ) -> Candidate:
        """The module in what a language model answered, by the rules of `crucible.answer`: the last complete code block
        that defines `entry_point`, with what it needs of the others. Where there is none, a candidate that does not
        import and says why. Raises CandidateError for an entry point that is no name.
        """
        if not entry_point.isidentifier() or keyword.iskeyword(entry_point):
            raise CandidateError(f"entry point {entry_point!r}: give the name of a class or function, as ModelNew")
        found = extracted(text, entry_point)
        return cls(name, path or Path(f"{name}.py"), found.source, found.unusable)

    @property
    def digest(self) -> str:
        """SHA-256 of the source, and of why it is unusable where it is."""
        text = f"{self.unusable}\0{self.source}" if self.unusable else self.source
        return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()

    @property
    def kernel_language(self) -> KernelLanguage | None:
        """The language with a package of its own that it is written in, Triton aside; None for none."""
        return next((one for one in KERNEL_LANGUAGES if one.imported.search(self.source)), None)

    @property
    def language(self) -> str:
        """`tilelang`, `cute_dsl`, `cutile` or `helion`, `triton`, `cuda` or `cpp` (an extension built from source), or
        `pytorch`."""
        if self.kernel_language is not None:
            return self.kernel_language.name
        if _IMPORTS_TRITON.search(self.source):
            return "triton"
        if re.search(r"\b(cuda_sources\s*=|__global__\b|CUDAExtension\b)", self.source):
            return "cuda"
        builds = re.search(r"\b(load_inline|cpp_extension\s*\.\s*load)\b", self.source)
        return "cpp" if builds else "pytorch"

    @property
    def is_for_gpu(self) -> bool:
        """Whether it holds kernels of its own, which only a GPU or the emulator runs."""
        return self.language not in ("cpp", "pytorch")

    @property
    def acts_on_gpu(self) -> bool:
        """Whether what it is about happens on a GPU or the emulator alone: kernels of its own, or PyTorch's
        CUDA graphs and streams, which it leaves out where there is no GPU."""
        return self.is_for_gpu or bool(ORDERS_ITSELF.search(self.source))

    def fault(self) -> str | None:
        """Why this file cannot be imported as it stands, in words, or None when nothing is known against it."""
        if self.unusable:
            return self.unusable
        if not self.source.strip():
            return "the file is empty"
        tree = parsed(self.source)
        if isinstance(tree, str):
            return tree
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
