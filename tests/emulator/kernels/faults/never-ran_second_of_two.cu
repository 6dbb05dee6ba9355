// kind: never-ran
// inputs: float32[400] 0
// declare: torch::Tensor run(torch::Tensor x, int64_t iterations);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// The first kernel runs; the second stands in a loop of no rounds.
__global__ void scale_kernel(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 3.0f * x[i];
}

__global__ void shift_kernel(float* out, int n) { // FAULT
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] += 1.0f;
}

torch::Tensor run(torch::Tensor x, int64_t iterations) {
    int n = x.numel();
    auto out = torch::empty_like(x);
    scale_kernel<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
#ifdef REPAIRED
    iterations = 2;
#endif
    for (int64_t k = 0; k < iterations; ++k) {
        shift_kernel<<<(n + 127) / 128, 128>>>(out.data_ptr<float>(), n);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    }
    return out;
}
