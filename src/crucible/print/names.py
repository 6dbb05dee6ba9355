"""Names in a kernel's text: everything asks for one, and gets it where nothing that it sees has it."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable

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
_MARK = "ǁ"
"""Of names that nobody has given yet: a letter, so that it goes wherever names go, in no name of anybody's."""


class Names:
    """The names that are seen at some place in a kernel.

    Names are given twice. The first time they are marks, so that `words` of the text are those that it has of itself:
    types, functions, what the language says. The second time nothing is called like one of them.
    """

    def __init__(self, words: Iterable[str] | None = None) -> None:
        self._is_marking = words is None
        self._words = frozenset(words or ()) | KEYWORDS
        self._scopes: list[set[str]] = [set()]
        self._given: dict[Hashable, str] = {}
        self._emitted: set[str] = set()

    def give(self, thing: Hashable, wanted: str) -> str:
        """A name for it in this scope: as wanted, or with a number."""
        if len(wanted) > 1 and wanted.upper() == wanted:  # EOF, INFINITY: headers define some, and we know not which
            wanted = f"the_{wanted}"
        count, name = 1, f"{_MARK}{len(self._given)}{_MARK}" if self._is_marking else wanted
        while not self._is_marking and self._is_taken(name):
            count += 1
            name = f"{wanted}_{count}"
        self._scopes[-1].add(name)
        self._given[thing] = name
        return name

    def _is_taken(self, name: str) -> bool:
        return name in self._words or any(name in scope for scope in self._scopes)

    def of(self, thing: Hashable) -> str:
        """What it is called. Raises KeyError for what was not declared."""
        return self._given[thing]

    @property
    def seen(self) -> list[str]:
        """What a variable must not be called here."""
        return [] if self._is_marking else sorted(self._words.union(*self._scopes))

    def take(self, names: Iterable[str]) -> None:
        """Variables that somebody else named, of what was not `seen`."""
        found = set(names)
        self._scopes[-1] |= found
        self._emitted |= found

    def enter(self) -> None:
        self._scopes.append(set())

    def leave(self) -> None:
        self._scopes.pop()

    def words(self, text: str) -> set[str]:
        """Of a text with marks: what is in it beside names."""
        code = re.sub(r"//.*", "", text)
        return {word for word in re.findall(r"(?<![\w.])[^\W\d]\w*", code) if _MARK not in word} - self._emitted
