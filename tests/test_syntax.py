"""Others' text is read as Python reads it, whatever other threads read meanwhile."""

from __future__ import annotations

import ast
import contextlib
import gc
import threading
import time
from collections.abc import Iterator

import pytest

from crucible.syntax import tree_of

TEXT = "\n".join(f"def f{n}(a, b):\n    return [a + {n} * (b - {n}) for a in range(b) if a > {n}]" for n in range(60))


class Switching:
    """Garbage whose end lets another thread go on, in the midst of a tree."""

    def __init__(self) -> None:
        self.own = self

    def __del__(self) -> None:
        time.sleep(0.0005)


@pytest.fixture
def often() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(50)
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("often")
def test_trees_are_built_while_other_threads_build_theirs() -> None:
    """Python 3.11 counts their depth for all threads together."""
    failed = []

    def ours() -> None:
        Switching()
        try:
            tree_of(TEXT)
        except SystemError as error:
            failed.append(error)

    def others() -> None:
        Switching()
        with contextlib.suppress(SystemError):
            ast.parse(TEXT)

    for _ in range(10):
        threads = [threading.Thread(target=each) for each in (ours, others, ours, others)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed


def test_what_is_no_python_is_refused() -> None:
    with pytest.raises(SyntaxError):
        tree_of("def")
    assert tree_of("1 + 1", mode="eval").body.op
