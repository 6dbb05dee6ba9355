"""Mutants of right kernels: one barrier removed, or one guard loosened, and whether the emulator notices.

Kernels that take part have several `// inputs:` lines, one of them ragged, and a barrier. A mutant is caught by a fault
of any kind, a wrong answer, or a refusal to build. `kernels/mutants_not_caught.txt` says of each other why.
"""

from __future__ import annotations

import re
import types
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import corpus
import torch

from crucible import emulator
from crucible.emulator.tokens import Token, closing, following, lines, preceding, tokenize, words

NOT_CAUGHT = corpus.KERNELS / "mutants_not_caught.txt"
FENCES = ("__threadfence", "__threadfence_block")
BARRIERS = ("__syncthreads", "__syncwarp", *FENCES)
_WAITS = re.compile(r"\b(?:bar|barrier|cp\.async\.wait_\w+)\b")
_LOOSER = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}


@dataclass(frozen=True)
class Mutant(corpus.Kernel):
    """A kernel with one thing changed; no `what` is the kernel itself."""

    what: str
    changed: str
    number: int

    @property
    def name(self) -> str:
        return f"{super().name}_{self.number}"

    @property
    def text(self) -> str:  # type: ignore[override]
        return self.changed


@dataclass(frozen=True)
class _Edit:
    """Tokens `first` to before `end` become `text`."""

    first: int
    end: int
    text: str
    words: str


def kernels() -> list[corpus.Kernel]:
    """The kernels that are mutated: those with several sets of inputs."""
    files = sorted([*(corpus.KERNELS / "field").glob("*.cu"), *(corpus.KERNELS / "mutation").glob("*.cu")])
    return [kernel for kernel in map(corpus.Kernel, files) if kernel.input_sets > 1]


def mutants(kernel: corpus.Kernel) -> list[Mutant]:
    """All mutants, named `line: what`; a second of the same name on a line is `(2)`."""
    tokens = tokenize(kernel.text)
    named: Counter[str] = Counter()
    found = []
    for edit in sorted(_edits(tokens), key=lambda edit: (edit.first, edit.words)):
        what = f"{tokens[edit.first].line}: {edit.words}"
        named[what] += 1
        what += f" ({named[what]})" if named[what] > 1 else ""
        found.append(Mutant(kernel.path, what, _applied(tokens, edit), len(found) + 1))
    return found


def unchanged(kernel: corpus.Kernel) -> Mutant:
    """The kernel itself, as a mutant that must not be caught."""
    return Mutant(kernel.path, "", kernel.text, 0)


def caught_by(extension: types.ModuleType, mutant: Mutant) -> str:
    """What gives a mutant away, with order and number of the inputs; empty when nothing does."""
    for order in ("forward", "reverse", "random"):
        with emulator.schedule(order):
            for which in range(mutant.input_sets):
                found = _seen(extension, mutant, which)
                if found:
                    return f"{found}, {order}, inputs {which + 1}"
    return ""


def not_caught() -> dict[tuple[str, str], str]:
    """The table of those that nothing gave away: reason by kernel and mutant, `equivalent: ...` or `missed: ...`."""
    entries = {}
    for line in NOT_CAUGHT.read_text().splitlines():
        if line and not line.startswith("#"):
            kernel, what, reason = (part.strip() for part in line.split(" | "))
            assert reason.startswith(("equivalent: ", "missed: ")), line
            assert (kernel, what) not in entries, line
            entries[kernel, what] = reason
    return entries


def _seen(extension: types.ModuleType, mutant: Mutant, which: int) -> str:
    outcome = corpus.run(extension, mutant, which)
    if outcome.faults:
        return outcome.faults[0].kind
    if outcome.error:
        return "error"
    return "" if _is_right(mutant, outcome.result, which) else "wrong answer"


