// c10/cuda/CUDAStream.h.
#pragma once
#include <c10/core/Device.h>

#include "cuda_functions.h"

namespace c10::cuda {
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
inline CUDAStream getCurrentCUDAStream(int = -1) { return {static_cast<cudaStream_t>(crucible_stream())}; }
inline CUDAStream getDefaultCUDAStream(int = -1) { return {}; }
inline CUDAStream getStreamFromPool(bool = false, int = -1) { return {}; }
inline CUDAStream getStreamFromExternal(cudaStream_t stream, int = 0) { return {stream}; }
inline void setCurrentCUDAStream(CUDAStream) {}
}  // namespace c10::cuda
