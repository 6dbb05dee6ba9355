"""Where a fault can be planted in a kernel's text, and where it must then be named.

Each is one edit that moves no line, at a place that the twin's trace shows to run: an index moved by one, or halved, so
that two threads write to one place, a read a byte off its alignment, a barrier or an only store removed, a barrier that
half of the threads skip, a mask of half a warp, an atomic addition made plain, an address moved off its alignment, a
loop over all elements that goes one too far, a guard taken out, a store to shared memory moved by one, a sum begun from
unwritten memory.
"""

from __future__ import annotations

import ast
import collections
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from crucible.emulator.tokens import Token, closing, following, lines, preceding, tokenize, words

Touched = set[tuple[int, str, str]]
"""Line of the CUDA text, `load`, `store` or `atomic`, `global` or `shared`."""
_SHARED = ("race-shared", "uninitialised-shared", "missing-syncwarp")
_OUTSIDE = ("out-of-bounds-global", "index-overflow")


@dataclass(frozen=True)
class Held:
    """The one text of a Python file that holds its kernels."""

    file: str
    first: int
    """Where the text begins in the file."""
    end: int
    line: int
    """The file's line on which it begins."""

    @property
    def text(self) -> str:
        return self.file[self.first : self.end]


@dataclass(frozen=True)
class Site:
    """A planted fault."""

    kind: str
    line: int
    """Of the Python file, as all lines here."""
    words: str
    expected: tuple[str, ...]
    lines: frozenset[int]
    text: str
    """The whole file with it."""


@dataclass(frozen=True)
class _Edit:
    kind: str
    first: int
    end: int
    text: str
    words: str
    expected: tuple[str, ...]
    lines: frozenset[int]
    """Of the CUDA text."""


@dataclass(frozen=True)
class _Kernel:
    """A `__global__` function: its parameters that are pointers, its shared arrays, its body's tokens."""

    first: int
    end: int
    reads: frozenset[str]
    writes: frozenset[str]
    shared: frozenset[str]


