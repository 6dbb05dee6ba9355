// __half and __nv_bfloat16: each operation rounds to its own type, as on the GPU. What the macros __CUDA_NO_... take away from
// NVIDIA's types is taken away from these; our own headers convert by from() and value().
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
// Conversions by bits: the sanitizer looks at each step of PyTorch's own functions, two thirds of the time of a wgmma.
struct HalfRule {
    using Torch = c10::Half;
    using Raw = __half_raw;
#ifdef __CUDA_NO_HALF_CONVERSIONS__
    static constexpr bool converts = false;
#else
    static constexpr bool converts = true;
#endif
    static constexpr uint16_t infinity = 0x7c00;
    static CRUCIBLE_PLAIN uint16_t from(float v) {
        const uint32_t bits = __builtin_bit_cast(uint32_t, v), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
        if (size > 0x7f800000) return 0x7fff;
        if (size >= 0x47800000) return uint16_t(sign | infinity);
        if (size < 0x38800000)  // the sum has the last bit of a number that is not normal, and is rounded there
            return uint16_t(sign | (__builtin_bit_cast(uint32_t, __builtin_bit_cast(float, size) + 0.5f) - 0x3f000000));
        return uint16_t(sign | (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13);
    }
    static CRUCIBLE_PLAIN float to(uint16_t v) {
        const uint32_t sign = (v & 0x8000u) << 16, size = v & 0x7fffu;
        if (size < 0x400) return float(size) * (sign ? -0x1p-24f : 0x1p-24f);
        return __builtin_bit_cast(float, sign | ((size << 13) + (size < infinity ? 0x38000000u : 0x70000000u)));
    }
};
struct Bfloat16Rule {
    using Torch = c10::BFloat16;
    using Raw = __nv_bfloat16_raw;
#ifdef __CUDA_NO_BFLOAT16_CONVERSIONS__
    static constexpr bool converts = false;
#else
    static constexpr bool converts = true;
#endif
    static constexpr uint16_t infinity = 0x7f80;
    static CRUCIBLE_PLAIN uint16_t from(float v) {
        const uint32_t bits = __builtin_bit_cast(uint32_t, v);
        return v == v ? uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16) : 0x7fff;
    }
    static CRUCIBLE_PLAIN float to(uint16_t v) { return __builtin_bit_cast(float, uint32_t(v) << 16); }
};
// No parameter is PyTorch's type: its operators would be found by it.
template <class Rule>
struct Small {
    using Torch = typename Rule::Torch;
    using Raw = typename Rule::Raw;
    uint16_t __x;
    Small() = default;
    CRUCIBLE_INLINE Small(Raw v) : __x(v.x) {}
    template <class T> requires std::is_same_v<T, Torch>  // not what PyTorch's type could be made of
    CRUCIBLE_INLINE Small(T v) : __x(v.x) {}
    CRUCIBLE_INLINE operator Raw() const { return Raw{__x}; }
    CRUCIBLE_INLINE operator Torch() const { return Torch(__x, Torch::from_bits()); }
#define CRUCIBLE_FROM(T, V) CRUCIBLE_INLINE Small(T v) requires (Rule::converts) : __x(Rule::from(V)) {}
    CRUCIBLE_FROM(float, v)
    CRUCIBLE_FROM(double, odd(v))
    CRUCIBLE_FROM(short, v)
    CRUCIBLE_FROM(unsigned short, v)
    CRUCIBLE_FROM(int, odd(double(v)))
    CRUCIBLE_FROM(unsigned, odd(double(v)))
    CRUCIBLE_FROM(long, odd(double(v)))
    CRUCIBLE_FROM(unsigned long, odd(double(v)))
    CRUCIBLE_FROM(long long, odd(double(v)))
    CRUCIBLE_FROM(unsigned long long, odd(double(v)))
#undef CRUCIBLE_FROM
    CRUCIBLE_INLINE operator float() const requires (Rule::converts) { return value(); }
    CRUCIBLE_INLINE operator bool() const requires (Rule::converts) { return __x & 0x7fff; }
#define CRUCIBLE_TO(T) CRUCIBLE_INLINE operator T() const requires (Rule::converts) { return saturated_to<T>(std::trunc(value())); }
    CRUCIBLE_TO(char) CRUCIBLE_TO(signed char) CRUCIBLE_TO(unsigned char) CRUCIBLE_TO(short) CRUCIBLE_TO(unsigned short)
    CRUCIBLE_TO(int) CRUCIBLE_TO(unsigned) CRUCIBLE_TO(long) CRUCIBLE_TO(unsigned long) CRUCIBLE_TO(long long)
    CRUCIBLE_TO(unsigned long long)
#undef CRUCIBLE_TO
    static CRUCIBLE_INLINE Small from(float v) { return bits(Rule::from(v)); }
    static CRUCIBLE_INLINE Small from(double v) { return bits(Rule::from(odd(v))); }
    CRUCIBLE_INLINE float value() const { return Rule::to(__x); }
    static CRUCIBLE_INLINE Small bits(uint16_t b) { Small s; s.__x = b; return s; }
    static Small rounded(double v, Rounding how) {
        const Small nearest = from(v);
        const int error = sign_of(v - double(nearest.value()));
        const bool negative = nearest.__x & 0x8000, zero = !(nearest.__x & 0x7fff);
        const bool down = error < 0 && (how == kDown || (how == kZero && !negative));
        const bool up = error > 0 && (how == kUp || (how == kZero && negative && !zero));
        if (!down && !up) return nearest;
        if (zero) return bits(down ? 0x8001 : 0x0001);
        return bits(uint16_t(nearest.__x + (down == negative ? 1 : -1)));
    }
};
// What generic code computes with, and what it makes of that.
template <class T> CRUCIBLE_INLINE T wide(T v) { return v; }
template <class Rule> CRUCIBLE_INLINE float wide(Small<Rule> v) { return v.value(); }
template <class T, class V> CRUCIBLE_INLINE T made(V v) {
    if constexpr (requires { T::from(v); }) return T::from(v);
    else return T(v);
}
// a * b + c rounded once.
template <class S>
CRUCIBLE_INLINE S fused(S a, S b, S c) { return S::from(odd_fma(a.value(), b.value(), c.value())); }
}  // namespace crucible

