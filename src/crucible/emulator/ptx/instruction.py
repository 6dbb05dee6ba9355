"""A PTX instruction read from text, and the C++ by which its registers are read and written."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

Operand = str | list[str]
"""A C++ expression; several for `{a, b}` and `p|q`."""

REGISTERS = {
    **dict.fromkeys(("r", "b32", "u32", "s32", "f16x2", "bf16x2"), "uint32_t"),
    **dict.fromkeys(("l", "b64", "u64", "s64"), "uint64_t"),
    **dict.fromkeys(("h", "b16", "u16", "s16", "f16", "bf16", "b8", "u8", "s8"), "uint16_t"),
    **dict.fromkeys(("f", "f32"), "float"),
    **dict.fromkeys(("d", "f64"), "double"),
    **dict.fromkeys(("n", "C"), "auto"),
    "pred": "bool",
}
"""C++ type of a register, by its PTX type or by the constraint of an operand."""

TYPES = {
    "b8": "uint8_t", "u8": "uint8_t", "s8": "int8_t", "b16": "uint16_t", "u16": "uint16_t", "s16": "int16_t",
    "b32": "uint32_t", "u32": "uint32_t", "s32": "int32_t", "b64": "uint64_t", "u64": "uint64_t", "s64": "int64_t",
    "f32": "float", "f64": "double", "f16": "__half", "f16x2": "__half2", "bf16": "__nv_bfloat16",
    "bf16x2": "__nv_bfloat162", "pred": "bool",
}  # fmt: skip
"""C++ type in which an instruction of a PTX type reckons."""

WIDE = {"u16": "uint32_t", "s16": "int32_t", "u32": "uint64_t", "s32": "int64_t"}


@dataclass(frozen=True)
class Instruction:
    """Its full name, `add.rn.f32`, and its operands."""

    name: str
    operands: tuple[Operand, ...]

    def read(self, at: int, type_: str, *, flushed: bool = False) -> str:
        """C++ for an operand as a value of a C++ type."""
        value = f"::crucible::ptx::as<{type_}>({self.operands[at]})"
        return f"::crucible::ptx::flushed({value})" if flushed else value

    def write(self, value: str, at: int = 0) -> str:
        """C++ that puts a value into an operand."""
        return put(self.operands[at], value)

    def reads(self, type_: str, count: int, *, flushed: bool = False) -> str | None:
        """The `count` operands behind the first, with commas between; None when there are more or fewer."""
        if len(self.operands) != count + 1 or any(isinstance(operand, list) for operand in self.operands):
            return None
        return ", ".join(self.read(at, type_, flushed=flushed) for at in range(1, count + 1))


Rule = tuple[re.Pattern[str], Callable[[Instruction, re.Match[str]], str | None]]


def rule(pattern: str, meaning: Callable[[Instruction, re.Match[str]], str | None]) -> Rule:
    """A pattern of whole names and what gives the C++; None from it where the operands are not as they should be."""
    return re.compile(pattern), meaning


def put(operand: Operand, value: str) -> str:
    """C++ that puts a value into a register, or only computes it for `_`."""
    return f"(void)({value});" if operand == "_" else f"::crucible::ptx::set({operand}, {value});"


def several(operand: Operand) -> list[str]:
    """The registers of a vector, or the one register."""
    return operand if isinstance(operand, list) else [operand]
