"""CUDA C++ to the C++ that g++ compiles against our headers: token by token, line numbers kept."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from crucible.emulator import ptx
from crucible.emulator.faults import NotCovered
from crucible.emulator.tokens import (
    Token,
    angle_closing,
    angle_opening,
    closing,
    following,
    lines,
    positions,
    preceding,
    split,
    tokenize,
    words,
)

_PLAIN = {
    "is_cuda": "is_cpu",
    "kCUDA": "kCPU",
    "NULL": "nullptr",
    "__noinline__": "__attribute__((noinline))",
    **{name: f"crucible_{name}" for name in ("memcpy", "memmove", "memset")},
}
_NOT_COVERED = re.compile(
    r"cudaLaunchKernelEx\w*|cudaGraph\w*|cudaTextureObject_t|tex[123]D\w*|surf[123]D\w*|curand\w*|cublas\w+|cudnn\w+|cufft\w+|"
    r"cusparse\w+|cutlass|cute|__nv_fp6\w*|__nv_fp4\w*|CUtensorMap|thrust|nvshmem\w*|cudaImport\w*|cudaIpc\w*|"
    r"cluster_group|this_cluster|pipeline_shared_state|nvcuda_tma|__cluster_dims__|cuLaunchKernel\w*|cuModule\w*|nvrtc\w*|cudaArray_t"
)
_HEADERS_NOT_COVERED = re.compile(
    r"#\s*include\s*[<\"]((?:cublas|cudnn|cufft|cusparse|cusolver|curand|cutlass|cute|thrust|nccl|nvtx|cuda_fp6|cuda_fp4|"
    r"cudaTypedefs|cuda/(?!atomic|std/|barrier|pipeline|functional)|ATen/native|ATen/cudnn|cuda_texture)[^>\"]*)"
)


@dataclass(frozen=True)
class KernelText:
    """A `__global__` function as its source shows it."""

    name: str
    line: int
    parameters: tuple[str, ...]
    template: int
    """Template parameters without a default; -1 when it is no template."""
    bounds: str
    """First argument of `__launch_bounds__`, empty without."""
    defined: bool
    barriers: tuple[int, ...] = ()
    """Lines of its own `__syncthreads` that some thread should reach: none inside `#if` or where a template decides."""


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
    kernels = _kernels(tokens)
    globals_ = _global_arrays(tokens)
    in_function, shadowed = _scopes(tokens)
    _identities(tokens, shadowed)
    _plain_names(tokens)
    _shared(tokens, in_function)
    _aligned_structs(tokens)
    _assembly(tokens)
    _cooperative_launches(tokens)
    _launches(tokens, {k.name: [o for o in kernels if o.name == k.name] for k in kernels}, anchor)
    return Rewritten("".join(token.text for token in tokens), tuple(kernels), globals_)


def _refuse_uncovered(tokens: list[Token]) -> None:
    for token in tokens:
        if token.kind == "name" and _NOT_COVERED.fullmatch(token.text):
            raise NotCovered(f"{token.text}, line {token.line}")


def _kernels(tokens: list[Token]) -> list[KernelText]:
    found = []
    for at in positions(tokens, "__global__"):
        bounds, i = "", following(tokens, at)
        opening = -1
        while i < len(tokens) and tokens[i].text not in (";", "{"):
            if tokens[i].text == "__launch_bounds__":
                end = closing(tokens, following(tokens, i))
                first = split(tokens[following(tokens, i) + 1 : end])
                bounds, i = words(first[0]) if first else "", following(tokens, end)
                continue
            if tokens[i].text in ("__attribute__", "__cluster_dims__"):
                i = following(tokens, closing(tokens, following(tokens, i)))
                continue
            if tokens[i].text == "(":
                opening = i
                break
            i = following(tokens, i)
        if opening < 0:
            continue
        end = closing(tokens, opening)
        name = tokens[preceding(tokens, opening)]
        after = following(tokens, end)
        defined = after < len(tokens) and tokens[after].text == "{"
        parameters = tuple(_parameter_name(part) for part in split(tokens[opening + 1 : end]))
        barriers = _barriers(tokens, at, after) if defined else ()
        template = _template_parameters(tokens, at)
        found.append(KernelText(name.text, name.line, parameters, template, bounds, defined, barriers))
    return found


def _barriers(tokens: list[Token], at: int, brace: int) -> tuple[int, ...]:
    """Lines of the barriers in a kernel's body; none where the preprocessor or a template's number has a say."""
    body = tokens[brace : closing(tokens, brace)]
    if any(token.text == "#" for token in body) or _has_numbers(tokens, at):
        return ()
    return tuple(dict.fromkeys(token.line for token in body if re.fullmatch(r"__syncthreads\w*", token.text)))


def _has_numbers(tokens: list[Token], at: int) -> bool:
    """Whether the kernel is a template of anything but types."""
    close = preceding(tokens, at)
    if close < 0 or tokens[close].text != ">":
        return False
    opening = angle_opening(tokens, close)
    parts = split(tokens[opening + 1 : close]) if opening >= 0 else []
    return any(words(part).split(" ")[0] not in ("typename", "class") for part in parts)


def _parameter_name(part: list[Token]) -> str:
    names = []
    for token in part:
        if token.text in ("[", "="):
            break
        if token.kind == "name":
            names.append(token.text)
    return names[-1] if len(names) > 1 else "?"


def _template_parameters(tokens: list[Token], at: int) -> int:
    i = preceding(tokens, at)
    while i >= 0 and tokens[i].text in ("static", "inline", "extern", '"C"', "__forceinline__"):
        i = preceding(tokens, i)
    if i < 0 or tokens[i].text != ">":
        return -1
    opening = angle_opening(tokens, i)
    if opening < 1 or tokens[preceding(tokens, opening)].text != "template":
        return -1
    parts = split(tokens[opening + 1 : i])
    return sum(not any(token.text == "=" for token in part) for part in parts)


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


def _scopes(tokens: list[Token]) -> tuple[list[bool], list[set[str]]]:
    """For each token: whether it is inside a function's braces, and which of blockDim, gridDim a local hides."""
    in_function = [False] * len(tokens)
    shadowed: list[set[str]] = [set() for _ in tokens]
    stack: list[bool] = []
    start = 0
    function_start = 0
    for i, token in enumerate(tokens):
        if token.kind == "mark" and token.text == "{":
            stack.append(_is_namespace(tokens, i))
            if not stack[-1] and sum(not outer for outer in stack) == 1:
                function_start = start
        in_function[i] = any(not outer for outer in stack)
        if token.kind == "mark" and token.text == "}" and stack:
            was_inside = any(not outer for outer in stack)
            stack.pop()
            if was_inside and not any(not outer for outer in stack):
                hidden = _hidden(tokens, function_start, i)
                for j in range(function_start, i + 1):
                    shadowed[j] = hidden
        if not any(not outer for outer in stack) and token.kind == "mark" and token.text in (";", "}", "{"):
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


