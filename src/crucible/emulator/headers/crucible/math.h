// Device functions of CUDA's math library: the exact ones where CUDA's are approximate.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "rounding.h"
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
    To to;  // not bit_cast: clang's vector types are not trivially copyable
    __builtin_memcpy(&to, &v, sizeof to);
    return to;
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
CRUCIBLE_FAST(rsqrtf, 1.0f / ::sqrtf(x))
CRUCIBLE_FAST(rcbrtf, 1.0f / ::cbrtf(x))
CRUCIBLE_FAST(sinpif, float(::sin(3.141592653589793 * ::remainder(double(x), 2.0))))
CRUCIBLE_FAST(cospif, float(::cos(3.141592653589793 * ::remainder(double(x), 2.0))))
CRUCIBLE_FAST(__frsqrt_rn, float(1.0 / ::sqrt(double(x))))
CRUCIBLE_FAST(erfcxf, float(::exp(double(x) * x) * ::erfc(double(x))))
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
#define CRUCIBLE_ROUNDED(R, HOW)                                                                                \
    CRUCIBLE_MATH float __fadd_##R(float a, float b) { return crucible::add_rounded(a, b, crucible::HOW); }     \
    CRUCIBLE_MATH float __fsub_##R(float a, float b) { return crucible::add_rounded(a, -b, crucible::HOW); }    \
    CRUCIBLE_MATH float __fmul_##R(float a, float b) { return crucible::mul_rounded(a, b, crucible::HOW); }     \
    CRUCIBLE_MATH float __fdiv_##R(float a, float b) { return crucible::div_rounded(a, b, crucible::HOW); }     \
    CRUCIBLE_MATH float __frcp_##R(float a) { return crucible::div_rounded(1.0f, a, crucible::HOW); }           \
    CRUCIBLE_MATH float __fsqrt_##R(float a) { return crucible::sqrt_rounded(a, crucible::HOW); }               \
    CRUCIBLE_MATH float __fmaf_##R(float a, float b, float c) { return crucible::fma_rounded(a, b, c, crucible::HOW); } \
    CRUCIBLE_MATH double __dadd_##R(double a, double b) { return crucible::add_rounded(a, b, crucible::HOW); }  \
    CRUCIBLE_MATH double __dsub_##R(double a, double b) { return crucible::add_rounded(a, -b, crucible::HOW); } \
    CRUCIBLE_MATH double __dmul_##R(double a, double b) { return crucible::mul_rounded(a, b, crucible::HOW); }  \
    CRUCIBLE_MATH double __ddiv_##R(double a, double b) { return crucible::div_rounded(a, b, crucible::HOW); }  \
    CRUCIBLE_MATH double __drcp_##R(double a) { return crucible::div_rounded(1.0, a, crucible::HOW); }          \
    CRUCIBLE_MATH double __dsqrt_##R(double a) { return crucible::sqrt_rounded(a, crucible::HOW); }             \
    CRUCIBLE_MATH double __fma_##R(double a, double b, double c) { return crucible::fma_rounded(a, b, c, crucible::HOW); } \
    CRUCIBLE_MATH float __int2float_##R(int v) { return crucible::narrowed<float>(v, crucible::HOW); }          \
    CRUCIBLE_MATH float __uint2float_##R(unsigned v) { return crucible::narrowed<float>(v, crucible::HOW); }    \
    CRUCIBLE_MATH float __ll2float_##R(long long v) { return crucible::narrowed<float>(v, crucible::HOW); }     \
    CRUCIBLE_MATH float __ull2float_##R(unsigned long long v) { return crucible::narrowed<float>(v, crucible::HOW); } \
    CRUCIBLE_MATH double __ll2double_##R(long long v) { return crucible::narrowed<double>(v, crucible::HOW); }  \
    CRUCIBLE_MATH double __ull2double_##R(unsigned long long v) { return crucible::narrowed<double>(v, crucible::HOW); } \
    CRUCIBLE_MATH float __double2float_##R(double v) { return crucible::narrowed<float>(v, crucible::HOW); }    \
    CRUCIBLE_TO_INTEGER(float, float, R, HOW)                                                                   \
    CRUCIBLE_TO_INTEGER(double, double, R, HOW)
#define CRUCIBLE_TO_INTEGER(NAME, F, R, HOW)                                                                    \
    CRUCIBLE_MATH int __##NAME##2int_##R(F v) { return crucible::saturated_to<int>(crucible::to_integral(v, crucible::HOW)); } \
    CRUCIBLE_MATH unsigned __##NAME##2uint_##R(F v) { return crucible::saturated_to<unsigned>(crucible::to_integral(v, crucible::HOW)); } \
    CRUCIBLE_MATH long long __##NAME##2ll_##R(F v) { return crucible::saturated_to<long long>(crucible::to_integral(v, crucible::HOW)); } \
    CRUCIBLE_MATH unsigned long long __##NAME##2ull_##R(F v) { return crucible::saturated_to<unsigned long long>(crucible::to_integral(v, crucible::HOW)); }
CRUCIBLE_ROUNDED(rn, kNearest)
CRUCIBLE_ROUNDED(rz, kZero)
CRUCIBLE_ROUNDED(ru, kUp)
CRUCIBLE_ROUNDED(rd, kDown)
CRUCIBLE_MATH double __int2double_rn(int v) { return v; }
CRUCIBLE_MATH double __uint2double_rn(unsigned v) { return v; }
CRUCIBLE_MATH float norm3df(float a, float b, float c) { return float(::sqrt(double(a) * a + double(b) * b + double(c) * c)); }
CRUCIBLE_MATH float norm4df(float a, float b, float c, float d) { return float(::sqrt(double(a) * a + double(b) * b + double(c) * c + double(d) * d)); }
CRUCIBLE_MATH float rnorm3df(float a, float b, float c) { return 1.0f / norm3df(a, b, c); }
CRUCIBLE_MATH float rhypotf(float a, float b) { return 1.0f / ::hypotf(a, b); }
CRUCIBLE_MATH double sinpi(double x) { return ::sin(3.141592653589793 * ::remainder(x, 2.0)); }
CRUCIBLE_MATH double cospi(double x) { return ::cos(3.141592653589793 * ::remainder(x, 2.0)); }

#include "bits.h"
