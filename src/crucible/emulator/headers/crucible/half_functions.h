// The functions of cuda_fp16.h and cuda_bf16.h, for both types and their pairs.
#pragma once
#include "half.h"

namespace crucible {
// What minimum and maximum make of NaN: the other value, or NaN in the forms that end in `_nan`. +0 is above -0.
template <class S>
CRUCIBLE_INLINE S lower(S a, S b, bool keeps_nan) {
    const float x = a.value(), y = b.value();
    if (x != x || y != y) return keeps_nan || (x != x && y != y) ? S::bits(0x7fff) : x != x ? b : a;
    return x < y || (x == y && (a.__x & 0x8000)) ? a : b;
}
template <class S>
CRUCIBLE_INLINE S upper(S a, S b, bool keeps_nan) {
    const float x = a.value(), y = b.value();
    if (x != x || y != y) return keeps_nan || (x != x && y != y) ? S::bits(0x7fff) : x != x ? b : a;
    return x > y || (x == y && !(a.__x & 0x8000)) ? a : b;
}
template <class S>
CRUCIBLE_INLINE bool is_nan(S v) { return v.value() != v.value(); }
template <class S>
CRUCIBLE_INLINE S unit(S v) { return v.value() > 0.0f ? v.value() < 1.0f ? v : S::from(1.0f) : S::from(0.0f); }
template <class S>
CRUCIBLE_INLINE S not_negative(S v) { return is_nan(v) ? S::bits(0x7fff) : v.value() > 0.0f ? v : S::from(0.0f); }
template <class S>
CRUCIBLE_INLINE bool unordered(S a, S b) { return is_nan(a) || is_nan(b); }
CRUCIBLE_INLINE uint32_t word(bool p) { return p ? 0xffffu : 0u; }
}

#define CRUCIBLE_BOTH(NAME, F, S, S2) CRUCIBLE_INLINE S2 NAME(S2 a) { return S2(F(a.x), F(a.y)); }
#define CRUCIBLE_BOTH2(NAME, F, S, S2) CRUCIBLE_INLINE S2 NAME(S2 a, S2 b) { return S2(F(a.x, b.x), F(a.y, b.y)); }
#define CRUCIBLE_HALF_FUNCTION(NAME, S, S2, EXPRESSION)                                                   \
    CRUCIBLE_INLINE S h##NAME(S v) { const float x = v.value(); return S::from(EXPRESSION); }             \
    CRUCIBLE_INLINE S2 h2##NAME(S2 v) { return S2(h##NAME(v.x), h##NAME(v.y)); }
#define CRUCIBLE_COMPARED(NAME, OP, S, S2)                                                                \
    CRUCIBLE_INLINE bool __h##NAME(S a, S b) { return a.value() OP b.value() && !crucible::unordered(a, b); } \
    CRUCIBLE_INLINE bool __h##NAME##u(S a, S b) { return a.value() OP b.value() || crucible::unordered(a, b); } \
    CRUCIBLE_INLINE S2 __h##NAME##2(S2 a, S2 b) { return S2(S::from(float(__h##NAME(a.x, b.x))), S::from(float(__h##NAME(a.y, b.y)))); } \
    CRUCIBLE_INLINE S2 __h##NAME##u2(S2 a, S2 b) { return S2(S::from(float(__h##NAME##u(a.x, b.x))), S::from(float(__h##NAME##u(a.y, b.y)))); } \
    CRUCIBLE_INLINE bool __hb##NAME##2(S2 a, S2 b) { return __h##NAME(a.x, b.x) && __h##NAME(a.y, b.y); } \
    CRUCIBLE_INLINE bool __hb##NAME##u2(S2 a, S2 b) { return __h##NAME##u(a.x, b.x) && __h##NAME##u(a.y, b.y); } \
    CRUCIBLE_INLINE unsigned __h##NAME##2_mask(S2 a, S2 b) { return crucible::word(__h##NAME(a.x, b.x)) | crucible::word(__h##NAME(a.y, b.y)) << 16; }