def _identities(tokens: list[Token], shadowed: list[set[str]]) -> None:
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


def _shared(tokens: list[Token], in_function: list[bool]) -> None:
    """`__shared__ float a[32], b;` becomes references into the block's memory."""
    for at in list(positions(tokens, "__shared__")):
        if tokens[at].text != "__shared__":
            continue  # part of a declaration already done
        start = at
        while tokens[preceding(tokens, start)].text in ("extern", "static", "volatile"):
            start = preceding(tokens, start)
        end = at
        while end < len(tokens) and tokens[end].text != ";":
            end = closing(tokens, end) + 1 if tokens[end].text in ("(", "[", "{") else end + 1
        statement = tokens[start:end]
        kept, align = _without_specifiers(statement)
        parts = split(kept)
        if not parts:
            continue
        is_extern = any(token.text == "extern" for token in statement)
        type_, name, dims = _declarator(parts[0])
        text = _shared_text(type_, name, dims, align, is_extern, in_function[at])
        base = type_.rstrip("*& ")
        for part in parts[1:]:
            stars, name, dims = _declarator(part)
            text += "; " + _shared_text(f"{base} {stars}", name, dims, align, is_extern, in_function[at])
        breaks = lines(statement)
        for token in statement:
            token.text = ""
        statement[0].text = text + breaks


