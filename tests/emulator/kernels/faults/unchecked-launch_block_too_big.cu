// kind: unchecked-launch
// inputs: float32[1500]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// One block for the whole tensor; with more than 1024 elements the launch fails, and nobody looks.
__global__ void negate(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = -x[i];
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    auto out = torch::zeros_like(x);
#ifdef REPAIRED
    negate<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
#else
    negate<<<1, n>>>(x.data_ptr<float>(), out.data_ptr<float>(), n); // FAULT
#endif
    return out;
}
