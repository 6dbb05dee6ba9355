// kind: race-global
// inputs: float32[1000]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// Threads of one block hand values on through global memory.
__global__ void squared_lag(const float* x, float* scratch, float* out, int n) {
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    if (i < n) scratch[i] = x[i] * x[i];
#ifdef REPAIRED
    __syncthreads();
#endif
    if (i < n) {
        out[i] = t >= 32 ? scratch[i - 32] : 0.0f; // FAULT
    }
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    auto scratch = torch::zeros_like(x);
    auto out = torch::empty_like(x);
    squared_lag<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), scratch.data_ptr<float>(), out.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