def _without_specifiers(statement: list[Token]) -> tuple[list[Token], str]:
    kept: list[Token] = []
    align, skip_to = "1", -1
    for i, token in enumerate(statement):
        if i <= skip_to or token.text in ("extern", "static", "__shared__"):
            continue
        if token.text in ("__align__", "alignas", "__attribute__", "__builtin_align__"):
            opening = following(statement, i)
            skip_to = closing(statement, opening)
            inside = words(statement[opening + 1 : skip_to])
            number = re.search(r"aligned\s*\((.*)\)\s*\)$", inside)
            align = number[1] if number else inside
            continue
        kept.append(token)
    return kept, align


def _declarator(part: list[Token]) -> tuple[str, str, str]:
    """Type, name and dimensions of `float* a[3]`."""
    depth, bracket, name = 0, len(part), -1
    for i, token in enumerate(part):
        if token.text in ("[", "=") and depth == 0:
            bracket = i
            break
        depth += token.text in ("<", "(", "{")
        depth -= token.text in (">", ")", "}")
        if token.kind == "name" and depth == 0:
            name = i
    return words(part[:name]), part[name].text, words(part[bracket:])


def _shared_text(type_: str, name: str, dims: str, align: str, is_extern: bool, in_function: bool) -> str:
    if is_extern:
        inner = re.sub(r"^\[\s*\]", "", dims).strip()
        if inner:
            start = f"typedef {type_} crucible_t_{name}{inner}; auto* {name} = "
            return f"{start}::crucible::dynamic_shared<crucible_t_{name}>({json.dumps(name)})"
        if not in_function:
            return f"static const ::crucible::DynamicShared<{type_}> {name}{{}}"
        return f"{type_}* {name} = ::crucible::dynamic_shared<{type_}>({json.dumps(name)})"
    label = json.dumps(f"{name}|{type_}")
    if not in_function:
        raise NotCovered(f"__shared__ variable {name} outside a function")
    return (
        f"static const char crucible_s_{name} = 0; typedef {type_} crucible_t_{name}{dims}; "
        f"crucible_t_{name}& {name} = "
        f"::crucible::shared<crucible_t_{name}>(&crucible_s_{name}, {label}, {align})"
    )


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
        text = ptx.translate(tokens[opening + 1 : end], tokens[at].line)
        breaks = lines(statement)
        for token in statement:
            token.text = ""
        statement[0].text = text + breaks


def _cooperative_launches(tokens: list[Token]) -> None:
    """`cudaLaunchKernel((void*)kernel<T>, ...)`: the cast would lose the parameters' types."""
    for name in ("cudaLaunchCooperativeKernel", "cudaLaunchKernel"):
        for at in positions(tokens, name):
            opening = following(tokens, at)
            if opening >= len(tokens) or tokens[opening].text != "(":
                continue
            first = split(tokens[opening + 1 : closing(tokens, opening)])[0]
            real = [token for token in first if token.matters]
            if real[0].text == "(" and "void" in [token.text for token in real[:4]]:
                for token in real[: [token.text for token in real].index(")") + 1]:
                    token.text = ""
            elif real[0].text in ("reinterpret_cast", "static_cast"):
                close = next(i for i, token in enumerate(real) if token.text == ">")
                for token in real[: close + 1]:
                    token.text = ""
            label = json.dumps(words(first))
            cooperative = str(name == "cudaLaunchCooperativeKernel").lower()
            tokens[at].text = "crucible_launch_kernel"
            tokens[opening].text = f"({label}, {tokens[at].line}, {cooperative}, "