def _is_right(kernel: corpus.Kernel, result: object, which: int) -> bool:
    wanted = corpus.tensors(kernel.reference()(*kernel.inputs(which)))
    tolerance = corpus.tolerance(kernel)
    return all(
        got.shape == want.shape and torch.allclose(got, want.to(got.dtype), rtol=tolerance, atol=tolerance)
        for got, want in zip(corpus.tensors(result), wanted, strict=True)
    )


def _applied(tokens: list[Token], edit: _Edit) -> str:
    """The text with an edit, no line moved."""
    before, changed, after = tokens[: edit.first], tokens[edit.first : edit.end], tokens[edit.end :]
    return "".join([*(t.text for t in before), edit.text, lines(changed), *(t.text for t in after)])


def _edits(tokens: list[Token]) -> Iterator[_Edit]:
    yield from _round_downs(tokens)
    for first, end in _device_code(tokens):
        for at in range(first, end):
            yield from _removed_barrier(tokens, at)
            yield from _moved_bound(tokens, at)
            yield from _dropped_guards(tokens, at)


def _device_code(tokens: list[Token]) -> Iterator[tuple[int, int]]:
    """The bodies of kernels and device functions."""
    end = 0
    for at, token in enumerate(tokens):
        if at >= end and token.text in ("__global__", "__device__"):
            opens = at
            while opens < len(tokens) and tokens[opens].text not in ("{", ";", "="):
                opens += 1
            if opens < len(tokens) and tokens[opens].text == "{":
                end = closing(tokens, opens)
                yield opens, end


def _removed_barrier(tokens: list[Token], at: int) -> Iterator[_Edit]:
    """`__syncthreads()`, `block.sync()`, `cg::sync(block)`, a fence, a wait in PTX: each becomes nothing."""
    text = tokens[at].text
    opens = following(tokens, at)
    if text == "asm":
        end = at
        while tokens[end].text != ";":
            end += 1
        if _WAITS.search(words(tokens[at:end])):
            yield _Edit(at, end, "(void)0", "asm wait removed")
    elif tokens[opens].text == "(" and (text in BARRIERS or (text == "sync" and _is_member(tokens, at))):
        first = at
        while tokens[preceding(tokens, first)].text in (".", "::") or tokens[first].text in (".", "::"):
            first = preceding(tokens, first)
        end = closing(tokens, opens) + 1
        yield _Edit(first, end, "(void)0", f"{words(tokens[first:end])} removed")


def _is_member(tokens: list[Token], at: int) -> bool:
    return tokens[preceding(tokens, at)].text in (".", "::")


def _moved_bound(tokens: list[Token], at: int) -> Iterator[_Edit]:
    """A comparison that takes one value more or less. Ours have spaces around them, template brackets have none."""
    mark = tokens[at].text
    if mark not in ("<", ">") or tokens[at - 1].kind != "space":
        return
    end = at + 1
    if tokens[end].text == "=":
        mark, end = mark + "=", end + 1
    if tokens[end].kind == "space":
        sides = f"{_operand_before(tokens, at)} {mark} {_operand_after(tokens, end)}"
        yield _Edit(at, end, _LOOSER[mark], f"{sides} to {_LOOSER[mark]}")


def _operand_before(tokens: list[Token], at: int) -> str:
    first = at - 1
    while tokens[first - 1].text not in ("(", ";", "&", "|", "=", "{", "}", ",", "!"):
        if tokens[first - 1].text in (")", "]"):
            first = _opening(tokens, first - 1)
        else:
            first -= 1
    return words(tokens[first:at])


def _operand_after(tokens: list[Token], at: int) -> str:
    end = at
    while tokens[end].text not in (")", ";", "&", "|", "?", ","):
        end = closing(tokens, end) + 1 if tokens[end].text in ("(", "[") else end + 1
    return words(tokens[at:end])


def _opening(tokens: list[Token], at: int) -> int:
    """Index of the bracket that the one at `at` closes."""
    opens = {")": "(", "]": "["}[tokens[at].text]
    return next(i for i in range(at, -1, -1) if tokens[i].text == opens and closing(tokens, i) == at)