#define CRUCIBLE_ARITHMETIC(NAME, OP, S, S2)                                                              \
    CRUCIBLE_INLINE S __h##NAME(S a, S b) { return S::from(a.value() OP b.value()); }                     \
    CRUCIBLE_INLINE S __h##NAME##_rn(S a, S b) { return __h##NAME(a, b); }                                \
    CRUCIBLE_INLINE S __h##NAME##_sat(S a, S b) { return crucible::unit(__h##NAME(a, b)); }               \
    CRUCIBLE_BOTH2(__h##NAME##2, __h##NAME, S, S2)                                                        \
    CRUCIBLE_BOTH2(__h##NAME##2_rn, __h##NAME, S, S2)                                                     \
    CRUCIBLE_BOTH2(__h##NAME##2_sat, __h##NAME##_sat, S, S2)
#define CRUCIBLE_PAIR_OPERATOR(NAME, OP, S2)                                                              \
    CRUCIBLE_INLINE S2 operator OP(S2 a, S2 b) { return NAME(a, b); }                                     \
    CRUCIBLE_INLINE S2& operator OP##=(S2& a, S2 b) { return a = NAME(a, b); }
#define CRUCIBLE_PAIR_RELATION(NAME, OP, S2) CRUCIBLE_INLINE bool operator OP(S2 a, S2 b) { return NAME(a, b); }
#define CRUCIBLE_PAIR_OPERATORS(S2)                                                                       \
    CRUCIBLE_PAIR_OPERATOR(__hadd2, +, S2) CRUCIBLE_PAIR_OPERATOR(__hsub2, -, S2)                         \
    CRUCIBLE_PAIR_OPERATOR(__hmul2, *, S2) CRUCIBLE_PAIR_OPERATOR(__h2div, /, S2)                         \
    CRUCIBLE_PAIR_RELATION(__hbeq2, ==, S2) CRUCIBLE_PAIR_RELATION(__hbneu2, !=, S2)                      \
    CRUCIBLE_PAIR_RELATION(__hbgt2, >, S2) CRUCIBLE_PAIR_RELATION(__hblt2, <, S2)                         \
    CRUCIBLE_PAIR_RELATION(__hbge2, >=, S2) CRUCIBLE_PAIR_RELATION(__hble2, <=, S2)                       \
    CRUCIBLE_INLINE S2 operator-(S2 a) { return __hneg2(a); }                                             \
    CRUCIBLE_INLINE S2 operator+(S2 a) { return a; }
#define CRUCIBLE_HALF_INTEGER(NAME, R, HOW, S, INTEGER, WORDS)                                            \
    CRUCIBLE_INLINE INTEGER __##NAME##2##WORDS##_##R(S v) { return crucible::saturated_to<INTEGER>(crucible::to_integral(v.value(), crucible::HOW)); } \
    CRUCIBLE_INLINE S __##WORDS##2##NAME##_##R(INTEGER v) { return S::rounded(crucible::odd_integer(v), crucible::HOW); }
#define CRUCIBLE_HALF_ROUNDED(NAME, R, HOW, S)                                                            \
    CRUCIBLE_INLINE S __float2##NAME##_##R(float v) { return S::rounded(v, crucible::HOW); }              \
    CRUCIBLE_HALF_INTEGER(NAME, R, HOW, S, int, int)                                                      \
    CRUCIBLE_HALF_INTEGER(NAME, R, HOW, S, unsigned, uint)                                                \
    CRUCIBLE_HALF_INTEGER(NAME, R, HOW, S, short, short)                                                  \
    CRUCIBLE_HALF_INTEGER(NAME, R, HOW, S, unsigned short, ushort)                                        \
    CRUCIBLE_HALF_INTEGER(NAME, R, HOW, S, long long, ll)                                                 \
    CRUCIBLE_HALF_INTEGER(NAME, R, HOW, S, unsigned long long, ull)

namespace crucible {
// An integer as a double whose inexact values are odd, so that one more rounding is as good as one.
template <class I>
inline double odd_integer(I v) {
    const double nearest = double(v);
    const __float128 rest = __float128(v) - __float128(nearest);
    if (rest == 0 || (__builtin_bit_cast(uint64_t, nearest) & 1)) return nearest;
    return std::nextafter(nearest, rest > 0 ? HUGE_VAL : -HUGE_VAL);
}
}

#define CRUCIBLE_SMALL(S, S2, NAME, NAME2)                                                                \
    CRUCIBLE_INLINE S __float2##NAME(float v) { return S::from(v); }                                      \
    CRUCIBLE_INLINE S __double2##NAME(double v) { return S::from(v); }                                    \
    CRUCIBLE_HALF_ROUNDED(NAME, rn, kNearest, S)                                                          \
    CRUCIBLE_HALF_ROUNDED(NAME, rz, kZero, S)                                                             \
    CRUCIBLE_HALF_ROUNDED(NAME, ru, kUp, S)                                                               \
    CRUCIBLE_HALF_ROUNDED(NAME, rd, kDown, S)                                                             \
    CRUCIBLE_INLINE float __##NAME##2float(S v) { return v.value(); }                                      \
    CRUCIBLE_INLINE S2 __##NAME##2##NAME2(S v) { return S2(v, v); }                                       \
    CRUCIBLE_INLINE S2 __float2##NAME2##_rn(float v) { return S2(S::from(v), S::from(v)); }                           \
    CRUCIBLE_INLINE S2 __floats2##NAME2##_rn(float a, float b) { return S2(S::from(a), S::from(b)); }                 \
    CRUCIBLE_INLINE S2 __float22##NAME2##_rn(float2 v) { return S2(S::from(v.x), S::from(v.y)); }                     \
    CRUCIBLE_INLINE S2 __halves2##NAME2(S a, S b) { return S2(a, b); }                                    \
    CRUCIBLE_INLINE S2 make_##NAME2(S a, S b) { return S2(a, b); }                                        \
    CRUCIBLE_INLINE S __ushort_as_##NAME(unsigned short v) { return S::bits(v); }                         \
    CRUCIBLE_INLINE S __short_as_##NAME(short v) { return S::bits(uint16_t(v)); }                         \
    CRUCIBLE_INLINE unsigned short __##NAME##_as_ushort(S v) { return v.__x; }                            \
    CRUCIBLE_INLINE short __##NAME##_as_short(S v) { return short(v.__x); }                               \
    CRUCIBLE_ARITHMETIC(add, +, S, S2)                                                                    \
    CRUCIBLE_ARITHMETIC(sub, -, S, S2)                                                                    \
    CRUCIBLE_ARITHMETIC(mul, *, S, S2)                                                                    \
    CRUCIBLE_INLINE S __hdiv(S a, S b) { return S::from(a.value() / b.value()); }                                                  \
    CRUCIBLE_BOTH2(__h2div, __hdiv, S, S2)                                                                \
    CRUCIBLE_INLINE S __hneg(S a) { return S::bits(a.__x ^ 0x8000); }                                                          \
    CRUCIBLE_INLINE S __habs(S a) { return S::bits(a.__x & 0x7fff); }                                     \
    CRUCIBLE_BOTH(__hneg2, __hneg, S, S2)                                                                 \
    CRUCIBLE_BOTH(__habs2, __habs, S, S2)                                                                 \
    CRUCIBLE_INLINE S __hfma(S a, S b, S c) { return crucible::fused(a, b, c); }                          \
    CRUCIBLE_INLINE S __hfma_sat(S a, S b, S c) { return crucible::unit(__hfma(a, b, c)); }               \
    CRUCIBLE_INLINE S __hfma_relu(S a, S b, S c) { return crucible::not_negative(__hfma(a, b, c)); }      \
    CRUCIBLE_INLINE S2 __hfma2(S2 a, S2 b, S2 c) { return S2(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)); } \
    CRUCIBLE_INLINE S2 __hfma2_sat(S2 a, S2 b, S2 c) { return S2(__hfma_sat(a.x, b.x, c.x), __hfma_sat(a.y, b.y, c.y)); } \
    CRUCIBLE_INLINE S2 __hfma2_relu(S2 a, S2 b, S2 c) { return S2(__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y)); } \
    CRUCIBLE_INLINE S __hmax(S a, S b) { return crucible::upper(a, b, false); }                           \
    CRUCIBLE_INLINE S __hmin(S a, S b) { return crucible::lower(a, b, false); }                           \
    CRUCIBLE_INLINE S __hmax_nan(S a, S b) { return crucible::upper(a, b, true); }                        \
    CRUCIBLE_INLINE S __hmin_nan(S a, S b) { return crucible::lower(a, b, true); }                        \
    CRUCIBLE_BOTH2(__hmax2, __hmax, S, S2)                                                                \
    CRUCIBLE_BOTH2(__hmin2, __hmin, S, S2)                                                                \
    CRUCIBLE_BOTH2(__hmax2_nan, __hmax_nan, S, S2)                                                        \
    CRUCIBLE_BOTH2(__hmin2_nan, __hmin_nan, S, S2)                                                        \
    CRUCIBLE_COMPARED(gt, >, S, S2)                                                                       \
    CRUCIBLE_COMPARED(lt, <, S, S2)                                                                       \
    CRUCIBLE_COMPARED(ge, >=, S, S2)                                                                      \
    CRUCIBLE_COMPARED(le, <=, S, S2)                                                                      \
    CRUCIBLE_COMPARED(eq, ==, S, S2)                                                                      \
    CRUCIBLE_COMPARED(ne, !=, S, S2)                                                                      \
    CRUCIBLE_INLINE bool __hisnan(S a) { return crucible::is_nan(a); }                                    \
    CRUCIBLE_INLINE int __hisinf(S a) { return std::isinf(a.value()) ? a.value() < 0 ? -1 : 1 : 0; }        \
    CRUCIBLE_INLINE S2 __hisnan2(S2 a) { return S2(S::from(float(__hisnan(a.x))), S::from(float(__hisnan(a.y)))); }   \
    CRUCIBLE_HALF_FUNCTION(exp, S, S2, ::exp(double(x)))                                                  \
    CRUCIBLE_HALF_FUNCTION(exp2, S, S2, ::exp2(double(x)))                                                \
    CRUCIBLE_HALF_FUNCTION(exp10, S, S2, ::exp10(double(x)))                                              \
    CRUCIBLE_HALF_FUNCTION(log, S, S2, ::log(double(x)))                                                  \
    CRUCIBLE_HALF_FUNCTION(log2, S, S2, ::log2(double(x)))                                                \
    CRUCIBLE_HALF_FUNCTION(log10, S, S2, ::log10(double(x)))                                              \
    CRUCIBLE_HALF_FUNCTION(sin, S, S2, ::sin(double(x)))                                                  \
    CRUCIBLE_HALF_FUNCTION(cos, S, S2, ::cos(double(x)))                                                  \
    CRUCIBLE_HALF_FUNCTION(tanh, S, S2, ::tanh(double(x)))                                                \
    CRUCIBLE_HALF_FUNCTION(sqrt, S, S2, ::sqrt(double(x)))                                                \
    CRUCIBLE_HALF_FUNCTION(rsqrt, S, S2, 1.0 / ::sqrt(double(x)))                                         \
    CRUCIBLE_HALF_FUNCTION(rcp, S, S2, 1.0 / double(x))                                                   \
    CRUCIBLE_HALF_FUNCTION(floor, S, S2, ::floorf(x))                                                     \
    CRUCIBLE_HALF_FUNCTION(ceil, S, S2, ::ceilf(x))                                                       \
    CRUCIBLE_HALF_FUNCTION(trunc, S, S2, ::truncf(x))                                                     \
    CRUCIBLE_HALF_FUNCTION(rint, S, S2, ::nearbyintf(x))                                                  \
    CRUCIBLE_INLINE S htanh_approx(S v) { return htanh(v); }                                              \
    CRUCIBLE_INLINE S2 h2tanh_approx(S2 v) { return h2tanh(v); }                                          \
    CRUCIBLE_INLINE S __low2##NAME(S2 v) { return v.x; }                                                  \
    CRUCIBLE_INLINE S __high2##NAME(S2 v) { return v.y; }                                                 \
    CRUCIBLE_INLINE S2 __low2##NAME2(S2 v) { return S2(v.x, v.x); }                                       \
    CRUCIBLE_INLINE S2 __high2##NAME2(S2 v) { return S2(v.y, v.y); }                                      \
    CRUCIBLE_INLINE S2 __lows2##NAME2(S2 a, S2 b) { return S2(a.x, b.x); }                                \
    CRUCIBLE_INLINE S2 __highs2##NAME2(S2 a, S2 b) { return S2(a.y, b.y); }                               \
    CRUCIBLE_INLINE S2 __lowhigh2highlow(S2 v) { return S2(v.y, v.x); }                                   \
    CRUCIBLE_INLINE float __low2float(S2 v) { return v.x.value(); }                                        \
    CRUCIBLE_INLINE float __high2float(S2 v) { return v.y.value(); }                                       \
    CRUCIBLE_INLINE S atomicAdd(S* at, S v) { return crucible::atomically(at, [=](S old) CRUCIBLE_PLAIN -> S { return __hadd(old, v); }); } \
    CRUCIBLE_INLINE S2 atomicAdd(S2* at, S2 v) { return crucible::atomically(at, [=](S2 old) CRUCIBLE_PLAIN -> S2 { return __hadd2(old, v); }); }
CRUCIBLE_SMALL(__half, __half2, half, half2)
CRUCIBLE_SMALL(__nv_bfloat16, __nv_bfloat162, bfloat16, bfloat162)
CRUCIBLE_INLINE float2 __half22float2(__half2 v) { return {v.x.value(), v.y.value()}; }
CRUCIBLE_INLINE float2 __bfloat1622float2(__nv_bfloat162 v) { return {v.x.value(), v.y.value()}; }
#ifndef __CUDA_NO_HALF2_OPERATORS__
CRUCIBLE_PAIR_OPERATORS(__half2)
#endif
#ifndef __CUDA_NO_BFLOAT162_OPERATORS__
CRUCIBLE_PAIR_OPERATORS(__nv_bfloat162)
#endif
