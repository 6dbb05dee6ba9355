"""Pieces of CUDA C++ for warpgroups beside those of `target.sm90`: products of matrices described to the tensor cores,
copies in bulk. Each instruction stands in a function of its own."""

from __future__ import annotations

import textwrap

from crucible.target import sm90

BARRIERS = (sm90.ADDRESS, sm90.MBARRIER_INIT, sm90.MBARRIER_ARRIVE, sm90.MBARRIER_WAIT, sm90.FENCE_PROXY_ASYNC)
BEGIN = (sm90.WGMMA_FENCE, sm90.WGMMA_COMMIT)
REGISTERS = (sm90.HELPERS["setmaxnreg_inc"], sm90.HELPERS["setmaxnreg_dec"])
DESCRIBE_APART = """\
// A matrix in shared memory: eights of rows of 16 bytes, `eight` x 16 bytes apart; what follows in a row is `unit` x 16
// further.
__device__ __forceinline__ unsigned long long make_smem_desc(const uint4* matrix, int unit, int eight) {
    return (address(matrix) & 0x3ffff) >> 4 | static_cast<unsigned long long>(unit) << 16
           | static_cast<unsigned long long>(eight) << 32;
}"""
MOVED_ON = """\
// A sum that takes the place of another, `none` being 0: said so, the compiler keeps all where they are.
__device__ __forceinline__ float moved_on(float sum, float to, unsigned none) {
    return __uint_as_float((__float_as_uint(to) & none) | __float_as_uint(sum));
}"""
COPY_IN = (sm90.MBARRIER_EXPECT_TX, sm90.BULK_COPY)
FETCH = """\
__device__ __forceinline__ void fetch(const void* from, int bytes) {  // to the L2 cache, for loads to come
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" :: "l"(from), "r"(bytes) : "memory");
}"""
_TYPES = {"tf32": ("tf32", 8, ""), "fp16": ("f16", 16, ", 0, 0"), "bf16": ("bf16", 16, ", 0, 0")}
"""Of a way of multiplying: PTX's type, K, and that both operands are K-major where it is to be said."""


def products(math: str, columns: int) -> tuple[str, str]:
    """The function that multiplies 64 rows by so many columns, and that which waits until that is done."""
    depth, count = _TYPES[math][1], columns // 2
    about = f"sums (+)= weights of 64 channels x {depth}, times inputs of {depth} x {columns} positions."
    return _product(math, multiply(math), about, ("weights", "inputs"), columns, count), _finish(count)


def products_of_positions(math: str, columns: int, held: int) -> tuple[str, str]:
    """The same of 64 positions and so many columns of weights, into the first of the `held` sums of a thread."""
    depth = _TYPES[math][1]
    about = f"first sums += inputs of 64 positions x {depth}, times weights of {depth} x {columns} columns."
    name = multiply_positions(math, columns)
    return _product(math, name, about, ("inputs", "weights"), columns, held), _finish(held)


def held_sums(count: int) -> str:
    """Functions for sums that stay from product to product. Moved on plainly, nvcc 13.0 keeps them in two places at
    once and runs one product after the other (C7511); written before products without `settle`, it waits within."""
    lines = [
        f"__device__ __forceinline__ void settle(float (&sums)[{count}]) {{  // what was written is there from here on",
        '    asm volatile(""',
        *_registers(count),
        '                 :: "memory");',
        "}",
    ]
    return "\n".join(lines)


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


def multiply_positions(math: str, columns: int) -> str:
    """The same, where positions are the rows."""
    return f"multiply_{math}_by_{columns}"


def _registers(count: int) -> list[str]:
    """All sums, as operands that are read and written."""
    lines = textwrap.wrap(", ".join(f'"+f"(sums[{i}])' for i in range(count)), 100)
    return [f"                 {' ' if i else ':'} {line}" for i, line in enumerate(lines)]
