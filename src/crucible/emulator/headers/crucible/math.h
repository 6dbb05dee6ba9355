// Device functions of CUDA's math library: the exact ones where CUDA's are approximate.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "vectors.h"

#define CRUCIBLE_MATH inline __attribute__((always_inline))
using std::isfinite;
using std::isinf;
using std::isnan;
using std::signbit;

#define CRUCIBLE_MINMAX(T)                                                       \
    CRUCIBLE_MATH T min(T a, T b) { return b < a ? b : a; }                      \
    CRUCIBLE_MATH T max(T a, T b) { return a < b ? b : a; }
CRUCIBLE_MINMAX(int)
CRUCIBLE_MINMAX(unsigned int)
CRUCIBLE_MINMAX(long)
CRUCIBLE_MINMAX(unsigned long)
CRUCIBLE_MINMAX(long long)
CRUCIBLE_MINMAX(unsigned long long)
CRUCIBLE_MATH float min(float a, float b) { return ::fminf(a, b); }
CRUCIBLE_MATH float max(float a, float b) { return ::fmaxf(a, b); }
CRUCIBLE_MATH double min(double a, double b) { return ::fmin(a, b); }
CRUCIBLE_MATH double max(double a, double b) { return ::fmax(a, b); }
CRUCIBLE_MATH double min(float a, double b) { return ::fmin(double(a), b); }
CRUCIBLE_MATH double min(double a, float b) { return ::fmin(a, double(b)); }
CRUCIBLE_MATH double max(float a, double b) { return ::fmax(double(a), b); }
CRUCIBLE_MATH double max(double a, float b) { return ::fmax(a, double(b)); }
#define CRUCIBLE_MIXED(A, B, C)                                                  \
    CRUCIBLE_MATH C min(A a, B b) { return min(static_cast<C>(a), static_cast<C>(b)); }                    \
    CRUCIBLE_MATH C min(B a, A b) { return min(static_cast<C>(a), static_cast<C>(b)); }                    \
    CRUCIBLE_MATH C max(A a, B b) { return max(static_cast<C>(a), static_cast<C>(b)); }                    \
    CRUCIBLE_MATH C max(B a, A b) { return max(static_cast<C>(a), static_cast<C>(b)); }
CRUCIBLE_MIXED(int, unsigned int, unsigned int)
CRUCIBLE_MIXED(int, long, long)
CRUCIBLE_MIXED(int, unsigned long, unsigned long)
CRUCIBLE_MIXED(int, long long, long long)
CRUCIBLE_MIXED(int, unsigned long long, unsigned long long)
CRUCIBLE_MIXED(long, unsigned long, unsigned long)
CRUCIBLE_MIXED(unsigned int, long, long)
CRUCIBLE_MIXED(unsigned int, unsigned long, unsigned long)
CRUCIBLE_MIXED(long, long long, long long)
CRUCIBLE_MIXED(long long, unsigned long long, unsigned long long)
CRUCIBLE_MIXED(int, float, float)
CRUCIBLE_MIXED(int, double, double)

template <class To, class From>
CRUCIBLE_MATH To crucible_bits(From v) {
    static_assert(sizeof(To) == sizeof(From));
    return __builtin_bit_cast(To, v);
}
CRUCIBLE_MATH int __float_as_int(float v) { return crucible_bits<int>(v); }
CRUCIBLE_MATH unsigned __float_as_uint(float v) { return crucible_bits<unsigned>(v); }
CRUCIBLE_MATH float __int_as_float(int v) { return crucible_bits<float>(v); }
CRUCIBLE_MATH float __uint_as_float(unsigned v) { return crucible_bits<float>(v); }
CRUCIBLE_MATH long long __double_as_longlong(double v) { return crucible_bits<long long>(v); }
CRUCIBLE_MATH double __longlong_as_double(long long v) { return crucible_bits<double>(v); }
CRUCIBLE_MATH int __double2hiint(double v) { return int(__double_as_longlong(v) >> 32); }
CRUCIBLE_MATH int __double2loint(double v) { return int(__double_as_longlong(v)); }
CRUCIBLE_MATH double __hiloint2double(int hi, int lo) { return __longlong_as_double((long long)(hi) << 32 | unsigned(lo)); }

