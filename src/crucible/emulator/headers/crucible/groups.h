// cooperative_groups: block, tile, coalesced and grid.
#pragma once
#include "device.h"
#include "math.h"

namespace cooperative_groups {

struct thread_block {
    CRUCIBLE_INLINE void sync() const { __syncthreads(); }
    static CRUCIBLE_INLINE unsigned thread_rank() { return crucible::id<offsetof(crucible::Ids, linear)>(); }
    static CRUCIBLE_INLINE unsigned size() {
        return CRUCIBLE_ID(blockDim, x) * CRUCIBLE_ID(blockDim, y) * CRUCIBLE_ID(blockDim, z);
    }
    static CRUCIBLE_INLINE unsigned num_threads() { return size(); }
    static CRUCIBLE_INLINE dim3 group_index() { return blockIdx; }
    static CRUCIBLE_INLINE dim3 thread_index() { return threadIdx; }
    static CRUCIBLE_INLINE dim3 group_dim() { return blockDim; }
    static CRUCIBLE_INLINE dim3 dim_threads() { return blockDim; }
};
struct grid_group {
    CRUCIBLE_INLINE void sync() const { crucible_grid_barrier(); }
    CRUCIBLE_INLINE bool is_valid() const { return true; }
    static CRUCIBLE_INLINE unsigned long long block_rank() {
        return (uint64_t(CRUCIBLE_ID(blockIdx, z)) * CRUCIBLE_ID(gridDim, y) + CRUCIBLE_ID(blockIdx, y)) * CRUCIBLE_ID(gridDim, x) + CRUCIBLE_ID(blockIdx, x);
    }
    static CRUCIBLE_INLINE unsigned long long num_blocks() {
        return uint64_t(CRUCIBLE_ID(gridDim, x)) * CRUCIBLE_ID(gridDim, y) * CRUCIBLE_ID(gridDim, z);
    }
    static CRUCIBLE_INLINE unsigned long long size() { return num_blocks() * thread_block::size(); }
    static CRUCIBLE_INLINE unsigned long long num_threads() { return size(); }
    static CRUCIBLE_INLINE unsigned long long thread_rank() { return block_rank() * thread_block::size() + thread_block::thread_rank(); }
    static CRUCIBLE_INLINE dim3 group_dim() { return gridDim; }
    static CRUCIBLE_INLINE dim3 dim_blocks() { return gridDim; }
};
CRUCIBLE_INLINE thread_block this_thread_block() { return {}; }
CRUCIBLE_INLINE grid_group this_grid() { return {}; }

// Lanes of one warp, in the order of their numbers.
struct coalesced_group {
    unsigned mask = 0, meta_rank = 0, meta_size = 1;
    CRUCIBLE_INLINE unsigned size() const { return unsigned(__popc(mask)); }
    CRUCIBLE_INLINE unsigned num_threads() const { return size(); }
    CRUCIBLE_INLINE unsigned thread_rank() const { return unsigned(__popc(mask & ((1u << crucible::lane()) - 1))); }
    CRUCIBLE_INLINE unsigned meta_group_rank() const { return meta_rank; }
    CRUCIBLE_INLINE unsigned meta_group_size() const { return meta_size; }
    CRUCIBLE_INLINE int lane_at(unsigned rank) const {
        unsigned left = mask;
        for (; rank && left; --rank) left &= left - 1;
        return left ? __builtin_ctz(left) : int(crucible::lane());
    }
    CRUCIBLE_INLINE unsigned packed(unsigned lanes) const {
        unsigned out = 0, at = 0;
        for (unsigned left = mask; left; left &= left - 1, ++at) out |= (lanes >> __builtin_ctz(left) & 1u) << at;
        return out;
    }
    CRUCIBLE_INLINE void sync() const { __syncwarp(mask); }
    template <class T> CRUCIBLE_INLINE T shfl(T v, unsigned rank) const { return crucible::shuffled(mask, v, lane_at(rank)); }
    template <class T> CRUCIBLE_INLINE T shfl_down(T v, unsigned d) const { const unsigned r = thread_rank(); return shfl(v, r + d < size() ? r + d : r); }
    template <class T> CRUCIBLE_INLINE T shfl_up(T v, unsigned d) const { const unsigned r = thread_rank(); return shfl(v, r >= d ? r - d : r); }
    template <class T> CRUCIBLE_INLINE T shfl_xor(T v, unsigned x) const { const unsigned r = thread_rank() ^ x; return shfl(v, r < size() ? r : thread_rank()); }
    CRUCIBLE_INLINE int any(int p) const { return __any_sync(mask, p); }
    CRUCIBLE_INLINE int all(int p) const { return __all_sync(mask, p); }
    CRUCIBLE_INLINE unsigned ballot(int p) const { return packed(__ballot_sync(mask, p)); }
    template <class T> CRUCIBLE_INLINE unsigned match_any(T v) const { return packed(__match_any_sync(mask, v)); }
    template <class T> CRUCIBLE_INLINE unsigned match_all(T v, int& p) const { return packed(__match_all_sync(mask, v, &p)); }
};
template <unsigned N, class Parent = void>
struct thread_block_tile : coalesced_group {
    static_assert(N <= 32 && (N & (N - 1)) == 0, "tiles of more than a warp are not covered");
    CRUCIBLE_INLINE thread_block_tile() {
        const unsigned rank = thread_block::thread_rank();
        mask = (N == 32 ? ~0u : ((1u << (N % 32)) - 1)) << (crucible::lane() & ~(N - 1));
        meta_rank = rank / N;
        meta_size = (thread_block::size() + N - 1) / N;
        if (meta_rank == meta_size - 1 && thread_block::size() % N) mask &= (thread_block::size() % 32) ? (1u << (thread_block::size() % 32)) - 1 : ~0u;
    }
    template <class T, unsigned M> CRUCIBLE_INLINE explicit thread_block_tile(const thread_block_tile<M, T>&) : thread_block_tile() { meta_size = M / N; meta_rank %= M / N; }
    static constexpr CRUCIBLE_INLINE unsigned size() { return N; }
    static constexpr CRUCIBLE_INLINE unsigned num_threads() { return N; }
    CRUCIBLE_INLINE unsigned thread_rank() const { return crucible::lane() & (N - 1); }
    template <class T> CRUCIBLE_INLINE T shfl(T v, int rank) const { return __shfl_sync(mask, v, rank, N); }
    template <class T> CRUCIBLE_INLINE T shfl_down(T v, unsigned d) const { return __shfl_down_sync(mask, v, d, N); }
    template <class T> CRUCIBLE_INLINE T shfl_up(T v, unsigned d) const { return __shfl_up_sync(mask, v, d, N); }
    template <class T> CRUCIBLE_INLINE T shfl_xor(T v, unsigned x) const { return __shfl_xor_sync(mask, v, int(x), N); }
};
template <unsigned N> CRUCIBLE_INLINE thread_block_tile<N> tiled_partition(const thread_block&) { return {}; }
template <unsigned N, unsigned M, class P> CRUCIBLE_INLINE thread_block_tile<N> tiled_partition(const thread_block_tile<M, P>& parent) { return thread_block_tile<N>(parent); }
CRUCIBLE_INLINE coalesced_group coalesced_threads() { return {__activemask(), 0, 1}; }
CRUCIBLE_INLINE coalesced_group tiled_partition(const thread_block&, unsigned n) {
    const unsigned rank = thread_block::thread_rank();
    return {(n == 32 ? ~0u : (1u << n) - 1) << (crucible::lane() & ~(n - 1)), rank / n, (thread_block::size() + n - 1) / n};
}
CRUCIBLE_INLINE coalesced_group binary_partition(const coalesced_group& g, bool p) {
    const unsigned lanes = __ballot_sync(g.mask, p);
    return {p ? lanes : g.mask & ~lanes, p, 2};
}
template <class T>
CRUCIBLE_INLINE coalesced_group labeled_partition(const coalesced_group& g, T label) { return {__match_any_sync(g.mask, label), 0, 1}; }

template <class G> CRUCIBLE_INLINE void sync(const G& g) { g.sync(); }

}  // namespace cooperative_groups
