"""Inline PTX by its meaning: each instruction becomes C++ over `crucible/tensor_cores.h` and `crucible/device.h`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from crucible.emulator.faults import NotCovered
from crucible.emulator.tokens import Token, split, words

_TYPES = {
    "f32": "float", "f64": "double", "u32": "uint32_t", "s32": "int32_t", "b32": "uint32_t", "u64": "uint64_t",
    "b64": "uint64_t", "s64": "int64_t", "u16": "uint16_t", "b16": "uint16_t", "u8": "uint8_t",
}  # fmt: skip
_APPROXIMATE = {
    "ex2": "::exp2f({0})", "lg2": "::log2f({0})", "rcp": "(1.0f / ({0}))", "rsqrt": "(1.0f / ::sqrtf({0}))",
    "sqrt": "::sqrtf({0})", "tanh": "::tanhf({0})", "sin": "::sinf({0})", "cos": "::cosf({0})",
}  # fmt: skip
_SPECIAL = {
    "%laneid": "::crucible::lane()",
    "%lanemask_lt": "((1u << ::crucible::lane()) - 1u)",
    "%lanemask_le": "((2u << ::crucible::lane()) - 1u)",
    "%warpid": "(::crucible::id<offsetof(::crucible::Ids, linear)>() / 32)",
    "%smid": "0u",
    "%nsmid": "132u",
    "%clock": "uint32_t(crucible_clock())",
    "%clock64": "crucible_clock()",
    "%globaltimer": "crucible_clock()",
    **{f"%{a}.{m}": f"CRUCIBLE_ID({n}, {m})" for a, n in (("tid", "threadIdx"), ("ctaid", "blockIdx"),
       ("ntid", "blockDim"), ("nctaid", "gridDim")) for m in "xyz"},
}  # fmt: skip


@dataclass(frozen=True)
class _Instruction:
    name: str
    operands: list[str]
    """C++ expressions; a vector's are `{a, b}` as written."""


def translate(tokens: list[Token], line: int) -> str:
    """C++ for the inside of `asm(...)`. Raises NotCovered for instructions without a translation."""
    template, given = _parts(tokens)
    statements = []
    for text in re.split(r"[;\n]", template.replace("\\n", "\n").replace("\\t", " ")):
        text = text.strip()
        if not text:
            continue
        instruction = _parsed(text, given, line)
        meaning = next((rule(instruction) for pattern, rule in _RULES if re.match(pattern, instruction.name)), None)
        if meaning is None:
            raise NotCovered(f"inline PTX {instruction.name}, line {line}")
        statements.append(meaning)
    return "do { " + " ".join(statements) + " } while (0)"


def _parts(tokens: list[Token]) -> tuple[str, list[str]]:
    """The instructions' text, and the operands' expressions in order."""
    sections: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += token.text in ("(", "[", "{")
        depth -= token.text in (")", "]", "}")
        if token.text in (":", "::") and depth == 0:
            sections.extend([[]] * 0 + [[] for _ in token.text])
        else:
            sections[-1].append(token)
    template = "".join(token.text[1:-1] for token in sections[0] if token.kind == "string")
    given = []
    for section in sections[1:3]:
        for operand in split(section):
            text = words(operand)
            opening = text.find("(")
            if opening >= 0:
                given.append(text[opening:])
    return template, given


def _parsed(text: str, given: list[str], line: int) -> _Instruction:
    if text.startswith(("{", ".reg", "@")) or text == "}":
        raise NotCovered(f"inline PTX block or predicate ({text.split()[0]}), line {line}")
    name, _, rest = text.partition(" ")
    operands: list[str] = []
    for operand in re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+", rest):
        operands.append(re.sub(r"%(\d+)", lambda found: given[int(found[1])], operand).strip("[]"))
    return _Instruction(name, [_SPECIAL.get(operand, operand) for operand in operands])


def _vector(operand: str) -> list[str]:
    """`{(a), (b)}` taken apart, parentheses respected."""
    parts, depth, current = [], 0, ""
    for character in operand.strip("{}"):
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += character
    return [*parts, current.strip()]


def _mma(it: _Instruction) -> str | None:
    shape = re.match(r"mma\.sync\.aligned\.m16n8k(\d+)\.row\.col\.f32\.(f16|bf16|tf32)\.\2\.f32$", it.name)
    if not shape or (shape[2] == "tf32" and shape[1] not in ("4", "8")) or len(it.operands) != 4:
        return None
    d, a, b, c = (_vector(operand) for operand in it.operands)
    kind = {"f16": "kF16", "bf16": "kBf16", "tf32": "kTf32"}[shape[2]]
    fill = "".join(f"m.a[{i}] = ::crucible::as_word{x}; " for i, x in enumerate(a))
    fill += "".join(f"m.b[{i}] = ::crucible::as_word{x}; " for i, x in enumerate(b))
    fill += "".join(f"m.c[{i}] = {x}; " for i, x in enumerate(c))
    out = "".join(f"{x} = m.c[{i}]; " for i, x in enumerate(d))
    return f"{{ ::crucible::Mma m{{}}; {fill}::crucible::mma(m, {shape[1]}, ::crucible::{kind}); {out}}}"


