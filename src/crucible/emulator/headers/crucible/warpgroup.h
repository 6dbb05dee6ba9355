// Matrix instructions of a warpgroup: wgmma with its second matrix in shared memory and its first there or in registers
// (PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Operation"). The products are computed where they are issued, what they read is looked at
// again where they are waited for.
#pragma once
#include "mma.h"

namespace crucible {

inline CRUCIBLE_PLAIN void meet() { crucible_warp(kSync, 0xffffffffu, -1, 0, 4); }  // all lanes of a warp

// A matrix whose rows are K-major, without a swizzle: eight rows of 16 bytes lie behind each other; the next eight are
// `stride` further, the next 16 bytes of a row `leading`.
struct Described {
    const char* start;
    uint32_t leading, stride;
    CRUCIBLE_PLAIN const uint32_t* unit(int row, int number) const {
        return reinterpret_cast<const uint32_t*>(start + row / 8 * stride + row % 8 * 16 + number * leading);
    }
};
inline CRUCIBLE_PLAIN Described described(uint64_t bits) {
    if (bits >> 62 || (bits >> 49 & 7)) crucible_trap("a matrix descriptor with a swizzle or a base offset: not known to the emulator");
    return {static_cast<const char*>(crucible_described(uint32_t(bits & 0x3fff) << 4)), uint32_t(bits >> 16 & 0x3fff) << 4,
            uint32_t(bits >> 32 & 0x3fff) << 4};
}

// What a lane has of two rows, eight apart, times its columns of b.
template <int N, int K, class E>
inline CRUCIBLE_PLAIN void multiply(float (&d)[N / 2], const float (&rows)[2][K], const Described& b, bool adds) {
    constexpr int of_unit = 4 * E::per;
    const int lane = plain_lane();
    for (int j = 0; j < N / 8; ++j)
        for (int of_pair = 0; of_pair < 2; ++of_pair) {
            float& above = d[j * 4 + of_pair];
            float& below = d[j * 4 + 2 + of_pair];
            float sums[2] = {adds ? above : 0.0f, adds ? below : 0.0f};
            for (int i = 0; i < K; ++i) {
                const float factor = E::at(b.unit(j * 8 + lane % 4 * 2 + of_pair, i / of_unit), i % of_unit);
                sums[0] += rows[0][i] * factor;
                sums[1] += rows[1][i] * factor;
            }
            above = sums[0];
            below = sums[1];
        }
}

// d = a b (+ d), 64 x N x K. Warp w of the four holds rows 16 w to 16 w + 15, and of them a lane what it has of an m16n8 tile.
template <int N, int K, class E>
inline CRUCIBLE_PLAIN void wgmma(float (&d)[N / 2], uint64_t a_bits, uint64_t b_bits, bool adds) {
    constexpr int units = 2, of_unit = 4 * E::per;  // elements of 16 bytes
    static_assert(K == units * of_unit);
    const Described a = described(a_bits), b = described(b_bits);
    const int lane = plain_lane(), warp = plain_thread() / 32 % 4;
    if (!lane) crucible_multiplied(kind_of<E>, 2 * 16 * N * K);
    crucible_product_reads(a.unit(warp * 16 + lane % 16, lane / 16), 16);
    for (int p = warp * 32 + lane; p < N * units; p += 128) crucible_product_reads(b.unit(p / units, p % units), 16);
    meet();
    float rows[2][K];
    for (int r = 0; r < 2; ++r)
        for (int i = 0; i < K; ++i) rows[r][i] = E::at(a.unit(warp * 16 + lane / 4 + r * 8, i / of_unit), i % of_unit);
    multiply<N, K, E>(d, rows, b, adds);
    meet();
}

// The same with a in registers: a warp has its 16 rows as mma.sync has them.
template <int N, int K, class E>
inline CRUCIBLE_PLAIN void wgmma(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b_bits, bool adds) {
    constexpr int units = 2, of_unit = 4 * E::per;
    static_assert(K == units * of_unit);
    const Described b = described(b_bits);
    const int lane = plain_lane(), warp = plain_thread() / 32 % 4;
    if (!lane) crucible_multiplied(kind_of<E>, 2 * 16 * N * K);
    for (int p = warp * 32 + lane; p < N * units; p += 128) crucible_product_reads(b.unit(p / units, p % units), 16);
    uint64_t as[32];
    crucible_gather(0xffffffffu, uint64_t(&a), as);
    float rows[2][K];
    for (int r = 0; r < 2; ++r)
        for (int i = 0; i < K; ++i) {
            const uint32_t* x = reinterpret_cast<const uint32_t*>(as[lane / 4 * 4 + i % of_unit / E::per]);
            rows[r][i] = E::at(x, (r + i / of_unit * 2) * E::per + i % E::per);
        }
    multiply<N, K, E>(d, rows, b, adds);
    meet();  // nobody changes its registers before all have read them
}

}  // namespace crucible
