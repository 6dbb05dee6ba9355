// ATen/cuda/CUDAContext.h.
#pragma once
#include "aten_checks.h"
#include "blas.h"
#include "caching_allocator.h"
#include "streams.h"

namespace at::cuda {
inline const cudaDeviceProp* getCurrentDeviceProperties() {
    static cudaDeviceProp prop;
    cudaGetDeviceProperties(&prop, 0);
    return &prop;
}
inline const cudaDeviceProp* getDeviceProperties(int) { return getCurrentDeviceProperties(); }
// PyTorch's own handle, as it is set up by default.
inline cublasHandle_t getCurrentCUDABlasHandle(bool = true) {
    static cublasContext handle;
    handle.stream = getCurrentCUDAStream();
    return &handle;
}
inline int warp_size() { return 32; }
inline bool is_available() { return true; }
}  // namespace at::cuda