def _launches(tokens: list[Token], kernels: dict[str, list[KernelText]], anchor: str) -> None:
    """`kernel<T><<<grid, block>>>(a, b)`."""
    for at in list(positions(tokens, "<<<")):
        start, name_end = _launched_name(tokens, at)
        config_end = _config_end(tokens, at)
        opening = following(tokens, config_end)
        if start < 0 or opening >= len(tokens) or tokens[opening].text != "(":
            continue
        name = tokens[start : name_end + 1]
        text = words(name)
        config = "".join(token.text for token in tokens[at + 1 : config_end - 2])
        known = kernels.get(_last_name(text), [])
        kernel = known[-1] if known else None
        address = _address(text, known)
        parameters = ",".join(kernel.parameters) if kernel else ""
        bounds = kernel.bounds if kernel and _is_number(kernel.bounds) else "0"
        record = f"{json.dumps(text)}, {json.dumps(parameters)}, {tokens[start].line}, {address}, &{anchor}, {bounds}"
        for i in range(start + 1, opening):
            tokens[i].text = "" if at < i < config_end - 1 else lines([tokens[i]])
        tokens[start].text = f"::crucible::Launcher{{::crucible::Config({config}), ::crucible::Kernel{{{record}}}, "
        tokens[start].text += f"[&](auto&... crucible_a) CRUCIBLE_PLAIN {{ {text}(crucible_a...); }}}}"


def _launched_name(tokens: list[Token], at: int) -> tuple[int, int]:
    """First and last token of what stands before `<<<`."""
    end = i = preceding(tokens, at)
    if i < 0:
        return -1, -1
    if tokens[i].text == ">":
        i = preceding(tokens, angle_opening(tokens, i))
    while i > 0 and tokens[preceding(tokens, i)].text == "::":
        i = preceding(tokens, i)
        if tokens[preceding(tokens, i)].kind == "name" and tokens[preceding(tokens, i)].text != "return":
            i = preceding(tokens, i)
    return i, end


def _config_end(tokens: list[Token], at: int) -> int:
    """Index of the last `>` of `>>>`."""
    depth, i = 0, at + 1
    while i + 2 < len(tokens):
        text = tokens[i].text
        depth += text in ("(", "[", "{")
        depth -= text in (")", "]", "}")
        if depth == 0 and text == ">" and tokens[i + 1].text == tokens[i + 2].text == ">":
            return i + 2
        i += 1
    return len(tokens)


def _last_name(text: str) -> str:
    return re.split(r"\s*<", text, maxsplit=1)[0].split("::")[-1].strip()


def _is_number(text: str) -> bool:
    """Whether a launch bound can be written into the launch: names may be template parameters of the kernel."""
    return bool(re.fullmatch(r"[\d\s()*/+]+", text))


def _address(text: str, known: list[KernelText]) -> str:
    """C++ for the kernel's address, null where the launch leaves it to be deduced."""
    defined = [kernel for kernel in known if kernel.defined] or known
    if len(defined) > 1:
        return "nullptr"
    if defined and defined[0].template >= 0:
        tokens = tokenize(text)
        opening = next((i for i, token in enumerate(tokens) if token.text == "<"), -1)
        given = len(split(tokens[opening + 1 : angle_closing(tokens, opening)])) if opening >= 0 else 0
        if opening < 0 or given < defined[0].template:
            return "nullptr"
    return f"(const void*)({text})"


def loop_head(text: str, line: int) -> int:
    """Line of the `for`, `while` or `do` that most closely encloses `line`; `line` itself when there is none."""
    tokens = tokenize(text)
    best = (line, 1 << 30)
    for at, token in enumerate(tokens):
        if token.kind != "name" or token.text not in ("for", "while", "do"):
            continue
        start = following(tokens, at)
        if token.text != "do" and start < len(tokens) and tokens[start].text == "(":
            start = following(tokens, closing(tokens, start))
        if start >= len(tokens):
            continue
        end = closing(tokens, start) if tokens[start].text == "{" else start
        while end < len(tokens) - 1 and tokens[start].text != "{" and tokens[end].text != ";":
            end += 1
        last = tokens[min(end, len(tokens) - 1)].line
        if token.line <= line <= last and last - token.line < best[1]:
            best = (token.line, last - token.line)
    return best[0]