def _ldmatrix(it: _Instruction) -> str | None:
    shape = re.match(r"ldmatrix\.sync\.aligned\.m8n8\.x([124])(\.trans)?\.shared(::cta)?\.b16$", it.name)
    if not shape or len(it.operands) != 2:
        return None
    out = _vector(it.operands[0])
    store = "".join(f"{x} = r[{i}]; " for i, x in enumerate(out))
    transposed = str(bool(shape[2])).lower()
    load = f"::crucible::ldmatrix<{shape[1]}, {transposed}>(r, uint64_t({it.operands[1]}));"
    return f"{{ uint32_t r[{shape[1]}]; {load} {store}}}"


def _copy(it: _Instruction) -> str | None:
    if re.match(r"cp\.async\.commit_group", it.name):
        return "crucible_copy_commit();"
    if re.match(r"cp\.async\.wait_all", it.name):
        return "crucible_copy_wait(0);"
    if re.match(r"cp\.async\.wait_group", it.name):
        return f"crucible_copy_wait({it.operands[0]});"
    if not re.match(r"cp\.async\.(ca|cg)\.shared(::cta)?\.global(\.L2::\w+)?$", it.name) or len(it.operands) < 3:
        return None
    to, source, size = it.operands[:3]
    given = it.operands[3] if len(it.operands) > 3 else size
    return f"crucible_copy_async(::crucible::from_shared({to}), (const void*)({source}), {size}, {given});"


def _memory(it: _Instruction) -> str | None:
    shape = re.match(r"(ld|st)(?:\.\w+(?:::\w+)*)*?\.(?:(v[24])\.)?(\w+)$", it.name)
    if not shape or shape[3] not in _TYPES or len(it.operands) != 2:
        return None
    type_ = _TYPES[shape[3]]
    address, value = (it.operands[1], it.operands[0]) if shape[1] == "ld" else (it.operands[0], it.operands[1])
    pointer = f"(char*)({address})" if ".shared" not in it.name else f"::crucible::from_shared({address})"
    parts = _vector(value)
    moves = "".join(f"{x} = p[{i}]; " if shape[1] == "ld" else f"p[{i}] = {x}; " for i, x in enumerate(parts))
    return f"{{ auto* p = ({type_}*)({pointer}); {moves}}}"


def _unary(it: _Instruction) -> str | None:
    form = _APPROXIMATE.get(it.name.split(".")[0])
    return f"{it.operands[0]} = {form.format(it.operands[1])};" if form and it.name.endswith(".f32") else None


def _arithmetic(it: _Instruction) -> str | None:
    kind = _TYPES.get(it.name.rsplit(".", 1)[-1])
    forms = {"add": "{1} + {2}", "sub": "{1} - {2}", "mul": "{1} * {2}", "max": "::max({1}, {2})",
             "min": "::min({1}, {2})",
             "fma": "::fma({1}, {2}, {3})", "mov": "{1}", "and": "{1} & {2}", "or": "{1} | {2}", "xor": "{1} ^ {2}",
             "mad": "{1} * {2} + {3}"}  # fmt: skip
    form = forms.get(it.name.split(".")[0])
    if ".NaN." in it.name:  # of max and min: NaN wins
        form = "({1} != {1} || {1} SIGN {2} ? {1} : {2})".replace("SIGN", ">" if it.name.startswith("max") else "<")
    if not form or not kind or ".hi" in it.name or ".wide" in it.name:
        return None
    typed = [it.operands[0], *(f"({kind})({operand})" for operand in it.operands[1:])]
    return f"{typed[0]} = {form.format(*typed)};"


def _convert(it: _Instruction) -> str | None:
    to, *from_ = it.operands
    if it.name == "cvt.rna.tf32.f32":
        return f"{to} = ::crucible::to_tf32({from_[0]});"
    pair = {"cvt.rn.bf16x2.f32": "__nv_bfloat16", "cvt.rn.f16x2.f32": "__half"}.get(it.name)
    if pair:
        low, high = f"uint32_t({pair}(float({from_[1]})).__x)", f"uint32_t({pair}(float({from_[0]})).__x)"
        return f"{to} = {low} | {high} << 16;"
    return None


def _barrier(it: _Instruction) -> str:
    number = it.operands[0] if it.operands else "0"
    threads = it.operands[1] if len(it.operands) > 1 else "0"
    return f"crucible_named_barrier({number}, {threads}, {int('arrive' not in it.name)});"


def _address(it: _Instruction) -> str:
    shared = ".shared" in it.name
    return f"{it.operands[0]} = __cvta_generic_to_{'shared' if shared else 'global'}((const void*)({it.operands[1]}));"


_RULES: list[tuple[str, Callable[[_Instruction], str | None]]] = [
    (r"mma\.", _mma),
    (r"ldmatrix\.", _ldmatrix),
    (r"cp\.async\.(?!bulk)", _copy),
    (r"(ld|st)\.", _memory),
    (r"(ex2|lg2|rcp|rsqrt|sqrt|tanh|sin|cos)\.", _unary),
    (r"(add|sub|mul|max|min|fma|mov|and|or|xor|mad)\.", _arithmetic),
    (r"cvt\.", _convert),
    (r"cvta\.to\.", _address),
    (r"(bar\.(sync|arrive)|barrier\.(sync|arrive)|barrier\.cta\.sync)\b", _barrier),
    (r"(membar|fence)\.", lambda it: "crucible_fence();"),
    (r"(prefetch|prefetchu|discard|applypriority|griddepcontrol)\b", lambda it: ";"),
    (r"nanosleep\.", lambda it: "crucible_yield();"),
    (r"trap\b", lambda it: 'crucible_trap("trap");'),
]
