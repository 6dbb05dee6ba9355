// libcu++ in a kernel: atomic references, barriers of a block, asynchronous copies, a thread's pipeline.
#pragma once
#include <cstdint>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include "mbarrier.h"

namespace cuda {
enum thread_scope { thread_scope_system, thread_scope_device, thread_scope_block, thread_scope_thread };
enum memory_order { memory_order_relaxed, memory_order_consume, memory_order_acquire, memory_order_release, memory_order_acq_rel, memory_order_seq_cst };

template <class T, thread_scope Scope = thread_scope_system>
struct atomic_ref {
    T* at;
    CRUCIBLE_INLINE explicit atomic_ref(T& value) : at(&value) {}
    template <class F> CRUCIBLE_INLINE T change(memory_order order, F f) const {
        if (order >= memory_order_release) crucible_fence();
        return crucible::atomically(at, f);
    }
    CRUCIBLE_INLINE T load(memory_order order = memory_order_seq_cst) const {
        crucible_atomic(at, sizeof(T));
        const T value = crucible::raw_load(at);
        crucible_observed(at, crucible::bits_of(value), crucible::kAcquire);
        return value;
    }
    CRUCIBLE_INLINE void store(T v, memory_order order = memory_order_seq_cst) const {
        if (order >= memory_order_release) crucible_fence();
        crucible_atomic(at, sizeof(T));
        crucible::raw_store(at, v);
    }
    CRUCIBLE_INLINE operator T() const { return load(); }
    CRUCIBLE_INLINE T operator=(T v) const { store(v); return v; }
    CRUCIBLE_INLINE T exchange(T v, memory_order order = memory_order_seq_cst) const { return change(order, [=](T) CRUCIBLE_PLAIN -> T { return v; }); }
    CRUCIBLE_INLINE T fetch_add(T v, memory_order order = memory_order_seq_cst) const { return change(order, [=](T old) CRUCIBLE_PLAIN -> T { return T(old + v); }); }
    CRUCIBLE_INLINE T fetch_sub(T v, memory_order order = memory_order_seq_cst) const { return change(order, [=](T old) CRUCIBLE_PLAIN -> T { return T(old - v); }); }
    CRUCIBLE_INLINE T fetch_min(T v, memory_order order = memory_order_seq_cst) const { return change(order, [=](T old) CRUCIBLE_PLAIN -> T { return v < old ? v : old; }); }
    CRUCIBLE_INLINE T fetch_max(T v, memory_order order = memory_order_seq_cst) const { return change(order, [=](T old) CRUCIBLE_PLAIN -> T { return old < v ? v : old; }); }
    CRUCIBLE_INLINE T fetch_and(T v, memory_order order = memory_order_seq_cst) const { return change(order, [=](T old) CRUCIBLE_PLAIN -> T { return T(old & v); }); }
    CRUCIBLE_INLINE T fetch_or(T v, memory_order order = memory_order_seq_cst) const { return change(order, [=](T old) CRUCIBLE_PLAIN -> T { return T(old | v); }); }
    CRUCIBLE_INLINE T fetch_xor(T v, memory_order order = memory_order_seq_cst) const { return change(order, [=](T old) CRUCIBLE_PLAIN -> T { return T(old ^ v); }); }
    CRUCIBLE_INLINE bool compare_exchange_strong(T& expected, T v, memory_order order = memory_order_seq_cst, memory_order = memory_order_seq_cst) const {
        const T wanted = expected;
        const T old = change(order, [=](T old) CRUCIBLE_PLAIN -> T { return old == wanted ? v : old; });
        if (old == wanted) return true;
        expected = old;
        return false;
    }
    CRUCIBLE_INLINE bool compare_exchange_weak(T& expected, T v, memory_order order = memory_order_seq_cst, memory_order other = memory_order_seq_cst) const { return compare_exchange_strong(expected, v, order, other); }
    CRUCIBLE_INLINE T operator++() const { return T(fetch_add(T(1)) + T(1)); }
    CRUCIBLE_INLINE T operator++(int) const { return fetch_add(T(1)); }
    CRUCIBLE_INLINE T operator+=(T v) const { return T(fetch_add(v) + v); }
    CRUCIBLE_INLINE T operator-=(T v) const { return T(fetch_sub(v) - v); }
};
template <class T, thread_scope Scope = thread_scope_system>
struct atomic {
    T value;
    atomic() = default;
    constexpr atomic(T v) : value(v) {}
    CRUCIBLE_INLINE atomic_ref<T, Scope> ref() const { return atomic_ref<T, Scope>(const_cast<T&>(value)); }
    CRUCIBLE_INLINE T load(memory_order order = memory_order_seq_cst) const { return ref().load(order); }
    CRUCIBLE_INLINE void store(T v, memory_order order = memory_order_seq_cst) { ref().store(v, order); }
    CRUCIBLE_INLINE T exchange(T v, memory_order order = memory_order_seq_cst) { return ref().exchange(v, order); }
    CRUCIBLE_INLINE T fetch_add(T v, memory_order order = memory_order_seq_cst) { return ref().fetch_add(v, order); }
    CRUCIBLE_INLINE T fetch_sub(T v, memory_order order = memory_order_seq_cst) { return ref().fetch_sub(v, order); }
    CRUCIBLE_INLINE T fetch_min(T v, memory_order order = memory_order_seq_cst) { return ref().fetch_min(v, order); }
    CRUCIBLE_INLINE T fetch_max(T v, memory_order order = memory_order_seq_cst) { return ref().fetch_max(v, order); }
    CRUCIBLE_INLINE T fetch_and(T v, memory_order order = memory_order_seq_cst) { return ref().fetch_and(v, order); }
    CRUCIBLE_INLINE T fetch_or(T v, memory_order order = memory_order_seq_cst) { return ref().fetch_or(v, order); }
    CRUCIBLE_INLINE bool compare_exchange_strong(T& expected, T v, memory_order a = memory_order_seq_cst, memory_order b = memory_order_seq_cst) { return ref().compare_exchange_strong(expected, v, a, b); }
    CRUCIBLE_INLINE bool compare_exchange_weak(T& expected, T v, memory_order a = memory_order_seq_cst, memory_order b = memory_order_seq_cst) { return ref().compare_exchange_strong(expected, v, a, b); }
    CRUCIBLE_INLINE operator T() const { return load(); }
    CRUCIBLE_INLINE T operator=(T v) { store(v); return v; }
    CRUCIBLE_INLINE T operator++() { return T(fetch_add(T(1)) + T(1)); }
    CRUCIBLE_INLINE T operator++(int) { return fetch_add(T(1)); }
};
CRUCIBLE_INLINE void atomic_thread_fence(memory_order, thread_scope = thread_scope_system) { crucible_fence(); }

template <thread_scope Scope>
struct barrier {
    static_assert(Scope == thread_scope_block, "barriers of another scope than a block's are not covered");
    using arrival_token = uint64_t;
    uint64_t state;
    CRUCIBLE_INLINE char* at() { return reinterpret_cast<char*>(&state); }
    CRUCIBLE_INLINE arrival_token arrive(ptrdiff_t count = 1) { return crucible::mbarrier_arrive(at(), uint32_t(count)); }
    CRUCIBLE_INLINE void wait(arrival_token&& token) { wait_parity(crucible::mbarrier_phase(token)); }
    CRUCIBLE_INLINE void wait_parity(bool parity) { while (!crucible::mbarrier_test_wait(at(), parity)) crucible_yield(); }
    CRUCIBLE_INLINE void arrive_and_wait() { wait(arrive()); }
    CRUCIBLE_INLINE void arrive_and_drop() { crucible::mbarrier_arrive_drop(at()); }
    friend CRUCIBLE_INLINE void init(barrier* b, ptrdiff_t count) { crucible::mbarrier_init(b->at(), uint32_t(count)); }
};
template <size_t N> struct aligned_size_t {
    size_t value;
    CRUCIBLE_INLINE explicit constexpr aligned_size_t(size_t size) : value(size) {}
    CRUCIBLE_INLINE constexpr operator size_t() const { return value; }
};

// Copies in pieces as wide as their addresses and size allow, as `cp.async` has them; other sizes are copied at once.
CRUCIBLE_INLINE void copy_pieces(char* to, const char* from, size_t bytes, size_t rank, size_t threads) {
    const uintptr_t all = uintptr_t(to) | uintptr_t(from) | bytes;
    const size_t piece = all % 16 == 0 ? 16 : all % 8 == 0 ? 8 : all % 4 == 0 ? 4 : all % 2 == 0 ? 2 : 1;
    for (size_t i = rank * piece; i < bytes; i += threads * piece) crucible_copy_async(to + i, from + i, piece, piece);
}

// A thread's own pipeline: each commit is a group of copies, and the oldest one is waited for.
struct thread_pipeline {
    unsigned committed = 0, waited = 0;
    CRUCIBLE_INLINE void producer_acquire() {}
    CRUCIBLE_INLINE void producer_commit() { crucible_copy_commit(); ++committed; }
    CRUCIBLE_INLINE void consumer_wait() { ++waited; crucible_copy_wait(int(committed - waited)); }
    CRUCIBLE_INLINE void consumer_release() {}
    CRUCIBLE_INLINE void quit() {}
};
template <thread_scope Scope>
struct pipeline : thread_pipeline {
    static_assert(Scope == thread_scope_thread, "pipelines that threads share are not covered");
};
CRUCIBLE_INLINE pipeline<thread_scope_thread> make_pipeline() { return {}; }
template <unsigned N> CRUCIBLE_INLINE void pipeline_consumer_wait_prior(pipeline<thread_scope_thread>& p) { p.waited = p.committed - N; crucible_copy_wait(int(N)); }
template <class Size> CRUCIBLE_INLINE void memcpy_async(void* to, const void* from, Size bytes, pipeline<thread_scope_thread>&) { copy_pieces((char*)to, (const char*)from, bytes, 0, 1); }
template <class G, class Size> CRUCIBLE_INLINE void memcpy_async(const G& g, void* to, const void* from, Size bytes, pipeline<thread_scope_thread>&) {
    copy_pieces((char*)to, (const char*)from, bytes, g.thread_rank(), g.size());
}
// Copies of a barrier have landed when this thread arrives there.
template <class Size> CRUCIBLE_INLINE void memcpy_async(void* to, const void* from, Size bytes, barrier<thread_scope_block>&) {
    copy_pieces((char*)to, (const char*)from, bytes, 0, 1);
    crucible_copy_wait(0);
}
template <class G, class Size> CRUCIBLE_INLINE void memcpy_async(const G& g, void* to, const void* from, Size bytes, barrier<thread_scope_block>&) {
    copy_pieces((char*)to, (const char*)from, bytes, g.thread_rank(), g.size());
    crucible_copy_wait(0);
}

template <class T> struct maximum { CRUCIBLE_INLINE T operator()(T a, T b) const { return a < b ? b : a; } };
template <class T> struct minimum { CRUCIBLE_INLINE T operator()(T a, T b) const { return b < a ? b : a; } };
template <> struct maximum<void> { template <class T> CRUCIBLE_INLINE T operator()(T a, T b) const { return a < b ? b : a; } };
template <> struct minimum<void> { template <class T> CRUCIBLE_INLINE T operator()(T a, T b) const { return b < a ? b : a; } };

namespace std {
using ::std::numeric_limits;
using ::std::pair;
using ::std::tuple;
using ::std::array;
using ::std::plus;
using ::std::multiplies;
using ::std::min;
using ::std::max;
using ::std::swap;
using ::std::move;
using ::std::forward;
using ::std::is_same_v;
using ::std::is_same;
using ::std::conditional_t;
using ::std::enable_if_t;
using ::std::is_integral_v;
using ::std::is_floating_point_v;
using ::std::integral_constant;
using ::std::true_type;
using ::std::false_type;
using ::std::size_t;
using ::std::int32_t;
using ::std::uint32_t;
using ::std::int64_t;
using ::std::uint64_t;
using ::cuda::memory_order;
using ::cuda::memory_order_relaxed;
using ::cuda::memory_order_acquire;
using ::cuda::memory_order_release;
using ::cuda::memory_order_acq_rel;
using ::cuda::memory_order_seq_cst;
template <class T> using atomic_ref = ::cuda::atomic_ref<T>;
template <class T> using atomic = ::cuda::atomic<T>;
}  // namespace std
}  // namespace cuda
