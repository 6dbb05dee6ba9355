// kind: race-shared
// inputs: float32[1000]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// Difference to the element one warp earlier in the block.
__global__ void lagged_difference(const float* x, float* out, int n) {
    __shared__ float tile[256];
    int t = threadIdx.x;
    int i = blockIdx.x * 256 + t;
    tile[t] = i < n ? x[i] : 0.0f;
#ifdef REPAIRED
    __syncthreads();
#endif
    float before = t >= 32 ? tile[t - 32] : 0.0f; // FAULT
    if (i < n) out[i] = tile[t] - before;
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    auto out = torch::empty_like(x);
    lagged_difference<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
