// What ATen/cuda and c10/cuda offer to extensions, over the pretended runtime.
#pragma once
#include <ATen/ATen.h>

#include "runtime_api.h"

namespace crucible {
inline void check_cuda(int error, const char* where) {
    if (error == 0) return;
    crucible_last_error(1);
    TORCH_CHECK(false, "CUDA error: ", crucible_error_words(error), where);
}
}
#define C10_CUDA_CHECK(EXPRESSION) ::crucible::check_cuda(int(EXPRESSION), "")
#define AT_CUDA_CHECK(EXPRESSION) C10_CUDA_CHECK(EXPRESSION)
#define C10_CUDA_CHECK_WARN(EXPRESSION) C10_CUDA_CHECK(EXPRESSION)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#define C10_CUDA_IGNORE_ERROR(EXPRESSION) (void)(EXPRESSION)
#define AT_CUDA_DRIVER_CHECK(EXPRESSION) (void)(EXPRESSION)
#define THCudaCheck(EXPRESSION) C10_CUDA_CHECK(EXPRESSION)

namespace c10::cuda {
using DeviceIndex = c10::DeviceIndex;
struct CUDAStream {
    cudaStream_t handle = nullptr;
    cudaStream_t stream() const { return handle; }
    operator cudaStream_t() const { return handle; }
    void synchronize() const {}
    bool query() const { return true; }
    c10::Device device() const { return c10::Device(c10::kCPU); }
    c10::DeviceIndex device_index() const { return 0; }
    int64_t id() const { return 0; }
    bool operator==(const CUDAStream& other) const { return handle == other.handle; }
};
inline CUDAStream getCurrentCUDAStream(int = -1) { return {}; }
inline CUDAStream getDefaultCUDAStream(int = -1) { return {}; }
inline CUDAStream getStreamFromPool(bool = false, int = -1) { return {}; }
inline CUDAStream getStreamFromExternal(cudaStream_t stream, int = 0) { return {stream}; }
inline void setCurrentCUDAStream(CUDAStream) {}
struct CUDAGuard {
    explicit CUDAGuard(int) {}
    explicit CUDAGuard(c10::Device) {}
    void set_device(c10::Device) {}
    void set_index(int) {}
    c10::Device original_device() const { return c10::Device(c10::kCPU); }
    c10::Device current_device() const { return c10::Device(c10::kCPU); }
};
struct OptionalCUDAGuard {
    OptionalCUDAGuard() = default;
    explicit OptionalCUDAGuard(std::optional<c10::Device>) {}
    explicit OptionalCUDAGuard(c10::Device) {}
    explicit OptionalCUDAGuard(int) {}
    void set_device(c10::Device) {}
    void set_index(int) {}
    void reset_device(c10::Device) {}
};
struct CUDAStreamGuard { explicit CUDAStreamGuard(CUDAStream) {} };
struct OptionalCUDAStreamGuard { template <class... A> explicit OptionalCUDAStreamGuard(A&&...) {} };
inline c10::DeviceIndex current_device() { return 0; }
inline c10::DeviceIndex device_count() { return 1; }
inline void set_device(int) {}
inline void device_synchronize() { ::crucible::check_cuda(crucible_last_error(0), ""); }
namespace CUDACachingAllocator { inline void emptyCache() {} inline void recordStream(const c10::DataPtr&, CUDAStream) {} }
}  // namespace c10::cuda
namespace at::cuda {
using namespace c10::cuda;
inline const cudaDeviceProp* getCurrentDeviceProperties() {
    static cudaDeviceProp prop;
    cudaGetDeviceProperties(&prop, 0);
    return &prop;
}
inline const cudaDeviceProp* getDeviceProperties(int) { return getCurrentDeviceProperties(); }
inline int warp_size() { return 32; }
inline bool is_available() { return true; }
template <class T>
constexpr T ATenCeilDiv(T a, T b) { return (a + b - 1) / b; }
}  // namespace at::cuda
namespace at { template <class T> constexpr T ceil_div_cuda(T a, T b) { return (a + b - 1) / b; } }

// PyTorch defines it for nvcc alone.
namespace at { template <typename T> struct RestrictPtrTraits { typedef T* __restrict__ PtrType; }; }

// ---- gpuAtomicAdd and its like, also on PyTorch's own half types
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

#define C10_LAUNCH_BOUNDS_0
#define C10_LAUNCH_BOUNDS_1(...)
#define C10_LAUNCH_BOUNDS_2(...)
#define CUDA_KERNEL_LOOP_TYPE(i, n, T) \
    for (T i = T(CRUCIBLE_ID(blockIdx, x)) * CRUCIBLE_ID(blockDim, x) + CRUCIBLE_ID(threadIdx, x); i < (n); \
         i += T(CRUCIBLE_ID(blockDim, x)) * CRUCIBLE_ID(gridDim, x))
#define CUDA_KERNEL_LOOP(i, n) CUDA_KERNEL_LOOP_TYPE(i, n, int)
