// Inline PTX on one thread's registers: what `ptx/scalar.py` writes calls these (PTX ISA, "Integer arithmetic" and on).
#pragma once
#include "fp8.h"

namespace crucible::ptx {

// ---- registers
template <char Constraint>
using Register = std::conditional_t<Constraint == 'r', uint32_t, std::conditional_t<Constraint == 'l', uint64_t,
                 std::conditional_t<Constraint == 'h', uint16_t, std::conditional_t<Constraint == 'f', float, double>>>>;
template <size_t Bytes>
using Bits = std::conditional_t<Bytes == 1, uint8_t, std::conditional_t<Bytes == 2, uint16_t, std::conditional_t<Bytes == 4, uint32_t, uint64_t>>>;

// What a register holds as a T: the same bits, or the lower ones where the register is wider.
template <class T, class V>
CRUCIBLE_INLINE T as(V v) {
    if constexpr (std::is_same_v<T, V>) return v;
    else if constexpr (std::is_same_v<T, bool>) return bool(v);
    else if constexpr (std::is_floating_point_v<T> && std::is_floating_point_v<V>) return T(v);  // a constant
    else if constexpr (sizeof(T) == sizeof(V)) return __builtin_bit_cast(T, v);
    else if constexpr (std::is_integral_v<T>) return T(v);
    else if constexpr (std::is_integral_v<V>) return __builtin_bit_cast(T, Bits<sizeof(T)>(v));
    else static_assert(sizeof(V) == 0, "a PTX operand of another size than the instruction's type");
}
template <class R, class V>
CRUCIBLE_ANYWHERE CRUCIBLE_INLINE void set(R& to, V v) {
    if constexpr (std::is_integral_v<R> && !std::is_integral_v<V> && sizeof(V) < sizeof(R)) to = __builtin_bit_cast(Bits<sizeof(V)>, v);
    else to = as<R>(v);
}
template <char Constraint, class V>
CRUCIBLE_INLINE Register<Constraint> enter(V v) {
    using R = Register<Constraint>;
    static_assert(std::is_scalar_v<V> && sizeof(V) == sizeof(R) && std::is_floating_point_v<V> == std::is_floating_point_v<R> && !(std::is_pointer_v<V> && Constraint != 'l'),
                  "asm operand type does not match type/size implied by constraint");
    return as<R>(v);
}
// Of an operand that is written, its reference looked at where the source has it.
template <char Constraint, class V>
CRUCIBLE_ANYWHERE CRUCIBLE_INLINE Register<Constraint> enter_again(const V& v) { return enter<Constraint>(v); }
template <class V, class R>
CRUCIBLE_ANYWHERE CRUCIBLE_INLINE void leave(V& to, R v) { to = __builtin_bit_cast(V, v); }
template <class W, class... V>
CRUCIBLE_INLINE W packed(V... parts) {
    using Part = Bits<sizeof(W) / sizeof...(V)>;
    W out = 0;
    int at = 0;
    ((out |= W(as<Part>(parts)) << at, at += 8 * sizeof(Part)), ...);
    return out;
}

// ---- integers; sums and products wrap
template <class T> using Unsigned = std::make_unsigned_t<T>;
template <class T> inline constexpr bool is_pair = std::is_same_v<T, __half2> || std::is_same_v<T, __nv_bfloat162>;
template <class T> inline constexpr bool is_small = std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>;
template <class T> CRUCIBLE_INLINE T add_(T a, T b) { return T(Unsigned<T>(Unsigned<T>(a) + Unsigned<T>(b))); }
template <class T> CRUCIBLE_INLINE T sub_(T a, T b) { return T(Unsigned<T>(Unsigned<T>(a) - Unsigned<T>(b))); }
template <class T> CRUCIBLE_INLINE T div_(T a, T b) { return std::is_signed_v<T> && b == T(-1) ? sub_(T(0), a) : T(a / b); }
template <class T> CRUCIBLE_INLINE T rem_(T a, T b) { return std::is_signed_v<T> && b == T(-1) ? T(0) : T(a % b); }
template <class T> CRUCIBLE_INLINE auto mul_wide(T a, T b) {
    using Twice = std::conditional_t<std::is_signed_v<T>, std::conditional_t<sizeof(T) == 2, int32_t, std::conditional_t<sizeof(T) == 4, int64_t, __int128>>,
                                     std::conditional_t<sizeof(T) == 2, uint32_t, std::conditional_t<sizeof(T) == 4, uint64_t, unsigned __int128>>>;
    return Twice(Twice(a) * Twice(b));
}
template <class T> CRUCIBLE_INLINE T mul_lo(T a, T b) { return T(uint64_t(a) * uint64_t(b)); }
template <class T> CRUCIBLE_INLINE T mul_hi(T a, T b) { return T(mul_wide(a, b) >> 8 * sizeof(T)); }
template <class T> CRUCIBLE_INLINE T sad_(T a, T b, T c) { return add_(a > b ? sub_(a, b) : sub_(b, a), c); }
template <class T> CRUCIBLE_INLINE T and_(T a, T b) { return T(a & b); }
template <class T> CRUCIBLE_INLINE T or_(T a, T b) { return T(a | b); }
template <class T> CRUCIBLE_INLINE T xor_(T a, T b) { return T(a ^ b); }
template <class T> CRUCIBLE_INLINE T not_(T a) { if constexpr (std::is_same_v<T, bool>) return !a; else return T(~a); }
template <class T> CRUCIBLE_INLINE T cnot_(T a) { return T(a == 0); }
template <class T> CRUCIBLE_INLINE uint32_t popc_(T a) { return uint32_t(__builtin_popcountll(Unsigned<T>(a))); }
template <class T> CRUCIBLE_INLINE uint32_t clz_(T a) { return a ? uint32_t(__builtin_clzll(Unsigned<T>(a))) - (64 - 8 * sizeof(T)) : uint32_t(8 * sizeof(T)); }
template <class T> CRUCIBLE_INLINE T brev_(T a) { return T(sizeof(T) == 4 ? __brev(uint32_t(a)) : __brevll(uint64_t(a))); }
template <class T> CRUCIBLE_INLINE uint32_t bfind_(T a) {
    const Unsigned<T> bits = std::is_signed_v<T> && a < 0 ? Unsigned<T>(~a) : Unsigned<T>(a);
    return bits ? uint32_t(8 * sizeof(T)) - 1 - clz_<Unsigned<T>>(bits) : ~0u;
}
template <class T> CRUCIBLE_INLINE T shl_(T a, uint32_t n) { return n < 8 * sizeof(T) ? T(Unsigned<T>(a) << n) : T(0); }
template <class T> CRUCIBLE_INLINE T shr_(T a, uint32_t n) { return n < 8 * sizeof(T) ? T(a >> n) : a < T(0) ? T(-1) : T(0); }
template <class T> CRUCIBLE_INLINE T bfe_(T a, uint32_t position, uint32_t length) {
    const uint32_t bits = 8 * sizeof(T), at = position & 255, count = length & 255, last = at + count - 1 < bits ? at + count - 1 : bits - 1;
    if (!count) return 0;
    const bool filled = std::is_signed_v<T> && (Unsigned<T>(a) >> last & 1);
    Unsigned<T> out = at < bits ? Unsigned<T>(Unsigned<T>(a) >> at) : Unsigned<T>(0);
    const uint32_t kept = at < bits ? (count < bits - at ? count : bits - at) : 0;
    const Unsigned<T> mask = kept < bits ? Unsigned<T>((Unsigned<T>(1) << kept) - 1) : Unsigned<T>(~Unsigned<T>(0));
    return T((out & mask) | (filled ? Unsigned<T>(~mask) : Unsigned<T>(0)));
}
template <class T> CRUCIBLE_INLINE T bfi_(T a, T b, uint32_t position, uint32_t length) {
    const uint32_t bits = 8 * sizeof(T), at = position & 255, count = length & 255;
    if (!count || at >= bits) return b;
    const Unsigned<T> mask = Unsigned<T>((count < bits ? Unsigned<T>((Unsigned<T>(1) << count) - 1) : Unsigned<T>(~Unsigned<T>(0))) << at);
    return T((Unsigned<T>(a) << at & mask) | (Unsigned<T>(b) & ~mask));
}
CRUCIBLE_INLINE uint32_t prmt(uint32_t a, uint32_t b, uint32_t s) { return __byte_perm(a, b, s); }
CRUCIBLE_INLINE uint32_t lop3(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
    uint32_t out = 0;
    for (uint32_t i = 0; i < 8; ++i)
        if (table >> i & 1) out |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    return out;
}
template <bool Wrap> CRUCIBLE_INLINE uint32_t shf_l(uint32_t a, uint32_t b, uint32_t n) { return Wrap ? __funnelshift_l(a, b, n) : __funnelshift_lc(a, b, n); }
template <bool Wrap> CRUCIBLE_INLINE uint32_t shf_r(uint32_t a, uint32_t b, uint32_t n) { return Wrap ? __funnelshift_r(a, b, n) : __funnelshift_rc(a, b, n); }
template <bool SignedA, bool SignedB> CRUCIBLE_INLINE uint32_t dp4a(uint32_t a, uint32_t b, uint32_t c) {
    for (int i = 0; i < 32; i += 8) {
        const int32_t x = SignedA ? int32_t(int8_t(a >> i)) : int32_t(uint8_t(a >> i)), y = SignedB ? int32_t(int8_t(b >> i)) : int32_t(uint8_t(b >> i));
        c += uint32_t(x * y);
    }
    return c;
}
template <bool Keeps, class T> CRUCIBLE_INLINE T carry_add(T a, T b, uint32_t in, uint32_t& out) {
    const unsigned __int128 sum = (unsigned __int128)(a) + b + in;
    if (Keeps) out = uint32_t(sum >> 8 * sizeof(T));
    return T(sum);
}
template <bool Keeps, class T> CRUCIBLE_INLINE T carry_sub(T a, T b, uint32_t in, uint32_t& out) {
    if (Keeps) out = (unsigned __int128)(a) < (unsigned __int128)(b) + in;
    return T(a - b - in);
}

// ---- floating point
CRUCIBLE_INLINE float flushed(float v) { return __builtin_fabsf(v) < 1.17549435e-38f ? __builtin_copysignf(0.0f, v) : v; }
template <class T> CRUCIBLE_INLINE T flushed(T v) {
    if constexpr (is_pair<T>) return T(flushed(v.x), flushed(v.y));
    else if constexpr (std::is_same_v<T, __half>) return v.__x & 0x7c00 ? v : __half::bits(v.__x & 0x8000);
    else if constexpr (std::is_same_v<T, __nv_bfloat16>) return v.__x & 0x7f80 ? v : __nv_bfloat16::bits(v.__x & 0x8000);
    else return v;
}
template <class T> CRUCIBLE_INLINE T saturated(T v) {
    if constexpr (is_pair<T>) return T(unit(v.x), unit(v.y));
    else if constexpr (is_small<T>) return unit(v);
    else return v > T(0) ? (v < T(1) ? v : T(1)) : T(0);
}
template <class T> CRUCIBLE_INLINE T relu(T v) {
    if constexpr (is_pair<T>) return T(not_negative(v.x), not_negative(v.y));
    else if constexpr (is_small<T>) return not_negative(v);
    else return v != v ? __builtin_bit_cast(T, Bits<sizeof(T)>(0x7fffffff)) : v > T(0) ? v : T(0);
}
#define CRUCIBLE_EACH(NAME)                                                                                  \
    template <class T, class... H> CRUCIBLE_INLINE T NAME(T a, T b, Rounding how) {                            \
        if constexpr (is_pair<T>) return T(NAME(a.x, b.x, how), NAME(a.y, b.y, how));                        \
        else if constexpr (is_small<T>) return CRUCIBLE_SMALL_##NAME;                                        \
        else return CRUCIBLE_FULL_##NAME;                                                                    \
    }
#define CRUCIBLE_SMALL_add_ T::from(a.value() + b.value())
#define CRUCIBLE_FULL_add_ add_rounded(a, b, how)
#define CRUCIBLE_SMALL_sub_ T::from(a.value() - b.value())
#define CRUCIBLE_FULL_sub_ add_rounded(a, -b, how)
#define CRUCIBLE_SMALL_mul_ T::from(a.value() * b.value())
#define CRUCIBLE_FULL_mul_ mul_rounded(a, b, how)
#define CRUCIBLE_SMALL_div_ T::from(a.value() / b.value())
#define CRUCIBLE_FULL_div_ div_rounded(a, b, how)
CRUCIBLE_EACH(add_)
CRUCIBLE_EACH(sub_)
CRUCIBLE_EACH(mul_)
CRUCIBLE_EACH(div_)
template <class T> CRUCIBLE_INLINE T fma_(T a, T b, T c, Rounding how) {
    if constexpr (is_pair<T>) return T(fused(a.x, b.x, c.x), fused(a.y, b.y, c.y));
    else if constexpr (is_small<T>) return fused(a, b, c);
    else return fma_rounded(a, b, c, how);
}
// NaN loses against a number, or wins in the forms with .NaN; +0 is above -0.
template <class T, bool KeepsNan = false> CRUCIBLE_INLINE T min_(T a, T b) {
    if constexpr (is_pair<T>) return T(lower(a.x, b.x, KeepsNan), lower(a.y, b.y, KeepsNan));
    else if constexpr (is_small<T>) return lower(a, b, KeepsNan);
    else if constexpr (std::is_integral_v<T>) return b < a ? b : a;
    else if (a != a || b != b) return KeepsNan || (a != a && b != b) ? __builtin_bit_cast(T, sizeof(T) == 4 ? Bits<sizeof(T)>(0x7fffffff) : Bits<sizeof(T)>(0x7fffffffffffffff)) : a != a ? b : a;
    else return a < b || (a == b && __builtin_signbit(a)) ? a : b;
}
template <class T, bool KeepsNan = false> CRUCIBLE_INLINE T max_(T a, T b) {
    if constexpr (is_pair<T>) return T(upper(a.x, b.x, KeepsNan), upper(a.y, b.y, KeepsNan));
    else if constexpr (is_small<T>) return upper(a, b, KeepsNan);
    else if constexpr (std::is_integral_v<T>) return a < b ? b : a;
    else if (a != a || b != b) return min_<T, KeepsNan>(a, b);
    else return a > b || (a == b && !__builtin_signbit(a)) ? a : b;
}
template <class T> CRUCIBLE_INLINE T abs_(T a) {
    if constexpr (is_pair<T>) return __habs2(a);
    else if constexpr (is_small<T>) return __habs(a);
    else if constexpr (std::is_integral_v<T>) return a < 0 ? sub_(T(0), a) : a;
    else return sizeof(T) == 4 ? T(__builtin_fabsf(float(a))) : T(__builtin_fabs(a));
}
template <class T> CRUCIBLE_INLINE T neg_(T a) {
    if constexpr (is_pair<T>) return __hneg2(a);
    else if constexpr (is_small<T>) return __hneg(a);
    else if constexpr (std::is_integral_v<T>) return sub_(T(0), a);
    else return -a;
}
// Approximate functions are computed exactly, in double, and rounded once.
#define CRUCIBLE_APPROXIMATE(NAME, EXPRESSION)                                                               \
    template <class T> CRUCIBLE_INLINE T NAME(T v, Rounding) {                                               \
        if constexpr (is_pair<T>) return T(NAME(v.x, kNearest), NAME(v.y, kNearest));                        \
        else { const double x = double(float(wide(v))); return made<T>(EXPRESSION); }                        \
    }
CRUCIBLE_APPROXIMATE(ex2_, ::exp2(x))
CRUCIBLE_APPROXIMATE(lg2_, ::log2(x))
CRUCIBLE_APPROXIMATE(sin_, ::sin(x))
CRUCIBLE_APPROXIMATE(cos_, ::cos(x))
CRUCIBLE_APPROXIMATE(tanh_, ::tanh(x))
template <class T> CRUCIBLE_INLINE T rcp_(T v, Rounding how) { return div_rounded(T(1), v, how); }
template <class T> CRUCIBLE_INLINE T sqrt_(T v, Rounding how) { return sqrt_rounded(v, how); }
template <class T> CRUCIBLE_INLINE T rsqrt_(T v, Rounding) { return T(1.0 / ::sqrt(double(v))); }

// ---- comparisons
#define CRUCIBLE_RELATION(NAME, OP)                                                                          \
    template <class T> CRUCIBLE_INLINE bool NAME##_(T p, T q) { const auto a = wide(p), b = wide(q); return a OP b && a == a && b == b; } \
    template <class T> CRUCIBLE_INLINE bool NAME##u_(T p, T q) { const auto a = wide(p), b = wide(q); return a OP b || a != a || b != b; }
CRUCIBLE_RELATION(eq, ==)
CRUCIBLE_RELATION(ne, !=)
CRUCIBLE_RELATION(lt, <)
CRUCIBLE_RELATION(le, <=)
CRUCIBLE_RELATION(gt, >)
CRUCIBLE_RELATION(ge, >=)
template <class T> CRUCIBLE_INLINE bool lo_(T a, T b) { return Unsigned<T>(a) < Unsigned<T>(b); }
template <class T> CRUCIBLE_INLINE bool ls_(T a, T b) { return Unsigned<T>(a) <= Unsigned<T>(b); }
template <class T> CRUCIBLE_INLINE bool hi_(T a, T b) { return Unsigned<T>(a) > Unsigned<T>(b); }
template <class T> CRUCIBLE_INLINE bool hs_(T a, T b) { return Unsigned<T>(a) >= Unsigned<T>(b); }
template <class T> CRUCIBLE_INLINE bool num_(T a, T b) { return wide(a) == wide(a) && wide(b) == wide(b); }
template <class T> CRUCIBLE_INLINE bool nan_(T a, T b) { return !num_(a, b); }

// ---- conversions
template <class To, class From> CRUCIBLE_INLINE To clamped_integer(From v) {
    const __int128 lo = std::numeric_limits<To>::min(), hi = std::numeric_limits<To>::max(), x = v;
    return To(x < lo ? lo : x > hi ? hi : x);
}
template <class To, bool Integral, bool Saturates, class From> CRUCIBLE_INLINE To convert(From v, Rounding how) {
    if constexpr (std::is_integral_v<From> && std::is_integral_v<To>) {
        return Saturates ? clamped_integer<To>(v) : To(v);
    } else if constexpr (std::is_integral_v<To>) {
        if constexpr (is_small<From>) return saturated_to<To>(to_integral(v.value(), how));
        else return saturated_to<To>(to_integral(v, how));
    } else if constexpr (is_small<To>) {
        To out;
        if constexpr (std::is_integral_v<From>) out = To::rounded(odd_integer(v), how);
        else out = To::rounded(double(wide(v)), how);
        return Saturates ? unit(out) : out;
    } else {
        To out;
        if constexpr (is_small<From>) out = To(v.value());
        else if constexpr (std::is_same_v<From, To>) out = Integral ? to_integral(v, how) : v;
        else if constexpr (sizeof(To) > sizeof(From) && !std::is_integral_v<From>) out = To(v);
        else out = narrowed<To>(v, how);
        return Saturates ? saturated(out) : out;
    }
}
template <class Pair, bool Relu> CRUCIBLE_INLINE Pair pair(float high, float low, Rounding how) {
    if (Relu) high = relu(high), low = relu(low);
    if constexpr (is_pair<Pair>) {
        using S = decltype(Pair{}.x);
        return Pair(S::rounded(low, how), S::rounded(high, how));
    } else {
        return Pair(low, high);
    }
}
// Between pairs of eight bits and pairs of halves.
template <class To, bool Relu, class From> CRUCIBLE_INLINE To repaired(From v) {
    if constexpr (is_pair<From>) return To(Relu ? relu(v) : v);
    else { const To out(v); return Relu ? relu(out) : out; }
}

}  // namespace crucible::ptx
