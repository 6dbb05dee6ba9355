// kind: uninitialised-shared
// inputs: float32[1000]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void block_sum(const float* x, float* out, int n) {
    __shared__ float s[256];
    int t = threadIdx.x;
    int i = blockIdx.x * 256 + t;
    if (i < n) s[t] = x[i];
#ifdef REPAIRED
    else s[t] = 0.0f;
#endif
    __syncthreads();
    for (int d = 128; d > 0; d >>= 1) {
        if (t < d) s[t] += s[t + d]; // FAULT
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = s[0];
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    int blocks = (n + 255) / 256;
    auto out = torch::empty({blocks}, x.options());
    block_sum<<<blocks, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
