// wmma, and what inline PTX of tensor cores and asynchronous copies means (PTX ISA, "Warp-level matrix instructions").
#pragma once
#include "half.h"

namespace crucible {

// Every lane's pointer, so that a warp operation can read what the others hold in registers.
struct Everyone { uint64_t at[32]; };
CRUCIBLE_INLINE void everyone(Everyone& all, const void* own, uint32_t mask = 0xffffffffu) { crucible_gather(mask, uint64_t(own), all.at); }
CRUCIBLE_INLINE char* from_shared(uint64_t address) { return static_cast<char*>(crucible_shared_base()) + uint32_t(address); }

inline CRUCIBLE_PLAIN float tf32(uint32_t bits) { return __builtin_bit_cast(float, bits & 0xffffe000u); }
template <class Rule>
inline CRUCIBLE_PLAIN float half_of(uint32_t word, int which) { return Rule::to(uint16_t(word >> 16 * which)); }

// mma.m16n8kK: fragments as the PTX ISA lays them out over groups of four lanes.
struct Mma { uint32_t a[4], b[2]; float c[4]; };
enum Operand { kF16, kBf16, kTf32 };
inline CRUCIBLE_PLAIN float element(const uint32_t* registers, int which, Operand type) {
    if (type == kTf32) return tf32(registers[which]);
    return type == kF16 ? half_of<HalfRule>(registers[which / 2], which % 2) : half_of<Bfloat16Rule>(registers[which / 2], which % 2);
}
inline CRUCIBLE_PLAIN void mma(Mma& own, int k, Operand type) {
    Everyone all;
    crucible_gather(0xffffffffu, uint64_t(&own), all.at);
    uint32_t lane_;
    asm("movq crucible_ids@GOTPCREL(%%rip), %%rax\n\tmovq (%%rax), %%rax\n\tmovl %c1(%%rax), %0" : "=r"(lane_) : "i"(offsetof(Ids, lane)) : "rax");
    const int lane = int(lane_), per = type == kTf32 ? 1 : 2;  // elements in a register
    float out[4];
    for (int e = 0; e < 4; ++e) {
        const int row = lane / 4 + e / 2 * 8, column = lane % 4 * 2 + e % 2;
        float sum = own.c[e];
        for (int i = 0; i < k; ++i) {
            const int group = 4 * per;  // columns of A that four lanes hold in one register each
            const int holder_a = row % 8 * 4 + i % group / per, reg_a = row / 8 + i / group * 2;
            const int holder_b = column * 4 + i % group / per, reg_b = i / group;
            const Mma* a = reinterpret_cast<const Mma*>(all.at[holder_a]);
            const Mma* b = reinterpret_cast<const Mma*>(all.at[holder_b]);
            sum += element(a->a, reg_a * per + i % per, type) * element(b->b, reg_b * per + i % per, type);
        }
        out[e] = sum;
    }
    crucible_warp(kSync, 0xffffffffu, -1, 0, 4);  // nobody changes its registers before all have read them
    for (int e = 0; e < 4; ++e) own.c[e] = out[e];
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

CRUCIBLE_INLINE uint32_t to_tf32(float v) {  // to nearest, ties away from zero
    uint32_t bits = __builtin_bit_cast(uint32_t, v);
    if ((bits & 0x7f800000u) != 0x7f800000u) bits += 0x1000u;
    return bits & 0xffffe000u;
}
template <class T> CRUCIBLE_INLINE float as_float(T v) { return __builtin_bit_cast(float, v); }
template <class T> CRUCIBLE_INLINE uint32_t as_word(T v) { if constexpr (sizeof(T) == 4) return __builtin_bit_cast(uint32_t, v); else return uint32_t(v); }

}  // namespace crucible

namespace nvcuda::wmma {
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };
namespace precision { struct tf32 {}; }

// Lane l holds elements l, l + 32, ...: the real layout is unspecified, and programs may not depend on it.
template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment {
    static constexpr int rows = std::is_same_v<Use, matrix_b> ? K : M, columns = std::is_same_v<Use, matrix_a> ? K : N;
    static constexpr int num_elements = rows * columns / 32;
    using element_type = std::conditional_t<std::is_same_v<T, precision::tf32>, float, T>;
    element_type x[num_elements];
};
template <class U, int M, int N, int K, class T, class L, class V>
CRUCIBLE_INLINE void fill_fragment(fragment<U, M, N, K, T, L>& f, V v) { for (auto& e : f.x) e = typename fragment<U, M, N, K, T, L>::element_type(v); }
template <class F, class T>
CRUCIBLE_INLINE void load_elements(F& f, const T* from, unsigned stride, bool row) {
    crucible::warp(crucible::kSync, 0xffffffffu);
    for (int i = 0; i < F::num_elements; ++i) {
        const int e = i * 32 + int(crucible::lane()), r = e / F::columns, c = e % F::columns;
        f.x[i] = from[row ? size_t(r) * stride + c : size_t(c) * stride + r];
    }
}
template <class U, int M, int N, int K, class T, class L, class V>
CRUCIBLE_INLINE void load_matrix_sync(fragment<U, M, N, K, T, L>& f, const V* from, unsigned stride) { load_elements(f, from, stride, std::is_same_v<L, row_major>); }
template <int M, int N, int K, class T, class V>
CRUCIBLE_INLINE void load_matrix_sync(fragment<accumulator, M, N, K, T>& f, const V* from, unsigned stride, layout_t layout) { load_elements(f, from, stride, layout == mem_row_major); }
template <int M, int N, int K, class T, class V>
CRUCIBLE_INLINE void store_matrix_sync(V* to, const fragment<accumulator, M, N, K, T>& f, unsigned stride, layout_t layout) {
    using F = fragment<accumulator, M, N, K, T>;
    for (int i = 0; i < F::num_elements; ++i) {
        const int e = i * 32 + int(crucible::lane()), r = e / F::columns, c = e % F::columns;
        to[layout == mem_row_major ? size_t(r) * stride + c : size_t(c) * stride + r] = f.x[i];
    }
    crucible::warp(crucible::kSync, 0xffffffffu);
}
template <class F>
inline CRUCIBLE_PLAIN float element_of(const crucible::Everyone& all, int e) {
    const auto* holder = reinterpret_cast<const F*>(all.at[e % 32]);
    return float(holder->x[e / 32]);
}
template <int M, int N, int K, class A, class LA, class B, class LB, class C, class D>
inline CRUCIBLE_PLAIN void mma_sync(fragment<accumulator, M, N, K, D>& d, const fragment<matrix_a, M, N, K, A, LA>& a,
                                    const fragment<matrix_b, M, N, K, B, LB>& b, const fragment<accumulator, M, N, K, C>& c) {
    crucible::Everyone as, bs;
    crucible_gather(0xffffffffu, uint64_t(&a), as.at);
    crucible_gather(0xffffffffu, uint64_t(&b), bs.at);
    uint32_t lane;
    asm("movq crucible_ids@GOTPCREL(%%rip), %%rax\n\tmovq (%%rax), %%rax\n\tmovl %c1(%%rax), %0" : "=r"(lane) : "i"(offsetof(crucible::Ids, lane)) : "rax");
    D out[fragment<accumulator, M, N, K, D>::num_elements];
    for (int i = 0; i < fragment<accumulator, M, N, K, D>::num_elements; ++i) {
        const int e = i * 32 + int(lane), r = e / N, q = e % N;
        float sum = float(c.x[i]);
        for (int k = 0; k < K; ++k)
            sum += element_of<fragment<matrix_a, M, N, K, A, LA>>(as, r * K + k) * element_of<fragment<matrix_b, M, N, K, B, LB>>(bs, k * N + q);
        out[i] = D(sum);
    }
    crucible_warp(crucible::kSync, 0xffffffffu, -1, 0, 4);
    for (int i = 0; i < fragment<accumulator, M, N, K, D>::num_elements; ++i) d.x[i] = out[i];
}
CRUCIBLE_INLINE float __float_to_tf32(float v) { return __builtin_bit_cast(float, crucible::to_tf32(v)); }
}  // namespace nvcuda::wmma
