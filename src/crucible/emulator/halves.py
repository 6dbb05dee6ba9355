"""A CUDA source as two: what nvcc must compile, and what a C++ compiler may.

nvcc reads PyTorch's headers three times over (cudafe++, cicc, the host's compiler, one after another: 32 s for a unit
of 70 lines), kernels need none of them (5 s), and host functions need a C++ compiler alone, which works meanwhile.

The halves are taken only where they mean what the whole means. Host functions launch by the very expression that nvcc
would put there, and each kernel's address is the one that nvcc gives it, so linking the two gives the unit. What could
make a difference is refused here by its form (`None`), or not accepted by one of the compilers or by `unmet`; the whole
is compiled then, as ever.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass

from crucible.emulator import device_code
from crucible.emulator.kernel_texts import find_kernels, plain
from crucible.emulator.launches import config_end, launched_name
from crucible.emulator.tokens import Token, closing, following, lines, positions, preceding, tokenize, words

_TORCH_HEADERS = re.compile(
    r"torch/(extension|types|torch|all)\.h|ATen/(ATen|Tensor|Functions|Dispatch)\.h"
    r"|ATen/cuda/(CUDAContext|CUDAContextLight|Exceptions)\.h|c10/(cuda/(CUDA\w+)|util/\w+|core/\w+|macros/\w+)\.h"
)
"""They put nothing into the global namespace that a kernel could mean without naming PyTorch."""
_TORCH_INCLUDE = re.compile(r"#\s*include\s*[<\"](torch|ATen|c10)/")
_ALL_OF_TORCH = re.compile(r"(#\s*include\s*[<\"])torch/(?:extension|torch|all)\.h")
_CUDA_HEADERS = {"cuda.h", "cuda_runtime.h", "cuda_runtime_api.h", "device_launch_parameters.h", "math_constants.h",
                 "cuda_fp16.h", "cuda_bf16.h", "vector_types.h"}  # fmt: skip
_DEVICE_HEADER = re.compile(
    r"cooperative_groups(/\w+)?\.h|cub/(block|warp)/\w+\.cuh|mma\.h|cuda_pipeline(_primitives)?\.h"
)
"""The host's half does without: a function of its that names something of theirs does not compile there."""
_STANDARD_HEADER = re.compile(r"[a-z_]+|(math|stdint|stdio|stdlib|string|float|limits|assert|stddef)\.h")
_BOTH_WAYS = {"__CUDACC__", "__NVCC__", "__CUDA_ARCH__", "__CUDA_ARCH_LIST__", "__managed__", "__has_include"}
"""What is one thing for nvcc and another for a C++ compiler."""
_CONDITIONS = {"if", "ifdef", "ifndef", "elif", "else", "endif", "line", "error"}
_TORCH_NAMES = {"torch", "at", "c10", "pybind11", "py"}
_MARKERS = {"__device__", "__constant__", "__shared__", "__grid_constant__"}
_DEVICE_SPACES = {"cooperative_groups", "cub", "nvcuda"}
_NO_VARIABLE = {"__global__", "__device__", "__constant__", "constexpr", "using", "typedef", "struct", "class", "union",
                "enum", "static_assert", "concept", "namespace"}  # fmt: skip
_DECLARED = """\
#include <math.h>
#include <stdlib.h>
#include <cuda_runtime.h>
extern "C" unsigned __cudaPushCallConfiguration(dim3, dim3 = 1, size_t = 0, CUstream_st* = nullptr);
"""
"""As nvcc declares it; the C headers bring `sqrt(float)` and its like, which nvcc has without them."""
_DEVICE_NEEDS = "algorithm array cassert cfloat climits cmath cstdint cstdio cstdlib cstring functional limits tuple type_traits utility vector"  # noqa: E501 - one list
_DISPATCHED = {"scalar_t": ("float", "double")}
"""What PyTorch's dispatch macros put in place of a name, as far as kernels can be compiled for it without PyTorch."""


@dataclass(frozen=True)
class Halves:
    """The two texts, line by line as the source was."""

    device: str
    """For nvcc."""
    host: str
    """For a C++ compiler."""
    kernels: frozenset[str]
    """Names of those that the host's half launches."""
    templates: bool
    """Whether any is a template, whose instances nvcc must be told to keep for others."""


