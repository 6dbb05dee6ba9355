"""What a candidate's text says of its kernels, read by tokens: no parser, nothing is run."""

from __future__ import annotations

import re
from dataclasses import dataclass

from crucible.emulator.places import Places
from crucible.emulator.tokens import tokenize

_HEAD = re.compile(
    r"__global__\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(?:static\s+)?void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\("
)
_STORES = re.compile(r"(?<![=!<>])=(?!=)|\+\+|--|[\w>]\s*\(")
"""An assignment, or a call, `part<true>(...)` too."""
_WORDLESS = re.compile(r"\b(?:const\s+)?(?:int|long|size_t|unsigned|int64_t|float|auto)\b[^;=]*=[^;]*;")


@dataclass(frozen=True)
class KernelText:
    """A kernel as it stands in the candidate's file."""

    name: str
    line: int
    """Of the file."""
    body: str
    """Without comments and strings, between its braces."""

    @property
    def writes(self) -> bool:
        """Whether anything in it could write memory that others see: a store through an index or a pointer, an
        atomic operation, a call."""
        without_locals = _WORDLESS.sub("", self.body)
        calls = re.sub(r"\b(?:if|for|while|switch|return|sizeof)\s*\(|__syncthreads\s*\(\s*\)", "", without_locals)
        return _STORES.search(calls) is not None


def kernels(source: str) -> list[KernelText]:
    """The kernels with bodies in a candidate's strings, or in the file itself where it cannot be parsed."""
    texts = [(text, line) for text, line in Places(source).strings if "__global__" in text]
    return [kernel for text, line in texts for kernel in _kernels(text, line)]


def plain_strings_with_doubled_braces(source: str) -> tuple[int, int]:
    """Line and number of `{{` in the first CUDA string whose braces are all doubled; (0, 0) without one."""
    for text, line in Places(source).strings:
        doubled = len(re.findall(r"\{\{", text))
        if "__global__" in text and doubled >= 2 and text.count("{") == 2 * doubled:
            number = text[: text.index("{{")].count("\n")
            return line + number, doubled
    return 0, 0


def line_text(source: str, line: int) -> str:
    """A line of the file, stripped; empty where there is none."""
    lines = source.split("\n")
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""


def _kernels(text: str, line: int) -> list[KernelText]:
    bare = "".join(
        _blank(token.text) if token.kind in ("comment", "string") else token.text for token in tokenize(text)
    )
    found = []
    for head in _HEAD.finditer(bare):
        start = _closing(bare, head.end() - 1, "(", ")") + 1
        opening = re.match(r"\s*\{", bare[start:])
        if opening:
            first = start + opening.end() - 1
            body = bare[first + 1 : _closing(bare, first, "{", "}")]
            found.append(KernelText(head[1], line + bare[: head.start()].count("\n"), body))
    return found


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def _closing(text: str, at: int, opening: str, closing: str) -> int:
    """Index of the mark that closes the one at `at`; the text's end where it stays open."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] == opening) - (text[i] == closing)
        if not depth:
            return i
    return len(text)


def python_line(source: str, file: str, line: int) -> int:
    """The file's line for a line of `cuda.cu`, where one string of the file holds all kernels; 0 when it cannot be
    told."""
    texts = [text for text, _ in Places(source).strings if "__global__" in text]
    return Places(source).line((texts[0],), line) if file == "cuda.cu" and line and len(texts) == 1 else 0
