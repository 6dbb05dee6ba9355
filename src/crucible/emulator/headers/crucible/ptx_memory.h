// Inline PTX on memory and between lanes: loads, stores, atomics, shuffles, votes, mbarriers.
#pragma once
#include "mbarrier.h"
#include "ptx.h"

namespace crucible::ptx {

enum Access { kPlain, kVolatile, kAcquired, kReleased, kRelaxedStore };

// A vector is one access, which must be aligned as a whole.
template <class T, int Count, Access Kind>
CRUCIBLE_INLINE void load(T (&to)[Count], char* at) {
    const T* from = reinterpret_cast<const T*>(at);
    if constexpr (Kind == kVolatile) {
        for (int i = 0; i < Count; ++i) to[i] = __builtin_bit_cast(T, Bits<sizeof(T)>(reinterpret_cast<const volatile Bits<sizeof(T)>*>(from)[i]));
        return;
    }
    if constexpr (Kind == kAcquired) crucible_atomic(at, sizeof to);
    else crucible_check(at, sizeof to, 2);
    for (int i = 0; i < Count; ++i) to[i] = raw_load(from + i);
    if constexpr (Kind == kAcquired) crucible_observed(at, bits_of(to[0]), crucible::kAcquire);
}
template <class T, Access Kind, class... V>
CRUCIBLE_INLINE void store(char* at, V... values) {
    T* to = reinterpret_cast<T*>(at);
    if constexpr (Kind == kVolatile) {
        ((*reinterpret_cast<volatile Bits<sizeof(T)>*>(to++) = __builtin_bit_cast(Bits<sizeof(T)>, values)), ...);
        return;
    }
    if constexpr (Kind == kReleased) crucible_fence();
    if constexpr (Kind == kReleased || Kind == kRelaxedStore) crucible_atomic(at, sizeof(T) * sizeof...(V));
    else crucible_check(at, sizeof(T) * sizeof...(V), 3);
    (raw_store(to++, values), ...);
}

// ---- atomics: the old value
#define CRUCIBLE_ATOM(NAME, EXPRESSION)                                                                      \
    template <class T> CRUCIBLE_INLINE T atom_##NAME(T* at, T v) {                                           \
        return atomically(at, [=](T old) CRUCIBLE_PLAIN -> T { return EXPRESSION; });                        \
    }
template <class T> CRUCIBLE_PLAIN T sum_of(T a, T b) {
    if constexpr (std::is_integral_v<T>) return T(std::make_unsigned_t<T>(a) + std::make_unsigned_t<T>(b));
    else if constexpr (is_pair<T>) return T(sum_of(a.x, b.x), sum_of(a.y, b.y));
    else return made<T>(wide(a) + wide(b));
}
template <> inline CRUCIBLE_PLAIN double sum_of(double a, double b) { return a + b; }
template <class T> CRUCIBLE_PLAIN T lower_of(T a, T b) {
    if constexpr (is_pair<T>) return T(lower_of(a.x, b.x), lower_of(a.y, b.y));
    else if constexpr (is_small<T>) return wide(b) < wide(a) || is_nan(a) ? b : a;
    else return b < a ? b : a;
}
template <class T> CRUCIBLE_PLAIN T upper_of(T a, T b) {
    if constexpr (is_pair<T>) return T(upper_of(a.x, b.x), upper_of(a.y, b.y));
    else if constexpr (is_small<T>) return wide(b) > wide(a) || is_nan(a) ? b : a;
    else return b > a ? b : a;
}
CRUCIBLE_ATOM(add, sum_of(old, v))
CRUCIBLE_ATOM(min, lower_of(old, v))
CRUCIBLE_ATOM(max, upper_of(old, v))
CRUCIBLE_ATOM(and, T(old & v))
CRUCIBLE_ATOM(or, T(old | v))
CRUCIBLE_ATOM(xor, T(old ^ v))
CRUCIBLE_ATOM(exch, ((void)old, v))
CRUCIBLE_ATOM(inc, old >= v ? 0u : old + 1u)
CRUCIBLE_ATOM(dec, old == 0u || old > v ? v : old - 1u)
template <class T> CRUCIBLE_INLINE T atom_cas(T* at, T compare, T v) {
    return atomically(at, [=](T old) CRUCIBLE_PLAIN -> T { return old == compare ? v : old; });
}

// Bytes of the source that `cp.async` reads: a size, or a predicate to leave it out.
CRUCIBLE_INLINE uint32_t copied(uint32_t size, bool left_out) { return left_out ? 0 : size; }
template <class V> CRUCIBLE_INLINE uint32_t copied(uint32_t size, V given) { return uint32_t(given) < size ? uint32_t(given) : size; }

// ---- shuffles: c holds the clamp in bits 0-4 and the segment's mask in bits 8-12
template <class F>
CRUCIBLE_INLINE uint32_t shuffled_as(uint32_t value, uint32_t c, uint32_t mask, bool& valid, int op, F source) {
    const int lane = int(crucible::lane()), segment = int(c >> 8 & 31), clamp = int(c & 31);
    const int low = lane & segment, high = low | (clamp & ~segment);
    const int from = source(lane, low, high, segment);
    valid = from >= 0 && from <= 31;
    return shuffled(mask, value, valid ? from : lane, op);
}
CRUCIBLE_INLINE uint32_t shfl_up(uint32_t v, uint32_t b, uint32_t c, uint32_t mask, bool& valid) {
    return shuffled_as(v, c, mask, valid, kShuffleNear, [=](int lane, int, int high, int) { const int j = lane - int(b & 31); return j >= high ? j : -1; });
}
CRUCIBLE_INLINE uint32_t shfl_down(uint32_t v, uint32_t b, uint32_t c, uint32_t mask, bool& valid) {
    return shuffled_as(v, c, mask, valid, kShuffleNear, [=](int lane, int, int high, int) { const int j = lane + int(b & 31); return j <= high ? j : -1; });
}
CRUCIBLE_INLINE uint32_t shfl_bfly(uint32_t v, uint32_t b, uint32_t c, uint32_t mask, bool& valid) {
    return shuffled_as(v, c, mask, valid, kShuffleNear, [=](int lane, int, int high, int) { const int j = lane ^ int(b & 31); return j <= high ? j : -1; });
}
CRUCIBLE_INLINE uint32_t shfl_idx(uint32_t v, uint32_t b, uint32_t c, uint32_t mask, bool& valid) {
    return shuffled_as(v, c, mask, valid, kShuffle, [=](int, int low, int high, int segment) { const int j = low | (int(b & 31) & ~segment); return j <= high ? j : -1; });
}
CRUCIBLE_INLINE bool vote_all(bool p, uint32_t mask) { return __all_sync(mask, p); }
CRUCIBLE_INLINE bool vote_any(bool p, uint32_t mask) { return __any_sync(mask, p); }
CRUCIBLE_INLINE bool vote_uni(bool p, uint32_t mask) { const uint32_t lanes = __ballot_sync(mask, p); return lanes == 0 || lanes == mask; }
CRUCIBLE_INLINE uint32_t vote_ballot(bool p, uint32_t mask) { return __ballot_sync(mask, p); }

template <class V> CRUCIBLE_INLINE uint32_t phase_of(V state) { return mbarrier_phase(uint64_t(state)); }

}  // namespace crucible::ptx
