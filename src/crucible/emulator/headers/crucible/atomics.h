// Atomics. Included by device.h.
#pragma once

// ---- atomics: the overloads that CUDA has, and no others (atomicMax on a float must not compile)
#define CRUCIBLE_ATOMIC(NAME, T, EXPRESSION)                                                        \
    CRUCIBLE_INLINE T NAME(T* at, T v) {                                                            \
        return crucible::atomically(at, [=](T old) CRUCIBLE_PLAIN -> T { (void)old; return EXPRESSION; }); \
    }                                                                                               \
    CRUCIBLE_INLINE T NAME##_block(T* at, T v) { return NAME(at, v); }                              \
    CRUCIBLE_INLINE T NAME##_system(T* at, T v) { return NAME(at, v); }
typedef unsigned long long crucible_ull;
CRUCIBLE_ATOMIC(atomicAdd, int, int(unsigned(old) + unsigned(v)))
CRUCIBLE_ATOMIC(atomicAdd, unsigned int, old + v)
CRUCIBLE_ATOMIC(atomicAdd, crucible_ull, old + v)
CRUCIBLE_ATOMIC(atomicAdd, float, old + v)
CRUCIBLE_ATOMIC(atomicAdd, double, old + v)
CRUCIBLE_ATOMIC(atomicSub, int, int(unsigned(old) - unsigned(v)))
CRUCIBLE_ATOMIC(atomicSub, unsigned int, old - v)
CRUCIBLE_ATOMIC(atomicExch, int, v)
CRUCIBLE_ATOMIC(atomicExch, unsigned int, v)
CRUCIBLE_ATOMIC(atomicExch, crucible_ull, v)
CRUCIBLE_ATOMIC(atomicExch, float, v)
CRUCIBLE_ATOMIC(atomicMin, int, v < old ? v : old)
CRUCIBLE_ATOMIC(atomicMax, int, v > old ? v : old)
CRUCIBLE_ATOMIC(atomicMin, unsigned int, v < old ? v : old)
CRUCIBLE_ATOMIC(atomicMax, unsigned int, v > old ? v : old)
CRUCIBLE_ATOMIC(atomicMin, crucible_ull, v < old ? v : old)
CRUCIBLE_ATOMIC(atomicMax, crucible_ull, v > old ? v : old)
CRUCIBLE_ATOMIC(atomicMin, long long, v < old ? v : old)
CRUCIBLE_ATOMIC(atomicMax, long long, v > old ? v : old)
CRUCIBLE_ATOMIC(atomicAnd, int, old & v)
CRUCIBLE_ATOMIC(atomicOr, int, old | v)
CRUCIBLE_ATOMIC(atomicXor, int, old ^ v)
CRUCIBLE_ATOMIC(atomicAnd, unsigned int, old & v)
CRUCIBLE_ATOMIC(atomicOr, unsigned int, old | v)
CRUCIBLE_ATOMIC(atomicXor, unsigned int, old ^ v)
CRUCIBLE_ATOMIC(atomicAnd, crucible_ull, old & v)
CRUCIBLE_ATOMIC(atomicOr, crucible_ull, old | v)
CRUCIBLE_ATOMIC(atomicXor, crucible_ull, old ^ v)
typedef long long crucible_ll;
CRUCIBLE_ATOMIC(atomicAnd, crucible_ll, old & v)
CRUCIBLE_ATOMIC(atomicOr, crucible_ll, old | v)
CRUCIBLE_ATOMIC(atomicXor, crucible_ll, old ^ v)
CRUCIBLE_ATOMIC(atomicInc, unsigned int, old >= v ? 0u : old + 1u)
CRUCIBLE_ATOMIC(atomicDec, unsigned int, old == 0u || old > v ? v : old - 1u)
template <class T>
CRUCIBLE_INLINE T crucible_cas(T* at, T compare, T v) {
    const T old = crucible::atomically(at, [=](T old) CRUCIBLE_PLAIN -> T { return old == compare ? v : old; });
    return old;
}
#define CRUCIBLE_CAS(T)                                                                       \
    CRUCIBLE_INLINE T atomicCAS(T* at, T compare, T v) { return crucible_cas(at, compare, v); } \
    CRUCIBLE_INLINE T atomicCAS_block(T* at, T compare, T v) { return crucible_cas(at, compare, v); } \
    CRUCIBLE_INLINE T atomicCAS_system(T* at, T compare, T v) { return crucible_cas(at, compare, v); }
CRUCIBLE_CAS(int)
CRUCIBLE_CAS(unsigned int)
CRUCIBLE_CAS(crucible_ull)
CRUCIBLE_CAS(unsigned short)
// Each element by itself is atomic (sm_90).
CRUCIBLE_INLINE float2 atomicAdd(float2* at, float2 v) { return {atomicAdd(&at->x, v.x), atomicAdd(&at->y, v.y)}; }
CRUCIBLE_INLINE float4 atomicAdd(float4* at, float4 v) {
    return {atomicAdd(&at->x, v.x), atomicAdd(&at->y, v.y), atomicAdd(&at->z, v.z), atomicAdd(&at->w, v.w)};
}
