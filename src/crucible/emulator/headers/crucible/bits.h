// Integer intrinsics: counts, bytes, products, funnel shifts, several numbers in a word.
#pragma once
#include <cstdint>
#include <limits>
#include <type_traits>

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
CRUCIBLE_MATH unsigned long long __brevll(unsigned long long v) {
    return (unsigned long long)(__brev(unsigned(v))) << 32 | __brev(unsigned(v >> 32));
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
CRUCIBLE_MATH int __mul24(int a, int b) { return int(unsigned(a << 8 >> 8) * unsigned(b << 8 >> 8)); }
CRUCIBLE_MATH unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffffu) * (b & 0xffffffu); }
CRUCIBLE_MATH unsigned __sad(int a, int b, unsigned c) { return (a > b ? unsigned(a) - unsigned(b) : unsigned(b) - unsigned(a)) + c; }
CRUCIBLE_MATH unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned n) { return unsigned(((uint64_t(hi) << 32 | lo) << (n & 31)) >> 32); }
CRUCIBLE_MATH unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned n) { return unsigned((uint64_t(hi) << 32 | lo) >> (n & 31)); }
CRUCIBLE_MATH unsigned __funnelshift_lc(unsigned lo, unsigned hi, unsigned n) { return n >= 32 ? lo : __funnelshift_l(lo, hi, n); }
CRUCIBLE_MATH unsigned __funnelshift_rc(unsigned lo, unsigned hi, unsigned n) { return n >= 32 ? hi : __funnelshift_r(lo, hi, n); }
CRUCIBLE_MATH int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 4; ++i) c = int(unsigned(c) + unsigned(int(int8_t(a >> 8 * i)) * int(int8_t(b >> 8 * i))));
    return c;
}
CRUCIBLE_MATH unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
    for (int i = 0; i < 4; ++i) c += (a >> 8 * i & 255) * (b >> 8 * i & 255);
    return c;
}
CRUCIBLE_MATH int __dp4a(char4 a, char4 b, int c) { return __dp4a(crucible_bits<int>(a), crucible_bits<int>(b), c); }
CRUCIBLE_MATH unsigned __dp4a(uchar4 a, uchar4 b, unsigned c) { return __dp4a(crucible_bits<unsigned>(a), crucible_bits<unsigned>(b), c); }
CRUCIBLE_MATH int __dp2a_lo(int a, int b, int c) {
    return int(unsigned(c) + unsigned(int(int16_t(a)) * int8_t(b)) + unsigned((a >> 16) * int(int8_t(b >> 8))));
}
CRUCIBLE_MATH int __dp2a_hi(int a, int b, int c) { return __dp2a_lo(a, b >> 16, c); }
CRUCIBLE_MATH unsigned __usad(unsigned a, unsigned b, unsigned c) { return (a > b ? a - b : b - a) + c; }
CRUCIBLE_MATH long long __mul64hi(long long a, long long b) { return (long long)((__int128)(a) * b >> 64); }
CRUCIBLE_MATH int __hadd(int a, int b) { return int(((long long)(a) + b) >> 1); }
CRUCIBLE_MATH int __rhadd(int a, int b) { return int(((long long)(a) + b + 1) >> 1); }
CRUCIBLE_MATH unsigned __uhadd(unsigned a, unsigned b) { return unsigned(((unsigned long long)(a) + b) >> 1); }
CRUCIBLE_MATH unsigned __urhadd(unsigned a, unsigned b) { return unsigned(((unsigned long long)(a) + b + 1) >> 1); }

