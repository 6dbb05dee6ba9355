// __half and __nv_bfloat16 with their arithmetic: each operation rounds to its own type, as on the GPU.
#pragma once
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "device.h"
#include "math.h"

namespace crucible {
struct HalfRule {
    static uint16_t from(float v) { return c10::detail::fp16_ieee_from_fp32_value(v); }
    static float to(uint16_t v) { return c10::detail::fp16_ieee_to_fp32_value(v); }
};
struct Bfloat16Rule {
    static uint16_t from(float v) { return c10::detail::round_to_nearest_even(v); }
    static float to(uint16_t v) { return c10::detail::f32_from_bits(v); }
};
template <class Rule, class Torch>
struct Small {
    uint16_t __x;
    Small() = default;
    CRUCIBLE_INLINE Small(float v) : __x(Rule::from(v)) {}
    CRUCIBLE_INLINE Small(double v) : __x(Rule::from(float(v))) {}
    CRUCIBLE_INLINE Small(int v) : __x(Rule::from(float(v))) {}
    CRUCIBLE_INLINE Small(unsigned v) : __x(Rule::from(float(v))) {}
    CRUCIBLE_INLINE Small(long v) : __x(Rule::from(float(v))) {}
    CRUCIBLE_INLINE Small(Torch v) : __x(v.x) {}
    CRUCIBLE_INLINE operator float() const { return Rule::to(__x); }
    CRUCIBLE_INLINE operator Torch() const { return Torch(__x, Torch::from_bits()); }
    static CRUCIBLE_INLINE Small bits(uint16_t b) { Small s; s.__x = b; return s; }
    CRUCIBLE_INLINE Small& operator+=(Small o) { return *this = Small(float(*this) + float(o)); }
    CRUCIBLE_INLINE Small& operator-=(Small o) { return *this = Small(float(*this) - float(o)); }
    CRUCIBLE_INLINE Small& operator*=(Small o) { return *this = Small(float(*this) * float(o)); }
    CRUCIBLE_INLINE Small& operator/=(Small o) { return *this = Small(float(*this) / float(o)); }
    CRUCIBLE_INLINE Small operator-() const { return bits(__x ^ 0x8000); }
    friend CRUCIBLE_INLINE Small operator+(Small a, Small b) { return Small(float(a) + float(b)); }
    friend CRUCIBLE_INLINE Small operator-(Small a, Small b) { return Small(float(a) - float(b)); }
    friend CRUCIBLE_INLINE Small operator*(Small a, Small b) { return Small(float(a) * float(b)); }
    friend CRUCIBLE_INLINE Small operator/(Small a, Small b) { return Small(float(a) / float(b)); }
    friend CRUCIBLE_INLINE bool operator<(Small a, Small b) { return float(a) < float(b); }
    friend CRUCIBLE_INLINE bool operator>(Small a, Small b) { return float(a) > float(b); }
    friend CRUCIBLE_INLINE bool operator<=(Small a, Small b) { return float(a) <= float(b); }
    friend CRUCIBLE_INLINE bool operator>=(Small a, Small b) { return float(a) >= float(b); }
    friend CRUCIBLE_INLINE bool operator==(Small a, Small b) { return float(a) == float(b); }
    friend CRUCIBLE_INLINE bool operator!=(Small a, Small b) { return float(a) != float(b); }
};
}  // namespace crucible

typedef crucible::Small<crucible::HalfRule, c10::Half> __half;
typedef crucible::Small<crucible::Bfloat16Rule, c10::BFloat16> __nv_bfloat16;
typedef __half half;
typedef __nv_bfloat16 nv_bfloat16;
struct alignas(4) __half2 {
    __half x, y;
    __half2() = default;
    CRUCIBLE_INLINE __half2(__half x, __half y) : x(x), y(y) {}
};
struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
    __nv_bfloat162() = default;
    CRUCIBLE_INLINE __nv_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) : x(x), y(y) {}
};
typedef __half2 half2;
typedef __nv_bfloat162 nv_bfloat162;
struct __half_raw { unsigned short x; };
struct __nv_bfloat16_raw { unsigned short x; };

