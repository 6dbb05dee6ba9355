// CUB's block and warp primitives. Their storage is shared memory like any other: reuse without a barrier is a race.
#pragma once
#include "device.h"
#include "groups.h"

namespace cub {

struct Sum { template <class T> CRUCIBLE_INLINE T operator()(T a, T b) const { return a + b; } };
struct Max { template <class T> CRUCIBLE_INLINE T operator()(T a, T b) const { return a < b ? b : a; } };
struct Min { template <class T> CRUCIBLE_INLINE T operator()(T a, T b) const { return b < a ? b : a; } };
enum BlockReduceAlgorithm { BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY, BLOCK_REDUCE_RAKING, BLOCK_REDUCE_WARP_REDUCTIONS };
enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };

template <class T, int N = 32>
struct WarpReduce {
    struct TempStorage { char unused; };
    CRUCIBLE_INLINE explicit WarpReduce(TempStorage&) {}
    template <class F>
    CRUCIBLE_INLINE T Reduce(T v, F op, int valid = N) {
        const int lane = int(crucible::lane()) % N;
        const unsigned mask = (N == 32 ? ~0u : ((1u << (N % 32)) - 1) << (crucible::lane() / N * N)) & crucible_present_lanes();
        for (int d = 1; d < N; d *= 2) {
            const T other = __shfl_down_sync(mask, v, unsigned(d), N);
            if (lane + d < valid && (mask >> ((crucible::lane() + d) & 31) & 1)) v = op(v, other);
        }
        return v;
    }
    CRUCIBLE_INLINE T Sum(T v, int valid = N) { return Reduce(v, cub::Sum(), valid); }
    CRUCIBLE_INLINE T Max(T v) { return Reduce(v, cub::Max()); }
    CRUCIBLE_INLINE T Min(T v) { return Reduce(v, cub::Min()); }
};
template <class T, int N = 32>
struct WarpScan {
    struct TempStorage { char unused; };
    CRUCIBLE_INLINE explicit WarpScan(TempStorage&) {}
    template <class F>
    CRUCIBLE_INLINE void InclusiveScan(T v, T& out, F op) {
        const int lane = int(crucible::lane()) % N;
        const unsigned mask = (N == 32 ? ~0u : ((1u << (N % 32)) - 1) << (crucible::lane() / N * N)) & crucible_present_lanes();
        for (int d = 1; d < N; d *= 2) {
            const T other = __shfl_up_sync(mask, v, unsigned(d), N);
            if (lane >= d) v = op(other, v);
        }
        out = v;
    }
    template <class F>
    CRUCIBLE_INLINE void ExclusiveScan(T v, T& out, T init, F op) {
        T all;
        InclusiveScan(v, all, op);
        const T before = __shfl_up_sync(crucible_present_lanes(), all, 1u, N);
        out = int(crucible::lane()) % N ? op(init, before) : init;
    }
    CRUCIBLE_INLINE void InclusiveSum(T v, T& out) { InclusiveScan(v, out, cub::Sum()); }
    CRUCIBLE_INLINE void InclusiveSum(T v, T& out, T& total) { InclusiveSum(v, out); total = __shfl_sync(crucible_present_lanes(), out, N - 1, N); }
    CRUCIBLE_INLINE void ExclusiveSum(T v, T& out) { ExclusiveScan(v, out, T(0), cub::Sum()); }
    CRUCIBLE_INLINE void ExclusiveSum(T v, T& out, T& total) { T all; InclusiveSum(v, all, total); out = all - v; }
};

CRUCIBLE_INLINE int linear_thread() { return int(cooperative_groups::thread_block::thread_rank()); }

