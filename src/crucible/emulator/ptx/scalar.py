"""PTX that works on one thread's registers: arithmetic, logic, comparisons, moves, conversions."""

from __future__ import annotations

import re

from crucible.emulator.ptx.instruction import REGISTERS, TYPES, WIDE, Instruction, Rule, put, rule, several

_INTEGER = r"([us](?:16|32|64))"
_BITS = r"(pred|b(?:16|32|64))"
_FLOATING = r"(f32|f64|f16|f16x2|bf16|bf16x2)"
_ROUNDING = {"": "kNearest", "rn": "kNearest", "rz": "kZero", "rm": "kDown", "rp": "kUp"}
_INTEGRAL = {"rni": "kNearest", "rzi": "kZero", "rmi": "kDown", "rpi": "kUp", **_ROUNDING}
_COUNT = {"abs": 1, "neg": 1, "not": 1, "cnot": 1, "popc": 1, "clz": 1, "brev": 1, "bfind": 1, "sad": 3}
_SHORT = ("f16", "f16x2", "bf16", "bf16x2")


def _integer(it: Instruction, found: re.Match[str]) -> str | None:
    operation, type_ = found[1], TYPES[found[2]]
    reads = it.reads(type_, _COUNT.get(operation, 2))
    return reads and it.write(f"::crucible::ptx::{operation}_<{type_}>({reads})")


def _product(it: Instruction, found: re.Match[str]) -> str | None:
    """`mul.lo`, `mad.wide`: a third operand is as wide as the result."""
    operation, part, name = found[1], found[2], found[3]
    result = WIDE.get(name) if part == "wide" else TYPES[name]
    if result is None or len(it.operands) != (4 if operation == "mad" else 3):
        return None
    value = f"::crucible::ptx::mul_{part}<{TYPES[name]}>({it.read(1, TYPES[name])}, {it.read(2, TYPES[name])})"
    if operation == "mad":
        value = f"::crucible::ptx::add_<{result}>({value}, {it.read(3, result)})"
    return it.write(value)


def _carried(it: Instruction, found: re.Match[str]) -> str | None:
    """Additions through the carry flag: `add.cc`, `addc`, `sub.cc`, `subc`."""
    if not found[2] and not found[3]:
        return None
    reads = it.reads("uint32_t" if found[4][1:] == "32" else "uint64_t", 2)
    carry = "crucible_carry" if found[2] else "0"
    keeps = str(bool(found[3])).lower()
    return reads and it.write(f"::crucible::ptx::carry_{found[1]}<{keeps}>({reads}, {carry}, crucible_carry)")


def _shift(it: Instruction, found: re.Match[str]) -> str | None:
    type_ = TYPES[found[2]]
    return it.write(f"::crucible::ptx::{found[1]}_<{type_}>({it.read(1, type_)}, {it.read(2, 'uint32_t')})")


def _field(it: Instruction, found: re.Match[str]) -> str | None:
    """`bfe d, a, pos, len` and `bfi d, a, b, pos, len`."""
    type_, values = TYPES[found[2]], 1 if found[1] == "bfe" else 2
    if len(it.operands) != values + 3:
        return None
    reads = [it.read(i, type_ if i <= values else "uint32_t") for i in range(1, values + 3)]
    return it.write(f"::crucible::ptx::{found[1]}_<{type_}>({', '.join(reads)})")


def _words(it: Instruction, found: re.Match[str]) -> str | None:
    """Instructions on 32-bit words that are one function each."""
    forms = {"prmt": ("prmt", 3), "lop3": ("lop3", 4), "shf.l.wrap": ("shf_l<true>", 3),
             "shf.l.clamp": ("shf_l<false>", 3),
             "shf.r.wrap": ("shf_r<true>", 3), "shf.r.clamp": ("shf_r<false>", 3)}  # fmt: skip
    function, count = forms[found[1]]
    reads = it.reads("uint32_t", count)
    return reads and it.write(f"::crucible::ptx::{function}({reads})")


def _dot(it: Instruction, found: re.Match[str]) -> str | None:
    types = [TYPES[f"{name[0]}32"] for name in found.groups()]
    reads = it.reads("uint32_t", 3)
    signs = ", ".join(str(type_ == "int32_t").lower() for type_ in types)
    return reads and it.write(f"::crucible::ptx::dp4a<{signs}>({reads})")