def halves(text: str, file: str = "cuda.cu") -> Halves | None:
    """A unit of kernels and host functions in two; None where that could mean something else, or there is nothing of
    PyTorch's in it. `file` is what the source calls itself, in its own `__FILE__` for one."""
    tokens = tokenize(text)
    names = {token.text for token in tokens if token.kind == "name"}
    if names & _BOTH_WAYS or not _plain_directives(tokens) or _is_extended(tokens):
        return None
    kernels = find_kernels(tokens)
    by_name = {kernel.name: kernel for kernel in kernels}
    if not _TORCH_INCLUDE.search(text) or not kernels or len(by_name) != len(kernels):
        return None
    host, dropped_there = _host_half(text)
    kept, dropped_here = _device_half(text)
    launched = _launched(tokens)
    unknown = [name for name in launched if plain(name) not in by_name]
    instances = _instances([name for name in launched if "<" in name])
    if host is None or kept is None or unknown or instances is None:
        return None
    if dropped_there & _names(host) - set(by_name) or (dropped_here - set(by_name)) & _names(kept):
        return None  # one half would find another meaning for a name that the other has
    deduced = [name for name in launched if "<" not in name and by_name[name.split("::")[-1]].template >= 0]
    if deduced:
        return None
    return Halves(
        _device_text(kept, instances, file),
        _host_text(host, file),
        frozenset(by_name),
        any(kernel.template >= 0 for kernel in kernels),
    )


def unmet(halves: Halves, wanted: Iterable[str], defined: Iterable[str], demangled: dict[str, str]) -> list[str]:
    """Kernels that the host's object asks for and the device's does not have: a template's other instances, kernels
    that no other file can see. `wanted` and `defined` are symbols; `demangled` says what they are in the source."""
    missing = set(wanted) - set(defined)
    return sorted(symbol for symbol in missing if plain_name(demangled.get(symbol, symbol)) in halves.kernels)


def plain_name(signature: str) -> str:
    """`tk` of `void ns::tk<float, 4>(float*)`."""
    text = signature.replace("(anonymous namespace)::", "").replace("{anonymous}::", "")
    text = text.removeprefix("void ")
    return re.split(r"[<(]", text, maxsplit=1)[0].split("::")[-1].strip()


def _plain_directives(tokens: list[Token]) -> bool:
    """Whether the preprocessor includes what is known and decides nothing."""
    for at in positions(tokens, "#"):
        name = following(tokens, at)
        if name >= len(tokens) or tokens[name].text in _CONDITIONS:
            return False
        if tokens[name].text == "include" and not _is_known(_included(_line(tokens, at))):
            return False
    return True


def _line(tokens: list[Token], at: int) -> list[Token]:
    return tokens[at : device_code.line_end(tokens, at)]


def _included(line: list[Token]) -> str:
    """The header that a line includes; nothing where a macro says which."""
    found = re.fullmatch(r"#\s*include\s*[<\"]([^>\"]+)[>\"]\s*", "".join(t.text for t in line if t.kind != "comment"))
    return found[1] if found else ""


def _is_known(header: str) -> bool:
    patterns = (_TORCH_HEADERS, _DEVICE_HEADER, _STANDARD_HEADER)
    return bool(header) and (header in _CUDA_HEADERS or any(pattern.fullmatch(header) for pattern in patterns))


def _is_extended(tokens: list[Token]) -> bool:
    """Whether there is a lambda of the device's, which host functions make."""
    real = [token.text for token in tokens if token.matters]
    return any(a in ("]", ")") and b == "__device__" for a, b in itertools.pairwise(real))


def _launched(tokens: list[Token]) -> list[str]:
    found = []
    for at in positions(tokens, "<<<"):
        start, end = launched_name(tokens, at)
        found.append(words(tokens[start : end + 1]))
    return list(dict.fromkeys(found))


def _instances(launched: list[str]) -> list[str] | None:
    """Each instance of a template that is launched by its arguments; None where they are not to be told from here."""
    found: list[str] = []
    for name in launched:
        mentioned = [each for each in _DISPATCHED if re.search(rf"\b{each}\b", name)]
        if re.search(rf"\b({'|'.join(_TORCH_NAMES)})\s*::", name) or len(mentioned) > 1:
            return None
        if mentioned:
            found += [re.sub(rf"\b{mentioned[0]}\b", type_, name) for type_ in _DISPATCHED[mentioned[0]]]
        else:
            found.append(name)
    return list(dict.fromkeys(found))


def _names(text: str) -> set[str]:
    return {token.text for token in tokenize(text) if token.kind == "name"}


def _device_half(text: str) -> tuple[str | None, set[str]]:
    """The source without host functions, and their names; None where what is left names PyTorch."""
    tokens = tokenize(text)
    dropped = {name for part in device_code.drop_host_code(tokens) for name in _declared(part)}
    kept = "".join(token.text for token in tokens)
    tokens = tokenize(kept)
    if any(a.text in _TORCH_NAMES and b.text == "::" for a, b in _pairs(tokens)):
        return None, dropped
    if not all(_may_be_twice(tokens[at:end]) for at, end in device_code.declarations(tokens)):
        return None, dropped
    return kept, dropped


