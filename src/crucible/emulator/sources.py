"""The sources that were loaded, and faults told by their lines and names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from crucible.emulator import toolchain
from crucible.emulator.faults import Fault
from crucible.emulator.kernel_texts import KernelText, plain
from crucible.emulator.places import Places
from crucible.emulator.tokens import closing, following, tokenize

Record = dict[str, Any]
"""A fault as the runtime has it: addresses of code instead of lines."""


@dataclass
class Loaded:
    """An extension whose functions can be called."""

    name: str
    kernels: tuple[KernelText, ...]
    globals: tuple[str, ...]
    texts: dict[str, list[str]]
    exports: dict[str, int]
    """Numbers of its functions, by name."""
    parts: tuple[str, ...] = ()
    """What `cuda.cu` was joined from."""
    called: bool = False
    """Since the last `forget`."""

    def files_of(self, kernel: KernelText) -> list[str]:
        """The source file that holds a kernel, by its name at its line; others where it stands there too."""
        own = slice(kernel.line - 1, kernel.line)
        return [name for name, lines in self.texts.items() if kernel.name in "".join(lines[own])]


@dataclass
class Sources:
    """All extensions that this process has loaded."""

    loaded: dict[str, Loaded] = field(default_factory=dict)
    """By file of the shared object."""
    written_in: Places | None = None
    """The Python file that the sources stand in as strings."""

    def faults(self, records: Sequence[Record]) -> list[Fault]:
        """What the runtime recorded, with lines."""
        where: dict[tuple[str, int], tuple[str, int]] = {}
        for file in {record["file"] for record in records}:
            own = [record for record in records if record["file"] == file]
            pcs = {pc for record in own for pc in _pcs(record) if pc}
            where.update({(file, pc): place for pc, place in toolchain.places(file, pcs).items()})
        found = [self._fault(record, where) for record in records]
        return [fault for fault in found if fault is not None]

    def never_ran(self, launched: set[str]) -> list[Fault]:
        """Kernels of extensions that were called which are not in `launched`."""
        return [
            self._placed(_never_ran(kernel), loaded)
            for loaded in self.loaded.values()
            if loaded.called
            for kernel in loaded.kernels
            if kernel.defined and kernel.name not in launched
        ]

    def never_reached(self, kernels: set[str], reached: set[str]) -> list[Fault]:
        """Barriers of those kernels that are not in `reached`, where each stands as `shared object|file:line`."""
        words = "no thread ever came to this barrier"
        return [
            self._placed(
                Fault("never-reached", kernel.name, (0, 0, 0), (0, 0, 0), line, "", words, file=files[0]), loaded
            )
            for file, loaded in self.loaded.items()
            if loaded.called
            for kernel in loaded.kernels
            if kernel.name in kernels and (files := loaded.files_of(kernel))
            for line in kernel.barriers
            if not any(f"{file}|{text}:{line}" in reached for text in files)
        ]

    def _fault(self, record: Record, where: dict[tuple[str, int], tuple[str, int]]) -> Fault | None:
        file, line = where.get((record["file"], record["pc"]), ("", record["line"]))
        _, other_line = where.get((record["file"], record.get("other_pc", 0)), ("", 0))
        if (
            record["kind"] == "divergent-barrier"
            and line
            and line == other_line
            and "different barriers" in record["detail"]
        ):
            return None  # one barrier of the source that the compiler copied
        if record["kind"] == "runaway-loop":
            samples = [where.get((record["file"], pc), ("", 0)) for pc in record.get("samples", ())]
            file, line = self._loop_around(record["file"], [place for place in samples if place[1]] or [(file, line)])
        if not line:
            line = self._line_of_kernel(record["kernel"])
        fault = Fault(
            kind=record["kind"],
            kernel=record["kernel"],
            block=_triple(record["block"]),
            thread=_triple(record["thread"]),
            line=line,
            memory=record["memory"],
            detail=record["detail"],
            other_block=_triple(record["other_block"]) if "other_block" in record else None,
            other_thread=_triple(record["other_thread"]) if "other_thread" in record else None,
            other_line=other_line,
            count=record["count"],
            fatal=bool(record["fatal"]),
            file=file or "cuda.cu",
        )
        owner = self.loaded.get(record["file"]) or self._owner_of(record["kernel"])
        return self._placed(self._with_global_named(fault, record["file"]), owner)

    def _placed(self, fault: Fault, loaded: Loaded | None) -> Fault:
        """With the lines of the Python file, where that is known."""
        if self.written_in is None or loaded is None or fault.file != "cuda.cu":
            return fault
        line, other = (self.written_in.line(loaded.parts, n) if n else 0 for n in (fault.line, fault.other_line))
        return replace(fault, python_line=line, other_python_line=other)

    def _line_of_kernel(self, name: str) -> int:
        """Where a kernel is defined, for faults that no single access stands for."""
        kernels = [kernel for loaded in self.loaded.values() for kernel in loaded.kernels if kernel.defined]
        return next((kernel.line for kernel in kernels if kernel.name == plain(name)), 0)

    def _owner_of(self, name: str) -> Loaded | None:
        """The extension with a kernel of that name, for faults that were seen after it had ended."""
        owners = (e for e in self.loaded.values() if any(kernel.name == plain(name) for kernel in e.kernels))
        return next(owners, None)

    def _loop_around(self, extension: str, places: list[tuple[str, int]]) -> tuple[str, int]:
        """The head of the innermost loop around most of the places: that is what does not end."""
        loaded = self.loaded.get(extension)
        if loaded is None:
            return places[0]
        heads = Counter((file, loop_head("\n".join(loaded.texts.get(file, [])), line)) for file, line in places)
        return heads.most_common(1)[0][0]

    def _with_global_named(self, fault: Fault, file: str) -> Fault:
        """An index beyond a `__constant__` array is seen by its type alone; its name stands in the source."""
        loaded = self.loaded.get(file)
        if fault.kind != "out-of-bounds-local" or loaded is None or not fault.line:
            return fault
        text = loaded.texts.get(fault.file, [])
        here = text[fault.line - 1] if fault.line <= len(text) else ""
        name = next((name for name in loaded.globals if re.search(rf"\b{name}\s*\[", here)), None)
        return replace(fault, kind="out-of-bounds-global", memory=f"{fault.memory} `{name}`") if name else fault


def _never_ran(kernel: KernelText) -> Fault:
    return Fault("never-ran", kernel.name, (0, 0, 0), (0, 0, 0), kernel.line, "", "this kernel was never launched")


def _pcs(record: Record) -> list[int]:
    return [record["pc"], record.get("other_pc", 0), *record.get("samples", ())]


def _triple(values: list[int]) -> tuple[int, int, int]:
    x, y, z = values
    return x, y, z


def loop_head(text: str, line: int) -> int:
    """Line of the `for`, `while` or `do` that most closely encloses `line`; `line` itself when there is none."""
    tokens = tokenize(text)
    best = (line, 1 << 30)
    for at, token in enumerate(tokens):
        if token.kind != "name" or token.text not in ("for", "while", "do"):
            continue
        start = following(tokens, at)
        if token.text != "do" and start < len(tokens) and tokens[start].text == "(":
            start = following(tokens, closing(tokens, start))
        if start >= len(tokens):
            continue
        end = closing(tokens, start) if tokens[start].text == "{" else start
        while end < len(tokens) - 1 and tokens[start].text != "{" and tokens[end].text != ";":
            end += 1
        last = tokens[min(end, len(tokens) - 1)].line
        if token.line <= line <= last and last - token.line < best[1]:
            best = (token.line, last - token.line)
    return best[0]