def held(file: str) -> Held | None:
    """The triple-quoted text with `__global__`, where a file has exactly one and it is written without escapes."""
    found = []
    for node in ast.walk(ast.parse(file)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "__global__" in node.value:
            found.append(node)
    if len(found) != 1:
        return None
    first = file.find(found[0].value)
    if first < 0 or not file[:first].endswith(('"""', "'''")):
        return None
    return Held(file, first, first + len(found[0].value), file.count("\n", 0, first) + 1)


def sites(where: Held, touched: Touched, most: int, known: Collection[tuple[str, int]] = ()) -> list[Site]:
    """At most so many, of as many kinds as there are, spread over the text; `known` ones (kind and line) left out."""
    tokens = tokenize(where.text)
    by_kind: dict[str, list[_Edit]] = collections.defaultdict(list)
    for kernel in _kernels(tokens):
        for edit in _edits(tokens, kernel, touched):
            by_kind[edit.kind].append(edit)
    for edit in _unwritten_sum(tokens, touched):
        by_kind[edit.kind].append(edit)
    chosen: list[_Edit] = []
    while len(chosen) < most and any(by_kind.values()):
        for kind in sorted(by_kind):
            if by_kind[kind] and len(chosen) < most:
                edit = by_kind[kind].pop(len(by_kind[kind]) // 2)
                chosen += [] if (kind, tokens[edit.first].line + where.line - 1) in known else [edit]
    return [_site(where, tokens, edit) for edit in chosen]


def _site(where: Held, tokens: list[Token], edit: _Edit) -> Site:
    """Lines are those of the file: the text's first is the one on which it begins."""
    before, changed, after = tokens[: edit.first], tokens[edit.first : edit.end], tokens[edit.end :]
    text = "".join([*(t.text for t in before), edit.text, lines(changed), *(t.text for t in after)])
    at = frozenset(line + where.line - 1 for line in edit.lines)
    line = tokens[edit.first].line + where.line - 1
    whole = where.file[: where.first] + text + where.file[where.end :]
    return Site(edit.kind, line, edit.words, edit.expected, at, whole)


def _kernels(tokens: list[Token]) -> Iterator[_Kernel]:
    end = 0
    for at, token in enumerate(tokens):
        if at < end or token.text != "__global__":
            continue
        opens = next((i for i in range(at, len(tokens)) if tokens[i].text in ("{", ";")), len(tokens))
        if opens == len(tokens) or tokens[opens].text == ";":
            continue
        end = closing(tokens, opens)
        signature = "".join(t.text for t in tokens[at:opens] if t.kind != "comment")
        body = "".join(t.text for t in tokens[opens:end] if t.kind != "comment")
        pointers = re.findall(r"([^,(]*)\*\s*(?:__restrict__|__restrict|const)?\s*(\w+)\s*(?=[,)])", signature)
        assigned = set(re.findall(r"\b(\w+)\s*\+?=[^=]", body))
        reads = {name for kind, name in pointers if "const" in kind} - assigned
        writes = {name for kind, name in pointers if "const" not in kind} - assigned
        shared = set(re.findall(r"__shared__\s+(?:__align__\(\d+\)\s*)?[\w: ]+?\s+(\w+)\s*\[", body))
        yield _Kernel(opens, end, frozenset(reads), frozenset(writes), frozenset(shared))


def _edits(tokens: list[Token], kernel: _Kernel, touched: Touched) -> Iterator[_Edit]:
    barriers = [at for at in range(kernel.first, kernel.end) if tokens[at].text == "__syncthreads"]
    for at in range(kernel.first, kernel.end):
        yield from _moved_index(tokens, at, kernel, touched)
        yield from _plain_sum(tokens, at, kernel, touched)
        yield from _half_mask(tokens, at)
        yield from _off_alignment(tokens, at, kernel)
        yield from _one_too_far(tokens, at, kernel, touched)
        yield from _no_guard(tokens, at, kernel, touched)
        yield from _moved_shared(tokens, at, kernel, touched)
    yield from _barriers(tokens, kernel, barriers, touched)
    yield from _no_store(tokens, kernel, touched)


def _moved_index(tokens: list[Token], at: int, kernel: _Kernel, touched: Touched) -> Iterator[_Edit]:
    """`x[i]` that is read becomes `x[(i) - 1]`, which somebody asks of 0, and goes off its alignment; `out[i]` that is
    written is moved by one either way, and becomes `out[(i) / 2]`, where two threads meet."""
    token, opens = tokens[at], following(tokens, at)
    if token.text not in kernel.reads | kernel.writes or tokens[opens].text != "[":
        return
    close = closing(tokens, opens)
    after = following(tokens, close)
    stored = tokens[after].text == "=" and tokens[after + 1].text != "="
    line, operation = token.line, "store" if stored else "load"
    if (stored and token.text in kernel.reads) or (not stored and token.text in kernel.writes):
        return
    if tokens[preceding(tokens, at)].text in ("&", "->", ".") or (line, operation, "global") not in touched:
        return
    index = "".join(t.text for t in tokens[opens + 1 : close])
    if "\n" in index or "//" in index:
        return
    moves = (
        [("+", "write past the end"), ("-", "write before the start")] if stored else [("-", "read before the start")]
    )
    for sign, kind in moves:  # the last element need not be read
        said = f"{token.text}[{index}] {sign} 1"
        yield _Edit(kind, opens + 1, close, f"({index}) {sign} 1", said, _OUTSIDE, frozenset({line}))
    if stored:
        yield _Edit("two threads, one place", opens + 1, close, f"({index}) / 2", f"{token.text}[({index}) / 2]",
                    ("race-global",), frozenset({line}))  # fmt: skip
    else:
        place = f"*(decltype(&{token.text}[0]))((const char*)&{token.text}[{index}] + 1)"
        yield _Edit("off alignment", at, close + 1, place, f"{token.text}[{index}] one byte on", ("misaligned",),
                    frozenset({line}))  # fmt: skip


def _plain_sum(tokens: list[Token], at: int, kernel: _Kernel, touched: Touched) -> Iterator[_Edit]:
    """`atomicAdd(&x[i], v);` becomes `x[i] += v;`."""
    if tokens[at].text != "atomicAdd" or tokens[preceding(tokens, at)].text not in (";", "{", "}", ")"):
        return
    opens = following(tokens, at)
    close = closing(tokens, opens)
    inner = "".join(t.text for t in tokens[opens + 1 : close])
    found = re.fullmatch(r"\s*&?\s*([\w\[\]+*/ -]+?)\s*,\s*([^,\n]+)", inner)
    if found is None or tokens[following(tokens, close)].text != ";":
        return
    target = found[1] if "&" in inner.split(",")[0] else f"*({found[1]})"
    space = "shared" if found[1].split("[")[0].strip() in kernel.shared else "global"
    if any((tokens[at].line, operation, space) in touched for operation in ("atomic", "load", "store")):
        said = f"{words(tokens[at : close + 1])} made plain"
        yield _Edit("plain sum", at, close + 1, f"{target} += {found[2]}", said,
                    (f"race-{space}", *(("missing-syncwarp",) if space == "shared" else ())),
                    frozenset({tokens[at].line}))  # fmt: skip


def _half_mask(tokens: list[Token], at: int) -> Iterator[_Edit]:
    """The mask of a shuffle names half of the lanes that come."""
    opens = following(tokens, at)
    if not re.fullmatch(r"__shfl(_\w+)?_sync", tokens[at].text) or tokens[opens].text != "(":
        return
    mask = following(tokens, opens)
    if re.fullmatch(r"0x[fF]{8}[uU]?", tokens[mask].text):
        yield _Edit("half a mask", mask, mask + 1, "0x0000ffff", f"mask of {tokens[at].text} 0x0000ffff",
                    ("absent-lanes",), frozenset({tokens[at].line}))  # fmt: skip


def _off_alignment(tokens: list[Token], at: int, kernel: _Kernel) -> Iterator[_Edit]:
    """`reinterpret_cast<const float4*>(x)` becomes that of `x + 1`."""
    if tokens[at].text != "reinterpret_cast":
        return
    opens = next((i for i in range(at, kernel.end) if tokens[i].text == "("), kernel.end)
    if not re.search(r"(float|int|half)4|float2\b", "".join(t.text for t in tokens[at:opens])):
        return
    name = following(tokens, opens)
    close = closing(tokens, opens)
    if tokens[name].text not in kernel.reads | kernel.writes or following(tokens, name) != close:
        return
    behind = tokens[following(tokens, close)].text
    before = preceding(tokens, at)
    used = frozenset({tokens[at].line})
    if behind == ";" and tokens[before].text == "=":
        variable = tokens[preceding(tokens, before)].text
        used = frozenset(t.line for i, t in enumerate(tokens[at : kernel.end], at)
                         if t.text == variable and tokens[following(tokens, i)].text == "[")  # fmt: skip
    elif behind != "[":
        return
    if used:
        yield _Edit("off alignment", name, name + 1, f"{tokens[name].text} + 1", f"{tokens[name].text} + 1 as vectors",
                    ("misaligned",), used)  # fmt: skip


def _one_too_far(tokens: list[Token], at: int, kernel: _Kernel, touched: Touched) -> Iterator[_Edit]:
    """`for (i = blockIdx.x * blockDim.x + ...; i < n; ...)`, with `x[i]` inside, goes on to `i <= n`."""
    opens = following(tokens, at)
    if tokens[at].text != "for" or tokens[opens].text != "(":
        return
    close = closing(tokens, opens)
    head = "".join(t.text for t in tokens[opens + 1 : close])
    found = re.match(r"\s*[\w ]*?\b(\w+)\s*=\s*([^;]+);\s*(\w+) < (\w+)\s*;", head)
    body = following(tokens, close)
    if found is None or found[1] != found[3] or tokens[body].text != "{":
        return
    start = found[2]
    declared = "".join(t.text for t in tokens[kernel.first : at])
    every = "blockIdx" in start or re.search(rf"\b{re.escape(start.strip())}\s*=[^;]*blockIdx", declared)
    end = closing(tokens, body)
    used = {t.line for i, t in enumerate(tokens[body:end], body) if t.text in kernel.reads | kernel.writes
            and "".join(o.text for o in tokens[i + 1 : i + 4]).startswith(f"[{found[1]}]")}  # fmt: skip
    used = {line for line in used if any((line, operation, "global") in touched for operation in ("load", "store"))}
    if every and used:
        less = next(i for i in range(opens, close) if tokens[i].text == "<")
        yield _Edit("one too far", less, less + 1, "<=", f"{found[1]} <= {found[4]}", _OUTSIDE,
                    frozenset(range(tokens[body].line, tokens[end].line + 1)))  # fmt: skip


def _no_guard(tokens: list[Token], at: int, kernel: _Kernel, touched: Touched) -> Iterator[_Edit]:
    """`if (i >= n) return;` or `if (i < n)`, where `i` counts threads of all blocks, lets everybody by."""
    opens = following(tokens, at)
    if tokens[at].text != "if" or tokens[opens].text != "(":
        return
    close = closing(tokens, opens)
    behind = following(tokens, close)
    found = re.fullmatch(r"\s*(\w+)\s*(<|>=)\s*[\w *.:]+", "".join(t.text for t in tokens[opens + 1 : close]))
    declared = "".join(t.text for t in tokens[kernel.first : at])
    returns = tokens[behind].text == "return" or (
        tokens[behind].text == "{" and tokens[following(tokens, behind)].text == "return"
    )
    if found is None or returns != (found[2] == ">="):
        return
    if not re.search(rf"\b{found[1]}\s*=[^;]*blockIdx[^;]*threadIdx", declared):
        return
    after = {token.line for token in tokens[close : kernel.end]}
    used = {line for line, _, space in touched if space == "global" and line in after}
    if used:
        text = "(false)" if returns else "(true)"
        said = f"if {words(tokens[opens : close + 1])} made {text}"
        yield _Edit("no guard", opens, close + 1, text, said, _OUTSIDE, frozenset(used))


def _moved_shared(tokens: list[Token], at: int, kernel: _Kernel, touched: Touched) -> Iterator[_Edit]:
    """`s[i] = v` becomes `s[(i) + 1] = v`, the only store to an array that is read: its first element is nobody's."""
    name, opens = tokens[at].text, following(tokens, at)
    if name not in kernel.shared or tokens[opens].text != "[" or (tokens[at].line, "store", "shared") not in touched:
        return
    close = closing(tokens, opens)
    after = following(tokens, close)
    if tokens[after].text != "=" or tokens[after + 1].text == "=":
        return
    stores = re.findall(
        rf"\b{name}\s*(?:\[[^\]]*\]\s*)+[-+*/]?=[^=]", "".join(t.text for t in tokens[kernel.first : kernel.end])
    )
    index = "".join(t.text for t in tokens[opens + 1 : close])
    if len(stores) == 1 and "\n" not in index and "//" not in index:
        expected = ("out-of-bounds-shared", "uninitialised-shared", "race-shared")
        yield _Edit("shared store moved", opens + 1, close, f"({index}) + 1", f"{name}[{index}] + 1", expected,
                    frozenset(_around(tokens, kernel, at, touched)))  # fmt: skip


def _unwritten_sum(tokens: list[Token], touched: Touched) -> Iterator[_Edit]:
    """`torch::zeros`, to which kernels add atomically, becomes `torch::empty`."""
    added = frozenset(line for line, operation, space in touched if (operation, space) == ("atomic", "global"))
    for at, token in enumerate(tokens):
        if added and token.text == "zeros" and "".join(t.text for t in tokens[at - 2 : at]) == "torch::":
            yield _Edit("no zeros", at, at + 1, "empty", "torch::zeros made torch::empty", ("uninitialised-global",),
                        added)  # fmt: skip


def _barriers(tokens: list[Token], kernel: _Kernel, barriers: list[int], touched: Touched) -> Iterator[_Edit]:
    """Of barriers, the first behind a store to shared memory goes; one that others follow is skipped by every second
    thread."""
    stores = sorted(line for line, operation, space in touched if (operation, space) == ("store", "shared"))
    body = {token.line for token in tokens[kernel.first : kernel.end]}
    of_barriers = frozenset(tokens[at].line for at in barriers)
    for number, at in enumerate(barriers):
        end = closing(tokens, following(tokens, at)) + 1
        since = tokens[barriers[number - 1]].line if number else 0
        if any(since <= line <= tokens[at].line and line in body for line in stores):
            yield _Edit("no barrier", at, end, "(void)0", "__syncthreads() removed", _SHARED,
                        frozenset(_around(tokens, kernel, at, touched)))  # fmt: skip
        if number + 1 < len(barriers):
            said = "__syncthreads() for every second thread"
            yield _Edit("skipped barrier", at, end, "if ((threadIdx.x + threadIdx.y) & 1) __syncthreads()", said,
                        ("divergent-barrier", "deadlock"), of_barriers)  # fmt: skip


def _around(tokens: list[Token], kernel: _Kernel, at: int, touched: Touched) -> set[int]:
    """Lines of the kernel with an access to shared memory: a race without this barrier has two of them."""
    body = range(tokens[kernel.first].line, tokens[kernel.end].line + 1)
    return {line for line, _, space in touched if space == "shared" and line in body}


def _no_store(tokens: list[Token], kernel: _Kernel, touched: Touched) -> Iterator[_Edit]:
    """The only store to a shared array goes: who reads it reads what nobody wrote."""
    for name in sorted(kernel.shared):
        uses = [i for i in range(kernel.first, kernel.end) if tokens[i].text == name and tokens[i].kind == "name"]
        stored, read = [], set()
        for at in uses:
            end = following(tokens, at)
            while tokens[end].text == "[":
                end = following(tokens, closing(tokens, end))
            if tokens[end].text == "=" and tokens[end + 1].text != "=":
                stored.append(at)
            elif end > following(tokens, at):
                read.add(tokens[at].line)
        if len(stored) != 1 or not any((line, "load", "shared") in touched for line in read):
            continue
        at = stored[0]
        end = next(i for i in range(at, kernel.end) if tokens[i].text == ";")
        if (tokens[at].line, "store", "shared") in touched and tokens[preceding(tokens, at)].text in (
            ";",
            "{",
            "}",
            ")",
        ):
            yield _Edit("no store", at, end, "(void)0", f"store to {name} removed",
                        ("uninitialised-shared",), frozenset(read))  # fmt: skip
