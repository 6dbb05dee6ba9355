"""A page as a browser's parser sees it, strictly: what is opened is closed, in order."""

from __future__ import annotations

from dataclasses import dataclass
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "hr", "img", "input", "wbr"}
EMPTY_OF_SVG = {"rect", "line", "path", "circle", "polyline"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str | None]
    text: str = ""
    """All text inside, its children's too."""
    path: tuple[str, ...] = ()
    """Tags around it, the outermost first."""


class Reader(HTMLParser):
    """Raises AssertionError where elements are not nested."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[Element] = []
        self._open: list[Element] = []
        self.feed(page)
        self.close()
        assert not self._open, f"never closed: {[element.tag for element in self._open]}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice: {names}"
        element = Element(tag, dict(attrs), path=tuple(e.tag for e in self._open))
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in EMPTY_OF_SVG, f"<{tag}/> is no element that HTML lets close itself"
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open and self._open[-1].tag == tag, f"</{tag}> inside {[e.tag for e in self._open]}"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.text += data

    def all(self, tag: str) -> list[Element]:
        return [element for element in self.elements if element.tag == tag]

    def by_id(self, name: str) -> Element:
        (found,) = (element for element in self.elements if element.attributes.get("id") == name)
        return found


def shape_of(reader: Reader) -> list[tuple[str, tuple[str, ...]]]:
    """Elements with the names of their attributes; `code` and `wbr`, which depend on the text, left out."""
    return [(e.tag, tuple(sorted(e.attributes))) for e in reader.elements if e.tag not in ("code", "wbr")]
