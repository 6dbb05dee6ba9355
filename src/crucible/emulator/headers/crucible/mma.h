// Matrix instructions of a warp: mma.sync, ldmatrix, stmatrix (PTX ISA, "Warp-level matrix instructions").
#pragma once
#include "fp8.h"

namespace crucible {

// Every lane's pointer, so that a warp operation can read what the others hold in registers.
struct Everyone { uint64_t at[32]; };
CRUCIBLE_INLINE void everyone(Everyone& all, const void* own, uint32_t mask = 0xffffffffu) { crucible_gather(mask, uint64_t(own), all.at); }
CRUCIBLE_INLINE char* from_shared(uint64_t address) { return static_cast<char*>(crucible_shared_base()) + uint32_t(address); }
inline CRUCIBLE_PLAIN int plain_lane() {  // `lane()` for functions that the sanitizer leaves alone
    uint32_t lane;
    asm("movq crucible_ids@GOTPCREL(%%rip), %%rax\n\tmovq (%%rax), %%rax\n\tmovl %c1(%%rax), %0" : "=r"(lane) : "i"(offsetof(Ids, lane)) : "rax");
    return int(lane);
}

inline CRUCIBLE_PLAIN int plain_thread() {
    uint32_t thread;
    asm("movq crucible_ids@GOTPCREL(%%rip), %%rax\n\tmovq (%%rax), %%rax\n\tmovl %c1(%%rax), %0" : "=r"(thread) : "i"(offsetof(Ids, linear)) : "rax");
    return int(thread);
}

// Elements of operands: how many a register holds, and one of them.
struct F16 { static constexpr int per = 2; static CRUCIBLE_PLAIN float at(const uint32_t* r, int i) { return HalfRule::to(uint16_t(r[i / 2] >> 16 * (i % 2))); } };
struct Bf16 { static constexpr int per = 2; static CRUCIBLE_PLAIN float at(const uint32_t* r, int i) { return Bfloat16Rule::to(uint16_t(r[i / 2] >> 16 * (i % 2))); } };
struct Tf32 { static constexpr int per = 1; static CRUCIBLE_PLAIN float at(const uint32_t* r, int i) { return __builtin_bit_cast(float, r[i] & 0xffffe000u); } };
struct F64 { static constexpr int per = 1; static CRUCIBLE_PLAIN double at(const double* r, int i) { return r[i]; } };
struct S8 { static constexpr int per = 4; static CRUCIBLE_PLAIN int at(const uint32_t* r, int i) { return int8_t(r[i / 4] >> 8 * (i % 4)); } };
struct U8 { static constexpr int per = 4; static CRUCIBLE_PLAIN int at(const uint32_t* r, int i) { return uint8_t(r[i / 4] >> 8 * (i % 4)); } };
struct E4m3 { static constexpr int per = 4; static CRUCIBLE_PLAIN float at(const uint32_t* r, int i) { return c10::detail::fp8e4m3fn_to_fp32_value(uint8_t(r[i / 4] >> 8 * (i % 4))); } };
struct E5m2 { static constexpr int per = 4; static CRUCIBLE_PLAIN float at(const uint32_t* r, int i) { return c10::detail::fp8e5m2_to_fp32_value(uint8_t(r[i / 4] >> 8 * (i % 4))); } };

template <class E> inline constexpr int kind_of = 3;
template <> inline constexpr int kind_of<F16> = 0;
template <> inline constexpr int kind_of<Bf16> = 0;
template <> inline constexpr int kind_of<Tf32> = 1;
template <> inline constexpr int kind_of<F64> = 2;

// Accumulators: floats and integers one a register, halves two.
template <class T, class R>
inline CRUCIBLE_PLAIN T accumulated(const R* r, int i) { return r[i]; }
template <>
inline CRUCIBLE_PLAIN __half accumulated<__half>(const uint32_t* r, int i) { return __builtin_bit_cast(__half, uint16_t(r[i / 2] >> 16 * (i % 2))); }
template <class T, class R, class V>
inline CRUCIBLE_PLAIN void accumulate(R* r, int i, V v) { r[i] = T(v); }
template <>
inline CRUCIBLE_PLAIN void accumulate<__half>(uint32_t* r, int i, float v) {
    const uint32_t bits = HalfRule::from(v);
    r[i / 2] = i % 2 ? (r[i / 2] & 0xffffu) | bits << 16 : bits;
}
template <class T> inline CRUCIBLE_PLAIN auto widened(T v) { return v; }
template <> inline CRUCIBLE_PLAIN auto widened(__half v) { return HalfRule::to(v.__x); }
template <> inline CRUCIBLE_PLAIN auto widened(int32_t v) { return int64_t(v); }

// d = a * b + c of M x 8 x K. A lane holds rows lane / 4 (and 8 below it), a group of four lanes one row's columns in turn.
template <int M, int K, class A, class B, class C, class D, bool Clamps, class RA, int NA, class RB, int NB, class RC, int NC, class RD, int ND>
inline CRUCIBLE_PLAIN void mma(const RA (&a)[NA], const RB (&b)[NB], const RC (&c)[NC], RD (&d)[ND]) {
    uint64_t as[32], bs[32];
    crucible_gather(0xffffffffu, uint64_t(&a), as);
    crucible_gather(0xffffffffu, uint64_t(&b), bs);
    constexpr int across = 4 * A::per, rows = M / 8;
    const int lane = plain_lane();
    if (!lane) crucible_multiplied(kind_of<A>, 2 * M * 8 * K);
    for (int e = 0; e < M / 4; ++e) {
        const int row = lane / 4 + e / 2 * 8, column = lane % 4 * 2 + e % 2;
        auto sum = widened(accumulated<C>(c, e));
        for (int i = 0; i < K; ++i) {
            const RA* x = reinterpret_cast<const RA*>(as[row % 8 * 4 + i % across / A::per]);
            const RB* y = reinterpret_cast<const RB*>(bs[column * 4 + i % across / A::per]);
            sum += A::at(x, (row / 8 + i / across * rows) * A::per + i % A::per) * B::at(y, i / across * B::per + i % B::per);
        }
        if constexpr (Clamps) sum = sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum;
        accumulate<D>(d, e, sum);
    }
    crucible_warp(kSync, 0xffffffffu, -1, 0, 4);  // nobody changes its registers before all have read them
}

template <int Count, bool Transposed>
CRUCIBLE_INLINE void ldmatrix(uint32_t (&out)[Count], uint64_t address) {
    char* row = from_shared(address);
    Everyone all;
    everyone(all, row);
    const int lane = int(crucible::lane());
    if (lane < 8 * Count) crucible_check(row, 16, 2);
    for (int m = 0; m < Count; ++m) {
        uint32_t word = 0;
        for (int e = 0; e < 2; ++e) {
            const int r = Transposed ? lane % 4 * 2 + e : lane / 4, c = Transposed ? lane / 4 : lane % 4 * 2 + e;
            const auto* from = reinterpret_cast<const uint16_t*>(all.at[8 * m + r]) + c;
            word |= uint32_t(raw_load(from)) << 16 * e;
        }
        out[m] = word;
    }
    warp(kSync, 0xffffffffu);
}

template <int Count, bool Transposed>
CRUCIBLE_INLINE void stmatrix(const uint32_t (&values)[Count], uint64_t address) {
    char* row = from_shared(address);
    Everyone all;
    everyone(all, row);
    const int lane = int(crucible::lane());
    for (int m = 0; m < Count; ++m)
        for (int e = 0; e < 2; ++e) {
            const int r = Transposed ? lane % 4 * 2 + e : lane / 4, c = Transposed ? lane / 4 : lane % 4 * 2 + e;
            auto* to = reinterpret_cast<uint16_t*>(all.at[8 * m + r]) + c;
            crucible_check(to, 2, 3);
            raw_store(to, uint16_t(values[m] >> 16 * e));
        }
    warp(kSync, 0xffffffffu);
}

// Ten bits of mantissa, to nearest with ties away from zero or to even, or cut off.
CRUCIBLE_INLINE uint32_t to_tf32(float v, Rounding how = kAway) {
    uint32_t bits = __builtin_bit_cast(uint32_t, v);
    const uint32_t half = how == kAway ? 0x1000u : how == kNearest ? 0x0fffu + (bits >> 13 & 1) : 0;
    if ((bits & 0x7f800000u) != 0x7f800000u) bits += half;
    return bits & 0xffffe000u;
}

}  // namespace crucible
