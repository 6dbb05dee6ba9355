"""Names in texts of CUDA C++: which there are already, and which one a thing gets that asks for one.

A text may be made before its names are known. What is called by a *wish* then begins with a mark: `wish("x")` for a
tensor, which ends with one as well, and so does what is called after it (`f"{wish('x')}_value"`); the mark alone before
the name of a variable. `resolved` gives names when the whole text is there, and with it every word that is not to be
had. So nobody keeps a list of what kernels call their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class"
        " compl concept const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype"
        " default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline"
        " int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public"
        " register reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch"
        " template this thread_local throw true try typedef typeid typename typeof union unsigned using virtual void"
        " volatile wchar_t while xor xor_eq linux unix errno stdin stdout stderr assert",
    )
)
"""Of C++, by its standard; and the macros in lower case that compilers and the C library define."""
MARK = "ǁ"
"""Of names that nobody has given yet: a letter, so that it goes wherever names go, in no name of anybody's."""
_COMMENT = re.compile(r"//.*")
_WORD = re.compile(r"(?<![\w.])[^\W\d]\w*")
_TENSOR = re.compile(f"{MARK}(\\w+?){MARK}")


def wish(name: str) -> str:
    """A tensor's, in a text that is not finished."""
    return f"{MARK}{name}{MARK}"


def wished(text: str) -> str:
    """By names as they are wished for."""
    return text.replace(MARK, "")


def words_of(text: str) -> list[str]:
    """Of the code, in their order."""
    return list(dict.fromkeys(_WORD.findall(_COMMENT.sub("", text))))


def wanted(name: str) -> str:
    """The name to ask for: headers define EOF, INFINITY and the like, and nobody knows which."""
    return f"the_{name}" if len(name) > 1 and name.upper() == name else name


def resolved(text: str) -> str:
    """With a name for each wish: as wished for, or with a number where the text has a word like it. Tensors go first,
    each with all that is called after it; what is said of them in comments follows."""
    if MARK not in text:
        return text
    words = words_of(text)
    taken = KEYWORDS.union(word for word in words if MARK not in word)
    given: dict[str, str] = {}
    for tensor, family in _families(word for word in words if MARK in word):
        found = _free(tensor, family, taken)
        given |= found
        taken |= set(found.values())
    return re.sub(rf"\w*{MARK}\w*", lambda found: given.get(found[0]) or wished(found[0]), text)


def _families(wishes: Iterable[str]) -> list[tuple[str, list[str]]]:
    """What is called after each tensor; then variables, each by itself."""
    tensors: dict[str, list[str]] = {}
    variables = []
    for word in wishes:
        tensor = _TENSOR.search(word)
        if tensor:
            tensors.setdefault(tensor[0], []).append(word)
        else:
            variables.append((word, [word]))
    return [*tensors.items(), *variables]


def _free(stem: str, family: Iterable[str], taken: Iterable[str]) -> dict[str, str]:
    """Names for a family such that none is taken."""
    name, count = re.fullmatch(r"(.*?)(?:_([1-9]\d*))?", wanted(wished(stem))).groups()  # type: ignore[union-attr]
    number = int(count or 1)
    while True:
        own = name if number == 1 and not count else f"{name}_{number}"
        found = {word: wished(word.replace(stem, own)) for word in family}
        if not set(found.values()) & set(taken):
            return found
        number += 1
