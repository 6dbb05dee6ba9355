"""What PyTorch's own build would refuse, and compilers' words as PyTorch's users know them. Text alone."""

from __future__ import annotations

import re

from crucible.emulator import toolchain
from crucible.emulator.faults import NotCovered
from crucible.emulator.tokens import tokenize

_OF_CUDA = re.compile(
    r"(?!__(?:shfl|shfl_up|shfl_down|shfl_xor|any|all|ballot)$)"  # gone since sm_70: nvcc refuses them
    r"(?:cuda[A-Z]\w*|cu[A-Z]\w*|(?:cublas|cudnn|cufft|curand|cusolver|cusparse|__)\w+)"
)
"""Names as CUDA and its libraries have them; whether nvcc knows such a one is not known here."""
_CLANGS_WORDS = (
    (r"use of undeclared identifier '(\w+)'", r"‘\1’ was not declared in this scope"),
    (r"unknown type name '(\w+)'", r"‘\1’ does not name a type"),
    (r"no (?:\w+ )+named '(\w+)' in namespace '([\w:]+)'", r"‘\1’ is not a member of ‘\2’"),
    (r"fatal error: '([^']+)' file not found", r"fatal error: \1: No such file or directory"),
)


def refuse(name: str, cpp: str, cuda: str, functions: list[str] | None) -> None:
    """What PyTorch's own build of `main.cpp` and `cuda.cu` would not get past. Raises RuntimeError in its words."""
    if functions is None:
        return
    tokens = tokenize(cpp)
    names = {token.text for token in tokens if token.kind == "name"}
    launch = next((token for token in tokens if token.text == "<<<"), None)
    if launch is not None:
        words = "error: expected primary-expression before ‘<’ token (g++ compiles cpp_sources, and knows no launches)"
        raise in_pytorchs_words(name, f"main.cpp:{launch.line}:1: {words}\n")
    for function in functions:
        if function not in names:
            line = cpp.count("\n") + 4
            raise in_pytorchs_words(name, f"main.cpp:{line}:1: error: ‘{function}’ was not declared in this scope\n")
    if "PYBIND11_MODULE" in names:
        raise in_pytorchs_words(name, f"main.cpp:1:1: error: redefinition of ‘PyObject* PyInit_{name}()’\n")
    if "PYBIND11_MODULE" in cuda and any(token.text == "PYBIND11_MODULE" for token in tokenize(cuda)):
        words = f"cuda.cuda.o: multiple definition of `PyInit_{name}'; main.o: first defined here\n"
        raise in_pytorchs_words(name, f"{words}collect2: error: ld returned 1 exit status\n")


def in_pytorchs_words(name: str, output: str) -> RuntimeError:
    """A compiler's output as PyTorch's error. Raises NotCovered where it is about what the emulator does not know."""
    output = _in_gccs_words(output)
    header = re.search(r"fatal error: (\S+): No such file", output)
    if header and re.match(r"(cu|ATen|c10|torch|nv|thrust|mma|sm_)", header[1]):
        raise NotCovered(f"header {header[1]}")
    unknown = re.search(
        r"‘(\w+)’ is not a member of ‘((?:cub|cooperative_groups|nvcuda|at::cuda|c10::cuda)\b[^’]*)’", output
    )
    if unknown and not _is_in_a_header(unknown[1]):
        raise NotCovered(f"{unknown[2]}::{unknown[1]}")
    unknown_name = _unknown_name(output)
    if unknown_name and not _is_in_a_header(unknown_name.partition(",")[0].rpartition(":")[2]):
        raise NotCovered(unknown_name)
    return RuntimeError(f"Error building extension '{name}': {output}")


def _is_in_a_header(name: str) -> bool:
    """Whether it is covered by a header that the source does not include."""
    word = re.compile(rf"\b{re.escape(name)}\b")
    return any(word.search(header.read_text()) for header in (toolchain.HEADERS / "crucible").glob("*.h"))


def _in_gccs_words(output: str) -> str:
    """What clang says of names, as g++ says it, which is the compiler that PyTorch calls."""
    for words, ours in _CLANGS_WORDS:
        output = re.sub(words, ours, output)
    return output


def _unknown_name(output: str) -> str:
    """A name of PyTorch's or CUDA's that the first error is about, with its line; empty when it is about another."""
    first = re.search(r":(\d+):\d+: error: (.*)", output)
    if not first:
        return ""
    member = re.match(r"‘(\w+)’ is not a member of ‘((?:torch|at|c10)(?:::\w+)*)’", first[2])
    space = re.match(r"‘((?:torch|at|c10)(?:::\w+)*)::(\w+)’ has not been declared", first[2])
    found = (member[2], member[1]) if member else (space[1], space[2]) if space else None
    if found and toolchain.is_in_pytorchs_headers(found[1]):
        return f"{found[0]}::{found[1]}, line {first[1]}"
    cuda = re.match(r"‘(\w+)’ (?:was not declared in this scope|does not name a type)", first[2])
    return f"{cuda[1]}, line {first[1]}" if cuda and _OF_CUDA.fullmatch(cuda[1]) else ""
