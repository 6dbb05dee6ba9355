"""answer: the Python module in what a language model answered, found by the text alone.

An answer is prose with fenced code blocks, perhaps behind thoughts. The rules:

1. What stands before the last `</think>` does not count, nor what follows a `<think>` that is never closed.
2. The module is the last complete block that is valid Python and binds the entry point at its top, whatever language
   its fence names. A block whose fence is never closed counts only where no complete one does.
3. Names that this block reads and binds nowhere come from other blocks: from Python ones that bind them (the last one
   before the module), which are put in front of it; and `cuda_source` and the like from the C++ or CUDA blocks, whose
   text they then hold.
4. An answer without any fence is Python as it stands, or nothing.
"""

from __future__ import annotations

import ast
import builtins
import re
from dataclasses import dataclass

from crucible.syntax import bound_at_top, missing_names, parsed

LONGEST = 1 << 22
"""Characters: a hundred times what models write."""
_THOUGHTS = ("think", "thinking", "thought", "thoughts", "reasoning")
_END_OF_THOUGHT = re.compile(rf"</(?:{'|'.join(_THOUGHTS)})>", re.IGNORECASE)
_SPEAKS_OF_SOURCE = re.compile(r"src|source|code|kernel|cuda|cpp|c\+\+", re.IGNORECASE)
_SPEAKS_OF_CPP = re.compile(r"cpp|cxx|decl|header|binding|wrapper", re.IGNORECASE)
_CPP_TAGS = ("cpp", "c++", "cxx", "cc", "c", "h", "hpp")
_CUDA_TAGS = ("cuda", "cu", "cuda-cpp", "cuda-c++")
_PYTHON_TAGS = ("python", "py", "python3", "triton")
_PYTHONS_OWN = {*dir(builtins), "__file__", "__path__"}


@dataclass(frozen=True)
class Extracted:
    """What an answer comes to."""

    source: str
    """The module, in which `ModelNew` is the entry point; the answer itself where there is none."""
    unusable: str = ""
    """Why there is no module in it, in words; empty where there is one."""


@dataclass(frozen=True)
class Block:
    """A fenced code block."""

    tag: str
    """The language that its fence names, in small letters; empty for none."""
    text: str
    closed: bool

    @property
    def is_cuda(self) -> bool:
        return self.tag in _CUDA_TAGS or ("__global__" in self.text and self.tag not in _PYTHON_TAGS)

    @property
    def is_cpp(self) -> bool:
        return self.tag in _CPP_TAGS and not self.is_cuda


def is_an_answer(text: str) -> bool:
    """Whether a text has to be read as an answer: it is no Python module as it stands."""
    return len(text) > LONGEST or isinstance(parsed(text), str)


def extracted(answer: str, entry_point: str = "ModelNew") -> Extracted:
    """The module that an answer holds, by the rules above. It is parsed, never run."""
    if len(answer) > LONGEST:
        return Extracted(answer, f"the answer has {len(answer)} characters, {LONGEST} at most are read")
    spoken = _with_plain_ends(_after_thoughts(answer))
    found = blocks(spoken)
    bare = not found
    found = found or [Block("", _before_thoughts(spoken), True)]
    trees = [parsed(block.text) for block in found]
    chosen = _chosen(found, trees, entry_point)
    if chosen is not None:
        return Extracted(_named(_whole(chosen, found, trees), entry_point))
    broken = [i for i, block in enumerate(found) if _means_to_define(block.text, entry_point)]
    if broken:  # it is judged as it stands: the verdict says what is wrong with it
        return Extracted(_named(found[broken[-1]].text, entry_point))
    if bare:
        return Extracted(answer, f"the answer holds no code block, and is no Python file that defines {entry_point}")
    tags = ", ".join(dict.fromkeys(block.tag or "no language" for block in found[:20]))
    one = "its only code block does not define" if len(found) == 1 else f"none of its {len(found)} code blocks defines"
    return Extracted(answer, f"{one} {entry_point} ({tags})")


