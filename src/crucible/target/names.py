"""Names in texts of CUDA C++: which there are already, and which one a thing gets that asks for one."""

from __future__ import annotations

import re

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


def words_of(text: str) -> list[str]:
    """Of the code, in their order."""
    return list(dict.fromkeys(_WORD.findall(_COMMENT.sub("", text))))


def wanted(name: str) -> str:
    """The name to ask for: headers define EOF, INFINITY and the like, and nobody knows which."""
    return f"the_{name}" if len(name) > 1 and name.upper() == name else name
