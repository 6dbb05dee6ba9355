"""What does not build, import or run: the usual causes by the tools' own words, in the candidate's own lines."""

from __future__ import annotations

import pytest
from explaining import claims, why

from crucible.judge.verdict.compiler_messages import first_error, line_in
from crucible.judge.verdict.verdict import DoesNotBuild, DoesNotImport, Raises

SOURCE = '''import torch
from torch.utils.cpp_extension import load_inline

TILE = 32
CUDA = r"""
#include <nowhere.cuh>
__global__ void scale(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && i < TILE) { out[i] = x[i] * BLOCK + bais; }
    atomicMax(out, x[i])
}
"""
extension = load_inline("scale", "", CUDA, functions=["run"])
'''
DOUBLED = SOURCE.replace("{", "{{").replace("}", "}}")


def built(error: str, source: str = SOURCE) -> tuple[str, int]:
    """The first claim and its line for what a compiler printed."""
    message = first_error(error)
    found = why(DoesNotBuild(message, line_in(source, message)), source)
    assert message in found[0].evidence
    assert found[0].remedy
    return found[0].claim, found[0].line


@pytest.mark.parametrize(
    ("error", "words", "line"),
    [
        ("cuda.cu:5:44: error: ‘BLOCK’ was not declared in this scope", "macro or constant `BLOCK` is not defined", 9),
        ('cuda.cu(8): error: identifier "BLOCK" is undefined', "macro or constant `BLOCK` is not defined", 9),
        ("cuda.cu:5:22: error: ‘TILE’ was not declared in this scope", "it is a name of the Python file (line 4)", 9),
        ('cuda.cu(5): error: identifier "bais" is undefined', "the name `bais` is not defined where it is used", 9),
        ("cuda.cu:2:10: fatal error: nowhere.cuh: No such file or directory", "a header is missing: `nowhere.cuh`", 6),
        ('cuda.cu(5): error: cannot open source file "nowhere.cuh"', "a header is missing: `nowhere.cuh`", 6),
        (
            "cuda.cu:6:14: error: no matching function for call to ‘atomicMax(float*&, const float&)’",
            "form of `atomicMax`",
            10,
        ),
        (
            'cuda.cu(6): error: no instance of overloaded function "atomicMax" matches',
            "no form of `atomicMax` takes",
            10,
        ),
        ("cuda.cu:6:25: error: expected ‘;’ before ‘}’ token", "a syntax error: the compiler expected ‘;’", 10),
        ("main.cpp:4:1: error: ‘run’ was not declared in this scope", "the binding of `run` finds no declaration", 13),
        ("main.cpp:3:82: error: invalid ‘static_cast’ from type ‘a’", "the bindings do not compile", 0),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_10'", "does not know: `compute_10`", 0),
        (
            "ptxas error   : Entry function '_Z1kPf' uses too much shared data (0x3a980 bytes, 0xc000 max)",
            "0x3a980 bytes",
            0,
        ),
        (
            "/usr/bin/ld: a.o: undefined reference to `launch(float*)'",
            "`launch` is declared and used, and defined nowhere",
            0,
        ),
        (
            "f.cpp:(.text+0x0): multiple definition of `launch()'; a.o: first defined here",
            "`launch` is defined twice",
            0,
        ),
    ],
)
def test_the_compilers_first_error_is_told_with_its_cause_and_line(error: str, words: str, line: int) -> None:
    claim, place = built(error)
    assert words in claim
    assert place == line


def test_an_error_of_another_kind_names_no_cause() -> None:
    claim, _ = built("cuda.cu:5:22: error: invalid operands to binary expression")
    assert claim == "it does not compile"


def test_a_name_that_cpp_declares_is_no_missing_declaration() -> None:
    """Undeclared inside the bindings' file is one thing, inside a kernel another."""
    assert "binding" not in built("cuda.cu:5:44: error: ‘run’ was not declared in this scope")[0]


def test_doubled_braces_come_first_where_the_compiler_stumbles_over_them() -> None:
    error = "cuda.cu:3:57: error: expected unqualified-id before ‘{’ token"
    claim, line = built(error, DOUBLED)
    assert "doubled braces of an f-string" in claim
    assert line == 7
    undefined = why(DoesNotBuild("cuda.cu:5:44: ‘BLOCK’ was not declared in this scope", 9), DOUBLED)
    assert "`BLOCK` is not defined" in undefined[0].claim
    assert "doubled braces" in undefined[1].claim


@pytest.mark.parametrize("source", [SOURCE, DOUBLED.replace('r"""', 'f"""'), SOURCE.replace("int n) {", "int n) {{")])
def test_single_braces_and_f_strings_are_not_doubled(source: str) -> None:
    found = why(DoesNotBuild("cuda.cu:5:44: ‘BLOCK’ was not declared in this scope", 0), source)
    assert "doubled" not in claims(found)


@pytest.mark.parametrize(
    ("message", "source", "words"),
    [
        ("line 1: ModuleNotFoundError: No module named 'cupy'", "import cupy\n", "it imports `cupy`"),
        (
            "construction: TypeError: __init__() missing 1 required positional argument: 'n'",
            "",
            "cannot be constructed",
        ),
        ("syntax error, line 2: invalid syntax", "x = 1\ny = = 2\n", "the file is no Python"),
        ("the file is empty", "", "the file holds no code"),
        ("it defines no class ModelNew", "x = 1", "the file defines no class ModelNew"),
        ("line 3: ZeroDivisionError: division by zero", "", "importing or constructing it raises"),
    ],
)
def test_what_does_not_import_is_told_with_its_cause(message: str, source: str, words: str) -> None:
    found = why(DoesNotImport(message), source)
    assert words in found[0].claim
    assert message in found[0].evidence


def test_a_syntax_errors_line_is_found_in_the_text() -> None:
    assert why(DoesNotImport("syntax error, line 2: invalid syntax"), "x = 1\ny = = 2\n")[0].line == 2


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            "RuntimeError: expected scalar type Float but found BFloat16",
            "it takes Float tensors alone, and was given BFloat16",
        ),
        ("RuntimeError: The size of tensor a (3) must match the size of tensor b (4)", "tensors do not fit together"),
        ("KeyError: 'x'", "its forward raises an exception"),
    ],
)
def test_an_exception_is_told_with_its_line(message: str, words: str) -> None:
    (found,) = why(Raises("forward", f"line 2: {message}", 2), "import torch\ny = f(x)\n")
    assert (found.claim, found.line) == (words, 2)
    assert "`y = f(x)`" in found.evidence
