"""Of a CUDA source, what nvcc needs to compile its kernels: without host functions, and so without PyTorch's headers.

A whole unit takes nvcc 20 to 35 s of processor time, most of it for those headers; what is left here takes 0.5 to 1 s.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from crucible.emulator.tokens import Token, closing, following, lines, positions, preceding, tokenize

_TORCH_SPACES = {"torch", "at", "c10", "pybind11", "py"}
_TORCH_MACROS = {"PYBIND11_MODULE", "TORCH_LIBRARY", "TORCH_LIBRARY_IMPL"}
_DEVICE = {"__global__", "__device__", "constexpr", "consteval"}
_TYPE = {"struct", "class", "union", "enum"}
_TORCH_HEADER = re.compile(r"#\s*include\s*[<\"](torch|ATen|c10|caffe2|pybind11|THC|Python\.h)")
# What a device function may use of PyTorch, by the cheapest header that has it (0.1 to 1.6 s of processor time each).
_HEADER_OF = {
    r"C10_\w+": "c10/macros/Macros.h",
    r"(?:at|c10|torch)::Half": "c10/util/Half.h",
    r"(?:at|c10|torch)::BFloat16": "c10/util/BFloat16.h",
    r"\w*TensorAccessor\d*|RestrictPtrTraits": "ATen/core/TensorAccessor.h",
    r"opmath_type|OpMathType": "ATen/OpMathType.h",
    r"acc_type\w*": "ATen/AccumulateType.h",
    r"CUDA_KERNEL_LOOP\w*": "ATen/cuda/detail/KernelUtils.h",
    r"gpuAtomic\w+|fastAtomicAdd": "ATen/cuda/Atomic.cuh",
}
# PyTorch's headers bring these along, and kernels rely on it.
_STANDARD = (
    "algorithm array cassert cfloat climits cmath cstdint cstdio functional limits tuple type_traits utility vector"
)
_PROLOGUE = "".join(f"#include <{name}>\n" for name in ["cuda.h", "cuda_runtime.h", *_STANDARD.split()])
_NAMESPACES = "namespace c10 {} namespace at { using namespace c10; } namespace torch { using namespace at; }\n"


def device_code(text: str, instances: Iterable[str] = ()) -> str:
    """The source without its host functions, line by line as it was, ready for `nvcc -cubin`.

    `instances` are kernels of templates with their arguments, as `softmax<float, 256>`, that are to be compiled.
    """
    tokens = tokenize(text)
    drop_host_code(tokens)
    kept = "".join(token.text for token in tokens)
    wanted = "\n".join([kept, *instances])
    headers = [header for name, header in _HEADER_OF.items() if re.search(rf"\b(?:{name})\b", wanted)]
    includes = "".join(f"#include <{header}>\n" for header in headers)
    ends = "".join(f"template __global__ decltype({name}) {name};\n" for name in instances)
    return f'{_PROLOGUE}{includes}{_NAMESPACES}#line 1 "cuda.cu"\n{kept}\n#line 1 "crucible_instances"\n{ends}'


def drop_host_code(tokens: list[Token]) -> list[list[Token]]:
    """Empties the declarations that are the host's alone, and the lines that include PyTorch's headers; returns what
    those declarations were."""
    _, device_macros = _macros(tokens)
    dropped = []
    for at, end in declarations(tokens):
        if _is_the_hosts(tokens[at:end], device_macros):
            dropped.append([replace(token) for token in tokens[at:end]])
            _empty_but_directives(tokens, at, end)
    for at in positions(tokens, "#"):
        line = tokens[at : line_end(tokens, at)]
        if _TORCH_HEADER.match("".join(token.text for token in line)):
            empty(line)
    return dropped


def declarations(tokens: list[Token]) -> Iterator[tuple[int, int]]:
    """Where each declaration outside of functions and types begins and ends, those in namespaces too."""
    function_macros, _ = _macros(tokens)
    at = 0
    while at < len(tokens):
        if tokens[at].text == "#":
            at = line_end(tokens, at)
        elif not tokens[at].matters or tokens[at].text in (";", "}"):
            at += 1
        elif (scope := _opened_scope(tokens, at)) >= 0:
            at = scope + 1
        else:
            end = _declaration_end(tokens, at, function_macros)
            yield at, end
            at = end


def _macros(tokens: list[Token]) -> tuple[set[str], set[str]]:
    """Names of macros with parameters, and of those whose text makes a function the device's."""
    with_parameters, of_device = set(), set()
    for define in positions(tokens, "define"):
        name, end = following(tokens, define), line_end(tokens, define)
        if name < end and tokens[preceding(tokens, define)].text == "#":
            if name + 1 < end and tokens[name + 1].text == "(":
                with_parameters.add(tokens[name].text)
            if any(token.text in _DEVICE for token in tokens[name:end]):
                of_device.add(tokens[name].text)
    return with_parameters, of_device


