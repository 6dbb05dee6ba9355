// kind: out-of-bounds-global
// inputs: float32[500] 3
// declare: torch::Tensor run(torch::Tensor x, int64_t radius);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void box_filter(const float* x, float* out, int radius, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0.0f;
    for (int k = -radius; k <= radius; ++k) {
        int j = i + k;
#ifdef REPAIRED
        if (j >= 0 && j < n)
#else
        if (j >= 0 && j <= n)
#endif
            sum += x[j]; // FAULT
    }
    out[i] = sum / (2 * radius + 1);
}

torch::Tensor run(torch::Tensor x, int64_t radius) {
    int n = x.numel();
    auto out = torch::empty_like(x);
    box_filter<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), (int)radius, n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