def _floating(it: Instruction, found: re.Match[str]) -> str | None:
    """`add.rn.ftz.sat.f32` and its like, of all widths."""
    operation, modifiers, name = found[1], found[2].split(".")[1:], found[3]
    count = {"fma": 3, "mad": 3, "abs": 1, "neg": 1}.get(operation, 2)
    flushed = "ftz" in modifiers
    reads = it.reads(TYPES[name], count, flushed=flushed)
    known = {"rn", "ftz", "sat", "relu", "NaN", "xorsign"} | ({"rz", "rm", "rp"} if name in ("f32", "f64") else set())
    known |= {"full", "approx"} if operation == "div" else set()
    if (
        reads is None
        or set(modifiers) - known
        or "xorsign" in modifiers
        or ("relu" in modifiers and name not in _SHORT)
    ):
        return None
    how = next((_ROUNDING[modifier] for modifier in modifiers if modifier in _ROUNDING), "kNearest")
    if operation in ("add", "sub", "mul", "fma", "mad", "div"):
        value = f"::crucible::ptx::{operation.replace('mad', 'fma')}_<{TYPES[name]}>({reads}, ::crucible::{how})"
    elif operation in ("min", "max"):
        value = f"::crucible::ptx::{operation}_<{TYPES[name]}, {str('NaN' in modifiers).lower()}>({reads})"
    else:
        value = f"::crucible::ptx::{operation}_<{TYPES[name]}>({reads})"
    for modifier, wrapper in (("ftz", "flushed"), ("sat", "saturated"), ("relu", "relu")):
        value = f"::crucible::ptx::{wrapper}({value})" if modifier in modifiers else value
    return it.write(value)


def _function(it: Instruction, found: re.Match[str]) -> str | None:
    """`ex2.approx.ftz.f32`, `rcp.rn.f64`: exact where a GPU approximates."""
    operation, modifiers, name = found[1], found[2].split(".")[1:], found[3]
    reads = it.reads(TYPES[name], 1, flushed="ftz" in modifiers)
    allowed = name == "f32" or (name == "f64" and operation in ("rcp", "sqrt", "rsqrt"))
    allowed |= name in _SHORT and operation in ("ex2", "tanh")
    if reads is None or not allowed or set(modifiers) - {"approx", "ftz", "rn", "rz", "rm", "rp"}:
        return None
    how = next((_ROUNDING[modifier] for modifier in modifiers if modifier in _ROUNDING), "kNearest")
    value = f"::crucible::ptx::{operation}_<{TYPES[name]}>({reads}, ::crucible::{how})"
    return it.write(f"::crucible::ptx::flushed({value})" if "ftz" in modifiers else value)


def _compared(it: Instruction, found: re.Match[str], at: int) -> str | None:
    """C++ for `a < b`, whose operands stand at `at`, with the third predicate's part."""
    relation, operation, modifiers, name = found[1], found[2], found[3] or "", found[4]
    if len(it.operands) != at + (3 if operation else 2):
        return None
    a, b = (it.read(i, TYPES[name], flushed=".ftz" in modifiers) for i in (at, at + 1))
    test = f"::crucible::ptx::{relation}_({a}, {b})"
    joined = {"and": "&&", "or": "||", "xor": "!="}.get(operation or "")
    return f"({test} {joined} bool({it.operands[at + 2]}))" if joined else test


def _setp(it: Instruction, found: re.Match[str]) -> str | None:
    test = _compared(it, found, 1)
    first, *second = several(it.operands[0])
    if test is None or (second and found[2]) or found[4] in ("f16x2", "bf16x2"):
        return None
    other = put(second[0], "!crucible_t") if second else ""
    return f"{{ const bool crucible_t = {test}; {put(first, 'crucible_t')} {other} }}"


def _select(it: Instruction, found: re.Match[str]) -> str | None:
    type_ = TYPES[found[1]]
    if len(it.operands) != 4:
        return None
    return it.write(f"(bool({it.operands[3]}) ? {it.read(1, type_)} : {it.read(2, type_)})")


def _move(it: Instruction, found: re.Match[str]) -> str | None:
    """`mov`, and packing `{lo, hi}` into a wider register or taking it apart."""
    to, from_ = it.operands
    type_ = REGISTERS[found[1]]
    if isinstance(to, list):
        bits = f"const {type_} crucible_v = {it.read(1, type_)};"
        part = {1: type_, 2: {"uint32_t": "uint16_t", "uint64_t": "uint32_t"}.get(type_), 4: "uint16_t"}.get(len(to))
        if part is None:
            return None
        moves = [put(one, f"{part}(crucible_v >> {i} * 8 * sizeof({part}))") for i, one in enumerate(to)]
        return f"{{ {bits} {' '.join(moves)} }}"
    if isinstance(from_, list):
        return it.write(f"::crucible::ptx::packed<{type_}>({', '.join(from_)})")
    return it.write(it.read(1, TYPES[found[1]]))


def _convert(it: Instruction, found: re.Match[str]) -> str | None:
    """`cvt.rni.sat.s8.f32`: one value to one value."""
    modifiers, to, from_ = found[1].split(".")[1:], found[2], found[3]
    unknown = {to, from_} - TYPES.keys() | {to, from_} & {"f16x2", "bf16x2", "pred"}
    if unknown or set(modifiers) - {*_INTEGRAL, "ftz", "sat", "relu"}:
        return None
    how = next((_INTEGRAL[modifier] for modifier in modifiers if modifier in _INTEGRAL), "kNearest")
    integral = str(any(modifier.endswith("i") for modifier in modifiers)).lower()
    reads = it.reads(TYPES[from_], 1, flushed="ftz" in modifiers and from_ == "f32")
    saturates = str("sat" in modifiers).lower()
    value = f"::crucible::ptx::convert<{TYPES[to]}, {integral}, {saturates}>({reads}, ::crucible::{how})"
    value = f"::crucible::ptx::relu({value})" if "relu" in modifiers else value
    return reads and it.write(f"::crucible::ptx::flushed({value})" if "ftz" in modifiers and to == "f32" else value)


