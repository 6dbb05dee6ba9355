"""Of a build's output, the one line that says what is wrong. The samples are what g++ 12, nvcc 13 and ld print."""

from __future__ import annotations

import pytest

from crucible.judge.verdict.compiler_messages import first_error, is_build_failure

GXX = """main.cpp: In function ‘int bar(int)’:
main.cpp:2:25: error: ‘y’ was not declared in this scope
    2 | int bar(int x) { return y + x }
      |                         ^
main.cpp:2:30: error: expected ‘;’ before ‘}’ token
"""
LOAD_INLINE = f"""Error building extension 'x': [1/2] c++ -MMD -MF main.o.d -std=c++20 -c /tmp/x/main.cpp -o main.o
FAILED: [code=1] main.o
c++ -MMD -MF main.o.d -std=c++20 -c /tmp/x/main.cpp -o main.o
/tmp/x/{GXX.splitlines()[0]}
/tmp/x/{GXX.splitlines()[1]}
ninja: build stopped: subcommand failed.
"""
WARNED_FIRST = """w.cpp:1:16: warning: unused variable ‘error’ [-Wunused-variable]
w.cpp:1:40: error: ‘undefined_one’ was not declared in this scope
"""
TEMPLATE = """t.cpp: In instantiation of ‘struct A<int>’:
t.cpp:1:57:   required from here
t.cpp:1:44: error: ‘int’ is not a class, struct, or union type
"""
HEADER = """In file included from i.cpp:1:
t2.h:1:9: error: ‘z’ was not declared in this scope
"""
FATAL = """c.cu:1:10: fatal error: nowhere.h: No such file or directory
    1 | #include "nowhere.h"
compilation terminated.
"""
NVCC = """Error building extension 'compile_only':
cuda.cu(12): error: identifier "nothing" is undefined
"""
NVCC_LINE = """cuda.cu(7): warning #177-D: variable "error" was declared but never referenced
/tmp/x/cuda.cu(12): error: identifier "nothing" is undefined
    x[0] = nothing;
1 error detected in the compilation of "cuda.cu".
"""
PTXAS = """[1/2] nvcc -c cuda.cu -o cuda.o
ptxas error   : Entry function '_Z1kPf' uses too much shared data (0x3a980 bytes, 0xc000 max)
"""
PTX_LINE = """[1/2] nvcc -c cuda.cu -o cuda.o
ptxas /tmp/tmpxft_0-6_d.ptx, line 27; error   : Not a name of any known instruction: 'bogus'
ptxas fatal   : Ptx assembly aborted due to errors
"""
ARCHITECTURE = """[1/2] nvcc -c cuda.cu -o cuda.o
nvcc fatal   : Unsupported gpu architecture 'compute_10'
"""
UNDEFINED = """[2/2] c++ main.o -shared -o x.so
/usr/bin/ld: /tmp/cc6w3GMv.o: in function `main':
link.cpp:(.text+0x5): undefined reference to `foo()'
collect2: error: ld returned 1 exit status
"""
TWICE = """[2/2] c++ main.o cuda.o -shared -o x.so
/usr/bin/ld: /tmp/ccUVfl1b.o: in function `foo()':
f.cpp:(.text+0x0): multiple definition of `foo()'; /tmp/ccpSAsmt.o:f.cpp:(.text+0x0): first defined here
collect2: error: ld returned 1 exit status
"""
NO_LIBRARY = """[2/2] c++ main.o -shared -lnowhere -o x.so
/usr/bin/ld: cannot find -lnowhere: No such file or directory
collect2: error: ld returned 1 exit status
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GXX, "main.cpp:2:25: ‘y’ was not declared in this scope"),
        (LOAD_INLINE, "main.cpp:2:25: ‘y’ was not declared in this scope"),
        (WARNED_FIRST, "w.cpp:1:40: ‘undefined_one’ was not declared in this scope"),
        (TEMPLATE, "t.cpp:1:44: ‘int’ is not a class, struct, or union type"),
        (HEADER, "t2.h:1:9: ‘z’ was not declared in this scope"),
        (FATAL, "c.cu:1:10: nowhere.h: No such file or directory"),
        (NVCC_LINE, 'cuda.cu(12): identifier "nothing" is undefined'),
        (NVCC, 'cuda.cu(12): identifier "nothing" is undefined'),
    ],
)
def test_the_compilers_first_error_is_named_with_file_and_line(text: str, words: str) -> None:
    assert first_error(text) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (PTXAS, "uses too much shared data (0x3a980 bytes, 0xc000 max)"),
        (PTX_LINE, "Not a name of any known instruction: 'bogus'"),
        (ARCHITECTURE, "Unsupported gpu architecture 'compute_10'"),
    ],
)
def test_the_assemblers_and_the_drivers_errors_are_named(text: str, words: str) -> None:
    assert words in first_error(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (UNDEFINED, "undefined reference to `foo()'"),
        (TWICE, "multiple definition of `foo()'"),
        (NO_LIBRARY, "cannot find -lnowhere"),
    ],
)
def test_the_linkers_reason_is_named(text: str, words: str) -> None:
    assert words in first_error(text)


@pytest.mark.parametrize(
    ("text", "words"), [("what happened?\nmore", "what happened?"), ("", "no message"), ("\n\n x\n", "x")]
)
def test_without_a_known_form_the_first_line_stands_for_it(text: str, words: str) -> None:
    assert first_error(text) == words


@pytest.mark.parametrize(
    ("text", "failed"),
    [
        (LOAD_INLINE, True),
        ("Ninja is required to load C++ extensions", True),
        ("Error compiling objects for extension", True),
        ("ninja: error: loading 'build.ninja'", True),
        ("mat1 and mat2 shapes cannot be multiplied", False),
    ],
)
def test_a_failed_build_is_told_from_other_exceptions(text: str, failed: bool) -> None:
    assert is_build_failure(text) is failed
