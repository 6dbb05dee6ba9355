"""PTX of Hopper's warpgroups: products of matrices in shared memory, fences between proxies, copies in bulk."""

from __future__ import annotations

import re

from crucible.emulator.ptx.instruction import Instruction, Rule, put, rule, several

_ELEMENTS = {"f16": ("F16", 16), "bf16": ("Bf16", 16), "tf32": ("Tf32", 8)}
"""The emulator's name and K."""


def _multiply(it: Instruction, found: re.Match[str]) -> str | None:
    """`wgmma.mma_async ... {d}, a, b, adds, 1, 1`, not negated: b described, a so or in four registers; of half types
    what is described is said to be K-major."""
    columns, depth, of, other = int(found[1]), int(found[2]), found[3], found[4]
    element, wanted = _ELEMENTS[of]
    d, *rest = it.operands
    in_registers = isinstance(rest[0], list)
    majors = [] if of == "tf32" else ["0"] if in_registers else ["0", "0"]
    if of != other or depth != wanted or columns % 8 or columns > 256 or rest[3:] != ["1", "1", *majors]:
        return None
    registers, (a, b, adds) = several(d), rest[:3]
    if len(registers) != columns // 2 or isinstance(b, list) or (in_registers and len(a) != 4):
        return None
    fill = " ".join(f"crucible_d[{i}] = {one};" for i, one in enumerate(registers))
    if in_registers:
        words = ", ".join(f"::crucible::ptx::as<uint32_t>({one})" for one in a)
        fill, a = f"{fill} const uint32_t crucible_a[4] = {{{words}}};", "crucible_a"
    call = f"::crucible::wgmma<{columns}, {depth}, ::crucible::{element}>(crucible_d, {a}, {b}, bool({adds}));"
    out = " ".join(put(one, f"crucible_d[{i}]") for i, one in enumerate(registers))
    return f"{{ float crucible_d[{len(registers)}]; {fill} {call} {out} }}"


def _copy_out(it: Instruction, found: re.Match[str]) -> str | None:
    if len(it.operands) != 3:
        return None
    to, source, size = it.operands
    return f"crucible_bulk_store((void*)({to}), ::crucible::from_shared({source}), {size});"


def _copy_in(it: Instruction, found: re.Match[str]) -> str | None:
    if len(it.operands) != 4:
        return None
    to, source, size, barrier = it.operands
    places = f"::crucible::from_shared({to}), (const void*)({source}), {size}, ::crucible::from_shared({barrier})"
    return f"crucible_bulk_load({places});"


RULES: list[Rule] = [
    rule(r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k(\d+)\.f32\.(f16|bf16|tf32)\.(f16|bf16|tf32)", _multiply),
    rule(r"(?:wgmma\.fence|setmaxnreg\.(?:inc|dec))\.sync\.aligned(?:\.u32)?", lambda it, found: "::crucible::meet();"),
    rule(r"wgmma\.commit_group\.sync\.aligned", lambda it, found: "crucible_products_commit();"),
    rule(
        r"wgmma\.wait_group\.sync\.aligned",
        lambda it, found: f"::crucible::meet(); crucible_products_wait({it.operands[0]});",
    ),
    rule(r"fence\.proxy\.async(?:\.shared::cta)?", lambda it, found: "crucible_fence(); crucible_proxy_fence();"),
    rule(r"cp\.async\.bulk\.global\.shared::cta\.bulk_group", _copy_out),
    rule(r"cp\.async\.bulk\.shared::(?:cta|cluster)\.global\.mbarrier::complete_tx::bytes", _copy_in),
    rule(r"cp\.async\.bulk\.prefetch\.L2\.global", lambda it, found: ";" if len(it.operands) == 2 else None),
    rule(r"cp\.async\.bulk\.commit_group", lambda it, found: "crucible_bulk_commit();"),
    rule(r"cp\.async\.bulk\.wait_group(?:\.read)?", lambda it, found: f"crucible_bulk_wait({it.operands[0]});"),
]
