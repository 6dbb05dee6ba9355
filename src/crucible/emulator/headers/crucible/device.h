// The device side: who a thread is, barriers, memory operations, launches; warp operations and atomics come with it.
#pragma once
#include <cassert>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>

#ifdef __has_feature
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1  // as g++ says it
#endif
#endif

#include "abi.h"
#include "vectors.h"

#define CRUCIBLE_INLINE inline __attribute__((always_inline))
#define CRUCIBLE_ANYWHERE __attribute__((no_sanitize("alignment")))  // where references are to registers, or were looked at
#define CRUCIBLE_PLAIN CRUCIBLE_ANYWHERE __attribute__((no_sanitize("thread")))
#define __global__ __attribute__((noinline))
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __builtin_assume(...) ((void)0)
#define __cluster_dims__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
#define __CUDACC__ 1
#define __NVCC__ 1
#define CUDA_VERSION 13000
#define CUDART_VERSION 13000
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0

typedef struct CUstream_st* cudaStream_t;
typedef cudaStream_t CUstream;

namespace crucible {

template <int Offset>
CRUCIBLE_INLINE uint32_t id() {
    // A thread's identity never changes, so the compiler may keep or repeat this; the sanitizer sees no access.
    uint64_t at;
    asm("movq crucible_ids@GOTPCREL(%%rip), %0\n\tmovq (%0), %0\n\tmovl %c1(%0), %k0" : "=&r"(at) : "i"(Offset));
    return uint32_t(at);
}
template <size_t At>
CRUCIBLE_INLINE uint3 ids() {
    return uint3{id<At>(), id<At + 4>(), id<At + 8>()};
}
CRUCIBLE_INLINE uint32_t lane() { return id<offsetof(Ids, lane)>(); }

// ---- plain loads and stores that the sanitizer does not see: for memory already checked
template <class T>
CRUCIBLE_INLINE T raw_load(const T* at) {
    static_assert(std::is_trivially_copyable_v<T>);
    if constexpr (sizeof(T) == 1) { uint8_t v; asm volatile("movb (%1), %0" : "=q"(v) : "r"(at) : "memory"); return __builtin_bit_cast(T, v); }
    else if constexpr (sizeof(T) == 2) { uint16_t v; asm volatile("movw (%1), %0" : "=r"(v) : "r"(at) : "memory"); return __builtin_bit_cast(T, v); }
    else if constexpr (sizeof(T) == 4) { uint32_t v; asm volatile("movl (%1), %0" : "=r"(v) : "r"(at) : "memory"); return __builtin_bit_cast(T, v); }
    else { static_assert(sizeof(T) == 8); uint64_t v; asm volatile("movq (%1), %0" : "=r"(v) : "r"(at) : "memory"); return __builtin_bit_cast(T, v); }
}
template <class T>
CRUCIBLE_INLINE void raw_store(T* at, T value) {
    if constexpr (sizeof(T) == 1) { auto v = __builtin_bit_cast(uint8_t, value); asm volatile("movb %0, (%1)" : : "q"(v), "r"(at) : "memory"); }
    else if constexpr (sizeof(T) == 2) { auto v = __builtin_bit_cast(uint16_t, value); asm volatile("movw %0, (%1)" : : "r"(v), "r"(at) : "memory"); }
    else if constexpr (sizeof(T) == 4) { auto v = __builtin_bit_cast(uint32_t, value); asm volatile("movl %0, (%1)" : : "r"(v), "r"(at) : "memory"); }
    else { static_assert(sizeof(T) == 8); auto v = __builtin_bit_cast(uint64_t, value); asm volatile("movq %0, (%1)" : : "r"(v), "r"(at) : "memory"); }
}

// One OS thread runs all fibers and none is interrupted, so an atomic operation is a load and a store.
template <class T, class F>
CRUCIBLE_INLINE T atomically(T* at, F change) {
    crucible_atomic(at, sizeof(T));
    const T before = raw_load(at), after = T(change(before));
    raw_store(at, after);
    if (__builtin_memcmp(&before, &after, sizeof(T)) == 0) {  // one that changes nothing may be a thread that waits
        uint64_t seen = 0;
        __builtin_memcpy(&seen, &before, sizeof(T) < 8 ? sizeof(T) : 8);
        crucible_observed(at, seen, kAcquire);
    }
    return before;
}

// ---- warp operations
// Values travel in registers: a buffer would be memory that the sanitizer watches.
template <class T>
CRUCIBLE_INLINE T shuffled(uint32_t mask, T value, int source, int op = kShuffleNear) {
    static_assert(is_plain<T> && sizeof(T) <= 16);
    if constexpr (sizeof(T) == 8) {
        uint64_t word;
        __builtin_memcpy(&word, &value, 8);
        word = crucible_warp(op, mask, source, word, 8);
        __builtin_memcpy(&value, &word, 8);
        return value;
    } else if constexpr (sizeof(T) == 4) return __builtin_bit_cast(T, uint32_t(crucible_warp(op, mask, source, __builtin_bit_cast(uint32_t, value), 4)));
    else if constexpr (sizeof(T) == 2) return __builtin_bit_cast(T, uint16_t(crucible_warp(op, mask, source, __builtin_bit_cast(uint16_t, value), 2)));
    else if constexpr (sizeof(T) == 1) return __builtin_bit_cast(T, uint8_t(crucible_warp(op, mask, source, __builtin_bit_cast(uint8_t, value), 1)));
    else {
        uint64_t parts[2] = {0, 0};
        std::memcpy(parts, &value, sizeof(T));
        parts[0] = crucible_warp(op, mask, source, parts[0], 8);
        parts[1] = crucible_warp(op, mask, source, parts[1], 8);
        std::memcpy(&value, parts, sizeof(T));
        return value;
    }
}
CRUCIBLE_INLINE uint32_t warp(int op, uint32_t mask, uint64_t value = 0, uint32_t size = 4) {
    return uint32_t(crucible_warp(op, mask, -1, value, size));
}
template <class T>
CRUCIBLE_INLINE uint64_t bits_of(T value) {
    static_assert(sizeof(T) <= 8);
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    return bits;
}

// ---- shared memory
template <class T>
CRUCIBLE_INLINE T& shared(const void* site, const char* name, size_t align = 1) {
    static constexpr uint32_t dims[4] = {std::extent_v<T, 0>, std::extent_v<T, 1>, std::extent_v<T, 2>, 0};
    // What the runtime aligns needs no check at each access.
    return *static_cast<T*>(__builtin_assume_aligned(
        crucible_shared(site, sizeof(T), align > alignof(T) ? align : alignof(T), name, dims), alignof(T)));
}
template <class T>
CRUCIBLE_INLINE T* dynamic_shared(const char* name) {
    return static_cast<T*>(__builtin_assume_aligned(crucible_dynamic_shared(name), 16));
}
// `extern __shared__ T name[];` outside a function.
template <class T>
struct DynamicShared {
    CRUCIBLE_INLINE operator T*() const { return dynamic_shared<T>(""); }
    template <class U>
    CRUCIBLE_INLINE explicit operator U*() const { return reinterpret_cast<U*>(dynamic_shared<T>("")); }
};

// ---- launches
struct Config {
    Shape shape{};
    Config(dim3 grid, dim3 block, size_t shared = 0, cudaStream_t stream = nullptr, bool cooperative = false) {
        crucible_goes_to(stream);
        shape = Shape{{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared, cooperative};
    }
};

template <class T>
const char* type_words() {
    if constexpr (std::is_same_v<T, float>) return "float";
    else if constexpr (std::is_same_v<T, double>) return "double";
    else if constexpr (std::is_same_v<T, int>) return "int";
    else if constexpr (std::is_same_v<T, unsigned>) return "unsigned int";
    else if constexpr (std::is_same_v<T, int64_t>) return "int64_t";
    else if constexpr (std::is_same_v<T, uint8_t>) return "uint8_t";
    else if constexpr (std::is_same_v<T, bool>) return "bool";
    else if constexpr (sizeof(T) == 2 && std::is_class_v<T>) return "half";
    else if constexpr (std::is_same_v<T, float4>) return "float4";
    else if constexpr (std::is_same_v<T, float2>) return "float2";
    else return "element";
}
template <class T>
CRUCIBLE_PLAIN Argument argument(const T& value) {
    if constexpr (std::is_pointer_v<T>) {
        using E = std::remove_cv_t<std::remove_pointer_t<T>>;
        if constexpr (std::is_void_v<E> || std::is_function_v<E>) return {&value, sizeof value, 0, ""};
        else return {&value, sizeof value, sizeof(E), type_words<E>()};
    } else {
        return {&value, sizeof value, 0, ""};
    }
}

template <class F>
struct Launcher {
    Config config;
    Kernel kernel;
    F call;
    Launcher(Config config, Kernel kernel, F call) : config(config), kernel(kernel), call(call) {}
    template <class... A>
    CRUCIBLE_PLAIN int operator()(A... arguments) const {
        // Without std::tuple and std::apply, which take g++ 0.1 s for each list of types.
        auto run = [&]() CRUCIBLE_PLAIN { call(arguments...); };
        const Argument list[] = {argument(arguments)..., {}};
        return crucible_run(&kernel, &config.shape, [](void* run_) CRUCIBLE_PLAIN { (*static_cast<decltype(run)*>(run_))(); }, &run, list, sizeof...(A));
    }
};

}  // namespace crucible

// Members (`threadIdx.x`) are rewritten to CRUCIBLE_ID; the objects themselves serve where they are passed on whole,
// and a host's own `dim3 blockDim(256)` may hide them.
#define CRUCIBLE_ID(NAME, MEMBER) (::crucible::id<::crucible::k_##NAME + ::crucible::k_##MEMBER>())
namespace crucible {
constexpr int k_threadIdx = offsetof(Ids, thread), k_blockIdx = offsetof(Ids, block), k_blockDim = offsetof(Ids, block_dim),
              k_gridDim = offsetof(Ids, grid_dim), k_x = 0, k_y = 4, k_z = 8;
template <int At>
struct Triple {
    CRUCIBLE_INLINE operator uint3() const { return uint3{id<At>(), id<At + 4>(), id<At + 8>()}; }
    CRUCIBLE_INLINE operator dim3() const { return dim3(id<At>(), id<At + 4>(), id<At + 8>()); }
};
}
static constexpr crucible::Triple<crucible::k_threadIdx> threadIdx{};
static constexpr crucible::Triple<crucible::k_blockIdx> blockIdx{};
static constexpr crucible::Triple<crucible::k_blockDim> blockDim{};
static constexpr crucible::Triple<crucible::k_gridDim> gridDim{};
static constexpr int warpSize = 32;

#define CRUCIBLE_WORDS(x) #x
#define CRUCIBLE_SITE(line) __FILE__ ":" CRUCIBLE_WORDS(line)
#define __syncthreads() ((void)crucible_barrier(0, 0, CRUCIBLE_SITE(__LINE__)))
#define __syncthreads_count(p) (crucible_barrier(1, !!(p), CRUCIBLE_SITE(__LINE__)))
#define __syncthreads_and(p) (crucible_barrier(2, !!(p), CRUCIBLE_SITE(__LINE__)))
#define __syncthreads_or(p) (crucible_barrier(3, !!(p), CRUCIBLE_SITE(__LINE__)))
CRUCIBLE_INLINE void __syncwarp(unsigned mask = 0xffffffffu) { crucible::warp(crucible::kSync, mask); }
CRUCIBLE_INLINE void __threadfence() { crucible_fence(); }
CRUCIBLE_INLINE void __threadfence_block() { crucible_fence(); }
CRUCIBLE_INLINE void __threadfence_system() { crucible_fence(); }
CRUCIBLE_INLINE void __nanosleep(unsigned) { crucible_yield(); }
CRUCIBLE_INLINE void __trap() { crucible_trap("__trap()"); }
CRUCIBLE_INLINE void __brkpt() {}
CRUCIBLE_INLINE unsigned __activemask() { return crucible::warp(crucible::kActive, 0xffffffffu); }

// ---- memory operations by name
// memcpy and its like in a candidate's text (rewrite.py). What one load and one store can do is left to them: the
// sanitizer passes see those, and g++'s sees no call of memcpy.
#ifdef __SANITIZE_THREAD__
#define CRUCIBLE_WATCHED(n) (!(__builtin_constant_p(n) && (n) <= 16 && ((n) & ((n) - 1)) == 0))
#else
#define CRUCIBLE_WATCHED(n) false
#endif
CRUCIBLE_INLINE void* crucible_memcpy(void* to, const void* from, size_t n) {
    return CRUCIBLE_WATCHED(n) ? crucible_copy(to, from, n) : __builtin_memcpy(to, from, n);
}
CRUCIBLE_INLINE void* crucible_memmove(void* to, const void* from, size_t n) {
    return CRUCIBLE_WATCHED(n) ? crucible_copy(to, from, n) : __builtin_memmove(to, from, n);
}
CRUCIBLE_INLINE void* crucible_memset(void* to, int value, size_t n) {
    return CRUCIBLE_WATCHED(n) ? crucible_fill(to, value, n) : __builtin_memset(to, value, n);
}
namespace std {
using ::crucible_memcpy, ::crucible_memmove, ::crucible_memset;
}
namespace crucible {
// The types that CUDA's loads with a cache hint take.
template <class T, class... Among> inline constexpr bool is_among = (std::is_same_v<T, Among> || ...);
template <class T> inline constexpr bool loads = (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) ||
    is_among<T, char2, char4, short2, short4, int2, int4, longlong2, uchar2, uchar4, ushort2, ushort4, uint2, uint4, ulonglong2, float2, float4, double2>;
}
#define CRUCIBLE_LOAD(NAME) template <class T> requires crucible::loads<T> CRUCIBLE_INLINE T NAME(const T* at) { return *at; }
CRUCIBLE_LOAD(__ldg)
CRUCIBLE_LOAD(__ldca)
CRUCIBLE_LOAD(__ldcg)
CRUCIBLE_LOAD(__ldcs)
CRUCIBLE_LOAD(__ldlu)
CRUCIBLE_LOAD(__ldcv)
#define CRUCIBLE_STORE(NAME) template <class T> requires crucible::loads<T> CRUCIBLE_INLINE void NAME(T* at, std::type_identity_t<T> v) { *at = v; }
CRUCIBLE_STORE(__stwb)
CRUCIBLE_STORE(__stcg)
CRUCIBLE_STORE(__stcs)
CRUCIBLE_STORE(__stwt)

CRUCIBLE_INLINE unsigned __isGlobal(const void* p) { return crucible_is_allocation(p) != 0; }
CRUCIBLE_INLINE size_t __cvta_generic_to_shared(const void* p) { return size_t(p) - size_t(crucible_shared_base()); }
CRUCIBLE_INLINE size_t __cvta_generic_to_global(const void* p) { return size_t(p); }
CRUCIBLE_INLINE void* __cvta_shared_to_generic(size_t p) { return static_cast<char*>(crucible_shared_base()) + uint32_t(p); }
CRUCIBLE_INLINE long long clock64() { return (long long)(crucible_clock()); }
CRUCIBLE_INLINE int crucible_clock32() { return int(crucible_clock()); }

#include "warps.h"
#include "atomics.h"