#define CRUCIBLE_FAST(NAME, EXPRESSION) CRUCIBLE_MATH float NAME(float x) { return EXPRESSION; }
CRUCIBLE_FAST(__expf, ::expf(x))
CRUCIBLE_FAST(__exp10f, ::exp10f(x))
CRUCIBLE_FAST(__logf, ::logf(x))
CRUCIBLE_FAST(__log2f, ::log2f(x))
CRUCIBLE_FAST(__log10f, ::log10f(x))
CRUCIBLE_FAST(__sinf, ::sinf(x))
CRUCIBLE_FAST(__cosf, ::cosf(x))
CRUCIBLE_FAST(__tanf, ::tanf(x))
CRUCIBLE_FAST(__saturatef, x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f)
CRUCIBLE_FAST(__frcp_rn, 1.0f / x)
CRUCIBLE_FAST(__frcp_rz, 1.0f / x)
CRUCIBLE_FAST(__fsqrt_rn, ::sqrtf(x))
CRUCIBLE_FAST(__fsqrt_rz, ::sqrtf(x))
CRUCIBLE_FAST(__frsqrt_rn, 1.0f / ::sqrtf(x))
CRUCIBLE_FAST(rsqrtf, 1.0f / ::sqrtf(x))
CRUCIBLE_FAST(rcbrtf, 1.0f / ::cbrtf(x))
CRUCIBLE_FAST(sinpif, ::sinf(3.14159265358979f * x))
CRUCIBLE_FAST(cospif, ::cosf(3.14159265358979f * x))
CRUCIBLE_FAST(normcdff, 0.5f * ::erfcf(-0.70710678118654752f * x))
CRUCIBLE_FAST(__tanhf, ::tanhf(x))
CRUCIBLE_MATH float rsqrt(float x) { return 1.0f / ::sqrtf(x); }
CRUCIBLE_MATH double rsqrt(double x) { return 1.0 / ::sqrt(x); }
CRUCIBLE_MATH double normcdf(double x) { return 0.5 * ::erfc(-0.70710678118654752440 * x); }
CRUCIBLE_MATH float __powf(float a, float b) { return ::powf(a, b); }
CRUCIBLE_MATH float __fdividef(float a, float b) { return a / b; }
CRUCIBLE_MATH float fdividef(float a, float b) { return a / b; }
CRUCIBLE_MATH void __sincosf(float x, float* s, float* c) { *s = ::sinf(x); *c = ::cosf(x); }
CRUCIBLE_MATH void sincospif(float x, float* s, float* c) { *s = sinpif(x); *c = cospif(x); }
#define CRUCIBLE_ROUNDED(R)                                                          \
    CRUCIBLE_MATH float __fadd_##R(float a, float b) { return a + b; }               \
    CRUCIBLE_MATH float __fsub_##R(float a, float b) { return a - b; }               \
    CRUCIBLE_MATH float __fmul_##R(float a, float b) { return a * b; }               \
    CRUCIBLE_MATH float __fdiv_##R(float a, float b) { return a / b; }               \
    CRUCIBLE_MATH float __fmaf_##R(float a, float b, float c) { return ::fmaf(a, b, c); } \
    CRUCIBLE_MATH double __dadd_##R(double a, double b) { return a + b; }            \
    CRUCIBLE_MATH double __dsub_##R(double a, double b) { return a - b; }            \
    CRUCIBLE_MATH double __dmul_##R(double a, double b) { return a * b; }            \
    CRUCIBLE_MATH double __ddiv_##R(double a, double b) { return a / b; }            \
    CRUCIBLE_MATH double __fma_##R(double a, double b, double c) { return ::fma(a, b, c); } \
    CRUCIBLE_MATH float __int2float_##R(int v) { return float(v); }                  \
    CRUCIBLE_MATH float __uint2float_##R(unsigned v) { return float(v); }            \
    CRUCIBLE_MATH float __ll2float_##R(long long v) { return float(v); }             \
    CRUCIBLE_MATH float __double2float_##R(double v) { return float(v); }
