// Shuffles, votes, match and reduce intrinsics. Included by device.h.
#pragma once

namespace crucible {
// The types that CUDA's shuffles take: a struct must not compile.
template <class T> inline constexpr bool shuffles = std::is_arithmetic_v<T> || std::is_enum_v<T>;
template <class T> inline constexpr bool matches = std::is_arithmetic_v<T> && sizeof(T) >= 4;
}

template <class T> requires crucible::shuffles<T>
CRUCIBLE_INLINE T __shfl_sync(unsigned mask, T v, int from, int width = 32) {
    const int lane = crucible::lane();
    return crucible::shuffled(mask, v, (lane & ~(width - 1)) | (from & (width - 1)), crucible::kShuffle);
}
template <class T> requires crucible::shuffles<T>
CRUCIBLE_INLINE T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32) {
    const int lane = crucible::lane(), from = lane - int(delta);
    return crucible::shuffled(mask, v, from < (lane & ~(width - 1)) ? lane : from);
}
template <class T> requires crucible::shuffles<T>
CRUCIBLE_INLINE T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32) {
    const int lane = crucible::lane(), from = lane + int(delta);
    return crucible::shuffled(mask, v, from > (lane | (width - 1)) ? lane : from);
}
template <class T> requires crucible::shuffles<T>
CRUCIBLE_INLINE T __shfl_xor_sync(unsigned mask, T v, int other, int width = 32) {
    const int lane = crucible::lane(), from = lane ^ other;
    return crucible::shuffled(mask, v, from > (lane | (width - 1)) ? lane : from);
}
CRUCIBLE_INLINE unsigned __ballot_sync(unsigned mask, int p) { return crucible::warp(crucible::kBallot, mask, uint32_t(!!p)); }
CRUCIBLE_INLINE int __all_sync(unsigned mask, int p) { return int(crucible::warp(crucible::kAll, mask, uint32_t(!!p))); }
CRUCIBLE_INLINE int __any_sync(unsigned mask, int p) { return int(crucible::warp(crucible::kAny, mask, uint32_t(!!p))); }
template <class T>
CRUCIBLE_INLINE unsigned __match_any_sync(unsigned mask, T v) {
    return crucible::warp(crucible::kMatchAny, mask, crucible::bits_of(v), sizeof(T));
}
template <class T>
CRUCIBLE_INLINE unsigned __match_all_sync(unsigned mask, T v, int* p) {
    const unsigned same = crucible::warp(crucible::kMatchAll, mask, crucible::bits_of(v), sizeof(T));
    *p = same != 0;
    return same;
}
CRUCIBLE_INLINE unsigned __reduce_add_sync(unsigned m, unsigned v) { return crucible::warp(crucible::kAddU, m, v); }
CRUCIBLE_INLINE int __reduce_add_sync(unsigned m, int v) { return int(crucible::warp(crucible::kAddU, m, uint32_t(v))); }
CRUCIBLE_INLINE unsigned __reduce_min_sync(unsigned m, unsigned v) { return crucible::warp(crucible::kMinU, m, v); }
CRUCIBLE_INLINE int __reduce_min_sync(unsigned m, int v) { return int(crucible::warp(crucible::kMinS, m, uint32_t(v))); }
CRUCIBLE_INLINE unsigned __reduce_max_sync(unsigned m, unsigned v) { return crucible::warp(crucible::kMaxU, m, v); }
CRUCIBLE_INLINE int __reduce_max_sync(unsigned m, int v) { return int(crucible::warp(crucible::kMaxS, m, uint32_t(v))); }
CRUCIBLE_INLINE unsigned __reduce_and_sync(unsigned m, unsigned v) { return crucible::warp(crucible::kAnd, m, v); }
CRUCIBLE_INLINE unsigned __reduce_or_sync(unsigned m, unsigned v) { return crucible::warp(crucible::kOr, m, v); }
CRUCIBLE_INLINE unsigned __reduce_xor_sync(unsigned m, unsigned v) { return crucible::warp(crucible::kXor, m, v); }
