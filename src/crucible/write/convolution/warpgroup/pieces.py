"""Pieces of CUDA C++ for warpgroups: barriers in shared memory, products of matrices described to the tensor cores,
copies in bulk. Each instruction stands in a function of its own."""

from __future__ import annotations

import textwrap

ADDRESS = """\
__device__ __forceinline__ unsigned address(const void* place) {  // in shared memory
    return static_cast<unsigned>(__cvta_generic_to_shared(place));
}"""
BARRIERS = """\
__device__ __forceinline__ void prepare(unsigned long long* barrier, int threads) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(address(barrier)), "r"(threads) : "memory");
}
__device__ __forceinline__ void arrive(unsigned long long* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(address(barrier)) : "memory");
}
__device__ __forceinline__ void wait(unsigned long long* barrier, int parity) {  // until the phase of it is over
    unsigned over;
    do {
        asm volatile("{\\n"
                     ".reg .pred over;\\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;\\n"
                     "selp.b32 %0, 1, 0, over;\\n"
                     "}"
                     : "=r"(over)
                     : "r"(address(barrier)), "r"(parity)
                     : "memory");
    } while (!over);
}"""
PUBLISH = """\
__device__ __forceinline__ void publish() {  // what was written to shared memory, to tensor cores and bulk copies
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}"""
HIGHER_AND_LOWER = """\
// A float32 as two of TF32: the nearest to it, and what is left of it. That has 12 bits, of which TF32 keeps 11:
// cut off or rounded, 2^-23 of the word may be lost.
__device__ __forceinline__ unsigned higher(unsigned word) {
    return (word + 0x1000u) & 0xffffe000u;
}
__device__ __forceinline__ unsigned lower(unsigned word) {
    return __float_as_uint(__uint_as_float(word) - __uint_as_float(higher(word))) & 0xffffe000u;
}
__device__ __forceinline__ uint4 higher(const uint4& word) {
    return {higher(word.x), higher(word.y), higher(word.z), higher(word.w)};
}
__device__ __forceinline__ uint4 lower(const uint4& word) {
    return {lower(word.x), lower(word.y), lower(word.z), lower(word.w)};
}"""
SETTLED = """\
__device__ __forceinline__ unsigned settled(unsigned word) {  // which is there from here on
    asm volatile("" : "+r"(word));
    return word;
}"""
"""For what products take from registers where it is computed of other such words: nvcc 13.0 did so between products,
and ran one after the other (C7520)."""
DESCRIBE = """\
// A matrix in shared memory: eights of rows of 16 bytes, 128 bytes apart; what follows in a row is `unit` x 16 further.
__device__ __forceinline__ unsigned long long describe(const uint4* matrix, int unit) {
    return (address(matrix) & 0x3ffff) >> 4 | static_cast<unsigned long long>(unit) << 16 | 8ull << 32;
}"""
DESCRIBE_APART = """\
// The same, of eights of rows that are `eight` x 16 bytes apart.
__device__ __forceinline__ unsigned long long describe(const uint4* matrix, int unit, int eight) {
    return (address(matrix) & 0x3ffff) >> 4 | static_cast<unsigned long long>(unit) << 16
           | static_cast<unsigned long long>(eight) << 32;
}"""
MOVED_ON = """\
// A sum that takes the place of another, `none` being 0: said so, the compiler keeps all where they are.
__device__ __forceinline__ float moved_on(float sum, float to, unsigned none) {
    return __uint_as_float((__float_as_uint(to) & none) | __float_as_uint(sum));
}"""
BEGIN = """\
__device__ __forceinline__ void begin_products() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void commit_products() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}"""
COPY_IN = """\
__device__ __forceinline__ void expect(unsigned long long* barrier, int bytes) {  // to come until its phase is over
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :: "r"(address(barrier)), "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void copy_in(void* to, const void* from, int bytes, unsigned long long* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :: "r"(address(to)), "l"(from), "r"(bytes), "r"(address(barrier))
                 : "memory");
}"""
FETCH = """\
__device__ __forceinline__ void fetch(const void* from, int bytes) {  // to the L2 cache, for loads to come
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" :: "l"(from), "r"(bytes) : "memory");
}"""
TOGETHER = """\
template <int number, int threads>
__device__ __forceinline__ void together() {  // when all of so many threads are here
    asm volatile("bar.sync %0, %1;" :: "n"(number), "n"(threads) : "memory");
}
__device__ __forceinline__ void team_together(int team) {  // all of a warpgroup
    asm volatile("bar.sync %0, 128;" :: "r"(team + 1) : "memory");
}"""
REGISTERS = """\
template <int count>
__device__ __forceinline__ void take_registers() {  // each thread of a warpgroup so many: what another one gave
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(count));
}
template <int count>
__device__ __forceinline__ void leave_registers() {  // each thread of a warpgroup all but so many
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(count));
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
