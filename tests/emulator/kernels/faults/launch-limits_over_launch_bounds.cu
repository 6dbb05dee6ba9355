// kind: launch-limits
// inputs: float32[900]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// The kernel promises blocks of at most 128 threads.
__global__ void __launch_bounds__(128) square(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] * x[i];
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    auto out = torch::empty_like(x);
#ifdef REPAIRED
    int threads = 128;
#else
    int threads = 256;
#endif
    square<<<(n + threads - 1) / threads, threads>>>(x.data_ptr<float>(), out.data_ptr<float>(), n); // FAULT
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
