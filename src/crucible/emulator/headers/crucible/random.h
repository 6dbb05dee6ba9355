// curand_kernel.h: generators of a thread's own, by their published definitions: Philox 4x32 of ten rounds (Salmon et al.,
// 2011) and XORWOW (Marsaglia, 2003), with the starts and the skips that cuRAND's manual states.
#pragma once
#include <cmath>

#include "device.h"
#include "math.h"

extern "C" void crucible_xorwow_skip(uint32_t* state, uint64_t subsequence, uint64_t offset);

struct curandStatePhilox4_32_10 {
    uint32_t counter[4] = {}, key[2] = {}, output[4] = {};
    int used = 0, normal_kept = 0;
    float normal = 0;
};
typedef curandStatePhilox4_32_10 curandStatePhilox4_32_10_t;
struct curandStateXORWOW {
    uint32_t v[5] = {}, d = 0;
    int normal_kept = 0;
    float normal = 0;
};
typedef curandStateXORWOW curandStateXORWOW_t;
typedef curandStateXORWOW curandState;
typedef curandStateXORWOW curandState_t;

namespace crucible {
CRUCIBLE_INLINE void philox(curandStatePhilox4_32_10* s) {
    uint32_t c[4] = {s->counter[0], s->counter[1], s->counter[2], s->counter[3]}, k[2] = {s->key[0], s->key[1]};
    for (int round = 0; round < 10; ++round) {
        const uint64_t a = uint64_t(0xD2511F53u) * c[0], b = uint64_t(0xCD9E8D57u) * c[2];
        const uint32_t next[4] = {uint32_t(b >> 32) ^ c[1] ^ k[0], uint32_t(b), uint32_t(a >> 32) ^ c[3] ^ k[1], uint32_t(a)};
        for (int i = 0; i < 4; ++i) c[i] = next[i];
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    for (int i = 0; i < 4; ++i) s->output[i] = c[i];
}
CRUCIBLE_INLINE void advance(curandStatePhilox4_32_10* s, uint64_t blocks, int first) {
    const uint64_t low = (uint64_t(s->counter[first + 1]) << 32 | s->counter[first]) + blocks;
    const bool carries = low < blocks;
    s->counter[first] = uint32_t(low);
    s->counter[first + 1] = uint32_t(low >> 32);
    if (carries && first == 0 && ++s->counter[2] == 0) ++s->counter[3];
}
CRUCIBLE_INLINE float uniform(uint32_t x) { return float(x) * 2.3283064e-10f + 2.3283064e-10f / 2; }
// Box and Muller's pair.
CRUCIBLE_INLINE float2 normals(uint32_t x, uint32_t y) {
    const float u = uniform(x), v = float(y) * (2.3283064e-10f * 6.2831855f) + 2.3283064e-10f * 6.2831855f / 2;
    const float radius = sqrtf(-2.0f * logf(u));
    return float2{radius * sinf(v), radius * cosf(v)};
}
}  // namespace crucible

inline void skipahead(unsigned long long n, curandStatePhilox4_32_10* s) {
    const uint64_t used = uint64_t(s->used) + n % 4;
    crucible::advance(s, n / 4 + used / 4, 0);
    s->used = int(used % 4);
    crucible::philox(s);
}
inline void skipahead_sequence(unsigned long long n, curandStatePhilox4_32_10* s) {
    crucible::advance(s, n, 2);
    crucible::philox(s);
}
inline void curand_init(unsigned long long seed, unsigned long long subsequence, unsigned long long offset, curandStatePhilox4_32_10* s) {
    *s = {};
    s->key[0] = uint32_t(seed);
    s->key[1] = uint32_t(seed >> 32);
    skipahead_sequence(subsequence, s);
    skipahead(offset, s);
}
inline unsigned curand(curandStatePhilox4_32_10* s) {
    const unsigned out = s->output[s->used++];
    if (s->used == 4) {
        s->used = 0;
        crucible::advance(s, 1, 0);
        crucible::philox(s);
    }
    return out;
}
inline uint4 curand4(curandStatePhilox4_32_10* s) {
    const unsigned a = curand(s), b = curand(s), c = curand(s), d = curand(s);
    return uint4{a, b, c, d};
}
inline float4 curand_uniform4(curandStatePhilox4_32_10* s) {
    const uint4 x = curand4(s);
    return float4{crucible::uniform(x.x), crucible::uniform(x.y), crucible::uniform(x.z), crucible::uniform(x.w)};
}
inline float4 curand_normal4(curandStatePhilox4_32_10* s) {
    const uint4 x = curand4(s);
    const float2 a = crucible::normals(x.x, x.y), b = crucible::normals(x.z, x.w);
    return float4{a.x, a.y, b.x, b.y};
}

inline void skipahead(unsigned long long n, curandStateXORWOW* s) {
    crucible_xorwow_skip(s->v, 0, n);
    s->d += 362437u * uint32_t(n);
}
inline void skipahead_sequence(unsigned long long n, curandStateXORWOW* s) { crucible_xorwow_skip(s->v, n, 0); }
inline void curand_init(unsigned long long seed, unsigned long long subsequence, unsigned long long offset, curandStateXORWOW* s) {
    const uint32_t a = 1099087573u * (uint32_t(seed) ^ 0xaad26b49u), b = 2591861531u * (uint32_t(seed >> 32) ^ 0xf7dcefddu);
    *s = {{123456789u + a, 362436069u ^ a, 521288629u + b, 88675123u ^ b, 5783321u + a}, 6615241u + b + a};
    skipahead_sequence(subsequence, s);
    skipahead(offset, s);
}
inline unsigned curand(curandStateXORWOW* s) {
    const uint32_t t = s->v[0] ^ (s->v[0] >> 2);
    for (int i = 0; i < 4; ++i) s->v[i] = s->v[i + 1];
    s->v[4] = (s->v[4] ^ (s->v[4] << 4)) ^ (t ^ (t << 1));
    s->d += 362437u;
    return s->v[4] + s->d;
}

template <class S> float curand_uniform(S* s) { return crucible::uniform(curand(s)); }
template <class S> double curand_uniform_double(S* s) {
    const uint64_t x = curand(s), y = curand(s);
    return double(x ^ y << (53 - 32)) * 0x1p-53 + 0x1p-54;
}
template <class S> float2 curand_normal2(S* s) {
    const unsigned x = curand(s), y = curand(s);
    return crucible::normals(x, y);
}
template <class S> float curand_normal(S* s) {
    s->normal_kept = !s->normal_kept;
    if (!s->normal_kept) return s->normal;
    const float2 pair = curand_normal2(s);
    s->normal = pair.y;
    return pair.x;
}
template <class S> float curand_log_normal(S* s, float mean, float deviation) { return expf(mean + deviation * curand_normal(s)); }
