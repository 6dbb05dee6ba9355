// ATen/cuda/Atomic.cuh: gpuAtomicAdd and its like, also on PyTorch's own half types.
#pragma once
#include "half.h"

CRUCIBLE_INLINE c10::Half atomicAdd(c10::Half* at, c10::Half v) { return c10::Half(atomicAdd(reinterpret_cast<__half*>(at), __half(v))); }
CRUCIBLE_INLINE c10::BFloat16 atomicAdd(c10::BFloat16* at, c10::BFloat16 v) { return c10::BFloat16(atomicAdd(reinterpret_cast<__nv_bfloat16*>(at), __nv_bfloat16(v))); }
template <class T>
CRUCIBLE_INLINE T gpuAtomicAdd(T* at, std::type_identity_t<T> v) {
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, int> || sizeof(T) == 2) return atomicAdd(at, v);
    else return crucible::atomically(at, [=](T old) CRUCIBLE_PLAIN -> T { return T(old + v); });
}
template <class T>
CRUCIBLE_INLINE void gpuAtomicAddNoReturn(T* at, std::type_identity_t<T> v) { gpuAtomicAdd(at, v); }
template <class T>
CRUCIBLE_INLINE T gpuAtomicMax(T* at, std::type_identity_t<T> v) { return crucible::atomically(at, [=](T old) CRUCIBLE_PLAIN -> T { return v > old ? v : old; }); }
template <class T>
CRUCIBLE_INLINE T gpuAtomicMin(T* at, std::type_identity_t<T> v) { return crucible::atomically(at, [=](T old) CRUCIBLE_PLAIN -> T { return v < old ? v : old; }); }
