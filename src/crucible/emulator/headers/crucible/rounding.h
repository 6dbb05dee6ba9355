// Arithmetic rounded towards zero, down or up: the nearest result, moved a step where the exact one lies beyond it.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace crucible {

enum Rounding { kNearest, kZero, kDown, kUp, kAway };

// A type that holds a product of two F exactly.
template <class F>
using Wide = std::conditional_t<std::is_same_v<F, float>, double, __float128>;

template <class W>
inline __attribute__((always_inline)) int sign_of(W v) { return (v > 0) - (v < 0); }

// `nearest` is the exact value rounded to nearest, `error` the sign of exact - nearest.
template <class F>
inline F directed(F nearest, int error, Rounding how) {
    const F infinity = std::numeric_limits<F>::infinity();
    const bool down = error < 0 && (how == kDown || (how == kZero && nearest > 0));
    const bool up = error > 0 && (how == kUp || (how == kZero && nearest < 0));
    return down ? std::nextafter(nearest, -infinity) : up ? std::nextafter(nearest, infinity) : nearest;
}

// x + y as a sum and what was lost (Knuth's two-sum).
template <class W>
inline W lost(W x, W y, W sum) {
    const W part = sum - x;
    return (x - (sum - part)) + (y - part);
}

template <class F>
inline F add_rounded(F a, F b, Rounding how) {
    const F nearest = a + b;
    if (how == kNearest || how == kAway) return nearest;
    if (a == -b && std::signbit(a) != std::signbit(b)) return how == kDown ? F(-0.0) : F(0.0);
    const Wide<F> sum = Wide<F>(a) + b, rest = sum - nearest;
    return directed(nearest, rest != 0 ? sign_of(rest) : sign_of(lost<Wide<F>>(a, b, sum)), how);
}
template <class F>
inline F mul_rounded(F a, F b, Rounding how) {
    const F nearest = a * b;
    if (how == kNearest) return nearest;
    return directed(nearest, sign_of(Wide<F>(a) * b - nearest), how);
}
template <class F>
inline F fma_rounded(F a, F b, F c, Rounding how) {
    const F nearest = std::fma(a, b, c);
    if (how == kNearest) return nearest;
    const Wide<F> product = Wide<F>(a) * b, sum = product + c, rest = sum - nearest;
    if (sum == 0 && std::signbit(a) ^ std::signbit(b) ^ std::signbit(c)) return how == kDown ? F(-0.0) : F(0.0);
    return directed(nearest, rest != 0 ? sign_of(rest) : sign_of(lost<Wide<F>>(product, c, sum)), how);
}
template <class F>
inline F div_rounded(F a, F b, Rounding how) {
    const F nearest = a / b;
    if (how == kNearest) return nearest;
    return directed(nearest, sign_of(Wide<F>(a) - Wide<F>(nearest) * b) * sign_of(b), how);
}
template <class F>
inline F sqrt_rounded(F a, Rounding how) {
    const F nearest = std::sqrt(a);
    if (how == kNearest) return nearest;
    return directed(nearest, sign_of(Wide<F>(a) - Wide<F>(nearest) * nearest), how);
}
// A wider value, or an integer, as an F.
template <class F, class V>
inline F narrowed(V v, Rounding how) {
    const F nearest = F(v);
    if (how == kNearest) return nearest;
    using W = std::conditional_t<std::is_integral_v<V>, __float128, std::conditional_t<std::is_same_v<V, float>, double, V>>;
    return directed(nearest, sign_of(W(v) - W(nearest)), how);
}
template <class F>
inline F to_integral(F v, Rounding how) {
    return how == kNearest ? std::nearbyint(v) : how == kZero ? std::trunc(v) : how == kDown ? std::floor(v) : std::ceil(v);
}
// What a GPU's conversion gives: the nearest value that exists; NaN is 0, or the lowest bit pattern's where 64 bits are involved.
template <class I, class F>
inline I saturated_to(F v) {
    if (v != v) return sizeof(F) < 8 && sizeof(I) < 8 ? I(0) : I(uint64_t(1) << (8 * sizeof(I) - 1));
    if (v >= F(std::numeric_limits<I>::max())) return std::numeric_limits<I>::max();
    if (v <= F(std::numeric_limits<I>::min())) return std::numeric_limits<I>::min();
    return I(v);
}
// To float so that a second rounding to a shorter type is as good as one: inexact results are made odd.
inline float odd(double v) {
    const float nearest = float(v);
    const uint32_t bits = __builtin_bit_cast(uint32_t, nearest);
    if (double(nearest) == v || nearest != nearest || (bits & 1)) return nearest;
    return std::nextafter(nearest, double(nearest) < v ? std::numeric_limits<float>::infinity() : -std::numeric_limits<float>::infinity());
}
// a * b + c in double, inexact results odd.
inline double odd_fma(double a, double b, double c) {
    const double product = a * b, sum = product + c, rest = lost(product, c, sum);
    if (rest == 0 || rest != rest || (__builtin_bit_cast(uint64_t, sum) & 1)) return sum;
    return std::nextafter(sum, rest > 0 ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity());
}

}  // namespace crucible
