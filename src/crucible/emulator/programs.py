"""A `.cu` file with a `main`, as a source whose `main` Python can call."""

from __future__ import annotations

from crucible.emulator.tokens import Token, closing, following, preceding, tokenize

FUNCTION = "crucible_program"
DECLARED = f"int64_t {FUNCTION}();"
NAME = "program.cu"
"""What the file is called in lines of faults, whatever its own name."""
_BEFORE = "#include <cstdlib>\nstruct crucible_exited { int code; };\n" \
    "[[noreturn]] static void crucible_exit(int code) { throw crucible_exited{code}; }\n"  # fmt: skip
_BEHIND = f"""
#line 1 "crucible_exports"
static int crucible_called(int (*main)()) {{ return main(); }}
template <class C> static int crucible_called(int (*main)(int, C**)) {{
    static char name[] = "program";
    static char* arguments[] = {{name, nullptr}};
    return main(1, (C**)arguments);
}}
int64_t {FUNCTION}() {{
    try {{ return crucible_called(crucible_main); }} catch (const crucible_exited& early) {{ return early.code; }}
}}
"""


def callable_main(text: str) -> str:
    """The same lines, with `main` under another name, an answer at its end, and an `exit` that leaves it alone.

    Raises ValueError where the file defines no `main`.
    """
    tokens = tokenize(text)
    opening = _body_of_main(tokens)
    tokens[closing(tokens, opening)].text = "return 0; }"
    for at, token in enumerate(tokens):
        if token.kind != "name" or token.text not in ("main", "exit") or not _is_called(tokens, at):
            continue
        token.text = f"crucible_{token.text}"
        if token.text == "crucible_exit":
            _unqualified(tokens, at)
    return f'{_BEFORE}#line 1 "{NAME}"\n{"".join(token.text for token in tokens)}{_BEHIND}'


def has_main(text: str) -> bool:
    """Whether it can run by itself."""
    try:
        _body_of_main(tokenize(text))
    except ValueError:
        return False
    return True


def _body_of_main(tokens: list[Token]) -> int:
    for at, token in enumerate(tokens):
        if token.kind != "name" or token.text != "main" or not _is_called(tokens, at):
            continue
        behind = following(tokens, closing(tokens, following(tokens, at)))
        if behind < len(tokens) and tokens[behind].text == "{":
            return behind
    raise ValueError("no main is defined")


def _is_called(tokens: list[Token], at: int) -> bool:
    """Or defined: a parenthesis follows, and it is nobody's member."""
    behind, before = following(tokens, at), preceding(tokens, at)
    is_member = before >= 0 and tokens[before].text in (".", "->")
    return behind < len(tokens) and tokens[behind].text == "(" and not is_member


def _unqualified(tokens: list[Token], at: int) -> None:
    """`std::exit` and `::exit` lose what stands in front."""
    before = preceding(tokens, at)
    if before >= 0 and tokens[before].text == "::":
        tokens[before].text = ""
        owner = preceding(tokens, before)
        if owner >= 0 and tokens[owner].text == "std":
            tokens[owner].text = ""
