"""Python: parameters and buffers as forward reads them, the submodules that hold several looked up once.

An attribute of a module takes Python 0.8 us a level, and a network's weights lie four deep.
"""

from __future__ import annotations

import keyword
import re
from collections import Counter
from collections.abc import Container, Iterable

_Path = tuple[str, ...]


class Owners:
    """Submodules by local names."""

    def __init__(self, paths: Iterable[str], taken: Container[str]) -> None:
        """For attributes at these paths, each once; no local is called as what is taken."""
        held = Counter(tuple(path.split(".")[:-1]) for path in paths)
        for length in range(max(map(len, held), default=0), 0, -1):  # a submodule is one more thing that another holds
            held.update(path[:-1] for path in [*held] if len(path) == length)
        self._locals: dict[_Path, str] = {(): "self"}
        for path in sorted(path for path, count in held.items() if path and count > 1):
            name = re.sub(r"\W", "_", f"of_{'_'.join(path)}")
            while name in taken or name in self._locals.values():
                name += "_"
            self._locals[path] = name

    @property
    def lines(self) -> list[str]:
        """Statements that look them up, outer ones first."""
        return [f"{name} = {self._seen(path)}" for path, name in self._locals.items() if path]

    def word(self, path: str) -> str:
        """An attribute."""
        return self._seen(tuple(path.split(".")))

    def _seen(self, path: _Path) -> str:
        """From the nearest local above."""
        above = next(path[:length] for length in range(len(path) - 1, -1, -1) if path[:length] in self._locals)
        found = self._locals[above]
        for name in path[len(above) :]:
            plain = name.isidentifier() and not keyword.iskeyword(name)
            found = f"{found}.{name}" if plain else f"getattr({found}, {name!r})"
        return found


def own(path: str) -> str:
    """An attribute of the module, looked up by itself; `nn.Sequential` and `nn.ModuleList` have submodules called
    `0`."""
    return Owners((), ()).word(path)