#define CRUCIBLE_SMALL(S, S2, NAME, NAME2)                                                                \
    CRUCIBLE_INLINE S __float2##NAME(float v) { return S(v); }                                            \
    CRUCIBLE_INLINE S __float2##NAME##_rn(float v) { return S(v); }                                       \
    CRUCIBLE_INLINE S __double2##NAME(double v) { return S(float(v)); }                                   \
    CRUCIBLE_INLINE float __##NAME##2float(S v) { return float(v); }                                      \
    CRUCIBLE_INLINE S2 __##NAME##2##NAME2(S v) { return S2(v, v); }                                       \
    CRUCIBLE_INLINE S2 __float2##NAME2##_rn(float v) { return S2(S(v), S(v)); }                           \
    CRUCIBLE_INLINE S2 __floats2##NAME2##_rn(float a, float b) { return S2(S(a), S(b)); }                 \
    CRUCIBLE_INLINE S2 __float22##NAME2##_rn(float2 v) { return S2(S(v.x), S(v.y)); }                     \
    CRUCIBLE_INLINE float2 __##NAME2##2float2(S2 v) { return float2{float(v.x), float(v.y)}; }            \
    CRUCIBLE_INLINE S __int2##NAME##_rn(int v) { return S(float(v)); }                                    \
    CRUCIBLE_INLINE int __##NAME##2int_rn(S v) { return __float2int_rn(float(v)); }                       \
    CRUCIBLE_INLINE int __##NAME##2int_rz(S v) { return __float2int_rz(float(v)); }                       \
    CRUCIBLE_INLINE S __ushort_as_##NAME(unsigned short v) { return S::bits(v); }                         \
    CRUCIBLE_INLINE S __short_as_##NAME(short v) { return S::bits(uint16_t(v)); }                         \
    CRUCIBLE_INLINE unsigned short __##NAME##_as_ushort(S v) { return v.__x; }                            \
    CRUCIBLE_INLINE short __##NAME##_as_short(S v) { return short(v.__x); }                               \
    CRUCIBLE_INLINE S2 __halves2##NAME2(S a, S b) { return S2(a, b); }                                    \
    CRUCIBLE_INLINE S2 make_##NAME2(S a, S b) { return S2(a, b); }                                        \
    CRUCIBLE_INLINE S __hadd(S a, S b) { return a + b; }                                                  \
    CRUCIBLE_INLINE S __hsub(S a, S b) { return a - b; }                                                  \
    CRUCIBLE_INLINE S __hmul(S a, S b) { return a * b; }                                                  \
    CRUCIBLE_INLINE S __hdiv(S a, S b) { return a / b; }                                                  \
    CRUCIBLE_INLINE S __hneg(S a) { return -a; }                                                          \
    CRUCIBLE_INLINE S __habs(S a) { return S::bits(a.__x & 0x7fff); }                                     \
    CRUCIBLE_INLINE S __hfma(S a, S b, S c) { return S(::fmaf(float(a), float(b), float(c))); }           \
    CRUCIBLE_INLINE S __hmax(S a, S b) { return S(::fmaxf(float(a), float(b))); }                         \
    CRUCIBLE_INLINE S __hmin(S a, S b) { return S(::fminf(float(a), float(b))); }                         \
    CRUCIBLE_INLINE bool __hgt(S a, S b) { return a > b; }                                                \
    CRUCIBLE_INLINE bool __hlt(S a, S b) { return a < b; }                                                \
    CRUCIBLE_INLINE bool __hge(S a, S b) { return a >= b; }                                               \
    CRUCIBLE_INLINE bool __hle(S a, S b) { return a <= b; }                                               \
    CRUCIBLE_INLINE bool __heq(S a, S b) { return a == b; }                                               \
    CRUCIBLE_INLINE bool __hne(S a, S b) { return a != b; }                                               \
    CRUCIBLE_INLINE bool __hisnan(S a) { return std::isnan(float(a)); }                                   \
    CRUCIBLE_INLINE bool __hisinf(S a) { return std::isinf(float(a)); }                                   \
    CRUCIBLE_INLINE S hexp(S a) { return S(::expf(float(a))); }                                           \
    CRUCIBLE_INLINE S hlog(S a) { return S(::logf(float(a))); }                                           \
    CRUCIBLE_INLINE S hsqrt(S a) { return S(::sqrtf(float(a))); }                                         \
    CRUCIBLE_INLINE S hrsqrt(S a) { return S(1.0f / ::sqrtf(float(a))); }                                 \
    CRUCIBLE_INLINE S hrcp(S a) { return S(1.0f / float(a)); }                                            \
    CRUCIBLE_INLINE S htanh(S a) { return S(::tanhf(float(a))); }                                         \
    CRUCIBLE_INLINE S2 __hadd2(S2 a, S2 b) { return S2(a.x + b.x, a.y + b.y); }                           \
    CRUCIBLE_INLINE S2 __hsub2(S2 a, S2 b) { return S2(a.x - b.x, a.y - b.y); }                           \
    CRUCIBLE_INLINE S2 __hmul2(S2 a, S2 b) { return S2(a.x * b.x, a.y * b.y); }                           \
    CRUCIBLE_INLINE S2 __h2div(S2 a, S2 b) { return S2(a.x / b.x, a.y / b.y); }                           \
    CRUCIBLE_INLINE S2 __hneg2(S2 a) { return S2(-a.x, -a.y); }                                           \
    CRUCIBLE_INLINE S2 __hmax2(S2 a, S2 b) { return S2(__hmax(a.x, b.x), __hmax(a.y, b.y)); }             \
    CRUCIBLE_INLINE S2 __hmin2(S2 a, S2 b) { return S2(__hmin(a.x, b.x), __hmin(a.y, b.y)); }             \
    CRUCIBLE_INLINE S2 __hfma2(S2 a, S2 b, S2 c) { return S2(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)); } \
    CRUCIBLE_INLINE S2 h2exp(S2 a) { return S2(hexp(a.x), hexp(a.y)); }                                   \
    CRUCIBLE_INLINE S __low2##NAME(S2 v) { return v.x; }                                                  \
    CRUCIBLE_INLINE S __high2##NAME(S2 v) { return v.y; }                                                 \
    CRUCIBLE_INLINE S2 __low2##NAME2(S2 v) { return S2(v.x, v.x); }                                       \
    CRUCIBLE_INLINE S2 __high2##NAME2(S2 v) { return S2(v.y, v.y); }                                      \
    CRUCIBLE_INLINE float __low2float(S2 v) { return float(v.x); }                                        \
    CRUCIBLE_INLINE float __high2float(S2 v) { return float(v.y); }                                       \
    CRUCIBLE_INLINE S2 operator+(S2 a, S2 b) { return __hadd2(a, b); }                                    \
    CRUCIBLE_INLINE S2 operator-(S2 a, S2 b) { return __hsub2(a, b); }                                    \
    CRUCIBLE_INLINE S2 operator*(S2 a, S2 b) { return __hmul2(a, b); }                                    \
    CRUCIBLE_INLINE S2& operator+=(S2& a, S2 b) { return a = __hadd2(a, b); }                             \
    CRUCIBLE_INLINE S2& operator*=(S2& a, S2 b) { return a = __hmul2(a, b); }                             \
    CRUCIBLE_INLINE S atomicAdd(S* at, S v) { return crucible::atomically(at, [=](S old) CRUCIBLE_PLAIN -> S { return old + v; }); } \
    CRUCIBLE_INLINE S2 atomicAdd(S2* at, S2 v) { return crucible::atomically(at, [=](S2 old) CRUCIBLE_PLAIN -> S2 { return S2(old.x + v.x, old.y + v.y); }); }
CRUCIBLE_SMALL(__half, __half2, half, half2)
CRUCIBLE_SMALL(__nv_bfloat16, __nv_bfloat162, bfloat16, bfloat162)
