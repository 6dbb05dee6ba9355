// __half and __nv_bfloat16: each operation rounds to its own type, as on the GPU.
#pragma once
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "device.h"
#include "math.h"
#include "rounding.h"

struct __half_raw { unsigned short x; };
struct __nv_bfloat16_raw { unsigned short x; };
struct alignas(4) __half2_raw { unsigned short x, y; };
struct alignas(4) __nv_bfloat162_raw { unsigned short x, y; };

namespace crucible {
struct HalfRule {
    static constexpr uint16_t infinity = 0x7c00;
    static uint16_t from(float v) { return v == v ? c10::detail::fp16_ieee_from_fp32_value(v) : 0x7fff; }
    static float to(uint16_t v) { return c10::detail::fp16_ieee_to_fp32_value(v); }
};
struct Bfloat16Rule {
    static constexpr uint16_t infinity = 0x7f80;
    static uint16_t from(float v) { return v == v ? c10::detail::round_to_nearest_even(v) : 0x7fff; }
    static float to(uint16_t v) { return c10::detail::f32_from_bits(v); }
};
template <class Rule, class Torch, class Raw>
struct Small {
    uint16_t __x;
    Small() = default;
    CRUCIBLE_INLINE Small(float v) : __x(Rule::from(v)) {}
    CRUCIBLE_INLINE Small(double v) : __x(Rule::from(odd(v))) {}
    CRUCIBLE_INLINE Small(int v) : __x(Rule::from(odd(double(v)))) {}
    CRUCIBLE_INLINE Small(unsigned v) : __x(Rule::from(odd(double(v)))) {}
    CRUCIBLE_INLINE Small(long v) : __x(Rule::from(odd(double(v)))) {}
    CRUCIBLE_INLINE Small(long long v) : __x(Rule::from(odd(double(v)))) {}
    CRUCIBLE_INLINE Small(Torch v) : __x(v.x) {}
    CRUCIBLE_INLINE Small(Raw v) : __x(v.x) {}
    CRUCIBLE_INLINE operator Raw() const { return Raw{__x}; }
    CRUCIBLE_INLINE operator float() const { return Rule::to(__x); }
    CRUCIBLE_INLINE operator Torch() const { return Torch(__x, Torch::from_bits()); }
    static CRUCIBLE_INLINE Small bits(uint16_t b) { Small s; s.__x = b; return s; }
    static Small rounded(double v, Rounding how) {
        const Small nearest(v);
        const int error = sign_of(v - double(float(nearest)));
        const bool negative = nearest.__x & 0x8000, zero = !(nearest.__x & 0x7fff);
        const bool down = error < 0 && (how == kDown || (how == kZero && !negative));
        const bool up = error > 0 && (how == kUp || (how == kZero && negative && !zero));
        if (!down && !up) return nearest;
        if (zero) return bits(down ? 0x8001 : 0x0001);
        return bits(uint16_t(nearest.__x + (down == negative ? 1 : -1)));
    }
    CRUCIBLE_INLINE Small& operator+=(Small o) { return *this = Small(float(*this) + float(o)); }
    CRUCIBLE_INLINE Small& operator-=(Small o) { return *this = Small(float(*this) - float(o)); }
    CRUCIBLE_INLINE Small& operator*=(Small o) { return *this = Small(float(*this) * float(o)); }
    CRUCIBLE_INLINE Small& operator/=(Small o) { return *this = Small(float(*this) / float(o)); }
    CRUCIBLE_INLINE Small& operator++() { return *this += Small(1.0f); }
    CRUCIBLE_INLINE Small& operator--() { return *this -= Small(1.0f); }
    CRUCIBLE_INLINE Small operator-() const { return bits(__x ^ 0x8000); }
    CRUCIBLE_INLINE Small operator+() const { return *this; }
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
// a * b + c rounded once.
template <class S>
CRUCIBLE_INLINE S fused(S a, S b, S c) { return S(odd_fma(float(a), float(b), float(c))); }
}  // namespace crucible

typedef crucible::Small<crucible::HalfRule, c10::Half, __half_raw> __half;
typedef crucible::Small<crucible::Bfloat16Rule, c10::BFloat16, __nv_bfloat16_raw> __nv_bfloat16;
typedef __half half;
typedef __nv_bfloat16 nv_bfloat16;
struct alignas(4) __half2 {
    __half x, y;
    __half2() = default;
    CRUCIBLE_INLINE __half2(__half x, __half y) : x(x), y(y) {}
    CRUCIBLE_INLINE __half2(__half2_raw v) : x(__half::bits(v.x)), y(__half::bits(v.y)) {}
    CRUCIBLE_INLINE operator __half2_raw() const { return __half2_raw{x.__x, y.__x}; }
};
struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
    __nv_bfloat162() = default;
    CRUCIBLE_INLINE __nv_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) : x(x), y(y) {}
    CRUCIBLE_INLINE __nv_bfloat162(__nv_bfloat162_raw v) : x(__nv_bfloat16::bits(v.x)), y(__nv_bfloat16::bits(v.y)) {}
    CRUCIBLE_INLINE operator __nv_bfloat162_raw() const { return __nv_bfloat162_raw{x.__x, y.__x}; }
};
typedef __half2 half2;
typedef __nv_bfloat162 nv_bfloat162;
namespace crucible {
template <> inline constexpr bool shuffles<__half> = true;
template <> inline constexpr bool shuffles<__half2> = true;
template <> inline constexpr bool shuffles<__nv_bfloat16> = true;
template <> inline constexpr bool shuffles<__nv_bfloat162> = true;
template <> inline constexpr bool loads<__half> = true;
template <> inline constexpr bool loads<__half2> = true;
template <> inline constexpr bool loads<__nv_bfloat16> = true;
template <> inline constexpr bool loads<__nv_bfloat162> = true;
}
