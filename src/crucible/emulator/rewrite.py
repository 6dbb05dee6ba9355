"""CUDA C++ to the C++ that g++ compiles against our headers: token by token, line numbers kept."""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass, field

from crucible.emulator import ptx
from crucible.emulator.faults import NotCovered
from crucible.emulator.kernel_texts import KernelText, find_kernels
from crucible.emulator.launches import call_launches
from crucible.emulator.shared import refer_to_shared
from crucible.emulator.tokens import Token, closing, following, positions, preceding, put, tokenize, words

_PLAIN = {
    "is_cuda": "is_cpu",
    "kCUDA": "kCPU",
    "NULL": "nullptr",
    "__noinline__": "__attribute__((noinline))",
    **{name: f"crucible_{name}" for name in ("memcpy", "memmove", "memset")},
}
_NOT_COVERED = re.compile(
    r"cudaLaunchKernelEx\w*|cudaGraph\w*|cudaTextureObject_t|tex[123]D\w*|surf[123]D\w*|cublas[LX]t\w*|cudnn\w+|cufft\w+|"
    r"cusparse\w+|cutlass|cute|__nv_fp6\w*|__nv_fp4\w*|CUtensorMap|thrust|nvshmem\w*|cudaImport\w*|cudaIpc\w*|"
    r"cluster_group|this_cluster|pipeline_shared_state|nvcuda_tma|__cluster_dims__|cuLaunchKernel\w*|cuModule\w*|nvrtc\w*|cudaArray_t"
)
_HEADERS_NOT_COVERED = re.compile(
    r"#\s*include\s*[<\"]((?:cublas(?!_v2\.h|_api\.h)|cudnn|cufft|cusparse|cusolver|curand(?!_kernel\.h)|cutlass|cute|thrust|nccl|nvtx|cuda_fp6|cuda_fp4|"
    r"cudaTypedefs|cuda/(?!atomic|std/|barrier|pipeline|functional)|ATen/native|ATen/cudnn|cuda_texture)[^>\"]*)"
)


@dataclass
class Rewritten:
    """What came of a source."""

    text: str
    kernels: tuple[KernelText, ...]
    globals: tuple[str, ...] = field(default=())
    """Names of `__device__` and `__constant__` arrays."""


def rewrite(text: str, anchor: str = "crucible_anchor") -> Rewritten:
    """C++ for our headers, from CUDA C++; the same number of lines.

    `anchor` names a variable of the compiled file. Raises NotCovered for what the emulator does not know.
    """
    found = _HEADERS_NOT_COVERED.search(re.sub(r"//[^\n]*", "", text))
    if found:
        raise NotCovered(f"header {found[1]}, line {text.count(chr(10), 0, found.start()) + 1}")
    tokens = tokenize(text)
    _refuse_uncovered(tokens)
    kernels = find_kernels(tokens)
    globals_ = _global_arrays(tokens)
    in_function, shadowed = _scopes(tokens)
    _identities(tokens, shadowed)
    _plain_names(tokens)
    refer_to_shared(tokens, in_function)
    _aligned_structs(tokens)
    _assembly(tokens)
    call_launches(tokens, kernels, anchor)
    return Rewritten("".join(token.text for token in tokens), tuple(kernels), globals_)


def _refuse_uncovered(tokens: list[Token]) -> None:
    for token in tokens:
        if token.kind == "name" and _NOT_COVERED.fullmatch(token.text):
            raise NotCovered(f"{token.text}, line {token.line}")


def _global_arrays(tokens: list[Token]) -> tuple[str, ...]:
    names = []
    for i, token in enumerate(tokens):
        if token.text not in ("__constant__", "__device__"):
            continue
        j = following(tokens, i)
        while j < len(tokens) and tokens[j].text not in ("(", ";", "=", "{", "["):
            j = following(tokens, j)
        if j < len(tokens) and tokens[j].text == "[":
            names.append(tokens[preceding(tokens, j)].text)
    return tuple(names)


