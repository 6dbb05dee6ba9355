"""Names in a kernel's text: everything asks for one, and gets it where nothing that it sees has it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from crucible.target import names as text_names
from crucible.target.names import KEYWORDS, MARK


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
        wanted = text_names.wanted(wanted)
        count, name = 1, f"{MARK}{len(self._given)}{MARK}" if self._is_marking else wanted
        while not self._is_marking and self._is_taken(name):
            count += 1
            name = f"{wanted}_{count}"
        self._scopes[-1].add(name)
        self._given[thing] = name
        return name

    def _is_taken(self, name: str) -> bool:
        return name in self._words or any(name in scope for scope in self._scopes)

    def call(self, thing: Hashable, name: str) -> None:
        """By a name that was given to what it takes the place of."""
        self._given[thing] = name

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
        return {word for word in text_names.words_of(text) if MARK not in word} - self._emitted
