"""Pieces of CUDA C++ that convolution kernels are put together from.

Tensor-core instructions stand in functions of their own. A word is 4 bytes: a float32, or two neighbouring channels of
a half type.
"""

from __future__ import annotations

from dataclasses import dataclass

from crucible.target.cuda import INCLUDES
from crucible.target.sm80 import RAW, ROUNDED

BITS = """\
__device__ __forceinline__ unsigned bits(float value) {
    return __float_as_uint(value);
}"""
_INSTRUCTION = """\
struct {name} {{  // what a word holds
    // sum += a b: 16 channels x {channels} of the input, times those x 8 positions
    static __device__ __forceinline__ void multiply(float (&sum)[4], const uint4& a, const unsigned (&b)[2]) {{
        asm("mma.sync.aligned.m16n8k{channels}.row.col.f32.{type}.{type}.f32 "
            "{{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};"
            : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
            : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b[0]), "r"(b[1]));
    }}
}};"""
_THREE = """\
struct Fp32 {  // a word as two of TF32: the nearest to it, and what is left of it to 2^-23 of the word
    static __device__ __forceinline__ unsigned high(unsigned word) { return (word + 0x1000u) & 0xffffe000u; }
    static __device__ __forceinline__ unsigned low(unsigned word) {
        return rounded(__uint_as_float(word) - __uint_as_float(high(word)));
    }
    // Tensor cores cut sums off at each addition, the rest rounds them: so what they add up is never more than this.
    static __device__ __forceinline__ void multiply(float (&sum)[4], const uint4& a, const unsigned (&b)[2]) {
        const uint4 a_high = {high(a.x), high(a.y), high(a.z), high(a.w)};
        const unsigned b_high[2] = {high(b[0]), high(b[1])}, b_low[2] = {low(b[0]), low(b[1])};
        float part[4] = {};
        Tf32::multiply(part, {low(a.x), low(a.y), low(a.z), low(a.w)}, b_high);
        Tf32::multiply(part, a_high, b_low);
        Tf32::multiply(part, a_high, b_high);
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[i] += part[i];
    }
};"""


def _instruction(name: str, channels: int, type_: str) -> str:
    return _INSTRUCTION.format(name=name, channels=channels, type=type_)


@dataclass(frozen=True)
class Words:
    """How numbers are multiplied."""

    name: str
    """Of the struct with `multiply`."""
    convert: str
    """Of the function from an element to what shared memory holds of it."""
    preamble: tuple[str, ...]
    about: str
    """In a kernel's description."""


_TF32 = _instruction("Tf32", 8, "tf32")
WORDS = {
    "tf32": Words("Tf32", "rounded", (ROUNDED, _TF32), "TF32 (rounded to nearest)"),
    "fp32": Words("Fp32", "bits", (ROUNDED, BITS, _TF32, _THREE), "fp32 as three products of TF32"),
    "fp16": Words("Fp16", "raw", (INCLUDES["float16"], RAW, _instruction("Fp16", 16, "f16")), "fp16"),
    "bf16": Words("Bf16", "raw", (INCLUDES["bfloat16"], RAW, _instruction("Bf16", 16, "bf16")), "bf16"),
}
ACCUMULATE = """\
template <typename Words, int m_tiles, int n_tiles>
__device__ __forceinline__ void accumulate(const unsigned* weights, const unsigned (&b)[n_tiles][2],
                                           float (&sums)[m_tiles][n_tiles][4]) {
#pragma unroll
    for (int i = 0; i < m_tiles; ++i) {
        const uint4 a = *reinterpret_cast<const uint4*>(weights + i * 128);
#pragma unroll
        for (int j = 0; j < n_tiles; ++j) Words::multiply(sums[i][j], a, b[j]);
    }
}"""
COPY_AHEAD = """\
__device__ __forceinline__ void copy_ahead(unsigned* to, const float* from, bool inside) {  // 0 where it is not
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :: "r"(static_cast<unsigned>(__cvta_generic_to_shared(to))), "l"(from), "r"(inside ? 4 : 0)
                 : "memory");
}
__device__ __forceinline__ void copy_ahead(uint4* to, const uint4* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :: "r"(static_cast<unsigned>(__cvta_generic_to_shared(to))), "l"(from)
                 : "memory");
}
__device__ __forceinline__ void wait_for_copies() {  // of this thread
    asm volatile("cp.async.wait_all;" ::: "memory");
}"""
LOAD_MATRIX = """\
__device__ __forceinline__ uint4 load_matrix(const unsigned* row) {  // four times 8 rows of 16 bytes
    uint4 a;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a.x), "=r"(a.y), "=r"(a.z), "=r"(a.w)
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
                 : "memory");
    return a;
}"""
READ = """\
template <int tiles>
__device__ __forceinline__ void read(const unsigned* halo, const int (&place)[(tiles + 1) / 2],
                                     unsigned (&b)[tiles][2]) {
#pragma unroll
    for (int j = 0; j + 1 < tiles; j += 2) {
        const uint4 two = load_matrix(halo + place[j / 2]);  // both units of channels, of two tiles
        b[j][0] = two.x, b[j][1] = two.y, b[j + 1][0] = two.z, b[j + 1][1] = two.w;
    }
    if constexpr (tiles % 2) {
        const uint4 one = load_matrix(halo + place[tiles / 2]);
        b[tiles - 1][0] = one.x, b[tiles - 1][1] = one.y;
    }
}"""