def line_end(tokens: list[Token], at: int) -> int:
    """Index behind a preprocessor line, continuations included."""
    while at < len(tokens) and not (
        tokens[at].kind == "space" and "\n" in tokens[at].text and "\\" not in tokens[at].text
    ):
        at += 1
    return at


def _opened_scope(tokens: list[Token], at: int) -> int:
    """Index of the `{` of a namespace or `extern "C"` that begins at `at`, -1 for anything else."""
    i = following(tokens, at) if tokens[at].text == "inline" else at
    if i >= len(tokens) or tokens[i].text not in ("namespace", "extern"):
        return -1
    i = following(tokens, i)
    while i < len(tokens) and (tokens[i].kind == "name" or tokens[i].text in ("::", '"C"', '"C++"')):
        i = following(tokens, i)
    return i if i < len(tokens) and tokens[i].text == "{" else -1


def _declaration_end(tokens: list[Token], at: int, function_macros: set[str]) -> int:
    """Index behind the declaration that begins at `at`: behind its `;`, or a function's `}`."""
    i, called, is_value = at, False, False
    while i < len(tokens):
        text = tokens[i].text
        if text == ";":
            return i + 1
        if text == "}":
            return i
        if text == "#" and i != at:
            i = line_end(tokens, i)
            continue
        if text == "{":
            end = closing(tokens, i)
            if called and not is_value:
                return end + 1
            i = end
        elif text == "(":
            end = closing(tokens, i)
            if i == following(tokens, at) and tokens[at].text in function_macros:
                after = following(tokens, end)
                return end + 1 if after >= len(tokens) or tokens[after].text not in (";", "{") else after + 1
            called = called or not is_value
            i = end
        elif text == "=":
            is_value = True
        i = following(tokens, i)
    return i


def _is_the_hosts(declaration: list[Token], device_macros: set[str]) -> bool:
    head = head_of(declaration)
    if head & (_DEVICE | device_macros):
        return False
    if _names_torch(declaration):
        return not (head & _TYPE and any(token.text == "__device__" for token in declaration))
    is_function = "(" in head and "=" not in head and any(token.text == "{" for token in declaration)
    return is_function and not head & _TYPE


def _names_torch(declaration: list[Token]) -> bool:
    for i, token in enumerate(declaration):
        after = following(declaration, i)
        is_space = token.text in _TORCH_SPACES and after < len(declaration) and declaration[after].text in ("::", ";")
        if token.kind == "name" and (is_space or token.text in _TORCH_MACROS):
            return True
    return False


def head_of(declaration: list[Token]) -> set[str]:
    """What stands before the first `{`, template parameters left out."""
    head, i = set(), 0
    while i < len(declaration) and declaration[i].text != "{":
        if declaration[i].text == "template":
            i = template_end(declaration, following(declaration, i))
        elif declaration[i].text == "(":
            head.add("(")
            i = closing(declaration, i)
        elif declaration[i].matters:
            head.add(declaration[i].text)
        i += 1
    return head


def template_end(tokens: list[Token], at: int) -> int:
    depth = 0
    for i in range(at, len(tokens)):
        depth += (tokens[i].text == "<") - (tokens[i].text == ">")
        if depth == 0:
            return i
    return len(tokens)


def _empty_but_directives(tokens: list[Token], at: int, end: int) -> None:
    """An `#endif` may belong to an `#if` further up, and a macro may be used further down."""
    while at < min(end, len(tokens)):
        if tokens[at].text == "#":
            at = line_end(tokens, at)
        else:
            empty(tokens[at : at + 1])
            at += 1


def empty(tokens: list[Token]) -> None:
    for token in tokens:
        token.text = lines([token])
