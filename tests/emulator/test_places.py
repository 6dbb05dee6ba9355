"""Lines of CUDA strings, found in the Python file around them."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.emulator.places import Places

FILE = '''import torch

HEAD = r"""#include <cuda.h>
struct Pair { float a, b; };
"""
KERNEL = r"""
__global__ void copy(const float* x, float* out) {
    out[threadIdx.x] = x[threadIdx.x];
}
"""
TWICE = "int one = 1;\\nint two = 2;\\n"
FILLED = """
__global__ void scaled(float* out) {{
    out[0] = {factor};
    float same = 1;
    float same = 1;
}}
""".format(factor=3)
'''
NAMES: dict[str, str] = {}
exec(FILE.replace("import torch", ""), NAMES)
HEAD, KERNEL, TWICE, FILLED = (NAMES[name] for name in ("HEAD", "KERNEL", "TWICE", "FILLED"))


@pytest.mark.parametrize(
    ("parts", "number", "line"),
    [
        ((KERNEL,), 3, 8),
        ((KERNEL,), 1, 6),
        ((HEAD, KERNEL), 2, 4),
        ((HEAD, KERNEL), 6, 8),
        ((KERNEL, HEAD), 7, 4),
        ((FILLED,), 2, 13),
        ((FILLED,), 3, 0),
        ((FILLED,), 4, 0),
        ((KERNEL,), 99, 0),
        ((), 1, 0),
        (("not in the file at all",), 1, 0),
    ],
)
def test_the_line_of_the_file(parts: tuple[str, ...], number: int, line: int) -> None:
    assert Places(FILE).line(parts, number) == line


def test_escapes_do_not_mislead() -> None:
    """The second line of the value stands in the first line of the string."""
    assert Places(FILE).line((TWICE,), 2) == 11


def test_a_file_that_is_no_python_has_no_strings() -> None:
    assert Places("def (\n    out[threadIdx.x] = 1;").line(("out[threadIdx.x] = 1;",), 1) == 2


@given(st.lists(st.text(st.characters(codec="ascii", exclude_characters="\\\r\0\x0c"), max_size=20), max_size=8))
def test_every_line_found_holds_the_text(texts: list[str]) -> None:
    value = "\n".join(texts).replace('"', "'")
    source = f'A = 1\nB = r"""{value} """\n'
    assert ast.parse(source)
    for number, text in enumerate((value + " ").split("\n"), 1):
        place = Places(source).line((value + " ",), number)
        assert place == number + 1
        assert text.strip() in source.split("\n")[place - 1]
