"""Products of matrices described to the tensor cores, as benchmarks of single instructions call them. Each instruction
stands in a function of its own."""

from __future__ import annotations

import textwrap

from crucible.target import sm90

BEGIN = (sm90.WGMMA_FENCE, sm90.WGMMA_COMMIT)
_TYPES = {"tf32": ("tf32", 8, ""), "fp16": ("f16", 16, ", 0, 0"), "bf16": ("bf16", 16, ", 0, 0")}
"""Of a way of multiplying: PTX's type, K, and that both operands are K-major where it is to be said."""


def products(math: str, columns: int) -> tuple[str, str]:
    """The function that multiplies 64 rows by so many columns, and that which waits until that is done."""
    depth, count = _TYPES[math][1], columns // 2
    about = f"sums (+)= weights of 64 channels x {depth}, times inputs of {depth} x {columns} positions."
    return _product(math, multiply(math), about, ("weights", "inputs"), columns, count), _finish(count)


def _product(math: str, name: str, about: str, words: tuple[str, str], columns: int, held: int) -> str:
    type_, depth, order = _TYPES[math]
    count = columns // 2
    names = textwrap.wrap("{" + ", ".join(f"%{i}" for i in range(count)) + "}", 96)
    head = f"__device__ __forceinline__ void {name}("
    lines = [
        f"// {about}",
        f"{head}float (&sums)[{held}], unsigned long long {words[0]},",
        f"{' ' * len(head)}unsigned long long {words[1]}, bool adds) {{",
        '    asm volatile("{\\n"',
        '                 ".reg .pred adds;\\n"',
        f'                 "setp.ne.b32 adds, %{count + 2}, 0;\\n"',
        f'                 "wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.f32.{type_}.{type_} "',
        *[f'                 "{line}"' for line in names],
        f'                 ", %{count}, %{count + 1}, adds, 1, 1{order};\\n"',
        '                 "}"',
        *_registers(count),
        f'                 : "l"({words[0]}), "l"({words[1]}), "r"(static_cast<int>(adds)));',
        "}",
    ]
    return "\n".join(lines)


def _finish(count: int) -> str:
    lines = [
        f"__device__ __forceinline__ void finish_products(float (&sums)[{count}]) {{  // which are there from here on",
        '    asm volatile("wgmma.wait_group.sync.aligned 0;"',
        *_registers(count),
        '                 :: "memory");',
        "}",
    ]
    return "\n".join(lines)


def multiply(math: str) -> str:
    """The name of the function that multiplies."""
    return f"multiply_{math}"


def _registers(count: int) -> list[str]:
    """All sums, as operands that are read and written."""
    lines = textwrap.wrap(", ".join(f'"+f"(sums[{i}])' for i in range(count)), 100)
    return [f"                 {' ' if i else ':'} {line}" for i, line in enumerate(lines)]
