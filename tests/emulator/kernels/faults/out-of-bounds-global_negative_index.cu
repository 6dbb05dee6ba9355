// kind: out-of-bounds-global
// inputs: float32[1000]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void backward_difference(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float before = 0.0f;
#ifdef REPAIRED
        if (i > 0)
#endif
        before = x[i - 1]; // FAULT
        out[i] = x[i] - before;
    }
}

torch::Tensor run(torch::Tensor x) {
    const int n = static_cast<int>(x.numel());
    auto out = torch::empty_like(x);
    backward_difference<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
    TORCH_CHECK(cudaGetLastError() == cudaSuccess, "launch failed");
    return out;
}
