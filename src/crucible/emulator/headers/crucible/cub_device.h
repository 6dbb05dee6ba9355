// CUB's device-wide calls, done by the host on the same memory. Without temporary storage they say how much they want.
#pragma once
#include <vector>

#include "cub_block.h"
#include "runtime_api.h"

namespace crucible {
inline bool asks_for_storage(void* storage, size_t& bytes) {
    if (storage == nullptr) bytes = 256;
    return storage == nullptr;
}
template <class It> using ItemOf = std::remove_cvref_t<decltype(*std::declval<It>())>;
}

namespace cub {

struct DeviceReduce {
    template <class In, class Out, class N, class F, class T>
    static cudaError_t Reduce(void* storage, size_t& bytes, In in, Out out, N count, F op, T init, cudaStream_t = nullptr) {
        if (crucible::asks_for_storage(storage, bytes)) return cudaSuccess;
        T total = init;
        for (N i = 0; i < count; ++i) total = T(op(total, in[i]));
        *out = total;
        return cudaSuccess;
    }
    template <class In, class Out, class N>
    static cudaError_t Sum(void* storage, size_t& bytes, In in, Out out, N count, cudaStream_t = nullptr) {
        return Reduce(storage, bytes, in, out, count, cub::Sum(), crucible::ItemOf<Out>(0));
    }
    template <class In, class Out, class N>
    static cudaError_t Max(void* storage, size_t& bytes, In in, Out out, N count, cudaStream_t = nullptr) {
        return Reduce(storage, bytes, in, out, count, cub::Max(), std::numeric_limits<crucible::ItemOf<In>>::lowest());
    }
    template <class In, class Out, class N>
    static cudaError_t Min(void* storage, size_t& bytes, In in, Out out, N count, cudaStream_t = nullptr) {
        return Reduce(storage, bytes, in, out, count, cub::Min(), std::numeric_limits<crucible::ItemOf<In>>::max());
    }
};

struct DeviceSegmentedReduce {
    template <class In, class Out, class B, class E, class F, class T>
    static cudaError_t Reduce(void* storage, size_t& bytes, In in, Out out, int64_t segments, B begins, E ends, F op, T init, cudaStream_t = nullptr) {
        if (crucible::asks_for_storage(storage, bytes)) return cudaSuccess;
        for (int64_t s = 0; s < segments; ++s) {
            T total = init;
            for (auto i = begins[s]; i < ends[s]; ++i) total = T(op(total, in[i]));
            out[s] = total;
        }
        return cudaSuccess;
    }
    template <class In, class Out, class B, class E>
    static cudaError_t Sum(void* storage, size_t& bytes, In in, Out out, int64_t segments, B begins, E ends, cudaStream_t = nullptr) {
        return Reduce(storage, bytes, in, out, segments, begins, ends, cub::Sum(), crucible::ItemOf<Out>(0));
    }
    template <class In, class Out, class B, class E>
    static cudaError_t Max(void* storage, size_t& bytes, In in, Out out, int64_t segments, B begins, E ends, cudaStream_t = nullptr) {
        return Reduce(storage, bytes, in, out, segments, begins, ends, cub::Max(), std::numeric_limits<crucible::ItemOf<In>>::lowest());
    }
    template <class In, class Out, class B, class E>
    static cudaError_t Min(void* storage, size_t& bytes, In in, Out out, int64_t segments, B begins, E ends, cudaStream_t = nullptr) {
        return Reduce(storage, bytes, in, out, segments, begins, ends, cub::Min(), std::numeric_limits<crucible::ItemOf<In>>::max());
    }
};

struct DeviceScan {
    template <class In, class Out, class F, class N>
    static cudaError_t InclusiveScan(void* storage, size_t& bytes, In in, Out out, F op, N count, cudaStream_t = nullptr) {
        if (crucible::asks_for_storage(storage, bytes) || count == 0) return cudaSuccess;
        auto total = in[0];
        out[0] = total;
        for (N i = 1; i < count; ++i) out[i] = total = op(total, in[i]);
        return cudaSuccess;
    }
    template <class In, class Out, class F, class T, class N>
    static cudaError_t ExclusiveScan(void* storage, size_t& bytes, In in, Out out, F op, T init, N count, cudaStream_t = nullptr) {
        if (crucible::asks_for_storage(storage, bytes)) return cudaSuccess;
        T total = init;
        for (N i = 0; i < count; ++i) {
            const auto v = in[i];
            out[i] = total;
            total = T(op(total, v));
        }
        return cudaSuccess;
    }
    template <class In, class Out, class N>
    static cudaError_t InclusiveSum(void* storage, size_t& bytes, In in, Out out, N count, cudaStream_t = nullptr) { return InclusiveScan(storage, bytes, in, out, cub::Sum(), count); }
    template <class In, class Out, class N>
    static cudaError_t ExclusiveSum(void* storage, size_t& bytes, In in, Out out, N count, cudaStream_t = nullptr) {
        return ExclusiveScan(storage, bytes, in, out, cub::Sum(), crucible::ItemOf<In>(0), count);
    }
};

struct DeviceRadixSort {
    template <class K, class V, class N>
    static cudaError_t sort(void* storage, size_t& bytes, const K* keys, K* keys_out, const V* values, V* values_out, N count, int begin, int end, bool descending) {
        if (crucible::asks_for_storage(storage, bytes)) return cudaSuccess;
        std::vector<size_t> order(static_cast<size_t>(count));
        for (size_t i = 0; i < order.size(); ++i) order[i] = i;
        std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
            const uint64_t x = radix(keys[a], begin, end), y = radix(keys[b], begin, end);
            return descending ? x > y : x < y;
        });
        for (size_t i = 0; i < order.size(); ++i) {
            keys_out[i] = keys[order[i]];
            if (values) values_out[i] = values[order[i]];
        }
        return cudaSuccess;
    }
    template <class K, class N>
    static cudaError_t SortKeys(void* s, size_t& b, const K* in, K* out, N n, int begin = 0, int end = 8 * sizeof(K), cudaStream_t = nullptr) { return sort(s, b, in, out, (const int*)nullptr, (int*)nullptr, n, begin, end, false); }
    template <class K, class N>
    static cudaError_t SortKeysDescending(void* s, size_t& b, const K* in, K* out, N n, int begin = 0, int end = 8 * sizeof(K), cudaStream_t = nullptr) { return sort(s, b, in, out, (const int*)nullptr, (int*)nullptr, n, begin, end, true); }
    template <class K, class V, class N>
    static cudaError_t SortPairs(void* s, size_t& b, const K* in, K* out, const V* values, V* values_out, N n, int begin = 0, int end = 8 * sizeof(K), cudaStream_t = nullptr) { return sort(s, b, in, out, values, values_out, n, begin, end, false); }
    template <class K, class V, class N>
    static cudaError_t SortPairsDescending(void* s, size_t& b, const K* in, K* out, const V* values, V* values_out, N n, int begin = 0, int end = 8 * sizeof(K), cudaStream_t = nullptr) { return sort(s, b, in, out, values, values_out, n, begin, end, true); }
};

}  // namespace cub
