"""PTX that touches memory: loads, stores, atomics, asynchronous copies, fences, mbarriers."""

from __future__ import annotations

import re

from crucible.emulator.ptx.instruction import TYPES, Instruction, Operand, Rule, put, rule, several

_SPACE = r"(?:\.(global|shared|shared::cta|local|const))?"
_SCOPE = r"(?:\.(?:cta|cluster|gpu|sys))?"
_HINTS = r"((?:\.(?:ca|cg|cs|lu|cv|wb|wt|nc|L1::\w+|L2::\w+))*)"
_VECTOR = r"(?:\.(v2|v4))?"
_TYPE = r"\.([busf](?:8|16|32|64)|f16|f16x2|bf16|bf16x2)"


def _pointer(space: str | None, address: Operand) -> str:
    """C++ for the place an address of a state space means."""
    shared = bool(space) and str(space).startswith("shared")
    return f"::crucible::from_shared({address})" if shared else f"(char*)({address})"


def _without_policy(it: Instruction, hints: str) -> tuple[Operand, ...]:
    """The operands but for a cache policy."""
    return it.operands[:-1] if "cache_hint" in hints else it.operands


def _load(it: Instruction, found: re.Match[str]) -> str | None:
    order, space, hints, type_ = found[1] or "", found[2], found[3], TYPES[found[5]]
    operands = _without_policy(it, hints)
    if len(operands) != 2:
        return None
    to = several(operands[0])
    kind = "kVolatile" if order == "volatile" else "kAcquired" if order in ("acquire", "relaxed") else "kPlain"
    place = _pointer(space, operands[1])
    load = f"::crucible::ptx::load<{type_}, {len(to)}, ::crucible::ptx::{kind}>(crucible_v, {place});"
    moves = " ".join(put(one, f"crucible_v[{i}]") for i, one in enumerate(to))
    return f"{{ {type_} crucible_v[{len(to)}]; {load} {moves} }}"


def _store(it: Instruction, found: re.Match[str]) -> str | None:
    order, space, hints, type_ = found[1] or "", found[2], found[3], TYPES[found[5]]
    operands = _without_policy(it, hints)
    if len(operands) != 2:
        return None
    values = ", ".join(f"::crucible::ptx::as<{type_}>({value})" for value in several(operands[1]))
    kind = {"volatile": "kVolatile", "release": "kReleased", "relaxed": "kRelaxedStore"}.get(order, "kPlain")
    return f"::crucible::ptx::store<{type_}, ::crucible::ptx::{kind}>({_pointer(space, operands[0])}, {values});"


def _atomic(it: Instruction, found: re.Match[str]) -> str | None:
    """`atom` and `red`, which differ in whether the old value is wanted."""
    form, order, space, operation, hints, name = found[1], found[2], found[3], found[4], found[5], found[7]
    operands = list(_without_policy(it, hints))
    if form == "red":
        operands.insert(0, "_")
    parts = [several(operand) for operand in operands]
    if (
        len(parts) != (4 if operation == "cas" else 3)
        or not _exists(operation, name)
        or (form == "red" and operation == "cas")
    ):
        return None
    type_ = TYPES[name]
    fence = "crucible_fence();" if order in ("release", "acq_rel") else ""
    out = []
    for i in range(len(parts[2])):
        address = f"({type_}*)({_pointer(space, operands[1])}) + {i}"
        values = ", ".join(f"::crucible::ptx::as<{type_}>({part[i]})" for part in parts[2:])
        out.append(
            put(
                parts[0][i] if form == "atom" else "_",
                f"::crucible::ptx::atom_{operation}<{type_}>({address}, {values})",
            )
        )
    return f"{{ {fence} {' '.join(out)} }}"


def _exists(operation: str, type_: str) -> bool:
    """Whether PTX has an atomic operation on a type."""
    names = {
        "and": "b32 b64", "or": "b32 b64", "xor": "b32 b64", "cas": "b16 b32 b64", "exch": "b32 b64", "inc": "u32",
        "dec": "u32", "add": "u32 s32 u64 f32 f64 f16 f16x2 bf16 bf16x2",
        "min": "u32 s32 u64 s64 f16 f16x2 bf16 bf16x2", "max": "u32 s32 u64 s64 f16 f16x2 bf16 bf16x2",
    }  # fmt: skip
    return type_ in names[operation].split()