def blocks(text: str) -> list[Block]:
    """The fenced code blocks of a text (CommonMark's, indented by any amount), in one pass over its lines."""
    found: list[Block] = []
    lines: list[str] | None = None
    fence, tag, indent = "", "", 0
    for line in _with_plain_ends(text).split("\n"):
        bare = line.lstrip(" \t")
        run = bare[: len(bare) - len(bare.lstrip(bare[0]))] if bare[:1] in ("`", "~") and bare else ""
        info = bare[len(run) :].strip()
        if lines is None:
            if _opens_thoughts(bare):
                break
            if len(run) >= 3 and not (run[0] == "`" and "`" in info):
                lines, fence, indent = [], run, len(line) - len(bare)
                tag = (info.split() or [""])[0].strip("{}.").lower()
        elif run.startswith(fence) and not info:
            found.append(Block(tag, _text(lines), True))
            lines = None
        else:
            lines.append(line[min(indent, len(line) - len(bare)) :])
    if lines is None:
        return found
    return [*found, Block(tag, _text(lines[:-1] if lines[-1:] == [""] else lines), False)]


def _with_plain_ends(text: str) -> str:
    """Lines as Python reads them, also where they stand in no block."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _text(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


def _opens_thoughts(bare: str) -> bool:
    return bare.startswith("<") and bare[1:12].partition(">")[0].strip().lower() in _THOUGHTS


def _after_thoughts(answer: str) -> str:
    end = 0
    for match in _END_OF_THOUGHT.finditer(answer):
        end = match.end()
    return answer[end:]


def _before_thoughts(text: str) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(lines[: next((i for i, line in enumerate(lines) if _opens_thoughts(line.lstrip())), len(lines))])


def _chosen(found: list[Block], trees: list[ast.Module | str], entry_point: str) -> int | None:
    """The last block that binds the entry point, complete ones first."""
    fitting = [i for i, tree in enumerate(trees) if isinstance(tree, ast.Module) and entry_point in bound_at_top(tree)]
    complete = [i for i in fitting if found[i].closed]
    return complete[-1] if complete else fitting[-1] if fitting else None


def _means_to_define(text: str, entry_point: str) -> bool:
    return re.search(rf"\b(?:class|def)\s+{re.escape(entry_point)}\b", text) is not None


def _named(module: str, entry_point: str) -> str:
    return module if entry_point == "ModelNew" else f"{module}\n\nModelNew = {entry_point}\n"


def _whole(chosen: int, found: list[Block], trees: list[ast.Module | str]) -> str:
    """The chosen block behind what it needs of the others."""
    exported = {i: bound_at_top(tree) for i, tree in enumerate(trees) if isinstance(tree, ast.Module) and i != chosen}
    giver: dict[str, int] = {}
    for i in [*range(len(found) - 1, chosen, -1), *range(chosen)]:  # the last one before the module comes to stand
        giver.update(dict.fromkeys(exported.get(i, ()), i))
    taken: set[int] = set()
    asking, wanted = [chosen], set[str]()
    while asking:
        tree = trees[asking.pop()]
        assert isinstance(tree, ast.Module)
        new = missing_names(tree) - _PYTHONS_OWN - wanted
        wanted |= new
        more = {giver[name] for name in new if name in giver} - taken
        taken |= more
        asking += more
    texts = {name: text for name in sorted(wanted - set(giver)) if (text := _source_text(name, found, trees))}
    parts = [f"{name} = {_literal(text)}\n" for name, text in texts.items()]
    parts += [found[i].text for i in sorted(taken)]
    return _futures_first([*parts, found[chosen].text]) if parts else found[chosen].text


def _source_text(name: str, found: list[Block], trees: list[ast.Module | str]) -> str:
    """What a name like `cuda_source` stands for where no Python block binds it: the C++ or CUDA blocks, by what the
    name speaks of; empty where that cannot be told."""
    if not _SPEAKS_OF_SOURCE.search(name):
        return ""
    others = [block for block, tree in zip(found, trees, strict=True) if isinstance(tree, str) and block.closed]
    of_cpp = _SPEAKS_OF_CPP.search(name) is not None
    return "\n".join(block.text for block in others if (block.is_cpp if of_cpp else block.is_cuda))


def _literal(text: str) -> str:
    """As Python writes it, over its own lines where that is possible."""
    plain = '"""' not in text and not text.endswith(('"', "\\")) and "\0" not in text
    return f'r"""\n{text}"""' if plain else repr(text)


def _futures_first(parts: list[str]) -> str:
    """Texts of modules as one, with `from __future__` where Python wants it."""
    futures: dict[str, None] = {}
    kept = []
    for part in parts:
        lines = part.split("\n")
        for i, line in enumerate(lines):
            if line.startswith("from __future__ import ") and "(" not in line and ";" not in line:
                futures[line] = None
                lines[i] = ""
        kept.append("\n".join(lines))
    return "\n".join([*futures, *kept])
