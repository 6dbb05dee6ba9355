// kind: launch-limits
// inputs: float32[100]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void half_of(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 0.5f * x[i];
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    auto out = torch::empty_like(x);
    const int threads = 256;
#ifdef REPAIRED
    int blocks = (n + threads - 1) / threads;
#else
    int blocks = n / threads;
#endif
    half_of<<<blocks, threads>>>(x.data_ptr<float>(), out.data_ptr<float>(), n); // FAULT
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