CRUCIBLE_ROUNDED(rn)
CRUCIBLE_ROUNDED(rz)
CRUCIBLE_ROUNDED(ru)
CRUCIBLE_ROUNDED(rd)
template <class I, class F>
CRUCIBLE_MATH I crucible_saturated(F v) {  // CUDA's conversions saturate, and NaN gives 0
    if (v != v) return 0;
    if (v >= F(std::numeric_limits<I>::max())) return std::numeric_limits<I>::max();
    if (v <= F(std::numeric_limits<I>::min())) return std::numeric_limits<I>::min();
    return I(v);
}
#define CRUCIBLE_TO_INTEGER(R, ROUND)                                                                \
    CRUCIBLE_MATH int __float2int_##R(float v) { return crucible_saturated<int>(ROUND(v)); }         \
    CRUCIBLE_MATH unsigned __float2uint_##R(float v) { return crucible_saturated<unsigned>(ROUND(v)); } \
    CRUCIBLE_MATH long long __float2ll_##R(float v) { return crucible_saturated<long long>(ROUND(v)); } \
    CRUCIBLE_MATH int __double2int_##R(double v) { return crucible_saturated<int>(ROUND(v)); }       \
    CRUCIBLE_MATH long long __double2ll_##R(double v) { return crucible_saturated<long long>(ROUND(v)); }
CRUCIBLE_TO_INTEGER(rn, std::nearbyint)
CRUCIBLE_TO_INTEGER(rz, std::trunc)
CRUCIBLE_TO_INTEGER(ru, std::ceil)
CRUCIBLE_TO_INTEGER(rd, std::floor)

CRUCIBLE_MATH int __popc(unsigned v) { return __builtin_popcount(v); }
CRUCIBLE_MATH int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
CRUCIBLE_MATH int __clz(int v) { return v ? __builtin_clz(unsigned(v)) : 32; }
CRUCIBLE_MATH int __clzll(long long v) { return v ? __builtin_clzll((unsigned long long)(v)) : 64; }
CRUCIBLE_MATH int __ffs(int v) { return __builtin_ffs(v); }
CRUCIBLE_MATH int __ffsll(long long v) { return __builtin_ffsll(v); }
CRUCIBLE_MATH unsigned __brev(unsigned v) {
    unsigned out = 0;
    for (int i = 0; i < 32; ++i) out |= (v >> i & 1u) << (31 - i);
    return out;
}
CRUCIBLE_MATH unsigned __byte_perm(unsigned a, unsigned b, unsigned s) {
    const uint64_t both = uint64_t(b) << 32 | a;
    unsigned out = 0;
    for (int i = 0; i < 4; ++i) {
        const unsigned pick = s >> 4 * i & 15;
        unsigned byte = unsigned(both >> 8 * (pick & 7)) & 255;
        if (pick & 8) byte = byte & 128 ? 255 : 0;
        out |= byte << 8 * i;
    }
    return out;
}
CRUCIBLE_MATH int __mulhi(int a, int b) { return int((long long)(a) * b >> 32); }
CRUCIBLE_MATH unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)(a) * b >> 32); }
CRUCIBLE_MATH unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)(a) * b >> 64);
}
CRUCIBLE_MATH int __mul24(int a, int b) { return a * b; }
CRUCIBLE_MATH unsigned __umul24(unsigned a, unsigned b) { return a * b; }
CRUCIBLE_MATH unsigned __sad(int a, int b, unsigned c) { return unsigned(a > b ? a - b : b - a) + c; }
CRUCIBLE_MATH unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned n) { return unsigned(((uint64_t(hi) << 32 | lo) << (n & 31)) >> 32); }
CRUCIBLE_MATH unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned n) { return unsigned((uint64_t(hi) << 32 | lo) >> (n & 31)); }
CRUCIBLE_MATH int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 4; ++i) c += int(int8_t(a >> 8 * i)) * int(int8_t(b >> 8 * i));
    return c;
}
CRUCIBLE_MATH int __usad(unsigned a, unsigned b, unsigned c) { return int((a > b ? a - b : b - a) + c); }

#ifndef CUDART_INF_F
#define CUDART_INF_F __builtin_huge_valf()
#define CUDART_INF __builtin_huge_val()
#define CUDART_NAN_F __builtin_nanf("")
#define CUDART_NAN __builtin_nan("")
#define CUDART_PI_F 3.141592654f
#define CUDART_PI 3.1415926535897931e+0
#define CUDART_MAX_NORMAL_F 3.402823466e38f
#define CUDART_MIN_DENORM_F 1.401298464e-45f
#define CUDART_ZERO_F 0.0f
#define CUDART_ONE_F 1.0f
#endif
