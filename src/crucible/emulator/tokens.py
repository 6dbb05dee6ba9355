"""C++ text as tokens: enough to find launches and declarations without a parser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""(?P<space>\s+|\\\r?\n)
    |(?P<comment>//(?:[^\n\\]|\\.|\\\n)*|/\*.*?\*/)
    |(?P<string>(?:u8|[uUL])?R"(?P<raw>[^()\\\s]{0,16})\(.*?\)(?P=raw)"|(?:u8|[uUL])?"(?:[^"\\\n]|\\.|\\\n)*"|'(?:[^'\\\n]|\\.)+')
    |(?P<number>\.?\d(?:'?[\w.]|(?<=[eEpP])[+-])*)
    |(?P<name>[A-Za-z_$][\w$]*)
    |(?P<mark><<<|::|->|.)""",
    re.VERBOSE | re.DOTALL,
)

_LINE = re.compile(r"#line (\d+)\b")


@dataclass(slots=True)
class Token:
    """A piece of source text; `text` may be replaced, its line breaks must stay."""

    kind: str
    """`space`, `comment`, `string`, `number`, `name` or `mark`."""
    text: str
    line: int

    @property
    def matters(self) -> bool:
        return self.kind not in ("space", "comment")


def tokenize(text: str) -> list[Token]:
    """All of `text`, whose concatenated tokens are `text` again."""
    tokens, line = [], 1
    for match in _TOKEN.finditer(text):
        kind, found = match.lastgroup or "mark", match[0]
        tokens.append(Token("string" if kind == "raw" else kind, found, line))
        if "\n" in found:
            directive = _LINE.match(text, match.end())
            line = int(directive[1]) - 1 if directive else line + found.count("\n")
    return tokens


def following(tokens: list[Token], at: int) -> int:
    """Index of the next token that is neither space nor comment; len(tokens) at the end."""
    at += 1
    while at < len(tokens) and not tokens[at].matters:
        at += 1
    return at


def preceding(tokens: list[Token], at: int) -> int:
    """Index of the previous token that is neither space nor comment; -1 at the start."""
    at -= 1
    while at >= 0 and not tokens[at].matters:
        at -= 1
    return at


_CLOSES = {"(": ")", "[": "]", "{": "}"}


def closing(tokens: list[Token], at: int) -> int:
    """Index of the bracket that closes the one at `at`; len(tokens) when there is none."""
    opens, closes, depth = tokens[at].text, _CLOSES[tokens[at].text], 0
    for i in range(at, len(tokens)):
        if tokens[i].kind == "mark":
            depth += (tokens[i].text == opens) - (tokens[i].text == closes)
            if depth == 0:
                return i
    return len(tokens)


def angle_opening(tokens: list[Token], at: int) -> int:
    """Index of the `<` that the `>` at `at` closes; -1 when there is none."""
    depth = round_ = 0
    for i in range(at, -1, -1):
        text = tokens[i].text
        round_ += (text == ")") - (text == "(")
        if round_ == 0:
            depth += (text == ">") - (text == "<")
        if depth == 0:
            return i
        if text in (";", "{", "}") and round_ == 0:
            return -1
    return -1


def angle_closing(tokens: list[Token], at: int) -> int:
    """Index of the `>` that closes the `<` at `at`; len(tokens) when there is none."""
    depth = round_ = 0
    for i in range(at, len(tokens)):
        text = tokens[i].text
        round_ += (text == "(") - (text == ")")
        if round_ == 0:
            depth += (text == "<") - (text == ">")
        if depth == 0:
            return i
    return len(tokens)


def split(tokens: list[Token]) -> list[list[Token]]:
    """The parts between commas outside all brackets, angle brackets of templates included."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        if token.kind == "mark":
            depth += token.text in ("(", "[", "{", "<")
            depth -= token.text in (")", "]", "}", ">")
        if token.text == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if any(token.matters for token in part)]


def words(tokens: list[Token]) -> str:
    """The tokens on one line, comments left out."""
    text = "".join(" " if not token.matters else token.text for token in tokens)
    return re.sub(r"\s+", " ", text).strip()


def lines(tokens: list[Token]) -> str:
    """The line breaks of the tokens, and nothing else; those inside a macro stay inside."""
    return "".join(found for token in tokens for found in re.findall(r"\\?\n", token.text))


def put(text: str, statement: list[Token]) -> None:
    """Writes `text` in the place of a statement, whose line breaks stay."""
    breaks = lines(statement)
    for token in statement:
        token.text = ""
    statement[0].text = text + breaks


def positions(tokens: list[Token], name: str) -> Iterator[int]:
    """Where `name` stands as a token."""
    return (i for i, token in enumerate(tokens) if token.text == name and token.kind in ("name", "mark"))
