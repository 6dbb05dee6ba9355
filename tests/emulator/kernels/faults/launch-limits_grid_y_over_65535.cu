// kind: launch-limits
// inputs: float32[66000,2]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// One row per block along y, of which there may be 65535.
__global__ void swap_columns(const float* x, float* out, int rows) {
    for (int r = blockIdx.y; r < rows; r += gridDim.y) {
        out[2 * r + threadIdx.x] = x[2 * r + 1 - threadIdx.x];
    }
}

torch::Tensor run(torch::Tensor x) {
    int rows = x.size(0);
    auto out = torch::empty_like(x);
#ifdef REPAIRED
    dim3 grid(1, 1000);
#else
    dim3 grid(1, rows);
#endif
    swap_columns<<<grid, 2>>>(x.data_ptr<float>(), out.data_ptr<float>(), rows); // FAULT
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
