"""PTX that lanes or threads do together: barriers, shuffles, votes, matrices; and what ends or delays a thread."""

from __future__ import annotations

import re

from crucible.emulator.ptx.instruction import TYPES, Instruction, Rule, put, rule, several

_ELEMENTS = {
    "f16": "F16", "bf16": "Bf16", "tf32": "Tf32", "f64": "F64", "s8": "S8", "u8": "U8", "e4m3": "E4m3", "e5m2": "E5m2",
}  # fmt: skip
_BITS = {"F16": 16, "Bf16": 16, "Tf32": 32, "F64": 64, "S8": 8, "U8": 8, "E4m3": 8, "E5m2": 8}
_SHAPES = {
    ("f16", "f16"): "m16n8k8 m16n8k16", ("bf16", "bf16"): "m16n8k8 m16n8k16", ("tf32", "tf32"): "m16n8k4 m16n8k8",
    ("f64", "f64"): "m8n8k4 m16n8k4 m16n8k8 m16n8k16",
}  # fmt: skip
_ACCUMULATORS = {"f16": ("f32", "f16"), "bf16": ("f32",), "tf32": ("f32",), "f64": ("f64",), 
                 "s8": ("s32",), "u8": ("s32",),
                 "e4m3": ("f32", "f16"), "e5m2": ("f32", "f16")}  # fmt: skip


def _mma(it: Instruction, found: re.Match[str]) -> str | None:
    """`mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 d, a, b, c`, dense."""
    m, k, clamps, (d, a, b, c) = int(found[1]), int(found[2]), found[3], found.groups()[3:]
    eight = "m8n8k16 m16n8k16 m16n8k32" if a in ("s8", "u8") else "m16n8k16 m16n8k32"
    same_kind = {a, b} <= {"s8", "u8"} or {a, b} <= {"e4m3", "e5m2"}
    shapes = eight if same_kind else _SHAPES.get((a, b), "")
    if f"m{m}n8k{k}" not in shapes.split() or d not in _ACCUMULATORS[a] or d != c or len(it.operands) != 4:
        return None
    if c not in _ACCUMULATORS[a] or (clamps and d != "s32"):
        return None
    per = 32 // min(_BITS[_ELEMENTS[a]], 32)
    counts = [
        m // 4 // (2 if d == "f16" else 1),
        m // 8 * k // 4 // per,
        k // 4 // per,
        m // 4 // (2 if c == "f16" else 1),
    ]
    parts = [several(operand) for operand in it.operands]
    if [len(part) for part in parts] != counts:
        return None
    kinds = {"f32": "float", "f64": "double", "f16": "__half", "s32": "int32_t"}
    words = "double" if a == "f64" else "uint32_t"
    fill = "".join(
        f"crucible_{name}[{i}] = ::crucible::ptx::as<{words if name != 'c' else _word_of(c)}>({one}); "
        for name, part in zip("abc", parts[1:], strict=True)
        for i, one in enumerate(part)
    )
    call = (
        f"::crucible::mma<{m}, {k}, ::crucible::{_ELEMENTS[a]}, ::crucible::{_ELEMENTS[b]}, {kinds[c]}, {kinds[d]}, "
        f"{str(bool(clamps)).lower()}>(crucible_a, crucible_b, crucible_c, crucible_d);"
    )
    out = " ".join(put(one, f"crucible_d[{i}]") for i, one in enumerate(parts[0]))
    arrays = f"{words} crucible_a[{counts[1]}], crucible_b[{counts[2]}]; {_word_of(c)} crucible_c[{counts[3]}]; "
    arrays += f"{_word_of(d)} crucible_d[{counts[0]}];"
    return f"{{ {arrays} {fill}{call} {out} }}"


def _word_of(accumulator: str) -> str:
    return {"f32": "float", "f64": "double", "f16": "uint32_t", "s32": "int32_t"}[accumulator]


def _ldmatrix(it: Instruction, found: re.Match[str]) -> str | None:
    count, transposed, to = int(found[1]), str(bool(found[2])).lower(), several(it.operands[0])
    if len(to) != count:
        return None
    address = (
        f"uint64_t({it.operands[1]})" if found[3] else f"__cvta_generic_to_shared((const void*)({it.operands[1]}))"
    )
    store = " ".join(put(one, f"crucible_v[{i}]") for i, one in enumerate(to))
    load = f"::crucible::ldmatrix<{count}, {transposed}>(crucible_v, {address});"
    return f"{{ uint32_t crucible_v[{count}]; {load} {store} }}"