// ---- bytes and halves of a word at once
namespace crucible {
template <class T, class F>
CRUCIBLE_MATH unsigned of_each(unsigned a, unsigned b, F f) {
    unsigned out = 0;
    for (unsigned at = 0; at < 32; at += 8 * sizeof(T)) {
        const auto part = std::make_unsigned_t<T>(f(int(T(a >> at)), int(T(b >> at))));
        out |= unsigned(part) << at;
    }
    return out;
}
template <class T>
CRUCIBLE_MATH int clamped(int v) { return v < int(std::numeric_limits<T>::min()) ? int(std::numeric_limits<T>::min()) : v > int(std::numeric_limits<T>::max()) ? int(std::numeric_limits<T>::max()) : v; }
}
#define CRUCIBLE_OF_EACH(NAME, S, U, EXPRESSION_S, EXPRESSION_U)                                                \
    CRUCIBLE_MATH unsigned __v##NAME##s##S(unsigned p, unsigned q) { using T = U##_signed; return crucible::of_each<T>(p, q, [](int a, int b) { return EXPRESSION_S; }); } \
    CRUCIBLE_MATH unsigned __v##NAME##u##S(unsigned p, unsigned q) { using T = U##_unsigned; return crucible::of_each<T>(p, q, [](int a, int b) { return EXPRESSION_U; }); }
#define CRUCIBLE_PLAIN_EACH(NAME, S, U, EXPRESSION)                                                             \
    CRUCIBLE_MATH unsigned __v##NAME##S(unsigned p, unsigned q) { using T = U##_signed; return crucible::of_each<T>(p, q, [](int a, int b) { return EXPRESSION; }); }
typedef int8_t crucible_4_signed;
typedef uint8_t crucible_4_unsigned;
typedef int16_t crucible_2_signed;
typedef uint16_t crucible_2_unsigned;
#define CRUCIBLE_SIMD(S, U)                                                                                     \
    CRUCIBLE_PLAIN_EACH(add, S, U, a + b)                                                                       \
    CRUCIBLE_PLAIN_EACH(sub, S, U, a - b)                                                                       \
    CRUCIBLE_PLAIN_EACH(cmpeq, S, U, a == b ? -1 : 0)                                                           \
    CRUCIBLE_PLAIN_EACH(cmpne, S, U, a != b ? -1 : 0)                                                           \
    CRUCIBLE_OF_EACH(min, S, U, a < b ? a : b, a < b ? a : b)                                                   \
    CRUCIBLE_OF_EACH(max, S, U, a > b ? a : b, a > b ? a : b)                                                   \
    CRUCIBLE_OF_EACH(cmplt, S, U, a < b ? -1 : 0, a < b ? -1 : 0)                                               \
    CRUCIBLE_OF_EACH(cmple, S, U, a <= b ? -1 : 0, a <= b ? -1 : 0)                                             \
    CRUCIBLE_OF_EACH(cmpgt, S, U, a > b ? -1 : 0, a > b ? -1 : 0)                                               \
    CRUCIBLE_OF_EACH(cmpge, S, U, a >= b ? -1 : 0, a >= b ? -1 : 0)                                             \
    CRUCIBLE_OF_EACH(absdiff, S, U, a > b ? a - b : b - a, a > b ? a - b : b - a)                               \
    CRUCIBLE_MATH unsigned __vaddss##S(unsigned p, unsigned q) { return crucible::of_each<U##_signed>(p, q, [](int a, int b) { return crucible::clamped<U##_signed>(a + b); }); } \
    CRUCIBLE_MATH unsigned __vaddus##S(unsigned p, unsigned q) { return crucible::of_each<U##_unsigned>(p, q, [](int a, int b) { return crucible::clamped<U##_unsigned>(a + b); }); } \
    CRUCIBLE_MATH unsigned __vsubss##S(unsigned p, unsigned q) { return crucible::of_each<U##_signed>(p, q, [](int a, int b) { return crucible::clamped<U##_signed>(a - b); }); } \
    CRUCIBLE_MATH unsigned __vsubus##S(unsigned p, unsigned q) { return crucible::of_each<U##_unsigned>(p, q, [](int a, int b) { return crucible::clamped<U##_unsigned>(a - b); }); } \
    CRUCIBLE_MATH unsigned __vabs##S(unsigned p) { return crucible::of_each<U##_signed>(p, 0, [](int a, int) { return a < 0 ? -a : a; }); } \
    CRUCIBLE_MATH unsigned __vneg##S(unsigned p) { return crucible::of_each<U##_signed>(p, 0, [](int a, int) { return -a; }); }
CRUCIBLE_SIMD(2, crucible_2)
CRUCIBLE_SIMD(4, crucible_4)