typedef crucible::Small<crucible::HalfRule> __half;
typedef crucible::Small<crucible::Bfloat16Rule> __nv_bfloat16;
#define CRUCIBLE_OPERATOR(OP, S)                                                                          \
    CRUCIBLE_INLINE S operator OP(S a, S b) { return S::from(a.value() OP b.value()); }                   \
    CRUCIBLE_INLINE S& operator OP##=(S& a, S b) { return a = a OP b; }
#define CRUCIBLE_RELATION(OP, S) CRUCIBLE_INLINE bool operator OP(S a, S b) { return a.value() OP b.value(); }
#define CRUCIBLE_OPERATORS(S)                                                                             \
    CRUCIBLE_OPERATOR(+, S) CRUCIBLE_OPERATOR(-, S) CRUCIBLE_OPERATOR(*, S) CRUCIBLE_OPERATOR(/, S)       \
    CRUCIBLE_RELATION(<, S) CRUCIBLE_RELATION(>, S) CRUCIBLE_RELATION(<=, S)                              \
    CRUCIBLE_RELATION(>=, S) CRUCIBLE_RELATION(==, S) CRUCIBLE_RELATION(!=, S)                            \
    CRUCIBLE_INLINE S& operator++(S& a) { return a += S::from(1.0f); }                                    \
    CRUCIBLE_INLINE S& operator--(S& a) { return a -= S::from(1.0f); }                                    \
    CRUCIBLE_INLINE S operator++(S& a, int) { const S before = a; ++a; return before; }                   \
    CRUCIBLE_INLINE S operator--(S& a, int) { const S before = a; --a; return before; }                   \
    CRUCIBLE_INLINE S operator-(S a) { return S::bits(a.__x ^ 0x8000); }                                  \
    CRUCIBLE_INLINE S operator+(S a) { return a; }
namespace crucible {  // where arguments of these types have them looked for
#ifndef __CUDA_NO_HALF_OPERATORS__
CRUCIBLE_OPERATORS(__half)
#endif
#ifndef __CUDA_NO_BFLOAT16_OPERATORS__
CRUCIBLE_OPERATORS(__nv_bfloat16)
#endif
}
#undef CRUCIBLE_OPERATORS
#undef CRUCIBLE_RELATION
#undef CRUCIBLE_OPERATOR

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
