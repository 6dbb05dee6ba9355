// CUB's block-wide loads, stores, exchanges, sorts and histograms.
#pragma once
#include "blocks.h"

namespace cub {

struct NullType {};
enum BlockLoadAlgorithm { BLOCK_LOAD_DIRECT, BLOCK_LOAD_STRIPED, BLOCK_LOAD_VECTORIZE, BLOCK_LOAD_TRANSPOSE, BLOCK_LOAD_WARP_TRANSPOSE, BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED };
enum BlockStoreAlgorithm { BLOCK_STORE_DIRECT, BLOCK_STORE_STRIPED, BLOCK_STORE_VECTORIZE, BLOCK_STORE_TRANSPOSE, BLOCK_STORE_WARP_TRANSPOSE, BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED };
enum BlockHistogramAlgorithm { BLOCK_HISTO_SORT, BLOCK_HISTO_ATOMIC };

// Where item i of a thread stands in the tile: next to each other, or a block apart.
template <int Threads, int N>
CRUCIBLE_INLINE int tile_place(int i, bool striped) { return striped ? i * Threads + linear_thread() : linear_thread() * N + i; }

template <class T, int X, int N, BlockLoadAlgorithm A = BLOCK_LOAD_DIRECT, int Y = 1, int Z = 1, int Arch = 0>
struct BlockLoad {
    struct TempStorage { char unused; };
    static constexpr bool striped = A == BLOCK_LOAD_STRIPED;
    CRUCIBLE_INLINE BlockLoad() {}
    CRUCIBLE_INLINE explicit BlockLoad(TempStorage&) {}
    template <class From> CRUCIBLE_INLINE void Load(From from, T (&items)[N]) { Load(from, items, X * Y * Z * N); }
    template <class From> CRUCIBLE_INLINE void Load(From from, T (&items)[N], int valid) {
        for (int i = 0; i < N; ++i)
            if (const int at = tile_place<X * Y * Z, N>(i, striped); at < valid) items[i] = from[at];
    }
    template <class From, class V> CRUCIBLE_INLINE void Load(From from, T (&items)[N], int valid, V otherwise) {
        for (int i = 0; i < N; ++i) items[i] = T(otherwise);
        Load(from, items, valid);
    }
};
template <class T, int X, int N, BlockStoreAlgorithm A = BLOCK_STORE_DIRECT, int Y = 1, int Z = 1, int Arch = 0>
struct BlockStore {
    struct TempStorage { char unused; };
    static constexpr bool striped = A == BLOCK_STORE_STRIPED;
    CRUCIBLE_INLINE BlockStore() {}
    CRUCIBLE_INLINE explicit BlockStore(TempStorage&) {}
    template <class To> CRUCIBLE_INLINE void Store(To to, T (&items)[N]) { Store(to, items, X * Y * Z * N); }
    template <class To> CRUCIBLE_INLINE void Store(To to, T (&items)[N], int valid) {
        for (int i = 0; i < N; ++i)
            if (const int at = tile_place<X * Y * Z, N>(i, striped); at < valid) to[at] = items[i];
    }
};

template <class T, int X, int N, bool TimeSliced = false, int Y = 1, int Z = 1, int Arch = 0>
struct BlockExchange {
    struct TempStorage { T values[X * Y * Z * N]; };
    TempStorage& storage;
    CRUCIBLE_INLINE explicit BlockExchange(TempStorage& storage) : storage(storage) {}
    template <class U> CRUCIBLE_INLINE void rearrange(const T (&in)[N], U (&out)[N], bool from_striped, bool to_striped) {
        for (int i = 0; i < N; ++i) storage.values[tile_place<X * Y * Z, N>(i, from_striped)] = in[i];
        __syncthreads();
        for (int i = 0; i < N; ++i) out[i] = storage.values[tile_place<X * Y * Z, N>(i, to_striped)];
    }
    template <class U> CRUCIBLE_INLINE void BlockedToStriped(const T (&in)[N], U (&out)[N]) { rearrange(in, out, false, true); }
    template <class U> CRUCIBLE_INLINE void StripedToBlocked(const T (&in)[N], U (&out)[N]) { rearrange(in, out, true, false); }
    CRUCIBLE_INLINE void BlockedToStriped(T (&items)[N]) { rearrange(items, items, false, true); }
    CRUCIBLE_INLINE void StripedToBlocked(T (&items)[N]) { rearrange(items, items, true, false); }
    template <class U, class Rank> CRUCIBLE_INLINE void scatter(const T (&in)[N], U (&out)[N], Rank (&ranks)[N], bool striped) {
        for (int i = 0; i < N; ++i) storage.values[ranks[i]] = in[i];
        __syncthreads();
        for (int i = 0; i < N; ++i) out[i] = storage.values[tile_place<X * Y * Z, N>(i, striped)];
    }
    template <class U, class Rank> CRUCIBLE_INLINE void ScatterToBlocked(const T (&in)[N], U (&out)[N], Rank (&ranks)[N]) { scatter(in, out, ranks, false); }
    template <class U, class Rank> CRUCIBLE_INLINE void ScatterToStriped(const T (&in)[N], U (&out)[N], Rank (&ranks)[N]) { scatter(in, out, ranks, true); }
};

// A key as an unsigned number in the same order, of which some bits count.
template <class K>
CRUCIBLE_INLINE uint64_t radix(K key, int begin, int end) {
    constexpr int width = 8 * sizeof(K);
    uint64_t bits = crucible::bits_of(key);
    const uint64_t top = uint64_t(1) << (width - 1);
    if constexpr (std::is_floating_point_v<K> || std::is_class_v<K>) {
        if (!(bits & (top - 1))) bits = 0;  // the two zeros are one key
        bits = bits & top ? ~bits : bits | top;
    } else if constexpr (std::is_signed_v<K>) {
        bits ^= top;
    }
    const int kept = (end < width ? end : width) - begin;
    return kept >= 64 ? bits : bits >> begin & ((uint64_t(1) << kept) - 1);
}

template <class K, int X, int N, class V = NullType, int Bits = 4, bool Memoize = true, BlockScanAlgorithm Inner = BLOCK_SCAN_WARP_SCANS, int Config = 0, int Y = 1, int Z = 1, int Arch = 0>
struct BlockRadixSort {
    static constexpr int threads = X * Y * Z, count = threads * N;
    struct TempStorage {
        union { K keys[count]; V values[count]; };
        unsigned short order[2][count];
    };
    TempStorage& storage;
    CRUCIBLE_INLINE explicit BlockRadixSort(TempStorage& storage) : storage(storage) {}
    // One thread merges runs of growing length; the order is what counts here, not the time.
    int merge(bool descending, int begin, int end) {
        int from = 0;
        for (int i = 0; i < count; ++i) storage.order[0][i] = (unsigned short)(i);
        for (int run = 1; run < count; run *= 2, from ^= 1)
            for (int start = 0; start < count; start += 2 * run) {
                const int middle = start + run < count ? start + run : count, stop = start + 2 * run < count ? start + 2 * run : count;
                for (int a = start, b = middle, to = start; to < stop; ++to) {
                    bool left = a < middle;
                    if (left && b < stop) {
                        const uint64_t x = radix(storage.keys[storage.order[from][a]], begin, end), y = radix(storage.keys[storage.order[from][b]], begin, end);
                        left = descending ? x >= y : x <= y;
                    }
                    storage.order[from ^ 1][to] = storage.order[from][left ? a++ : b++];
                }
            }
        return from;
    }
    static constexpr int passes() { int n = 0; for (int run = 1; run < count; run *= 2) ++n; return n; }
    template <class W>
    CRUCIBLE_INLINE void sort(K (&keys)[N], W* values, bool descending, int begin, int end, bool striped) {
        for (int i = 0; i < N; ++i) storage.keys[tile_place<threads, N>(i, false)] = keys[i];
        __syncthreads();
        if (linear_thread() == 0) merge(descending, begin, end);
        __syncthreads();
        unsigned short own[N];
        for (int i = 0; i < N; ++i) {
            own[i] = storage.order[passes() & 1][tile_place<threads, N>(i, striped)];
            keys[i] = storage.keys[own[i]];
        }
        if constexpr (!std::is_same_v<V, NullType>) {
            K kept[N];
            for (int i = 0; i < N; ++i) kept[i] = keys[i];
            __syncthreads();
            for (int i = 0; i < N; ++i) storage.values[tile_place<threads, N>(i, false)] = values[i];
            __syncthreads();
            for (int i = 0; i < N; ++i) {
                values[i] = storage.values[own[i]];
                keys[i] = kept[i];
            }
        }
    }
    static constexpr int all = 8 * sizeof(K);
    CRUCIBLE_INLINE void Sort(K (&keys)[N], int begin = 0, int end = all) { sort(keys, (V*)nullptr, false, begin, end, false); }
    CRUCIBLE_INLINE void SortDescending(K (&keys)[N], int begin = 0, int end = all) { sort(keys, (V*)nullptr, true, begin, end, false); }
    CRUCIBLE_INLINE void Sort(K (&keys)[N], V (&values)[N], int begin = 0, int end = all) { sort(keys, values, false, begin, end, false); }
    CRUCIBLE_INLINE void SortDescending(K (&keys)[N], V (&values)[N], int begin = 0, int end = all) { sort(keys, values, true, begin, end, false); }
    CRUCIBLE_INLINE void SortBlockedToStriped(K (&keys)[N], int begin = 0, int end = all) { sort(keys, (V*)nullptr, false, begin, end, true); }
    CRUCIBLE_INLINE void SortDescendingBlockedToStriped(K (&keys)[N], int begin = 0, int end = all) { sort(keys, (V*)nullptr, true, begin, end, true); }
    CRUCIBLE_INLINE void SortBlockedToStriped(K (&keys)[N], V (&values)[N], int begin = 0, int end = all) { sort(keys, values, false, begin, end, true); }
    CRUCIBLE_INLINE void SortDescendingBlockedToStriped(K (&keys)[N], V (&values)[N], int begin = 0, int end = all) { sort(keys, values, true, begin, end, true); }
};

template <class T, int X, int N, int Bins, BlockHistogramAlgorithm A = BLOCK_HISTO_SORT, int Y = 1, int Z = 1, int Arch = 0>
struct BlockHistogram {
    struct TempStorage { char unused; };
    CRUCIBLE_INLINE explicit BlockHistogram(TempStorage&) {}
    template <class C> CRUCIBLE_INLINE void InitHistogram(C (&bins)[Bins]) { for (int i = linear_thread(); i < Bins; i += X * Y * Z) bins[i] = 0; }
    template <class C> CRUCIBLE_INLINE void Composite(T (&items)[N], C (&bins)[Bins]) { for (int i = 0; i < N; ++i) atomicAdd(&bins[items[i]], C(1)); }
    template <class C> CRUCIBLE_INLINE void Histogram(T (&items)[N], C (&bins)[Bins]) {
        InitHistogram(bins);
        __syncthreads();
        Composite(items, bins);
    }
};

template <class T, int X, int Y = 1, int Z = 1, int Arch = 0>
struct BlockDiscontinuity {
    struct TempStorage { T first[X * Y * Z], last[X * Y * Z]; };
    TempStorage& storage;
    CRUCIBLE_INLINE explicit BlockDiscontinuity(TempStorage& storage) : storage(storage) {}
    template <int N, class Flag, class F> CRUCIBLE_INLINE void heads(Flag (&flags)[N], T (&items)[N], F differ, const T* before) {
        const int own = linear_thread();
        storage.last[own] = items[N - 1];
        __syncthreads();
        flags[0] = own ? Flag(differ(storage.last[own - 1], items[0])) : before ? Flag(differ(*before, items[0])) : Flag(1);
        for (int i = 1; i < N; ++i) flags[i] = Flag(differ(items[i - 1], items[i]));
    }
    template <int N, class Flag, class F> CRUCIBLE_INLINE void FlagHeads(Flag (&flags)[N], T (&items)[N], F differ) { heads(flags, items, differ, (const T*)nullptr); }
    template <int N, class Flag, class F> CRUCIBLE_INLINE void FlagHeads(Flag (&flags)[N], T (&items)[N], F differ, T before) { heads(flags, items, differ, &before); }
    template <int N, class Flag, class F> CRUCIBLE_INLINE void FlagTails(Flag (&flags)[N], T (&items)[N], F differ) {
        const int own = linear_thread();
        storage.first[own] = items[0];
        __syncthreads();
        for (int i = 0; i + 1 < N; ++i) flags[i] = Flag(differ(items[i], items[i + 1]));
        flags[N - 1] = own + 1 < X * Y * Z ? Flag(differ(items[N - 1], storage.first[own + 1])) : Flag(1);
    }
};

struct Equality { template <class T> CRUCIBLE_INLINE bool operator()(const T& a, const T& b) const { return a == b; } };
struct Inequality { template <class T> CRUCIBLE_INLINE bool operator()(const T& a, const T& b) const { return !(a == b); } };
template <class K, class V>
struct KeyValuePair { using Key = K; using Value = V; K key; V value; };
struct ArgMax {
    template <class K, class V> CRUCIBLE_INLINE KeyValuePair<K, V> operator()(const KeyValuePair<K, V>& a, const KeyValuePair<K, V>& b) const {
        return b.value > a.value || (a.value == b.value && b.key < a.key) ? b : a;
    }
};
struct ArgMin {
    template <class K, class V> CRUCIBLE_INLINE KeyValuePair<K, V> operator()(const KeyValuePair<K, V>& a, const KeyValuePair<K, V>& b) const {
        return b.value < a.value || (a.value == b.value && b.key < a.key) ? b : a;
    }
};

}  // namespace cub