def _copy(it: Instruction, found: re.Match[str]) -> str | None:
    """`cp.async [to], [from], size{, given}`; `given` may be a predicate that says to leave the source out."""
    operands = _without_policy(it, found[1])
    if len(operands) not in (3, 4):
        return None
    to, source, size = operands[:3]
    given = f"::crucible::ptx::copied({size}, {operands[3]})" if len(operands) > 3 else size
    return f"crucible_copy_async(::crucible::from_shared({to}), (const void*)({source}), {size}, {given});"


def _mbarrier(it: Instruction, found: re.Match[str]) -> str | None:
    """Arrivals and waits on a barrier object in shared memory."""
    operation, operands = found[1], it.operands
    at = 0 if operation in ("init", "inval", "expect_tx", "complete_tx") else 1
    sunk = operation.startswith("arrive") and len(operands) == 1 + ("expect_tx" in operation)
    at = 0 if sunk else at
    if len(operands) <= at:
        return None
    rest = "".join(f", ::crucible::ptx::as<uint32_t>({operand})" for operand in operands[at + 1 : at + 2])
    if operation in ("test_wait", "try_wait"):
        rest = rest if found[2] else f", ::crucible::ptx::phase_of({operands[2]})"
    address = f"::crucible::from_shared({operands[at]})" if found[3] else f"(char*)({operands[at]})"
    value = f"::crucible::mbarrier_{operation.replace('.', '_')}({address}{rest})"
    if operation.startswith(("arrive", "test", "try")):
        return put("_" if sunk else operands[0], value)
    return f"{value};"


def _copies_arrive(it: Instruction, found: re.Match[str]) -> str:
    """This thread's copies are done at once; without `noinc` the arrival was not counted on."""
    arrive = f"(void)::crucible::mbarrier_arrive({_pointer('shared' if found[2] else '', it.operands[0])});"
    return f"{{ crucible_copy_wait(0); {arrive if found[1] else ''} }}"


RULES: list[Rule] = [
    rule(rf"ld(?:\.(weak|volatile|relaxed|acquire))?{_SCOPE}{_SPACE}{_HINTS}{_VECTOR}{_TYPE}", _load),
    rule(rf"ldu()(?:\.(global))?(){_VECTOR}{_TYPE}", _load),
    rule(rf"st(?:\.(weak|volatile|relaxed|release))?{_SCOPE}{_SPACE}{_HINTS}{_VECTOR}{_TYPE}", _store),
    rule(
        rf"(atom|red)(?:\.(relaxed|acquire|release|acq_rel))?{_SCOPE}{_SPACE}"
        rf"\.(and|or|xor|cas|exch|add|inc|dec|min|max)(?:\.noftz)?((?:\.L2::\w+)?){_VECTOR}{_TYPE}",
        _atomic,
    ),
    rule(r"cp\.async\.c[ag]\.shared(?:::cta)?\.global((?:\.L2::\w+)*)", _copy),
    rule(r"cp\.async\.commit_group", lambda it, found: "crucible_copy_commit();"),
    rule(r"cp\.async\.wait_all", lambda it, found: "crucible_copy_wait(0);"),
    rule(r"cp\.async\.wait_group", lambda it, found: f"crucible_copy_wait({it.operands[0]});"),
    rule(r"cp\.async\.mbarrier\.arrive(\.noinc)?(\.shared(?:::cta)?)?\.b64", _copies_arrive),
    rule(
        r"mbarrier\.(init|inval|arrive|arrive_drop|arrive\.expect_tx|expect_tx|complete_tx|test_wait|try_wait)"
        r"(\.parity)?(?:\.(?:acquire|release|relaxed))?(?:\.cta)?(\.shared(?:::cta)?)?\.b64",
        _mbarrier,
    ),
    rule(r"(?:membar|fence)(?:\.\w+(?:::\w+)*)+", lambda it, found: "crucible_fence();"),
    rule(r"(?:prefetch|prefetchu|discard|applypriority|griddepcontrol)\..*", lambda it, found: ";"),
    rule(r"createpolicy\..*", lambda it, found: it.write("uint64_t(0)")),
]
