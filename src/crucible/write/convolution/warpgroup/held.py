"""Products of matrices whose rows registers hold, times what is described to the tensor cores."""

from __future__ import annotations

import textwrap

_TYPES = {"tf32": ("tf32", 8, ""), "fp16": ("f16", 16, ", 0"), "bf16": ("bf16", 16, ", 0")}
"""Of a way of multiplying: PTX's type, K, and that what is described is K-major where it is to be said."""
FINISH = "finish_held_products"
"""The name of the function that waits for products."""


def multiply_held(math: str) -> str:
    """The name of the function that multiplies."""
    return f"multiply_held_{math}"


def held_products(math: str, columns: int, chunks: int) -> tuple[str, str]:
    """The function that multiplies 64 rows, of which a warp's are in its registers, by so many columns, and that which
    waits until that is done for so many sums."""
    type_, depth, order = _TYPES[math]
    count = columns // 2
    names = textwrap.wrap("{" + ", ".join(f"%{i}" for i in range(count)) + "}", 96)
    head = f"__device__ __forceinline__ void {multiply_held(math)}("
    words = ", ".join(f"%{count + i}" for i in range(4))
    lines = [
        f"// sums (+)= 64 rows x {depth}, as mma.sync has them, times {depth} x {columns} in shared memory.",
        f"{head}float (&sums)[{count}], unsigned a0, unsigned a1, unsigned a2, unsigned a3,",
        f"{' ' * len(head)}unsigned long long columns, bool adds) {{",
        '    asm volatile("{\\n"',
        '                 ".reg .pred adds;\\n"',
        f'                 "setp.ne.b32 adds, %{count + 5}, 0;\\n"',
        f'                 "wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.f32.{type_}.{type_} "',
        *[f'                 "{line}"' for line in names],
        f'                 ", {{{words}}}, %{count + 4}, adds, 1, 1{order};\\n"',
        '                 "}"',
        *_sums([f"sums[{i}]" for i in range(count)]),
        '                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(columns), "r"(static_cast<int>(adds)));',
        "}",
    ]
    wait = [
        f"__device__ __forceinline__ void {FINISH}(float (&sums)[{chunks}][{count}]) {{  // which are there behind it",
        '    asm volatile("wgmma.wait_group.sync.aligned 0;"',
        *_sums([f"sums[{c}][{i}]" for c in range(chunks) for i in range(count)]),
        '                 :: "memory");',
        "}",
    ]
    return "\n".join(lines), "\n".join(wait)


def _sums(each: list[str]) -> list[str]:
    """As operands that are read and written."""
    lines = textwrap.wrap(", ".join(f'"+f"({one})' for one in each), 100)
    return [f"                 {' ' if i else ':'} {line}" for i, line in enumerate(lines)]
