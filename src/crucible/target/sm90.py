"""Device functions of compute capability 9.0: barriers of pipelines, warpgroups that take registers from each other,
products of tensor cores. Each instruction stands in a function of its own."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence
from typing import Literal

from crucible.target.sm80 import OF_PACK

ARCHITECTURE = "sm_90a"
ADDRESS = """\
__device__ __forceinline__ unsigned address(const void* place) {  // in shared memory
    return static_cast<unsigned>(__cvta_generic_to_shared(place));
}"""
MBARRIER_INIT = """\
__device__ __forceinline__ void mbarrier_init(unsigned long long* barrier, int threads) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(address(barrier)), "r"(threads) : "memory");
}"""
MBARRIER_ARRIVE = """\
__device__ __forceinline__ void mbarrier_arrive(unsigned long long* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(address(barrier)) : "memory");
}"""
MBARRIER_WAIT = """\
__device__ __forceinline__ void mbarrier_wait(unsigned long long* barrier, int parity) {  // until that phase is over
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
MBARRIER_EXPECT_TX = """\
__device__ __forceinline__ void mbarrier_expect_tx(unsigned long long* barrier, int bytes) {  // in its phase
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :: "r"(address(barrier)), "r"(bytes)
                 : "memory");
}"""
BULK_COPY = """\
__device__ __forceinline__ void bulk_copy(void* to, const void* from, int bytes, unsigned long long* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :: "r"(address(to)), "l"(from), "r"(bytes), "r"(address(barrier))
                 : "memory");
}"""
PREFETCH = """\
__device__ __forceinline__ void prefetch(const void* from, int bytes) {  // to the L2 cache, for loads to come
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" :: "l"(from), "r"(bytes) : "memory");
}"""
PREFETCH_LINE = """\
__device__ __forceinline__ void prefetch_line(const void* from) {  // to the L2 cache, for loads to come
    asm volatile("prefetch.global.L2 [%0];" :: "l"(from));
}"""
FENCE_PROXY_ASYNC = """\
__device__ __forceinline__ void fence_proxy_async() {  // what was stored in shared memory is there for tensor cores
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}"""
SETMAXNREG = """\
template <int count>
__device__ __forceinline__ void setmaxnreg_{word}() {{  // each thread of a warpgroup {about}
    asm volatile("setmaxnreg.{word}.sync.aligned.u32 %0;" :: "n"(count));
}}"""
TF32_LOW = """\
__device__ __forceinline__ unsigned tf32_low(unsigned word) {
    return __float_as_uint(__uint_as_float(word) - __uint_as_float(tf32_high(word))) & 0xffffe000u;
}"""
BF16_HIGH = """\
__device__ __forceinline__ unsigned bf16_high(unsigned first, unsigned second) {
    return bf16_pair(__uint_as_float(first), __uint_as_float(second));
}"""
BF16_LOW = """\
__device__ __forceinline__ unsigned bf16_low(unsigned first, unsigned second) {
    return bf16_pair(tf32_rest(first), tf32_rest(second));
}"""
BF16_OF_PACKS = """\
template <int count>
__device__ __forceinline__ Pack<unsigned, count> bf16_{word}_of_packs(const Pack<unsigned, count>& first,
                                                                      const Pack<unsigned, count>& second) {{
    Pack<unsigned, count> found;
#pragma unroll
    for (int i = 0; i < count; ++i) found.at[i] = bf16_{word}(first.at[i], second.at[i]);
    return found;
}}"""
LARGEST_FINITE = """\
template <int count>
__device__ __forceinline__ float largest_finite(const Pack<unsigned, count>& words, float largest) {  // of magnitudes
    unsigned found = __float_as_uint(largest);
#pragma unroll
    for (int i = 0; i < count; ++i) {
        const unsigned size = words.at[i] & 0x7fffffffu;
        found = size < 0x7f800000u && size > found ? size : found;
    }
    return __uint_as_float(found);
}"""
FP16_SCALE = """\
// The power of two by which the largest of what all these threads found is 2^14 and more, below 2^15.
template <int number, int warps>
__device__ __forceinline__ float fp16_scale(float largest, float* of_warps, int thread) {
    unsigned found = __reduce_max_sync(0xffffffffu, __float_as_uint(largest));
    if (thread % 32 == 0) of_warps[thread / 32] = __uint_as_float(found);
    together<number, warps * 32>();
#pragma unroll
    for (int warp = 0; warp < warps; ++warp) found = max(found, __float_as_uint(of_warps[warp]));
    return __uint_as_float(min(268u - (found >> 23), 253u) << 23);
}"""
FP16_HIGH_OF_PACK = """\
template <int count>  // the nearest fp16 to each times the scale, two to a word
__device__ __forceinline__ Pack<unsigned, count / 2> fp16_high_of_pack(const Pack<unsigned, count>& words,
                                                                       float scale) {
    Pack<unsigned, count / 2> found;
#pragma unroll
    for (int i = 0; i < count / 2; ++i) {
        const __half2 pair = __floats2half2_rn(__uint_as_float(words.at[2 * i]) * scale,
                                               __uint_as_float(words.at[2 * i + 1]) * scale);
        found.at[i] = reinterpret_cast<const unsigned&>(pair);
    }
    return found;
}"""
FP16_LOW_OF_PACK = """\
template <int count>  // the nearest fp16 to what that leaves
__device__ __forceinline__ Pack<unsigned, count / 2> fp16_low_of_pack(const Pack<unsigned, count>& words,
                                                                      float scale) {
    const Pack<unsigned, count / 2> high = fp16_high_of_pack(words, scale);
    Pack<unsigned, count / 2> found;
#pragma unroll
    for (int i = 0; i < count / 2; ++i) {
        const float2 near = __half22float2(reinterpret_cast<const __half2&>(high.at[i]));
        const __half2 pair = __floats2half2_rn(__uint_as_float(words.at[2 * i]) * scale - near.x,
                                               __uint_as_float(words.at[2 * i + 1]) * scale - near.y);
        found.at[i] = reinterpret_cast<const unsigned&>(pair);
    }
    return found;
}"""
SETTLED = """\
__device__ __forceinline__ unsigned settled(unsigned word) {  // which is there from here on
    asm volatile("" : "+r"(word));
    return word;
}"""
MAKE_SMEM_DESC = """\
// A matrix in shared memory: eights of rows of 16 bytes, 128 bytes apart; chunks of rows are `pitch` x 16 apart.
__device__ __forceinline__ unsigned long long make_smem_desc(const void* matrix, int pitch) {
    return (address(matrix) & 0x3ffff) >> 4 | static_cast<unsigned long long>(pitch) << 16 | 8ull << 32;
}"""
MAKE_SMEM_DESC_APART = """\
// The same where eights of rows are `eight` x 16 bytes apart.
__device__ __forceinline__ unsigned long long make_smem_desc_apart(const void* matrix, int pitch, int eight) {
    return (address(matrix) & 0x3ffff) >> 4 | static_cast<unsigned long long>(pitch) << 16
           | static_cast<unsigned long long>(eight) << 32;
}"""
MOVED_ON = """\
// A sum that takes the place of another, `none` being 0: said so, the compiler keeps all where they are.
__device__ __forceinline__ float moved_on(float sum, float to, unsigned none) {
    return __uint_as_float((__float_as_uint(to) & none) | __float_as_uint(sum));
}"""
WGMMA_FENCE = """\
__device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}"""
WGMMA_COMMIT = """\
__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}"""
TOGETHER = """\
template <int number, int threads>
__device__ __forceinline__ void together() {  // when all of so many threads are here
    asm volatile("bar.sync %0, %1;" :: "n"(number), "n"(threads) : "memory");
}"""
TEAM_TOGETHER = """\
__device__ __forceinline__ void team_together(int team) {  // all of a warpgroup
    asm volatile("bar.sync %0, 128;" :: "r"(team + 1) : "memory");
}"""
HELPERS = {
    "address": ADDRESS,
    "mbarrier_init": MBARRIER_INIT,
    "mbarrier_arrive": MBARRIER_ARRIVE,
    "mbarrier_wait": MBARRIER_WAIT,
    "mbarrier_expect_tx": MBARRIER_EXPECT_TX,
    "bulk_copy": BULK_COPY,
    "prefetch": PREFETCH,
    "prefetch_line": PREFETCH_LINE,
    "fence_proxy_async": FENCE_PROXY_ASYNC,
    "setmaxnreg_inc": SETMAXNREG.format(word="inc", about="so many registers: what another one gave"),
    "setmaxnreg_dec": SETMAXNREG.format(word="dec", about="all registers but so many"),
    "tf32_low": TF32_LOW,
    "tf32_low_of_pack": OF_PACK.format(name="tf32_low"),
    "bf16_high": BF16_HIGH,
    "bf16_low": BF16_LOW,
    "bf16_high_of_packs": BF16_OF_PACKS.format(word="high"),
    "bf16_low_of_packs": BF16_OF_PACKS.format(word="low"),
    "settled": SETTLED,
    "make_smem_desc": MAKE_SMEM_DESC,
    "make_smem_desc_apart": MAKE_SMEM_DESC_APART,
    "moved_on": MOVED_ON,
    "wgmma_fence": WGMMA_FENCE,
    "wgmma_commit": WGMMA_COMMIT,
    "together": TOGETHER,
    "largest_finite": LARGEST_FINITE,
    "fp16_scale": FP16_SCALE,
    "fp16_high_of_pack": FP16_HIGH_OF_PACK,
    "fp16_low_of_pack": FP16_LOW_OF_PACK,
    "team_together": TEAM_TOGETHER,
}
"""By the word that calls for them, each behind those that it calls."""


_DEPTHS = {"tf32": (8, ""), "f16": (16, ", 0"), "bf16": (16, ", 0")}
"""Of PTX's types: K of an instruction, and that an operand is K-major where it is to be said."""


def wgmma(
    columns: int, type_: str = "tf32", rows: Literal["held", "described"] = "held", held: int = 0
) -> dict[str, str]:  # fmt: skip
    """The function that multiplies 64 rows, which registers hold or shared memory, by so many columns in shared memory,
    and the one that waits until that is done; by their names. Sums are all that a thread holds, or the first ones."""
    count, (depth, major) = columns // 2, _DEPTHS[type_]
    held = held or count
    name = f"wgmma_m64n{columns}k{depth}_{type_}"
    head = f"__device__ __forceinline__ void {name}("
    sums = textwrap.wrap("{" + ", ".join(f"%{i}" for i in range(count)) + "}", 96)
    about, given, where, last = " times", "unsigned long long rows", f"%{count}", count
    registers = ['                 : "l"(rows), "l"(columns), "r"(static_cast<int>(adds)));']
    if rows == "held":
        about, given, last = ", as mma.sync has them, times", "const unsigned (&rows)[4]", count + 3
        where = f"{{{', '.join(f'%{i}' for i in range(count, count + 4))}}}"
        registers = [
            '                 : "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]), "l"(columns),',
            '                   "r"(static_cast<int>(adds)));',
        ]
    majors = major if rows == "held" else major * 2
    multiply = [
        f"// {'first ' * (held > count)}sums (+)= 64 rows x {depth}{about} {depth} x {columns} in shared memory.",
        f"{head}float (&sums)[{held}], {given},",
        f"{' ' * len(head)}unsigned long long columns, bool adds) {{",
        '    asm volatile("{\\n"',
        '                 ".reg .pred adds;\\n"',
        f'                 "setp.ne.b32 adds, %{last + 2}, 0;\\n"',
        f'                 "wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.f32.{type_}.{type_} "',
        *[f'                 "{line}"' for line in sums],
        f'                 ", {where}, %{last + 1}, adds, 1, 1{majors};\\n"',
        '                 "}"',
        *_operands((count,)),
        *registers,
        "}",
    ]
    return {name: "\n".join(multiply), "wgmma_wait": wgmma_wait((held,))}


def settle(sizes: Sequence[int]) -> str:
    """The function behind which sums of these sizes are what was written. Moved on plainly, nvcc 13.0 keeps them in two
    places at once."""
    lines = [
        f"__device__ __forceinline__ void settle(float (&sums){_places(sizes)}) {{  // those written are there",
        '    asm volatile(""',
        *_operands(sizes),
        '                 :: "memory");',
        "}",
    ]
    return "\n".join(lines)


def wgmma_wait(sizes: Sequence[int]) -> str:
    """The function that waits for all products of sums of these sizes."""
    wait = [
        f"__device__ __forceinline__ void wgmma_wait(float (&sums){_places(sizes)}) {{  // which are there behind it",
        '    asm volatile("wgmma.wait_group.sync.aligned 0;"',
        *_operands(sizes),
        '                 :: "memory");',
        "}",
    ]
    return "\n".join(wait)


def _places(at: Sequence[int]) -> str:
    return "".join(f"[{each}]" for each in at)


def _operands(sizes: Sequence[int]) -> list[str]:
    """Sums that are read and written."""
    every = itertools.product(*map(range, sizes))
    lines = textwrap.wrap(", ".join(f'"+f"(sums{_places(at)})' for at in every), 100)
    return [f"                 {' ' if i else ':'} {line}" for i, line in enumerate(lines)]