def _scopes(tokens: list[Token]) -> tuple[list[bool], list[Set[str]]]:
    """For each token: whether it is inside a function's braces, and which of blockDim, gridDim a local hides."""
    in_function = [False] * len(tokens)
    shadowed: list[Set[str]] = [frozenset()] * len(tokens)
    stack: list[bool] = []
    inside = 0  # braces around us that are no namespace's
    start = 0
    function_start = 0
    for i, token in enumerate(tokens):
        mark = token.text if token.kind == "mark" else ""
        if mark == "{":
            stack.append(_is_namespace(tokens, i))
            inside += not stack[-1]
            if not stack[-1] and inside == 1:
                function_start = start
        in_function[i] = inside > 0
        if mark == "}" and stack:
            was_inside = inside > 0
            inside -= not stack.pop()
            if was_inside and not inside:
                shadowed[function_start : i + 1] = [_hidden(tokens, function_start, i)] * (i + 1 - function_start)
        if not inside and mark in (";", "}", "{"):
            start = i + 1
    return in_function, shadowed


def _is_namespace(tokens: list[Token], at: int) -> bool:
    i = preceding(tokens, at)
    while i >= 0 and (tokens[i].kind == "name" or tokens[i].text == "::") and tokens[i].text != "namespace":
        i = preceding(tokens, i)
    if i >= 0 and tokens[i].text == '"C"':
        return True
    return i >= 0 and tokens[i].text == "namespace"


def _hidden(tokens: list[Token], start: int, end: int) -> set[str]:
    hidden = set()
    for i in range(start, end):
        if tokens[i].text in ("blockDim", "gridDim"):
            before, after = tokens[preceding(tokens, i)].text, tokens[following(tokens, i)].text
            if before in ("dim3", "auto", "uint3", "&") or (before == "," and after in ("(", "{")):
                hidden.add(tokens[i].text)
    return hidden


def _identities(tokens: list[Token], shadowed: list[Set[str]]) -> None:
    """`threadIdx.x` and its like; not `blockDim.x` where a local `dim3 blockDim` is meant."""
    for i, token in enumerate(tokens):
        if token.text not in ("threadIdx", "blockIdx", "blockDim", "gridDim") or token.text in shadowed[i]:
            continue
        dot = following(tokens, i)
        member = following(tokens, dot)
        if member >= len(tokens) or tokens[dot].text != "." or tokens[member].text not in ("x", "y", "z"):
            continue
        if tokens[preceding(tokens, i)].text in (".", "->"):
            continue
        token.text = f"CRUCIBLE_ID({token.text}, {tokens[member].text})"
        tokens[dot].text = tokens[member].text = ""


def _plain_names(tokens: list[Token]) -> None:
    for i, token in enumerate(tokens):
        if token.kind == "name" and token.text in _PLAIN:
            token.text = _PLAIN[token.text]
        elif token.text == "CUDA" and tokens[preceding(tokens, i)].text == "::":
            token.text = "CPU"
        elif token.kind == "string" and re.fullmatch(r'"cuda(:\d+)?"', token.text):
            token.text = '"cpu"'
    for at in positions(tokens, "TORCH_LIBRARY_IMPL"):
        for i in range(at, min(len(tokens), closing(tokens, following(tokens, at)))):
            if tokens[i].text == "CUDA":
                tokens[i].text = "CPU"


def _aligned_structs(tokens: list[Token]) -> None:
    """`struct __align__(16) Pack { ... };` gets the member by which clang looks at the alignment of its copies."""
    for at in list(positions(tokens, "struct")):
        align = following(tokens, at)
        if align >= len(tokens) or tokens[align].text not in ("__align__", "alignas"):
            continue
        opening = following(tokens, align)
        end = closing(tokens, opening)
        name = following(tokens, end)
        brace = following(tokens, name)
        if brace < len(tokens) and tokens[name].kind == "name" and tokens[brace].text == "{":
            number = words(tokens[opening + 1 : end])
            tokens[closing(tokens, brace)].text = f"CRUCIBLE_WATCH({tokens[name].text}, {number})}}"


def _assembly(tokens: list[Token]) -> None:
    """Inline PTX, by its meaning."""
    for at in range(len(tokens)):
        if tokens[at].text not in ("asm", "__asm__", "__asm") or tokens[at].kind != "name":
            continue
        opening = following(tokens, at)
        while opening < len(tokens) and tokens[opening].text in ("volatile", "__volatile__", "inline", "goto"):
            opening = following(tokens, opening)
        if opening >= len(tokens) or tokens[opening].text != "(":
            continue
        end = closing(tokens, opening)
        statement = tokens[at : end + 1]
        put(ptx.translate(tokens[opening + 1 : end], tokens[at].line), statement)