def _dropped_guards(tokens: list[Token], at: int) -> Iterator[_Edit]:
    """Each part of a condition becomes one that always lets the thread on."""
    condition = _condition(tokens, at)
    if condition is None:
        return
    first, end, leaves = condition
    joint, neutral = ("|", "false") if leaves else ("&", "true")
    for start, stop in _parts(tokens, first, end, joint):
        yield _Edit(start, stop, f"({neutral})", f"{words(tokens[start:stop])} dropped")


def _condition(tokens: list[Token], at: int) -> tuple[int, int, bool] | None:
    """The condition that an `if`, a `?` or a `bool` begins or ends: first, end, and whether it is one to leave by."""
    text = tokens[at].text
    if text == "if":
        opens = following(tokens, at)
        if tokens[opens].text != "(":
            return None
        end = closing(tokens, opens)
        then = following(tokens, end)
        then = following(tokens, then) if tokens[then].text == "{" else then
        return opens + 1, end, tokens[then].text in ("return", "continue", "break")
    if text == "?":
        first = at
        while not _begins_value(tokens, first - 1):
            first = _opening(tokens, first - 1) if tokens[first - 1].text in (")", "]") else first - 1
        return None if _is_flag(tokens[first:at]) else (first, at, False)
    if text == "bool":
        equals = following(tokens, following(tokens, at))
        if tokens[equals].text != "=":
            return None
        end = next(i for i in range(equals, len(tokens)) if tokens[i].text == ";")
        return equals + 1, end, False
    return None


def _begins_value(tokens: list[Token], at: int) -> bool:
    """Whether a new expression begins behind a token: an assignment's `=` does, that of `<=` does not."""
    if tokens[at].text == "=":
        return tokens[at - 1].text not in ("<", ">", "!", "=") and tokens[at + 1].text != "="
    return tokens[at].text in (";", ",", "(", "{", "}", "return", ":")


def _is_flag(tokens: list[Token]) -> bool:
    """A name alone: its condition is mutated where it is made."""
    return sum(token.matters for token in tokens) == 1


def _parts(tokens: list[Token], first: int, end: int, joint: str) -> Iterator[tuple[int, int]]:
    """What `joint`, doubled, joins, a pair of brackets around all taken off, spaces at the ends too."""
    while not tokens[first].matters:
        first += 1
    while not tokens[end - 1].matters:
        end -= 1
    if tokens[first].text == "(" and closing(tokens, first) == end - 1:
        yield from _parts(tokens, first + 1, end - 1, joint)
        return
    start, at = first, first
    while at < end:
        if tokens[at].text == "(":
            at = closing(tokens, at)
        elif tokens[at].text == joint == tokens[at + 1].text:
            yield start, preceding(tokens, at) + 1
            start = at = following(tokens, at + 1)
            continue
        at += 1
    yield start, end


def _round_downs(tokens: list[Token]) -> Iterator[_Edit]:
    """`(n + b - 1) / b` becomes `(n) / b`."""
    for at, token in enumerate(tokens):
        slash = following(tokens, at)
        if token.text != ")" or slash >= len(tokens) or tokens[slash].text != "/":
            continue
        opens = _opening(tokens, at)
        inner = [i for i in range(opens + 1, at) if tokens[i].matters]
        plus = max((i for i in inner if tokens[i].text == "+"), default=-1)
        added = [tokens[i].text for i in inner if i > plus]
        divisor = tokens[following(tokens, slash)].text
        if plus > 0 and added in ([divisor, "-", "1"], [_less_one(divisor)]):
            end = following(tokens, slash) + 1
            yield _Edit(preceding(tokens, plus) + 1, at, "", f"{words(tokens[opens:end])} rounded down")


def _less_one(number: str) -> str:
    return str(int(number) - 1) if number.isdigit() else ""
