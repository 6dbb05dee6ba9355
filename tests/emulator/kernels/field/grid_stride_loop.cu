// inputs: float32[5000] float32[5000]
// declare: torch::Tensor run(torch::Tensor a, torch::Tensor b);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void squared_error(const float* a, const float* b, float* out, size_t n) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        float d = a[i] - b[i];
        out[i] = d * d;
    }
}

torch::Tensor run(torch::Tensor a, torch::Tensor b) {
    auto out = torch::empty_like(a);
    squared_error<<<4, 192>>>(a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), (size_t)a.numel());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
