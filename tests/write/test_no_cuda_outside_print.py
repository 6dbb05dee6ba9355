"""Only printers and targets hold CUDA C++ of kernels: from graph to IR there is no text of it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import crucible

PACKAGE = Path(crucible.__file__).parent
FILES = sorted(
    file for room in ("plan", "algebra", "schedule", "kernel", "kinds") for file in (PACKAGE / room).rglob("*.py")
)
CUDA = re.compile(
    r";$|; *//|[{}]|\w->|__\w+__|\b(threadIdx|blockIdx|float\d?|constexpr|asm)\b *[.*&(]|#pragma|#include"
)


def texts(source: str) -> list[str]:
    """The strings of a file, but for what describes it."""
    tree = ast.parse(source)
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in told]
    return [node.value for node in found if isinstance(node.value, str)]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_there_is_none(file: Path) -> None:
    assert [text for text in texts(file.read_text()) if CUDA.search(text)] == []


def test_it_would_be_seen() -> None:
    printers = [file for room in ("print", "target") for file in (PACKAGE / room).rglob("*.py")]
    assert sum(bool(CUDA.search(text)) for file in printers for text in texts(file.read_text())) > 30
    assert any(CUDA.search(text) for text in texts('k.add(f"const int row = {place};")'))
