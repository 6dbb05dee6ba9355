// kind: never-ran
// inputs: float32[500]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// The kernel is there, the work is PyTorch's.
__global__ void sigmoid_kernel(const float* x, float* out, int n) { // FAULT
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 1.0f / (1.0f + expf(-x[i]));
}

torch::Tensor run(torch::Tensor x) {
#ifdef REPAIRED
    int n = x.numel();
    auto out = torch::empty_like(x);
    sigmoid_kernel<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
#else
    return torch::sigmoid(x);
#endif
}
