"""Device functions of compute capability 8.0 and above: numbers as tensor cores take them."""

from __future__ import annotations

ROUNDED = """\
__device__ __forceinline__ unsigned rounded(float value) {  // to TF32, to nearest: tensor cores would cut it off
    unsigned word;
#if __CUDA_ARCH__ >= 900  // one instruction where the other is three; they differ in ties alone
    asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(word) : "f"(value));
#else
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(value));
#endif
    return word;
}"""
RAW = """\
template <typename T>
__device__ __forceinline__ unsigned short raw(const T& half) {  // its bits
    return *reinterpret_cast<const unsigned short*>(&half);
}"""
CP_ASYNC = """\
__device__ __forceinline__ void cp_async(unsigned* to, const float* from, bool inside) {  // 0 where it is not
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :: "r"(static_cast<unsigned>(__cvta_generic_to_shared(to))), "l"(from), "r"(inside ? 4 : 0)
                 : "memory");
}"""
CP_ASYNC_UNIT = """\
__device__ __forceinline__ void cp_async_unit(uint4* to, const uint4* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :: "r"(static_cast<unsigned>(__cvta_generic_to_shared(to))), "l"(from)
                 : "memory");
}"""
CP_ASYNC_WAIT = """\
__device__ __forceinline__ void cp_async_wait() {  // for all of this thread
    asm volatile("cp.async.wait_all;" ::: "memory");
}"""
LDMATRIX_X4 = """\
__device__ __forceinline__ Pack<unsigned, 4> ldmatrix_x4(const unsigned* row) {  // four times 8 rows of 16 bytes
    Pack<unsigned, 4> a;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a.at[0]), "=r"(a.at[1]), "=r"(a.at[2]), "=r"(a.at[3])
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
                 : "memory");
    return a;
}"""
LDMATRIX_X2_TRANS = """\
__device__ __forceinline__ Pack<unsigned, 2> ldmatrix_x2_trans(const unsigned* row) {  // 16 rows of 8 halves, turned
    Pack<unsigned, 2> b;
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(b.at[0]), "=r"(b.at[1])
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
                 : "memory");
    return b;
}"""
_MMA = """\
// sum += a b: 16 rows by {depth} of the depth, times those by 8 columns
__device__ __forceinline__ void mma_{name}(float (&sum)[4], const Pack<unsigned, 4>& a, const Pack<unsigned, 2>& b) {{
    asm("mma.sync.aligned.m16n8k{depth}.row.col.f32.{type}.{type}.f32 "
        "{{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b.at[0]), "r"(b.at[1]));
}}"""
TF32_HIGH = """\
// A float32 as two of TF32: the nearest to it, and what is left of it. That has 12 bits, of which TF32 keeps 11:
// cut off or rounded, 2^-23 of the word may be lost.
__device__ __forceinline__ unsigned tf32_high(unsigned word) {
    return (word + 0x1000u) & 0xffffe000u;
}"""
TF32_REST = """\
__device__ __forceinline__ float tf32_rest(unsigned word) {  // what TF32 leaves of it
    return __uint_as_float(word) - __uint_as_float(tf32_high(word));
}"""
BF16_PAIR = """\
__device__ __forceinline__ unsigned bf16_pair(float first, float second) {  // the nearest to each, the first below
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}"""
BF16_NEAR_REST = """\
// Of a float32 the nearest bfloat16 and that to what TF32 leaves of it, in one word.
__device__ __forceinline__ unsigned bf16_near_rest(unsigned word) {
    return bf16_pair(__uint_as_float(word), tf32_rest(word));
}"""
BF16_REST_NEAR = """\
__device__ __forceinline__ unsigned bf16_rest_near(unsigned word) {  // the same the other way round
    return bf16_pair(tf32_rest(word), __uint_as_float(word));
}"""
OF_PACK = """\
template <int count>
__device__ __forceinline__ Pack<unsigned, count> {name}_of_pack(const Pack<unsigned, count>& words) {{
    Pack<unsigned, count> found;
#pragma unroll
    for (int i = 0; i < count; ++i) found.at[i] = {name}(words.at[i]);
    return found;
}}"""
MMA_FP32 = """\
// The same of words as two of TF32: the nearest to each, and what is left of it to 2^-23 of the word. Tensor cores cut
// sums off at each addition, the rest rounds them: so what they add up is never more than this.
__device__ __forceinline__ unsigned left(unsigned word) { return rounded(tf32_rest(word)); }
__device__ __forceinline__ void mma_fp32(float (&sum)[4], const Pack<unsigned, 4>& a, const Pack<unsigned, 2>& b) {
    const Pack<unsigned, 4> a_high = tf32_high_of_pack(a);
    const Pack<unsigned, 2> b_high = tf32_high_of_pack(b), b_low = {left(b.at[0]), left(b.at[1])};
    float part[4] = {};
    mma_tf32(part, {left(a.at[0]), left(a.at[1]), left(a.at[2]), left(a.at[3])}, b_high);
    mma_tf32(part, a_high, b_low);
    mma_tf32(part, a_high, b_high);
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] += part[i];
}"""
MMA_MIXED = """\
// The same of words as one of TF32, the nearest to each, and two bfloat16: the nearest to it, and to what TF32 leaves.
// In twice the depth those are both products of a word by what is left of the other.
__device__ __forceinline__ void mma_mixed(float (&sum)[4], const Pack<unsigned, 4>& a, const Pack<unsigned, 2>& b) {
    float part[4] = {};
    mma_bf16(part, bf16_rest_near_of_pack(a), bf16_near_rest_of_pack(b));
    mma_tf32(part, tf32_high_of_pack(a), tf32_high_of_pack(b));
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] += part[i];
}"""
LOAD_TILES = """\
template <int tiles>
__device__ __forceinline__ void load_tiles(Pack<unsigned, 2> (&b)[tiles], const unsigned* from,
                                           const int (&place)[(tiles + 1) / 2]) {
#pragma unroll
    for (int j = 0; j < tiles; j += 2) {
        const Pack<unsigned, 4> two = ldmatrix_x4(from + place[j / 2]);  // both halves of the depth, of two tiles
        b[j] = {two.at[0], two.at[1]};
        if (j + 1 < tiles) b[j + 1] = {two.at[2], two.at[3]};
    }
}"""
_MULTIPLY_TILES = """\
template <int rows, int columns>
__device__ __forceinline__ void multiply_tiles_{name}(float (&sums)[rows][columns][4], const unsigned* from,
                                                    const Pack<unsigned, 2> (&b)[columns]) {{
#pragma unroll
    for (int i = 0; i < rows; ++i) {{
        const Pack<unsigned, 4> a = *reinterpret_cast<const Pack<unsigned, 4>*>(from + i * 128);
#pragma unroll
        for (int j = 0; j < columns; ++j) mma_{name}(sums[i][j], a, b[j]);
    }}
}}"""
MATHS = ("tf32", "fp32", "mixed", "fp16", "bf16")
HELPERS = {
    "rounded": ROUNDED,
    "raw": RAW,
    "cp_async": CP_ASYNC,
    "cp_async_unit": CP_ASYNC_UNIT,
    "cp_async_wait": CP_ASYNC_WAIT,
    "ldmatrix_x4": LDMATRIX_X4,
    "ldmatrix_x2_trans": LDMATRIX_X2_TRANS,
    "mma_tf32": _MMA.format(name="tf32", depth=8, type="tf32"),
    "tf32_high": TF32_HIGH,
    "tf32_rest": TF32_REST,
    "bf16_pair": BF16_PAIR,
    "bf16_near_rest": BF16_NEAR_REST,
    "bf16_rest_near": BF16_REST_NEAR,
    **{f"{name}_of_pack": OF_PACK.format(name=name) for name in ("tf32_high", "bf16_near_rest", "bf16_rest_near")},
    "mma_fp32": MMA_FP32,
    "mma_fp16": _MMA.format(name="fp16", depth=16, type="f16"),
    "mma_bf16": _MMA.format(name="bf16", depth=16, type="bf16"),
    "mma_mixed": MMA_MIXED,
    "load_tiles": LOAD_TILES,
    **{f"multiply_tiles_{name}": _MULTIPLY_TILES.format(name=name) for name in MATHS},
}
"""By the word that calls for them."""