def _stmatrix(it: Instruction, found: re.Match[str]) -> str | None:
    count, transposed, values = int(found[1]), str(bool(found[2])).lower(), several(it.operands[1])
    if len(values) != count:
        return None
    address = (
        f"uint64_t({it.operands[0]})" if found[3] else f"__cvta_generic_to_shared((const void*)({it.operands[0]}))"
    )
    fill = ", ".join(f"::crucible::ptx::as<uint32_t>({value})" for value in values)
    store = f"::crucible::stmatrix<{count}, {transposed}>(crucible_v, {address});"
    return f"{{ const uint32_t crucible_v[{count}] = {{{fill}}}; {store} }}"


def _shuffle(it: Instruction, found: re.Match[str]) -> str | None:
    if len(it.operands) != 5:
        return None
    to, *there = several(it.operands[0])
    given = ", ".join(it.read(i, "uint32_t") for i in range(1, 5))
    valid = put(there[0], "crucible_q") if there else ""
    return f"{{ bool crucible_q; {put(to, f'::crucible::ptx::shfl_{found[1]}({given}, crucible_q)')} {valid} }}"


def _vote(it: Instruction, found: re.Match[str]) -> str | None:
    if len(it.operands) != 3:
        return None
    return it.write(f"::crucible::ptx::vote_{found[1]}(bool({it.operands[1]}), {it.read(2, 'uint32_t')})")


def _match(it: Instruction, found: re.Match[str]) -> str | None:
    type_ = TYPES[found[2]]
    to, *same = several(it.operands[0])
    given = f"{it.read(2, 'uint32_t')}, {it.read(1, type_)}"
    if found[1] == "any":
        return put(to, f"__match_any_sync({given})")
    agreed = put(same[0], "bool(crucible_q)") if same else ""
    return f"{{ int crucible_q; {put(to, f'__match_all_sync({given}, &crucible_q)')} {agreed} }}"


def _reduce(it: Instruction, found: re.Match[str]) -> str | None:
    logical = found[1] in ("and", "or", "xor")
    if logical != (found[2] == "b32") or len(it.operands) != 3:
        return None
    return it.write(f"__reduce_{found[1]}_sync({it.read(2, 'uint32_t')}, {it.read(1, TYPES[found[2]])})")


def _barrier(it: Instruction, found: re.Match[str]) -> str:
    number = it.operands[0] if it.operands else "0"
    threads = it.operands[1] if len(it.operands) > 1 else "0"
    return f"crucible_named_barrier(int({number}), int({threads}), {int(found[1] != 'arrive')});"


def _barrier_vote(it: Instruction, found: re.Match[str]) -> str | None:
    """`bar.red` of the whole block at barrier 0."""
    if len(it.operands) != 3 or it.operands[1] != "0":
        return None
    kind = {"popc": 1, "and": 2, "or": 3}[found[1]]
    value = f"crucible_barrier({kind}, bool({it.operands[2]}))"
    return it.write(f"uint32_t({value})" if found[1] == "popc" else f"bool({value})")


RULES: list[Rule] = [
    rule(
        r"mma\.sync\.aligned\.m(8|16)n8k(\d+)\.row\.col(\.satfinite)?\.(f16|f32|f64|s32)"
        r"\.(f16|bf16|tf32|f64|s8|u8|e4m3|e5m2)\.(f16|bf16|tf32|f64|s8|u8|e4m3|e5m2)\.(f16|f32|f64|s32)",
        _mma,
    ),
    rule(r"ldmatrix\.sync\.aligned\.m8n8\.x([124])(\.trans)?(\.shared(?:::cta)?)?\.b16", _ldmatrix),
    rule(r"stmatrix\.sync\.aligned\.m8n8\.x([124])(\.trans)?(\.shared(?:::cta)?)?\.b16", _stmatrix),
    rule(r"shfl\.sync\.(up|down|bfly|idx)\.b32", _shuffle),
    rule(r"vote\.sync\.(all|any|uni)\.pred", _vote),
    rule(r"vote\.sync\.(ballot)\.b32", _vote),
    rule(r"activemask\.b32", lambda it, found: it.write("__activemask()")),
    rule(r"match\.(any|all)\.sync\.(b32|b64)", _match),
    rule(r"redux\.sync\.(add|min|max|and|or|xor)\.([us]32|b32)", _reduce),
    rule(r"bar\.warp\.sync", lambda it, found: f"__syncwarp({it.operands[0]});"),
    rule(r"(?:bar|barrier)(?:\.cta)?\.(sync|arrive)(?:\.aligned)?", _barrier),
    rule(r"(?:bar|barrier)(?:\.cta)?\.red\.(popc|and|or)(?:\.aligned)?\.(?:u32|pred)", _barrier_vote),
    rule(r"nanosleep\.u32", lambda it, found: "crucible_yield();"),
    rule(r"trap", lambda it, found: 'crucible_trap("trap");'),
    rule(r"pmevent(?:\.mask)?|brkpt", lambda it, found: ";"),
]
