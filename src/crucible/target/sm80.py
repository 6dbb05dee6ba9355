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
HELPERS = {"rounded": ROUNDED, "raw": RAW}
"""By the word that calls for them."""