def _may_be_twice(part: list[Token]) -> bool:
    """Whether a declaration does nothing when the extension is loaded, so that both halves may have it."""
    head = device_code.head_of(part)
    return bool(head & _NO_VARIABLE or not head or ("const" in head and "(" not in head))


def _pairs(tokens: list[Token]) -> Iterable[tuple[Token, Token]]:
    real = [token for token in tokens if token.matters]
    return itertools.pairwise(real)


def _host_half(text: str) -> tuple[str | None, set[str]]:
    """The source with kernels declared, functions and variables of the device's left out, and launches as nvcc writes
    them; with the names that were left out."""
    tokens = tokenize(text)
    dropped: set[str] = set()
    for at, end in device_code.declarations(tokens):
        part = tokens[at:end]
        head = device_code.head_of(part)
        if "__global__" in head:
            _declare(part)
        elif head & {"namespace", "using"} and head & _DEVICE_SPACES:
            device_code.empty(part)
        elif head & _MARKERS and "__host__" not in head:
            dropped |= _declared(part)
            device_code.empty(part)
    for at in positions(tokens, "include"):
        line = _line(tokens, preceding(tokens, at))
        if _DEVICE_HEADER.fullmatch(_included(line)):
            device_code.empty(line)
    if not _call_launches(tokens):
        return None, dropped
    return "".join(token.text for token in tokens), dropped


def _declare(part: list[Token]) -> None:
    """A kernel's declaration in place of its definition."""
    body = next((i for i, token in enumerate(part) if token.text == "{" and _is_body(part, i)), -1)
    if body < 0:
        return
    device_code.empty(part[body:])
    part[body].text = ";" + part[body].text


def _is_body(part: list[Token], at: int) -> bool:
    depth = sum((token.text == "(") - (token.text == ")") for token in part[:at] if token.kind == "mark")
    return depth == 0


def _declared(part: list[Token]) -> set[str]:
    """Names that a declaration may declare."""
    found: set[str] = set()
    name = ""
    first = next((i for i, token in enumerate(part) if token.matters), len(part))
    templates = first < len(part) and part[first].text == "template"
    for token in part[device_code.template_end(part, following(part, first)) if templates else 0 :]:
        if token.text in ("(", "[", "=", ";", "{", ","):
            found |= {name} if name else set()
            if token.text in ("(", "{"):
                break
        elif token.kind == "name":
            name = token.text
    return found - {"__attribute__", "__align__", "__launch_bounds__", "alignas"}


def _call_launches(tokens: list[Token]) -> bool:
    """`(__cudaPushCallConfiguration(grid, block)) ? (void)0 : kernel(a, b)`, which is what nvcc makes of a launch."""
    for at in list(positions(tokens, "<<<")):
        start, _ = launched_name(tokens, at)
        end = config_end(tokens, at)
        opening = following(tokens, end)
        if start < 0 or opening >= len(tokens) or tokens[opening].text != "(":
            return False
        close = closing(tokens, opening)
        if close >= len(tokens):
            return False
        config = "".join(token.text for token in tokens[at + 1 : end - 2])
        callee = "".join(token.text for token in tokens[start:at])
        for token in tokens[start:opening]:
            token.text = lines([token]) if token not in tokens[at + 1 : end - 2] else ""
        tokens[start].text = f"((__cudaPushCallConfiguration({config})) ? (void)0 : {callee}"
        tokens[close].text += ")"
    return True


def _device_text(kept: str, instances: list[str], file: str) -> str:
    includes = "".join(f"#include <{name}>\n" for name in ["cuda.h", "cuda_runtime.h", *_DEVICE_NEEDS.split()])
    ends = "".join(f"template __global__ decltype({name}) {name};\n" for name in instances)
    return f'{includes}#line 1 "{file}"\n{kept}\n{ends}'


def _host_text(host: str, file: str) -> str:
    """With the header first that may be precompiled, and in place of those that bring it with the Python binding and
    `torch::nn`: g++ takes 9 s to read those, and 8 more to compile what they hold. Who needs them is built whole."""
    text = _ALL_OF_TORCH.sub(r"\1torch/types.h", host)
    first = "#include <torch/types.h>\n" if "torch/types.h" in text else ""
    return f'{first}{_DECLARED}#line 1 "{file}"\n{text}'