template <class T, int X, BlockReduceAlgorithm A = BLOCK_REDUCE_WARP_REDUCTIONS, int Y = 1, int Z = 1, int Arch = 0>
struct BlockReduce {
    struct TempStorage { T values[X * Y * Z]; };
    TempStorage& storage;
    CRUCIBLE_INLINE explicit BlockReduce(TempStorage& storage) : storage(storage) {}
    template <class F>
    CRUCIBLE_INLINE T Reduce(T v, F op, int valid = X * Y * Z) {
        const int own = linear_thread();
        storage.values[own] = v;
        __syncthreads();
        if (own == 0)
            for (int i = 1; i < valid && i < X * Y * Z; ++i) v = op(v, storage.values[i]);
        return v;
    }
    template <int N, class F>
    CRUCIBLE_INLINE T Reduce(T (&items)[N], F op) {
        T v = items[0];
        for (int i = 1; i < N; ++i) v = op(v, items[i]);
        return Reduce(v, op);
    }
    CRUCIBLE_INLINE T Sum(T v, int valid = X * Y * Z) { return Reduce(v, cub::Sum(), valid); }
    template <int N> CRUCIBLE_INLINE T Sum(T (&items)[N]) { return Reduce(items, cub::Sum()); }
};
template <class T, int X, BlockScanAlgorithm A = BLOCK_SCAN_RAKING, int Y = 1, int Z = 1, int Arch = 0>
struct BlockScan {
    struct TempStorage { T values[X * Y * Z]; };
    TempStorage& storage;
    CRUCIBLE_INLINE explicit BlockScan(TempStorage& storage) : storage(storage) {}
    template <class F>
    CRUCIBLE_INLINE T before(T v, T& total, bool& first, F op) {  // what the threads before this one hold together
        const int own = linear_thread();
        storage.values[own] = v;
        __syncthreads();
        T sum = storage.values[0], mine = sum;
        for (int i = 1; i < X * Y * Z; ++i) {
            if (i == own) mine = sum;
            sum = op(sum, storage.values[i]);
        }
        total = sum;
        first = own == 0;
        return mine;
    }
    template <class F> CRUCIBLE_INLINE void InclusiveScan(T v, T& out, F op, T& total) { bool first; const T p = before(v, total, first, op); out = first ? v : op(p, v); }
    template <class F> CRUCIBLE_INLINE void InclusiveScan(T v, T& out, F op) { T total; InclusiveScan(v, out, op, total); }
    template <class F> CRUCIBLE_INLINE void ExclusiveScan(T v, T& out, T init, F op, T& total) { bool first; const T p = before(v, total, first, op); out = first ? init : op(init, p); }
    template <class F> CRUCIBLE_INLINE void ExclusiveScan(T v, T& out, T init, F op) { T total; ExclusiveScan(v, out, init, op, total); }
    CRUCIBLE_INLINE void InclusiveSum(T v, T& out) { InclusiveScan(v, out, cub::Sum()); }
    CRUCIBLE_INLINE void InclusiveSum(T v, T& out, T& total) { InclusiveScan(v, out, cub::Sum(), total); }
    CRUCIBLE_INLINE void ExclusiveSum(T v, T& out) { ExclusiveScan(v, out, T(0), cub::Sum()); }
    CRUCIBLE_INLINE void ExclusiveSum(T v, T& out, T& total) { ExclusiveScan(v, out, T(0), cub::Sum(), total); }
    template <int N>
    CRUCIBLE_INLINE void ExclusiveSum(T (&in)[N], T (&out)[N]) {
        T sum = in[0], start;
        for (int i = 1; i < N; ++i) sum += in[i];
        ExclusiveSum(sum, start);
        for (int i = 0; i < N; ++i) { const T v = in[i]; out[i] = start; start += v; }
    }
    template <int N>
    CRUCIBLE_INLINE void InclusiveSum(T (&in)[N], T (&out)[N]) {
        T sum = in[0], start;
        for (int i = 1; i < N; ++i) sum += in[i];
        ExclusiveSum(sum, start);
        for (int i = 0; i < N; ++i) { start += in[i]; out[i] = start; }
    }
};

}  // namespace cub
