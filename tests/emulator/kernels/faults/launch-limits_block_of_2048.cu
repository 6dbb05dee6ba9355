// kind: launch-limits
// inputs: float32[3000]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void absolute(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = fabsf(x[i]);
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    auto out = torch::empty_like(x);
#ifdef REPAIRED
    int threads = 1024;
#else
    int threads = 2048;
#endif
    absolute<<<(n + threads - 1) / threads, threads>>>(x.data_ptr<float>(), out.data_ptr<float>(), n); // FAULT
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