def _convert_pair(it: Instruction, found: re.Match[str]) -> str | None:
    """Two floats into a pair, the first operand above."""
    if len(it.operands) != 3:
        return None
    pair = {**TYPES, "e4m3x2": "__nv_fp8x2_e4m3", "e5m2x2": "__nv_fp8x2_e5m2"}[found[4]]
    is_small = found[4].startswith("e")
    if is_small != bool(found[2]) or (is_small and found[1] != "rn"):
        return None
    relu = str(bool(found[3])).lower()
    given = f"{it.read(1, 'float')}, {it.read(2, 'float')}, ::crucible::{_ROUNDING[found[1]]}"
    return it.write(f"::crucible::ptx::pair<{pair}, {relu}>({given})")


def _convert_small(it: Instruction, found: re.Match[str]) -> str | None:
    """Between pairs of eight bits and pairs of halves."""
    types = {**TYPES, "e4m3x2": "__nv_fp8x2_e4m3", "e5m2x2": "__nv_fp8x2_e5m2"}
    to, from_ = types[found[3]], types[found[4]]
    if found[3].startswith("e") != bool(found[1]) or found[3][0] == found[4][0]:
        return None
    value = f"::crucible::ptx::repaired<{to}, {str(bool(found[2])).lower()}>({it.read(1, from_)})"
    return it.write(value)


def _tf32(it: Instruction, found: re.Match[str]) -> str | None:
    how = {"rna": "kAway", "rn": "kNearest", "rz": "kZero"}[found[1]]
    value = it.read(1, "float")
    value = f"::crucible::ptx::relu({value})" if found[2] else value
    return it.write(f"::crucible::to_tf32({value}, ::crucible::{how})")


def _cvta(it: Instruction, found: re.Match[str]) -> str | None:
    """Addresses: shared ones count from the window's start, global ones are generic ones."""
    address = it.read(1, "uint64_t")
    if found[2] != "shared":
        return it.write(address)
    to = f"__cvta_generic_to_shared((const void*)({address}))" if found[1] else f"__cvta_shared_to_generic({address})"
    return it.write(f"uint{found[3][1:]}_t({to})" if found[1] else f"uint64_t({to})")


_COMPARISON = (
    r"setp\.(eq|ne|lt|le|gt|ge|lo|ls|hi|hs|equ|neu|ltu|leu|gtu|geu|num|nan)(?:\.(and|or|xor))?(\.ftz)?{result}"
    r"\.([bus](?:16|32|64)|f16|f32|f64|bf16)"
)

RULES: list[Rule] = [
    rule(rf"(add|sub|div|rem|min|max|abs|neg|sad|popc|clz|brev)\.{_INTEGER}", _integer),
    rule(r"(popc|clz|brev|bfind)\.((?:b|u|s)(?:32|64))", _integer),
    rule(rf"(and|or|xor|not|cnot)\.{_BITS}", _integer),
    rule(rf"(mul|mad)\.(lo|hi|wide)\.{_INTEGER}", _product),
    rule(r"(add|sub)(c?)(\.cc)?\.([us](?:32|64))", _carried),
    rule(r"(shl|shr)\.((?:b|u|s)(?:16|32|64))", _shift),
    rule(r"(bfe|bfi)\.((?:b|u|s)(?:32|64))", _field),
    rule(r"(prmt|lop3|shf\.[lr]\.(?:wrap|clamp))\.b32", _words),
    rule(r"dp4a\.([us]32)\.([us]32)", _dot),
    rule(rf"(add|sub|mul|fma|mad|div|min|max|abs|neg)((?:\.\w+)*)\.{_FLOATING}", _floating),
    rule(rf"(ex2|lg2|sin|cos|tanh|rcp|sqrt|rsqrt)((?:\.\w+)*)\.{_FLOATING}", _function),
    rule(_COMPARISON.format(result=""), _setp),
    rule(r"selp\.([busf](?:16|32|64))", _select),
    rule(r"mov\.(pred|[busf](?:16|32|64)|f16x2|bf16|bf16x2)", _move),
    rule(r"cvt\.(rna|rn|rz)(\.relu)?\.tf32\.f32", _tf32),
    rule(r"cvt((?:\.\w+)*?)\.(\w+)\.(\w+)", _convert),
    rule(r"cvt\.(rn|rz)(\.satfinite)?(\.relu)?\.(f16x2|bf16x2|e4m3x2|e5m2x2)\.f32", _convert_pair),
    rule(r"cvt\.rn(\.satfinite)?(\.relu)?\.(f16x2|e4m3x2|e5m2x2)\.(f16x2|e4m3x2|e5m2x2)", _convert_small),
    rule(r"cvta(\.to)?\.(shared|global|local|const)(?:::cta)?\.(u32|u64)", _cvta),
]  # fmt: skip
