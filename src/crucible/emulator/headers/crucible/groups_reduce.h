// cooperative_groups/reduce.h and scan.h.
#pragma once
#include "groups.h"

namespace cooperative_groups {
template <class T = void> struct plus { template <class U> CRUCIBLE_INLINE U operator()(U a, U b) const { return a + b; } };
template <class T = void> struct less { template <class U> CRUCIBLE_INLINE U operator()(U a, U b) const { return b < a ? b : a; } };
template <class T = void> struct greater { template <class U> CRUCIBLE_INLINE U operator()(U a, U b) const { return a < b ? b : a; } };
template <class T = void> struct bit_and { template <class U> CRUCIBLE_INLINE U operator()(U a, U b) const { return a & b; } };
template <class T = void> struct bit_or { template <class U> CRUCIBLE_INLINE U operator()(U a, U b) const { return a | b; } };
template <class T = void> struct bit_xor { template <class U> CRUCIBLE_INLINE U operator()(U a, U b) const { return a ^ b; } };

template <class G, class T, class F>
CRUCIBLE_INLINE T reduce(const G& g, T v, F op) {
    T total = crucible::shuffled(g.mask, v, g.lane_at(0));
    const unsigned count = unsigned(__popc(g.mask));
    for (unsigned i = 1; i < count; ++i) total = op(total, crucible::shuffled(g.mask, v, g.lane_at(i)));
    return total;
}
template <class G, class T, class F>
CRUCIBLE_INLINE T inclusive_scan(const G& g, T v, F op) {
    T total = crucible::shuffled(g.mask, v, g.lane_at(0));
    const unsigned own = g.thread_rank(), count = unsigned(__popc(g.mask));
    for (unsigned i = 1; i < count; ++i) {
        const T one = crucible::shuffled(g.mask, v, g.lane_at(i));
        if (i <= own) total = op(total, one);
    }
    return total;
}
template <class G, class T> CRUCIBLE_INLINE T inclusive_scan(const G& g, T v) { return inclusive_scan(g, v, plus<T>()); }
template <class G, class T>
CRUCIBLE_INLINE T exclusive_scan(const G& g, T v) {
    const T all = inclusive_scan(g, v, plus<T>());
    return all - v;
}
}  // namespace cooperative_groups
